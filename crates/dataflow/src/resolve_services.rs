//! Looks up the server of each client, and adds the edges for requests and answers.
//!
//! Each client has its own two edges to its server, so that one client cannot fill the queue of
//! another. Their names contain a `~`, which no name in a file can. Requests of tools, such as `nervure
//! service call`, come over the keeper; each service has an output for the answers to them.

use std::collections::HashMap;

use nervure_protocol::nearest;
use nervure_protocol::wiring::{Policy, answers_to_tools};

use crate::diagnostic::{Code, Finding, Findings};
use crate::graph::{
    Client, Edge, Input, InputIndex, InputQueue, Node, Output, OutputIndex, Service, ServiceClient,
    Source,
};
use crate::parsed::{ParsedDataflow, ParsedNode};
use crate::quote::{listed, quoted};

/// Maximum number of requests in flight per client. The queues of both edges have this depth and
/// cannot overflow.
const MAX_REQUESTS_IN_FLIGHT: u32 = 16;

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
                .position(|service| service.text == client.service.text);
            if found.is_none() && parsed.nodes[server].services_complete {
                let names = || services.iter().map(|service| service.text.as_str());
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
        for FoundClient {
            name,
            server,
            service,
        } in clients
        {
            let service_name = nodes[server].services[service].name.clone();
            let of_client = format!("{service_name}~{}~{name}", nodes[node].id);
            let output = add_output(&mut nodes[node], format!("{name}~request"));
            let request_input = add_input(&mut nodes[server], of_client.clone(), node, output);
            let reply_output = add_output(&mut nodes[server], of_client);
            let input = add_input(
                &mut nodes[node],
                format!("{name}~reply"),
                server,
                reply_output,
            );
            edges.push(edge((node, output), (server, request_input)));
            edges.push(edge((server, reply_output), (node, input)));
            nodes[node].clients.push(Client {
                name,
                server,
                service,
                output,
                input,
            });
            let client = ServiceClient {
                node,
                input: request_input,
                output: reply_output,
            };
            nodes[server].services[service].clients.push(client);
        }
    }
}

/// A service without clients.
pub(crate) fn service(name: String) -> Service {
    Service {
        name,
        clients: Vec::new(),
        tools: None,
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

fn add_input(node: &mut Node, name: String, producer: usize, output: usize) -> usize {
    node.inputs.push(Input {
        name,
        source: Source::Output {
            node: producer,
            output,
        },
        queue: InputQueue::new(Policy::DropNewest, MAX_REQUESTS_IN_FLIGHT),
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
