//! Splits a dataflow into one part for each machine.
//!
//! A part holds the nodes of its machine, and *stand-ins* for nodes of other machines. The stand-in
//! of a remote producer has its id and its outputs, so that topics have the same name on every
//! machine. The stand-in of remote consumers takes the outputs of one local node for all consumers on
//! one machine, so that a sample crosses the link once. It is named `machine:node`.
//!
//! Outputs of one node share a stand-in. An output that waits for the link holds up no other: its
//! samples stay in the queue of its input.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use nervure_protocol::graph::{NodeSettings, Program};
use nervure_protocol::nanos;
use nervure_protocol::wiring::{self, Policy};
use serde::{Deserialize, Serialize};

use crate::graph::{
    Client, Dataflow, Edge, Input, InputIndex, InputQueue, Labels, Node, Output, OutputIndex, Qos,
    QueuePolicy, Service, ServiceClient, Source, TrafficClass,
};
use crate::resolve_services;

/// Age at which a request that has not reached its service's machine is dropped: it is not carried out
/// when the link is back much later. The client has had an error then.
const REQUEST_LIFESPAN: Duration = Duration::from_secs(3);

/// The part of a dataflow on one machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// The nodes of the machine, and the stand-ins, as a dataflow of one machine.
    pub dataflow: Dataflow,
    /// The stand-ins of remote consumers.
    pub outgoing: Vec<Outgoing>,
    /// The stand-ins of remote producers.
    pub incoming: Vec<Incoming>,
    /// Nodes that run only while the machine holds its lease.
    pub stop_on_partition: Vec<String>,
}

/// A stand-in that takes the outputs of a local node for the consumers on one machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outgoing {
    /// Its id.
    pub node: String,
    /// Role of the machine with the consumers.
    pub machine: String,
    /// Its inputs.
    pub streams: Vec<Stream>,
}

/// An output that crosses a link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stream {
    /// Name of the output, and of the stand-in's input.
    pub output: String,
    /// `node/output`, on both machines.
    pub topic: String,
    /// Delivery of its samples.
    pub delivery: Delivery,
    /// Age at which a sample that was not delivered is dropped.
    #[serde(rename = "lifespan_nanos", with = "nanos::optional", default)]
    pub lifespan: Option<Duration>,
    /// Priority on the link.
    pub traffic_class: TrafficClass,
    /// Samples, requests or answers.
    #[serde(default)]
    pub carries: Carries,
}

/// Contents of an output that crosses a link.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Carries {
    /// Samples of a topic.
    #[default]
    Samples,
    /// Requests of a client to a service.
    Requests {
        /// The topic of the answers.
        answers: String,
    },
    /// Answers of a service to a client.
    Answers,
}

/// Delivery of samples over a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Delivery {
    /// Every sample, in order; the producer waits for the link.
    KeepAll {
        /// The most samples that wait.
        depth: u32,
    },
    /// The last samples; losses are repaired.
    KeepLast {
        /// The most samples that wait.
        depth: u32,
    },
    /// The last samples, without repair.
    BestEffort {
        /// The most samples that wait.
        depth: u32,
    },
    /// The newest sample.
    Latest,
}

/// A stand-in that publishes the outputs of a remote node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incoming {
    /// Id of the node and of its stand-in.
    pub node: String,
    /// Role of the machine that the node runs on.
    pub machine: String,
    /// The outputs that local nodes consume.
    pub outputs: Vec<String>,
    /// Outputs that carry requests to services of local nodes, each with the topic of the answers.
    #[serde(default)]
    pub requests: BTreeMap<String, String>,
    /// Outputs with confirmed samples: see [`Stream::is_lossless`].
    #[serde(default)]
    pub lossless: BTreeSet<String>,
}

impl Stream {
    /// Whether each sample is kept until its consumers' machine has confirmed that it was published
    /// there, and sent again after the death of a daemon. Calls fail then, and a sample with a lifespan
    /// may be dropped anyway.
    #[must_use]
    pub fn is_lossless(&self) -> bool {
        let keeps_all = matches!(self.delivery, Delivery::KeepAll { .. });
        keeps_all && self.carries == Carries::Samples && self.lifespan.is_none()
    }
}

impl Outgoing {
    /// The id of the local node whose outputs it consumes.
    #[must_use]
    pub fn producer(&self) -> &str {
        self.node
            .strip_prefix(&self.machine)
            .and_then(|rest| rest.strip_prefix(':'))
            .unwrap_or(&self.node)
    }
}

impl Dataflow {
    /// The part of the machine with this role. `name_of` gives the name of a role's machine, for users.
    #[must_use]
    pub fn part(&self, role: &str, name_of: impl Fn(&str) -> String) -> Part {
        let mut split = Split::new(self, role);
        for edge in &self.edges {
            split.add(edge);
        }
        split.finish(name_of)
    }
}

/// Local consumers of a remote node, by its outputs.
type Consumed<'d> = BTreeMap<usize, Vec<&'d Input>>;

