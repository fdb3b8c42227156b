//! `nervure link`: two processes on loopback.

use std::{
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, ChildStderr, Stdio},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::dataflow::nervure;

/// A receiving end and its address.
struct Serve {
    child: Child,
    stderr: BufReader<ChildStderr>,
    address: String,
}

impl Serve {
    fn start(folder: &Path, listen: &str, allow: &str) -> Self {
        let mut child = nervure(folder)
            .args([
                "link",
                "bench",
                "serve",
                "--key",
                "serve.key",
                "--once",
                "--json",
            ])
            .args([
                "--listen",
                listen,
                "--allow",
                allow,
                "--receptions",
                "receptions",
            ])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let mut serve = Self {
            child,
            stderr,
            address: String::new(),
        };
        let line = serve.line("listening on ");
        serve.address = line["listening on ".len()..]
            .split(',')
            .next()
            .unwrap()
            .to_owned();
        serve
    }

    /// Waits for a line of stderr with this beginning.
    fn line(&mut self, begin: &str) -> String {
        let mut line = String::new();
        while !line.starts_with(begin) {
            line.clear();
            assert_ne!(
                self.stderr.read_line(&mut line).unwrap(),
                0,
                "it ends without {begin:?}"
            );
        }
        line
    }

    /// Waits for its end and returns its summary.
    fn summary(mut self) -> Value {
        let mut stdout = String::new();
        self.child
            .stdout
            .take()
            .unwrap()
            .read_to_string(&mut stdout)
            .unwrap();
        assert!(self.child.wait().unwrap().success());
        last_line(&stdout)
    }
}

fn key(folder: &Path, name: &str) -> String {
    let output = nervure(folder)
        .args(["link", "key", name])
        .output()
        .unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn last_line(text: &str) -> Value {
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

/// Runs the sending end. Returns its exit code, its summary if any, and its stderr.
fn send(folder: &Path, to: &str, peer: &str, more: &[&str]) -> (i32, Option<Value>, String) {
    let output = nervure(folder)
        .args([
            "link",
            "bench",
            "send",
            "--key",
            "send.key",
            "--json",
            "--connect",
            to,
            "--peer",
            peer,
        ])
        .args(more)
        .output()
        .unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    (
        output.status.code().unwrap(),
        (!stdout.is_empty()).then(|| last_line(&stdout)),
        stderr,
    )
}

#[test]
fn samples_arrive_unaltered_and_none_is_missing() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let serve = Serve::start(folder, "127.0.0.1:0", &key(folder, "send.key"));
    let streams = [
        "--stream",
        "size=100KB,rate_hz=50,qos=keep_all:8,count=20",
        "--stream",
        "size=64,rate_hz=100,qos=keep_all:500,count=50,copies=3",
    ];
    let more = [&streams[..], &["--drain", "60s"]].concat();
    let (code, sent, stderr) = send(folder, &serve.address, &key(folder, "serve.key"), &more);
    assert_eq!(code, 0, "{stderr}");
    let sent = sent.unwrap();
    let received = serve.summary();
    for (stream, count) in [
        ("bench/0", 20),
        ("bench/1", 50),
        ("bench/2", 50),
        ("bench/3", 50),
    ] {
        assert_eq!(sent["streams"][stream]["offered"], count, "{sent}");
        assert_eq!(sent["streams"][stream]["delivered"], count, "{sent}");
        assert_eq!(
            received["streams"][stream]["delivered"], count,
            "{received}"
        );
        assert_eq!(received["streams"][stream]["lost"]["altered"], 0);
    }
    let receptions = std::fs::read_to_string(folder.join("receptions")).unwrap();
    let lines: Vec<Vec<&str>> = receptions
        .lines()
        .map(|line| line.split(' ').collect())
        .collect();
    let of_first: Vec<_> = lines
        .iter()
        .filter(|line| line[0] == "bench/0")
        .map(|line| line[1])
        .collect();
    assert_eq!(
        of_first,
        (0..20).map(|number| number.to_string()).collect::<Vec<_>>()
    );
    let nanos = |text: &str| text.parse::<u64>().unwrap();
    assert!(
        lines.len() == 170 && lines.iter().all(|line| nanos(line[2]) <= nanos(line[3])),
        "{receptions}"
    );
}

/// The trace has the sent packets and the decisions; if it cannot be written, the command fails.
#[test]
fn a_trace_is_written_as_a_whole_or_the_command_fails() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let (send_key, serve_key) = (key(folder, "send.key"), key(folder, "serve.key"));
    let stream = ["--stream", "size=100KB,rate_hz=50,qos=keep_all:8,count=20"];
    let with_trace = |file| {
        let serve = Serve::start(folder, "127.0.0.1:0", &send_key);
        let more = [&stream[..], &["--drain", "60s", "--trace", file]].concat();
        let sent = send(folder, &serve.address, &serve_key, &more);
        serve.summary();
        sent
    };
    let (code, sent, stderr) = with_trace("trace.jsonl");
    assert_eq!(code, 0, "{stderr}");
    let trace = std::fs::read_to_string(folder.join("trace.jsonl")).unwrap();
    let records: Vec<Value> = trace
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(records.iter().all(|record| record["peer"] == serve_key));
    let times = records
        .iter()
        .map(|record| record["time"].as_f64().unwrap());
    assert!(times.is_sorted(), "{trace}");
    assert_eq!(records[0]["name"], "connected", "{trace}");
    let feedback: Vec<_> = records
        .iter()
        .filter(|record| record["name"] == "feedback")
        .map(|record| &record["data"])
        .collect();
    let sum = |name: &str| -> u64 {
        let values = feedback.iter().map(|data| data[name].as_u64().unwrap());
        values.sum()
    };
    let packets = sent.unwrap()["link"]["packets_sent"].as_u64().unwrap();
    let bytes = sum("sent_bytes");
    assert!(bytes >= 2_000_000, "{bytes} bytes: {trace}");
    assert!((1300..=packets).contains(&sum("sent_packets")), "{trace}");
    for data in feedback {
        let rate = |name: &str| data[name].as_f64().unwrap();
        let decision = match rate("bytes_per_second") - rate("bytes_per_second_before") {
            change if change > 0.0 => "raise",
            change if change < 0.0 => "lower",
            _ => "keep",
        };
        // Rates are rounded to whole bytes, decisions are not.
        assert!(data["decision"] == decision || decision == "keep", "{data}");
    }

    let (code, _, stderr) = with_trace("/dev/full");
    assert_eq!(code, 2, "{stderr}");
    assert!(
        stderr.contains("cannot write the trace to /dev/full"),
        "{stderr}"
    );
}

