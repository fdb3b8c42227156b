//! Processes that run out of file descriptors, temporarily or permanently.

use std::{
    fs,
    process::{Command, Output},
};

use rustix::process::{Resource, Rlimit, Signal, getrlimit, prlimit};
use serde_json::{Value, json};

use crate::dataflow::{Dataflow, Outcome, Process, Run, prepared};

/// Sets the limit of descriptors of a process; returns the previous limit.
fn limit_descriptors(process: &Process, limit: u64) -> u64 {
    let maximum = getrlimit(Resource::Nofile).maximum;
    let before = prlimit(
        Some(process.pid),
        Resource::Nofile,
        Rlimit {
            current: Some(limit),
            maximum,
        },
    );
    before.unwrap().current.unwrap()
}

fn dataflow(source: &str, policy: &str, keys: Value) -> Dataflow {
    let mut sink = json!({"inputs": {"in": {"source": "source/out", "queue_policy": policy}}});
    sink.as_object_mut()
        .unwrap()
        .extend(keys.as_object().cloned().unwrap());
    Dataflow::new()
        .node("source", source, json!({"outputs": ["out"]}))
        .node("sink", "sink", sink)
}

/// The numbers that the sink received, from its log: `run` does not show all lines of a flood.
fn received(outcome: &Outcome) -> Vec<u64> {
    let records = outcome.log_file("sink").into_iter();
    records
        .filter_map(|record| record["text"].as_str()?.strip_prefix("in ")?.parse().ok())
        .collect()
}

/// The log line about the waiting edge.
fn waits(run: &mut Run, node: &str) {
    let line = run.line(node, "the edge `source/out` -> `sink/in` waits: ");
    assert!(
        line.starts_with("out of file descriptors (limit 0: raise it with `ulimit -n`"),
        "{line}"
    );
}

#[test]
fn a_node_that_cannot_have_all_its_edges_fails_the_run_and_the_cause_is_named() {
    let program =
        std::path::Path::new(env!("CARGO_BIN_EXE_nervure")).with_file_name("examples/test_node");
    let script = format!("ulimit -n 12; exec {} source 3", program.display());
    let mut dataflow = Dataflow::new().shell("source", &script, json!({"outputs": ["out"]}));
    for sink in 0..6 {
        let input = json!({"in": {"source": "source/out", "queue_policy": "block"}});
        dataflow = dataflow.node(&format!("sink{sink}"), "sink", json!({"inputs": input}));
    }
    let outcome = dataflow.run(&[]).finish();
    assert_eq!(outcome.code, Some(3), "{}", outcome.stderr);
    let failed = outcome.summary()["failed"].as_array().unwrap();
    assert_eq!(
        (failed.len(), &failed[0]["id"]),
        (1, &json!("source")),
        "{failed:?}"
    );
    let reason = failed[0]["reason"].as_str().unwrap();
    let begin = "killed by the keeper, because it cannot attach the edge `source/out` -> `sink";
    assert!(reason.starts_with(begin), "{reason}");
    assert!(
        reason.contains("out of file descriptors (limit 12: raise it with `ulimit -n`"),
        "{reason}"
    );
}

/// Exit code of `inject` on a kernel without the required features.
const UNSUPPORTED: i32 = 77;

/// `nervure run` under `inject`: from the `nth` on, six calls of the keeper fail with EMFILE.
fn run_with_failing_calls(call: &str, nth: u32) -> Option<Output> {
    const TIMES: usize = 6;
    let dataflow = dataflow("source 3", "block", json!({}));
    let nervure = std::path::Path::new(env!("CARGO_BIN_EXE_nervure"));
    let inject = Command::new(nervure.with_file_name("examples/inject"));
    let mut command = prepared(inject, dataflow.folder());
    let report = dataflow.folder().join("report");
    command.arg("--report").arg(&report);
    command.args(["--calls", call, "--role", "keeper", "--call", call]);
    command.args(["--action", &format!("errno:{}", libc::EMFILE)]);
    command.args(["--nth", &nth.to_string(), "--times", &TIMES.to_string()]);
    command
        .arg("--")
        .arg(nervure)
        .arg("run")
        .arg(dataflow.write());
    let output = command.output().unwrap();
    if output.status.code() == Some(UNSUPPORTED) {
        return None;
    }
    let report: Value = serde_json::from_slice(&fs::read(report).unwrap()).unwrap();
    assert_eq!(report["acted_on"].as_array().unwrap().len(), TIMES);
    Some(output)
}

#[test]
fn a_process_that_cannot_be_started_for_a_time_is_started_later() {
    // After the keeper's own, each start of a node creates two socket pairs, one of them in
    // `std::process`, and two pipes.
    for (call, nth) in [
        ("socketpair", 4),
        ("socketpair", 5),
        ("pipe2", 1),
        ("pipe2", 4),
    ] {
        let Some(output) = run_with_failing_calls(call, nth) else {
            return;
        };
        assert_eq!(output.status.code(), Some(0), "{call}: {output:?}");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("it has what it lacked"), "{call}: {text}");
    }
}

