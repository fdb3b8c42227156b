//! Detects when a dataflow has processed all samples of a recording.

use std::collections::HashSet;

use nervure_dataflow::{Dataflow, Source};
use nervure_inspect::edges::{Edge, Edges};
use nervure_protocol::{report::NodeEnded, wiring};

/// Calls of `is_over` without a new sample, half a second apart, after which the dataflow counts as
/// drained.
const QUIET_CALLS: u32 = 4;

/// Detects that no samples are in flight after the player has ended. Nodes end by themselves when
/// their inputs close; a node with a timer never does.
#[derive(Debug)]
pub struct ReplayDrain {
    player: String,
    /// Topics of nodes that send without the recording: no silence of theirs is awaited.
    endless: HashSet<String>,
    has_ended: bool,
    received: u64,
    quiet_calls: u32,
}

impl ReplayDrain {
    /// For the player of that id.
    pub fn new(player: String, dataflow: &Dataflow) -> Self {
        Self {
            endless: endless(dataflow, &player),
            player,
            has_ended: false,
            received: 0,
            quiet_calls: 0,
        }
    }

    /// Notes the end of a node.
    pub fn node_ended(&mut self, ended: &NodeEnded) {
        self.has_ended |= ended.id == self.player && !ended.restarts;
    }

    /// Whether the dataflow is drained. Call it every half second.
    pub fn is_over(&mut self, edges: &Edges) -> bool {
        let drained = || {
            let edges = edges.iter();
            edges.filter(|edge| !self.endless.contains(&edge.topic))
        };
        let totals = || drained().map(Edge::totals);
        let received = totals()
            .map(|totals| totals.input.received)
            .fold(0, u64::saturating_add);
        let is_empty = totals().all(|totals| totals.queued() == 0);
        let is_quiet = received == self.received && is_empty;
        self.received = received;
        self.quiet_calls = if self.has_ended && is_quiet {
            self.quiet_calls + 1
        } else {
            0
        };
        self.quiet_calls >= QUIET_CALLS
    }
}

/// The topics of nodes with a timer, of other nodes without inputs than the player, and of all that
/// receive from them.
fn endless(dataflow: &Dataflow, player: &str) -> HashSet<String> {
    let is_driven = |&node: &usize| {
        let node = &dataflow.nodes[node];
        let mut inputs = node.inputs.iter();
        let has_timer = inputs.any(|input| matches!(input.source, Source::Timer { .. }));
        node.id != player && (has_timer || node.inputs.is_empty())
    };
    let mut open: Vec<usize> = (0..dataflow.nodes.len()).filter(is_driven).collect();
    let mut seen: HashSet<usize> = open.iter().copied().collect();
    while let Some(node) = open.pop() {
        let receiving = dataflow.edges.iter().filter(|edge| edge.from.node == node);
        open.extend(
            receiving
                .map(|edge| edge.to.node)
                .filter(|&to| seen.insert(to)),
        );
    }
    let nodes = seen.into_iter().map(|node| &dataflow.nodes[node]);
    nodes
        .flat_map(|node| {
            let outputs = node.outputs.iter();
            outputs.map(|output| wiring::topic(&node.id, &output.name))
        })
        .collect()
}
