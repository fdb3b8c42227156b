//! Processes that the keeper did not start: nodes of the file that join, and guests.
//!
//! A process joins as a node with `path: dynamic`, or in place of a node that a client is attached
//! to. It is wired, counted and reported as any other. The keeper does not start, signal or check
//! it: it can only close its connection. Before it joins, and after it is gone, its node is held:
//! its neighbours keep their inputs open. Neither the start of the dataflow nor its end waits for a
//! dynamic node, nor does a producer. The start waits for the stand-ins of other machines, which
//! the daemon joins at once; so do producers on `block` edges to them, and the end of the dataflow
//! until they have sent the queued samples.
//!
//! A guest is a node with inputs only, behind those of the plan. Its edges are added to the plan
//! when it connects and removed when it is gone; its place, with a new incarnation, is the next
//! guest's.

use nervure_protocol::{
    node_to_keeper::RemoteProcess,
    report::{EndCause, NodeEnded},
};

use super::Supervisor;
use crate::machine::{
    action::Action,
    graph::index,
    node::{AfterStop, Node, State},
    turn::Turn,
};

impl Supervisor {
    /// Closes the connection of a process that the keeper did not start.
    pub(super) fn disconnect(&mut self, node: usize, turn: &mut Turn) {
        if let Some(client) = self.network.node(node).client() {
            self.client_gone(client, turn);
            turn.push(Action::CloseClient { client });
        }
    }

    /// A client's connection is closed.
    pub fn client_gone(&mut self, client: usize, turn: &mut Turn) {
        let is_its = |node: &Node| node.client() == Some(client);
        if let Some(node) = self.network.nodes().iter().position(is_its) {
            self.network.node_mut(node).take_client();
            match self.network.graph().is_guest(node) {
                true => self.network.remove_guest(node, turn),
                false => self.joined_gone(node, turn),
            }
        }
    }

    /// Handles the daemon's report on the process of a node on another machine.
    pub(super) fn remote_process(&mut self, node: usize, change: &RemoteProcess, turn: &mut Turn) {
        if !self.network.graph().node(node).is_remote() {
            let what = "it reported on a process of another machine, and is a node of this one";
            return self.kill_for_misbehaviour(node, what, turn);
        }
        let (kind, reason, restarts) = match change {
            RemoteProcess::Failed { reason, restarts } => ("NODE_FAILED", &**reason, *restarts),
            RemoteProcess::Restarted => ("NODE_RESTARTED", "", false),
            RemoteProcess::Unknown => return,
        };
        self.network
            .rewiring(turn)
            .notify_neighbours(node, kind, reason, restarts);
    }

    /// The process that had joined as a node is gone.
    fn joined_gone(&mut self, node: usize, turn: &mut Turn) {
        let is_stopping = self.phase.is_stopping();
        let state = self.network.node_mut(node);
        let has_left = state.has_left();
        let kill_reason = state.take_kill_reason();
        let after = state.take_after_stop();
        let failed = kill_reason.is_some() || !(has_left || after.is_some() || is_stopping);
        let starts = after == Some(AfterStop::Start) && !is_stopping;
        let what = kill_reason.unwrap_or_else(|| match (has_left, failed) {
            (true, _) => "it left".to_owned(),
            (false, true) => {
                "it ended without closing its node: it was killed, or crashed".to_owned()
            }
            (false, false) => "it is gone".to_owned(),
        });
        // The daemon leaves a node when that has ended on its machine.
        let is_over = has_left && self.network.graph().node(node).is_remote();
        let ended = NodeEnded {
            node: index(node),
            id: self.network.graph().node(node).id.clone(),
            incarnation: self.network.node(node).incarnation(),
            code: None,
            signal: None,
            failed,
            restarts: starts,
            cause: match has_left {
                true => EndCause::Left,
                false => EndCause::Ended,
            },
            reason: match (is_stopping, starts) {
                (true, _) => what,
                (false, true) => format!("{what}; the node's own program starts again"),
                (false, false) if is_over => "it has ended on its machine".to_owned(),
                (false, false) => format!("{what}; its place is free"),
            },
            overdue: false,
            stderr_tail: Vec::new(),
        };
        let next = match is_stopping || is_over {
            true => State::Ended,
            false => State::Held,
        };
        self.network.process_gone(node, ended, next, failed, turn);
        turn.push(Action::CloseJoined { node });
        if starts {
            self.network.start_again(node, turn);
        }
    }
}