#[test]
fn a_killed_receiver_costs_the_samples_in_flight() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let (send_key, serve_key) = (key(folder, "send.key"), key(folder, "serve.key"));
    // No other process listens on the port, so it is still free for the second one.
    let mut first = Serve::start(folder, "127.0.0.77:0", &send_key);
    let address = first.address.clone();
    let second = std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let stream = [
                "--stream",
                "size=20KB,rate_hz=200,qos=keep_all:16,count=300",
            ];
            let more = [&stream[..], &["--drain", "60s", "--duration", "100s"]].concat();
            send(folder, &address, &serve_key, &more)
        });
        first.line("connected: ");
        first.child.kill().unwrap();
        first.child.wait().unwrap();
        let second = Serve::start(folder, &address, &send_key);
        let (_, sent, stderr) = sending.join().unwrap();
        (second, sent.unwrap_or_else(|| panic!("{stderr}")))
    });
    let (second, sent) = second;
    let stream = &sent["streams"]["bench/0"];
    let count = |value: &Value| value.as_u64().unwrap();
    assert_eq!(
        count(&stream["delivered"]) + count(&stream["lost"]["unconfirmed"]),
        300,
        "{sent}"
    );
    assert!(count(&stream["lost"]["unconfirmed"]) <= 16, "{sent}");
    assert!(count(&second.summary()["streams"]["bench/0"]["delivered"]) >= 300 - 16 * 2);
}

#[test]
fn unknown_keys_are_rejected() {
    let folder = TempDir::new().unwrap();
    let folder = folder.path();
    let mut serve = Serve::start(folder, "127.0.0.1:0", &key(folder, "other.key"));
    let (code, _, stderr) = send(
        folder,
        &serve.address,
        &key(folder, "serve.key"),
        &["--duration", "20s", "--stream", "count=1"],
    );
    assert_eq!(code, 1, "{stderr}");
    assert!(
        stderr.contains("hint: run `nervure link bench serve --allow ed25519:"),
        "{stderr}"
    );
    serve.line("refused ed25519:");
    serve.child.kill().unwrap();
    serve.child.wait().unwrap();
}

#[test]
fn wrong_command_lines_are_explained() {
    let folder = TempDir::new().unwrap();
    let stderr_of = |arguments: &[&str]| {
        let output = nervure(folder.path())
            .args(["link"])
            .args(arguments)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    let key = key(folder.path(), "a.key");
    let serve = [
        "bench",
        "serve",
        "--key",
        "a.key",
        "--listen",
        "192.0.2.1:1",
        "--allow",
        &key,
    ];
    assert!(stderr_of(&serve).contains("hint: the address must be one of this host"));
    assert!(
        stderr_of(&["bench", "send", "--stream", "size=1TB"])
            .contains("expected a size such as 512KiB")
    );
    std::fs::write(folder.path().join("b.key"), "hello").unwrap();
    assert!(stderr_of(&["key", "b.key"]).contains("b.key can be read by others"));
}
