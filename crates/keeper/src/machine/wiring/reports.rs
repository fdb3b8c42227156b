//! Notices about edges besides their wiring: failures of neighbours, last values, and edges that do
//! not work.

use nervure_protocol::{
    keeper_to_node::{self, LastValue},
    node_to_keeper,
    report::{EdgeStatus, Level, Report},
    wiring::EdgeState,
};

use super::rewiring::Rewiring;
use crate::machine::graph::index;

/// A node that the keeper has to end for the sake of an edge.
#[derive(Debug)]
pub(crate) enum EdgeFault {
    /// A node reported the status of an edge that is not its own.
    NotItsEdge,
    /// `node` cannot have an edge that it needs.
    CannotAttach { node: usize, why: String },
}

impl Rewiring<'_> {
    /// Sends an event about `node` to every connected neighbour, with the inputs that it feeds
    /// there.
    pub fn notify_neighbours(&mut self, node: usize, kind: &str, reason: &str, restarts: bool) {
        for neighbour in self.connected_neighbours(node) {
            let is_fed =
                |edge: &&crate::plan::EdgePlan| edge.producer == node && edge.consumer == neighbour;
            let fed = self.graph.edges().iter().filter(is_fed);
            let inputs = &self.graph.node(neighbour).inputs;
            let event = keeper_to_node::NeighbourEvent {
                kind: kind.to_owned(),
                node: self.graph.node(node).id.clone(),
                inputs: fed.map(|edge| inputs[edge.input].name.clone()).collect(),
                reason: reason.to_owned(),
                restarts,
            };
            self.turn
                .send(neighbour, keeper_to_node::Message::Event(event));
        }
    }

    /// Sends the last values of a node that has failed (`on_failure` in the dataflow file) to its
    /// consumers, before its edges are closed. The keeper has no data plane, so a value goes over
    /// the control socket of each consumer, whose library delivers it behind every sample of the
    /// failed process.
    pub fn send_last_values(&mut self, node: usize, reason: &str) {
        for spec in 0..self.graph.edges().len() {
            if self.graph.edge(spec).producer == node {
                self.send_last_value(spec, self.nodes[node].incarnation(), reason);
            }
        }
    }

    /// Sends the last value of an edge to a consumer that has connected after its producer had
    /// failed.
    pub(super) fn catch_up_on_last_value(&mut self, spec: usize) {
        let producer = &self.nodes[self.graph.edge(spec).producer];
        if let Some(ended) = producer
            .last_end()
            .filter(|ended| ended.failed && !producer.is_connected())
        {
            self.send_last_value(spec, ended.incarnation, &ended.reason);
        }
    }

    fn send_last_value(&mut self, spec: usize, incarnation: u32, reason: &str) {
        let edge = self.graph.edge(spec);
        let (producer, consumer) = (edge.producer, edge.consumer);
        if producer == consumer
            || !self.nodes[consumer].is_connected()
            || self.wiring.is_closed_for_good(spec)
        {
            return;
        }
        let on_failure = &self.graph.node(producer).settings.on_failure;
        let Some(last) = on_failure.iter().find(|last| last.output == edge.output) else {
            return;
        };
        let message = LastValue {
            input: index(edge.input),
            incarnation,
            value: last.value.clone(),
            reason: reason.to_owned(),
        };
        self.turn
            .send(consumer, keeper_to_node::Message::LastValue(message));
    }

    /// A node reports the status of an edge.
    ///
    /// # Errors
    /// The node that cannot go on.
    pub fn edge_status(
        &mut self,
        node: usize,
        status: node_to_keeper::EdgeStatus,
    ) -> Result<(), EdgeFault> {
        // The edge was removed meanwhile; nothing depends on it.
        let Some(spec) = self.wiring.plan_of(status.edge) else {
            return Ok(());
        };
        let edge = self.graph.edge(spec);
        let ends = [edge.producer, edge.consumer];
        if !ends.contains(&node) {
            return Err(EdgeFault::NotItsEdge);
        }
        let plan = self.graph.plan();
        let name = format!("`{}` -> `{}`", plan.topic(edge), plan.input(edge));
        let id = &self.graph.node(node).id;
        match status.state {
            EdgeState::Waiting => {
                let text = format!("the edge {name} waits: {}", status.cause);
                self.turn.log_node(self.graph, node, Level::Warn, text);
                let cause = format!("node `{id}`: {}", status.cause);
                self.report_status(spec, EdgeState::Waiting, cause);
            }
            EdgeState::Working => {
                let text = format!("the edge {name} works again");
                self.turn.log_node(self.graph, node, Level::Info, text);
                self.report_status(spec, EdgeState::Working, String::new());
            }
            EdgeState::Failed => {
                // An observer must not cost the dataflow a node.
                let observer = ends.into_iter().find(|&end| self.graph.is_guest(end));
                let what = format!("cannot attach the edge {name}: {}", status.cause);
                let why = match observer.filter(|&observer| observer != node) {
                    Some(_) => format!("node `{id}` {what}"),
                    None => format!("it {what}"),
                };
                let node = observer.unwrap_or(node);
                return Err(EdgeFault::CannotAttach { node, why });
            }
            EdgeState::Unknown => {}
        }
        Ok(())
    }

    /// A node has cut an edge, because its peer broke the edge's rules.
    pub fn edge_cut(&mut self, node: usize, edge_id: u32, what: &str) {
        let is_end = |spec: &usize| {
            let edge = self.graph.edge(*spec);
            edge.producer == node || edge.consumer == node
        };
        let Some(spec) = self.wiring.plan_of(edge_id).filter(is_end) else {
            let text = format!("an edge that is gone was cut: {what}");
            return self.turn.log_node(self.graph, node, Level::Error, text);
        };
        let edge = self.graph.edge(spec);
        let id = |node: usize| &self.graph.node(node).id;
        let culprit = if edge.producer == node {
            format!("node `{}`", id(edge.consumer))
        } else if self.wiring.is_inherited(edge_id) {
            let (producer, consumer) = (id(edge.producer), id(edge.consumer));
            format!("node `{producer}` or an earlier process of `{consumer}`")
        } else {
            format!("node `{}`", id(edge.producer))
        };
        let text = format!(
            "{culprit} broke the rules of the edge to `{}`, which is cut: {what}",
            self.graph.plan().input(edge)
        );
        self.turn
            .log_node(self.graph, node, Level::Error, text.clone());
        self.report_status(spec, EdgeState::Failed, text);
        self.detach_cut(edge_id, node);
    }

    fn report_status(&mut self, spec: usize, state: EdgeState, cause: String) {
        let edge = self.graph.edge(spec);
        let status = EdgeStatus {
            topic: self.graph.plan().topic(edge),
            input: self.graph.plan().input(edge),
            state,
            cause,
        };
        self.wiring.note_status(spec, &status);
        let message = Report::EdgeStatus(status);
        let audience = self.graph.audience(edge.consumer);
        self.turn.report_to(audience, message, None);
    }

    /// Logs that a node's wake page was overwritten, with the processes that can write to it.
    pub fn wake_page_overwritten(&mut self, node: usize, what: &str) {
        let neighbours = self.connected_neighbours(node).into_iter();
        let peers: Vec<_> = neighbours
            .map(|peer| format!("`{}`", self.graph.node(peer).id))
            .collect();
        let by = match peers.as_slice() {
            [] => "no peer of it is connected any more, so one that has ended, or the node itself, did it"
                .to_owned(),
            [peer] => format!("only {peer} and the node itself can write to it"),
            peers => format!("these, and the node itself, can write to it: {}", peers.join(", ")),
        };
        let text = format!(
            "its wake page was overwritten ({what}): {by}; it goes on, but samples may reach it late as long as that lasts"
        );
        self.turn.log_node(self.graph, node, Level::Error, text);
    }
}
