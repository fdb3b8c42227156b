//! One instance is replaced after the other.

use super::instances::{await_more, instances, start_on, three_machines};
use super::*;

/// The instances of the tests.
const BOTH: &str = "robot=robot,r2";

/// A version of the dataflow. Its additional node shows which version runs.
fn version(node: &str, source: Value) -> Value {
    let mut dataflow = numbers("source 1000000 5 100");
    let nodes = dataflow["nodes"].as_array_mut().unwrap();
    nodes.push(json!({"id": node, "machine": "robot", "path": test_node(), "args": "idle"}));
    let merge = |into: &mut Value, from: Value| {
        let fields = into.as_object_mut().unwrap();
        fields.extend(from.as_object().unwrap().clone());
    };
    merge(&mut nodes[0], source);
    dataflow
}

/// A source that fails on a machine of this name, and runs on others.
fn failing_on(machine: &str) -> Value {
    let program = test_node();
    let script = format!(
        "case $NERVURE_STATE in */{machine}) exit 3;; esac; exec {} source 1000000 5 100",
        program.display()
    );
    json!({"path": "sh", "args": ["-c", script]})
}

/// Rolls a version out, and returns the output of the command.
fn roll(fleet: &Fleet, dataflow: &Value) -> std::process::Output {
    let file = fleet.file(dataflow);
    let rolling = ["--rolling", "--healthy-for", "200ms"];
    let arguments = [&start_on(fleet, &file, BOTH)[..], &rolling].concat();
    fleet.run(&mut fleet.command(0, &arguments))
}

/// Whether an instance has a node of this name.
fn has_node(fleet: &Fleet, instance: &str, node: &str) -> bool {
    let name = format!("{}@{instance}", fleet.dataflow);
    let status = fleet.json(0, &["status", "--json", "-d", &name]);
    !node_of(&status, node).is_null()
}

#[test]
fn instances_are_replaced_one_after_the_other_until_one_fails() {
    let mut fleet = three_machines();
    let none = || json!({});
    // Nothing runs yet: they are started.
    let output = roll(&fleet, &version("first", none()));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    let output = roll(&fleet, &version("second", none()));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{text}");
    let place = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part}: {text}"));
    let name = fleet.dataflow.clone();
    let order = [
        place(&format!("{name}@robot: 1 of 2")),
        place("robot: second running"),
        place(&format!("{name}@r2: 2 of 2")),
        place("r2: second running"),
    ];
    assert!(order.is_sorted(), "{text}");
    for instance in ["robot", "r2"] {
        assert!(has_node(&fleet, instance, "second") && !has_node(&fleet, instance, "first"));
        await_more(&mut fleet, instance);
    }
    assert_eq!(instances(&fleet).len(), 4, "nothing of the first is left");
    // The second robot cannot run the third version: it has the one of before again.
    let output = roll(&fleet, &version("third", failing_on("r2")));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    for part in [
        format!("{name}@r2 was not replaced: r2: source failed"),
        format!("{name}@r2: the one before runs again"),
        format!("replaced or started: {name}@robot"),
    ] {
        assert!(text.contains(&part), "{part}: {text}");
    }
    assert!(has_node(&fleet, "robot", "third") && has_node(&fleet, "r2", "second"));
    for instance in ["robot", "r2"] {
        await_more(&mut fleet, instance);
    }
    fleet.output(0, &["stop", "-d", &name]);
    fleet.check_nothing_left();
}

#[test]
fn a_roll_stops_at_the_first_robot_and_leaves_the_others_alone() {
    let mut fleet = three_machines();
    let file = fleet.file(&version("first", json!({})));
    fleet.output(0, &start_on(&fleet, &file, "robot=r2..r2"));
    // On the robot nothing has run, and the second one is never touched.
    let output = roll(&fleet, &version("second", failing_on("robot")));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    let name = fleet.dataflow.clone();
    for part in [
        format!("{name}@robot: does not run"),
        format!("as before: {name}@r2"),
    ] {
        assert!(text.contains(&part), "{part}: {text}");
    }
    assert_eq!(instances(&fleet), ["@r2 on laptop", "@r2 on r2"]);
    assert!(has_node(&fleet, "r2", "first"));
    await_more(&mut fleet, "r2");
    fleet.output(0, &["stop", "-d", &name]);
    fleet.check_nothing_left();
}
