//! The parts of a dataflow on several machines.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use nervure_dataflow::{Carries, Dataflow, Delivery, Part, Program, Source, TrafficClass};
use nervure_protocol::wiring;
use proptest::prelude::*;
use serde_json::json;
use support::parse;

fn dataflow(text: &str) -> Dataflow {
    let report = parse("two.yml", text.as_bytes());
    assert!(!report.has_errors(), "{}", report.render(false));
    report.dataflow.unwrap()
}

fn part(dataflow: &Dataflow, role: &str) -> Part {
    dataflow.part(role, |role| format!("{role}01"))
}

/// Each input of the part that has a topic, as `node/input`, with that topic.
fn wires(dataflow: &Dataflow) -> BTreeMap<String, String> {
    let mut wires = BTreeMap::new();
    for node in &dataflow.nodes {
        for input in &node.inputs {
            if let Source::Output { node: from, output } = input.source {
                let from = &dataflow.nodes[from];
                let topic = wiring::topic(&from.id, &from.outputs[output].name);
                wires.insert(format!("{}/{}", node.id, input.name), topic);
            }
        }
    }
    wires
}

const TWO: &str = "
machines: {robot: {}, edge: {}}
nodes:
  - id: camera
    path: camera.py
    inputs: {tick: nervure/timer/hz/30}
    outputs: [debug, image]
  - id: planner
    path: planner.py
    machine: edge
    inputs:
      image: {source: camera/image, queue_size: 2, qos: {lifespan: 300ms, traffic_class: bulk}}
    outputs: [status, path]
  - id: archive
    path: planner.py
    machine: edge
    inputs: {image: {source: camera/image, queue_size: 5, queue_policy: block}}
  - id: control
    path: planner.py
    inputs: {path: {source: planner/path, queue_policy: latest}}
";

#[test]
fn each_machine_has_its_nodes_and_stand_ins_for_their_neighbours() {
    let whole = dataflow(TWO);
    let robot = part(&whole, "robot");
    let ids: Vec<&str> = robot
        .dataflow
        .nodes
        .iter()
        .map(|node| node.id.as_str())
        .collect();
    assert_eq!(ids, ["camera", "planner", "control", "edge:camera"]);
    let remote = Program::Remote {
        machine: "edge01".to_owned(),
    };
    assert_eq!(robot.dataflow.node("planner").unwrap().program, remote);
    let expected = [
        ("control/path", "planner/path"),
        ("edge:camera/image", "camera/image"),
    ];
    let expected = expected.map(|(input, topic)| (input.to_owned(), topic.to_owned()));
    assert_eq!(wires(&robot.dataflow), BTreeMap::from(expected));
    assert_eq!(robot.incoming[0].outputs, ["path"]);

    // One stream for both consumers: the demands of the stricter one hold.
    let [outgoing] = robot.outgoing.as_slice() else {
        panic!("{:?}", robot.outgoing)
    };
    let [stream] = outgoing.streams.as_slice() else {
        panic!("{outgoing:?}")
    };
    assert_eq!(stream.topic, "camera/image");
    assert_eq!(stream.delivery, Delivery::KeepAll { depth: 5 });
    assert_eq!(stream.lifespan, None);
    assert_eq!(stream.traffic_class, TrafficClass::Default);

    let edge = part(&whole, "edge");
    let ids: Vec<&str> = edge
        .dataflow
        .nodes
        .iter()
        .map(|node| node.id.as_str())
        .collect();
    assert_eq!(ids, ["camera", "planner", "archive", "robot:planner"]);
    assert_eq!(edge.outgoing[0].streams[0].delivery, Delivery::Latest);
    assert_eq!(wires(&edge.dataflow)["archive/image"], "camera/image");
}

#[test]
fn the_quality_of_service_of_a_single_consumer_is_that_of_its_stream() {
    let text = TWO.replace(
        "queue_policy: block",
        "qos: {reliability: best_effort, lifespan: 1s, traffic_class: bulk}",
    );
    let robot = part(&dataflow(&text), "robot");
    let stream = &robot.outgoing[0].streams[0];
    assert_eq!(stream.delivery, Delivery::KeepLast { depth: 5 });
    assert_eq!(stream.lifespan, Some(Duration::from_secs(1)));
    assert_eq!(stream.traffic_class, TrafficClass::Bulk);
}

