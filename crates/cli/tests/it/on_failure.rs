//! `on_failure`: the value that consumers get when a node fails.

use rustix::process::Signal;
use serde_json::json;

use crate::dataflow::{Dataflow, Outcome};

fn lines<'a>(outcome: &'a Outcome, node: &str) -> Vec<&'a str> {
    outcome
        .lines(node)
        .into_iter()
        .filter(|line| !line.starts_with("killed by"))
        .collect()
}

#[test]
fn the_last_value_of_a_killed_node_comes_after_all_its_samples() {
    let keys = json!({
        "outputs": ["out"],
        "on_failure": {"output": "out", "value": 4_000_000_000_u64},
        "restart_policy": "on-failure",
        "restart_delay": "1ms",
        "max_restarts": 1});
    // The sink is slower than the source, so that the queue is full when the source is killed.
    let mut run = Dataflow::new()
        .node("source", "source 1000000", keys)
        .node(
            "sink",
            "sink 3",
            json!({"inputs": {"in": {"source": "source/out", "queue_policy": "block"}}}),
        )
        .run(&[]);
    run.line("sink", "in 20");
    run.started("source").signal(Signal::KILL);
    run.line("sink", "in 4000000000");
    run.line("sink", "in 20");
    run.started("source").signal(Signal::KILL);
    run.line("sink", "INPUT_CLOSED in");
    let outcome = run.finish();
    let lines = lines(&outcome, "sink");
    let mut expected = 0;
    let mut last_values = 0;
    for line in &lines {
        match line
            .strip_prefix("in ")
            .map(|number| number.parse::<u64>().unwrap())
        {
            Some(4_000_000_000) => (last_values, expected) = (last_values + 1, 0),
            Some(number) => {
                assert_eq!(
                    number, expected,
                    "nothing is lost, and nothing follows the last value: {lines:?}"
                );
                expected += 1;
            }
            None => {}
        }
    }
    assert_eq!((last_values, expected), (2, 0), "{lines:?}");
    let failures = lines
        .iter()
        .filter(|line| line.starts_with("NODE_FAILED source"))
        .count();
    assert_eq!(failures, 2);
    let first_failure = lines
        .iter()
        .position(|line| line.starts_with("NODE_FAILED"))
        .unwrap();
    let first_value = lines
        .iter()
        .position(|line| *line == "in 4000000000")
        .unwrap();
    assert!(
        first_failure < first_value,
        "the failure is reported before queued samples are delivered"
    );
}

#[test]
fn no_last_value_is_sent_for_a_node_that_ends_normally() {
    let keys =
        json!({"outputs": ["out"], "on_failure": {"output": "out", "value": 4_000_000_000_u64}});
    let outcome = Dataflow::new()
        .node("source", "source 3", keys)
        .node(
            "sink",
            "sink",
            json!({"inputs": {"in": {"source": "source/out", "queue_policy": "block"}}}),
        )
        .run(&[])
        .finish();
    assert_eq!(
        lines(&outcome, "sink"),
        [
            "in 0",
            "in 1",
            "in 2",
            "INPUT_CLOSED in",
            "STOP all inputs are closed"
        ]
    );
}
