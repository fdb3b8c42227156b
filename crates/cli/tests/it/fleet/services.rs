//! Requests to services on another machine.

use nervure_coordinator::Client;
use nervure_daemon::{
    PAIRING,
    folder::{Folder, Pairing},
    state::{Phase, change_desired},
};
use nervure_identity::KeyPair;
use nervure_linkemu::namespaces::Namespaces;
use serde_json::{Value, json};

use super::{Daemon, Fleet, is_listed, kill, test_node};

/// A server on the robot, and its client on the laptop, which starts again when it has failed.
fn start_pair(fleet: &Fleet, client: &str) {
    let restarts = json!({"restart_policy": "on-failure", "restart_delay": "1ms"});
    let node = |id: &str, machine: &str, arguments: &str, more: Value| {
        let mut node =
            json!({"id": id, "machine": machine, "path": test_node(), "args": arguments});
        let all = [&restarts, &more].into_iter().filter_map(Value::as_object);
        let all = all
            .flatten()
            .map(|(key, value)| (key.clone(), value.clone()));
        node.as_object_mut().unwrap().extend(all);
        node
    };
    fleet.start(&json!({
        "machines": {"robot": {}, "edge": {}},
        "nodes": [
            node("server", "robot", "serve", json!({"services": ["double"]})),
            node("client", "edge", client, json!({"clients": {"twice": "server/double"}})),
        ],
    }));
}

#[test]
fn goals_cross_machines_and_tools_reach_services_there() {
    let fleet = Fleet::with_own_name(None);
    let node = |id: &str, machine: &str, arguments: &str, more: Value| {
        let node = json!({"id": id, "machine": machine, "path": test_node(), "args": arguments});
        let all = [&node, &more].into_iter().filter_map(Value::as_object);
        let all = all
            .flatten()
            .map(|(key, value)| (key.clone(), value.clone()));
        Value::Object(all.collect())
    };
    let counter = json!({
        "actions": ["count"], "services": ["double"], "inputs": {"tick": "nervure/timer/millis/5"},
    });
    let clients = json!({"count": "counter/count", "twice": "counter/double"});
    fleet.start(&json!({
        "machines": {"robot": {}, "edge": {}},
        "nodes": [
            node("counter", "robot", "work", counter),
            node("server", "robot", "serve", json!({"services": ["double"]})),
            node("client", "edge", "act", json!({"clients": clients})),
        ],
    }));
    let last = "counter/double is a service, not an action: declare it in `actions` of its node";
    await_line(&fleet, 0, last);
    let printed = fleet.printed(0, "client");
    // The last feedback may come after the result.
    assert!(printed[0].ends_with("then 30"), "{printed:?}");
    assert_eq!(
        printed[1..],
        [
            "service counter/count failed: it is nothing",
            "ACCEPTED",
            "the goal of counter/count was cancelled",
            "ACCEPTED",
            "result 7",
            "the goal of counter/count was cancelled",
            "service counter/count has not answered within 50ms",
            last,
        ]
    );
    let dataflow = &fleet.dataflow;
    let doubled = fleet.output(
        0,
        &["service", "call", "-d", dataflow, "server/double", "21"],
    );
    assert_eq!(doubled, "42\n");
    let counted = fleet.output(0, &["action", "send", "-d", dataflow, "counter/count", "3"]);
    assert!(counted.ends_with("SUCCEEDED 30\n"), "{counted}");
    fleet.output(0, &["stop", "-d", dataflow]);
    fleet.check_nothing_left();
}

/// Waits for a line of the client that begins with this text, behind the first `after` lines. Returns
/// the number of lines up to it.
fn await_line(fleet: &Fleet, after: usize, text: &str) -> usize {
    let mut at = 0;
    let what = format!("a line that begins with {text:?}");
    fleet.await_that(&what, |fleet| {
        let lines = fleet.printed(0, "client");
        let found = lines
            .iter()
            .skip(after)
            .position(|line| line.starts_with(text));
        found.inspect(|found| at = after + found + 1).is_some()
    });
    at
}

fn await_end(fleet: &Fleet) {
    fleet.await_that("the dataflow ends by itself on both machines", |fleet| {
        ["laptop", "robot"].iter().all(|name| fleet.has_ended(name))
    });
}

/// The server on the robot.
fn server(fleet: &Fleet) -> u32 {
    let is_server = |pid: &u32| {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        command.ends_with(b"test_node\0serve\0")
    };
    fleet.processes().into_iter().find(is_server).unwrap()
}

#[test]
fn requests_and_answers_cross_machines() {
    let fleet = Fleet::with_own_name(None);
    start_pair(&fleet, "call 100");
    await_end(&fleet);
    assert_eq!(
        fleet.printed(0, "client"),
        [
            "100 answers",
            "16 at a time, then: 16 requests to service server/double are in flight already, which is the limit",
            "16 answers"
        ]
    );
    let server = fleet.printed(1, "server");
    assert!(
        server.contains(&"STOP all inputs are closed".to_owned()),
        "{server:?}"
    );
    let stopped = fleet.output(0, &["stop", "-d", &fleet.dataflow]);
    for line in [
        "client/twice~request -> robot: 116 sent, 116 delivered, none lost",
        "server/double~client~twice -> laptop: 116 sent, 116 delivered, none lost",
    ] {
        assert!(stopped.contains(line), "{stopped}");
    }
    fleet.check_nothing_left();
}

