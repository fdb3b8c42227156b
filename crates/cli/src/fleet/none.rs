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

/// No run is of a fleet.
#[cfg(feature = "api")]
pub fn has_run(_: &str) -> Result<bool, Failure> {
    Ok(false)
}

/// The dataflow of a command is one of this machine.
pub fn set_paused_if_fleet(_: &Target, _: bool) -> Result<Vec<String>, Failure> {
    Ok(Vec::new())
}

/// The connection to the fleet.
pub mod connection {
    use nervure_node::running::{ConnectionError, DaemonConnection};

    use crate::failure::Failure;

    /// Whether this machine belongs to a fleet.
    pub fn belongs_to_fleet() -> Result<bool, Failure> {
        Ok(false)
    }

    /// The process of the daemon of this machine.
    pub fn daemon_process() -> Result<Option<u32>, Failure> {
        Ok(None)
    }

    /// The daemon of this machine.
    pub fn daemon(_: &str) -> Result<Option<DaemonConnection>, Result<ConnectionError, Failure>> {
        Ok(None)
    }
}