proptest! {
    /// Every connection of the file is there: within a part, or over one stream for each machine. Both
    /// machines agree on the streams whose samples are confirmed.
    #[test]
    fn every_connection_is_kept(
        roles in prop::collection::vec(0usize..3, 1..12),
        inputs in prop::collection::vec((0usize..12, 0usize..12, 0usize..3, 0usize..3), 0..40),
    ) {
        let machines = ["a", "b", "c"];
        let mut nodes: Vec<_> = roles.iter().enumerate().map(|(at, role)| json!({
            "id": format!("n{at}"), "path": "node.py", "machine": machines[*role],
            "inputs": {"tick": "nervure/timer/hz/1"}, "outputs": ["x", "y", "z"],
        })).collect();
        for (at, (from, to, output, queue)) in inputs.iter().enumerate() {
            let (from, to) = (from % roles.len(), to % roles.len());
            let source = format!("n{from}/{}", ["x", "y", "z"][*output]);
            let inputs = [
                json!({"source": source}),
                json!({"source": source, "queue_policy": "block"}),
                json!({"source": source, "queue_policy": "block", "qos": {"lifespan": "1s"}}),
            ];
            nodes[to]["inputs"][format!("i{at}")] = inputs[if from == to { 0 } else { *queue }].clone();
        }
        let file = json!({"machines": {"a": {}, "b": {}, "c": {}}, "nodes": nodes}).to_string();
        let whole = dataflow(&file);
        let all = wires(&whole);
        let role_of = |name: &str| whole.node(name.split('/').next().unwrap()).unwrap().machine.clone().unwrap();
        let parts = machines.map(|role| (role, part(&whole, role)));
        let mut found = BTreeMap::new();
        let (mut sent, mut awaited) = (BTreeSet::new(), BTreeSet::new());
        let (mut kept, mut confirmed) = (BTreeSet::new(), BTreeSet::new());
        for (role, part) in &parts {
            for (input, topic) in wires(&part.dataflow) {
                if !input.contains(':') {
                    prop_assert_eq!(&role_of(&input), role);
                    found.insert(input, topic);
                }
            }
            for outgoing in &part.outgoing {
                for stream in &outgoing.streams {
                    prop_assert!(sent.insert((stream.topic.clone(), outgoing.machine.clone())), "sent twice");
                    prop_assert_eq!(&role_of(&stream.topic), role);
                    if stream.is_lossless() {
                        kept.insert((stream.topic.clone(), outgoing.machine.clone()));
                    }
                }
            }
            for incoming in &part.incoming {
                prop_assert_eq!(&role_of(&incoming.node), &incoming.machine);
                let place = |output| (wiring::topic(&incoming.node, output), role.to_string());
                awaited.extend(incoming.outputs.iter().map(|it| place(it)));
                confirmed.extend(incoming.lossless.iter().map(|it| place(it)));
            }
        }
        prop_assert_eq!(found, all);
        prop_assert_eq!(sent, awaited);
        prop_assert_eq!(kept, confirmed);
    }
}

#[test]
fn a_service_and_its_client_on_another_machine_are_connected_by_reliable_streams() {
    let whole = dataflow(
        "
machines: {robot: {}, edge: {}}
nodes:
  - {id: map, path: camera.py, services: [other, plan], outputs: [image]}
  - {id: pilot, path: planner.py, machine: edge, inputs: {image: map/image}, clients: {route: map/plan}}
",
    );
    let (robot, edge) = (part(&whole, "robot"), part(&whole, "edge"));
    let depth = 16;
    let [to_server] = edge.outgoing[0].streams.as_slice() else {
        panic!("{:?}", edge.outgoing)
    };
    assert_eq!(to_server.topic, "pilot/route~request");
    let answers = "map/plan~pilot~route".to_owned();
    assert_eq!(to_server.carries, Carries::Requests { answers });
    assert_eq!(to_server.delivery, Delivery::KeepAll { depth });
    let answers = &robot.outgoing[0].streams[1];
    assert_eq!(
        (answers.topic.as_str(), &answers.carries),
        ("map/plan~pilot~route", &Carries::Answers)
    );
    assert_eq!(answers.delivery, Delivery::KeepAll { depth });
    let requests = &robot.incoming[0].requests;
    assert_eq!(requests["route~request"], "map/plan~pilot~route");
    // The client knows the service by its name, and the server its client.
    let pilot = edge.dataflow.node("pilot").unwrap();
    let server = &edge.dataflow.nodes[pilot.clients[0].server];
    assert_eq!(
        (
            server.id.as_str(),
            server.services[pilot.clients[0].service].name.as_str()
        ),
        ("map", "plan")
    );
    let client = &robot.dataflow.node("map").unwrap().services[1].clients[0];
    assert_eq!(robot.dataflow.nodes[client.node].id, "pilot");
}

#[test]
fn transforms_cross_to_the_machine_of_a_node_that_looks_them_up() {
    let whole = dataflow(
        "
machines: {robot: {}, edge: {}}
static_transforms: [{parent: base, child: camera}]
nodes:
  - {id: odometry, path: camera.py, inputs: {tick: nervure/timer/hz/30}, outputs: {pose: {type: std/Transform@1}}}
  - {id: slam, path: camera.py, machine: edge, transforms: true, outputs: {pose: {type: std/Transform@1}, map: {}}}
",
    );
    let robot = part(&whole, "robot");
    let [outgoing] = &robot.outgoing[..] else {
        panic!("{:?}", robot.outgoing);
    };
    assert_eq!(outgoing.streams[0].topic, "odometry/pose");
    assert_eq!(
        outgoing.streams[0].delivery,
        Delivery::KeepLast { depth: 100 }
    );
    let edge = part(&whole, "edge").dataflow;
    let slam = edge.node("slam").unwrap();
    let transforms = slam.settings.transforms.as_ref().unwrap();
    assert_eq!(transforms.fixed, whole.static_transforms);
    let names = transforms
        .inputs
        .iter()
        .map(|&input| slam.inputs[input].name.as_str());
    // A node may look up the transforms that it has sent.
    let expected = ["transforms~odometry/pose", "transforms~slam/pose"];
    assert_eq!(names.collect::<Vec<_>>(), expected);
    let wires = wires(&edge);
    assert_eq!(wires["slam/transforms~odometry/pose"], "odometry/pose");
    assert_eq!(wires["slam/transforms~slam/pose"], "slam/pose");
}
