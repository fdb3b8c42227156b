//! An interrupted network.

use rustix::{
    fs::{FlockOperation, flock},
    process::Signal,
};

use super::*;
use crate::dataflow::Process;

#[test]
fn a_lossless_topic_loses_nothing_when_the_network_is_interrupted() {
    let Some(namespaces) = Namespaces::new(1) else {
        return;
    };
    let fleet = Fleet::new(Some(namespaces));
    start_endless(&fleet, "source 1000000 2 100");
    let processes = fleet.processes();
    fleet.cable("down");
    // Longer than the link's own timeouts of a silent path.
    std::thread::sleep(Duration::from_secs(3));
    fleet.cable("up");
    fleet.await_samples(100);
    assert_eq!(
        fleet.processes(),
        processes,
        "no process has ended or was started"
    );
    let numbers = received(&fleet);
    assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>());
    fleet.output(0, &["stop", "-d", "two"]);
    fleet.check_nothing_left();
}

#[test]
fn an_interrupted_network_is_shown_and_stops_the_nodes_that_want_it() {
    let Some(namespaces) = Namespaces::new(1) else {
        return;
    };
    let fleet = Fleet::new(Some(namespaces));
    let mut dataflow = numbers("source 1000000 5 100");
    let nodes = dataflow["nodes"].as_array_mut().unwrap();
    nodes.push(json!({
        "id": "arm", "machine": "robot", "path": test_node(), "args": "source 1000000 5 100",
        "outputs": ["out"], "on_partition": "stop",
    }));
    fleet.start(&dataflow);
    fleet.await_that("it is reachable", |fleet| {
        is_listed(fleet, "robot", "robot", "reachable")
    });
    let states = |fleet: &Fleet| {
        let keepers = fleet.output(1, &["list", "--json"]);
        let list: Value = serde_json::from_str(keepers.lines().last().unwrap()).unwrap();
        let keepers = list
            .as_array()
            .or_else(|| list["dataflows"].as_array())
            .unwrap();
        let keepers = keepers
            .iter()
            .map(|dataflow| dataflow["keeper"].to_string());
        keepers
            .map(|keeper| fleet.output(1, &["status", "-d", &keeper]))
            .collect::<String>()
    };
    let is = |fleet: &Fleet, node: &str, state: &str| {
        states(fleet).lines().any(|line| {
            let mut words = line.split_ascii_whitespace();
            words.next() == Some(node) && words.next() == Some(state)
        })
    };
    fleet.await_that("the node runs", |fleet| is(fleet, "arm", "runs"));
    fleet.cable("down");
    fleet.await_that("it is shown as unreachable", |fleet| {
        is_listed(fleet, "robot", "robot", "unreachable")
    });
    fleet.await_that("its daemon has stopped the node", |fleet| {
        is(fleet, "arm", "stopped")
    });
    assert!(is(&fleet, "source", "runs"), "{}", states(&fleet));
    fleet.cable("up");
    fleet.await_that("it is reachable again", |fleet| {
        is_listed(fleet, "robot", "robot", "reachable")
    });
    fleet.await_that("the node runs again", |fleet| is(fleet, "arm", "runs"));
    fleet.output(0, &["stop", "-d", "two"]);
    fleet.check_nothing_left();
}

