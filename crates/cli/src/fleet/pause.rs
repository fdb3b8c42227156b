//! `nervure pause` and `nervure resume` of a dataflow on several machines.

use nervure_daemon::state::{DesiredRun, RunState};

use super::{
    connection::Fleet,
    parts::{self, Part},
    progress::Progress,
    stop::find_runs,
};
use crate::{failure::Failure, inspect::arguments::Target};

/// Pauses the dataflow on all its machines, or lets it go on, if it is one of the fleet. Returns its
/// name, or those of its instances; none if it is not of the fleet.
pub fn set_paused_if_fleet(target: &Target, is_paused: bool) -> Result<Vec<String>, Failure> {
    let Some(fleet) = Fleet::connect_if_paired()? else {
        return Ok(Vec::new());
    };
    let runs = find_runs(&fleet, target.dataflow.as_deref())?;
    if runs.is_empty() {
        return Ok(Vec::new());
    }
    let all: Vec<&Part> = runs.iter().flat_map(|run| run.parts.keys()).collect();
    let pause = |run: &mut DesiredRun| run.is_paused = is_paused;
    parts::change_existing(&fleet, all.iter().copied(), pause)?;
    let what = match is_paused {
        true => "pause",
        false => "go on",
    };
    let mut progress = Progress::new(&fleet, all.into_iter().cloned(), false);
    progress.wait(what, |_, run| {
        run.is_paused == is_paused || matches!(run.state, RunState::Ended)
    })?;
    Ok(runs.into_iter().map(|run| run.dataflow).collect())
}
