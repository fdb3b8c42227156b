//! The time between the end of a recording and that of the dataflow that it was played to.

use nervure_protocol::keeper_to_run::NodeEnded;

use super::edges::Edges;

/// Looks, half a second apart, without any sample received, after which nothing more is expected.
const QUIET_LOOKS: u32 = 4;

/// Waits until nothing moves any more after a node has ended. Nodes end by themselves when their inputs do; one with a
/// timer never does.
#[derive(Debug)]
pub struct ReplayDrain {
    player: String,
    has_ended: bool,
    received: u64,
    quiet_looks: u32,
}

impl ReplayDrain {
    /// Of that node.
    pub fn new(player: String) -> Self {
        Self {
            player,
            has_ended: false,
            received: 0,
            quiet_looks: 0,
        }
    }

    /// A node has ended.
    pub fn node_ended(&mut self, ended: &NodeEnded) {
        self.has_ended |= ended.id == self.player && !ended.restarts;
    }

    /// Whether it is over. To be asked every half second.
    pub fn is_over(&mut self, edges: &Edges) -> bool {
        let totals = || edges.iter().map(super::edges::Edge::totals);
        let received = totals()
            .map(|totals| totals.input.received)
            .fold(0, u64::saturating_add);
        let is_quiet = received == self.received && totals().all(|totals| totals.queued() == 0);
        self.received = received;
        self.quiet_looks = if self.has_ended && is_quiet {
            self.quiet_looks + 1
        } else {
            0
        };
        self.quiet_looks >= QUIET_LOOKS
    }
}
