//! `NERVURE_LOG`.

use serde_json::json;

use crate::dataflow::{Dataflow, nervure, output};

#[test]
fn events_of_nodes_are_in_the_log_when_they_are_selected() {
    let dataflow = || {
        Dataflow::new()
            .node("source", "source 3", json!({"outputs": ["out"]}))
            .node("sink", "sink", json!({"inputs": {"in": "source/out"}}))
    };
    let is_event = |line: &&str| line.contains("nervure_node::");
    let outcome = dataflow()
        .run_with("export NERVURE_LOG=node=debug", &["--log-level", "debug"])
        .finish();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let lines = outcome.lines("sink");
    let connected = lines
        .iter()
        .find(|line| line.contains("connected to the keeper"));
    assert!(
        connected.is_some_and(|line| line.contains("DEBUG nervure_node::connect")),
        "{lines:#?}"
    );
    assert!(
        lines.iter().any(|line| line.contains("edge attached")),
        "{lines:#?}"
    );
    let levels: Vec<_> = outcome
        .seen
        .iter()
        .filter(|message| message["text"].as_str().is_some_and(|line| is_event(&line)))
        .map(|message| &message["level"])
        .collect();
    assert!(levels.iter().all(|level| *level == "debug"), "{levels:?}");
    let silent = dataflow().run(&["--log-level", "debug"]).finish();
    assert_eq!(
        silent.lines("sink").iter().filter(|l| is_event(l)).count(),
        0
    );
}

#[test]
fn events_of_the_keeper_go_to_the_stderr_of_run() {
    let outcome = Dataflow::new()
        .shell("node", "true", json!({}))
        .run_with("export NERVURE_LOG=keeper=debug", &[])
        .finish();
    let started = outcome
        .stderr
        .lines()
        .find(|line| line.contains("process started"));
    assert!(
        started.is_some_and(
            |line| line.contains("DEBUG nervure_keeper::shell") && line.contains("id=\"node\"")
        ),
        "{}",
        outcome.stderr
    );
}

#[test]
fn a_wrong_value_is_an_error_of_the_command_and_a_warning_of_a_node() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = nervure(folder.path());
    command.args(["list"]).env("NERVURE_LOG", "nodes=debug");
    let (code, _, stderr) = output(command);
    assert_eq!(code, Some(2));
    assert!(
        stderr.starts_with("error: NERVURE_LOG: `nodes=debug` has an unknown target")
            && stderr.contains("keeper, link, node"),
        "{stderr}"
    );
    let outcome = Dataflow::new()
        .node(
            "idle",
            "source 0",
            json!({"outputs": ["out"], "env": {"NERVURE_LOG": "loud"}}),
        )
        .run(&[])
        .finish();
    let lines = outcome.lines("idle");
    assert!(
        lines
            .iter()
            .any(|line| line.contains("WARN") && line.contains("`loud` has an unknown level")),
        "{lines:#?}"
    );
    assert_eq!(outcome.code, Some(0), "{lines:#?}");
}
