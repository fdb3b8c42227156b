//! Nodes that do not start in time, or hang.

use std::time::Duration;

use super::Supervisor;
use crate::machine::{
    action::{Action, Signal},
    health::{Health, Pulse, STACKS_GRACE},
    node::State,
    turn::Turn,
};

impl Supervisor {
    /// Meets its deadlines: kills a node that has not started in time, and checks one that has.
    pub(super) fn check_health(&mut self, node: usize, turn: &mut Turn) {
        let timeout = self
            .network
            .graph()
            .node(node)
            .settings
            .health_check_timeout;
        let state = self.network.node_mut(node);
        let will_end = self.phase.is_stopping()
            || state.after_stop().is_some()
            || state.is_being_killed()
            || !state.is_present();
        if will_end {
            state.health = Health::default();
            return;
        }
        if let Some(startup_timeout) = state.health.missed_start(turn.now) {
            let what = match state.state() {
                State::Spawned => "has not connected",
                _ => "has not called `ready()`",
            };
            let why = format!("it {what} within {startup_timeout:?} (`startup_timeout`)");
            return self.kill_hanging(node, why, turn);
        }
        if state.health.take_due_check(timeout, turn.now) {
            turn.push(Action::ReadPulse { node });
        }
    }

    /// A node's signs of life were read.
    pub fn pulse(&mut self, node: usize, pulse: Pulse, turn: &mut Turn) {
        let Some(timeout) = self
            .network
            .graph()
            .node(node)
            .settings
            .health_check_timeout
        else {
            return;
        };
        let state = self.network.node_mut(node);
        if !state.health.is_checked() || !state.is_connected() || state.is_being_killed() {
            return;
        }
        let still = state.health.see(pulse, turn.now);
        if still >= timeout {
            let why = format!(
                "it hangs: no sign of life for {still:.1?} (`health_check_timeout` is {timeout:?})"
            );
            self.kill_hanging(node, why, turn);
        }
    }

    /// Logs the states of a node's threads, and then kills it.
    fn kill_hanging(&mut self, node: usize, why: String, turn: &mut Turn) {
        let state = self.network.node_mut(node);
        state.health = Health::default();
        state.set_kill_reason(format!("killed by the keeper, because {why}"));
        let kill_at: Duration = turn.now + STACKS_GRACE;
        state.signals.kill_at(kill_at);
        turn.push(Action::Examine { node, why });
        turn.push(Action::Signal {
            node,
            signal: Signal::Stacks,
        });
    }
}