/// Consumers on one machine of one output.
type Consumers<'d> = BTreeMap<OutputIndex, Vec<&'d Input>>;

struct Split<'d> {
    whole: &'d Dataflow,
    role: &'d str,
    /// Outputs of remote nodes with local consumers.
    incoming: BTreeMap<usize, Consumed<'d>>,
    /// By producing node and consuming machine.
    outgoing: BTreeMap<(usize, &'d str), Consumers<'d>>,
}

impl<'d> Split<'d> {
    fn new(whole: &'d Dataflow, role: &'d str) -> Self {
        Self {
            whole,
            role,
            incoming: BTreeMap::new(),
            outgoing: BTreeMap::new(),
        }
    }

    fn role_of(&self, node: usize) -> &'d str {
        self.whole.nodes[node]
            .machine
            .as_deref()
            .unwrap_or_default()
    }

    fn add(&mut self, edge: &'d Edge) {
        let (from, to) = (self.role_of(edge.from.node), self.role_of(edge.to.node));
        if from == to {
            return;
        }
        if to == self.role {
            let outputs = self.incoming.entry(edge.from.node).or_default();
            let inputs = outputs.entry(edge.from.output).or_default();
            inputs.push(self.whole.input(edge));
        } else if from == self.role {
            let consumers = self.outgoing.entry((edge.from.node, to)).or_default();
            let inputs = consumers.entry(edge.from).or_default();
            inputs.push(self.whole.input(edge));
        }
    }

    fn finish(self, name_of: impl Fn(&str) -> String) -> Part {
        let whole = self.whole;
        let present =
            |node: &usize| self.role_of(*node) == self.role || self.incoming.contains_key(node);
        let kept: Vec<usize> = (0..whole.nodes.len()).filter(present).collect();
        let index: BTreeMap<usize, usize> = kept
            .iter()
            .enumerate()
            .map(|(new, old)| (*old, new))
            .collect();
        let mut incoming = Vec::new();
        let mut nodes = Vec::new();
        for &old in &kept {
            let node = &whole.nodes[old];
            match self.incoming.get(&old) {
                None => nodes.push(local(node, |node, output| match self.incoming.get(&node) {
                    None => (index[&node], output),
                    Some(outputs) => (index[&node], place(outputs, output)),
                })),
                Some(outputs) => {
                    let answers = |output: &usize| {
                        let name = node.outputs[*output].name.clone();
                        match carries(whole, node, *output) {
                            Carries::Requests { answers } => Some((name, answers)),
                            _ => None,
                        }
                    };
                    let requests = outputs.keys().filter_map(answers).collect();
                    let streams = outputs.iter().map(|(output, inputs)| {
                        let carries = carries(whole, node, *output);
                        stream(node, &node.outputs[*output], carries, inputs)
                    });
                    let lossless = streams.filter(Stream::is_lossless);
                    let lossless = lossless.map(|stream| stream.output).collect();
                    let outputs: Vec<Output> = outputs
                        .keys()
                        .map(|output| node.outputs[*output].clone())
                        .collect();
                    let machine = self.role_of(old).to_owned();
                    incoming.push(Incoming {
                        node: node.id.clone(),
                        outputs: outputs.iter().map(|output| output.name.clone()).collect(),
                        requests,
                        lossless,
                        machine: machine.clone(),
                    });
                    let mut stand_in = stand_in(node, node.id.clone(), name_of(&machine), outputs);
                    // Clients refer to services by their place.
                    let services = node.services.iter();
                    let services = services
                        .map(|known| resolve_services::service(known.name.clone(), known.action));
                    stand_in.services = services.collect();
                    nodes.push(stand_in);
                }
            }
        }
        let mut outgoing = Vec::new();
        for ((old, machine), consumers) in &self.outgoing {
            let producer = &whole.nodes[*old];
            let id = format!("{machine}:{}", producer.id);
            let mut node = stand_in(producer, id.clone(), name_of(machine), Vec::new());
            let mut streams = Vec::new();
            for (output, inputs) in consumers {
                let spec = &producer.outputs[output.output];
                let carries = carries(whole, producer, output.output);
                let stream = stream(producer, spec, carries, inputs);
                let mut input = input_of_stand_in(spec, &stream);
                input.source = Source::Output {
                    node: index[old],
                    output: output.output,
                };
                node.inputs.push(input);
                streams.push(stream);
            }
            nodes.push(node);
            outgoing.push(Outgoing {
                node: id,
                machine: (*machine).to_owned(),
                streams,
            });
        }
        let edges = edges(&nodes);
        let stop_on_partition = nodes.iter().filter(|node| node.stops_on_partition);
        Part {
            stop_on_partition: stop_on_partition.map(|node| node.id.clone()).collect(),
            dataflow: Dataflow {
                name: whole.name.clone(),
                directory: whole.directory.clone(),
                env: whole.env.clone(),
                nodes,
                edges,
                machines: Vec::new(),
                labels: Labels::new(),
                resources: BTreeMap::new(),
                static_transforms: whole.static_transforms.clone(),
            },
            outgoing,
            incoming,
        }
    }
}

