//! `nervure pause` and `nervure resume` of a dataflow on several machines.

use nervure_daemon::state::{RunState, change_desired};

use super::{
    connection::{Fleet, store_failure},
    progress::Progress,
    stop::find_run,
};
use crate::{failure::Failure, inspect::arguments::Target};

/// Pauses the dataflow on all its machines, or lets it go on, if it is one of the fleet. Returns its
/// name.
pub fn set_paused_if_fleet(target: &Target, is_paused: bool) -> Result<Option<String>, Failure> {
    let Some(fleet) = Fleet::connect_if_paired()? else {
        return Ok(None);
    };
    let Some(run) = find_run(&fleet, target.dataflow.as_deref())? else {
        return Ok(None);
    };
    for machine in &run.machines {
        change_desired(&fleet.client, machine, |state| {
            if let Some(run) = state.runs.get_mut(&run.id) {
                run.is_paused = is_paused;
            }
        })
        .map_err(store_failure)?;
    }
    let what = match is_paused {
        true => "pause",
        false => "go on",
    };
    let mut progress = Progress::new(&fleet, &run.id, run.machines.iter().cloned(), false);
    progress.wait(what, |_, run| {
        run.is_paused == is_paused || matches!(run.state, RunState::Ended)
    })?;
    Ok(Some(run.dataflow))
}
