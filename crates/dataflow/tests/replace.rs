//! Replacing nodes by one: the connections of the remaining nodes stay the same, by name.

mod support;

use std::collections::{BTreeSet, HashSet};

use nervure_dataflow::{Dataflow, Node, Source};
use nervure_protocol::wiring;
use proptest::prelude::*;
use serde_json::json;
use support::parse;

const STAND_IN: &str = "stand-in";

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn connections_of_remaining_nodes_stay_the_same(
        nodes in 2_usize..8,
        inputs in prop::collection::vec((0_usize..8, 0_usize..8), 0..12),
        clients in prop::collection::vec((0_usize..8, 0_usize..8), 0..8),
        replaced in prop::collection::btree_set(0_usize..8, 0..5),
    ) {
        let before = dataflow(nodes, &inputs, &clients);
        let replaced: BTreeSet<usize> = replaced.into_iter().filter(|index| *index < nodes).collect();
        let unanswered = clients.iter().map(|(client, server)| (client % nodes, server % nodes)).any(
            |(client, server)| client != server && replaced.contains(&server) && !replaced.contains(&client),
        );
        match before.clone().replace(&replaced, stand_in()) {
            Err(_) => prop_assert!(unanswered),
            Ok(after) => {
                prop_assert!(!unanswered);
                prop_assert_eq!(&after.nodes[0].id, STAND_IN);
                prop_assert_eq!(wiring(&after, &BTreeSet::new()), wiring(&before, &replaced));
            }
        }
    }
}

#[test]
fn an_unanswered_client_is_reported() {
    let before = dataflow(3, &[], &[(2, 0)]);
    let error = before
        .replace(&BTreeSet::from([0]), stand_in())
        .unwrap_err();
    assert_eq!(
        (&*error.client, &*error.server, &*error.service),
        ("n2", "n0", "work")
    );
}

/// Nodes `n0`, `n1` and so on, each with the output `out` and the service `work`. Inputs and
/// clients are pairs of the node that has them and the node that they refer to.
fn dataflow(count: usize, inputs: &[(usize, usize)], clients: &[(usize, usize)]) -> Dataflow {
    let node = |index: usize| {
        let of_node = |pairs: &[(usize, usize)]| -> BTreeSet<usize> {
            let own = pairs.iter().filter(|(node, _)| node % count == index);
            own.map(|(_, other)| other % count)
                .filter(|other| *other != index)
                .collect()
        };
        let inputs = of_node(inputs)
            .into_iter()
            .map(|other| (format!("in{other}"), json!(format!("n{other}/out"))));
        let clients = of_node(clients)
            .into_iter()
            .map(|other| (format!("ask{other}"), json!(format!("n{other}/work"))));
        json!({
            "id": format!("n{index}"),
            "path": "camera.py",
            "inputs": inputs.collect::<serde_json::Map<_, _>>(),
            "clients": clients.collect::<serde_json::Map<_, _>>(),
            "outputs": ["out"],
            "services": ["work"],
        })
    };
    let nodes: Vec<_> = (0..count).map(node).collect();
    let report = parse(
        "generated.yml",
        json!({"nodes": nodes}).to_string().as_bytes(),
    );
    assert!(!report.has_errors(), "{}", report.render(false));
    report.dataflow.unwrap()
}

fn stand_in() -> Node {
    let text = json!({"nodes": [{"id": STAND_IN, "path": "camera.py"}]}).to_string();
    let mut dataflow = parse("generated.yml", text.as_bytes()).dataflow.unwrap();
    dataflow.nodes.remove(0)
}

/// The connections of the nodes that are not replaced, by names.
fn wiring(dataflow: &Dataflow, replaced: &BTreeSet<usize>) -> HashSet<String> {
    let nodes = &dataflow.nodes;
    let topic = |node: usize, output: usize| {
        wiring::topic(&nodes[node].id, &nodes[node].outputs[output].name)
    };
    let id = |node: usize| {
        if replaced.contains(&node) {
            STAND_IN
        } else {
            nodes[node].id.as_str()
        }
    };
    let mut found = HashSet::new();
    for node in nodes
        .iter()
        .enumerate()
        .filter(|(index, _)| !replaced.contains(index))
        .map(|(_, node)| node)
    {
        let name = &node.id;
        let input = |input: usize| &node.inputs[input].name;
        for (number, own) in node.inputs.iter().enumerate() {
            let Source::Output { node, output } = own.source else {
                continue;
            };
            found.insert(format!(
                "input {name}/{} of {}",
                input(number),
                topic(node, output)
            ));
        }
        for service in &node.services {
            for client in &service.clients {
                let answer = &node.outputs[client.output].name;
                let client = format!(
                    "{} at {} with {answer}",
                    id(client.node),
                    input(client.input)
                );
                found.insert(format!("{name} answers {} of {client}", service.name));
            }
        }
        for client in &node.clients {
            let service = &nodes[client.server].services[client.service].name;
            let request = &node.outputs[client.output].name;
            let of = format!(
                "{} of {} with {request} at {}",
                service,
                id(client.server),
                input(client.input)
            );
            found.insert(format!("{name} asks as {} for {of}", client.name));
        }
    }
    for edge in dataflow
        .edges
        .iter()
        .filter(|edge| !replaced.contains(&edge.to.node))
    {
        let consumer = &nodes[edge.to.node];
        let from = topic(edge.from.node, edge.from.output);
        found.insert(format!(
            "edge {from} to {}/{}",
            consumer.id, consumer.inputs[edge.to.input].name
        ));
    }
    found
}
