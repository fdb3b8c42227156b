//! `nervure record`, `replay` and `info` with real processes, with kills and full disks.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::dataflow::{Dataflow, Run, WAIT_LIMIT, nervure, output};

fn info(folder: &Path, file: &str) -> Value {
    info_with_code(folder, file, 0)
}

/// Like [`info`], for a damaged file.
fn damaged_info(folder: &Path, file: &str) -> Value {
    info_with_code(folder, file, 3)
}

fn info_with_code(folder: &Path, file: &str, expected: i32) -> Value {
    let mut command = nervure(folder);
    command.args(["info", "--json", file]);
    let (code, stdout, stderr) = output(command);
    assert_eq!(code, Some(expected), "{stdout}{stderr}");
    serde_json::from_str(&stdout).unwrap()
}

/// A source of `count` numbers and a sink, without loss.
fn numbers(count: u64, pause_millis: u64) -> Dataflow {
    Dataflow::named()
        .node(
            "source",
            &format!("source {count} {pause_millis}"),
            json!({"outputs": ["out"]}),
        )
        .node(
            "sink",
            "sink",
            json!({"inputs": {"in": {"source": "source/out", "queue_policy": "block"}}}),
        )
}

/// An endless source of numbers, and a sink.
fn endless() -> Run {
    let mut run = numbers(u64::MAX, 1).run(&[]);
    run.line("sink", "in 3");
    run
}

/// Lines that a node wrote, from the output of `--json`.
fn lines(stdout: &str, node: &str) -> Vec<String> {
    let messages = stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let own = messages.filter(|message| message["message"] == "log" && message["node"] == node);
    own.map(|message| message["text"].as_str().unwrap().to_owned())
        .collect()
}

