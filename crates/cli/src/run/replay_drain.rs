//! Detects when a dataflow has processed all samples of a recording.

use nervure_protocol::report::NodeEnded;

use super::edges::Edges;

/// Calls of `is_over` without a new sample, half a second apart, after which the dataflow counts as
/// drained.
const QUIET_CALLS: u32 = 4;

/// Detects that no samples are in flight after the player has ended. Nodes end by themselves when
/// their inputs close; a node with a timer never does.
#[derive(Debug)]
pub struct ReplayDrain {
    player: String,
    has_ended: bool,
    received: u64,
    quiet_calls: u32,
}

impl ReplayDrain {
    /// For the player of that id.
    pub fn new(player: String) -> Self {
        Self {
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
        let totals = || edges.iter().map(super::edges::Edge::totals);
        let received = totals()
            .map(|totals| totals.input.received)
            .fold(0, u64::saturating_add);
        let is_quiet = received == self.received && totals().all(|totals| totals.queued() == 0);
        self.received = received;
        self.quiet_calls = if self.has_ended && is_quiet {
            self.quiet_calls + 1
        } else {
            0
        };
        self.quiet_calls >= QUIET_CALLS
    }
}
