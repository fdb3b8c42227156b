//! Threads. The system may refuse one, which `std::thread::spawn` answers with a panic.

use std::{
    io,
    thread::{Builder, JoinHandle},
};

use crate::failure::Failure;

/// Starts a thread.
///
/// # Errors
/// If the system has none left.
pub fn spawn<T: Send + 'static>(
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Failure> {
    Builder::new().spawn(run).map_err(refused)
}

/// The failure to start a thread.
pub fn refused(error: io::Error) -> Failure {
    Failure::internal("cannot start a thread")
        .because(error)
        .hint("`ulimit -u`, or `TasksMax` of a systemd unit, limits their number; `ulimit -v` their memory")
}
