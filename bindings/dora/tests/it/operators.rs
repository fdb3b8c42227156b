//! Operators in C.

use serde_json::{Value, json};

use crate::dataflow::{Dataflow, compiled_operator, text};

/// A node with operators of the tests' library, each with the ticks and bytes of the source.
fn host(dataflow: &Dataflow, operators: &[&str], mode: &str) -> Value {
    compiled_operator(dataflow.folder());
    let operator = |id: &&str| {
        let bytes = json!({"source": "source/bytes", "queue_policy": "block"});
        json!({
            "id": id,
            "shared-library": "operator",
            "inputs": {"bytes": bytes},
            "outputs": ["text"],
        })
    };
    let operators: Vec<_> = operators.iter().map(operator).collect();
    json!({"id": "host", "operators": operators, "env": {"MODE": mode}})
}

/// A source in C, which sends `abc` and empty bytes, and the host.
fn dataflow(operators: &[&str], mode: &str) -> Dataflow {
    let tick = json!({"tick": "dora/timer/millis/10"});
    let dataflow = Dataflow::new().c("source", "source", tick, &["bytes"]);
    let host = host(&dataflow, operators, mode);
    dataflow.node(host)
}

#[test]
fn an_operator_handles_events_until_its_inputs_are_closed() {
    let text = json!({"source": "host/count/text", "queue_policy": "block"});
    let dataflow = dataflow(&["count"], "").rust("sink", "sink", json!({"text": text}), &[]);
    let printed = dataflow.succeed();
    for line in [
        "input bytes data 1 3",
        "sent 1 1",
        "input bytes data 0 0",
        "closed bytes",
        "dropped after 2",
    ] {
        assert!(printed.contains(&format!("| {line}")), "{line}: {printed}");
    }
    assert!(!printed.contains("| stop"), "{printed}");
    assert_eq!(
        printed.matches("no output \"count/undeclared\"").count(),
        1,
        "{printed}"
    );
    let seen = dataflow.seen("sink");
    let numbers: Vec<_> = [1, 2]
        .map(|number| format!("number {number}").into_bytes())
        .into();
    let expected = numbers
        .iter()
        .map(|bytes| format!("text: UInt8 {bytes:?} {{}}"));
    assert!(seen[..2].iter().cloned().eq(expected), "{seen:?}");
}

#[test]
fn operators_of_a_node_have_contexts_of_their_own() {
    let printed = dataflow(&["first", "second"], "").succeed();
    assert_eq!(printed.matches("| dropped after 2").count(), 2, "{printed}");
}

#[test]
fn an_operator_that_stops_gets_no_more_events() {
    let printed = dataflow(&["count"], "stop").succeed();
    assert!(printed.contains("| dropped after 1"), "{printed}");
}

#[test]
fn errors_of_an_operator_end_its_node() {
    for (mode, expected) in [
        (
            "init",
            "operator count: dora_init_operator failed: no camera",
        ),
        (
            "event",
            "operator count: dora_on_event failed: lens covered",
        ),
        ("send", "the data is NULL, and has a length of 7"),
        ("stop all", "operator count returned DORA_STATUS_STOP_ALL"),
    ] {
        let output = dataflow(&["count"], mode).run();
        let text = text(&output);
        assert!(!output.status.success(), "{mode}: {text}");
        assert!(text.contains(expected), "{mode}: {text}");
    }
}

#[test]
fn a_library_without_the_functions_is_named() {
    let dataflow = Dataflow::new();
    let host = json!({"id": "host", "operators": [{"id": "count", "shared-library": "empty"}]});
    let library = dataflow.folder().join("libempty.so");
    let built = std::process::Command::new("cc")
        .args(["-shared", "-x", "c", "/dev/null", "-o"])
        .arg(library)
        .status()
        .unwrap();
    assert!(built.success());
    let output = dataflow.node(host).run();
    let text = text(&output);
    assert!(!output.status.success(), "{text}");
    assert!(text.contains("operator count: the library"), "{text}");
    assert!(text.contains("dora_init_operator"), "{text}");
}