#[test]
fn a_consumer_without_descriptors_for_a_time_loses_nothing_of_a_block_edge() {
    let mut run = dataflow("growing-source 50", "block", json!({})).run(&[]);
    run.line("sink", "in 0");
    let sink = run.started("sink");
    let before = limit_descriptors(&sink, 0);
    fs::write(run.folder().join("grow"), "").unwrap();
    waits(&mut run, "sink");
    limit_descriptors(&sink, before);
    run.line("sink", "the edge `source/out` -> `sink/in` works again");
    let outcome = run.finish();
    assert_eq!(outcome.code, Some(0), "{}", outcome.summary());
    let numbers = received(&outcome);
    assert!(
        numbers.len() > 50 && numbers.iter().copied().eq(0..numbers.len() as u64),
        "{numbers:?}"
    );
}

#[test]
fn a_consumer_that_stays_without_descriptors_fails_the_run_and_losses_have_their_true_cause() {
    let mut run = dataflow("growing-source 1000000 5", "drop_oldest", json!({})).run(&[]);
    run.line("sink", "in ");
    limit_descriptors(&run.started("sink"), 0);
    fs::write(run.folder().join("grow"), "").unwrap();
    let cause = "the consumer cannot map new memory (node `sink`: out of file descriptors (limit 0";
    run.until("line about losses with their cause", |message| {
        let text = message["text"].as_str().unwrap_or_default();
        text.starts_with("source/out -> sink/in lost ") && text.contains(cause)
    });
    run.signal(Signal::INT);
    let outcome = run.finish();
    assert_eq!(outcome.code, Some(3), "{}", outcome.summary());
    let failed = &outcome.summary()["failed_edges"][0];
    assert_eq!(
        (&failed["topic"], &failed["input"]),
        (&json!("source/out"), &json!("sink/in"))
    );
    let cause = failed["cause"].as_str().unwrap();
    assert!(
        cause.starts_with("node `sink`: out of file descriptors (limit 0"),
        "{cause}"
    );
}

#[test]
fn a_producer_without_descriptors_gets_a_restarted_consumer_when_it_has_some_again() {
    let keys = json!({"restart_policy": "on-failure", "restart_delay": "1ms"});
    let mut run = dataflow("source 1000000 20", "block", keys).run(&[]);
    run.line("sink", "in 3");
    let source = run.started("source");
    let before = limit_descriptors(&source, 0);
    run.started("sink").signal(Signal::KILL);
    waits(&mut run, "source");
    limit_descriptors(&source, before);
    run.line("source", "the edge `source/out` -> `sink/in` works again");
    let last: u64 = run.line("sink", "in ").parse().unwrap();
    run.line("sink", &format!("in {}", last + 15));
    run.signal(Signal::INT);
    let outcome = run.finish();
    assert_eq!(outcome.code, Some(0), "{}", outcome.summary());
    let edge = &outcome.summary()["edges"][0];
    assert_eq!(edge["lost"], 0, "{edge}");
}

#[test]
fn a_keeper_without_descriptors_starts_a_node_again_when_it_has_some() {
    let keys = json!({"restart_policy": "on-failure", "restart_delay": "1ms"});
    let mut run = dataflow("source 1000000 20", "block", keys).run(&[]);
    run.line("sink", "in 3");
    let sink = run.started("sink");
    let keeper = sink.parent();
    let before = limit_descriptors(&keeper, 0);
    sink.signal(Signal::KILL);
    run.line(
        "nervure",
        "the keeper cannot make the shared memory of a node: out of file descriptors (limit 0",
    );
    limit_descriptors(&keeper, before);
    run.line("nervure", "it has what it lacked");
    let last: u64 = run.line("sink", "in ").parse().unwrap();
    run.line("sink", &format!("in {}", last + 15));
    run.signal(Signal::INT);
    let outcome = run.finish();
    assert_eq!(outcome.code, Some(0), "{}", outcome.summary());
}

#[test]
fn a_keeper_that_stays_without_descriptors_ends_the_run_with_the_reason() {
    let keys = json!({"restart_policy": "on-failure", "restart_delay": "1ms"});
    let mut run = dataflow("source 1000000 20", "block", keys).run(&[]);
    run.line("sink", "in 3");
    let (source, sink) = (run.started("source"), run.started("sink"));
    limit_descriptors(&sink.parent(), 0);
    sink.signal(Signal::KILL);
    let outcome = run.finish();
    assert_eq!(outcome.code, Some(1), "{}", outcome.stderr);
    let cause =
        "the keeper cannot make the shared memory of a node: out of file descriptors (limit 0";
    assert!(outcome.stderr.contains(cause), "{}", outcome.stderr);
    source.assert_ends();
}
