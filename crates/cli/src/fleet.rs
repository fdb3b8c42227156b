//! Dataflows on several machines: `up`, `join`, `start`, `machine`, and `stop`, `pause` and `resume` of such a
//! dataflow.

mod add;
pub mod answers;
pub mod arguments;
mod binding;
pub mod connection;
mod daemon;
mod detached;
mod down;
mod drain;
mod here;
mod interrupt;
mod launch;
mod members;
mod part;
mod parts;
mod pause;
mod placement;
mod program;
mod progress;
mod roll;
mod roll_node;
mod start;
mod stop;
mod up;

pub use down::down;
pub use members::machine;
#[cfg(feature = "api")]
pub use members::{clocks, machines_of_fleet};
pub use part::run_part;
pub use pause::set_paused_if_fleet;
pub use start::start;
#[cfg(feature = "api")]
pub use stop::has_run;
pub use stop::stop_if_fleet;
pub use up::up;

use std::process::ExitCode;

use crate::failure::Failure;

/// Pairs this machine with a fleet, and runs its daemon, here or in the background.
pub fn join(arguments: &arguments::JoinArguments) -> Result<ExitCode, Failure> {
    match arguments.detach {
        true => detached::join(arguments),
        false => daemon::join(arguments),
    }
}
