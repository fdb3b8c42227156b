//! The daemon of a machine.
//!
//! It watches the desired state of its machine (`desired/<machine>` in the coordinator's store), keeps the
//! last revision on disk, brings its keepers in line with it, and writes the actual state
//! (`actual/<machine>`). There is no other command protocol. For dataflows of several machines it joins as
//! the stand-ins of its part, and carries their samples over the link.
//!
//! Keepers and nodes do not depend on it: they outlive it, and the next daemon finds them.
//! [`machine`] decides, without a clock, a file or a process; [`serve`] is the thin shell around it.

mod alive;
mod announce;
mod arrivals;
mod bridge;
pub mod bundle;
pub mod by_hand;
pub mod clock;
mod confirmed;
mod crossing;
pub mod folder;
mod incoming;
mod kept;
pub mod lease;
pub mod lossless;
pub mod machine;
pub mod node_changes;
mod outgoing;
mod part;
mod pauses;
pub mod peers;
mod programs;
mod replacement;
mod reports;
mod runs;
pub mod runs_here;
mod sender;
mod service_calls;
mod shell;
mod stand_ins;
pub mod state;
mod sync;
mod threads;
mod tools;
mod totals;
mod waiting;

pub use folder::PAIRING;
pub use part::{PartProgram, PartSpec, StandIns};
pub use shell::{Config, DaemonError, serve};
pub use sync::PEERS;
pub use tools::{Host, socket_name};
