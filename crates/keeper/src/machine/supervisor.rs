//! Starts, stops, kills and restarts processes, and with them the dataflow.

pub(super) mod drain;
mod end;
mod foreign;
mod health;
mod start;
mod stop;

use std::time::Duration;

use nervure_protocol::{
    node_to_keeper::{Clock, Message},
    report::{Level, Report},
};

use super::{
    action::{Action, Signal},
    network::Network,
    node::{AfterStop, Node, State},
    phase::Phase,
    restart,
    turn::Turn,
    wiring::EdgeFault,
};
use crate::plan::Plan;

/// The dataflow and its nodes, from the start to the end.
#[derive(Debug)]
pub(super) struct Supervisor {
    network: Network,
    phase: Phase,
    /// See [`super::graph::Graph::loops`], once the dataflow drains.
    loops: Vec<usize>,
}

impl Supervisor {
    /// A dataflow that has not been launched.
    pub fn new(plan: Plan) -> Self {
        Self {
            network: Network::new(plan),
            phase: Phase::Loaded,
            loops: Vec::new(),
        }
    }

    pub fn network(&self) -> &Network {
        &self.network
    }

    pub fn network_mut(&mut self) -> &mut Network {
        &mut self.network
    }

    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// When something is due.
    pub fn deadline(&self) -> Option<Duration> {
        if self.phase == Phase::Loaded {
            return None;
        }
        let is_paused = self.network.is_paused();
        let nodes = self.network.nodes().iter();
        let nodes = nodes.filter_map(|node| node.deadline(is_paused));
        nodes.chain(self.phase.deadline()).min()
    }

    /// A node that has said Hello sent a message.
    pub fn message(&mut self, node: usize, message: Message, turn: &mut Turn) {
        match message {
            Message::Hello(_) => self.kill_for_misbehaviour(node, "it said Hello twice", turn),
            Message::Ready => {
                self.network.node_mut(node).set_ready();
                self.network.check_if_up(node, turn.now);
            }
            Message::Goodbye { cut_short } => self.goodbye(node, cut_short, turn),
            Message::CloseOutput { output } => {
                if !self.network.rewiring(turn).close_output(node, output) {
                    let what = format!("it closed output {output}, which it does not have");
                    self.kill_for_misbehaviour(node, &what, turn);
                }
            }
            Message::Misbehaviour { edge, what } => {
                self.network.rewiring(turn).edge_cut(node, edge, &what);
            }
            Message::EdgeStatus(status) => {
                match self.network.rewiring(turn).edge_status(node, status) {
                    Ok(()) => {}
                    Err(EdgeFault::NotItsEdge) => {
                        let what = "it reported on an edge that is not its own";
                        self.kill_for_misbehaviour(node, what, turn);
                    }
                    Err(EdgeFault::CannotAttach { node, why }) => self.kill_node(node, &why, turn),
                }
            }
            Message::WakePageOverwritten { what } => {
                self.network
                    .rewiring(turn)
                    .wake_page_overwritten(node, &what);
            }
            Message::RemoteProcess(change) => self.remote_process(node, &change, turn),
            Message::Clock(clock) => self.set_clock(node, clock, turn),
            // The requests of clients take the first.
            Message::Published(_) | Message::Unknown => {}
        }
    }

    /// Does the work that is due after an event.
    pub fn settle(&mut self, turn: &mut Turn) {
        // Before the launch nothing is due.
        if self.phase == Phase::Loaded {
            return;
        }
        self.meet_deadlines(turn);
        self.check_ready(turn);
        self.check_only_dynamic_left(turn);
        self.check_finished(turn);
    }

    /// Kills a node that broke the control protocol: none of its messages can be relied on.
    pub fn kill_for_misbehaviour(&mut self, node: usize, what: &str, turn: &mut Turn) {
        self.kill_node(
            node,
            &format!("it broke the control protocol: {what}"),
            turn,
        );
    }

    /// Kills a node's process. One that the keeper did not start is disconnected instead.
    pub fn kill_node(&mut self, node: usize, why: &str, turn: &mut Turn) {
        if self.network.is_foreign(node) {
            let text = format!("cut off, because {why}");
            turn.log_node(self.network.graph(), node, Level::Warn, text);
            self.network
                .node_mut(node)
                .set_kill_reason(format!("cut off by the keeper, because {why}"));
            return self.disconnect(node, turn);
        }
        let state = self.network.node_mut(node);
        if state.is_alive() && !state.is_being_killed() {
            state.set_kill_reason(format!("killed by the keeper, because {why}"));
            self.signal(node, Signal::Kill, turn);
        }
    }

    /// Sends SIGTERM or SIGKILL to a node's process.
    fn signal(&mut self, node: usize, signal: Signal, turn: &mut Turn) {
        self.network.node_mut(node).signals.set_sent();
        turn.push(Action::Signal { node, signal });
    }

    fn set_clock(&mut self, node: usize, clock: Clock, turn: &mut Turn) {
        let plan = self.network.graph().plan().clock;
        if plan.is_none_or(|plan| plan.node != node) {
            let what = "it set the clock, and does not drive it";
            return self.kill_for_misbehaviour(node, what, turn);
        }
        turn.push(Action::SetClock { clock });
        // A node that sleeps until a timer is due has to compute that time again.
        for node in self.network.connected() {
            turn.push(Action::Ring { node });
        }
    }

    fn goodbye(&mut self, node: usize, cut_short: bool, turn: &mut Turn) {
        self.network.node_mut(node).set_left(cut_short);
        if self.network.is_foreign(node) {
            return self.disconnect(node, turn);
        }
        let policy = self.network.graph().node(node).settings.restart.policy;
        let after_stop = self.network.node(node).after_stop();
        let may_restart = match after_stop.filter(|_| !self.phase.is_stopping()) {
            Some(AfterStop::Hold | AfterStop::Start) => true,
            Some(AfterStop::End) => false,
            None => restart::may_restart(policy),
        };
        self.network.rewiring(turn).goodbye(node, may_restart);
    }

    fn meet_deadlines(&mut self, turn: &mut Turn) {
        let now = turn.now;
        for node in 0..self.network.nodes().len() {
            if self.network.node_mut(node).signals.take_due_kill(now) {
                if self.network.is_foreign(node) {
                    self.disconnect(node, turn);
                } else {
                    self.signal(node, Signal::Kill, turn);
                }
            }
            let check_at = self.network.node(node).health.deadline();
            if check_at.is_some_and(|at| at <= now) && !self.network.is_paused() {
                self.check_health(node, turn);
            }
            if self.network.node_mut(node).signals.take_due_terminate(now) {
                self.terminate_stopped(node, turn);
            }
            if matches!(self.network.node(node).state(), State::Waiting { until } if until <= now) {
                self.network.spawn(node, turn);
            }
        }
        if self.phase.take_due_warning(now) {
            self.warn_not_ready(turn);
        }
        self.escalate(turn);
    }

    fn check_finished(&mut self, turn: &mut Turn) {
        let own = self.network.own_nodes();
        if self.phase != Phase::Finished && own.iter().all(Node::has_ended) {
            self.phase = Phase::Finished;
            turn.report(Report::Finished, None);
            turn.push(Action::Finish);
        }
    }
}
