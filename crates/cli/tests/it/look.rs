//! `nervure list`, `top`, `stop` and `node` on running dataflows.

use std::process::{Command, Output};

use insta::assert_snapshot;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::dataflow::{Dataflow, Run, nervure};

/// Exit code, stdout and stderr of a command.
fn run(mut command: Command) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

fn told(run: &Run, arguments: &[&str]) -> Value {
    let (code, stdout, stderr) = self::run(run.command(arguments));
    assert_eq!(code, Some(0), "{arguments:?}: {stderr}");
    serde_json::from_str(&stdout).unwrap()
}

/// A source of 100 samples a second and a sink, which run until they are stopped.
fn pair() -> Run {
    let mut run = Dataflow::named()
        .node("source", "source 1000000 10", json!({"outputs": ["out"]}))
        .node("sink", "sink", json!({"inputs": {"in": "source/out"}}))
        .run(&[]);
    run.line("sink", "in 3");
    run
}

#[test]
fn a_dataflow_that_runs_is_listed_and_one_that_was_killed_is_not() {
    let mut run = pair();
    let name = run.name().to_owned();
    let listed = |run: &Run| {
        let all = told(run, &["list", "--json"]);
        all["dataflows"].as_array().unwrap().iter().find(|one| one["dataflow"] == name.as_str()).cloned()
    };
    let one = listed(&run).unwrap();
    assert_eq!((&one["state"], &one["nodes"], &one["running"]), (&json!("running"), &json!(2), &json!(2)));
    let (_, text, _) = self::run(run.command(&["list"]));
    assert!(text.starts_with("DATAFLOW"), "{text}");
    assert!(text.lines().any(|line| line.starts_with(&name) && line.contains("  running  ")), "{text}");
    let keeper = run.started("sink").parent();
    keeper.signal(Signal::KILL);
    keeper.assert_ends();
    assert!(listed(&run).is_none(), "nothing is left of it");
}

#[test]
fn stop_ends_a_dataflow_in_order_and_waits_for_it() {
    let run = pair();
    let (code, stdout, stderr) = self::run(run.command(&["stop", "-d", run.name()]));
    assert_eq!((code, stdout), (Some(0), format!("{} has stopped\n", run.name())), "{stderr}");
    let outcome = run.finish();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(outcome.lines("sink").contains(&"STOP `nervure stop`"), "{:?}", outcome.lines("sink"));
}

#[test]
fn top_tells_nodes_and_edges_whether_they_began_before_it_or_not() {
    let run = pair();
    let arguments = ["top", "--json", "-n", "2", "--interval", "300ms", "-d", run.name()];
    let (code, stdout, stderr) = self::run(run.command(&arguments));
    assert_eq!(code, Some(0), "{stderr}");
    let looks: Vec<Value> = stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(looks.len(), 2);
    let (node, edge) = (&looks[1]["nodes"][0], &looks[1]["edges"][0]);
    assert_eq!(
        (&node["id"], &node["state"], &node["restarts"]),
        (&json!("source"), &json!("runs"), &json!(0))
    );
    assert!(node["resident_bytes"].as_u64() > Some(0) && node["threads"].as_u64() > Some(0), "{node}");
    assert_eq!((&edge["topic"], &edge["input"]), (&json!("source/out"), &json!("sink/in")));
    assert!(
        edge["rate_hz"].as_f64() > Some(0.0) && edge["sent"].as_u64() > looks[0]["edges"][0]["sent"].as_u64()
    );
    let (_, text, _) = self::run(run.command(&["top", "--interval", "100ms", "-d", run.name()]));
    let shape: Vec<_> = text.lines().map(|line| line.split_whitespace().next().unwrap_or("")).collect();
    assert_eq!(shape, [&format!("{}:", run.name()), "", "NODE", "source", "sink", "", "EDGE", "source/out"]);
}

#[test]
fn counters_go_on_when_a_process_is_started_again() {
    let mut run = Dataflow::named()
        .node("source", "source 1000000 10", json!({"outputs": ["out"]}))
        .node(
            "sink",
            "doomed-sink 5",
            json!({
                "inputs": {"in": {"source": "source/out", "queue_policy": "block"}},
                "restart_policy": "on-failure", "restart_delay": "1ms",
            }),
        )
        .run(&[]);
    run.ended("sink");
    run.line("sink", "in 20");
    let look = told(&run, &["top", "--json", "-n", "1", "--interval", "100ms", "-d", run.name()]);
    let edge = &look["edges"][0];
    assert!(edge["received"].as_u64() >= Some(20), "those before the restart are counted: {edge}");
    assert!(edge["queued"].as_u64() <= Some(10), "{edge}");
    assert_eq!(look["nodes"][1]["restarts"], 1);
    assert_eq!(
        edge["lost_in_crash"].as_u64().unwrap() + edge["lost"].as_u64().unwrap(),
        2 * edge["lost"].as_u64().unwrap()
    );
}

#[test]
fn a_node_is_stopped_and_started_while_its_neighbour_waits() {
    let mut run = pair();
    let order = |run: &Run, order: &str| {
        let name = format!("{}:source", run.name());
        self::run(run.command(&["node", order, &name]))
    };
    assert_eq!(order(&run, "stop").1, "node `source` is being stopped\n");
    let ended = run.ended("source");
    assert_eq!((&ended["failed"], &ended["restarts"]), (&json!(false), &json!(false)));
    let (code, _, stderr) = order(&run, "stop");
    assert_eq!((code, &*stderr), (Some(2), "error: node `source` does not run\n"));
    assert_eq!(order(&run, "start").0, Some(0));
    run.line("sink", "NODE_RESTARTED source");
    run.line("sink", "in 0");
    assert_eq!(order(&run, "restart").0, Some(0));
    run.line("sink", "NODE_RESTARTED source");
    run.line("sink", "in 0");
    run.signal(Signal::INT);
    let outcome = run.finish();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(!outcome.lines("sink").iter().any(|line| line.starts_with("INPUT_CLOSED")));
}

#[test]
fn a_dataflow_that_does_not_run_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = nervure(folder.path());
    command.args(["top", "-d", "sun"]);
    let (code, stdout, stderr) = run(command);
    // Other dataflows may run on this machine.
    let none_runs = code == Some(1) && stderr.starts_with("error: no dataflow runs\n");
    let others_run = code == Some(2) && stderr.starts_with("error: no dataflow `sun` runs; these do: ");
    assert!(stdout.is_empty() && (none_runs || others_run), "{stderr}");
    let run = pair();
    let (code, _, stderr) = self::run(run.command(&["node", "stop", "sun", "-d", run.name()]));
    assert_eq!(code, Some(2));
    assert_snapshot!(stderr, @r"
    error: there is no node `sun`

    hint: its nodes are source, sink
    ");
}
