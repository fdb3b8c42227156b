//! The plan, with the nodes and edges of guests behind its own.

use std::collections::{BTreeMap, BTreeSet};

use nervure_protocol::{
    did_you_mean,
    keeper_to_cli::Refused,
    wiring::{self, Source},
};

use super::{action::Audience, replacements::CommandLine};
use crate::plan::{EdgePlan, NodePlan, Plan};

/// The nodes and edges of a dataflow.
#[derive(Debug)]
pub(super) struct Graph {
    plan: Plan,
    own_nodes: usize,
}

impl Graph {
    pub fn new(plan: Plan) -> Self {
        Self {
            own_nodes: plan.nodes.len(),
            plan,
        }
    }

    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    pub fn node(&self, node: usize) -> &NodePlan {
        &self.plan.nodes[node]
    }

    pub fn edges(&self) -> &[EdgePlan] {
        &self.plan.edges
    }

    pub fn edge(&self, spec: usize) -> &EdgePlan {
        &self.plan.edges[spec]
    }

    /// The number of nodes of the file. Guests have the indices from there on.
    pub fn own_nodes(&self) -> usize {
        self.own_nodes
    }

    /// True for a node that is not one of the file.
    pub fn is_guest(&self, node: usize) -> bool {
        node >= self.own_nodes
    }

    /// The receivers of reports about an edge of that consumer.
    pub fn audience(&self, consumer: usize) -> Audience {
        match self.is_guest(consumer) {
            true => Audience::ObserversToo,
            false => Audience::Everyone,
        }
    }

    /// True when the keeper starts no process for the node.
    pub fn is_dynamic(&self, node: usize) -> bool {
        self.plan.nodes[node].is_dynamic()
    }

    /// True when samples queued on a `block` edge wait for the next process of its consumer.
    pub fn awaits_consumer(&self, edge: &EdgePlan) -> bool {
        edge.is_lossless() && self.consumer_returns(edge)
    }

    /// True when what the consumer has not received while it was away is waited for, or lost. A dynamic
    /// node may never come back. The stand-in of another machine comes back with the daemon; calls fail
    /// meanwhile, and are not made later.
    pub fn consumer_returns(&self, edge: &EdgePlan) -> bool {
        let consumer = self.node(edge.consumer);
        match consumer.is_remote() {
            true => !self.node(edge.producer).calls_on(edge.output),
            false => !consumer.is_dynamic(),
        }
    }

    /// The node of the file with that id.
    pub fn find_node(&self, id: &str) -> Result<usize, Refused> {
        let nodes = &self.plan.nodes[..self.own_nodes];
        nodes.iter().position(|node| node.id == id).ok_or_else(|| {
            let hint = did_you_mean(id, "its nodes are", nodes.iter().map(|node| &*node.id));
            Refused::new(format!("there is no node `{id}`"), Some(&hint))
        })
    }

    /// Node and output of each topic.
    pub fn find_outputs(&self, topics: &[String]) -> Result<Vec<(usize, usize)>, Refused> {
        if topics.is_empty() {
            return Err(Refused::new("no topic was named", None));
        }
        let mut known = BTreeMap::new();
        for (at, node) in self.plan.nodes[..self.own_nodes].iter().enumerate() {
            for (output, spec) in node.outputs.iter().enumerate() {
                known.insert(wiring::topic(&node.id, &spec.name), (at, output));
            }
        }
        let mut found = Vec::new();
        for topic in topics {
            let Some(output) = known.get(topic) else {
                let hint = did_you_mean(topic, "the topics are", known.keys().map(String::as_str));
                let reason = format!("there is no topic `{topic}`");
                return Err(Refused::new(reason, Some(&hint)));
            };
            if found.contains(output) {
                let reason = format!("topic `{topic}` was named twice");
                return Err(Refused::new(reason, None));
            }
            found.push(*output);
        }
        Ok(found)
    }

    /// The edges of all guests.
    pub fn guest_edges(&self) -> impl Iterator<Item = &EdgePlan> {
        let is_guests = |edge: &&EdgePlan| self.is_guest(edge.consumer);
        self.plan.edges.iter().filter(is_guests)
    }

    /// Nodes that share an edge with a node, in order, without itself.
    pub fn neighbours(&self, node: usize) -> Vec<usize> {
        let other_end = |edge: &EdgePlan| match (edge.producer == node, edge.consumer == node) {
            (true, false) => Some(edge.consumer),
            (false, true) => Some(edge.producer),
            _ => None,
        };
        let mut neighbours: Vec<_> = self.plan.edges.iter().filter_map(other_end).collect();
        neighbours.sort_unstable();
        neighbours.dedup();
        neighbours
    }

