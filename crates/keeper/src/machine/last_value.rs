//! What the consumers of a node get in its place when it fails: `on_failure` in the dataflow file.
//!
//! The keeper has no data plane, so the value goes over the control socket of each consumer, whose library delivers it
//! as a sample behind everything that the dead process had sent. Whoever connects while the node is down gets it too.

use nervure_protocol::keeper_to_node::{LastValue, Message};

use super::Machine;

impl Machine {
    /// A node has failed: its consumers get its last values. Before its edges are closed.
    pub(super) fn send_last_values(&mut self, node: usize, reason: &str) {
        for spec in 0..self.plan.edges.len() {
            if self.plan.edges[spec].producer == node {
                self.send_last_value(spec, self.nodes[node].incarnation, reason);
            }
        }
    }

    /// A consumer has connected, and its producer may have failed and not come back.
    pub(super) fn catch_up_on_last_value(&mut self, spec: usize) {
        let producer = &self.nodes[self.plan.edges[spec].producer];
        if let Some(ended) = producer
            .last_end
            .as_ref()
            .filter(|ended| ended.failed && !producer.is_connected())
        {
            let (incarnation, reason) = (ended.incarnation, ended.reason.clone());
            self.send_last_value(spec, incarnation, &reason);
        }
    }

    /// True when the node has a last value for an edge.
    pub(super) fn has_last_value(&self, spec: usize) -> bool {
        let edge = &self.plan.edges[spec];
        self.plan.nodes[edge.producer]
            .on_failure
            .iter()
            .any(|last| last.output == edge.output)
    }

    fn send_last_value(&mut self, spec: usize, incarnation: u32, reason: &str) {
        let edge = &self.plan.edges[spec];
        let (producer, consumer) = (edge.producer, edge.consumer);
        if producer == consumer || !self.nodes[consumer].is_connected() || self.wiring.is_over(spec)
        {
            return;
        }
        let on_failure = &self.plan.nodes[producer].on_failure;
        let Some(last) = on_failure.iter().find(|last| last.output == edge.output) else {
            return;
        };
        let message = LastValue {
            input: super::index(edge.input),
            incarnation,
            value: last.value.clone(),
            reason: reason.to_owned(),
        };
        self.send(consumer, Message::LastValue(message), Vec::new());
    }
}
