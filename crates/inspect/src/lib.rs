//! The state of running dataflows, as every surface shows it: the command, the API, metrics.
//!
//! [`places`] finds a dataflow, on this machine or on others of the fleet. [`State`] is its state, from the
//! reports of its keepers and the counters of its edges. The other modules compute from both: an answer of
//! [`answers`], which `--json` and the API write unchanged, or values that a table shows.
//!
//! ```no_run
//! use nervure_inspect::{Error, explain};
//!
//! fn losses(dataflow: &str) -> Result<(), Error> {
//!     for edge in explain::explanations(dataflow, &[])?.edges {
//!         println!("{} -> {}: {:?} lost", edge.topic, edge.consumer, edge.lost);
//!     }
//!     Ok(())
//! }
//! ```
//!
//! Nothing here writes to stdout or stderr. Functions that take a `program` name it to keepers and daemons,
//! which name it in their messages.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod activity;
pub mod answers;
pub mod daemon;
pub mod edges;
mod error;
pub mod explain;
pub mod format;
pub mod holders;
pub mod lint;
pub mod listing;
pub mod load;
pub mod logs;
pub mod losses;
pub mod observing;
pub mod params;
pub mod places;
pub mod processes;
pub mod publishing;
mod remedies;
pub mod services;
pub mod state;
pub mod status;
pub mod streams;
pub mod threads;
pub mod topics;
pub mod transforms;

pub use error::{Error, Fault, INTERNAL, INVALID};
pub use state::State;
