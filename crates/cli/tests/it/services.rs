//! Requests and answers between real nodes.

use nervure_node::{Event, Observer};
use rustix::process::Signal;
use serde_json::json;

use crate::dataflow::Dataflow;

fn pair(server: &str, client: &str) -> Dataflow {
    Dataflow::new()
        .node(
            "server",
            server,
            json!({"services": ["double"], "restart_policy": "on-failure", "restart_delay": "1ms"}),
        )
        .node(
            "client",
            client,
            json!({"clients": {"twice": "server/double"}}),
        )
}

#[test]
fn calls_are_answered_one_by_one_and_concurrently() {
    let outcome = pair("serve", "call 100").run(&[]).finish();
    assert_eq!(
        outcome.code,
        Some(0),
        "{} {:?}",
        outcome.stderr,
        outcome.lines("client")
    );
    assert_eq!(
        outcome.lines("client"),
        [
            "100 answers",
            "16 at a time, then: 16 requests to service server/double are in flight already, which is the limit",
            "16 answers"
        ]
    );
    assert!(
        outcome
            .lines("server")
            .contains(&"STOP all inputs are closed"),
        "{:?}",
        outcome.lines("server")
    );
}

#[test]
fn errors_of_calls_are_explained() {
    let outcome = pair("serve", "call-badly").run(&[]).finish();
    assert_eq!(
        outcome.code,
        Some(0),
        "{} {:?}",
        outcome.stderr,
        outcome.lines("client")
    );
    assert_eq!(
        outcome.lines("client"),
        [
            "node client has no client \"thrice\"; its clients are: twice; did you mean \"twice\"?",
            "service server/double failed: it is not even",
            "service server/double failed: it dropped the request unanswered",
            "service server/double has not answered within 50ms",
            "7 doubled is 14, though an answer came late",
        ]
    );
}

#[test]
fn an_event_loop_calls_too() {
    let outcome = Dataflow::new()
        .node("server", "serve", json!({"services": ["double"]}))
        .node(
            "client",
            "call-async",
            json!({"clients": {"twice": "server/double"}, "inputs": {"tick": "nervure/timer/millis/1"}}),
        )
        .run(&[])
        .finish();
    assert_eq!(
        outcome.code,
        Some(0),
        "{} {:?}",
        outcome.stderr,
        outcome.lines("client")
    );
    assert_eq!(
        outcome.lines("client"),
        [
            "10 answers",
            "service server/double failed: it is not even",
            "service server/double has not answered within 50ms",
            "7 doubled is 14",
        ]
    );
}

#[test]
fn the_end_of_a_server_is_an_error_of_its_callers_and_the_next_one_answers() {
    let mut run = pair("serve", "call-on").run(&[]);
    run.line("client", "ready");
    run.line("server", "sleeps");
    run.started("server").signal(Signal::KILL);
    run.line("client", "service server/double ended before it answered");
    run.line("client", "21 doubled is 42");
    let outcome = run.finish();
    assert_eq!(
        outcome.code,
        Some(0),
        "{} {:?}",
        outcome.stderr,
        outcome.lines("client")
    );
}

#[test]
fn an_answer_to_the_last_process_of_a_client_answers_no_request_of_the_next() {
    let outcome = Dataflow::new()
        .node("server", "serve", json!({"services": ["double"]}))
        .node(
            "client",
            "call-again",
            json!({"clients": {"twice": "server/double"}, "restart_policy": "on-failure", "restart_delay": "1ms"}),
        )
        .run(&[])
        .finish();
    assert_eq!(outcome.lines("client").last(), Some(&"7 doubled is 14"));
}

#[test]
fn a_call_ends_with_the_dataflow() {
    let mut run = pair("serve", "call-on").run(&[]);
    run.line("server", "sleeps");
    run.signal(Signal::INT);
    run.line("client", "the dataflow stops");
    let outcome = run.finish();
    assert_eq!(outcome.ends("client")[0]["failed"], false);
}

#[test]
fn a_request_without_a_server_fails_at_once_even_if_it_is_observed() {
    let mut run = Dataflow::named()
        .node("server", "serve", json!({"services": ["double"]}))
        .node(
            "client",
            "call-always",
            json!({"clients": {"twice": "server/double"}}),
        )
        .run(&[]);
    run.line("client", "answered");
    let topics = run
        .command(&["topic", "list", "--json", "-d", run.name()])
        .output()
        .unwrap()
        .stdout;
    let topics: serde_json::Value = serde_json::from_slice(&topics).unwrap();
    let names = topics["topics"]
        .as_array()
        .unwrap()
        .iter()
        .map(|topic| topic["topic"].as_str().unwrap());
    let requests = names
        .clone()
        .find(|name| name.starts_with("client/"))
        .unwrap();
    let mut observer = Observer::open(Some(run.name()), &[requests], 4, "test").unwrap();
    assert!(matches!(observer.next(), Some(Event::Input { .. })));
    let stopped = run
        .command(&["node", "stop", "server", "-d", run.name()])
        .status()
        .unwrap();
    assert!(stopped.success());
    run.line("client", "service server/double is not available");
    run.line("client", "service server/double is not available");
    run.signal(Signal::INT);
    assert_eq!(run.finish().code, Some(0));
}
