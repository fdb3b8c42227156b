//! What happens to a dataflow on its machines, for people.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use nervure_coordinator::ACTUAL;
use nervure_daemon::state::{Actual, ActualRun, RunState, parse};
use nervure_store::{Revision, Store};
use serde_json::json;

use super::connection::{Fleet, store_failure};
use crate::{failure::Failure, output};

/// Interval between messages about machines that are awaited.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);

/// Follows a run on its machines.
pub struct Progress<'f> {
    fleet: &'f Fleet,
    run: String,
    json: bool,
    from: Option<Revision>,
    /// What each machine has reported.
    pub machines: BTreeMap<String, Option<ActualRun>>,
}

impl<'f> Progress<'f> {
    pub fn new(
        fleet: &'f Fleet,
        run: &str,
        machines: impl IntoIterator<Item = String>,
        json: bool,
    ) -> Self {
        Self {
            fleet,
            run: run.to_owned(),
            json,
            from: None,
            machines: machines
                .into_iter()
                .map(|machine| (machine, None))
                .collect(),
        }
    }

    /// Waits until `is_done` holds for every machine and what it has reported, or one has failed.
    pub fn wait(
        &mut self,
        what: &str,
        is_done: impl Fn(&str, &ActualRun) -> bool,
    ) -> Result<(), Failure> {
        let mut report_at = Instant::now() + REPORT_INTERVAL;
        loop {
            let has_failed = |run: &ActualRun| matches!(run.state, RunState::Failed { .. });
            let failed = self.machines.values().flatten().any(has_failed);
            let awaited: Vec<_> = self
                .machines
                .iter()
                .filter(|(machine, run)| !run.as_ref().is_some_and(|run| is_done(machine, run)))
                .map(|(machine, _)| machine.as_str())
                .collect();
            if failed || awaited.is_empty() {
                return Ok(());
            }
            if Instant::now() >= report_at {
                note!("waiting for {} to {what}", awaited.join(", "));
                report_at = Instant::now() + REPORT_INTERVAL;
            }
            self.step(report_at.saturating_duration_since(Instant::now()))?;
        }
    }

    /// Takes the next reports, if there are some before the timeout.
    fn step(&mut self, timeout: Duration) -> Result<(), Failure> {
        let store = &self.fleet.client;
        let entries = match self.from {
            None => {
                let listing = store.list(ACTUAL).map_err(store_failure)?;
                self.from = Some(listing.revision);
                listing.entries
            }
            Some(after) => {
                let changes = store.watch(ACTUAL, after, timeout).map_err(store_failure)?;
                self.from = Some(changes.revision);
                changes
                    .changes
                    .into_iter()
                    .filter_map(|change| change.entry)
                    .collect()
            }
        };
        for entry in entries {
            let Some(machine) = entry.key.strip_prefix(ACTUAL) else {
                continue;
            };
            let Some(known) = self.machines.get_mut(machine) else {
                continue;
            };
            let actual: Actual = parse(&entry.key, &entry.value).map_err(store_failure)?;
            let now = actual.runs.get(&self.run).cloned();
            let before = std::mem::replace(known, now.clone());
            show(machine, before.as_ref(), now.as_ref(), self.json)?;
        }
        Ok(())
    }

    /// The machines that have failed, and why.
    pub fn failures(&self) -> Vec<(&str, &str)> {
        self.machines
            .iter()
            .filter_map(|(machine, run)| match &run.as_ref()?.state {
                RunState::Failed { reason } => Some((machine.as_str(), reason.as_str())),
                _ => None,
            })
            .collect()
    }
}

fn show(
    machine: &str,
    before: Option<&ActualRun>,
    now: Option<&ActualRun>,
    json: bool,
) -> Result<(), Failure> {
    let Some(now) = now.filter(|now| before != Some(now)) else {
        return Ok(());
    };
    if json {
        let line = json!({"message": "machine", "machine": machine, "actual": now});
        return output::write(&format!("{line}\n"));
    }
    if before.map(|run| &run.state) != Some(&now.state) {
        note!("{machine}: {}", state_text(&now.state));
    }
    for (node, state) in &now.nodes {
        if before.and_then(|run| run.nodes.get(node)) != Some(state) {
            note!("{machine}: {node} {state}");
        }
    }
    Ok(())
}

/// The state of a run in words.
pub fn state_text(state: &RunState) -> String {
    match state {
        RunState::Preparing => "preparing".to_owned(),
        RunState::Prepared => "prepared".to_owned(),
        RunState::Starting => "starting".to_owned(),
        RunState::Running { keeper } => format!("running (keeper {keeper})"),
        RunState::Waiting => "its keeper was killed; it starts again soon".to_owned(),
        RunState::Stopping => "stopping".to_owned(),
        RunState::Ended => "ended".to_owned(),
        RunState::Failed { reason } => {
            format!("failed: {}", reason.lines().next().unwrap_or_default())
        }
    }
}
