//! Goals, feedback and results between real nodes, and goals of the command line.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::dataflow::{Dataflow, Outcome, Process, Run, output};

const TICK: &str = "nervure/timer/millis/2";

/// A node that counts, with that handling of a goal during another one.
fn counter(dataflow: Dataflow, actions: Value) -> Dataflow {
    let keys = json!({
        "actions": actions, "services": ["double"], "inputs": {"tick": TICK},
        "restart_policy": "on-failure", "restart_delay": "1ms",
    });
    dataflow.node("counter", "work", keys)
}

fn pair(actions: Value, client: &str) -> Dataflow {
    let clients = json!({"clients": {"count": "counter/count", "twice": "counter/double"}});
    counter(Dataflow::named(), actions).node("client", client, clients)
}

/// Lets the client end, and then stops the dataflow.
fn finished(mut run: Run) -> Outcome {
    run.ended("client");
    run.signal(Signal::INT);
    let outcome = run.finish();
    assert_eq!(
        outcome.code,
        Some(0),
        "{} {:?}",
        outcome.stderr,
        outcome.lines("client")
    );
    outcome
}

#[test]
fn a_goal_has_feedback_a_result_and_every_way_to_end() {
    let outcome = finished(pair(json!(["count"]), "act").run(&[]));
    assert_eq!(
        outcome.lines("client"),
        [
            "[1, 2, 3] then 30",
            "service counter/count failed: it is nothing",
            "ACCEPTED",
            "the goal of counter/count was cancelled",
            "ACCEPTED",
            "result 7",
            "the goal of counter/count was cancelled",
            "service counter/count has not answered within 50ms",
            "counter/double is a service, not an action: declare it in `actions` of its node",
        ]
    );
    // The last one is cancelled by the client or by the limit that the node knows, whichever is first.
    let lines = outcome.lines("counter");
    assert_eq!(
        lines[..3],
        [
            "cancel 3 its client has cancelled it",
            "cancel 4 its client has cancelled it",
            "cancel 5 its client has cancelled it",
        ]
    );
    assert!(lines[3].starts_with("cancel 6 its "), "{lines:?}");
}

#[test]
fn a_new_goal_preempts_another_or_is_refused() {
    let preempt = json!({"count": {"new_goal": "preempt"}});
    let outcome = finished(pair(preempt, "act-twice").run(&[]));
    let cancelled = "the goal of counter/count was cancelled";
    assert_eq!(
        outcome.lines("client"),
        ["ACCEPTED", "result 20", cancelled]
    );
    assert_eq!(
        outcome.lines("counter")[0],
        "cancel 1 another goal has taken its place"
    );
    let reject = json!({"count": {"new_goal": "reject"}});
    let outcome = finished(pair(reject, "act-twice").run(&[]));
    assert_eq!(
        outcome.lines("client"),
        [
            "ACCEPTED",
            "service counter/count failed: it works on another goal",
            cancelled
        ]
    );
    let parallel = json!({"count": null});
    let outcome = finished(pair(parallel, "act-twice").run(&[]));
    assert_eq!(
        outcome.lines("client"),
        ["ACCEPTED", "result 20", cancelled]
    );
}

#[test]
fn results_arrive_though_feedback_is_not_taken() {
    let outcome = finished(pair(json!(["count"]), "act-slowly").run(&[]));
    assert_eq!(outcome.lines("client"), ["sum 16000"]);
}

#[test]
fn the_end_of_a_client_cancels_its_goals_and_the_end_of_the_node_fails_them() {
    let mut run = pair(json!(["count"]), "act-on").run(&[]);
    run.line("client", "ACCEPTED");
    run.started("client").signal(Signal::KILL);
    run.line("counter", "cancel 1 its client has ended");
    run.signal(Signal::INT);
    run.finish();
    let mut run = pair(json!(["count"]), "act-on").run(&[]);
    run.line("client", "ACCEPTED");
    run.started("counter").signal(Signal::KILL);
    run.line("client", "service counter/count ended before it answered");
    run.signal(Signal::INT);
    run.finish();
}

/// A node that counts, without clients.
fn alone(actions: Value) -> Run {
    let mut run = counter(Dataflow::named(), actions)
        .node(
            "sink",
            "idle",
            json!({"inputs": {"tick": "nervure/timer/secs/1000"}}),
        )
        .run(&[]);
    run.line("sink", "ready");
    run
}

/// Exit code, stdout and stderr of `nervure action send`.
fn send(run: &Run, action: &str, more: &[&str]) -> (Option<i32>, String, String) {
    let begin = ["action", "send", "-d", run.name(), action];
    output(run.command(&[&begin, more].concat()))
}

#[test]
fn the_command_line_lists_actions_and_sends_goals() {
    let run = alone(json!({"count": {"new_goal": "preempt"}}));
    let (code, stdout, _) = output(run.command(&["action", "list", "-d", run.name()]));
    let lines: Vec<Vec<&str>> = stdout
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let header = vec!["ACTION", "NODE", "NEW", "GOAL", "CLIENTS"];
    let count = vec!["counter/count", "runs", "preempt", "-"];
    assert_eq!((code, lines), (Some(0), vec![header, count]));
    let (_, services, _) = output(run.command(&["service", "list", "-d", run.name()]));
    assert!(!services.contains("count "), "{services}");

    let (code, stdout, stderr) = send(&run, "counter/count", &["3"]);
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    // An observer may miss some feedback, and not the result.
    assert!(stdout.ends_with("SUCCEEDED 30\n"), "{stdout}");
    let (_, stdout, _) = send(&run, "counter/count", &["2", "--json"]);
    let last: Value = serde_json::from_str(stdout.lines().last().unwrap()).unwrap();
    assert_eq!(
        last,
        json!({"action": "counter/count", "state": "SUCCEEDED", "status": 4, "value": 20})
    );
    let (code, stdout, stderr) = send(&run, "counter/count", &["0"]);
    assert_eq!(code, Some(1));
    assert!(stdout.ends_with("ABORTED\n"), "{stdout}");
    assert_eq!(
        stderr,
        "error: service `counter/count` failed: it is nothing\n"
    );
    let (code, stdout, _) = send(&run, "counter/count", &["--timeout", "20ms", "--", "-1"]);
    assert_eq!(code, Some(3));
    assert_eq!(stdout, "ACCEPTED\nCANCELING\nCANCELED\n");
    let (code, _, stderr) = send(&run, "counter/cuont", &[]);
    assert_eq!(code, Some(2));
    assert_eq!(
        stderr,
        "error: there is no action `counter/cuont`\n\nhint: did you mean `counter/count`?\n"
    );
    let (code, _, stderr) = send(&run, "counter/double", &["3"]);
    assert_eq!(code, Some(2), "a service is no action: {stderr}");
}

#[test]
fn an_interrupt_cancels_the_goal_of_the_command_line() {
    let run = alone(json!(["count"]));
    let command = [
        "action",
        "send",
        "-d",
        run.name(),
        "counter/count",
        "--",
        "-1",
    ];
    let mut child = run
        .command(&command)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ACCEPTED");
    Process::new(child.id().into()).signal(Signal::INT);
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert_eq!(rest, ["CANCELING", "CANCELED"]);
    assert_eq!(child.wait().unwrap().code(), Some(3));
}
