//! Dataflows on several machines: `up`, `join`, `start`, `machine`, and `stop`, `pause` and `resume` of such a
//! dataflow.

mod add;
pub mod arguments;
mod daemon;
mod detached;
mod down;
mod drain;
mod here;
mod interrupt;
mod members;
mod part;
mod pause;
mod program;
mod progress;
mod start;
mod stop;
mod up;

pub use down::down;
pub use members::machine;
pub use part::run_part;
pub use pause::set_paused_if_fleet;
pub use start::start;
pub use stop::stop_if_fleet;
pub use up::up;

use std::process::ExitCode;

use nervure_coordinator::CallError;
use nervure_fleet::Error;
use nervure_store::StoreError;

use crate::{failure::Failure, output};

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        match error {
            // The listener of a command writes to stdout.
            Error::Listener(error) => output::unwritable(error),
            error => Self::of(&error),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Error::from(error).into()
    }
}

impl From<CallError> for Failure {
    fn from(error: CallError) -> Self {
        Error::from(error).into()
    }
}

/// Pairs this machine with a fleet, and runs its daemon, here or in the background.
pub fn join(arguments: &arguments::JoinArguments) -> Result<ExitCode, Failure> {
    match arguments.detach {
        true => detached::join(arguments),
        false => daemon::join(arguments),
    }
}