fn carries(whole: &Dataflow, node: &Node, output: usize) -> Carries {
    let mut clients = node.services.iter().flat_map(|service| &service.clients);
    if clients.any(|client| client.output == output) {
        return Carries::Answers;
    }
    let client = node.clients.iter().find(|client| client.output == output);
    match client.map(|client| &node.inputs[client.input].source) {
        Some(Source::Output { node, output }) => {
            let server = &whole.nodes[*node];
            let answers = wiring::topic(&server.id, &server.outputs[*output].name);
            Carries::Requests { answers }
        }
        _ => Carries::Samples,
    }
}

/// The place of an output among those that a stand-in has.
fn place(outputs: &Consumed<'_>, output: usize) -> usize {
    outputs.range(..output).count()
}

/// A node of the machine, with the new indices of its peers.
fn local(node: &Node, new: impl Fn(usize, usize) -> (usize, usize)) -> Node {
    let mut node = Node {
        machine: None,
        ..node.clone()
    };
    for input in &mut node.inputs {
        if let Source::Output { node, output } = &mut input.source {
            (*node, *output) = new(*node, *output);
        }
    }
    for Service { clients, .. } in &mut node.services {
        for ServiceClient { node, .. } in clients {
            *node = new(*node, 0).0;
        }
    }
    for Client { server, .. } in &mut node.clients {
        *server = new(*server, 0).0;
    }
    node
}

fn stand_in(of: &Node, id: String, machine: String, outputs: Vec<Output>) -> Node {
    Node {
        id,
        machine: None,
        stops_on_partition: false,
        name: None,
        description: None,
        program: Program::Remote { machine },
        is_built: true,
        settings: NodeSettings::default(),
        build: None,
        git: None,
        inputs: Vec::new(),
        outputs,
        // Checked on the machine of the node.
        types: BTreeMap::new(),
        services: Vec::new(),
        clients: Vec::new(),
        shared_memory: of.shared_memory,
        line: of.line,
    }
}

/// One stream serves all consumers on a machine: it is as reliable, as deep, as long-lived and as
/// urgent as the most demanding of them.
fn stream(producer: &Node, output: &Output, carries: Carries, inputs: &[&Input]) -> Stream {
    let depth = inputs
        .iter()
        .map(|input| input.queue.depth)
        .max()
        .unwrap_or(1);
    let mut policies = inputs.iter().map(|input| input.queue.policy);
    let is_lossless = policies
        .clone()
        .any(|policy| policy.on_edge().is_lossless());
    let is_latest = policies.all(|policy| policy == QueuePolicy::Latest);
    let qos = || inputs.iter().map(|input| input.qos);
    // No request and no answer is dropped for a newer one.
    let delivery = if carries != Carries::Samples || is_lossless {
        Delivery::KeepAll { depth }
    } else if qos().all(|qos| qos.best_effort) {
        Delivery::BestEffort { depth }
    } else if is_latest {
        Delivery::Latest
    } else {
        Delivery::KeepLast { depth }
    };
    Stream {
        output: output.name.clone(),
        topic: wiring::topic(&producer.id, &output.name),
        delivery,
        lifespan: match carries {
            Carries::Requests { .. } => Some(REQUEST_LIFESPAN),
            // Without a limit if it is for one of them.
            _ => qos()
                .map(|qos: Qos| qos.lifespan)
                .reduce(|one, other| Some(one?.max(other?)))
                .flatten(),
        },
        traffic_class: qos().map(|qos| qos.traffic_class).min().unwrap_or_default(),
        carries,
    }
}

/// The input of a stand-in has the queue of the stream: samples wait there for the link.
fn input_of_stand_in(output: &Output, stream: &Stream) -> Input {
    let queue = match stream.delivery {
        Delivery::KeepAll { depth } => InputQueue::new(Policy::Block, depth),
        Delivery::KeepLast { depth } | Delivery::BestEffort { depth } => {
            InputQueue::new(Policy::DropOldest, depth)
        }
        Delivery::Latest => InputQueue::LATEST,
    };
    Input {
        name: output.name.clone(),
        source: Source::Timer { period_nanos: 0 },
        queue,
        type_name: output.type_name.clone(),
        expect_every: None,
        qos: Qos::default(),
        line: output.line,
    }
}

fn edges(nodes: &[Node]) -> Vec<Edge> {
    let mut edges = Vec::new();
    for (node, spec) in nodes.iter().enumerate() {
        for (input, spec) in spec.inputs.iter().enumerate() {
            if let Source::Output { node: from, output } = spec.source {
                edges.push(Edge {
                    from: OutputIndex { node: from, output },
                    to: InputIndex { node, input },
                });
            }
        }
    }
    edges
}
