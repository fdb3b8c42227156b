//! Stopping in order: Stop, grace, SIGTERM, SIGKILL.

use std::time::Duration;

use nervure_protocol::{keeper_to_node, keeper_to_run::Level};

use super::{Action, End, Machine, Signal, State};
use crate::plan::TERMINATE_GRACE;

/// Where a dataflow is in its life.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Phase {
    /// Not every node is ready.
    Starting,
    /// Every node was ready once.
    Running,
    /// Asked to stop; SIGTERM follows.
    Stopping { terminate_at: Duration },
    /// SIGTERM is sent; SIGKILL follows.
    Terminating { kill_at: Duration },
    /// SIGKILL is sent.
    Killed,
    /// Every node has ended.
    Finished,
}

impl Phase {
    /// True from the order to stop on: no process is started any more, and no end is a failure.
    pub fn is_stopping(self) -> bool {
        !matches!(self, Self::Starting | Self::Running)
    }

    pub fn deadline(self) -> Option<Duration> {
        match self {
            Self::Stopping { terminate_at } => Some(terminate_at),
            Self::Terminating { kill_at } => Some(kill_at),
            _ => None,
        }
    }
}

impl Machine {
    /// Asks every node to end.
    pub(super) fn stop(&mut self, reason: String, now: Duration) {
        if self.phase.is_stopping() {
            return;
        }
        self.log(None, Level::Debug, format!("stopping: {reason}"));
        self.phase = Phase::Stopping {
            terminate_at: now + self.plan.grace,
        };
        self.ready_warning_at = None;
        let grace_millis = u64::try_from(self.plan.grace.as_millis()).unwrap_or(u64::MAX);
        // Guests hear of the end by that of their inputs, so that they miss nothing of what is sent meanwhile.
        for node in 0..self.own_nodes {
            match self.nodes[node].state {
                State::Connected if self.ends_with_its_inputs(node) => {}
                State::Spawned if self.nodes[node].joined => self.dismiss(node),
                State::Connected => {
                    let message = keeper_to_node::Message::Stop {
                        reason: reason.clone(),
                        grace_millis,
                    };
                    self.send(node, message, Vec::new());
                }
                // It cannot hear a Stop.
                State::Spawned => self.actions.push(Action::Signal {
                    node,
                    signal: Signal::Terminate,
                }),
                State::Waiting { .. } => self.give_up_restart(node),
                State::Ended => {}
            }
        }
    }

    /// Kills every node.
    pub(super) fn kill(&mut self, now: Duration) {
        self.stop("killed".to_owned(), now);
        if self.phase != Phase::Finished {
            self.phase = Phase::Killed;
            self.signal_living(Signal::Kill);
        }
    }

    /// Sends the next stronger signal to those who have not ended in time.
    pub(super) fn escalate(&mut self, now: Duration) {
        match self.phase {
            Phase::Stopping { terminate_at } if terminate_at <= now => {
                self.phase = Phase::Terminating {
                    kill_at: now + TERMINATE_GRACE,
                };
                self.blame(format!(
                    "has not ended within {:?} of Stop: sending SIGTERM",
                    self.plan.grace
                ));
                self.signal_living(Signal::Terminate);
            }
            Phase::Terminating { kill_at } if kill_at <= now => {
                self.phase = Phase::Killed;
                self.blame(format!(
                    "has not ended within {TERMINATE_GRACE:?} of SIGTERM: sending SIGKILL"
                ));
                self.signal_living(Signal::Kill);
            }
            _ => {}
        }
    }

    fn blame(&mut self, text: String) {
        for node in 0..self.own_nodes {
            if self.nodes[node].is_alive() && !self.nodes[node].joined {
                self.nodes[node].overdue = true;
                self.log(Some(node), Level::Warn, text.clone());
            }
        }
    }

    /// How a process ended that had to be killed at the end of the dataflow.
    pub(super) fn overdue_reason(&self, end: End) -> String {
        let grace = self.plan.grace;
        match end {
            End::Signal(libc::SIGTERM) => {
                format!("it did not end within {grace:?} of Stop, and was ended by SIGTERM")
            }
            End::Signal(libc::SIGKILL) => {
                format!("it did not end within {grace:?} of Stop, and was killed")
            }
            end => format!("it did not end within {grace:?} of Stop, and {end} after SIGTERM"),
        }
    }

    fn signal_living(&mut self, signal: Signal) {
        for node in 0..self.own_nodes {
            if self.nodes[node].joined {
                self.log(
                    Some(node),
                    Level::Warn,
                    "it has not left in time, and is cut off".to_owned(),
                );
                self.dismiss(node);
            } else if self.nodes[node].is_alive() {
                self.actions.push(Action::Signal { node, signal });
            }
        }
    }
}
