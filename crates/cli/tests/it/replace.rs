//! Another program for a running node.

use std::path::Path;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::dataflow::{Dataflow, Process, Run};

/// A source with a `block` edge to its sink, which has a short `startup_timeout`.
fn running() -> Run {
    let mut run = Dataflow::named()
        .node("source", "source 1000000 2", json!({"outputs": ["out"]}))
        .node(
            "sink",
            "sink",
            json!({
                "inputs": {"in": {"source": "source/out", "queue_policy": "block"}},
                "startup_timeout": "30s",
            }),
        )
        .run(&[]);
    run.line("sink", "in 3");
    run
}

fn replace(run: &Run, program: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
    let mut command = run.command(&["node", "replace", "sink", program, "-d", run.name()]);
    if !arguments.is_empty() {
        command.arg("--").args(arguments);
    }
    let output = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

fn sink(run: &Run) -> Value {
    let output = run
        .command(&["status", "--json", "-d", run.name()])
        .output()
        .unwrap();
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    status["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .find(|node| node["id"] == "sink")
        .unwrap()
        .clone()
}

fn test_node() -> String {
    let path = Path::new(env!("CARGO_BIN_EXE_nervure"))
        .with_file_name("examples")
        .join("test_node");
    path.display().to_string()
}

#[test]
fn a_new_program_gets_the_samples_after_the_old_one_and_status_names_it() {
    let mut run = running();
    assert_eq!(sink(&run)["file_says"], Value::Null);
    let script = r#"echo "better $0"; exec "$@""#;
    let (code, stdout, stderr) = replace(&run, "sh", &["-c", script, "than", &test_node(), "sink"]);
    assert_eq!(
        (code, &*stdout),
        (Some(0), "node `sink` runs sh\n"),
        "{stderr}"
    );
    let last: u64 = {
        // The old program takes the samples in its queue until it gets Stop.
        let message = run.until("end", |message| {
            message["text"]
                .as_str()
                .is_some_and(|text| text.starts_with("STOP"))
        });
        assert_eq!(message["node"], "sink");
        let lines = run.seen_lines("sink");
        lines
            .iter()
            .rev()
            .find_map(|line| line.strip_prefix("in ")?.parse().ok())
            .unwrap()
    };
    run.line("sink", "better than");
    assert_eq!(
        run.line("sink", "in "),
        (last + 1).to_string(),
        "nothing is lost in between"
    );
    let now = sink(&run);
    assert!(
        now["program"].as_str().unwrap().starts_with("sh -c "),
        "{now}"
    );
    assert_eq!(now["file_says"], format!("{} sink", test_node()));
    let (code, _, stderr) = replace(&run, &test_node(), &["sink"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(
        sink(&run)["file_says"],
        Value::Null,
        "it is what the file says"
    );
    run.signal(Signal::INT);
    let outcome = run.finish();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert_eq!(outcome.summary()["edges"][0]["lost"], 0);
}

#[test]
fn the_old_program_comes_back_when_the_new_one_fails() {
    let mut run = running();
    let (code, _, stderr) = replace(&run, "false", &[]);
    assert_eq!(code, Some(2));
    assert!(
        stderr.contains("error: false sink was not ready: exited with code 1; node `sink` runs "),
        "{stderr}"
    );
    assert!(
        stderr.contains("hint: `nervure logs --node sink` has what it wrote"),
        "{stderr}"
    );
    let ended = run.until("failure", |message| {
        message["message"] == "node_ended" && message["failed"] == true
    });
    assert_eq!(ended["restarts"], true);
    run.line("sink", "in ");
    assert_eq!(sink(&run)["file_says"], Value::Null);
    run.signal(Signal::INT);
    assert_eq!(run.finish().code, Some(0));
}

#[test]
fn the_old_program_comes_back_when_the_new_one_hangs_and_is_killed() {
    let mut run = running();
    let mut command = run.command(&[
        "node",
        "replace",
        "sink",
        "sleep",
        "-d",
        run.name(),
        "--",
        "1000",
    ]);
    let mut asking = command
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    run.line("sink", "STOP ");
    let started = run.until("start", |message| {
        message["message"] == "node_started" && message["id"] == "sink"
    });
    // The client no longer waits for the result.
    Process::new(asking.id().into()).signal(Signal::KILL);
    asking.wait().unwrap();
    Process::new(started["pid"].as_i64().unwrap()).signal(Signal::KILL);
    run.line("sink", "in ");
    assert_eq!(sink(&run)["file_says"], Value::Null);
    run.signal(Signal::INT);
    assert_eq!(run.finish().code, Some(0));
}

#[test]
fn a_path_that_is_no_program_is_an_error_before_anything_is_stopped() {
    let run = running();
    let (code, _, stderr) = replace(&run, "no-such-program", &[]);
    assert!(
        code == Some(2) && stderr.contains("neither a file here nor a command on the PATH"),
        "{stderr}"
    );
    let (code, _, stderr) = replace(&run, "./better.py", &[]);
    assert!(
        code == Some(2) && stderr.contains("the file `./better.py` does not exist"),
        "{stderr}"
    );
    run.signal(Signal::INT);
    let outcome = run.finish();
    assert_eq!(outcome.ends("sink").len(), 1);
}
