//! After its start the data path of a node allocates nothing and makes no system call but those of futexes.

use std::path::Path;

use serde_json::{Value, json};

use crate::dataflow::{Dataflow, Outcome};

/// Two nodes that answer each other; `pulse` is disturbed in that way.
fn run(disturbance: &str) -> Outcome {
    let program = Path::new(env!("CARGO_BIN_EXE_nervure"))
        .with_file_name("examples")
        .join("steady_node");
    let node = |id: &str, inputs: Value, outputs: &[&str], disturbance: &str| {
        json!({
            "id": id,
            "path": program,
            "args": id,
            "inputs": inputs,
            "outputs": outputs,
            "params": {"disturbance": disturbance},
        })
    };
    let asked = json!({"tick": "nervure/timer/hz/500", "back": {"source": "echo/out", "expect_every": "10s"}});
    let answered = json!({"numbers": "pulse/numbers", "text": "pulse/text"});
    Dataflow::new()
        .raw(node("pulse", asked, &["numbers", "text"], disturbance))
        .raw(node("echo", answered, &["out"], "none"))
        .run(&[])
        .finish()
}

#[test]
fn the_data_path_allocates_nothing_and_makes_no_system_call() {
    let outcome = run("none");
    for node in ["pulse", "echo"] {
        let lines = outcome.lines(node);
        let expected = "0 calls of the allocator in 700 rounds";
        assert!(lines.contains(&expected), "{node}: {}", lines.join("\n"));
    }
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
}

#[test]
fn an_allocation_on_the_data_path_is_found() {
    let lines = run("allocation").lines("pulse").join("\n");
    assert!(lines.contains("1400 calls of the allocator"), "{lines}");
}

#[test]
fn a_system_call_on_the_data_path_is_found() {
    let lines = run("call").lines("pulse").join("\n");
    assert!(
        lines.contains("the data path made the system call getppid"),
        "{lines}"
    );
}