#[test]
fn a_machine_that_cannot_be_reached_is_shown_as_such_and_ends_no_other_command() {
    let Some(namespaces) = Namespaces::new(1) else {
        return;
    };
    let fleet = Fleet::with_own_name(Some(namespaces));
    start_counting(&fleet);
    fleet.await_that("the robot is seen", |fleet| {
        let list = fleet.json(0, &["list", "--json"]);
        list["dataflows"].as_array().unwrap().len() == 2
    });
    // `top` follows both machines while the network is interrupted.
    let followed = Daemon::start(fleet.command(0, &["top", "-d", &fleet.dataflow, "--json"]));
    followed.line("\"machine\":\"robot\"");
    fleet.cable("down");
    followed.line("\"unreachable\":[\"robot\"]");
    drop(followed);

    let list = fleet.json(0, &["list", "--json"]);
    assert_eq!(list["unreachable"][0]["machine"], "robot", "{list:#}");
    let parts = list["dataflows"].as_array().unwrap();
    assert!(
        parts[1]["error"]
            .as_str()
            .unwrap()
            .starts_with("not reached for "),
        "{list:#}"
    );

    let status = fleet.run(&mut fleet.command(0, &["status", "-d", &fleet.dataflow]));
    let text = String::from_utf8_lossy(&status.stdout).into_owned();
    let said = String::from_utf8_lossy(&status.stderr).into_owned();
    assert_eq!(status.status.code(), Some(1), "{text}{said}");
    assert!(
        text.contains("source  robot    not reached for ") && text.contains(", was: running"),
        "{text}"
    );
    assert!(said.contains("warning: robot cannot be reached"), "{said}");

    // Orders for this machine still work; those for the other fail, with the reason.
    fleet.output(0, &["node", "restart", &format!("{}:sink", fleet.dataflow)]);
    for there in [
        &["node", "restart", &format!("{}:source", fleet.dataflow)][..],
        &[
            "param",
            "get",
            &format!("{}:source", fleet.dataflow),
            "level",
        ],
        &["param", "list", "-d", &fleet.dataflow],
        &["topic", "list", "-d", &fleet.dataflow],
        &["explain", "-d", &fleet.dataflow],
        &["logs", "-d", &fleet.dataflow],
    ] {
        let refused = fleet.run(&mut fleet.command(0, there));
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(1), "{there:?}: {said}");
        assert!(
            said.contains("robot cannot be reached"),
            "{there:?}: {said}"
        );
    }
    let source = |status: &Value| node_of(status, "source")["pid"].clone();
    let before = source(&fleet.json(1, &["status", "-d", &keeper_of(&fleet, 1), "--json"]));
    fleet.cable("up");
    fleet.await_that("the robot is back", |fleet| {
        let list = fleet.json(0, &["list", "--json"]);
        list["unreachable"].as_array().unwrap().is_empty()
    });
    // No order of before is carried out now.
    let status = fleet.json(0, &["status", "-d", &fleet.dataflow, "--json"]);
    assert_eq!(source(&status), before, "{status:#}");
    fleet.output(0, &["stop", "-d", &fleet.dataflow]);
    fleet.check_nothing_left();
}

/// A source that does not end, each 5 ms.
const ENDLESS: &str = "source 1000000 5 100";

/// The part of the robot, as its daemon describes it.
fn part_on_robot(fleet: &Fleet, run: &Path) -> String {
    let part = json!({
        "check": false, "file": run.join("files/two.yml"), "folder": run, "dataflow": fleet.dataflow,
        "role": "robot", "machines": {"robot": "robot", "edge": "laptop"}, "params": [], "variables": [],
    });
    part.to_string()
}

