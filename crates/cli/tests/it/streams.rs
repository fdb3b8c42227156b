//! Streams of `nervure serve`, and its recordings.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::{
    dataflow::{Dataflow, Run, WAIT_LIMIT},
    serve::{Server, losing, server},
};

/// A stream from the view of its client.
struct Events {
    status: u16,
    lines: BufReader<TcpStream>,
}

impl Events {
    /// Asks for a stream, and reads the head of the answer.
    fn open(server: &Server, path: &str) -> Self {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        stream.set_read_timeout(Some(WAIT_LIMIT)).unwrap();
        let request = format!(
            "GET /v1{path} HTTP/1.1\r\nHost: localhost\r\n{}\r\n\r\n",
            server.authorization
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut lines = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(lines.read_line(&mut head).unwrap() > 0, "{head}");
        }
        Self {
            status: head.split(' ').nth(1).unwrap().parse().unwrap(),
            lines,
        }
    }

    /// The next event, with its data. The sizes of chunks and empty lines are skipped.
    fn next(&mut self) -> (String, Value) {
        let mut kind = None;
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "no end");
            let line = line.trim_end();
            if let Some(name) = line.strip_prefix("event: ") {
                kind = Some(name.to_owned());
            } else if let (Some(data), Some(kind)) = (line.strip_prefix("data: "), &kind) {
                return (kind.clone(), serde_json::from_str(data).unwrap());
            }
        }
    }

    /// The events up to the last one.
    fn rest(&mut self) -> Vec<(String, Value)> {
        let mut events = vec![self.next()];
        while events.last().unwrap().0 != "end" {
            events.push(self.next());
        }
        events
    }
}

