//! Another program for a node, while its edges stay.
//!
//! The old process is stopped in order and the new program started, as by a restart. Until that is ready, what ran before
//! is kept: when the new one fails, the old one comes back.

use std::time::Duration;

use nervure_protocol::{
    cli_to_keeper::Replace,
    keeper_to_cli::{self, Refused},
    keeper_to_run::Level,
    wiring::Program,
};

use super::{Machine, clients::refused, orders::Then};

/// How long a new program may take to be ready where the file has no `startup_timeout`.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(30);

/// What a node runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Run {
    program: Program,
    args: Vec<String>,
}

/// A replacement that is not decided yet.
#[derive(Debug)]
pub(super) struct Replacement {
    /// Who is told what comes of it.
    client: usize,
    before: Run,
    /// The new program was started.
    pub is_tried: bool,
}

impl Machine {
    /// Gives a node another program. The client is answered once it is ready, or has failed.
    pub(super) fn replace(
        &mut self,
        client: usize,
        request: Replace,
        now: Duration,
    ) -> Result<(), Refused> {
        let node = self.find_node(&request.node)?;
        if self.phase.is_stopping() {
            return Err(refused("the dataflow is stopping", None));
        }
        if self.is_dynamic(node) {
            let reason = format!(
                "node `{}` has `path: dynamic`: it is whatever joins",
                request.node
            );
            return Err(refused(reason, None));
        }
        self.check_free(node)?;
        let before = self.run_of(node);
        let after = Run {
            program: request.program,
            args: request.args.unwrap_or_else(|| before.args.clone()),
        };
        let name = self.name_of_client(client);
        self.log(
            Some(node),
            Level::Info,
            format!("`{name}` replaces {before} by {after}"),
        );
        self.set_run(node, after);
        self.nodes[node].replacement = Some(Replacement {
            client,
            before,
            is_tried: false,
        });
        match self.nodes[node].is_alive() {
            true => self.end_by_hand(node, Then::Start, format!("restarted by `{name}`"), now),
            false => self.start_by_hand(node),
        }
        Ok(())
    }

    /// Longest time from the start of a node's process until it is ready.
    pub(super) fn startup_timeout(&self, node: usize) -> Option<Duration> {
        let is_new = self.nodes[node].replacement.is_some();
        self.plan.nodes[node]
            .startup_timeout
            .or(is_new.then_some(STARTUP_TIMEOUT))
    }

    /// The node's process is ready, and with it a replacement decided.
    pub(super) fn replacement_is_ready(&mut self, node: usize) {
        if let Some(replacement) = self.nodes[node]
            .replacement
            .take_if(|replacement| replacement.is_tried)
        {
            let text = format!("{} is ready", self.run_of(node));
            self.log(Some(node), Level::Info, text);
            self.reply(replacement.client, keeper_to_cli::Message::Done, None);
        }
    }

    /// The node's process has ended, or could not be started. When it was that of a new program, what ran before comes
    /// back: returns what is to be said of it.
    pub(super) fn replacement_has_failed(&mut self, node: usize, why: &str) -> Option<String> {
        let is_stopping = self.phase.is_stopping();
        let is_decided = |replacement: &mut Replacement| replacement.is_tried || is_stopping;
        let replacement = self.nodes[node].replacement.take_if(is_decided)?;
        let failed = self.run_of(node);
        self.set_run(node, replacement.before);
        let back = self.run_of(node);
        let (reason, hint) = match is_stopping {
            true => ("the dataflow is stopping".to_owned(), None),
            false => {
                let id = &self.plan.nodes[node].id;
                let reason =
                    format!("{failed} was not ready: {why}; node `{id}` runs {back} again");
                (
                    reason,
                    Some(format!("`nervure logs --node {id}` has what it wrote")),
                )
            }
        };
        let refused = keeper_to_cli::Message::Refused(Refused { reason, hint });
        self.reply(replacement.client, refused, None);
        (!is_stopping).then(|| format!("; {failed} was not ready, back to {back}"))
    }

    /// What a node runs, for people, and what the file says instead where that is something else.
    pub(super) fn described(&self, node: usize) -> (String, Option<String>) {
        match &self.nodes[node].file_says {
            Some(file_says) => (self.run_of(node).to_string(), Some(file_says.to_string())),
            None => (self.plan.nodes[node].program.to_string(), None),
        }
    }

    fn run_of(&self, node: usize) -> Run {
        let plan = &self.plan.nodes[node];
        Run {
            program: plan.program.clone(),
            args: plan.args.clone(),
        }
    }

    fn set_run(&mut self, node: usize, run: Run) {
        let file_says = self.nodes[node]
            .file_says
            .take()
            .unwrap_or_else(|| self.run_of(node));
        self.nodes[node].file_says = (file_says != run).then_some(file_says);
        self.plan.nodes[node].program = run.program;
        self.plan.nodes[node].args = run.args;
    }
}

impl std::fmt::Display for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.program)?;
        self.args
            .iter()
            .try_for_each(|argument| write!(f, " {argument}"))
    }
}
