//! `nervure stop` of a dataflow on several machines.

use std::{collections::BTreeMap, process::ExitCode};

use nervure_coordinator::DESIRED;
use nervure_daemon::state::{Desired, Phase, RunState, change_desired, parse};
use nervure_node::running;
use nervure_store::Store;
use serde_json::json;

use super::{
    connection::{Fleet, store_failure},
    progress::Progress,
};
use crate::{
    domain,
    failure::{Failure, IMPERFECT},
    inspect::{arguments::StopArguments, streams},
    output,
};

/// A run that is desired somewhere.
#[derive(Clone, Debug)]
pub struct KnownRun {
    pub id: String,
    pub dataflow: String,
    /// The machines that have a part of it.
    pub machines: Vec<String>,
}

/// All runs that are desired.
pub fn desired_runs(fleet: &Fleet) -> Result<Vec<KnownRun>, Failure> {
    let mut runs: BTreeMap<String, KnownRun> = BTreeMap::new();
    for entry in fleet.client.list(DESIRED).map_err(store_failure)?.entries {
        let machine = entry.key.strip_prefix(DESIRED).unwrap_or_default();
        let desired: Desired = parse(&entry.key, &entry.value).map_err(store_failure)?;
        for (id, run) in desired.runs {
            let known = runs.entry(id.clone()).or_insert(KnownRun {
                id,
                dataflow: run.dataflow,
                machines: Vec::new(),
            });
            known.machines.push(machine.to_owned());
        }
    }
    Ok(runs.into_values().collect())
}

/// Stops the dataflow on all its machines, if it is one of the fleet.
pub fn stop_if_fleet(arguments: &StopArguments) -> Result<Option<ExitCode>, Failure> {
    let Some(fleet) = Fleet::connect_if_paired()? else {
        return Ok(None);
    };
    let run = find_run(&fleet, arguments.target.dataflow.as_deref())?;
    run.map(|run| stop(&fleet, &run, arguments)).transpose()
}

/// The named run, or the only one; `None` if that is not one of the fleet.
pub fn find_run(fleet: &Fleet, dataflow: Option<&str>) -> Result<Option<KnownRun>, Failure> {
    let named = running::named(dataflow);
    // Without a name it is the only one that runs here; the error for others is that of the command.
    let named = named.or_else(|| running::find(None).ok().map(|address| address.dataflow));
    let runs = match desired_runs(fleet) {
        Ok(runs) => runs,
        // A dataflow of this host alone is changed without the coordinator.
        Err(_) if named.as_deref().is_some_and(runs_here_alone) => return Ok(None),
        Err(failure) => return Err(failure),
    };
    Ok(match (&named, runs.as_slice()) {
        (Some(name), runs) => runs.iter().find(|run| run.dataflow == *name).cloned(),
        (None, [only]) => Some(only.clone()),
        (None, _) => None,
    })
}

/// Whether a dataflow of this name runs here that no daemon has started.
fn runs_here_alone(name: &str) -> bool {
    let Ok(address) = running::find(Some(name)) else {
        return false;
    };
    let runs = super::connection::folder().map(|folder| folder.runs());
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

fn stop(fleet: &Fleet, run: &KnownRun, arguments: &StopArguments) -> Result<ExitCode, Failure> {
    if arguments.kill {
        return Err(
            Failure::invalid("`--kill` is for dataflows of one machine").hint(format!(
                "`nervure stop -d {}{}` stops it on all its machines",
                run.dataflow,
                domain::option()
            )),
        );
    }
    for machine in &run.machines {
        change_desired(&fleet.client, machine, |state| {
            if let Some(run) = state.runs.get_mut(&run.id) {
                run.phase = Phase::Stop;
            }
        })
        .map_err(store_failure)?;
    }
    let mut progress = Progress::new(fleet, &run.id, run.machines.iter().cloned(), false);
    progress.wait("stop", |_, run| {
        matches!(run.state, RunState::Ended | RunState::Failed { .. })
    })?;
    let reports = progress.machines.values().flatten();
    let reports = streams::merged(reports.flat_map(|run| &run.streams));
    for machine in &run.machines {
        change_desired(&fleet.client, machine, |state| {
            drop(state.runs.remove(&run.id))
        })
        .map_err(store_failure)?;
    }
    let failed: BTreeMap<_, _> = progress
        .machines
        .values()
        .flatten()
        .flat_map(|run| {
            run.nodes
                .iter()
                .filter(|(_, state)| state.starts_with("failed"))
        })
        .collect();
    if arguments.target.json {
        output::write(&format!(
            "{}\n",
            json!({"dataflow": run.dataflow, "stopped": true, "streams": reports, "failed": failed})
        ))?;
    } else {
        let mut text = String::new();
        for report in &reports {
            let lost = match report.lost.is_empty() {
                true => "none lost".to_owned(),
                false => format!("lost: {}", streams::causes(report)),
            };
            text += &format!(
                "{} -> {}: {} sent, {} delivered, {lost}\n",
                report.topic, report.machine, report.accepted, report.delivered
            );
        }
        output::write(&format!("{text}{} has stopped\n", run.dataflow))?;
    }
    Ok(match failed.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(IMPERFECT),
    })
}