/// The process that starts a part continues when its daemon is killed.
#[test]
fn a_node_that_needs_the_lease_waits_for_it_when_its_daemon_is_killed_in_a_start() {
    let mut fleet = Fleet::with_own_name(None);
    let mut dataflow = numbers("source 1000000 5 100");
    let script = format!("echo arm; exec {} idle", test_node().display());
    let nodes = dataflow["nodes"].as_array_mut().unwrap();
    nodes.push(json!({
        "id": "arm", "machine": "robot", "path": "sh", "args": ["-c", script], "on_partition": "stop",
    }));
    fleet.start(&dataflow);
    let starts = |fleet: &Fleet| {
        let lines = fleet.printed(1, "arm").into_iter();
        lines.filter(|line| line == "arm").count()
    };
    fleet.await_that("the node runs", |fleet| starts(fleet) == 1);
    fleet.await_samples(20);
    // The coordinator is away, and the robot's daemon has died after it had begun a start.
    let state = fleet.actual("robot").unwrap()["state"].clone();
    let keeper = u32::try_from(state["keeper"].as_u64().unwrap()).unwrap();
    for daemon in fleet.daemons.iter_mut().flatten() {
        daemon.kill();
    }
    kill(keeper);
    fleet.await_that("the keeper has ended", |fleet| {
        !fleet.processes().contains(&keeper)
    });
    let runs = fs::read_dir(fleet.state(1).join("runs")).unwrap();
    let run = runs.flatten().next().unwrap().path();
    // As the daemon does: the lock is taken first, and handed down.
    let log = fs::File::options()
        .append(true)
        .open(run.join("start.log"))
        .unwrap();
    fleet.await_that("its keeper has let the lock go", |_| {
        flock(&log, FlockOperation::NonBlockingLockExclusive).is_ok()
    });
    let mut command = fleet.command(1, &["__part"]);
    command.stdout(log.try_clone().unwrap()).stderr(log);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    drop(command);
    let mut stdin = child.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, part_on_robot(&fleet, &run).as_bytes()).unwrap();
    drop(stdin);
    fleet.daemons[1] = Some(Daemon::start(fleet.command(1, &["join"])));
    fleet.daemon(1).line("robot is ready");
    // `__part` returns when the dataflow has started: the stand-ins have joined.
    assert!(fleet.wait(&mut child).success());
    assert_eq!(starts(&fleet), 1);
    fleet.daemons[0] = Some(Daemon::start(fleet.command(0, &["up"])));
    fleet.await_that("the node runs again", |fleet| starts(fleet) == 2);
    fleet.output(0, &["stop", "-d", &fleet.dataflow]);
    fleet.check_nothing_left();
}

/// A start without the daemon's lock could be a second one.
#[test]
fn a_part_is_not_started_without_the_lock_of_its_run() {
    let fleet = Fleet::new(None);
    start_endless(&fleet, ENDLESS);
    let runs = fs::read_dir(fleet.state(1).join("runs")).unwrap();
    let run = runs.flatten().next().unwrap().path();
    let log = || fs::File::options().append(true).open(run.join("start.log"));
    for (stdout, reason) in [
        (Stdio::piped(), "the standard output is not "),
        (log().unwrap().into(), "another process of this run has it"),
    ] {
        let mut command = fleet.command(1, &["__part"]);
        let command = command
            .stdin(Stdio::piped())
            .stdout(stdout)
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        std::io::Write::write_all(&mut stdin, part_on_robot(&fleet, &run).as_bytes()).unwrap();
        drop(stdin);
        let said = read_all(child.stderr.take().unwrap());
        assert!(!fleet.wait(&mut child).success());
        let text = String::from_utf8(said.recv_timeout(WAIT_LIMIT).unwrap()).unwrap();
        assert!(text.contains(reason), "{text}");
    }
    fleet.output(0, &["stop", "-d", "two"]);
    fleet.check_nothing_left();
}

#[test]
fn a_keeper_that_does_not_answer_the_next_daemon_gets_no_second_one() {
    let mut fleet = Fleet::new(None);
    start_endless(&fleet, ENDLESS);
    let keeper = |fleet: &Fleet| fleet.actual("robot").unwrap()["state"]["keeper"].as_u64();
    let pid = keeper(&fleet).unwrap();
    let stopped = Process::new(i64::try_from(pid).unwrap());
    stopped.stop();
    fleet.daemons[1].as_mut().unwrap().kill();
    fleet.daemons[1] = Some(Daemon::start(fleet.command(1, &["join"])));
    fleet.await_that("the daemon awaits the keeper", |fleet| {
        fleet.actual("robot").unwrap()["state"]["is"] == "starting"
    });
    stopped.signal(Signal::CONT);
    fleet.await_that("the keeper is followed", |fleet| keeper(fleet) == Some(pid));
    fleet.await_samples(20);
    fleet.output(0, &["stop", "-d", "two"]);
    fleet.check_nothing_left();
}
