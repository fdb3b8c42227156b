//! Real nodes: samples, and the events after failures.

use std::{fs, path::Path};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::dataflow::{Dataflow, Outcome};

fn source(arguments: &str, mut keys: Value) -> (String, Value) {
    keys["outputs"] = json!(["out"]);
    (format!("source {arguments}"), keys)
}

fn dataflow(source: (String, Value), sink: &str, mut sink_keys: Value, policy: &str) -> Dataflow {
    sink_keys["inputs"] = json!({"in": {"source": "source/out", "queue_policy": policy}});
    Dataflow::new()
        .node("source", &source.0, source.1)
        .node("sink", sink, sink_keys)
}

/// The lines of the sink, from its log: `run` does not show all lines of a flood.
fn sink_lines(outcome: &Outcome) -> Vec<String> {
    let records = outcome
        .log_file("sink")
        .into_iter()
        .filter(|record| record["stream"] == "stdout");
    records
        .map(|record| record["text"].as_str().unwrap().to_owned())
        .collect()
}

/// The numbers that the sink received.
fn received(outcome: &Outcome) -> Vec<u64> {
    sink_lines(outcome)
        .iter()
        .filter_map(|line| line.strip_prefix("in ")?.parse().ok())
        .collect()
}

#[test]
fn everything_arrives_in_order_when_the_producer_waits() {
    let outcome = dataflow(source("2000", json!({})), "sink", json!({}), "block")
        .run(&[])
        .finish();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(received(&outcome).into_iter().eq(0..2000));
    assert_eq!(
        sink_lines(&outcome)[2000..],
        ["INPUT_CLOSED in", "STOP all inputs are closed"]
    );
    let edge = &outcome.summary()["edges"][0];
    assert_eq!(
        (&edge["sent"], &edge["received"], &edge["lost"]),
        (&json!(2000), &json!(2000), &json!(0))
    );
    assert_eq!(edge["queued"], 0);
    assert!(edge["latency_p50_nanos"].as_u64().unwrap() > 0);
}

#[test]
fn dropped_samples_are_counted() {
    for (policy, counter) in [
        ("drop_oldest", "dropped_oldest"),
        ("drop_newest", "dropped_newest"),
    ] {
        let outcome = dataflow(source("500", json!({})), "sink 1", json!({}), policy)
            .run(&[])
            .finish();
        assert_eq!(outcome.code, Some(0));
        let edge = &outcome.summary()["edges"][0];
        let count = |key: &str| edge[key].as_u64().unwrap();
        assert_eq!(count("received") as usize, received(&outcome).len());
        assert!(count(counter) > 0, "{edge}");
        assert_eq!(
            (count("sent"), count("received") + count("lost")),
            (500, 500),
            "{edge}"
        );
        assert!(received(&outcome).is_sorted());
    }
}

#[test]
fn a_killed_consumer_gets_the_queued_samples_after_its_restart() {
    let keys = json!({"restart_policy": "on-failure", "restart_delay": "20ms"});
    let outcome = dataflow(source("400 1", json!({})), "doomed-sink 50", keys, "block")
        .run(&[])
        .finish();
    let numbers = received(&outcome);
    assert!(
        numbers.windows(2).all(|pair| pair[0] < pair[1]),
        "{numbers:?}"
    );
    let lost = outcome.summary()["edges"][0]["lost_in_crash"]
        .as_u64()
        .unwrap();
    assert_eq!(numbers.len() as u64 + lost, 400, "{}", outcome.summary());
    assert_eq!(outcome.code, Some(if lost == 0 { 0 } else { 3 }));
    assert_eq!(outcome.ends("sink").len(), 2);
}

#[test]
fn a_failed_consumer_gets_the_queued_samples_after_its_restart() {
    let keys = json!({"restart_policy": "on-failure", "restart_delay": "20ms"});
    let outcome = dataflow(source("400", json!({})), "failing-sink 50", keys, "block")
        .run(&[])
        .finish();
    assert!(
        received(&outcome).into_iter().eq(0..400),
        "{}",
        outcome.summary()
    );
    assert_eq!(outcome.code, Some(0));
}

#[test]
fn samples_of_an_ended_producer_for_a_failed_process_are_counted() {
    let (arguments, keys) = source("5 0 10000", json!({}));
    let program = Path::new(env!("CARGO_BIN_EXE_nervure"))
        .with_file_name("examples")
        .join("test_node");
    // The second process connects after the test has seen the end of the source.
    let script = format!(
        "[ -e second ] && until [ -e go ]; do sleep 0.01; done; touch second; exec {} failing-sink 1",
        program.display()
    );
    let mut run = Dataflow::new()
        .node("source", &arguments, keys)
        .shell(
            "sink",
            &script,
            json!({
                "inputs": {"in": {"source": "source/out", "queue_policy": "block"}},
                "restart_policy": "on-failure", "restart_delay": "1ms",
            }),
        )
        .run(&[]);
    run.ended("source");
    fs::write(run.folder().join("go"), "").unwrap();
    let outcome = run.finish();
    let edge = &outcome.summary()["edges"][0];
    assert_eq!(
        (&edge["sent"], &edge["received"], &edge["queued"]),
        (&json!(5), &json!(1), &json!(0)),
        "{edge}"
    );
    assert_eq!(
        (&edge["lost"], &edge["lost_with_producer"]),
        (&json!(4), &json!(4)),
        "{edge}"
    );
    assert_eq!(outcome.code, Some(3), "samples of a `block` edge are lost");
}

