//! What happens to parts of dataflows on their machines, for people.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use nervure_coordinator::ACTUAL;
use nervure_daemon::state::{Actual, ActualRun, RunState, parse};
use nervure_store::{Revision, Store};
use serde_json::json;

use super::{
    connection::{Fleet, store_failure},
    parts::Part,
};
use crate::{failure::Failure, format, output};

/// Interval between messages about machines that are awaited.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);

/// Follows parts of runs.
pub struct Progress<'f> {
    fleet: &'f Fleet,
    json: bool,
    /// The longest wait.
    limit: Option<Duration>,
    from: Option<Revision>,
    /// What the machine of each has reported.
    pub parts: BTreeMap<Part, Option<ActualRun>>,
}

impl<'f> Progress<'f> {
    pub fn new(fleet: &'f Fleet, parts: impl IntoIterator<Item = Part>, json: bool) -> Self {
        Self {
            fleet,
            json,
            limit: None,
            from: None,
            parts: parts.into_iter().map(|part| (part, None)).collect(),
        }
    }

    /// A wait that takes longer fails.
    pub fn with_limit(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Waits until `is_done` holds for every part and what its machine has reported, or one has failed.
    pub fn wait(
        &mut self,
        what: &str,
        is_done: impl Fn(&Part, &ActualRun) -> bool,
    ) -> Result<(), Failure> {
        let mut report_at = Instant::now() + REPORT_INTERVAL;
        let until = self.limit.map(|limit| Instant::now() + limit);
        loop {
            let is_awaited = |(part, run): &(&Part, &Option<ActualRun>)| {
                !run.as_ref().is_some_and(|run| is_done(part, run))
            };
            let has_failed = |(_, run): (&Part, &Option<ActualRun>)| {
                let state = run.as_ref().map(|run| &run.state);
                matches!(state, Some(RunState::Failed { .. }))
            };
            let mut awaited = self.parts.iter().filter(is_awaited);
            if awaited.clone().next().is_none() || awaited.any(has_failed) {
                return Ok(());
            }
            let now = Instant::now();
            let is_late = until.is_some_and(|until| now >= until);
            if is_late || now >= report_at {
                let awaited = self.parts.iter().filter(is_awaited);
                let machines: BTreeSet<_> =
                    awaited.map(|(part, _)| part.machine.as_str()).collect();
                let machines = machines.into_iter().collect::<Vec<_>>().join(", ");
                if is_late {
                    let limit = format::elapsed(self.limit.unwrap_or_default());
                    let text = format!("{machines} did not {what} within {limit}");
                    return Err(Failure::internal(text));
                }
                note!("waiting for {machines} to {what}");
                report_at = now + REPORT_INTERVAL;
            }
            let next = until.map_or(report_at, |until| until.min(report_at));
            self.step(next.saturating_duration_since(now))?;
        }
    }

    /// Follows the parts for some time. Ends with the first that has trouble, and says which.
    pub fn watch(
        &mut self,
        time: Duration,
        trouble: impl Fn(&ActualRun) -> Option<String>,
    ) -> Result<Option<(Part, String)>, Failure> {
        let until = Instant::now() + time;
        loop {
            let mut known = self.parts.iter();
            let found = known.find_map(|(part, run)| Some((part, trouble(run.as_ref()?)?)));
            let left = until.saturating_duration_since(Instant::now());
            match found {
                Some((part, trouble)) => return Ok(Some((part.clone(), trouble))),
                None if left.is_zero() => return Ok(None),
                None => self.step(left)?,
            }
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
        let has_several = self.has_several_runs();
        for entry in entries {
            let Some(machine) = entry.key.strip_prefix(ACTUAL) else {
                continue;
            };
            if !self.parts.keys().any(|part| part.machine == machine) {
                continue;
            }
            let actual: Actual = parse(&entry.key, &entry.value).map_err(store_failure)?;
            let mut of_machine = self.parts.iter_mut();
            while let Some((part, known)) = of_machine.find(|(part, _)| part.machine == machine) {
                let now = actual.runs.get(&part.run).cloned();
                let before = std::mem::replace(known, now.clone());
                if let Some(now) = now.filter(|now| before.as_ref() != Some(now)) {
                    show(machine, has_several, before.as_ref(), &now, self.json)?;
                }
            }
        }
        Ok(())
    }

    fn has_several_runs(&self) -> bool {
        let runs: BTreeSet<_> = self.parts.keys().map(|part| &part.run).collect();
        runs.len() > 1
    }

    /// The parts that have failed, each with its machine and the reason.
    pub fn failures(&self) -> Vec<String> {
        let has_several = self.has_several_runs();
        let text = |(part, run): (&Part, &Option<ActualRun>)| {
            let run = run.as_ref()?;
            match &run.state {
                RunState::Failed { reason } => {
                    let place = place(&part.machine, has_several, run);
                    Some(format!("{place}: {reason}"))
                }
                _ => None,
            }
        };
        self.parts.iter().filter_map(text).collect()
    }
}

/// `robot`, or with several runs `robot, two@robot`.
fn place(machine: &str, has_several: bool, run: &ActualRun) -> String {
    match has_several {
        true => format!("{machine}, {}", run.dataflow),
        false => machine.to_owned(),
    }
}

fn show(
    machine: &str,
    has_several: bool,
    before: Option<&ActualRun>,
    now: &ActualRun,
    json: bool,
) -> Result<(), Failure> {
    if json {
        let line = json!({"message": "machine", "machine": machine, "actual": now});
        return output::write(&format!("{line}\n"));
    }
    let place = place(machine, has_several, now);
    if before.map(|run| &run.state) != Some(&now.state) {
        note!("{place}: {}", state_text(&now.state));
    }
    for (node, state) in &now.nodes {
        if before.and_then(|run| run.nodes.get(node)) != Some(state) {
            note!("{place}: {node} {state}");
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
