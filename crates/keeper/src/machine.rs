//! The decisions of a keeper, as a state machine: [`Machine::handle`] takes an event and the time
//! and returns actions.
//!
//! There is no clock, process or socket in here; `crate::shell` has those. Time is a [`Duration`]
//! since the keeper started. Descriptors are named, not held: see [`Descriptor`].
//!
//! Each part owns its state: the network the nodes and their edges (`graph`, `node`, `wiring`),
//! [`Supervisor`] the starts, stops and kills of processes (`phase`), [`Requests`] the requests of
//! clients (`clients`, `claims`, `params`, `replacements`). A [`Turn`] collects the consequences of
//! one event.

mod action;
mod claims;
mod clients;
mod exit;
mod graph;
mod health;
mod network;
mod node;
mod params;
mod phase;
mod publications;
mod replacements;
mod requests;
mod restart;
mod supervisor;
mod turn;
mod wiring;

#[cfg(test)]
mod tests;

use std::time::Duration;

use nervure_protocol::node_to_keeper;

use crate::plan::Plan;
pub use action::{Action, Audience, Descriptor, Event, Signal};
pub use clients::STARTER;
pub use exit::End;
use exit::ExitContext;
pub use health::Pulse;
use node::State;
#[cfg(test)]
pub use requests::MAX_GUESTS;
use requests::Requests;
use supervisor::{Supervisor, drain};
use turn::Turn;
pub use wiring::GoneQueue;

/// The state of a dataflow.
#[derive(Debug)]
pub struct Machine {
    supervisor: Supervisor,
    requests: Requests,
}

impl Machine {
    /// A dataflow that has not been launched.
    pub fn new(plan: Plan) -> Self {
        let supervisor = Supervisor::new(plan);
        Self {
            requests: Requests::new(&supervisor),
            supervisor,
        }
    }

    /// Sets the most edges that all observers may have together; without it there is no limit.
    pub fn limit_guest_edges(&mut self, max: usize) {
        self.requests.limit_guest_edges(max);
    }

    /// Rows for edges of outputs in a node's counters page: those of the plan, and of observers.
    pub fn counters_rows(&self, node: usize) -> u32 {
        let network = self.supervisor.network();
        network.wiring().counters_rows(network.graph(), node)
    }

    /// Queues of a node that is about to be started which no process of a producer has any more,
    /// and which its next process does not inherit.
    pub fn queues_gone(&self, node: usize) -> Vec<GoneQueue> {
        let network = self.supervisor.network();
        network.wiring().queues_gone(network.graph(), node)
    }

    /// The plan, with the nodes and edges of guests behind those of the file.
    pub fn plan(&self) -> &Plan {
        self.supervisor.network().graph().plan()
    }

    /// True when a client keeps a node's place for a program.
    pub fn keeps_place(&self, client: usize) -> bool {
        self.requests.keeps_place(client)
    }

    /// When [`Event::Deadline`] is due.
    pub fn deadline(&self) -> Option<Duration> {
        self.supervisor.deadline()
    }

    /// Takes an event and returns what to do.
    pub fn handle(&mut self, event: Event, now: Duration) -> Vec<Action> {
        let mut turn = Turn::new(now);
        self.dispatch(event, &mut turn);
        drain::advance(&mut self.supervisor, &mut turn);
        self.supervisor.settle(&mut turn);
        let actions = turn.into_actions();
        for action in &actions {
            if let Action::CloseClient { client } = action {
                self.requests.forget_client(*client);
            }
        }
        actions
    }

    fn dispatch(&mut self, event: Event, turn: &mut Turn) {
        let Self {
            supervisor,
            requests,
        } = self;
        match event {
            Event::Launch => supervisor.launch(turn),
            Event::Started { node, pid, thread } => {
                requests.process_tried(node, supervisor);
                let timeout = requests.startup_timeout(node, supervisor);
                let process = (pid, thread);
                supervisor
                    .network_mut()
                    .started(node, process, timeout, turn);
                if !supervisor.network().graph().node(node).connects() {
                    requests.process_ready(node, supervisor, turn);
                }
            }
            Event::NotStarted { node, reason } => {
                requests.process_tried(node, supervisor);
                let why = format!("it could not be started: {reason}");
                let rolled_back = requests.roll_back(node, &why, supervisor, turn);
                supervisor.not_started(node, &reason, rolled_back, turn);
            }
            Event::Message { node, message } => self.node_message(node, message, turn),
            Event::Misbehaved { node, what } => {
                supervisor.kill_for_misbehaviour(node, &what, turn);
            }
            Event::Undeliverable { node, why } => {
                let why = format!("its edges cannot be sent to it: {why}");
                supervisor.kill_node(node, &why, turn);
            }
            Event::Pulse { node, pulse } => supervisor.pulse(node, pulse, turn),
            Event::Ended {
                node,
                end,
                reason,
                stderr_tail,
            } => {
                let exit = supervisor.take_exit(node, end, reason);
                requests.fail_publications(node, supervisor, turn);
                let context = ExitContext {
                    rolled_back: requests.roll_back(node, &exit.reason, supervisor, turn),
                    kept_for: requests.place_kept_for(node),
                };
                supervisor.ended(node, exit, context, stderr_tail, turn);
            }
            Event::Terminated => {
                supervisor.stop("the keeper was asked to end by a signal", turn);
            }
            Event::ClientMessage {
                client,
                pid,
                message,
            } => requests.message((client, pid), message, supervisor, turn),
            Event::ClientGone { client } => requests.client_gone(client, supervisor, turn),
            Event::Deadline => {}
        }
    }

    fn node_message(&mut self, node: usize, message: node_to_keeper::Message, turn: &mut Turn) {
        use node_to_keeper::Message;
        let Self {
            supervisor,
            requests,
        } = self;
        let state = supervisor.network().node(node);
        if state.is_being_killed() {
            return;
        }
        match (message, state.state()) {
            (Message::Unknown, _) => {}
            (Message::Hello(hello), State::Spawned) => {
                let params = requests.params_of(node, supervisor);
                supervisor.hello(node, &hello, params, turn);
            }
            (_, State::Spawned) => {
                supervisor.kill_for_misbehaviour(node, "its first message was not Hello", turn);
            }
            (Message::Published(published), _) => requests.published(node, published, turn),
            (message, _) => supervisor.message(node, message, turn),
        }
        if supervisor.network().node(node).is_up() {
            requests.process_ready(node, supervisor, turn);
        }
    }
}
