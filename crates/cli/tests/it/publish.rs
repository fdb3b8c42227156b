//! `nervure topic pub`.

use rustix::process::Signal;
use serde_json::json;

use crate::dataflow::{Dataflow, Run, output};

/// A node that sends nothing by itself, and a consumer of its output.
fn pair(output: &str, sink: &str) -> Run {
    let outputs = json!({"out": null, "twist": {"type": "std/Twist@1"}});
    let inputs = json!({"tick": "nervure/timer/secs/1000"});
    let mut run = Dataflow::named()
        .node(
            "source",
            "idle",
            json!({"inputs": inputs, "outputs": outputs}),
        )
        .node("sink", sink, json!({"inputs": {"in": output}}))
        .run(&[]);
    run.line("source", "ready");
    run
}

/// Exit code, stdout and stderr of `nervure topic pub`.
fn publish(run: &Run, arguments: &[&str]) -> (Option<i32>, String, String) {
    let begin = ["topic", "pub", "-d", run.name()];
    output(run.command(&[&begin, arguments].concat()))
}

#[test]
fn the_node_of_an_output_publishes_and_every_count_is_true() {
    let mut run = pair("source/out", "late-sink /");
    let (code, stdout, stderr) = publish(&run, &["source/out", "6"]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert_eq!(stdout, "source/out: published, 1 consumer\n");
    run.line("sink", "in 6");
    let (code, stdout, _) = publish(&run, &["source/out", "7", "--rate", "200", "-n", "5"]);
    assert_eq!((code, stdout.lines().count()), (Some(0), 5));
    let (code, stdout, _) = publish(&run, &["sink/in", "8", "--json"]);
    assert_eq!(code, Some(0));
    assert_eq!(
        stdout,
        "{\"consumers\":1,\"missed\":0,\"topic\":\"sink/in\"}\n"
    );
    run.line("sink", "in 8");
    run.signal(Signal::INT);
    let outcome = run.finish();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let edges = outcome.summary()["edges"].as_array().unwrap();
    let edge = edges
        .iter()
        .find(|edge| edge["topic"] == "source/out")
        .unwrap();
    // The sample for the input alone is on no edge.
    assert_eq!(
        (&edge["sent"], &edge["received"], &edge["lost"]),
        (&json!(6), &json!(6), &json!(0)),
        "{edge}"
    );
}

#[test]
fn a_value_is_completed_and_checked_by_the_type() {
    let run = pair("source/twist", "receive");
    let (code, stdout, stderr) = publish(&run, &["source/twist", "{linear: {x: 1}}"]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    assert_eq!(stdout, "source/twist: published, 1 consumer\n");
    for (value, expected) in [
        ("{linear: {X: 1}}", "field `linear.X`"),
        ("{linear: {x: fast}}", "field `linear.x`"),
        ("fast", "one record"),
    ] {
        let (code, stdout, stderr) = publish(&run, &["source/twist", value]);
        assert_eq!((code, stdout.as_str()), (Some(2), ""), "{value}");
        assert!(
            stderr.contains("the value does not fit") && stderr.contains(expected),
            "{stderr}"
        );
    }
    let (code, _, stderr) = publish(&run, &["source/oout", "1"]);
    assert_eq!(code, Some(2));
    assert!(
        stderr.ends_with("hint: did you mean `source/out`?\n"),
        "{stderr}"
    );
}

#[test]
fn a_full_queue_of_a_lossless_input_refuses_the_sample() {
    let queue = json!({"source": "source/out", "queue_size": 1, "queue_policy": "block"});
    let mut run = Dataflow::named()
        .node(
            "source",
            "idle",
            json!({
                "inputs": {"tick": "nervure/timer/secs/1000"}, "outputs": ["out"],
            }),
        )
        .node("sink", "deaf", json!({"inputs": {"in": queue}}))
        .run(&[]);
    run.line("source", "ready");
    assert_eq!(publish(&run, &["source/out", "1"]).0, Some(0));
    let full = (0..64).find_map(|number: i32| {
        let (code, _, stderr) = publish(&run, &["source/out", &number.to_string()]);
        (code != Some(0)).then_some((code, stderr))
    });
    assert_eq!(
        full,
        Some((
            Some(2),
            "error: the queue of consumer sink/in is full\n".to_owned()
        ))
    );
}