    /// The nodes that feed inputs of a node, without itself. Transforms are no work for a node.
    pub fn producers(&self, node: usize) -> impl Iterator<Item = usize> {
        let feeds = move |edge: &&EdgePlan| {
            edge.consumer == node && edge.producer != node && !self.brings_transforms(edge)
        };
        self.plan
            .edges
            .iter()
            .filter(feeds)
            .map(|edge| edge.producer)
    }

    /// True when no other node sends samples or requests to a node.
    pub fn is_source(&self, node: usize) -> bool {
        let feeds = |edge: &EdgePlan| edge.consumer == node && edge.producer != node;
        let mut edges = self.plan.edges.iter();
        !edges.any(|edge| feeds(edge) && !self.is_beside(edge))
    }

    /// Per node of the file, the first node that it shares a loop with, itself otherwise.
    pub fn loops(&self) -> Vec<usize> {
        let reached: Vec<_> = (0..self.own_nodes).map(|node| self.reached(node)).collect();
        let shares = |node: usize, other: usize| {
            reached[node].contains(&other) && reached[other].contains(&node)
        };
        let first = |node| (0..node).find(|&other| shares(node, other));
        (0..self.own_nodes)
            .map(|node| first(node).unwrap_or(node))
            .collect()
    }

    /// Nodes that samples or requests of a node reach, directly or over others.
    fn reached(&self, node: usize) -> BTreeSet<usize> {
        let mut found = BTreeSet::new();
        let mut open = vec![node];
        while let Some(node) = open.pop() {
            let sends = |edge: &&EdgePlan| edge.producer == node && !self.is_beside(edge);
            let edges = self.plan.edges.iter().filter(sends);
            open.extend(
                edges
                    .map(|edge| edge.consumer)
                    .filter(|&it| found.insert(it)),
            );
        }
        found
    }

    /// True for an edge whose samples are no work for its consumer: it does not wait for them, and may
    /// end before its producer.
    pub fn is_beside(&self, edge: &EdgePlan) -> bool {
        self.answers(edge) || self.brings_transforms(edge)
    }

    fn brings_transforms(&self, edge: &EdgePlan) -> bool {
        let transforms = &self.plan.nodes[edge.consumer].settings.transforms;
        let spec = transforms.as_ref();
        spec.is_some_and(|spec| spec.inputs.contains(&edge.input))
    }

    /// True for an edge that carries the answers of a service, or the feedback of an action.
    fn answers(&self, edge: &EdgePlan) -> bool {
        let services = &self.plan.nodes[edge.producer].services;
        let mut clients = services.iter().flat_map(|service| &service.clients);
        clients.any(|client| {
            let feedback = client.feedback.map(|output| output as usize);
            client.output as usize == edge.output || feedback == Some(edge.output)
        })
    }

    pub fn has_timer(&self, node: usize) -> bool {
        let inputs = &self.plan.nodes[node].inputs;
        inputs
            .iter()
            .any(|input| matches!(input.source, Source::Timer { .. }))
    }

    /// True when the node has a last value for an edge, for its consumer when the node fails.
    pub fn has_last_value(&self, spec: usize) -> bool {
        let edge = &self.plan.edges[spec];
        let last_values = &self.plan.nodes[edge.producer].settings.on_failure;
        last_values.iter().any(|last| last.output == edge.output)
    }

    /// Adds a guest, or puts it in the place of one that is gone.
    pub fn put_guest(&mut self, node: usize, plan: NodePlan) {
        debug_assert!(self.is_guest(node));
        match self.plan.nodes.get_mut(node) {
            Some(place) => *place = plan,
            None => self.plan.nodes.push(plan),
        }
    }

    pub fn add_guest_edge(&mut self, edge: EdgePlan) {
        debug_assert!(self.is_guest(edge.consumer));
        self.plan.edges.push(edge);
    }

    /// Removes a guest's edges, and empties its place. Returns its id.
    pub fn remove_guest(&mut self, node: usize) -> String {
        self.plan.edges.retain(|edge| edge.consumer != node);
        self.plan.nodes[node].inputs.clear();
        std::mem::take(&mut self.plan.nodes[node].id)
    }

    /// Sets the command line of a node's next process.
    pub fn set_program(&mut self, node: usize, command: CommandLine) {
        let CommandLine {
            program,
            args,
            folder,
            version,
        } = command;
        let node = &mut self.plan.nodes[node];
        node.program = program;
        let settings = &mut node.settings;
        (settings.args, settings.folder, settings.version) = (args, folder, version);
    }
}

/// An index on the wire. A plan's indices fit: its JSON would not fit into memory otherwise.
pub(super) fn index(index: usize) -> u32 {
    u32::try_from(index).expect("a plan has fewer than 2^32 nodes")
}
