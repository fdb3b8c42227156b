//! Signals that arrive while a thread waits for news.
//!
//! Python's signal handlers run when its main thread checks for signals, so a wait has to end when
//! a signal arrives. The system call ends by itself only if the signal finds this thread asleep in
//! it. A signal that arrives just before, or that the kernel delivers to another thread, only sets
//! a flag in Python. So the wait starts with a slice of 50 ms, in which most waits end. If it goes
//! on, the thread also sleeps on a socket to which Python's C handler writes
//! (`signal.set_wakeup_fd`), and needs no periodic checks.

use nervure_node::binding::{WaitPlan, Waiter};
use nervure_node::{Waited, monotonic_nanos};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyBytes};
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;

/// The longest wait without a check for signals that do not interrupt it.
pub(crate) const SIGNAL_CHECK_NANOS: u64 = 50_000_000;

/// The socket pair that Python's C handler writes to. It is kept as long as the node, because a
/// handler in another thread may be about to write to it.
#[derive(Default)]
pub(crate) struct Wakeup(OnceLock<(UnixStream, UnixStream)>);

impl Wakeup {
    fn sockets(&self) -> std::io::Result<&(UnixStream, UnixStream)> {
        if let Some(sockets) = self.0.get() {
            return Ok(sockets);
        }
        let (reader, writer) = UnixStream::pair()?;
        reader.set_nonblocking(true)?;
        writer.set_nonblocking(true)?;
        Ok(self.0.get_or_init(|| (reader, writer)))
    }
}

/// The signals that arrive during one wait.
pub(crate) struct Signals<'a, 'py> {
    wakeup: &'a Wakeup,
    check_at: u64,
    watched: Watched<'a, 'py>,
}

enum Watched<'a, 'py> {
    /// The wait is still in its first slice.
    NotYet,
    /// This thread is not Python's main thread, so it runs no handlers.
    ByMainThread,
    /// This thread watches the socket.
    Here(Watch<'a, 'py>),
}

/// Detects signals in a wait that is detached from the interpreter.
#[derive(Clone, Copy)]
pub(crate) struct SignalWatch<'a> {
    check_at: Option<u64>,
    signals: Option<BorrowedFd<'a>>,
}

impl<'a, 'py> Signals<'a, 'py> {
    pub(crate) fn new(wakeup: &'a Wakeup) -> Self {
        Self {
            wakeup,
            check_at: monotonic_nanos() + SIGNAL_CHECK_NANOS,
            watched: Watched::NotYet,
        }
    }

    pub(crate) fn watch(&self) -> SignalWatch<'_> {
        SignalWatch {
            check_at: matches!(self.watched, Watched::NotYet).then_some(self.check_at),
            signals: match &self.watched {
                Watched::Here(watch) => Some(watch.reader().as_fd()),
                Watched::NotYet | Watched::ByMainThread => None,
            },
        }
    }

    /// Runs the handlers of the signals that arrived. After the first slice, the wait ends for
    /// every signal.
    pub(crate) fn check(&mut self, py: Python<'py>) -> PyResult<()> {
        if self.watch().is_over() {
            self.watched = Watch::begin(py, self.wakeup)?;
            // Without a descriptor for a socket, the wait continues in slices.
            self.check_at = monotonic_nanos() + SIGNAL_CHECK_NANOS;
        }
        if let Watched::Here(watch) = &mut self.watched {
            watch.drain();
        }
        py.check_signals()
    }
}

impl SignalWatch<'_> {
    pub(crate) fn wait(self, waiter: &Waiter, plan: WaitPlan) -> Waited {
        match self.signals {
            Some(signals) => waiter.wait_beside(signals, plan),
            None => waiter.wait(
                self.check_at
                    .map_or(plan, |until| plan.no_later_than(until)),
            ),
        }
    }

    /// Whether it is time to check for signals.
    pub(crate) fn is_over(self) -> bool {
        self.check_at
            .is_some_and(|until| monotonic_nanos() >= until)
    }
}

/// While it lives, Python's C handler writes to its socket.
struct Watch<'a, 'py> {
    py: Python<'py>,
    sockets: &'a (UnixStream, UnixStream),
    /// The descriptor that the handler wrote to before, or -1. The bytes that its owner (an event
    /// loop) missed are passed on at the end.
    before: RawFd,
    received: Vec<u8>,
}

impl<'a, 'py> Watch<'a, 'py> {
    fn begin(py: Python<'py>, wakeup: &'a Wakeup) -> PyResult<Watched<'a, 'py>> {
        let Ok(sockets) = wakeup.sockets() else {
            return Ok(Watched::NotYet);
        };
        match set_wakeup_fd(py, sockets.1.as_raw_fd()) {
            Ok(before) => Ok(Watched::Here(Self {
                py,
                sockets,
                before,
                received: Vec::new(),
            })),
            Err(error) if error.is_instance_of::<PyValueError>(py) => Ok(Watched::ByMainThread),
            Err(error) => Err(error),
        }
    }

    fn reader(&self) -> &'a UnixStream {
        &self.sockets.0
    }

    fn drain(&mut self) {
        // Always ends with `WouldBlock`. The bytes read until then are kept.
        let _ = self.reader().read_to_end(&mut self.received);
    }

    fn end(&mut self) -> PyResult<()> {
        let found = set_wakeup_fd(self.py, self.before)?;
        if found != self.sockets.1.as_raw_fd() {
            // A signal handler set another descriptor meanwhile: keep that one.
            set_wakeup_fd(self.py, found)?;
        }
        self.drain();
        if self.before >= 0 && !self.received.is_empty() {
            let received = PyBytes::new(self.py, &self.received);
            self.py
                .import("os")?
                .call_method1("write", (self.before, received))?;
        }
        Ok(())
    }
}

impl Drop for Watch<'_, '_> {
    fn drop(&mut self) {
        // Fails if the previous descriptor was closed meanwhile. Then no one reads from it.
        if self.end().is_err() {
            let _ = set_wakeup_fd(self.py, -1);
        }
    }
}

/// Returns the previous descriptor, or -1 if there was none.
fn set_wakeup_fd(py: Python<'_>, fd: RawFd) -> PyResult<RawFd> {
    // A full socket still wakes the reader, so the warning is of no use.
    let options = [("warn_on_full_buffer", false)].into_py_dict(py)?;
    py.import("signal")?
        .getattr("set_wakeup_fd")?
        .call((fd,), Some(&options))?
        .extract()
}
