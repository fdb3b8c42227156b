//! The link between hosts: it carries samples over lossy, slow or interrupted wireless at close to
//! the capacity of the channel.
//!
//! All modules except the thin `shell` are sans-IO: state machines that take the time and received
//! packets, and return packets to send. So the whole link runs on a simulated network under a
//! virtual clock, and every failure can be replayed from its seed.

pub mod budget;
pub mod carrier;
pub mod coding;
pub mod endpoint;
pub mod memory;
mod path_watch;
pub mod policy;
pub mod qos;
mod random;
pub mod rate;
pub mod receiver;
pub mod sender;
pub mod session;
pub mod shell;
mod streams;
mod timed;
pub mod trace;
mod window;
pub mod wire;

#[cfg(test)]
mod tests;
