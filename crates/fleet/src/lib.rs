//! Dataflows on the machines of a fleet.
//!
//! A fleet has a desired state, which [`parts`] changes, and an actual one, which [`progress`] follows.
//! [`placement`] decides which machine has which role, without I/O. [`launch`] prepares and starts runs;
//! [`roll`] and [`roll_node`] replace them one after the other; [`runs`] finds and stops them.
//!
//! Nothing here writes to stdout or stderr. What happens meanwhile goes to a listener.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod answers;
pub mod binding;
pub mod connection;
mod error;
pub mod launch;
pub mod members;
pub mod parts;
pub mod placement;
pub mod progress;
pub mod roll;
pub mod roll_node;
pub mod runs;
mod stopped;

pub use connection::Fleet;
pub use error::Error;
