//! Traces across machines.

use super::*;
use crate::telemetry::{Otlp, Telemetry, assert_chain, domain};

#[test]
fn the_way_of_a_sample_across_machines_and_back_is_one_trace() {
    let fleet = Fleet::paired("robot", None, Some(domain()));
    let otlp = Otlp::answering(&[]);
    // Both machines are on this host, so one is enough for both.
    let telemetry = Telemetry::start(fleet.command(0, &["telemetry", &otlp.endpoint]));
    telemetry.line("sending to");
    let file = fleet.file(&json!({
        "machines": {"robot": {}, "laptop": {}},
        "nodes": [
            {"id": "source", "machine": "robot", "path": test_node(), "args": "source 1000000 20 9", "outputs": ["out"]},
            {"id": "relay", "machine": "laptop", "path": test_node(), "args": "relay", "inputs": {"in": "source/out"},
             "outputs": ["out"]},
            {"id": "sink", "machine": "robot", "path": test_node(), "args": "sink", "inputs": {"in": "relay/out"}},
        ],
    }));
    let env = ["--env", "NERVURE_TRACES_PER_SECOND=1000"];
    fleet.output(0, &["start", env[0], env[1], file.to_str().unwrap()]);
    let trace = otlp.trace(&[
        ("send source/out", "source"),
        ("cross source/out", "nervure"),
        ("process source/out", "relay"),
        ("send relay/out", "relay"),
        ("cross relay/out", "nervure"),
        ("process relay/out", "sink"),
    ]);
    assert_chain(&trace);
    let machines: Vec<&str> = trace.iter().map(|it| it.machine.as_str()).collect();
    assert_eq!(
        machines,
        ["robot", "laptop", "laptop", "laptop", "robot", "robot"]
    );
    let crossed = &trace[1].span.attributes;
    assert_eq!(
        crate::telemetry::text(crossed, "nervure.machine.from"),
        "robot"
    );
    // The clocks of both machines are one, and the daemons compare them before a dataflow starts.
    assert!(crossed.iter().any(|it| it.key == "nervure.latency.error"));
    fleet.output(0, &["stop", "-d", "two"]);
}
