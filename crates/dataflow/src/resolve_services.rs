//! Looks up the server of each client, and adds the edges for requests and answers.
//!
//! Each client has its own two edges to its server, so that one client cannot fill the queue of
//! another. Their names contain a `~`, which no name in a file can. Requests of tools, such as `nervure
//! service call`, come over the keeper; each service has an output for the answers to them.

use std::collections::HashMap;

use nervure_protocol::nearest;
use nervure_protocol::wiring::{NewGoal, Policy, answers_to_tools};

use crate::diagnostic::{Code, Finding, Findings};
use crate::graph::{
    Client, Edge, Input, InputIndex, InputQueue, Node, Output, OutputIndex, Service, ServiceClient,
    Source,
};
use crate::parsed::{ParsedDataflow, ParsedNode};
use crate::quote::{listed, quoted};

/// Maximum number of requests in flight per client. The queues of both edges have this depth and
/// cannot overflow; that for the goals of an action also has room for the cancellation of each.
const MAX_REQUESTS_IN_FLIGHT: u32 = 16;

/// Feedback is for the progress of now: a client that does not take it misses the oldest.
const FEEDBACK_DEPTH: u32 = 16;

/// Indices of the server and the service of each client of each node; `None` if not found, which is
/// reported.
pub(crate) type Servers = Vec<Vec<Option<(usize, usize)>>>;

/// Finds the service of every client.
pub(crate) fn resolve(parsed: &ParsedDataflow, findings: &mut Findings<'_>) -> Servers {
    let ids = parsed.nodes.iter().enumerate();
    let by_id: HashMap<&str, usize> = ids
        .filter_map(|(at, node)| Some((node.id.as_ref()?.text.as_str(), at)))
        .collect();
    let resolve_node = |node: &ParsedNode, findings: &mut Findings<'_>| {
        let clients = node.clients.iter().map(|client| {
            let Some(&server) = by_id.get(client.server.text.as_str()) else {
                let message = format!("there is no node {}", quoted(&client.server.text));
                let near = nearest(&client.server.text, by_id.keys().copied());
                findings.push(
                    Finding::error(Code::UnknownNode, client.server.span, message)
                        .nearest(near, || None),
                );
                return None;
            };
            let services = &parsed.nodes[server].services;
            let found = services
                .iter()
                .position(|service| service.name.text == client.service.text);
            if found.is_none() && parsed.nodes[server].services_complete {
                let names = || services.iter().map(|service| service.name.text.as_str());
                let message = format!(
                    "the node {} has no service {}",
                    quoted(&client.server.text),
                    quoted(&client.service.text)
                );
                let finding = Finding::error(Code::UnknownOutput, client.service.span, message);
                findings.push(finding.nearest(nearest(&client.service.text, names()), || {
                    match services.is_empty() {
                        true => Some(format!("add `services: [{}]` to it", client.service.text)),
                        false => Some(format!("its services are {}", listed(names()))),
                    }
                }));
            }
            found.map(|service| (server, service))
        });
        clients.collect()
    };
    parsed
        .nodes
        .iter()
        .map(|node| resolve_node(node, findings))
        .collect()
}

/// A client whose service was found.
pub(crate) struct FoundClient {
    /// Its name.
    pub name: String,
    /// Index of the node with the service.
    pub server: usize,
    /// Index of the service.
    pub service: usize,
}

/// Adds the edges of all clients to a graph without them, and the outputs for answers to tools.
pub(crate) fn connect(nodes: &mut [Node], edges: &mut Vec<Edge>, clients: Vec<Vec<FoundClient>>) {
    connect_clients(nodes, edges, clients);
    for node in nodes {
        for service in 0..node.services.len() {
            let name = answers_to_tools(&node.services[service].name);
            node.services[service].tools = Some(add_output(node, name));
        }
    }
}

fn connect_clients(nodes: &mut [Node], edges: &mut Vec<Edge>, clients: Vec<Vec<FoundClient>>) {
    for (node, clients) in clients.into_iter().enumerate() {
        for found in clients {
            connect_client(nodes, edges, node, found);
        }
    }
}

fn connect_client(nodes: &mut [Node], edges: &mut Vec<Edge>, node: usize, found: FoundClient) {
    let FoundClient {
        name,
        server,
        service,
    } = found;
    let Service {
        name: service_name,
        action,
        ..
    } = &nodes[server].services[service];
    let is_action = action.is_some();
    let of_client = format!("{service_name}~{}~{name}", nodes[node].id);
    let depth = MAX_REQUESTS_IN_FLIGHT * if is_action { 2 } else { 1 };
    let requests = InputQueue::new(Policy::DropNewest, depth);
    let answers = InputQueue::new(Policy::DropNewest, MAX_REQUESTS_IN_FLIGHT);
    let mut connect = |from: usize, output: String, to: usize, input: String, queue| {
        let output = add_output(&mut nodes[from], output);
        let input = add_input(&mut nodes[to], input, (from, output), queue);
        edges.push(edge((from, output), (to, input)));
        (output, input)
    };
    let (output, request_input) = connect(
        node,
        format!("{name}~request"),
        server,
        of_client.clone(),
        requests,
    );
    let (reply_output, input) = connect(
        server,
        of_client.clone(),
        node,
        format!("{name}~reply"),
        answers,
    );
    let feedback = is_action.then(|| {
        let queue = InputQueue::new(Policy::DropOldest, FEEDBACK_DEPTH);
        let output = format!("{of_client}~feedback");
        connect(server, output, node, format!("{name}~feedback"), queue)
    });
    nodes[node].clients.push(Client {
        name,
        server,
        service,
        output,
        input,
        feedback: feedback.map(|(_, input)| input),
    });
    let client = ServiceClient {
        node,
        input: request_input,
        output: reply_output,
        feedback: feedback.map(|(output, _)| output),
    };
    nodes[server].services[service].clients.push(client);
}

/// A service, or an action, without clients.
pub(crate) fn service(name: String, action: Option<NewGoal>) -> Service {
    Service {
        name,
        clients: Vec::new(),
        tools: None,
        action,
    }
}

fn add_output(node: &mut Node, name: String) -> usize {
    node.outputs.push(Output {
        name,
        history: 0,
        type_name: None,
        line: 0,
    });
    node.outputs.len() - 1
}

fn add_input(
    node: &mut Node,
    name: String,
    (producer, output): (usize, usize),
    queue: InputQueue,
) -> usize {
    node.inputs.push(Input {
        name,
        source: Source::Output {
            node: producer,
            output,
        },
        queue,
        type_name: None,
        expect_every: None,
        qos: Default::default(),
        line: 0,
    });
    node.inputs.len() - 1
}

fn edge((node, output): (usize, usize), (consumer, input): (usize, usize)) -> Edge {
    Edge {
        from: OutputIndex { node, output },
        to: InputIndex {
            node: consumer,
            input,
        },
    }
}
