//! `nervure pause` and `nervure resume` with real processes.

use std::{process::Stdio, thread::sleep, time::Duration};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::dataflow::{Dataflow, Outcome, Run, output};

/// Time for which nothing must happen in a paused dataflow.
const PAUSE: Duration = Duration::from_millis(700);

/// The queue of the sink, and the sample that its source sends next.
const MOST_IN_FLIGHT: usize = 9;

/// A source of 1000 numbers a second that neither loses nor waits for a timer, and a sink.
fn lossless(source: &str) -> Dataflow {
    Dataflow::named()
        .node("source", source, json!({"outputs": ["out"]}))
        .node(
            "sink",
            "sink",
            json!({
                "inputs": {"in": {"source": "source/out", "queue_policy": "block", "queue_size": 8}},
                "restart_policy": "on-failure", "restart_delay": "1ms",
            }),
        )
}

fn order(run: &Run, command: &str) {
    let (code, stdout, stderr) = output(run.command(&[command, "-d", run.name()]));
    assert_eq!(code, Some(0), "{stdout}{stderr}");
}

/// The only line of a command's output in JSON.
fn answer(run: &Run, arguments: &[&str]) -> Value {
    let (code, stdout, stderr) = output(run.command(arguments));
    assert_eq!(code, Some(0), "{stderr}");
    serde_json::from_str(&stdout).unwrap()
}

/// The numbers that the sink has received, and the lines between its events PAUSE and RESUME.
fn received(outcome: &Outcome) -> (Vec<u64>, Vec<&str>) {
    let lines = outcome.lines("sink");
    let numbers = lines
        .iter()
        .filter_map(|line| line.strip_prefix("in ")?.parse().ok());
    let at = |text| lines.iter().position(|line| *line == text).unwrap();
    (
        numbers.collect(),
        lines[at("PAUSE") + 1..at("RESUME")].to_vec(),
    )
}

fn assert_contiguous(numbers: &[u64]) {
    let expected: Vec<u64> = (0..numbers.len() as u64).collect();
    assert_eq!(numbers, expected);
}

#[test]
fn sources_and_timers_stop_and_no_burst_follows() {
    let mut run = lossless("source 1000000 1")
        .node(
            "ticks",
            "ticks",
            json!({"inputs": {"tick": "nervure/timer/hz/200"}}),
        )
        .run(&["--grace", "200ms"]);
    run.line("sink", "in 50");
    run.line("ticks", "tick ");
    order(&run, "pause");
    run.until("report of the pause", |message| {
        message["message"] == "paused"
    });
    sleep(PAUSE);
    order(&run, "resume");
    run.until("report of its end", |message| {
        message["message"] == "resumed"
    });
    run.line("sink", "RESUME");
    run.line("sink", "in ");
    for _ in 0..20 {
        run.line("ticks", "tick ");
    }
    order(&run, "stop");
    let outcome = run.finish();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let (numbers, meanwhile) = received(&outcome);
    assert_contiguous(&numbers);
    assert!(meanwhile.len() <= MOST_IN_FLIGHT, "{meanwhile:?}");
    let ticks = outcome.lines("ticks");
    let paused = ticks.iter().position(|line| *line == "PAUSE").unwrap();
    assert_eq!(ticks[paused + 1], "RESUME", "no tick comes in a pause");
    // On the dataflow's clock the ticks follow each other as if there had been no pause.
    let ticks: Vec<(i64, i64)> = ticks
        .iter()
        .filter_map(|line| line.strip_prefix("tick ")?.split_once(' '))
        .map(|(due, count)| (due.parse().unwrap(), count.parse().unwrap()))
        .collect();
    for pair in ticks.windows(2) {
        assert_eq!(pair[1].0 - pair[0].0, 5_000_000 * pair[1].1, "{ticks:?}");
    }
    let across = ticks[paused].0 - ticks[paused - 1].0;
    assert!(across < PAUSE.as_nanos() as i64, "{across} ns");
}

#[test]
fn a_paused_dataflow_is_shown_as_paused() {
    let mut run = lossless("source 1000000 1").run(&["--grace", "200ms"]);
    run.line("sink", "in 50");
    let name = run.name().to_owned();
    let state = |run: &Run| {
        let list = answer(run, &["list", "--json"]);
        let all = list["dataflows"].as_array().unwrap();
        let own = all.iter().find(|one| one["dataflow"] == name.as_str());
        let status = answer(run, &["status", "--json", "-d", &name]);
        let top = answer(run, &["top", "--json", "-n", "1", "-d", &name]);
        assert_eq!(top["state"], status["state"]);
        assert_eq!(own.unwrap()["state"], status["state"]);
        status["state"].as_str().unwrap().to_owned()
    };
    assert_eq!(state(&run), "running");
    // A second pause succeeds and changes nothing.
    for _ in 0..2 {
        let answer = answer(&run, &["pause", "--json", "-d", &name]);
        assert_eq!(answer, json!({"dataflow": name, "paused": true}));
        assert_eq!(state(&run), "paused");
    }
    let (_, text, _) = output(run.command(&["status", "-d", &name]));
    assert!(
        text.starts_with(&format!("{name}: paused, started ")),
        "{text}"
    );
    for _ in 0..2 {
        order(&run, "resume");
        assert_eq!(state(&run), "running");
    }
    run.line("sink", "RESUME");
    run.line("sink", "in ");
    order(&run, "stop");
    assert_eq!(run.finish().code, Some(0));
}

