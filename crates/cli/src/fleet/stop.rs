//! `nervure stop` of a dataflow on several machines.

use std::{collections::BTreeMap, process::ExitCode};

use nervure_coordinator::DESIRED;
use nervure_daemon::state::{Desired, DesiredRun, Phase, RunState, parse};
use nervure_node::running;
use nervure_protocol::daemon_to_daemon::StreamReport;
use nervure_store::Store;
use serde_json::json;

use super::{
    connection::{Fleet, store_failure},
    parts::{self, Part, Parts},
    placement::is_instance_of,
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
    pub dataflow: String,
    /// What is desired of it on each machine.
    pub parts: Parts,
}

/// All runs that are desired.
pub fn desired_runs(fleet: &Fleet) -> Result<Vec<KnownRun>, Failure> {
    let mut runs: BTreeMap<String, KnownRun> = BTreeMap::new();
    for entry in fleet.client.list(DESIRED).map_err(store_failure)?.entries {
        let machine = entry.key.strip_prefix(DESIRED).unwrap_or_default();
        let desired: Desired = parse(&entry.key, &entry.value).map_err(store_failure)?;
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

/// Stops the dataflow on all its machines, if it is one of the fleet.
pub fn stop_if_fleet(arguments: &StopArguments) -> Result<Option<ExitCode>, Failure> {
    let Some(fleet) = Fleet::connect_if_paired()? else {
        return Ok(None);
    };
    let runs = find_runs(&fleet, arguments.target.dataflow.as_deref())?;
    match runs.is_empty() {
        true => Ok(None),
        false => stop(&fleet, &runs, arguments).map(Some),
    }
}

/// The named run, or all instances of the named dataflow, or the only run; none if that is not of the
/// fleet.
pub fn find_runs(fleet: &Fleet, dataflow: Option<&str>) -> Result<Vec<KnownRun>, Failure> {
    let named = running::named(dataflow);
    // Without a name it is the only one that runs here; the error for others is that of the command.
    let named = named.or_else(|| running::find(None).ok().map(|address| address.dataflow));
    let mut runs = match desired_runs(fleet) {
        Ok(runs) => runs,
        // A dataflow of this host alone is changed without the coordinator.
        Err(_) if named.as_deref().is_some_and(runs_here_alone) => return Ok(Vec::new()),
        Err(failure) => return Err(failure),
    };
    let Some(name) = named else {
        runs.truncate(if runs.len() == 1 { 1 } else { 0 });
        return Ok(runs);
    };
    // Of a roll that was interrupted there are two.
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
#[cfg(feature = "api")]
pub fn has_run(dataflow: &str) -> Result<bool, Failure> {
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

fn stop(fleet: &Fleet, runs: &[KnownRun], arguments: &StopArguments) -> Result<ExitCode, Failure> {
    if arguments.drain.is_some() {
        return Err(Failure::invalid(
            "`--drain` is for dataflows of one machine",
        ));
    }
    if arguments.kill {
        return Err(
            Failure::invalid("`--kill` is for dataflows of one machine").hint(format!(
                "`nervure stop -d {}{}` stops it on all its machines",
                runs[0].dataflow,
                domain::option()
            )),
        );
    }
    let all: Vec<&Part> = runs.iter().flat_map(|run| run.parts.keys()).collect();
    let progress = await_stop(
        fleet,
        &all,
        Progress::new(fleet, all.iter().copied().cloned(), false),
    )?;
    parts::remove(fleet, all)?;
    let mut code = ExitCode::SUCCESS;
    for run in runs {
        let is_of_run = |(part, _): &(&Part, _)| run.parts.contains_key(part);
        let reports = progress.parts.iter().filter(is_of_run);
        let reports: Vec<_> = reports.filter_map(|(_, run)| run.as_ref()).collect();
        let streams = streams::merged(reports.iter().flat_map(|run| &run.streams));
        let states = reports.iter().flat_map(|run| &run.nodes);
        let failed: BTreeMap<_, _> = states
            .filter(|(_, state)| state.starts_with("failed"))
            .collect();
        if !failed.is_empty() || have_lost(&streams) {
            code = ExitCode::from(IMPERFECT);
        }
        if arguments.target.json {
            output::write(&format!(
                "{}\n",
                json!({"dataflow": run.dataflow, "stopped": true, "streams": streams, "failed": failed})
            ))?;
            continue;
        }
        let mut text = String::new();
        for report in &streams {
            let lost = match report.lost.is_empty() {
                true => "none lost".to_owned(),
                false => format!("lost: {}", streams::causes(report)),
            };
            let not_taken = match report.not_taken {
                0 => String::new(),
                count => format!(", {count} not taken at the stop"),
            };
            text += &format!(
                "{} -> {}: {} sent, {} delivered, {lost}{not_taken}\n",
                report.topic, report.machine, report.accepted, report.delivered
            );
        }
        output::write(&format!("{text}{} has stopped\n", run.dataflow))?;
    }
    Ok(code)
}

/// Whether streams have lost samples that none should be lost of.
fn have_lost(streams: &[StreamReport]) -> bool {
    let mut lossless = streams.iter().filter(|stream| stream.is_lossless);
    lossless.any(|stream| !stream.lost.is_empty())
}

/// Stops parts, and waits until they have. They stay desired, with their reports.
pub fn await_stop<'f>(
    fleet: &Fleet,
    all: &[&Part],
    mut progress: Progress<'f>,
) -> Result<Progress<'f>, Failure> {
    let stop = |run: &mut DesiredRun| run.phase = Phase::Stop;
    parts::change_existing(fleet, all.iter().copied(), stop)?;
    let has_ended = |run: &_| matches!(run, RunState::Ended | RunState::Failed { .. });
    progress.wait("stop", |_, run| has_ended(&run.state))?;
    Ok(progress)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_count_where_none_should_be_and_on_whichever_machine() {
        let report = |is_lossless, lost: &[(&str, u64)]| StreamReport {
            topic: "camera/image".to_owned(),
            machine: "edge".to_owned(),
            is_lossless,
            not_taken: 3,
            lost: lost
                .iter()
                .map(|(cause, count)| ((*cause).to_owned(), *count))
                .collect(),
            ..StreamReport::default()
        };
        assert!(!have_lost(&[
            report(true, &[]),
            report(false, &[("queue", 9)])
        ]));
        assert!(have_lost(&[report(true, &[("not sent", 1)])]));
        // The machine of the consumers reports what it could not publish.
        let both = [report(true, &[]), report(true, &[("failed", 1)])];
        assert!(have_lost(&streams::merged(&both)));
    }
}
