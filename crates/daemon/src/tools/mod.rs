//! Commands on dataflows of other machines.
//!
//! A command asks the daemon of its machine ([`local`]); that opens a stream to the other machine's
//! daemon ([`serve`]), which speaks with its keeper as a client, and answers on a stream in the other
//! direction. [`permission`] is the one place where a request of another machine is allowed or
//! refused.

mod calls;
mod dataflows;
mod local;
mod pages;
mod permission;
mod serve;

pub(crate) use dataflows::Dataflows;
pub(crate) use local::listen;
pub(crate) use serve::Served;

use nervure_protocol::daemon_to_daemon::{LogFilter, Usage};
use nervure_protocol::report::LogRecord;

use crate::state::Resources;

/// Services to the daemon from the command that it is part of.
pub trait Host: Send + Sync {
    /// The CPU time and memory of the node with this process; `None` if it has ended.
    fn usage(&self, pid: u32) -> Option<Usage>;

    /// The resources of this machine.
    fn resources(&self) -> Resources;

    /// The log records in a folder that pass the filter, by time.
    ///
    /// # Errors
    /// The reason, for people.
    fn logs(&self, folder: &std::path::Path, filter: &LogFilter) -> Result<Vec<LogRecord>, String>;
}

/// The name of the socket of a daemon for the commands of its machine, in the abstract namespace.
pub fn socket_name(own_key: nervure_identity::PublicKey) -> String {
    let uid = rustix::process::geteuid().as_raw();
    format!("nervure-daemon/{uid}/{own_key}")
}