fn wait_for_bytes(file: &Path, bytes: u64) {
    let deadline = Instant::now() + WAIT_LIMIT;
    while fs::metadata(file).map_or(0, |file| file.len()) < bytes {
        assert!(
            Instant::now() < deadline,
            "{} does not grow",
            file.display()
        );
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_recording_is_replayed_in_the_place_of_its_source_identically_each_time() {
    let inputs = json!({"inputs": {"in": {"source": "source/out", "queue_policy": "block"}}});
    let recorder = json!({"id": "recorder", "path": env!("CARGO_BIN_EXE_nervure"), "args": "record -o run.mcap"});
    let mut recorder = recorder;
    recorder
        .as_object_mut()
        .unwrap()
        .extend(inputs.as_object().unwrap().clone());
    let dataflow = numbers(500, 0).raw(recorder);
    let file = dataflow.write();
    let mut run = dataflow.command(&["run", "--json"]);
    run.arg(&file);
    let (code, first, stderr) = output(run);
    assert_eq!(code, Some(0), "{stderr}");
    let parsed = info(dataflow.folder(), "run.mcap");
    assert_eq!(parsed["is_complete"], true);
    let begins = |zone: &str| {
        let mut command = dataflow.command(&["info", "run.mcap"]);
        command.env("TZ", zone);
        let (_, text, _) = output(command);
        text.lines()
            .nth(1)
            .unwrap()
            .split(", written by")
            .next()
            .unwrap()
            .to_owned()
    };
    // "begins 2026-01-31 23:59:59 +09:00"
    assert!(begins("JST-9").ends_with(" +09:00") && begins("<-03>3").ends_with(" -03:00"));
    assert_ne!(begins("JST-9")[..20], begins("<-03>3")[..20]);
    let topic = &parsed["topics"][0];
    assert_eq!(
        (&topic["topic"], &topic["samples"], &topic["lost"]),
        (&json!("source/out"), &json!(500), &json!(0))
    );
    assert_eq!(topic["schemas"], json!(["nervure.UInt64Tensor"]));

    let received = |stdout: &str| -> Vec<String> {
        lines(stdout, "sink")
            .into_iter()
            .filter(|line| line.starts_with("in "))
            .collect()
    };
    let expected: Vec<String> = (0..500).map(|number| format!("in {number}")).collect();
    assert_eq!(received(&first), expected);
    fs::rename(
        dataflow.folder().join("run.mcap"),
        dataflow.folder().join("first.mcap"),
    )
    .unwrap();
    for rate in ["max", "1000", "10"] {
        let mut replay = dataflow.command(&["replay", "first.mcap", "--rate", rate, "--json"]);
        replay.arg(&file);
        let (code, stdout, stderr) = output(replay);
        assert_eq!(code, Some(0), "{stderr}");
        assert_eq!(received(&stdout), expected);
        assert!(
            stderr.contains("`source` is replaced by the recording of source/out"),
            "{stderr}"
        );
        // Topics recorded from a replay have the names of the replayed topics.
        assert_eq!(
            info(dataflow.folder(), "run.mcap")["topics"][0]["topic"],
            "source/out"
        );
        fs::remove_file(dataflow.folder().join("run.mcap")).unwrap();
    }
}

#[test]
fn a_replay_beside_the_dataflow_needs_another_name_and_the_programs_of_the_nodes_that_stay() {
    let recorder = json!({"id": "recorder", "path": env!("CARGO_BIN_EXE_nervure"), "args": "record -o run.mcap",
        "inputs": {"in": "source/out"}});
    let dataflow = numbers(3, 0).raw(recorder);
    let recorded = dataflow.folder().join("run.mcap");
    let (code, _, stderr) = output({
        let mut run = dataflow.command(&["run"]);
        run.arg(dataflow.write());
        run
    });
    assert_eq!(code, Some(0), "{stderr}");
    let keys = json!({"inputs": {"in": "source/out"}});
    let not_built = |path: &str, id: &str, keys: &Value| {
        let mut node = json!({"id": id, "path": path, "build": "true"});
        node.as_object_mut()
            .unwrap()
            .extend(keys.as_object().unwrap().clone());
        node
    };
    let replay = |dataflow: &Dataflow| {
        let mut replay = dataflow.command(&["replay", "--stop-after", "20s"]);
        replay.arg(&recorded).arg(dataflow.write());
        output(replay)
    };
    let source = not_built("none/source", "source", &json!({"outputs": ["out"]}));
    let dataflow = Dataflow::named()
        .raw(source.clone())
        .raw(not_built("none/sink", "sink", &keys));
    let (code, _, stderr) = replay(&dataflow);
    assert_eq!(code, Some(2), "{stderr}");
    assert!(
        stderr.contains("error: programs are not built: that of `sink` ("),
        "{stderr}"
    );
    assert!(stderr.contains("hint: `nervure build "), "{stderr}");

    let dataflow = Dataflow::named()
        .raw(source)
        .shell("sink", "sleep 1000", keys);
    let mut command = dataflow.command(&["replay", "--json", "--name", dataflow.name()]);
    let file = dataflow.write();
    let mut first = command
        .arg(&recorded)
        .arg(&file)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdout = std::io::BufReader::new(first.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut stdout, &mut String::new()).unwrap();
    let (code, _, stderr) = replay(&dataflow);
    first.kill().unwrap();
    first.wait().unwrap();
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("already runs from this file"), "{stderr}");
}

#[test]
fn requests_and_answers_work_in_a_replay_in_any_order_of_nodes() {
    let recorded = numbers(5, 0).raw(json!({
        "id": "recorder", "path": env!("CARGO_BIN_EXE_nervure"), "args": "record -o run.mcap",
        "inputs": {"in": {"source": "source/out", "queue_policy": "block"}},
    }));
    let folder = recorded.folder().to_owned();
    let mut recorded = recorded.run(&[]);
    recorded.ended("recorder");
    for source_is_first in [true, false] {
        let source =
            |dataflow: Dataflow| dataflow.node("source", "source 5 0", json!({"outputs": ["out"]}));
        let mut dataflow = Dataflow::named();
        if source_is_first {
            dataflow = source(dataflow);
        }
        dataflow = dataflow
            .node(
                "client",
                "call 20",
                json!({"clients": {"twice": "server/double"}}),
            )
            .node("sink", "sink", json!({"inputs": {"in": "source/out"}}))
            .node("server", "serve", json!({"services": ["double"]}));
        if !source_is_first {
            dataflow = source(dataflow);
        }
        let file = dataflow.write();
        let mut replay = dataflow.command(&["replay", "--rate", "max", "--json"]);
        replay.arg(folder.join("run.mcap")).arg(&file);
        let (code, stdout, stderr) = output(replay);
        assert_eq!(code, Some(0), "{stdout}{stderr}");
        assert_eq!(lines(&stdout, "client")[0], "20 answers");
        assert!(
            lines(&stdout, "sink").contains(&"in 4".to_owned()),
            "{stdout}"
        );
    }
    drop(recorded);
}

#[test]
fn a_killed_recorder_leaves_a_readable_file_and_affects_no_node() {
    let mut run = endless();
    let name = run.name().to_owned();
    let mut recorder = run
        .command(&["record", "-d", &name, "-o", "killed.mcap"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for_bytes(&run.folder().join("killed.mcap"), 20_000);
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    // The file has the samples from before the kill, and the sink continues.
    let parsed = damaged_info(run.folder(), "killed.mcap");
    assert_eq!(
        (&parsed["is_complete"], &parsed["damaged"]),
        (&json!(false), &json!([]))
    );
    assert!(
        parsed["topics"][0]["samples"].as_u64().unwrap() > 50,
        "{parsed}"
    );
    run.line("sink", "in ");
    let (code, stdout, stderr) = output(run.command(&[
        "replay",
        "killed.mcap",
        "--rate",
        "max",
        "--name",
        &format!("{name}-replay"),
    ]));
    assert_eq!(code, Some(3), "{stdout}{stderr}");
    assert!(
        stderr.contains("killed.mcap was cut short at byte"),
        "{stderr}"
    );
    run.signal(Signal::INT);
    assert_eq!(run.finish().code, Some(0));
}

/// A recorder as a node, whose queue loses nothing.
fn recorder(arguments: &str, keys: Value) -> Value {
    let mut node = json!({
        "id": "recorder", "path": env!("CARGO_BIN_EXE_nervure"), "args": arguments,
        "inputs": {"in": {"source": "source/out", "queue_policy": "block"}},
    });
    node.as_object_mut()
        .unwrap()
        .extend(keys.as_object().unwrap().clone());
    node
}

/// Offset of a byte in the middle chunk of an MCAP file. Between the chunks lie their indexes, which
/// readers do not need for the messages.
fn middle_of_a_chunk(file: &[u8]) -> usize {
    const MAGIC_BYTES: usize = 8;
    const CHUNK: u8 = 6;
    let mut chunks = Vec::new();
    let mut at = MAGIC_BYTES;
    while at + MAGIC_BYTES < file.len() {
        let length = u64::from_le_bytes(file[at + 1..at + 9].try_into().unwrap()) as usize;
        if file[at] == CHUNK {
            chunks.push(at + 9 + length / 2);
        }
        at += 9 + length;
    }
    chunks[chunks.len() / 2]
}

#[test]
fn damage_is_named_and_changes_the_exit_code() {
    let arguments = recorder("record -o run.mcap", json!({}));
    let mut run = numbers(2500, 1).raw(arguments).run(&[]);
    run.ended("recorder");
    let file = run.folder().join("run.mcap");
    let mut bytes = fs::read(&file).unwrap();
    let middle = middle_of_a_chunk(&bytes);
    bytes[middle] ^= 0xff;
    fs::write(&file, bytes).unwrap();
    let parsed = damaged_info(run.folder(), "run.mcap");
    let topic = &parsed["topics"][0];
    let missing = topic["missing"].as_u64().unwrap();
    assert!(missing > 0, "{parsed}");
    assert_eq!(topic["samples"].as_u64().unwrap() + missing, 2500);
    let damage = parsed["damaged"][0].as_str().unwrap();
    assert!(
        damage.contains("run.mcap, at byte ")
            && damage.contains(&format!("; {missing} messages of ")),
        "{damage}"
    );
    let plain = output(run.command(&["info", "run.mcap"]));
    assert!(
        plain.1.contains(&format!("damaged: {damage}\n")),
        "{}",
        plain.1
    );
    assert_eq!(plain.0, Some(3));
    assert_eq!(
        output(run.command(&["info", "--quick", "run.mcap"])).0,
        Some(0)
    );
    let (code, stdout, stderr) = output(run.command(&["replay", "run.mcap", "--rate", "max"]));
    assert_eq!(code, Some(3), "{stdout}{stderr}");
    let said = format!("{stdout}{stderr}");
    assert!(
        said.contains(&format!("; {missing} messages of ")),
        "{said}"
    );
    assert!(
        said.contains(&format!(
            "{} samples played; 1 damaged parts of the file not played",
            2500 - missing
        )),
        "{said}"
    );
    run.finish();
}

#[test]
fn a_recorder_that_is_started_again_goes_on_in_the_next_file() {
    let restarts = json!({"restart_policy": "on-failure", "restart_delay": "1ms"});
    let mut run = numbers(u64::MAX, 1)
        .raw(recorder("record -o run.mcap", restarts))
        .run(&[]);
    let (first, second) = (
        run.folder().join("run.mcap"),
        run.folder().join("run-0002.mcap"),
    );
    run.line("recorder", "recording 1 topic in run.mcap");
    wait_for_bytes(&first, 10_000);
    run.started("recorder").signal(Signal::KILL);
    run.line(
        "recorder",
        "run.mcap exists already: the recording continues in run-0002.mcap",
    );
    let kept = fs::read(&first).unwrap();
    wait_for_bytes(&second, 10_000);
    // The source continues, too.
    run.line("sink", "in ");
    run.signal(Signal::INT);
    run.ended("recorder");
    assert!(
        kept == fs::read(&first).unwrap(),
        "what was recorded is as it was"
    );
    let (before, after) = (
        damaged_info(run.folder(), "run.mcap"),
        info(run.folder(), "run-0002.mcap"),
    );
    assert_eq!(
        (&before["is_complete"], &after["is_complete"]),
        (&json!(false), &json!(true))
    );
    assert_eq!(after["topics"][0]["lost"], 0);
    run.finish();
}

#[test]
fn a_recorder_splits_its_files_and_deletes_the_oldest() {
    let arguments = "record -o {name}-{time}.mcap --split 1MB --max-disk 2MB";
    let dataflow = Dataflow::named()
        .node("source", "source 30000 0", json!({"outputs": ["out"]}))
        .raw(recorder(arguments, json!({})));
    let name = dataflow.name().to_owned();
    let folder = dataflow.folder().to_owned();
    fs::write(folder.join(format!("{name}-old.mcap")), vec![1; 3_000_000]).unwrap();
    let outcome = dataflow.run(&[]).finish();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let said = outcome.lines("recorder");
    assert!(
        said.iter()
            .any(|line| line.contains("deleted ") && line.contains("-0001.mcap")),
        "{said:?}"
    );
    let last = said.last().unwrap();
    assert!(
        last.contains(" files: 30000 samples in") && last.ends_with("none lost"),
        "{last}"
    );
    let entries = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap());
    let files: Vec<_> = entries
        .filter(|entry| entry.path().extension().is_some_and(|end| end == "mcap"))
        .collect();
    let ours = files
        .iter()
        .filter(|file| file.metadata().unwrap().len() < 2_000_000);
    let bytes: u64 = ours
        .clone()
        .map(|file| file.metadata().unwrap().len())
        .sum();
    assert!(
        files.len() - ours.count() == 1,
        "the file of another name is there"
    );
    assert!(bytes < 3_000_000, "{bytes} bytes are left of the series");
}

#[test]
fn a_recorder_as_a_node_counts_losses_by_a_full_disk_and_delays_no_node() {
    let dataflow = numbers(3000, 1).raw(recorder("record -o full.mcap", json!({})));
    let mut run = dataflow.run_with("trap '' XFSZ; ulimit -f 500", &[]);
    run.line("recorder", "ERROR: full.mcap: File too large");
    let lost = run.line("recorder", "lost: ");
    assert!(lost.ends_with(" of source/out"), "{lost}");
    run.line("sink", "in ");
    let outcome = run.finish();
    assert_eq!(outcome.code, Some(3), "{:?}", outcome.lines("recorder"));
    assert!(
        outcome.lines("sink").contains(&"in 2999"),
        "the others have lost nothing"
    );
    let said = outcome.lines("recorder").join("\n");
    assert!(
        said.contains("full.mcap ends here, after") && said.contains(" later samples are lost"),
        "{said}"
    );
    // Each sample is recorded or lost.
    let number = |text: &str| text.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
    let (recorded, rest) = said.rsplit_once(" samples in ").unwrap();
    let (_, lost) = rest.split_once("lost: ").unwrap();
    let recorded = number(recorded);
    assert_eq!(
        recorded + number(lost.split_once(" of ").unwrap().0),
        3000,
        "{said}"
    );
    let topic = &info(outcome.folder(), "full.mcap")["topics"][0];
    assert_eq!(
        (&topic["samples"], &topic["lost"]),
        (&json!(recorded), &json!(0))
    );
}

#[test]
fn a_full_disk_ends_the_recording_and_not_the_dataflow() {
    let mut run = endless();
    let mut command = Command::new("sh");
    // A limit on the size of files, with its signal ignored, acts like a full
    // disk.
    let script = "trap '' XFSZ; ulimit -f 1000; exec \"$0\" record -d \"$1\" -o full.mcap";
    command
        .args(["-c", script, env!("CARGO_BIN_EXE_nervure"), run.name()])
        .current_dir(run.folder());
    let (code, _, stderr) = output(command);
    assert_eq!(code, Some(1), "{stderr}");
    assert!(
        stderr.contains("full.mcap ends here, after") && stderr.contains("File too large"),
        "{stderr}"
    );
    assert!(
        stderr.contains("hint: the dataflow keeps running without a recording"),
        "{stderr}"
    );
    let parsed = info(run.folder(), "full.mcap");
    assert_eq!(parsed["damaged"], json!([]));
    assert!(
        parsed["topics"][0]["samples"].as_u64().unwrap() > 10,
        "{parsed}"
    );
    assert_eq!(parsed["topics"][0]["lost"], 0);
    run.line("sink", "in ");
    run.signal(Signal::INT);
    assert_eq!(run.finish().code, Some(0));
}

#[test]
fn a_signal_ends_a_recording_in_order() {
    let mut run = endless();
    // A topic may have the name of its dataflow as a prefix, as for all commands that inspect.
    let topics = format!("{}:source/*", run.name());
    let mut recorder = run.command(&["record", &topics, "-o", "run.mcap", "--json"]);
    let recorder = recorder
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for_bytes(&run.folder().join("run.mcap"), 10_000);
    rustix::process::kill_process(rustix::process::Pid::from_child(&recorder), Signal::INT)
        .unwrap();
    let ended = recorder.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(0));
    let parsed = info(run.folder(), "run.mcap");
    assert_eq!(parsed["is_complete"], true);
    let at_the_end: Value = serde_json::from_slice(&ended.stdout).unwrap();
    assert_eq!(
        at_the_end["topics"][0]["recorded"],
        parsed["topics"][0]["samples"]
    );
    assert_eq!(at_the_end["files"], json!(["run.mcap"]));
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(
        said.contains(&format!(
            "run.mcap: {} samples in",
            parsed["topics"][0]["samples"]
        )),
        "{said}"
    );
    run.line("sink", "in ");
    run.signal(Signal::INT);
    run.finish();
}

#[test]
fn the_clock_of_a_replay_reads_the_time_of_the_recording_and_timers_follow_it() {
    let recorder = json!({
        "id": "recorder", "path": env!("CARGO_BIN_EXE_nervure"), "args": "record -o run.mcap",
        "inputs": {"in": {"source": "source/out", "queue_policy": "block"}},
    });
    let recorded = numbers(200, 5).raw(recorder).run(&[]);
    let folder = recorded.folder().to_owned();
    let mut recorded = recorded;
    recorded.ended("recorder");
    let begin = info(&folder, "run.mcap")["begin_utc_nanos"]
        .as_i64()
        .unwrap();
    let dataflow = Dataflow::named()
        .node("source", "source 1 0", json!({"outputs": ["out"]}))
        .node(
            "watch",
            "clock",
            json!({"inputs": {"in": "source/out", "tick": "nervure/timer/hz/100"}}),
        );
    let mut replay = dataflow.command(&["replay", "--clock", "--json"]);
    replay.arg(folder.join("run.mcap")).arg(dataflow.write());
    let (code, stdout, stderr) = output(replay);
    assert_eq!(code, Some(0), "{stderr}");
    let readings: Vec<i64> = lines(&stdout, "watch")
        .iter()
        .filter_map(|line| line.strip_prefix("now ")?.parse().ok())
        .collect();
    assert!(readings.len() > 200, "{} readings", readings.len());
    assert!(readings.is_sorted(), "the clock never goes back");
    let since = readings[0] - begin;
    assert!(
        (0..1_000_000_000).contains(&since),
        "the first reading is {since} ns after the recording's first"
    );
    drop(recorded);
}

/// An MCAP file with one message of a channel that holds no samples.
fn without_samples() -> Vec<u8> {
    const MAGIC: &[u8] = b"\x89MCAP0\r\n";
    let text = |text: &str| {
        let length = u32::try_from(text.len()).unwrap();
        [&length.to_le_bytes(), text.as_bytes()].concat()
    };
    let record = |opcode: u8, body: &[u8]| {
        let length = u64::try_from(body.len()).unwrap();
        [&[opcode], &length.to_le_bytes()[..], body].concat()
    };
    let header = record(1, &[text(""), text("test")].concat());
    let ids = [0; 4];
    let channel = [&ids[..], &text("/source/out"), &text("flatbuffer"), &[0; 4]].concat();
    let (channel, times) = (record(4, &channel), [1; 16]);
    let message = record(5, &[&ids[..2], &[0; 4], &times, b"xx"].concat());
    let (data_end, footer) = (record(15, &[0; 4]), record(2, &[0; 20]));
    [
        MAGIC, &header, &channel, &message, &data_end, &footer, MAGIC,
    ]
    .concat()
}

#[test]
fn a_replay_that_played_nothing_is_not_perfect() {
    let dataflow = numbers(1, 0);
    let file = dataflow.folder().join("nothing.mcap");
    fs::write(&file, without_samples()).unwrap();
    let outcome = dataflow.replay(&file, &["--rate", "max"]).finish();
    let lines = outcome.lines("replay");
    let is_said = |line: &&str| line.starts_with("0 samples played; 1 of /source/out not played");
    assert!(lines.iter().any(is_said), "{lines:?}");
    assert_eq!(outcome.code, Some(3), "{}", outcome.stderr);
}

#[test]
fn a_replay_ends_although_a_node_with_a_timer_sends_for_ever() {
    let dataflow = numbers(50, 0);
    let recorder = json!({
        "id": "recorder", "path": env!("CARGO_BIN_EXE_nervure"), "args": "record -o run.mcap",
        "inputs": {"in": {"source": "source/out", "queue_policy": "block"}},
    });
    let mut recorded = dataflow.raw(recorder).run(&[]);
    recorded.ended("recorder");
    let recording = recorded.folder().join("run.mcap");
    let beat = json!({"inputs": {"tick": "nervure/timer/hz/100"}, "outputs": ["out"]});
    let dataflow = numbers(1, 0)
        .node("beat", "source 1000000 1", beat)
        .node(
            "relay",
            "relay",
            json!({"inputs": {"in": "beat/out"}, "outputs": ["out"]}),
        )
        .node("last", "sink", json!({"inputs": {"in": "relay/out"}}));
    let mut replay = dataflow.command(&["replay", "--json", "--stop-after", "60s"]);
    replay.arg(recording).arg(dataflow.write());
    let (code, stdout, stderr) = output(replay);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(stdout.contains("the recording has ended"), "{stdout}");
    let received = lines(&stdout, "sink");
    let samples = received.iter().filter(|line| line.starts_with("in "));
    assert_eq!(samples.count(), 50, "{received:?}");
    drop(recorded);
}

#[test]
fn mistakes_are_explained() {
    let dataflow = numbers(1, 0);
    let file = dataflow.write();
    let said = |arguments: &[&str]| {
        let mut command = dataflow.command(arguments);
        command.arg(&file);
        let (code, stdout, stderr) = output(command);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{stderr}");
        stderr
    };
    assert!(said(&["replay", "missing.mcap"]).contains("cannot read missing.mcap: No such file"));
    fs::write(dataflow.folder().join("other.mcap"), "#ROSBAG V2.0\n").unwrap();
    let text = said(&["replay", "other.mcap"]);
    assert!(
        text.contains("other.mcap is not a recording: it begins with \"#ROSBAG"),
        "{text}"
    );
    let text = said(&["replay", "other.mcap", "--clock", "--rate", "max"]);
    assert!(
        text.contains("`--clock` does not work with `--rate max`"),
        "{text}"
    );
    let text = said(&["replay", "other.mcap", "--rate", "0"]);
    assert!(
        text.contains("expected a number from 0.001 to 1000, or `max`"),
        "{text}"
    );

    let (code, _, stderr) =
        output(dataflow.command(&["record", "-d", "no-such-dataflow", "-o", "x.mcap"]));
    assert_ne!(code, Some(0));
    assert!(
        stderr.contains("no-such-dataflow") || stderr.contains("no dataflow runs"),
        "{stderr}"
    );
    assert!(!dataflow.folder().join("x.mcap").exists());
}
