//! Pause and resume. A paused dataflow has a stopped clock, and with it stopped timers; nodes are
//! notified, and no watchdog ends one. Processes go on, samples are still delivered, and requests
//! of clients are still carried out.

use nervure_protocol::{
    keeper_to_node::{Message, NeighbourEvent},
    report::{Level, Report},
};

use super::Network;
use crate::machine::{action::Action, turn::Turn};

impl Network {
    pub fn is_paused(&self) -> bool {
        self.paused_at.is_some()
    }

    /// Pauses the dataflow, or lets it go on. `by` is the client, for people.
    pub fn set_paused(&mut self, is_paused: bool, by: &str, turn: &mut Turn) {
        if is_paused == self.is_paused() {
            return;
        }
        turn.push(Action::SetPaused { is_paused });
        let report = match self.paused_at.take() {
            None => {
                self.paused_at = Some(turn.now);
                turn.log(Level::Info, format!("the dataflow is paused by `{by}`"));
                Report::Paused
            }
            Some(since) => {
                let paused_for = turn.now.saturating_sub(since);
                for node in 0..self.nodes().len() {
                    self.node_mut(node).health.resume(paused_for);
                }
                let text =
                    format!("the dataflow goes on after {paused_for:.1?}: resumed by `{by}`");
                turn.log(Level::Info, text);
                Report::Resumed
            }
        };
        turn.report(report, None);
        for node in self.connected() {
            if !self.graph().is_guest(node) {
                self.notify_of_pause(node, turn);
                // A node that sleeps until a timer is due has to compute that time again.
                turn.push(Action::Ring { node });
            }
        }
    }

    /// Notifies a node that has connected to a paused dataflow.
    pub fn notify_if_paused(&self, node: usize, turn: &mut Turn) {
        if self.is_paused() && !self.graph().is_guest(node) {
            self.notify_of_pause(node, turn);
        }
    }

    fn notify_of_pause(&self, node: usize, turn: &mut Turn) {
        let kind = match self.is_paused() {
            true => "PAUSE",
            false => "RESUME",
        };
        let event = NeighbourEvent {
            kind: kind.to_owned(),
            node: String::new(),
            inputs: Vec::new(),
            reason: String::new(),
            restarts: false,
        };
        turn.send(node, Message::Event(event));
    }
}
