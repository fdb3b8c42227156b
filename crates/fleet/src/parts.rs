//! Parts of runs on machines, and changes of their desired state.

use std::collections::{BTreeMap, BTreeSet};

use nervure_coordinator::DESIRED;
use nervure_daemon::state::{Desired, DesiredRun, RunId, change_desired};

use nervure_store::Store;

use crate::{Error, Fleet};

/// The part of a run on a machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Part {
    /// The machine.
    pub machine: String,
    /// The run.
    pub run: RunId,
}

/// The desired state of each part.
pub type Parts = BTreeMap<Part, DesiredRun>;

/// Changes the desired state of parts: calls `change` for each, with one write per machine.
pub fn change<'p>(
    fleet: &Fleet,
    parts: impl IntoIterator<Item = &'p Part>,
    change: impl Fn(&mut Desired, &Part),
) -> Result<(), Error> {
    let mut of_machines: BTreeMap<&str, BTreeSet<&Part>> = BTreeMap::new();
    for part in parts {
        of_machines.entry(&part.machine).or_default().insert(part);
    }
    for (machine, parts) in of_machines {
        change_desired(&fleet.client, machine, |desired| {
            for part in &parts {
                change(desired, part);
            }
        })?;
    }
    Ok(())
}

/// Changes the desired state of parts that have one, in any phase.
pub fn change_existing<'p>(
    fleet: &Fleet,
    parts: impl IntoIterator<Item = &'p Part>,
    to: impl Fn(&mut DesiredRun),
) -> Result<(), Error> {
    change(fleet, parts, |desired, part| {
        if let Some(run) = desired.runs.get_mut(&part.run) {
            to(run);
        }
    })
}

/// Makes parts desired.
pub fn insert(fleet: &Fleet, parts: &Parts) -> Result<(), Error> {
    let epoch = fleet.client.list(DESIRED)?.epoch.id;
    change(fleet, parts.keys(), |desired, part| {
        let run = DesiredRun {
            epoch,
            ..parts[part].clone()
        };
        desired.runs.insert(part.run.clone(), run);
    })
}

/// Removes parts: their machines stop what runs of them, and remove its files.
pub fn remove<'p>(fleet: &Fleet, parts: impl IntoIterator<Item = &'p Part>) -> Result<(), Error> {
    change(fleet, parts, |desired, part| {
        drop(desired.runs.remove(&part.run));
    })
}
