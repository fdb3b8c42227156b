//! Threads. The system may refuse one, which `std::thread::spawn` answers with a panic.

use std::thread::{Builder, JoinHandle};

use crate::Error;

/// Starts a thread.
///
/// # Errors
/// If the system has none left.
pub fn spawn<T: Send + 'static>(
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Error> {
    Builder::new().spawn(run).map_err(Error::Thread)
}
