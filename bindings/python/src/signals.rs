//! Signals that come while a thread waits for news.
//!
//! Python's handlers run when its main thread looks for them, so a wait has to end when a signal comes. The system call
//! ends by itself only for a signal that finds this thread asleep in it. One that comes in the moment before, or that the
//! kernel gives to another thread, leaves its mark in Python and no more. So a wait is short at first, as most are; if it
//! goes on, Python's C handler writes to a socket beside which the thread sleeps (`signal.set_wakeup_fd`), and nobody
//! needs to look every so often.

use nervure_node::{Rest, Waited, Waiter, monotonic_nanos};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyBytes};
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;

/// How long a wait is deaf at most to signals that do not end it by themselves.
pub(crate) const DEAF_NANOS: u64 = 50_000_000;

/// What Python's C handler writes to. It is kept as long as the node: a handler may be about to write to it in another
/// thread.
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

/// The signals that come during one wait.
pub(crate) struct Signals<'a, 'py> {
    wakeup: &'a Wakeup,
    deaf_until: u64,
    watched: Watched<'a, 'py>,
}

enum Watched<'a, 'py> {
    /// The wait is short as yet.
    NotYet,
    /// This thread runs no handlers.
    ByOthers,
    Here(Watch<'a, 'py>),
}

/// How to wait meanwhile, detached from the interpreter.
#[derive(Clone, Copy)]
pub(crate) struct Patience<'a> {
    deaf_until: Option<u64>,
    signals: Option<BorrowedFd<'a>>,
}

impl<'a, 'py> Signals<'a, 'py> {
    pub(crate) fn new(wakeup: &'a Wakeup) -> Self {
        Self {
            wakeup,
            deaf_until: monotonic_nanos() + DEAF_NANOS,
            watched: Watched::NotYet,
        }
    }

    pub(crate) fn patience(&self) -> Patience<'_> {
        Patience {
            deaf_until: matches!(self.watched, Watched::NotYet).then_some(self.deaf_until),
            signals: match &self.watched {
                Watched::Here(watch) => Some(watch.reader().as_fd()),
                Watched::NotYet | Watched::ByOthers => None,
            },
        }
    }

    /// Runs the handlers of those that came. Once the wait has become a long one, it is deaf to none.
    pub(crate) fn check(&mut self, py: Python<'py>) -> PyResult<()> {
        if self.patience().is_over() {
            self.watched = Watch::begin(py, self.wakeup)?;
            // Without a descriptor for it, the wait goes on as it began.
            self.deaf_until = monotonic_nanos() + DEAF_NANOS;
        }
        if let Watched::Here(watch) = &mut self.watched {
            watch.drain();
        }
        py.check_signals()
    }
}

impl Patience<'_> {
    pub(crate) fn wait(self, waiter: &Waiter, rest: Rest) -> Waited {
        match self.signals {
            Some(signals) => waiter.wait_beside(signals, rest),
            None => waiter.wait(
                self.deaf_until
                    .map_or(rest, |until| rest.no_later_than(until)),
            ),
        }
    }

    /// Whether signals have to be looked at.
    pub(crate) fn is_over(self) -> bool {
        self.deaf_until
            .is_some_and(|until| monotonic_nanos() >= until)
    }
}

/// As long as it lives, Python's C handler writes to its socket.
struct Watch<'a, 'py> {
    py: Python<'py>,
    sockets: &'a (UnixStream, UnixStream),
    /// What the handler wrote to before, or -1. Its owner (an event loop) shall miss nothing.
    before: RawFd,
    came: Vec<u8>,
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
                came: Vec::new(),
            })),
            Err(error) if error.is_instance_of::<PyValueError>(py) => Ok(Watched::ByOthers),
            Err(error) => Err(error),
        }
    }

    fn reader(&self) -> &'a UnixStream {
        &self.sockets.0
    }

    fn drain(&mut self) {
        // It ends with `WouldBlock`, and what was read until then is there.
        let _ = self.reader().read_to_end(&mut self.came);
    }

    fn end(&mut self) -> PyResult<()> {
        let found = set_wakeup_fd(self.py, self.before)?;
        if found != self.sockets.1.as_raw_fd() {
            // A handler gave it to somebody else.
            set_wakeup_fd(self.py, found)?;
        }
        self.drain();
        if self.before >= 0 && !self.came.is_empty() {
            let came = PyBytes::new(self.py, &self.came);
            self.py
                .import("os")?
                .call_method1("write", (self.before, came))?;
        }
        Ok(())
    }
}

impl Drop for Watch<'_, '_> {
    fn drop(&mut self) {
        // It fails where somebody closed what the handler wrote to before: then nobody waits for it.
        if self.end().is_err() {
            let _ = set_wakeup_fd(self.py, -1);
        }
    }
}

/// Returns what it was before, -1 for nothing.
fn set_wakeup_fd(py: Python<'_>, fd: RawFd) -> PyResult<RawFd> {
    // A full socket wakes as well as one that is not.
    let options = [("warn_on_full_buffer", false)].into_py_dict(py)?;
    py.import("signal")?
        .getattr("set_wakeup_fd")?
        .call((fd,), Some(&options))?
        .extract()
}
