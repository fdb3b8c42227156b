//! Another program for a node, while its edges stay.

use std::time::Duration;

use nervure_protocol::{
    cli_to_keeper::Replace,
    keeper_to_cli::{self, Refused},
    report::Level,
};

use super::{Requests, check_not_stopping};
use crate::machine::{
    node::AfterStop,
    replacements::{BY_HAND, CommandLine},
    supervisor::Supervisor,
    turn::Turn,
};

/// Longest time until a new program is ready where the file has no `startup_timeout`.
const DEFAULT_STARTUP_TIMEOUT: Duration = Duration::from_secs(30);

impl Requests {
    /// Gives a node another program. The client gets the answer once that is ready, or has failed.
    pub(super) fn replace(
        &mut self,
        client: usize,
        request: Replace,
        supervisor: &mut Supervisor,
        turn: &mut Turn,
    ) -> Result<(), Refused> {
        let id = &request.node;
        let node = supervisor.network().graph().find_node(id)?;
        check_not_stopping(supervisor)?;
        if supervisor.network().graph().is_dynamic(node) {
            let reason = format!("node `{id}` has `path: dynamic`: it is whatever joins");
            return Err(Refused::new(reason, None));
        }
        let before = CommandLine::of(supervisor.network().graph().node(node));
        if request.version.as_ref() == Some(&before.version) {
            match self.replacements.is_pending(node) {
                true => self.replacements.hand_over(node, client),
                false => turn.reply(client, keeper_to_cli::Message::Done),
            }
            return Ok(());
        }
        self.check_free(node, id)?;
        let after = CommandLine {
            program: request.program,
            args: request.args.unwrap_or_else(|| before.args.clone()),
            folder: request.folder.or_else(|| before.folder.clone()),
            version: request.version.unwrap_or_else(|| BY_HAND.to_owned()),
        };
        check_process(node, &after, supervisor)?;
        let name = self.clients.name(client);
        let text = format!("`{name}` replaces {before} by {after}");
        turn.log_node(supervisor.network().graph(), node, Level::Info, text);
        self.set_program(node, after, supervisor);
        self.replacements.begin(node, client, before);
        match supervisor.network().node(node).is_alive() {
            true => {
                let reason = format!("restarted by `{name}`");
                supervisor.stop_node(node, AfterStop::Start, &reason, turn);
            }
            false => supervisor.network_mut().start_again(node, turn),
        }
        Ok(())
    }

    /// Longest time from the start of a node's process until it is ready.
    pub fn startup_timeout(&self, node: usize, supervisor: &Supervisor) -> Option<Duration> {
        let is_new = self.replacements.is_pending(node);
        let timeout = supervisor
            .network()
            .graph()
            .node(node)
            .settings
            .startup_timeout;
        timeout.or(is_new.then_some(DEFAULT_STARTUP_TIMEOUT))
    }

    /// A node's process was started, or could not be.
    pub fn process_tried(&mut self, node: usize, supervisor: &Supervisor) {
        // A process that was stopped meanwhile gives way to the new program.
        if supervisor.network().node(node).after_stop().is_none() {
            self.replacements.set_tried(node);
        }
    }

    /// A node's process is ready; with it, a replacement has succeeded.
    pub fn process_ready(&mut self, node: usize, supervisor: &Supervisor, turn: &mut Turn) {
        if let Some(replacement) = self.replacements.take_decided(node, false) {
            let graph = supervisor.network().graph();
            let text = format!("{} is ready", CommandLine::of(graph.node(node)));
            turn.log_node(graph, node, Level::Info, text);
            turn.reply(replacement.client, keeper_to_cli::Message::Done);
        }
    }

    /// Handles the end, or the failed start, of a node's process. If it ran a new program, the
    /// program before comes back, and is returned for people.
    pub fn roll_back(
        &mut self,
        node: usize,
        why: &str,
        supervisor: &mut Supervisor,
        turn: &mut Turn,
    ) -> Option<String> {
        let is_stopping = supervisor.phase().is_stopping();
        let replacement = self.replacements.take_decided(node, is_stopping)?;
        let failed = CommandLine::of(supervisor.network().graph().node(node));
        self.set_program(node, replacement.before, supervisor);
        let plan = supervisor.network().graph().node(node);
        let back = CommandLine::of(plan);
        let refused = match is_stopping {
            true => Refused::new("the dataflow is stopping", None),
            false => {
                let id = &plan.id;
                let reason =
                    format!("{failed} was not ready: {why}; node `{id}` runs {back} again");
                let hint = format!("`nervure logs --node {id}` has what it wrote");
                Refused {
                    rolled_back: true,
                    ..Refused::new(reason, Some(&hint))
                }
            }
        };
        turn.reply(replacement.client, keeper_to_cli::Message::Refused(refused));
        (!is_stopping).then(|| format!("; {failed} was not ready, back to {back}"))
    }

    fn set_program(&mut self, node: usize, after: CommandLine, supervisor: &mut Supervisor) {
        let before = CommandLine::of(supervisor.network().graph().node(node));
        self.replacements.note_program(node, before, &after);
        supervisor.network_mut().set_program(node, after);
    }
}

/// A process has components or nodes in Python: refuses a program of the other kind.
fn check_process(node: usize, after: &CommandLine, supervisor: &Supervisor) -> Result<(), Refused> {
    let graph = supervisor.network().graph();
    let mut plan = graph.node(node).clone();
    plan.program = after.program.clone();
    let Some(process) = plan.host() else {
        return Ok(());
    };
    let mut others = (0..graph.own_nodes()).filter(|&other| other != node);
    let is_other_kind = |&other: &usize| {
        let other = graph.node(other);
        other.host() == Some(process) && other.program.is_python() != plan.program.is_python()
    };
    let Some(other) = others.find(is_other_kind) else {
        return Ok(());
    };
    let kind = match plan.program.is_python() {
        true => "components, and this program is Python",
        false => "nodes in Python, and this program is a component",
    };
    let reason = format!(
        "the process `{process}` of node `{}` runs {kind}",
        graph.node(other).id
    );
    Err(Refused::new(reason, None))
}
