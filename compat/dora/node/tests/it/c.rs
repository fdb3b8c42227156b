//! Nodes in C.

use std::process::Command;

use serde_json::json;

use crate::dataflow::{Dataflow, compiled, text};

#[test]
fn the_header_compiles_without_warnings_in_c_and_in_cxx() {
    let folder = tempfile::tempdir().unwrap();
    for header in ["c/include/node_api.h", "operator-c/include/operator_api.h"] {
        let header = format!("{}/../{header}", env!("CARGO_MANIFEST_DIR"));
        for language in ["c", "c++"] {
            let output = Command::new("cc")
                .args([
                    "-x", language, "-Wall", "-Wextra", "-Werror", "-c", &header, "-o",
                ])
                .arg(folder.path().join("header.o"))
                .output()
                .unwrap();
            assert!(output.status.success(), "{language}: {}", text(&output));
        }
    }
}

#[test]
fn a_program_without_a_keeper_gets_no_context() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled("node", folder.path());
    let output = Command::new(program)
        .args(["sink", "/dev/null"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(3));
    let text = text(&output);
    assert!(
        text.contains("ERROR init_dora_context_from_env: this program is a Nervure node"),
        "{text}"
    );
}

#[test]
fn c_sends_to_rust() {
    let input = json!({"source": "source/bytes", "queue_policy": "block"});
    let dataflow = Dataflow::new()
        .c(
            "source",
            "source",
            json!({"tick": "dora/timer/millis/10"}),
            &["bytes"],
        )
        .rust("sink", "sink", json!({"bytes": input}), &[]);
    let printed = dataflow.succeed();
    assert_eq!(
        dataflow.seen("source"),
        [
            "type 1 id tick data 0 0",
            "time 1",
            "bytes 0",
            "empty 0",
            "undeclared 0",
            "undeclared 0",
            "no data -1",
            "no name -1",
            "not a name -1",
            "no context -1",
            "log 0",
            "no log -1",
        ]
    );
    assert_eq!(
        printed.matches("no output \"undeclared\"").count(),
        1,
        "{printed}"
    );
    assert!(printed.contains("WARN battery low"), "{printed}");
    assert!(
        printed.contains("the data is NULL, and has a length of 3"),
        "{printed}"
    );
    let seen = dataflow.seen("sink");
    let bytes = ["bytes: UInt8 [97, 98, 99] {}", "bytes: UInt8 [] {}"];
    assert_eq!(seen[..2], bytes);
}

#[test]
fn c_receives_from_rust() {
    let input = |output| json!({"source": format!("source/{output}"), "queue_policy": "block"});
    let inputs = json!({"numbers": input("numbers"), "bytes": input("bytes")});
    let outputs = ["text", "numbers", "bytes"];
    let dataflow = Dataflow::new()
        .rust(
            "source",
            "source",
            json!({"tick": "dora/timer/millis/10"}),
            &outputs,
        )
        .c("sink", "sink", inputs, &[]);
    let printed = dataflow.succeed();
    let seen = dataflow.seen("sink");
    let of = |input: &str| {
        let lines = seen.iter().filter(|line| line.starts_with(input));
        lines.map(String::as_str).collect::<Vec<_>>()
    };
    assert_eq!(of("bytes"), ["bytes: 1 1 2 3", "bytes: 1 4 5", "bytes: 0"]);
    assert_eq!(of("numbers"), ["numbers: 0", "numbers: 0"]);
    assert!(
        printed.contains("input numbers has data of type Float32"),
        "{printed}"
    );
    assert_eq!(of("closed"), ["closed 0 0", "closed 0 0"]);
    assert_eq!(seen[seen.len() - 2..], ["stop 0", "end 1"]);
}
