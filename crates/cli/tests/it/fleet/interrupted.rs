//! A roll that is interrupted: its command is killed, or the daemon of a machine.

use super::instances::{await_more, instances, start_on, three_machines};
use super::*;

/// A version of the dataflow, with a node on the robot that shows the running version, and a node that
/// takes two seconds to stop.
fn version(node: &str, source: &str) -> Value {
    let mut dataflow = numbers(source);
    let nodes = dataflow["nodes"].as_array_mut().unwrap();
    nodes.push(json!({"id": node, "machine": "robot", "path": test_node(), "args": "idle"}));
    let script = "trap '' TERM; while :; do sleep 0.1; done";
    nodes.push(json!({"id": "slow", "machine": "robot", "path": "sh", "args": ["-c", script]}));
    dataflow
}

const ENDLESS: &str = "source 1000000 5 100";

/// The command that rolls a version out on the two machines.
fn rolling(fleet: &Fleet, dataflow: &Value, options: &[&str]) -> Command {
    let file = fleet.file(dataflow);
    let arguments = [
        "start",
        file.to_str().unwrap(),
        "--bind",
        "edge=laptop",
        "--name",
        &fleet.dataflow,
        "--rolling",
        "--healthy-for",
        "200ms",
    ];
    fleet.command(0, &[&arguments[..], options].concat())
}

/// Rolls a version out. Returns the exit code and stderr.
fn roll(fleet: &Fleet, dataflow: &Value) -> (Option<i32>, String) {
    let output = fleet.run(&mut rolling(fleet, dataflow, &[]));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), text)
}

/// Stops the remaining instances. The slow node has to be killed, which counts as a failure.
fn stop(fleet: &Fleet) {
    let output = fleet.run(&mut fleet.command(0, &["stop", "-d", &fleet.dataflow]));
    let code = output.status.code();
    assert!(matches!(code, Some(0 | 3)), "{code:?}");
}

fn has_node(fleet: &Fleet, node: &str) -> bool {
    let status = fleet.json(0, &["status", "--json", "-d", &fleet.dataflow]);
    !node_of(&status, node).is_null()
}

/// Kills the command while the version before stops, and waits until that has ended.
fn interrupt(fleet: &Fleet, dataflow: &Value) {
    let mut command = Daemon::start(rolling(fleet, dataflow, &[]));
    command.line("robot: stopping");
    command.kill();
    fleet.await_that("the version of before has ended", |fleet| {
        fleet.processes().is_empty()
    });
}

#[test]
fn after_a_command_that_was_killed_the_next_one_goes_back_or_finishes() {
    let fleet = Fleet::with_own_name(None);
    let name = fleet.dataflow.clone();
    let (code, text) = roll(&fleet, &version("first", ENDLESS));
    assert_eq!(code, Some(0), "{text}");

    interrupt(&fleet, &version("second", ENDLESS));
    let list = fleet.json(0, &["list", "--json"]);
    let mut parts = list["dataflows"].as_array().unwrap().iter();
    assert!(parts.all(|part| part["dataflow"] != *name), "{list:#}");
    let file = fleet.file(&version("second", ENDLESS));
    let start = ["start", file.to_str().unwrap(), "--name", &name];
    let (code, text) = refused(
        &fleet,
        0,
        &[&start[..], &["--bind", "edge=laptop"]].concat(),
    );
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("`--rolling` replaces it"), "{text}");

    // After a version that fails, the version from before the interruption runs again.
    let (code, text) = roll(&fleet, &version("third", "what"));
    assert_eq!(code, Some(2), "{text}");
    assert!(
        text.contains(&format!("{name}: the one before runs again")),
        "{text}"
    );
    assert!(has_node(&fleet, "first"));
    fleet.await_samples(20);

    interrupt(&fleet, &version("second", ENDLESS));
    let (code, text) = roll(&fleet, &version("second", ENDLESS));
    assert_eq!(code, Some(0), "{text}");
    assert!(has_node(&fleet, "second") && !has_node(&fleet, "first"));
    fleet.await_samples(20);

    interrupt(&fleet, &version("third", ENDLESS));
    stop(&fleet);
    fleet.check_nothing_left();
}

#[test]
fn a_command_that_was_killed_between_two_instances_leaves_both_running() {
    let mut fleet = three_machines();
    let dataflow = |node: &str| {
        let mut dataflow = version(node, ENDLESS);
        dataflow["nodes"].as_array_mut().unwrap().pop();
        dataflow
    };
    let file = fleet.file(&dataflow("first"));
    let both = "robot=robot,r2";
    fleet.output(0, &start_on(&fleet, &file, both));
    let file = fleet.file(&dataflow("second"));
    let rolling = |fleet: &Fleet, healthy_for: &str| {
        let start = start_on(fleet, &file, both);
        let rolling = ["--rolling", "--healthy-for", healthy_for];
        fleet.command(0, &[&start[..], &rolling].concat())
    };
    let mut command = Daemon::start(rolling(&fleet, "1h"));
    command.line("robot: second running");
    command.kill();
    let has_node = |fleet: &Fleet, instance: &str, node: &str| {
        let name = format!("{}@{instance}", fleet.dataflow);
        let status = fleet.json(0, &["status", "--json", "-d", &name]);
        !node_of(&status, node).is_null()
    };
    assert!(has_node(&fleet, "robot", "second") && has_node(&fleet, "r2", "first"));
    for instance in ["robot", "r2"] {
        await_more(&mut fleet, instance);
    }
    let output = fleet.run(&mut rolling(&fleet, "200ms"));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    for instance in ["robot", "r2"] {
        assert!(has_node(&fleet, instance, "second"));
        await_more(&mut fleet, instance);
    }
    assert_eq!(instances(&fleet).len(), 4, "nothing of the first is left");
    stop(&fleet);
    fleet.check_nothing_left();
}

#[test]
fn a_machine_whose_daemon_is_killed_in_a_roll_has_the_version_of_before_when_it_is_back() {
    let mut fleet = Fleet::with_own_name(None);
    let name = fleet.dataflow.clone();
    let (code, text) = roll(&fleet, &version("first", ENDLESS));
    assert_eq!(code, Some(0), "{text}");
    let options = ["--step-timeout", "4s"];
    let command = Daemon::start(rolling(&fleet, &version("second", ENDLESS), &options));
    command.line("robot: stopping");
    fleet.daemons[1].as_mut().unwrap().kill();
    command.line(&format!(
        "error: {name} was not replaced: robot (cannot be reached) did not stop within 4.0 s"
    ));
    command.line(&format!(
        "{name}: the one before is to run again, and does not yet: robot (cannot be reached) did not stop within 4.0 s"
    ));
    drop(command);
    fleet.daemons[1] = Some(Daemon::start(fleet.command(1, &["join"])));
    fleet.daemon(1).line("robot is ready");
    fleet.await_that("the version of before runs again", |fleet| {
        let list = fleet.json(0, &["list", "--json"]);
        let parts = list["dataflows"].as_array().unwrap().iter();
        parts.filter(|part| part["dataflow"] == *name).count() == 2
    });
    fleet.await_samples(20);
    assert!(has_node(&fleet, "first") && !has_node(&fleet, "second"));
    stop(&fleet);
    fleet.check_nothing_left();
}
