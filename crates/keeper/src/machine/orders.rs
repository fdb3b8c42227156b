//! Stopping, starting and restarting one node by hand.
//!
//! A node that was stopped is *held*: it waits for its restart without end, so that its neighbours keep their inputs
//! open and the dataflow goes on.

use std::time::Duration;

use nervure_protocol::{
    cli_to_keeper::NodeOrder,
    did_you_mean,
    keeper_to_cli::Refused,
    keeper_to_node,
    keeper_to_run::{self, Level},
};

use super::{Action, Machine, Signal, State, clients::refused};
use crate::plan::TERMINATE_GRACE;

/// Until when a node that was stopped by hand waits.
pub(super) const HELD: Duration = Duration::MAX;

/// What was ordered, and is to be done when the node's process has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    Hold,
    Start,
}

impl Machine {
    /// Does to a node what a client asked for.
    pub(super) fn order(
        &mut self,
        id: &str,
        order: NodeOrder,
        client: &str,
        now: Duration,
    ) -> Result<(), Refused> {
        let node = self.find_node(id)?;
        if self.phase.is_stopping() {
            return Err(refused("the dataflow is stopping", None));
        }
        self.check_free(node)?;
        if self.is_dynamic(node) && order != NodeOrder::Stop {
            let hint = format!("a program joins as it: `Node(\"{id}\")` in Python");
            return Err(refused(
                format!("node `{id}` has `path: dynamic`: its keeper does not start it"),
                Some(&hint),
            ));
        }
        let is_alive = self.nodes[node].is_alive();
        match order {
            NodeOrder::Stop if self.nodes[node].has_ended() || self.nodes[node].is_held() => {
                return Err(refused(format!("node `{id}` does not run"), None));
            }
            NodeOrder::Start if is_alive => {
                let hint = "`nervure node restart` ends it first";
                return Err(refused(format!("node `{id}` runs already"), Some(hint)));
            }
            NodeOrder::Stop if is_alive => {
                self.end_by_hand(node, Then::Hold, format!("stopped by `{client}`"), now)
            }
            NodeOrder::Stop => self.hold_waiting(node),
            NodeOrder::Restart if is_alive => {
                self.end_by_hand(node, Then::Start, format!("restarted by `{client}`"), now)
            }
            NodeOrder::Start | NodeOrder::Restart => self.start_by_hand(node),
        }
        Ok(())
    }

    /// The node of that id.
    pub(super) fn find_node(&self, id: &str) -> Result<usize, Refused> {
        let nodes = &self.plan.nodes[..self.own_nodes];
        nodes.iter().position(|node| node.id == id).ok_or_else(|| {
            let hint = did_you_mean(id, "its nodes are", nodes.iter().map(|node| &*node.id));
            refused(format!("there is no node `{id}`"), Some(&hint))
        })
    }

    /// A node's process has not ended in time after it was told to.
    pub(super) fn escalate_by_hand(&mut self, node: usize, now: Duration) {
        if self.nodes[node].terminate_at.is_some_and(|at| at <= now) {
            self.nodes[node].terminate_at = None;
            self.nodes[node].kill_at = Some(now + TERMINATE_GRACE);
            let text = format!(
                "has not ended within {:?} of Stop: sending SIGTERM",
                self.plan.grace
            );
            if self.nodes[node].joined {
                self.nodes[node].kill_at = None;
                return self.dismiss(node);
            }
            self.log(Some(node), Level::Warn, text);
            self.actions.push(Action::Signal {
                node,
                signal: Signal::Terminate,
            });
        }
    }

    pub(super) fn end_by_hand(&mut self, node: usize, then: Then, reason: String, now: Duration) {
        self.log(Some(node), Level::Info, reason.clone());
        let is_first = self.nodes[node].ordered.replace(then).is_none();
        if !is_first {
            return;
        }
        if self.nodes[node].is_connected() {
            self.nodes[node].terminate_at = Some(now + self.plan.grace);
            let grace_millis = u64::try_from(self.plan.grace.as_millis()).unwrap_or(u64::MAX);
            self.send(
                node,
                keeper_to_node::Message::Stop {
                    reason,
                    grace_millis,
                },
                Vec::new(),
            );
        } else if self.nodes[node].joined {
            self.dismiss(node);
        } else {
            // It cannot hear a Stop.
            self.nodes[node].kill_at = Some(now + TERMINATE_GRACE);
            self.actions.push(Action::Signal {
                node,
                signal: Signal::Terminate,
            });
        }
    }

    /// Lets a node that waits for its restart wait for ever.
    pub(super) fn hold_waiting(&mut self, node: usize) {
        self.nodes[node].state = State::Waiting { until: HELD };
        if let Some(mut ended) = self.nodes[node].last_end.take() {
            ended.restarts = false;
            ended.failed = false;
            ended.reason.push_str("; then stopped by hand");
            self.nodes[node].last_end = Some(ended.clone());
            self.report(keeper_to_run::Message::NodeEnded(ended), None);
        }
    }

    pub(super) fn start_by_hand(&mut self, node: usize) {
        if self.nodes[node].has_ended() {
            self.expect_again(node);
        }
        self.spawn(node);
    }

    /// A node that had ended will have a process again: its consumers have been told that it will not, and hear it anew
    /// when it ends again.
    pub(super) fn expect_again(&mut self, node: usize) {
        self.nodes[node].incarnation += 1;
        self.wiring.expect_again(&self.plan, node);
    }
}
