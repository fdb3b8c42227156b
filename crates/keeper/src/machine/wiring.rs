//! The edges between processes.
//!
//! An edge of the plan has at most one live instance at a time. It is made when one end says Hello
//! while the other end's process is alive, and each end is attached once it is connected. When an
//! end dies:
//!
//! - the consumer, to be restarted, on a `block` edge: the instance is *suspended*: the producer
//!   waits, and the next process of the consumer inherits the region with its queued samples;
//! - the consumer, otherwise: the producer is detached, and the next process gets a new instance;
//! - the producer: a connected consumer is notified, drains the region and gets a new instance with
//!   the next process. A consumer without a process inherits the queued samples of a `block` edge,
//!   as does its next process if it fails before it has drained the region of the producer's last
//!   process.

mod pairs;
mod reports;
mod rewiring;
mod state;

pub(super) use reports::EdgeFault;
pub(super) use rewiring::Rewiring;
pub use state::GoneQueue;
pub(super) use state::Wiring;
