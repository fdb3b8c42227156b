//! A dataflow that this process has started and waits for.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use nervure_keeper::descendants;
use nervure_protocol::{
    cli_to_keeper::Message,
    report::{EdgeStatus, NodeEnded, Report},
    wiring::EdgeState,
};

use crate::{
    error::Error,
    keeper::{End, Keeper, Reports},
};

/// A dataflow that this process has started. Unless it is detached, it is stopped when this value is
/// dropped or this process ends. Dropping it does not wait for that.
#[derive(Debug)]
pub struct Running {
    keeper: Keeper,
    is_ready: bool,
    /// The last end of each node.
    ends: BTreeMap<u32, NodeEnded>,
    /// The last status of each input's edge.
    edges: BTreeMap<String, EdgeStatus>,
    outcome: Option<Outcome>,
}

/// The outcome of a dataflow that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Nodes that failed in the end.
    pub failed: Vec<NodeEnded>,
    /// Edges that did not work to the end.
    pub failed_edges: Vec<EdgeStatus>,
}

impl Outcome {
    /// Whether a node or an edge has failed.
    #[must_use]
    pub fn has_failures(&self) -> bool {
        !(self.failed.is_empty() && self.failed_edges.is_empty())
    }
}

impl Running {
    pub(crate) fn of(keeper: Keeper) -> Self {
        Self {
            keeper,
            is_ready: false,
            ends: BTreeMap::new(),
            edges: BTreeMap::new(),
            outcome: None,
        }
    }

    /// Waits until every node has been ready. Returns false if the dataflow has ended before, or after
    /// the timeout.
    ///
    /// # Errors
    /// If the keeper has failed, or was killed.
    pub fn wait_ready(&mut self, timeout: Duration) -> Result<bool, Error> {
        self.follow(timeout, |running| running.is_ready)?;
        Ok(self.is_ready)
    }

    /// Waits until the dataflow has ended. Returns `None` after the timeout.
    ///
    /// # Errors
    /// If the keeper has failed, or was killed.
    pub fn wait(&mut self, timeout: Duration) -> Result<Option<&Outcome>, Error> {
        self.follow(timeout, |_| false)?;
        Ok(self.outcome.as_ref())
    }

    /// Asks the nodes to end, for this reason. Nodes that take longer than the grace period are killed.
    pub fn stop(&self, reason: &str) {
        self.keeper.send(&Message::Stop {
            reason: reason.to_owned(),
        });
    }

    /// The process id of the keeper, which also selects the dataflow in commands.
    #[must_use]
    pub fn keeper(&self) -> i32 {
        self.keeper.pid().as_raw_pid()
    }

    /// Follows the reports until the dataflow has ended, `is_enough` holds, or the timeout has passed.
    fn follow(&mut self, timeout: Duration, is_enough: fn(&Self) -> bool) -> Result<(), Error> {
        /// For a deadline beyond the clock.
        const LONG: Duration = Duration::from_secs(3600);
        let deadline = Instant::now().checked_add(timeout);
        while self.outcome.is_none() && !is_enough(self) {
            let now = Instant::now();
            if deadline.is_some_and(|deadline| now >= deadline) {
                return Ok(());
            }
            let reports = self.keeper.wait(None, deadline.unwrap_or(now + LONG))?;
            let is_over = matches!(reports, Reports::Closed(_));
            let (Reports::Some(reports) | Reports::Closed(reports)) = reports;
            for (report, _page) in reports {
                self.note(report);
            }
            if is_over {
                self.outcome = Some(self.conclude()?);
            }
        }
        Ok(())
    }

    fn note(&mut self, report: Report) {
        match report {
            Report::Ready => self.is_ready = true,
            Report::NodeEnded(ended) => drop(self.ends.insert(ended.node, ended)),
            Report::EdgeStatus(status) => {
                let known = self.edges.get(&status.input);
                // An edge that has failed stays so.
                if known.is_none_or(|known| known.state != EdgeState::Failed) {
                    self.edges.insert(status.input.clone(), status);
                }
            }
            Report::NodeStarted(_)
            | Report::EdgeWired(_)
            | Report::Paused
            | Report::Resumed
            | Report::Log(_)
            | Report::Finished
            | Report::Unknown => {}
        }
    }

    fn conclude(&mut self) -> Result<Outcome, Error> {
        match self.keeper.end()? {
            End::Orderly => {}
            End::Failed => {
                let reason = self.keeper.stderr();
                let reason = reason
                    .as_deref()
                    .unwrap_or("the reason is on stderr")
                    .trim();
                return Err(Error::internal("the keeper has failed").because(reason));
            }
            End::Killed { how } => {
                let text = format!("the keeper of the dataflow ended before its nodes ({how})");
                let error = Error::internal(text);
                // This process may have other children than the dataflow's.
                return Err(match descendants::kill_orphans() {
                    Ok(_) => error,
                    Err(cause) => error.because("processes may be left").because(cause),
                });
            }
        }
        let failed = self.ends.values();
        let failed = failed.filter(|ended| ended.failed && !ended.restarts);
        let edges = self.edges.values();
        let is_broken = |state| matches!(state, EdgeState::Waiting | EdgeState::Failed);
        let edges = edges.filter(|status| is_broken(status.state));
        Ok(Outcome {
            failed: failed.cloned().collect(),
            failed_edges: edges.cloned().collect(),
        })
    }
}
