//! Finds mistakes in a graph with valid names: nodes that wait for each other, or are not
//! connected.

use std::collections::{BTreeMap, BTreeSet};

use crate::diagnostic::{Code, Finding, Findings};
use crate::graph::Source;
use crate::parsed::{ParsedDataflow, ParsedInput, ParsedNode};
use crate::quote::listed;
use crate::resolve::Sources;

/// Reports deadlocks, stalls and nodes without connections.
pub(crate) fn check_graph(parsed: &ParsedDataflow, sources: &Sources, findings: &mut Findings<'_>) {
    let connections = connections(parsed, sources);
    self_loops(&connections, findings);
    deadlocks(parsed.nodes.len(), &connections, findings);
    stalls(&connections, findings);
    isolated_nodes(parsed, findings);
}

/// An input that reads from an output.
struct Connection<'p> {
    producer_index: usize,
    consumer_index: usize,
    producer: &'p ParsedNode,
    consumer: &'p ParsedNode,
    input: &'p ParsedInput,
}

impl Connection<'_> {
    fn blocks(&self) -> bool {
        self.input.queue.policy.on_edge().is_lossless()
    }

    fn is_self_loop(&self) -> bool {
        self.producer_index == self.consumer_index
    }

    /// `consumer/input`
    fn input_name(&self) -> String {
        format!("{}/{}", id(self.consumer), self.input.name.text)
    }
}

fn connections<'p>(parsed: &'p ParsedDataflow, sources: &Sources) -> Vec<Connection<'p>> {
    let mut connections = Vec::new();
    for (consumer_index, (consumer, sources)) in parsed.nodes.iter().zip(sources).enumerate() {
        for (input, source) in consumer.inputs.iter().zip(sources) {
            if let Some(Source::Output {
                node: producer_index,
                ..
            }) = *source
            {
                let producer = &parsed.nodes[producer_index];
                connections.push(Connection {
                    producer_index,
                    consumer_index,
                    producer,
                    consumer,
                    input,
                });
            }
        }
    }
    connections
}

fn id(node: &ParsedNode) -> &str {
    node.id.as_ref().map_or("?", |id| id.text.as_str())
}

