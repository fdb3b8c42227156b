//! The start of the dataflow, and of each process.

use std::time::Duration;

use nervure_protocol::{
    VERSIONS, keeper_to_node,
    node_to_keeper::Hello,
    params::Param,
    report::{Level, Report},
};

use super::Supervisor;
use crate::machine::{phase::Phase, turn::Turn};

/// How long a node whose Hello was refused may take to report that and end.
const REFUSED_GRACE: Duration = Duration::from_secs(2);

impl Supervisor {
    /// Starts every node that starts with the dataflow.
    pub fn launch(&mut self, turn: &mut Turn) {
        self.phase = Phase::starting(turn.now);
        for node in 0..self.network.nodes().len() {
            if !self.network.node(node).is_held() {
                self.network.spawn(node, turn);
            }
        }
    }

    /// A process has sent its first message.
    pub fn hello(&mut self, node: usize, hello: &Hello, params: Vec<Param>, turn: &mut Turn) {
        let version = match VERSIONS.negotiate(hello.versions) {
            Ok(version) if !self.phase.is_stopping() => version,
            Ok(_) => return self.refuse(node, "the dataflow is stopping".to_owned(), turn),
            Err(error) => {
                let (language, library) = (&hello.language, &hello.library);
                let reason = format!("{error} (its library is {language} {library})");
                return self.refuse(node, reason, turn);
            }
        };
        self.network.connect(node, version, params, turn);
        // Before Start, so that no timer ticks.
        self.network.notify_if_paused(node, turn);
        if self.phase.is_running() {
            turn.send(node, keeper_to_node::Message::Start);
        }
        self.network.check_if_up(node, turn.now);
    }

    fn refuse(&mut self, node: usize, reason: String, turn: &mut Turn) {
        let text = format!("refused: {reason}");
        turn.log_node(self.network.graph(), node, Level::Error, text);
        let signals = &mut self.network.node_mut(node).signals;
        signals.kill_at(turn.now + REFUSED_GRACE);
        turn.send(node, keeper_to_node::Message::Refused { reason });
    }

    /// Starts the dataflow once every node is ready.
    pub(super) fn check_ready(&mut self, turn: &mut Turn) {
        let is_starting = matches!(self.phase, Phase::Starting { .. });
        if !is_starting || self.network.not_ready().next().is_some() {
            return;
        }
        self.phase = Phase::Running;
        self.network
            .broadcast(&keeper_to_node::Message::Start, turn);
        turn.report(Report::Ready, None);
    }

    pub(super) fn warn_not_ready(&self, turn: &mut Turn) {
        const MAX_NAMED: usize = 5;
        let not_ready: Vec<_> = self.network.not_ready().collect();
        if not_ready.is_empty() {
            return;
        }
        let mut names: Vec<_> = not_ready
            .iter()
            .take(MAX_NAMED)
            .map(|(plan, why)| format!("`{}` {why}", plan.id))
            .collect();
        if not_ready.len() > MAX_NAMED {
            names.push(format!("{} more", not_ready.len() - MAX_NAMED));
        }
        let text = format!("the dataflow has not started: node {}", names.join(", "));
        turn.log(Level::Warn, text);
    }
}