#[test]
fn a_node_that_is_killed_in_a_pause_is_restarted_into_it() {
    let mut run = lossless("source 1000000 1").run(&["--grace", "200ms"]);
    run.line("sink", "in 50");
    let sink = run.started("sink");
    order(&run, "pause");
    run.line("sink", "PAUSE");
    sink.signal(Signal::KILL);
    run.until("next process", |message| {
        message["message"] == "node_started" && message["incarnation"] == 1
    });
    run.line("sink", "PAUSE");
    order(&run, "resume");
    run.line("sink", "RESUME");
    run.line("sink", "in ");
    order(&run, "stop");
    let outcome = run.finish();
    assert_eq!(outcome.ends("sink")[0]["restarts"], true);
}

#[test]
fn a_source_that_is_killed_in_a_pause_sends_after_it() {
    let mut run = Dataflow::named()
        .node(
            "source",
            "source 1000000 1",
            json!({"outputs": ["out"], "restart_policy": "always", "restart_delay": "1ms"}),
        )
        .node("sink", "sink", json!({"inputs": {"in": "source/out"}}))
        .run(&["--grace", "200ms"]);
    run.line("sink", "in 50");
    order(&run, "pause");
    run.line("sink", "PAUSE");
    run.started("source").signal(Signal::KILL);
    run.line("sink", "NODE_RESTARTED source");
    sleep(PAUSE);
    order(&run, "resume");
    run.line("sink", "in 0");
    order(&run, "stop");
    let outcome = run.finish();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let written = |text: &str| {
        let is_it = |message: &&Value| message["node"] == "sink" && message["text"] == text;
        let line = outcome.seen.iter().rfind(is_it).unwrap();
        line["utc_nanos"].as_i64().unwrap()
    };
    let waited = written("in 0") - written("NODE_RESTARTED source [\"in\"]");
    assert!(waited >= PAUSE.as_nanos() as i64, "{waited} ns");
}

#[test]
fn a_paused_dataflow_can_be_stopped() {
    let mut run = lossless("source 1000000 1").run(&["--grace", "200ms"]);
    run.line("sink", "in 50");
    order(&run, "pause");
    run.line("sink", "PAUSE");
    order(&run, "stop");
    let outcome = run.finish();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
}

#[test]
fn an_observer_of_a_paused_dataflow_gets_the_samples_after_it() {
    let mut run = lossless("source 1000000 1").run(&["--grace", "200ms"]);
    run.line("sink", "in 50");
    order(&run, "pause");
    run.line("sink", "PAUSE");
    let topic = format!("{}:source/out", run.name());
    let echo = run
        .command(&["topic", "echo", &topic, "-n", "3", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let is_observed = |run: &Run| {
        let status = answer(run, &["status", "--json", "-d", run.name()]);
        !status["observers"].as_array().unwrap().is_empty()
    };
    while !is_observed(&run) {
        sleep(Duration::from_millis(20));
    }
    order(&run, "resume");
    let echoed = echo.wait_with_output().unwrap();
    assert!(echoed.status.success());
    assert_eq!(String::from_utf8_lossy(&echoed.stdout).lines().count(), 3);
    order(&run, "stop");
    assert_eq!(run.finish().code, Some(0));
}

#[test]
fn a_replay_pauses_and_goes_on_at_its_pace() {
    let recorder = json!({
        "id": "recorder", "path": env!("CARGO_BIN_EXE_nervure"), "args": "record -o run.mcap",
        "inputs": {"in": {"source": "source/out", "queue_policy": "block"}},
    });
    let dataflow = lossless("source 200 5").raw(recorder);
    let file = dataflow.write();
    let (code, _, stderr) = output({
        let mut run = dataflow.command(&["run"]);
        run.arg(&file);
        run
    });
    assert_eq!(code, Some(0), "{stderr}");
    for clock in [None, Some("--clock")] {
        let recording = dataflow.folder().join("run.mcap");
        // It takes 5 s: longer than `pause` needs on a busy machine.
        let options: Vec<&str> = ["--rate", "0.2"].into_iter().chain(clock).collect();
        let mut run = lossless("source 0 0").replay(&recording, &options);
        run.line("sink", "in 20");
        order(&run, "pause");
        run.line("sink", "PAUSE");
        sleep(PAUSE);
        order(&run, "resume");
        run.line("sink", "RESUME");
        run.line("sink", "in 199");
        let outcome = run.finish();
        assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
        let (numbers, meanwhile) = received(&outcome);
        assert_contiguous(&numbers);
        assert!(meanwhile.len() <= MOST_IN_FLIGHT, "{meanwhile:?}");
        // A player that had to catch up would report how late it is.
        assert!(
            !outcome.stderr.contains("behind the recording"),
            "{}",
            outcome.stderr
        );
    }
}
