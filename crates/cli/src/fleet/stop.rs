//! `nervure stop` of a dataflow on several machines.

use std::{collections::BTreeMap, process::ExitCode};

use nervure_coordinator::ACTUAL;
use nervure_daemon::state::{Actual, ActualRun, parse};
use nervure_fleet::{
    Fleet,
    parts::{self, Part},
    progress::Progress,
    runs::{KnownRun, find_runs, has_stopped, order_stop},
};
use nervure_inspect::streams;
use nervure_protocol::{daemon_to_cli::NodeState, daemon_to_daemon::StreamReport};
use nervure_store::Store;
use serde_json::json;

use super::{
    drain::drain,
    here::{Alone, Here},
    interrupt::or_give_up,
    progress::listener,
};
use crate::{
    domain,
    failure::{Failure, IMPERFECT},
    inspect::arguments::StopArguments,
    output,
};

/// Stops the dataflow on all its machines, if it is one of the fleet. On a robot, without the coordinator, and
/// with `--kill`, it is stopped on this machine alone.
pub fn stop_if_fleet(arguments: &StopArguments) -> Result<Option<ExitCode>, Failure> {
    let name = arguments.target.dataflow.as_deref();
    let here = Here::find(name)?;
    let alone = |alone| {
        refuse_drain(arguments)?;
        here.stop(arguments, alone).map(Some)
    };
    let fleet = match here.is_empty() {
        true => match Fleet::of_orders()? {
            Some(fleet) => fleet,
            None => return Ok(None),
        },
        false if arguments.kill => return alone(Alone::Kill),
        false => match here.fleet() {
            Ok(fleet) => fleet,
            Err(why) => return alone(why),
        },
    };
    let runs = match find_runs(&fleet, name) {
        Err(error) if !here.is_empty() => return alone(Alone::Failed(error.into())),
        found => found?,
    };
    if runs.is_empty() {
        return Ok(None);
    }
    if arguments.drain.is_some() {
        for run in &runs {
            drain(&run.dataflow, arguments)?;
        }
    }
    refuse_kill(&runs, arguments)?;
    let all: Vec<&Part> = runs.iter().flat_map(|run| run.parts.keys()).collect();
    match order_stop(&fleet, &all) {
        Err(error) if !here.is_empty() => return alone(Alone::Failed(error.into())),
        ordered => ordered?,
    }
    stop(&fleet, &runs, arguments).map(Some)
}

fn refuse_drain(arguments: &StopArguments) -> Result<(), Failure> {
    match arguments.drain {
        None => Ok(()),
        Some(_) => Err(Failure::invalid(
            "`--drain` needs all machines of the dataflow, and only the part of this one can be stopped",
        )
        .hint("`nervure stop` without it stops this part")),
    }
}

fn refuse_kill(runs: &[KnownRun], arguments: &StopArguments) -> Result<(), Failure> {
    if !arguments.kill {
        return Ok(());
    }
    let name = &runs[0].dataflow;
    Err(Failure::invalid(format!(
        "`--kill` acts on its own machine, and no part of {name} is here"
    ))
    .hint(format!(
        "`nervure stop -d {name}{}` stops it on all its machines",
        domain::option()
    )))
}

/// Waits until runs have stopped that are to, and removes them.
fn stop(fleet: &Fleet, runs: &[KnownRun], arguments: &StopArguments) -> Result<ExitCode, Failure> {
    let all: Vec<&Part> = runs.iter().flat_map(|run| run.parts.keys()).collect();
    let mut progress = Progress::new(fleet, all.iter().copied().cloned(), listener(false));
    or_give_up(
        || Ok(progress.wait("stop", |_, run| has_stopped(run))?),
        || {
            note!(
                "the order to stop stays: a machine that cannot be reached now stops its part when it is back"
            )
        },
    )?;
    parts::remove(fleet, all)?;
    note_orphans(fleet, runs)?;
    let mut code = ExitCode::SUCCESS;
    for run in runs {
        let is_of_run = |(part, _): &(&Part, _)| run.parts.contains_key(part);
        let reports = progress.parts.iter().filter(is_of_run);
        let reports: Vec<_> = reports.filter_map(|(_, run)| run.as_ref()).collect();
        let streams = streams::merged(reports.iter().flat_map(|run| &run.streams));
        let states = reports.iter().flat_map(|run| &run.nodes);
        let failed: BTreeMap<_, _> = states
            .filter(|(_, state)| matches!(state, NodeState::Failed { .. }))
            .map(|(node, state)| (node, state.to_string()))
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

/// Notes runs of these dataflows that are missing in the store: they continue.
fn note_orphans(fleet: &Fleet, runs: &[KnownRun]) -> Result<(), Failure> {
    for entry in fleet.client.list(ACTUAL)?.entries {
        let machine = entry.key.strip_prefix(ACTUAL).unwrap_or_default();
        let actual: Actual = parse(&entry.key, &entry.value)?;
        let is_named = |orphan: &ActualRun| runs.iter().any(|run| run.dataflow == orphan.dataflow);
        let orphans = actual
            .runs
            .values()
            .filter(|run| run.is_orphan && is_named(run));
        for orphan in orphans {
            let name = &orphan.dataflow;
            note!(
                "warning: another run of {name} goes on on {machine}, unknown to the coordinator's store; \
                 `nervure stop -d {name}` once more stops it"
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use nervure_protocol::loss::LossCause;

    use super::*;

    #[test]
    fn losses_count_where_none_should_be_and_on_whichever_machine() {
        let report = |is_lossless, lost: &[(LossCause, u64)]| StreamReport {
            topic: "camera/image".to_owned(),
            machine: "edge".to_owned(),
            is_lossless,
            not_taken: 3,
            lost: lost.iter().cloned().collect(),
            ..StreamReport::default()
        };
        assert!(!have_lost(&[
            report(true, &[]),
            report(false, &[(LossCause::Queue, 9)])
        ]));
        assert!(have_lost(&[report(true, &[(LossCause::NotSent, 1)])]));
        // The machine of the consumers reports samples that it could not publish.
        let both = [report(true, &[]), report(true, &[(LossCause::Failed, 1)])];
        assert!(have_lost(&streams::merged(&both)));
    }
}
