//! Operators. Those in all languages pass the same tests.

use serde_json::{Value, json};

use crate::dataflow::{Dataflow, OPERATORS, compiled_operator, text};

/// A node with operators of the tests' library in that language, each with the bytes of the source.
fn host(dataflow: &Dataflow, language: &str, operators: &[&str], mode: &str) -> Value {
    let library = compiled_operator(language, dataflow.folder());
    let operator = |id: &&str| {
        let bytes = json!({"source": "source/bytes", "queue_policy": "block"});
        json!({
            "id": id,
            "shared-library": library,
            "inputs": {"bytes": bytes},
            "outputs": ["text"],
        })
    };
    let operators: Vec<_> = operators.iter().map(operator).collect();
    json!({"id": "host", "operators": operators, "env": {"MODE": mode}})
}

/// A source in C, which sends `abc` and empty bytes, and the host.
fn dataflow(language: &str, operators: &[&str], mode: &str) -> Dataflow {
    let tick = json!({"tick": "dora/timer/millis/10"});
    let dataflow = Dataflow::new().c("source", "source", tick, &["bytes"]);
    let host = host(&dataflow, language, operators, mode);
    dataflow.node(host)
}

#[test]
fn an_operator_handles_events_until_its_inputs_are_closed() {
    for language in OPERATORS {
        let text = json!({"source": "host/count/text", "queue_policy": "block"});
        let dataflow = dataflow(language, &["count"], "");
        let dataflow = dataflow.rust("sink", "sink", json!({"text": text}), &[]);
        let printed = dataflow.succeed();
        for line in [
            "input bytes 3",
            "sent 1 1",
            "input bytes 0",
            "closed bytes",
            "dropped after 2",
        ] {
            let line = format!("| {line}\n");
            assert!(printed.contains(&line), "{language}: {line}: {printed}");
        }
        assert!(!printed.contains("| stop"), "{language}: {printed}");
        assert_eq!(
            printed.matches("no output \"count/undeclared\"").count(),
            1,
            "{language}: {printed}"
        );
        let seen = dataflow.seen("sink");
        let numbers: Vec<_> = [1, 2]
            .map(|number| format!("number {number}").into_bytes())
            .into();
        let expected = numbers
            .iter()
            .map(|bytes| format!("text: UInt8 {bytes:?} {{}}"));
        assert!(
            seen[..2].iter().cloned().eq(expected),
            "{language}: {seen:?}"
        );
    }
}

#[test]
fn operators_of_a_node_have_contexts_of_their_own() {
    for language in OPERATORS {
        let printed = dataflow(language, &["first", "second"], "").succeed();
        let count = printed.matches("| dropped after 2").count();
        assert_eq!(count, 2, "{language}: {printed}");
    }
}

#[test]
fn an_operator_that_stops_gets_no_more_events() {
    for language in OPERATORS {
        let printed = dataflow(language, &["count"], "stop").succeed();
        assert!(
            printed.contains("| dropped after 1"),
            "{language}: {printed}"
        );
    }
}

#[test]
fn errors_of_an_operator_end_its_node() {
    let init = "operator count: dora_init_operator failed: ";
    let event = "operator count: dora_on_event failed: ";
    for (language, mode, expected) in [
        ("c", "init", &*format!("{init}no camera")),
        ("c", "event", &format!("{event}lens covered")),
        ("c", "send", "the data is NULL, and has a length of 7"),
        (
            "c",
            "stop all",
            "operator count returned DORA_STATUS_STOP_ALL",
        ),
        (
            "c++",
            "init",
            &format!("{event}`new_operator` returned no operator"),
        ),
        ("c++", "event", &format!("{event}lens covered")),
        (
            "rust",
            "init",
            &format!("{init}the operator panicked: no camera"),
        ),
        ("rust", "event", &format!("{event}lens covered")),
        (
            "rust",
            "panic",
            &format!("{event}the operator panicked: lens covered"),
        ),
        (
            "rust",
            "stop all",
            "operator count returned DORA_STATUS_STOP_ALL",
        ),
    ] {
        let output = dataflow(language, &["count"], mode).run();
        let text = text(&output);
        assert!(!output.status.success(), "{language}: {mode}: {text}");
        assert!(text.contains(expected), "{language}: {mode}: {text}");
    }
}

#[test]
fn values_of_all_types_pass_an_operator_in_rust() {
    let outputs = ["text", "numbers", "bytes"];
    let tick = json!({"tick": "dora/timer/millis/10"});
    let dataflow = Dataflow::new().rust("source", "source", tick, &outputs);
    let input = |output| json!({"source": format!("source/{output}"), "queue_policy": "block"});
    let library = compiled_operator("rust", dataflow.folder());
    let host = json!({
        "id": "host",
        "operators": [{
            "id": "op",
            "shared-library": library,
            "inputs": {"text": input("text"), "numbers": input("numbers"), "bytes": input("bytes")},
            "outputs": ["values"],
        }],
        "env": {"MODE": "values"},
    });
    let values = json!({"source": "host/op/values", "queue_policy": "block"});
    let dataflow = dataflow.node(host);
    let dataflow = dataflow.rust("sink", "sink", json!({"values": values}), &[]);
    dataflow.succeed();
    let mut seen = dataflow.seen("sink");
    seen.truncate(6);
    seen.sort_unstable();
    assert_eq!(
        seen,
        [
            "values: Float32 [1.5, 2.5] {}",
            "values: UInt64 7 {}",
            "values: UInt8 [1, 2, 3] {}",
            "values: UInt8 [4, 5] {}",
            "values: UInt8 [] {}",
            "values: Utf8 hello {}",
        ]
    );
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
