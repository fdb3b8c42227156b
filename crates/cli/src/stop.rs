//! `nervure stop`: stops a running dataflow.

use std::process::ExitCode;

use nervure_inspect::places::{self, Place};

use crate::{
    failure::Failure,
    fleet,
    inspect::{
        arguments::StopArguments,
        keeper_end::{end_keeper, of_all},
    },
};

/// Stops a dataflow, and waits until its keeper has ended.
pub fn stop(arguments: &StopArguments) -> Result<ExitCode, Failure> {
    if let Some(code) = fleet::stop_if_fleet(arguments)? {
        return Ok(code);
    }
    let found = places::find(arguments.target.dataflow.as_deref())?;
    let places: Option<Vec<&Place>> = found.parts.iter().map(places::Part::place).collect();
    let places = places.ok_or_else(|| {
        Failure::internal(format!("not all of `{}` can be reached", found.dataflow)).hint(
            "are all its machines on, and is their network up? `nervure machine list` shows them",
        )
    })?;
    let ended = places.into_iter().map(|place| end_keeper(place, arguments));
    ended.collect::<Result<_, _>>().map(of_all)
}
