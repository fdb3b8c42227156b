//! Nodes in C++.

use serde_json::{Value, json};

use crate::dataflow::Dataflow;

fn tick() -> Value {
    json!({"tick": "dora/timer/millis/10"})
}

fn input(source: &str) -> Value {
    json!({"source": source, "queue_policy": "block"})
}

#[test]
fn cxx_sends_to_rust() {
    let inputs = json!({"bytes": input("source/bytes"), "numbers": input("source/numbers")});
    let dataflow = Dataflow::new()
        .cxx("source", "source", tick(), &["bytes", "numbers"])
        .rust("sink", "sink", inputs, &[]);
    let printed = dataflow.succeed();
    assert_eq!(
        dataflow.seen("source"),
        [
            r#"config {"inputs":{"tick":null},"outputs":["bytes","numbers"]}"#,
            "no descriptor 1",
            "tick 1",
            "tick 0",
            "sent ",
            "sent ",
            "sent  released 1",
            "null: the pointer to the array or the schema is null",
            "name: the identifier \"no name\" contains ' ': only letters, digits and `_-.` are allowed",
            "close: output error: unknown output undeclared",
        ]
        .map(str::to_owned)
    );
    assert!(printed.contains("WARN battery low"), "{printed}");
    let mut seen = dataflow.seen("sink");
    seen.truncate(3);
    seen.sort_unstable();
    let parameters = r#"{"at": Timestamp(1970-01-01T00:00:01.500000001Z), "encoding": String("mono8"), "gain": Float(0.5), "last": Bool(true), "notes": ListString(["a", "b"]), "width": Integer(4)}"#;
    assert_eq!(
        seen,
        [
            "bytes: UInt8 [97, 98] {}".to_owned(),
            format!("bytes: UInt8 [] {parameters}"),
            "numbers: Int32  {}".to_owned(),
        ]
    );
}

#[test]
fn cxx_receives_from_rust() {
    let outputs = ["text", "numbers", "bytes"];
    let inputs = json!({"text": input("source/text"), "bytes": input("source/bytes")});
    // The source sends when the sink has found that there is nothing yet.
    let ready = json!({"tick": "sink/ready"});
    let dataflow = Dataflow::new()
        .rust("source", "source", ready, &outputs)
        .cxx("sink", "sink", inputs, &["ready"]);
    dataflow.succeed();
    let seen = dataflow.seen("sink");
    let of = |input: &str| {
        let lines = seen.iter().filter(|line| line.starts_with(input));
        lines.map(String::as_str).collect::<Vec<_>>()
    };
    assert_eq!(of("early"), ["early 111"]);
    assert_eq!(of("text"), [r#"text: u 1  encoding="mono8" width=4 1"#]);
    assert_eq!(
        of("bytes"),
        ["bytes: C 3  1", "bytes: C 2  1", "bytes: C 0  1"]
    );
    // InputClosed twice, then Stop.
    assert_eq!(of("type"), ["type 2", "type 2", "type 0"]);
    let end = [
        "drained 0",
        "dora 0",
        "end 1",
        "not an input: the event is not an input",
    ];
    assert_eq!(seen[seen.len() - 4..], end);
}

#[test]
fn a_request_is_answered() {
    let response = input("server/response");
    let dataflow = Dataflow::new()
        .cxx(
            "client",
            "client",
            json!({"response": response}),
            &["request"],
        )
        .rust(
            "server",
            "server",
            json!({"request": input("client/request")}),
            &["response"],
        );
    dataflow.succeed();
    let seen = dataflow.seen("client");
    assert_eq!(seen, ["refused 1", "matched 1", "l 40", "ended 1"]);
}
