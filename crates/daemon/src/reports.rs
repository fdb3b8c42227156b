//! The last reports of the machines of the fleet.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use crate::state::{Actual, ActualRun, RunId, RunState};

/// The last report of each machine.
#[derive(Debug, Default)]
pub(crate) struct Reports(Mutex<BTreeMap<String, Actual>>);

impl Reports {
    /// Keeps the report of a machine; `None` if it was removed.
    pub fn keep(&self, machine: &str, actual: Option<Actual>) {
        let mut reports = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match actual {
            Some(actual) => reports.insert(machine.to_owned(), actual),
            None => reports.remove(machine),
        };
    }

    /// The runs in the last report of a machine, other than those that have ended.
    pub fn running(&self, machine: &str) -> Vec<(RunId, ActualRun)> {
        let reports = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let runs = reports.get(machine).map(|actual| actual.runs.clone());
        let is_over =
            |run: &ActualRun| matches!(run.state, RunState::Ended | RunState::Failed { .. });
        let runs = runs.into_iter().flatten();
        runs.filter(|(_, run)| !is_over(run)).collect()
    }
}
