//! The handling of one event: its time, and the actions decided so far.

use std::time::Duration;

use nervure_protocol::{
    keeper_to_cli, keeper_to_node,
    report::{Level, Report},
};

use super::{
    action::{Action, Audience, Descriptor},
    graph::Graph,
};

/// The handling of one event.
#[derive(Debug)]
pub(super) struct Turn {
    /// Since the keeper started.
    pub now: Duration,
    actions: Vec<Action>,
}

impl Turn {
    pub fn new(now: Duration) -> Self {
        Self {
            now,
            actions: Vec::new(),
        }
    }

    pub fn push(&mut self, action: Action) {
        self.actions.push(action);
    }

    pub fn into_actions(self) -> Vec<Action> {
        self.actions
    }

    /// Sends a message with descriptors to a node.
    pub fn send_with(
        &mut self,
        node: usize,
        message: keeper_to_node::Message,
        descriptors: Vec<Descriptor>,
    ) {
        self.push(Action::Send {
            node,
            message,
            descriptors,
        });
    }

    /// Sends a message to a node.
    pub fn send(&mut self, node: usize, message: keeper_to_node::Message) {
        self.send_with(node, message, Vec::new());
    }

    /// Reports to the clients that follow.
    pub fn report(&mut self, message: Report, descriptor: Option<Descriptor>) {
        self.report_to(Audience::Everyone, message, descriptor);
    }

    pub fn report_to(
        &mut self,
        audience: Audience,
        message: Report,
        descriptor: Option<Descriptor>,
    ) {
        self.push(Action::Report {
            message,
            descriptor,
            audience,
        });
    }

    /// Sends a message to a client.
    pub fn reply(&mut self, client: usize, message: keeper_to_cli::Message) {
        self.reply_with(client, message, None);
    }

    /// Sends a message with a descriptor to a client.
    pub fn reply_with(
        &mut self,
        client: usize,
        message: keeper_to_cli::Message,
        descriptor: Option<Descriptor>,
    ) {
        self.push(Action::Reply {
            client,
            message,
            descriptor,
        });
    }

    /// Writes a line to the keeper's own log.
    pub fn log(&mut self, level: Level, text: String) {
        self.push(Action::Log {
            node: None,
            level,
            text,
        });
    }

    /// Writes a line to the log of a node. A guest has none: its lines go to the keeper's, with its
    /// name.
    pub fn log_node(&mut self, graph: &Graph, node: usize, level: Level, text: String) {
        if graph.is_guest(node) {
            return self.log(level, format!("`{}`: {text}", graph.node(node).id));
        }
        self.push(Action::Log {
            node: Some(node),
            level,
            text,
        });
    }
}
