//! `nervure record`, `replay` and `info` with real processes, which are killed and run out of disk.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::dataflow::{Dataflow, Run, nervure};

const PATIENCE: Duration = Duration::from_secs(60);

fn output(mut command: Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

fn info(folder: &Path, file: &str) -> Value {
    let mut command = nervure(folder);
    command.args(["info", "--json", file]);
    let (code, stdout, stderr) = output(command);
    assert_eq!(code, Some(0), "{stderr}");
    serde_json::from_str(&stdout).unwrap()
}

/// A source of that many numbers and a sink; neither loses any.
fn numbers(count: u64, pause_millis: u64) -> Dataflow {
    Dataflow::named()
        .node("source", &format!("source {count} {pause_millis}"), json!({"outputs": ["out"]}))
        .node("sink", "sink", json!({"inputs": {"in": {"source": "source/out", "queue_policy": "block"}}}))
}

/// Numbers that go on and on.
fn endless() -> Run {
    let mut run = numbers(u64::MAX, 1).run(&[]);
    run.line("sink", "in 3");
    run
}

/// Lines that a node wrote, out of what `--json` tells.
fn lines(stdout: &str, node: &str) -> Vec<String> {
    let messages = stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let own = messages.filter(|message| message["message"] == "log" && message["node"] == node);
    own.map(|message| message["text"].as_str().unwrap().to_owned()).collect()
}

fn wait_for_bytes(file: &Path, bytes: u64) {
    let deadline = Instant::now() + PATIENCE;
    while fs::metadata(file).map_or(0, |file| file.len()) < bytes {
        assert!(Instant::now() < deadline, "{} does not grow", file.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_a_node_recorded_is_replayed_in_the_place_of_its_source_each_time_the_same() {
    let inputs = json!({"inputs": {"in": {"source": "source/out", "queue_policy": "block"}}});
    let recorder =
        json!({"id": "recorder", "path": env!("CARGO_BIN_EXE_nervure"), "args": "record -o run.mcap"});
    let mut recorder = recorder;
    recorder.as_object_mut().unwrap().extend(inputs.as_object().unwrap().clone());
    let dataflow = numbers(500, 0).raw(recorder);
    let file = dataflow.write();
    let mut run = dataflow.command(&["run", "--json"]);
    run.arg(&file);
    let (code, first, stderr) = output(run);
    assert_eq!(code, Some(0), "{stderr}");
    let told = info(dataflow.folder(), "run.mcap");
    assert_eq!(told["is_complete"], true);
    let topic = &told["topics"][0];
    assert_eq!(
        (&topic["topic"], &topic["samples"], &topic["lost"]),
        (&json!("source/out"), &json!(500), &json!(0))
    );
    assert_eq!(topic["schemas"], json!(["nervure.UInt64Tensor"]));

    let received = |stdout: &str| -> Vec<String> {
        lines(stdout, "sink").into_iter().filter(|line| line.starts_with("in ")).collect()
    };
    let expected: Vec<String> = (0..500).map(|number| format!("in {number}")).collect();
    assert_eq!(received(&first), expected);
    fs::rename(dataflow.folder().join("run.mcap"), dataflow.folder().join("first.mcap")).unwrap();
    for rate in ["max", "1000", "10"] {
        let mut replay = dataflow.command(&["replay", "first.mcap", "--rate", rate, "--json"]);
        replay.arg(&file);
        let (code, stdout, stderr) = output(replay);
        assert_eq!(code, Some(0), "{stderr}");
        assert_eq!(received(&stdout), expected);
        assert!(stderr.contains("`source` is replaced by the recording of source/out"), "{stderr}");
        // What is recorded of a replay is called as what it replays.
        assert_eq!(info(dataflow.folder(), "run.mcap")["topics"][0]["topic"], "source/out");
        fs::remove_file(dataflow.folder().join("run.mcap")).unwrap();
    }
}

#[test]
fn a_recorder_that_is_killed_leaves_what_it_had_and_nobody_else_notices() {
    let mut run = endless();
    let name = run.name().to_owned();
    let mut recorder =
        run.command(&["record", "-d", &name, "-o", "killed.mcap"]).stderr(Stdio::null()).spawn().unwrap();
    wait_for_bytes(&run.folder().join("killed.mcap"), 20_000);
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    // As much as was received before, and the sink goes on.
    let told = info(run.folder(), "killed.mcap");
    assert_eq!((&told["is_complete"], &told["damaged"]), (&json!(false), &json!([])));
    assert!(told["topics"][0]["samples"].as_u64().unwrap() > 50, "{told}");
    run.line("sink", "in ");
    let (code, stdout, stderr) =
        output(run.command(&["replay", "killed.mcap", "--rate", "max", "--name", &format!("{name}-replay")]));
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    assert!(stderr.contains("killed.mcap was cut short at byte"), "{stderr}");
    run.signal(Signal::INT);
    assert_eq!(run.finish().code, Some(0));
}

#[test]
fn a_full_disk_ends_the_recording_and_not_the_dataflow() {
    let mut run = endless();
    let mut command = Command::new("sh");
    // A limit on the length of files, without the signal that comes with it, is a disk that is full.
    let script = "trap '' XFSZ; ulimit -f 1000; exec \"$0\" record -d \"$1\" -o full.mcap";
    command.args(["-c", script, env!("CARGO_BIN_EXE_nervure"), run.name()]).current_dir(run.folder());
    let (code, _, stderr) = output(command);
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("full.mcap ends here, after") && stderr.contains("File too large"), "{stderr}");
    assert!(stderr.contains("hint: the dataflow goes on without being recorded"), "{stderr}");
    let told = info(run.folder(), "full.mcap");
    assert_eq!(told["damaged"], json!([]));
    assert!(told["topics"][0]["samples"].as_u64().unwrap() > 10, "{told}");
    assert_eq!(told["topics"][0]["lost"], 0);
    run.line("sink", "in ");
    run.signal(Signal::INT);
    assert_eq!(run.finish().code, Some(0));
}

#[test]
fn a_signal_ends_a_recording_in_order() {
    let mut run = endless();
    // Of which dataflow a topic is can stand before its name, as for all commands that look.
    let topics = format!("{}:source/*", run.name());
    let mut recorder = run.command(&["record", &topics, "-o", "run.mcap"]);
    let recorder = recorder.stderr(Stdio::piped()).spawn().unwrap();
    wait_for_bytes(&run.folder().join("run.mcap"), 10_000);
    rustix::process::kill_process(rustix::process::Pid::from_child(&recorder), Signal::INT).unwrap();
    let ended = recorder.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(0));
    let told = info(run.folder(), "run.mcap");
    assert_eq!(told["is_complete"], true);
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(said.contains(&format!("run.mcap: {} samples in", told["topics"][0]["samples"])), "{said}");
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
    let begin = info(&folder, "run.mcap")["begin_utc_nanos"].as_i64().unwrap();
    let dataflow = Dataflow::named().node("source", "source 1 0", json!({"outputs": ["out"]})).node(
        "watch",
        "clock",
        json!({"inputs": {"in": "source/out", "tick": "nervure/timer/hz/100"}}),
    );
    let mut replay = dataflow.command(&["replay", "--clock", "--json"]);
    replay.arg(folder.join("run.mcap")).arg(dataflow.write());
    let (code, stdout, stderr) = output(replay);
    assert_eq!(code, Some(0), "{stderr}");
    let readings: Vec<i64> =
        lines(&stdout, "watch").iter().filter_map(|line| line.strip_prefix("now ")?.parse().ok()).collect();
    assert!(readings.len() > 200, "{} readings", readings.len());
    assert!(readings.is_sorted(), "the clock never goes back");
    let since = readings[0] - begin;
    assert!(
        (0..1_000_000_000).contains(&since),
        "the first reading is {since} ns after the recording's first"
    );
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
    assert!(text.contains("other.mcap is no MCAP file: it begins with \"#ROSBAG"), "{text}");
    let text = said(&["replay", "other.mcap", "--clock", "--rate", "max"]);
    assert!(text.contains("`--clock` needs a rate"), "{text}");
    let text = said(&["replay", "other.mcap", "--rate", "0"]);
    assert!(text.contains("expected a number from 0.001 to 1000, or `max`"), "{text}");

    let (code, _, stderr) = output(dataflow.command(&["record", "-d", "no-such-dataflow", "-o", "x.mcap"]));
    assert_ne!(code, Some(0));
    assert!(stderr.contains("no-such-dataflow") || stderr.contains("no dataflow runs"), "{stderr}");
    assert!(!dataflow.folder().join("x.mcap").exists());
}