fn await_that(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + WAIT_LIMIT;
    while !is_so() {
        assert!(Instant::now() < until, "{what}: not within {WAIT_LIMIT:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Commands that this server runs for its clients.
fn children(parent: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{parent}/task")).into_iter();
    let lists = tasks.flatten().flatten().map(|task| {
        let list = fs::read_to_string(task.path().join("children"));
        list.unwrap_or_default()
    });
    let lists: Vec<String> = lists.collect();
    let pids = lists.iter().flat_map(|list| list.split_ascii_whitespace());
    pids.map(|pid| pid.parse().unwrap()).collect()
}

fn endless(zeros: u32, pause_millis: u32) -> Run {
    let command = format!("source 1000000 {pause_millis} {zeros}");
    Dataflow::named()
        .node("source", &command, json!({"outputs": ["out"]}))
        .node("idle", "idle", json!({}))
        .run(&[])
}

#[test]
fn samples_come_as_events_until_the_dataflow_ends() {
    let mut run = endless(0, 5);
    run.line("idle", "ready");
    let server = server(&run);
    let path = format!("/dataflows/{}/samples?topics=source/*", run.name());
    let mut events = Events::open(&server, &path);
    assert_eq!(events.status, 200);
    let (kind, first) = events.next();
    let (_, second) = events.next();
    assert_eq!(
        (kind.as_str(), &first["topic"]),
        ("sample", &json!("source/out"))
    );
    let number = |sample: &Value| sample["sequence"].as_u64().unwrap();
    let missed = second["missed"].as_u64().unwrap();
    assert_eq!(number(&second), number(&first) + 1 + missed, "{second:#}");
    let stop = server.api("POST", &format!("/dataflows/{}/stop", run.name()), None);
    assert_eq!(stop.0, 200, "{stop:?}");
    let (_, end) = events.rest().pop().unwrap();
    assert_eq!(
        end,
        json!({"reason": "the dataflow has ended", "missed": 0})
    );
    // The connection is as good as before.
    let mut last_chunk = [0; 6];
    events.lines.read_exact(&mut last_chunk).unwrap();
    assert_eq!(&last_chunk, b"\n\r\n0\r\n");
    run.finish();
}

#[test]
fn log_records_come_as_events() {
    let mut run = losing();
    run.line("sink", "in 49");
    let server = server(&run);
    let of_logs = format!("/dataflows/{}/logs/follow", run.name());
    // Existing records, and later ones.
    let path = format!("{of_logs}?node=sink&pattern=in%204.&since_seconds=3600");
    let mut before = Events::open(&server, &path);
    let (kind, record) = before.next();
    assert_eq!(
        (kind.as_str(), &record["text"]),
        ("record", &json!("in 40")),
        "{record:#}"
    );
    let mut after = Events::open(&server, &format!("{of_logs}?node=deaf"));
    assert_eq!(after.status, 200);
    let stop = server.api("POST", &format!("/dataflows/{}/stop", run.name()), None);
    assert_eq!(stop.0, 200, "{stop:?}");
    for (kind, record) in after.rest() {
        assert!(kind == "end" || record["node"] == "deaf", "{record:#}");
    }
    assert_eq!(before.rest().len(), 10, "in 41 to in 49, and the end");
    run.finish();
}

#[test]
fn a_client_that_reads_nothing_misses_samples_and_is_informed() {
    // 100 MB of text, which no buffer of a connection takes.
    let mut run = Dataflow::named()
        .node("source", "source 2000 1 25000", json!({"outputs": ["out"]}))
        .node("idle", "idle", json!({}))
        .run(&[]);
    run.line("idle", "ready");
    let server = server(&run);
    let of_dataflow = format!("/dataflows/{}", run.name());
    let mut slow = Events::open(&server, &format!("{of_dataflow}/samples?full=true"));
    await_that("the source has sent all", || {
        server.get(&of_dataflow)["nodes"][0]["state"] == "ended"
    });
    let stop = server.api("POST", &format!("{of_dataflow}/stop"), None);
    assert_eq!(stop.0, 200, "{stop:?}");
    let events = slow.rest();
    let missed: u64 = events
        .iter()
        .filter(|(kind, _)| kind == "missed")
        .map(|(_, data)| data["missed"].as_u64().unwrap())
        .sum();
    let samples = events.iter().filter(|(kind, _)| kind == "sample");
    let samples: Vec<_> = samples.map(|(_, data)| data).collect();
    // On a busy machine the server itself may be too slow for the topic.
    let before: u64 = samples
        .iter()
        .map(|sample| sample["missed"].as_u64().unwrap())
        .sum();
    assert!(
        missed + before > 0 && !samples.is_empty(),
        "{missed} and {before} missed, {} samples",
        samples.len()
    );
    let (_, end) = events.last().unwrap();
    assert_eq!(end["missed"], missed, "{end:#}");
    // The second one where all this takes that long.
    let reasons = [
        "the dataflow has ended",
        "the client has read nothing for 30 s",
    ];
    assert!(
        reasons.contains(&end["reason"].as_str().unwrap()),
        "{end:#}"
    );
    run.finish();
}

#[test]
fn a_sample_that_is_too_long_is_missed() {
    let mut run = endless(600_000, 10);
    run.line("idle", "ready");
    let server = server(&run);
    let path = format!("/dataflows/{}/samples?full=true", run.name());
    let mut events = Events::open(&server, &path);
    // The shortened ones are short: the source does send.
    let short = format!("/dataflows/{}/samples", run.name());
    assert_eq!(Events::open(&server, &short).next().0, "sample");
    let stop = server.api("POST", &format!("/dataflows/{}/stop", run.name()), None);
    assert_eq!(stop.0, 200, "{stop:?}");
    let events = events.rest();
    assert!(events.iter().all(|(kind, _)| kind != "sample"));
    assert!(events.last().unwrap().1["missed"].as_u64().unwrap() > 0);
    run.finish();
}

#[test]
fn streams_are_limited_and_their_commands_end_with_clients_and_server() {
    // Without samples, a command does not write, and so cannot notice the end of its client.
    let mut run = Dataflow::named()
        .node("source", "idle", json!({"outputs": ["out"]}))
        .run(&[]);
    run.line("source", "ready");
    let server = server(&run);
    let path = format!("/dataflows/{}/samples", run.name());
    let mut streams: Vec<_> = (0..16).map(|_| Events::open(&server, &path)).collect();
    assert!(streams.iter().all(|stream| stream.status == 200));
    let mut refused = Events::open(&server, &path);
    assert_eq!(refused.status, 503);
    let mut text = String::new();
    refused.lines.read_line(&mut text).unwrap();
    assert!(text.contains("there are 16 streams already"), "{text}");
    // Other requests are answered.
    assert_eq!(
        server.get(&format!("/dataflows/{}", run.name()))["state"],
        "running"
    );
    streams.pop();
    await_that("there is room again", || {
        let next = Events::open(&server, &path);
        let has_room = next.status == 200;
        streams.extend(has_room.then_some(next));
        has_room
    });
    await_that("each has its command", || {
        children(server.pid()).len() == 16
    });
    streams.truncate(2);
    await_that("the commands of clients that have left end", || {
        children(server.pid()).len() == 2
    });
    let left = children(server.pid());
    // SIGKILL.
    drop(server);
    await_that("the others end with the server", || {
        left.iter().all(|pid| {
            let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            state.is_empty() || state.contains(") Z ")
        })
    });
    drop(streams);
}

#[test]
fn a_stream_needs_the_token() {
    let run = Dataflow::named().node("idle", "idle", json!({})).run(&[]);
    let server = server(&run);
    for path in ["samples", "logs/follow"] {
        let path = format!("/v1/dataflows/{}/{path}", run.name());
        let answer = server.request("GET", &path, "Host: localhost\r\n");
        assert_eq!(answer.status, 401, "{answer:?}");
    }
}

#[test]
fn recordings_are_started_listed_and_stopped() {
    let mut run = endless(0, 2);
    run.line("idle", "ready");
    let server = server(&run);
    let of_dataflow = format!("/dataflows/{}", run.name());
    let file = run.folder().join("run.mcap");
    let record = json!({"file": file, "topics": ["source/*"]});
    let begin = |record: &Value| {
        server.api(
            "POST",
            &format!("{of_dataflow}/recordings"),
            Some(record.clone()),
        )
    };
    let (status, recording) = begin(&record);
    assert_eq!(status, 200, "{recording:#}");
    assert_eq!(recording["is_running"], true, "{recording:#}");
    let (status, again) = begin(&record);
    assert_eq!(status, 400, "the file exists: {again:#}");
    let (status, none) = begin(&json!({"file": "/tmp/none.mcap", "topics": ["nope"]}));
    assert_eq!(status, 400, "{none:#}");
    assert!(
        none["error"]["message"]
            .as_str()
            .unwrap()
            .contains("no topic")
    );
    let listed = || server.get("/recordings")["recordings"].clone();
    assert_eq!(listed(), json!([recording]));
    await_that("something is recorded", || {
        fs::metadata(&file).is_ok_and(|file| file.len() > 100)
    });
    let id = recording["recording"].as_u64().unwrap();
    let stop = format!("/recordings/{id}/stop");
    let (status, stopped) = server.api("POST", &stop, None);
    assert_eq!(status, 200, "{stopped:#}");
    let summary = &stopped["summary"];
    assert!(summary["samples"].as_u64().unwrap() > 0, "{stopped:#}");
    assert_eq!(summary["files"], json!([file]), "{stopped:#}");
    assert_eq!(listed(), json!([stopped]));
    assert_eq!(server.api("POST", &stop, None), (200, stopped));
    // One ends with its dataflow, and is complete.
    let (status, second) = begin(&json!({"file": run.folder().join("second.mcap")}));
    assert_eq!(status, 200, "{second:#}");
    let (status, _) = server.api("POST", &format!("{of_dataflow}/stop"), None);
    assert_eq!(status, 200);
    await_that("it has ended", || listed()[1]["is_running"] == false);
    run.finish();
}
