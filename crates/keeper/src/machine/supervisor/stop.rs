//! Stopping the dataflow, or one node by hand: Stop, grace period, SIGTERM, SIGKILL.

use std::time::Duration;

use nervure_protocol::{keeper_to_node, report::Level};

use super::Supervisor;
use crate::{
    machine::{
        action::Signal,
        node::{AfterStop, State},
        phase::Phase,
        turn::Turn,
    },
    plan::TERMINATE_GRACE,
};

impl Supervisor {
    /// Asks every node to end.
    pub fn stop(&mut self, reason: &str, turn: &mut Turn) {
        if self.phase.is_stopping() {
            return;
        }
        turn.log(Level::Debug, format!("stopping: {reason}"));
        let terminate_at = turn.now + self.grace();
        self.phase = Phase::Stopping { terminate_at };
        // Guests learn of the end by the end of their inputs, so that they miss no sample that is
        // sent meanwhile.
        for node in 0..self.network.graph().own_nodes() {
            let has_joined = self.network.node(node).client().is_some();
            match self.network.node(node).state() {
                State::Connected if self.network.ends_with_its_inputs(node) => {}
                State::Spawned if has_joined => self.disconnect(node, turn),
                State::Connected => self.send_stop(node, reason, turn),
                // It cannot receive a Stop.
                State::Spawned => self.signal(node, Signal::Terminate, turn),
                State::Waiting { .. } | State::Held => self.network.give_up_restart(node, turn),
                State::Ended => {}
            }
        }
    }

    /// Kills every node.
    pub fn kill(&mut self, turn: &mut Turn) {
        self.stop("killed", turn);
        if self.phase != Phase::Finished {
            self.phase = Phase::Killed;
            self.signal_living(Signal::Kill, turn);
        }
    }

    /// Sends the next stronger signal to nodes that have not ended in time.
    pub(super) fn escalate(&mut self, turn: &mut Turn) {
        let Some(signal) = self.phase.escalate(turn.now) else {
            return;
        };
        let text = match signal {
            Signal::Terminate => stop_timeout_text(self.grace()),
            _ => format!("has not ended within {TERMINATE_GRACE:?} of SIGTERM: sending SIGKILL"),
        };
        for node in 0..self.network.graph().own_nodes() {
            let state = self.network.node_mut(node);
            if state.is_alive() && state.client().is_none() {
                state.set_overdue();
                turn.log_node(self.network.graph(), node, Level::Warn, text.clone());
            }
        }
        self.signal_living(signal, turn);
    }

    fn signal_living(&mut self, signal: Signal, turn: &mut Turn) {
        for node in 0..self.network.graph().own_nodes() {
            if self.network.node(node).client().is_some() {
                let text = "it has not left in time, and is cut off".to_owned();
                turn.log_node(self.network.graph(), node, Level::Warn, text);
                self.disconnect(node, turn);
            } else if self.network.node(node).is_alive() {
                self.signal(node, signal, turn);
            }
        }
    }

    /// Stops one node for a client. `after` follows once its process has ended.
    pub fn stop_node(&mut self, node: usize, after: AfterStop, reason: &str, turn: &mut Turn) {
        turn.log_node(self.network.graph(), node, Level::Info, reason.to_owned());
        let was_stopped = self.network.node_mut(node).set_after_stop(after).is_some();
        if was_stopped {
            return;
        }
        if self.network.node(node).is_connected() {
            let terminate_at = turn.now + self.grace();
            self.network
                .node_mut(node)
                .signals
                .terminate_at(terminate_at);
            self.send_stop(node, reason, turn);
        } else if self.network.node(node).client().is_some() {
            self.disconnect(node, turn);
        } else {
            // It cannot receive a Stop.
            self.terminate(node, turn);
        }
    }

    /// A node that was stopped by hand has not ended within the grace period.
    pub(super) fn terminate_stopped(&mut self, node: usize, turn: &mut Turn) {
        if self.network.node(node).client().is_some() {
            return self.disconnect(node, turn);
        }
        let text = stop_timeout_text(self.grace());
        turn.log_node(self.network.graph(), node, Level::Warn, text);
        self.terminate(node, turn);
    }

    /// Sends SIGTERM to one node, and SIGKILL later.
    fn terminate(&mut self, node: usize, turn: &mut Turn) {
        let signals = &mut self.network.node_mut(node).signals;
        signals.kill_at(turn.now + TERMINATE_GRACE);
        self.signal(node, Signal::Terminate, turn);
    }

    /// Stops the dataflow when every node that the keeper starts has ended, and all samples on
    /// `block` edges to other machines have arrived there: the stand-ins leave then.
    pub(super) fn check_only_dynamic_left(&mut self, turn: &mut Turn) {
        let own = 0..self.network.graph().own_nodes();
        let mut started = own
            .clone()
            .filter(|&node| !self.network.graph().is_dynamic(node))
            .peekable();
        let has_ended = |node: usize| self.network.node(node).has_ended();
        let is_over = started.peek().is_some() && started.all(has_ended);
        let is_sending = |node: usize| self.network.is_sending(node);
        if is_over && !own.clone().all(has_ended) && !own.clone().any(is_sending) {
            self.stop("all other nodes have ended", turn);
        }
    }

    fn send_stop(&self, node: usize, reason: &str, turn: &mut Turn) {
        turn.send(node, stop_message(self.grace(), reason));
    }

    pub(super) fn grace(&self) -> Duration {
        self.network.graph().plan().grace
    }
}

fn stop_timeout_text(grace: Duration) -> String {
    format!("has not ended within {grace:?} of Stop: sending SIGTERM")
}

/// Asks a node to end.
pub(super) fn stop_message(grace: Duration, reason: &str) -> keeper_to_node::Message {
    keeper_to_node::Message::Stop {
        reason: reason.to_owned(),
        grace_millis: u64::try_from(grace.as_millis()).unwrap_or(u64::MAX),
    }
}