#[test]
fn errors_of_calls_cross_machines() {
    let fleet = Fleet::with_own_name(None);
    start_pair(&fleet, "call-badly");
    await_end(&fleet);
    assert_eq!(
        fleet.printed(0, "client")[1..],
        [
            "service server/double failed: it is not even",
            "service server/double failed: it dropped the request unanswered",
            "service server/double has not answered within 50ms",
            "7 doubled is 14, though an answer came late",
        ]
    );
    fleet.output(0, &["stop", "-d", &fleet.dataflow]);
    fleet.check_nothing_left();
}

#[test]
fn an_answer_to_the_last_process_of_a_client_answers_no_request_of_the_next() {
    let fleet = Fleet::with_own_name(None);
    start_pair(&fleet, "call-again");
    await_end(&fleet);
    assert_eq!(fleet.printed(0, "client"), ["7 doubled is 14"]);
    fleet.output(0, &["stop", "-d", &fleet.dataflow]);
    fleet.check_nothing_left();
}

#[test]
fn the_end_of_a_server_on_another_machine_is_an_error_of_its_callers() {
    let fleet = Fleet::with_own_name(None);
    start_pair(&fleet, "call-on");
    fleet.await_that("the server has a request", |fleet| {
        fleet.printed(1, "server").contains(&"sleeps".to_owned())
    });
    kill(server(&fleet));
    let at = await_line(&fleet, 0, "service server/double ended before it answered");
    await_line(&fleet, at, "21 doubled is 42");
    await_end(&fleet);
    fleet.output(0, &["stop", "-d", &fleet.dataflow]);
    fleet.check_nothing_left();
}

#[test]
fn a_service_that_cannot_be_reached_is_an_error_within_its_lease() {
    let Some(namespaces) = Namespaces::new(1) else {
        return;
    };
    let mut fleet = Fleet::with_own_name(Some(namespaces));
    start_pair(&fleet, "call-always");
    let mut at = await_line(&fleet, 0, "answered");
    // The service's node does not run, as the other machine reports.
    for (order, text) in [
        (
            "stop",
            "service server/double is not available: its node does not run",
        ),
        ("start", "answered"),
    ] {
        fleet.output(0, &["node", order, &format!("{}:server", fleet.dataflow)]);
        at = await_line(&fleet, at, text);
    }
    // The link is interrupted.
    fleet.cable("down");
    let text = "service server/double has not answered, and its machine `robot` cannot be reached";
    at = await_line(&fleet, at, text);
    fleet.cable("up");
    at = await_line(&fleet, at, "answered");
    // The daemon of its machine is killed, and the next carries on.
    fleet.daemons[1].as_mut().unwrap().kill();
    at = await_line(&fleet, at, text);
    fleet.daemons[1] = Some(Daemon::start(fleet.command(1, &["join"])));
    at = await_line(&fleet, at, "answered");
    // The daemon of the client's machine is restarted, too.
    fleet.daemons[0].as_mut().unwrap().kill();
    at = await_line(
        &fleet,
        at,
        "service server/double is not available: its node does not run",
    );
    fleet.daemons[0] = Some(Daemon::start(fleet.command(0, &["up"])));
    await_line(&fleet, at, "answered");
    fleet.await_that("it is reachable", |fleet| {
        is_listed(fleet, "robot", "operator", "reachable")
    });
    fleet.output(0, &["stop", "-d", &fleet.dataflow]);
    fleet.check_nothing_left();
}

/// Stops the part on the robot alone, as `nervure stop` does before the order for the laptop is written.
fn stop_robot(fleet: &Fleet) {
    let folder = Folder::at(&fleet.state(0)).unwrap();
    let pairing: Pairing = folder.read(PAIRING).unwrap().unwrap();
    let key = KeyPair::load(&folder.key()).unwrap();
    let coordinator = pairing.coordinator_key().unwrap();
    let client = Client::new(pairing.endpoints().unwrap()[0].address, coordinator, &key).unwrap();
    change_desired(&client, "robot", |desired| {
        for run in desired.runs.values_mut() {
            run.phase = Phase::Stop;
        }
    })
    .unwrap();
    fleet.await_that("the robot has stopped its part", |fleet| {
        fleet.actual("robot").unwrap()["state"]["is"] == "ended"
    });
}

#[test]
fn a_client_does_not_fail_because_its_service_is_stopped_a_little_earlier() {
    let fleet = Fleet::with_own_name(None);
    start_pair(&fleet, "call-strictly");
    await_line(&fleet, 0, "20 is the answer");
    stop_robot(&fleet);
    let stopped = fleet.json(0, &["stop", "--json", "-d", &fleet.dataflow]);
    assert_eq!(stopped["failed"], json!({}));
    let lines = fleet.printed(0, "client");
    assert!(
        lines.iter().all(|line| line == "20 is the answer"),
        "{lines:?}"
    );
    fleet.check_nothing_left();
}
