//! Programs of clients that run as nodes of the file.

use nervure_protocol::{
    cli_to_keeper::{Attach, Join},
    keeper_to_cli::{self, Attached, Refused},
};

use super::{Requests, check_not_stopping};
use crate::machine::{claims::Claim, node::AfterStop, supervisor::Supervisor, turn::Turn};

impl Requests {
    /// Makes a client's process that of a node.
    pub(super) fn join(
        &self,
        (client, pid): (usize, u32),
        request: &Join,
        supervisor: &mut Supervisor,
        turn: &mut Turn,
    ) -> Result<(), Refused> {
        let id = &request.node;
        let node = supervisor.network().graph().find_node(id)?;
        if self.keeps_place(client) {
            let reason = "a client that keeps a node's place cannot join on the same connection";
            return Err(Refused::new(reason, None));
        }
        check_not_stopping(supervisor)?;
        self.check_token(node, request, supervisor)?;
        let state = supervisor.network().node(node);
        if state.is_alive() {
            let taken_by = state.last_start().map_or(0, |started| started.pid);
            return Err(if taken_by == pid {
                let reason = format!("this process is node `{id}` already");
                let hint = "drop the first, in Python with `del node`, before another is made";
                Refused::new(reason, Some(hint))
            } else {
                let reason = format!("node `{id}` is taken: process {taken_by} is it");
                let hint = "end that process, or let it drop its node";
                Refused::new(reason, Some(hint))
            });
        }
        turn.reply(client, keeper_to_cli::Message::Joined);
        supervisor.network_mut().join(node, client, pid, turn);
        Ok(())
    }

    /// Refuses a process that has neither the token of the claim on a node, nor that of the
    /// dataflow where it suffices.
    fn check_token(
        &self,
        node: usize,
        request: &Join,
        supervisor: &Supervisor,
    ) -> Result<(), Refused> {
        let (id, graph) = (&request.node, supervisor.network().graph());
        let expected = match self.claims.of_node(node) {
            Some(claim) => Some(&claim.token),
            None if graph.is_dynamic(node) => graph.plan().join_token.as_ref(),
            None => {
                let reason = format!("node `{id}` is started by its keeper");
                let hint = format!(
                    "`nervure attach {id} -- COMMAND` runs a program in its place; `path: dynamic` in the file lets \
                     any program join"
                );
                return Err(Refused::new(reason, Some(&hint)));
            }
        };
        if expected != Some(&request.token) {
            let hint = "the token of a run is in its log folder, for its user alone; that of `nervure attach` is in the \
                        environment of its command, and ends with it";
            let reason = format!("the token does not open node `{id}`");
            return Err(Refused::new(reason, Some(hint)));
        }
        Ok(())
    }

    /// Keeps a node's place for a program of a client.
    pub(super) fn attach(
        &mut self,
        client: usize,
        request: &Attach,
        supervisor: &mut Supervisor,
        turn: &mut Turn,
    ) -> Result<(), Refused> {
        let id = &request.node;
        let node = supervisor.network().graph().find_node(id)?;
        check_not_stopping(supervisor)?;
        if supervisor.network().graph().is_dynamic(node) {
            let reason = format!("node `{id}` has `path: dynamic`");
            let hint = format!("any program joins as it: `Node(\"{id}\")` in Python");
            return Err(Refused::new(reason, Some(&hint)));
        }
        self.check_free(node, id)?;
        let name = self.clients.name(client);
        let claim = Claim {
            client,
            name: name.clone(),
            token: request.token.clone(),
            leave_stopped: request.leave_stopped,
        };
        self.claims.add(node, claim);
        let state = supervisor.network().node(node);
        if state.is_alive() {
            let reason = format!("stopped by `{name}`");
            supervisor.stop_node(node, AfterStop::Hold, &reason, turn);
        } else if !state.is_held() {
            supervisor.network_mut().hold(node, turn);
        }
        let graph = supervisor.network().graph();
        let plan = graph.node(node);
        let attached = Attached {
            program: plan.program.clone(),
            args: plan.settings.args.clone(),
            env: plan.settings.env.clone(),
            folder: plan
                .settings
                .folder
                .as_ref()
                .unwrap_or(&graph.plan().folder)
                .display()
                .to_string(),
        };
        turn.reply(client, keeper_to_cli::Message::Attached(attached));
        Ok(())
    }

    /// A client is gone: gives back the nodes that it was attached to.
    pub(super) fn release_claims(
        &mut self,
        client: usize,
        supervisor: &mut Supervisor,
        turn: &mut Turn,
    ) {
        for (node, claim) in self.claims.remove_client(client) {
            if supervisor.phase().is_ending() {
                continue;
            }
            let after = if claim.leave_stopped {
                AfterStop::Hold
            } else {
                AfterStop::Start
            };
            let state = supervisor.network().node(node);
            if state.client().is_some() {
                // It counts samples until it has left, and its successor continues from its
                // counters.
                let reason = format!("`{}` has given the node back", claim.name);
                supervisor.stop_node(node, after, &reason, turn);
            } else if state.is_alive() {
                // Its own process was asked to end, and has not ended yet.
                supervisor
                    .network_mut()
                    .node_mut(node)
                    .set_after_stop(after);
            } else if after == AfterStop::Start {
                supervisor.network_mut().start_again(node, turn);
            }
        }
    }
}
