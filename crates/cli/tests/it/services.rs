//! Requests and answers between real nodes.

use nervure_node::{Event, Observer};
use rustix::process::Signal;
use serde_json::json;

use crate::dataflow::{Dataflow, Run, output};

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

/// A server without clients, which tools call.
fn server() -> Run {
    let mut run = Dataflow::named()
        .node("server", "serve", json!({"services": ["double"]}))
        .node(
            "sink",
            "idle",
            json!({"inputs": {"tick": "nervure/timer/secs/1000"}}),
        )
        .run(&[]);
    run.line("sink", "ready");
    run
}

/// Exit code, stdout and stderr of `nervure service call`.
fn call(run: &Run, service: &str, more: &[&str]) -> (Option<i32>, String, String) {
    let begin = ["service", "call", "-d", run.name(), service];
    output(run.command(&[&begin, more].concat()))
}

#[test]
fn services_are_listed_with_their_clients() {
    let mut run = Dataflow::named()
        .node("server", "serve", json!({"services": ["double", "half"]}))
        .node(
            "client",
            "call-always",
            json!({"clients": {"twice": "server/double"}}),
        )
        .run(&[]);
    run.line("client", "answered");
    let (code, stdout, stderr) = output(run.command(&["service", "list", "-d", run.name()]));
    assert_eq!((code, stderr.as_str()), (Some(0), ""));
    let lines: Vec<Vec<&str>> = stdout
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        lines,
        [
            vec!["SERVICE", "NODE", "CLIENTS"],
            vec!["server/double", "runs", "client/twice"],
            vec!["server/half", "runs", "-"],
        ]
    );
    let json = output(run.command(&["service", "list", "--json", "-d", run.name()])).1;
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        json["services"][0],
        json!({
            "service": "server/double", "node": "server", "state": "runs", "machine": null,
            "clients": ["client/twice"],
        })
    );
}

#[test]
fn a_tool_calls_a_service_without_clients() {
    let run = server();
    for number in [7, 0x1234_5678] {
        let (code, stdout, stderr) = call(&run, "server/double", &[&number.to_string()]);
        assert_eq!((code, stderr.as_str()), (Some(0), ""));
        assert_eq!(stdout, format!("{}\n", number * 2));
    }
    let (_, stdout, _) = call(&run, "server/double", &["7", "--json"]);
    assert_eq!(stdout, "{\"service\":\"server/double\",\"value\":14}\n");
    let errors = [
        (
            "server/double",
            "1",
            1,
            "error: service `server/double` failed: it is not even\n",
        ),
        (
            "server/double",
            "3",
            1,
            "error: service `server/double` failed: it dropped the request unanswered\n",
        ),
        (
            "server/duoble",
            "7",
            2,
            "error: there is no service `server/duoble`\n\nhint: did you mean `server/double`?\n",
        ),
        (
            "server/double",
            "{x: 1",
            2,
            "error: the value `{x: 1` is not valid YAML\n\nhint: quote text: `'\"..\"'`\n",
        ),
    ];
    for (service, value, expected, text) in errors {
        let (code, stdout, stderr) = call(&run, service, &[value]);
        assert_eq!((code, stdout.as_str()), (Some(expected), ""), "{value}");
        assert_eq!(stderr, text);
    }
    let (code, _, stderr) = call(&run, "server/double", &["5", "--timeout", "10ms"]);
    assert_eq!(code, Some(1));
    assert_eq!(
        stderr,
        "error: service `server/double` has not answered within 10ms\n"
    );
    // The late answer is none to the next request.
    assert_eq!(call(&run, "server/double", &["7"]).1, "14\n");
}

#[test]
fn a_tool_learns_of_the_end_of_a_service() {
    let mut run = server();
    let command = [
        "service",
        "call",
        "-d",
        run.name(),
        "server/double",
        "--",
        "-1",
    ];
    let waiting = run.command(&command);
    let waiting = std::thread::spawn(move || output(waiting));
    run.line("server", "sleeps");
    run.started("server").signal(Signal::KILL);
    let (code, _, stderr) = waiting.join().unwrap();
    assert_eq!(code, Some(1));
    assert_eq!(
        stderr,
        "error: service `server/double` ended before it answered\n\n\
         hint: `nervure logs --node server` shows why\n"
    );
    let (code, _, stderr) = call(&run, "server/double", &["7"]);
    assert_eq!(code, Some(2));
    assert!(
        stderr.contains("node `server` does not run")
            && stderr.contains("nervure node start server"),
        "{stderr}"
    );
}
