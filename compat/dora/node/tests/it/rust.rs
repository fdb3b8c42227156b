//! Nodes in Rust.

use serde_json::json;

use crate::dataflow::Dataflow;

const OUTPUTS: [&str; 3] = ["text", "numbers", "bytes"];

/// Inputs from all outputs of the source, whose queues lose nothing.
fn all_of_source() -> serde_json::Value {
    let input = |output| json!({"source": format!("source/{output}"), "queue_policy": "block"});
    json!({"text": input("text"), "numbers": input("numbers"), "bytes": input("bytes")})
}

/// The lines about one input, in their order.
fn of<'a>(lines: &'a [String], input: &str) -> Vec<&'a str> {
    let prefix = format!("{input}: ");
    let lines = lines.iter();
    lines
        .filter_map(|line| line.strip_prefix(&prefix))
        .collect()
}

#[test]
fn values_arrive_as_they_were_sent() {
    let dataflow = Dataflow::new()
        .rust(
            "source",
            "source",
            json!({"tick": "dora/timer/millis/10"}),
            &OUTPUTS,
        )
        .rust("sink", "sink", all_of_source(), &[]);
    let printed = dataflow.succeed();
    assert_eq!(
        dataflow.seen("source"),
        [
            "tick Null 0",
            "source restarts 0",
            "NodeRunConfig { inputs: {DataId(\"tick\"): None}, \
             outputs: {DataId(\"bytes\"), DataId(\"numbers\"), DataId(\"text\")} }",
            "tick is recent: true",
            "output error: `data_len` is 9, and the data has 2 bytes",
            "undeclared is valid: false",
            "output error: unknown output undeclared",
        ]
    );
    assert_eq!(
        printed.matches("sends to `undeclared`").count(),
        1,
        "{printed}"
    );
    let seen = dataflow.seen("sink");
    let parameters = r#"{"encoding": String("mono8"), "width": Integer(4)}"#;
    assert_eq!(of(&seen, "text"), [format!("Utf8 hello {parameters}")]);
    assert_eq!(
        of(&seen, "numbers"),
        ["Float32 [1.5, 2.5] {}", "UInt64 7 {}"]
    );
    let bytes = ["UInt8 [1, 2, 3] {}", "UInt8 [4, 5] {}", "UInt8 [] {}"];
    assert_eq!(of(&seen, "bytes"), bytes);
    for input in OUTPUTS {
        let closed = format!("InputClosed {{ id: DataId(\"{input}\") }}");
        assert!(seen.contains(&closed), "{seen:?}");
    }
    assert_eq!(
        seen[seen.len() - 2..],
        ["Stop(AllInputsClosed)", "closed: true true"]
    );
}

#[test]
fn async_programs_receive_the_same() {
    let dataflow = Dataflow::new()
        .rust(
            "source",
            "source",
            json!({"tick": "dora/timer/millis/10"}),
            &OUTPUTS,
        )
        .rust("sink", "async", all_of_source(), &[]);
    dataflow.succeed();
    let seen = dataflow.seen("sink");
    assert_eq!(
        of(&seen, "numbers"),
        ["Float32 [1.5, 2.5] {}", "UInt64 7 {}"]
    );
    assert!(seen.contains(&"external 1".to_owned()), "{seen:?}");
    assert!(
        seen.contains(&"Stop(AllInputsClosed)".to_owned()),
        "{seen:?}"
    );
}

#[test]
fn a_response_is_found_by_its_request() {
    let dataflow = Dataflow::new()
        .rust(
            "client",
            "client",
            json!({"response": "server/response"}),
            &["request"],
        )
        .rust(
            "server",
            "server",
            json!({"request": "client/request"}),
            &["response"],
        );
    dataflow.succeed();
    let timed_out = r#"Some(Error("Timeout event stream error: Receiver timed out")) Err(Empty)"#;
    let late = "event stream ended before pattern reply arrived";
    assert_eq!(
        dataflow.seen("client"),
        [timed_out, timed_out, "40 true", late]
    );
}

#[test]
fn a_node_that_drops_its_events_can_send() {
    let input = json!({"source": "sender/numbers", "queue_policy": "block"});
    let dataflow = Dataflow::new()
        .rust("sender", "sender", json!({}), &["numbers"])
        .rust("sink", "sink", json!({"numbers": input}), &[]);
    dataflow.succeed();
    let seen = dataflow.seen("sink");
    assert_eq!(
        of(&seen, "numbers"),
        ["UInt8 [0] {}", "UInt8 [1] {}", "UInt8 [2] {}"]
    );
}
