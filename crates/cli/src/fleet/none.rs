//! The fleet in a build without the feature `fleet`: this machine belongs to none.

use std::process::ExitCode;

use crate::{
    failure::Failure,
    inspect::arguments::{StopArguments, Target},
};

/// The dataflow of a command is one of this machine.
pub fn stop_if_fleet(_: &StopArguments) -> Result<Option<ExitCode>, Failure> {
    Ok(None)
}

/// The dataflow of a command is one of this machine.
pub fn set_paused_if_fleet(_: &Target, _: bool) -> Result<Vec<String>, Failure> {
    Ok(Vec::new())
}