fn self_loops(connections: &[Connection<'_>], findings: &mut Findings<'_>) {
    for connection in connections
        .iter()
        .filter(|connection| connection.blocks() && connection.is_self_loop())
    {
        let id = id(connection.consumer);
        let message = format!(
            "`{id}` would wait for itself: its input `{}` reads its own output and blocks",
            connection.input.name.text
        );
        let finding = Finding::error(Code::SelfLoop, connection.input.policy_span, message)
            .hint("use another `queue_policy`: when the queue is full, only the node itself could empty it");
        findings.push(finding);
    }
}

/// A loop of connections that all block stops forever once all its queues are full.
fn deadlocks(node_count: usize, connections: &[Connection<'_>], findings: &mut Findings<'_>) {
    let mut blocking: Vec<&Connection<'_>> = connections
        .iter()
        .filter(|connection| connection.blocks() && !connection.is_self_loop())
        .collect();
    while !findings.is_full()
        && let Some(cycle) = find_cycle(node_count, &blocking)
    {
        let message = format!(
            "these nodes can wait for each other forever: {}",
            drawn(&cycle)
        );
        let [first, others @ ..] = cycle.as_slice() else {
            return;
        };
        let mut finding = Finding::warning(Code::Deadlock, first.input.policy_span, message)
            .hint("when all queues of the loop are full, no node can send: give one of its inputs a policy that drops");
        for other in others.iter().take(8) {
            finding = finding.related(
                other.input.policy_span,
                format!("`{}` waits here", id(other.producer)),
            );
        }
        findings.push(finding);
        let reported: BTreeSet<usize> = cycle
            .iter()
            .map(|connection| connection.producer_index)
            .collect();
        let touches = |connection: &&Connection<'_>| {
            reported.contains(&connection.producer_index)
                || reported.contains(&connection.consumer_index)
        };
        blocking.retain(|connection| !touches(connection));
    }
}

/// `a -> b -> a`
fn drawn(cycle: &[&Connection<'_>]) -> String {
    const MOST_NAMES: usize = 16;
    let mut names: Vec<&str> = cycle
        .iter()
        .map(|connection| id(connection.producer))
        .collect();
    let first = names[0];
    if names.len() > MOST_NAMES {
        names.truncate(MOST_NAMES);
        names.push("..");
    }
    names.push(first);
    names.join(" -> ")
}

/// A loop of `edges`, in the direction of the data, starting with the node that comes first in the
/// file.
fn find_cycle<'c, 'p>(
    node_count: usize,
    edges: &[&'c Connection<'p>],
) -> Option<Vec<&'c Connection<'p>>> {
    // Remove nodes without incoming edges until none is left: loops remain, with the nodes behind
    // them.
    let mut incoming = vec![Vec::new(); node_count];
    let mut outgoing = vec![Vec::new(); node_count];
    for edge in edges {
        incoming[edge.consumer_index].push(*edge);
        outgoing[edge.producer_index].push(*edge);
    }
    let mut missing: Vec<usize> = incoming.iter().map(Vec::len).collect();
    let mut free: Vec<usize> = (0..node_count).filter(|&node| missing[node] == 0).collect();
    while let Some(node) = free.pop() {
        for edge in &outgoing[node] {
            missing[edge.consumer_index] -= 1;
            if missing[edge.consumer_index] == 0 {
                free.push(edge.consumer_index);
            }
        }
    }
    // Each remaining node has a remaining predecessor: walk back until a node repeats.
    let start = (0..node_count).find(|&node| missing[node] > 0)?;
    let mut step_of = vec![None; node_count];
    let mut path: Vec<&Connection<'_>> = Vec::new();
    let mut node = start;
    while step_of[node].is_none() {
        step_of[node] = Some(path.len());
        let edge = *incoming[node]
            .iter()
            .find(|edge| missing[edge.producer_index] > 0)?;
        path.push(edge);
        node = edge.producer_index;
    }
    let mut cycle = path.split_off(step_of[node]?);
    cycle.reverse();
    let first = cycle
        .iter()
        .enumerate()
        .min_by_key(|(_, edge)| edge.producer_index)
        .map_or(0, |(index, _)| index);
    cycle.rotate_left(first);
    Some(cycle)
}

/// A producer that waits for a blocking input sends nothing to its other consumers either.
fn stalls(connections: &[Connection<'_>], findings: &mut Findings<'_>) {
    #[derive(Default)]
    struct Consumers<'c, 'p> {
        blocking: Vec<&'c Connection<'p>>,
        others: Vec<&'c Connection<'p>>,
    }
    let mut of_producer: BTreeMap<usize, Consumers<'_, '_>> = BTreeMap::new();
    for connection in connections {
        if connection.is_self_loop() {
            continue;
        }
        let consumers = of_producer.entry(connection.producer_index).or_default();
        if connection.blocks() {
            consumers.blocking.push(connection);
        } else {
            consumers.others.push(connection);
        }
    }
    for Consumers { blocking, others } in of_producer.into_values() {
        let ([first, more @ ..], false) = (blocking.as_slice(), others.is_empty()) else {
            continue;
        };
        let blocking_names: Vec<String> = blocking
            .iter()
            .map(|connection| connection.input_name())
            .collect();
        let other_names: Vec<String> = others
            .iter()
            .map(|connection| connection.input_name())
            .collect();
        let message = format!(
            "when {} cannot keep up, `{}` waits, and {} with it",
            listed(blocking_names.iter().map(String::as_str)),
            id(first.producer),
            listed(other_names.iter().map(String::as_str)),
        );
        let mut finding = Finding::warning(Code::Stall, first.input.policy_span, message)
            .hint("if the others must not wait, use a policy that drops, or a larger `queue_size`");
        for other in more.iter().take(8) {
            finding = finding.related(other.input.policy_span, "this one too");
        }
        findings.push(finding);
    }
}

fn isolated_nodes(parsed: &ParsedDataflow, findings: &mut Findings<'_>) {
    let is_isolated = |node: &&ParsedNode| {
        node.inputs.is_empty()
            && node.outputs.is_empty()
            && node.services.is_empty()
            && node.clients.is_empty()
            && node.settings.transforms.is_none()
    };
    for node in parsed.nodes.iter().filter(is_isolated) {
        // Inputs or outputs that could not be read are already reported.
        if let (Some(id), true, true) = (&node.id, node.outputs_complete, node.inputs_complete) {
            let finding = Finding::warning(
                Code::IsolatedNode,
                id.span,
                format!("the node `{}` has neither inputs nor outputs", id.text),
            )
            .hint("nothing connects it to the dataflow; it is started and stopped with it");
            findings.push(finding);
        }
    }
}