#[test]
fn counts_survive_a_crash() {
    let keys = json!({"restart_policy": "on-failure", "restart_delay": "1ms"});
    let outcome = dataflow(
        source("200 1", json!({})),
        "doomed-sink 50",
        keys,
        "drop_oldest",
    )
    .run(&[])
    .finish();
    let edge = &outcome.summary()["edges"][0];
    let count = |key: &str| edge[key].as_u64().unwrap();
    assert_eq!(count("received") as usize, received(&outcome).len());
    assert!(
        count("received") > 50 && count("sent") >= count("received"),
        "{edge}"
    );
}

#[test]
fn a_killed_producer_is_restarted_and_its_neighbours_are_notified() {
    let keys = json!({"restart_policy": "on-failure", "restart_delay": "1ms", "max_restarts": 1});
    // Slow enough that every line is shown, also on a loaded machine.
    let mut run = dataflow(source("1000000 20", keys), "sink", json!({}), "block").run(&[]);
    run.line("sink", "in 5");
    run.started("source").signal(Signal::KILL);
    run.line("sink", "NODE_FAILED source [\"in\"] killed by SIGKILL");
    run.line("sink", "NODE_RESTARTED source [\"in\"]");
    run.line("sink", "in 0");
    run.started("source").signal(Signal::KILL);
    run.line("sink", "NODE_FAILED source [\"in\"] killed by SIGKILL");
    run.line("sink", "INPUT_CLOSED in");
    let outcome = run.finish();
    assert_eq!(outcome.code, Some(3));
    assert_eq!(outcome.summary()["failed"][0]["id"], "source");
}

#[test]
fn a_waiting_producer_goes_on_after_the_death_of_its_consumer() {
    let mut run = dataflow(
        source("1000", json!({})),
        "sink 1000000",
        json!({}),
        "block",
    )
    .run(&[]);
    run.line("sink", "in 0");
    run.started("sink").signal(Signal::KILL);
    let outcome = run.finish();
    assert_eq!(
        outcome.ends("source")[0]["code"],
        0,
        "{:?}",
        outcome.lines("source")
    );
    assert_eq!(outcome.code, Some(3));
}

#[test]
fn an_error_after_stop_is_a_failure_unless_it_is_that_of_a_stopped_send() {
    let stop = |arguments: &str| {
        let mut run = Dataflow::new()
            .node("source", "source 1000000", json!({"outputs": ["out"]}))
            .node(
                "sink",
                arguments,
                json!({"inputs": {"in": {"source": "source/out", "queue_policy": "block"}}}),
            )
            .run(&[]);
        run.line("sink", "ready");
        run.signal(Signal::INT);
        run.finish()
    };
    let outcome = stop("stop-badly");
    assert_eq!(outcome.code, Some(3), "{}", outcome.stderr);
    let end = &outcome.ends("sink")[0];
    assert_eq!(end["reason"], "exited with code 1 after Stop");
    // The queue was full: `send` failed with `Stopped`, and `main` returned that error.
    let end = &outcome.ends("source")[0];
    assert_eq!((&end["code"], &end["failed"]), (&json!(1), &json!(false)));
}

#[test]
fn stop_reaches_every_node_and_deaf_ones_are_terminated() {
    let mut run = Dataflow::new()
        .node("source", "idle", json!({"outputs": ["out"]}))
        .node("deaf", "deaf", json!({"inputs": {"in": "source/out"}}))
        .run(&["--grace", "200ms"]);
    run.line("deaf", "ready");
    run.signal(Signal::INT);
    run.line("source", "STOP SIGINT");
    let outcome = run.finish();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert_eq!(
        (
            &outcome.ends("source")[0]["code"],
            &outcome.ends("deaf")[0]["signal"]
        ),
        (&json!(0), &json!(15))
    );
    let reason = &outcome.ends("deaf")[0]["reason"];
    assert_eq!(
        reason,
        "it did not end within 200ms of Stop, and was ended by SIGTERM"
    );
}

#[test]
fn nodes_may_feed_each_other() {
    let outcome = Dataflow::new()
        .node("source", "source 100 1", json!({"outputs": ["out"]}))
        .node(
            "a",
            "relay",
            json!({"inputs": {"first": "source/out", "back": "b/out"}, "outputs": ["out"]}),
        )
        .node(
            "b",
            "relay",
            json!({"inputs": {"in": "a/out"}, "outputs": ["out"]}),
        )
        .run(&["--stop-after", "1s"])
        .finish();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let edges = outcome.summary()["edges"].as_array().unwrap();
    let back = edges.iter().find(|edge| edge["input"] == "a/back").unwrap();
    assert!(back["received"].as_u64().unwrap() > 0, "{back}");
}

#[test]
fn a_mesh_starts_though_the_soft_limit_on_open_files_is_low() {
    const NODES: usize = 40;
    let mut dataflow = Dataflow::new();
    for node in 0..NODES {
        let inputs: serde_json::Map<_, _> = (1..=5)
            .map(|step| {
                (
                    format!("in{step}"),
                    json!(format!("n{}/out", (node + step) % NODES)),
                )
            })
            .collect();
        dataflow = dataflow.node(
            &format!("n{node}"),
            "idle",
            json!({"inputs": inputs, "outputs": ["out"]}),
        );
    }
    let mut run = dataflow.run_with("ulimit -Sn 40", &[]);
    run.until("readiness", |message| message["message"] == "ready");
    run.signal(Signal::TERM);
    let outcome = run.finish();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert_eq!(
        outcome.summary()["edges"].as_array().unwrap().len(),
        5 * NODES
    );
    assert!(
        outcome
            .seen
            .iter()
            .filter(|m| m["message"] == "node_ended")
            .all(|ended| ended["code"] == 0)
    );
}
