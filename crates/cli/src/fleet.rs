//! Dataflows on several machines: `up`, `join`, `start`, `machine`, and `stop`, `pause` and `resume` of such a
//! dataflow.

pub mod arguments;
mod binding;
pub mod connection;
mod daemon;
mod down;
mod launch;
mod members;
mod part;
mod parts;
mod pause;
mod placement;
mod progress;
mod roll;
mod start;
mod stop;

pub use daemon::{join, up};
pub use down::down;
pub use members::machine;
#[cfg(feature = "api")]
pub use members::{clocks, machines_of_fleet};
pub use part::run_part;
pub use pause::set_paused_if_fleet;
pub use start::start;
pub use stop::stop_if_fleet;
