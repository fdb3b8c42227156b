//! The runs that a fleet desires, found by name, and stopped.

use std::collections::BTreeMap;

use nervure_coordinator::DESIRED;
use nervure_daemon::state::{ActualRun, Desired, DesiredRun, Phase, RunState, parse};
use nervure_node::running;
use nervure_store::Store;

use crate::{
    Error, Fleet,
    connection::folder,
    parts::{self, Part, Parts},
    placement::is_instance_of,
    progress::Progress,
};

/// A run that is desired somewhere.
#[derive(Clone, Debug)]
pub struct KnownRun {
    /// The name of the dataflow or instance.
    pub dataflow: String,
    /// Its desired state on each machine.
    pub parts: Parts,
}

/// All runs that are desired.
pub fn desired_runs(fleet: &Fleet) -> Result<Vec<KnownRun>, Error> {
    let mut runs: BTreeMap<String, KnownRun> = BTreeMap::new();
    for entry in fleet.client.list(DESIRED)?.entries {
        let machine = entry.key.strip_prefix(DESIRED).unwrap_or_default();
        let desired: Desired = parse(&entry.key, &entry.value)?;
        for (id, run) in desired.runs {
            let known = runs.entry(id.clone()).or_insert_with(|| KnownRun {
                dataflow: run.dataflow.clone(),
                parts: Parts::new(),
            });
            let machine = machine.to_owned();
            known.parts.insert(Part { machine, run: id }, run);
        }
    }
    let mut runs: Vec<_> = runs.into_values().collect();
    runs.sort_by(|one, other| one.dataflow.cmp(&other.dataflow));
    Ok(runs)
}

/// The named run, or all instances of the named dataflow, or the only run; none if that is not of the
/// fleet.
pub fn find_runs(fleet: &Fleet, dataflow: Option<&str>) -> Result<Vec<KnownRun>, Error> {
    let named = running::named(dataflow);
    // Without a name, the only dataflow that runs here. Otherwise the command reports the error.
    let named = named.or_else(|| running::find(None).ok().map(|address| address.dataflow));
    let mut runs = match desired_runs(fleet) {
        Ok(runs) => runs,
        // A dataflow of this host alone is changed without the coordinator.
        Err(_) if named.as_deref().is_some_and(runs_here_alone) => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let Some(name) = named else {
        runs.truncate(if runs.len() == 1 { 1 } else { 0 });
        return Ok(runs);
    };
    // An interrupted roll has left two.
    let has_name = |run: &KnownRun| run.dataflow == name;
    match runs.iter().any(has_name) {
        true => runs.retain(has_name),
        // A dataflow of this host may have the name too.
        false if runs_here_alone(&name) => runs.clear(),
        false => runs.retain(|run| is_instance_of(&run.dataflow, &name)),
    }
    Ok(runs)
}

/// Whether the named run, or an instance of the named dataflow, is desired in the fleet.
pub fn has_run(dataflow: &str) -> Result<bool, Error> {
    let Some(fleet) = Fleet::connect_if_paired()? else {
        return Ok(false);
    };
    Ok(!find_runs(&fleet, Some(dataflow))?.is_empty())
}

/// Whether a dataflow of this name runs here that no daemon has started.
fn runs_here_alone(name: &str) -> bool {
    let Ok(address) = running::find(Some(name)) else {
        return false;
    };
    let runs = folder().map(|folder| folder.runs());
    let opened = running::Connection::open(&address, "stop");
    match (opened, runs) {
        (Ok(opened), Ok(runs)) => opened
            .welcome()
            .file
            .as_ref()
            .is_none_or(|file| !std::path::Path::new(file).starts_with(runs)),
        _ => false,
    }
}

/// Stops parts, and waits until they have. They stay desired, with their reports.
pub fn await_stop<'f>(
    fleet: &Fleet,
    all: &[&Part],
    mut progress: Progress<'f>,
) -> Result<Progress<'f>, Error> {
    order_stop(fleet, all)?;
    progress.wait("stop", |_, run| has_stopped(run))?;
    Ok(progress)
}

/// Makes parts stop.
///
/// # Errors
/// If the store cannot be changed.
pub fn order_stop(fleet: &Fleet, all: &[&Part]) -> Result<(), Error> {
    let stop = |run: &mut DesiredRun| run.phase = Phase::Stop;
    parts::change_existing(fleet, all.iter().copied(), stop)
}

/// Whether a part has ended, for any reason.
pub fn has_stopped(run: &ActualRun) -> bool {
    matches!(run.state, RunState::Ended | RunState::Failed { .. })
}
