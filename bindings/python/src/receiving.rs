//! Taking events in, from any thread or an event loop.
//!
//! Two rules keep threads and signals right. No lock is waited for, and no futex, with the interpreter held: what can be
//! done at once is tried first, the rest is done detached. And whoever waits comes back when a signal handler ran, so
//! that Python's own handlers run (Ctrl-C).
//!
//! One thread waits at a time, without the lock on the events, so that others can take in what is there. What they take
//! in may include the news that it waits for; so they wake it.

use crate::error::{exception, forked, unknown_name};
use crate::signals::{Patience, Signals, Wakeup};
use nervure_node::{
    CallError, Events, Handle, Next, NodeForked, Publisher, Receipt, Sample, SendError, Ticket,
    UnknownName, Waited, Waiter, monotonic_nanos,
};
use pyo3::prelude::*;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// How long a thread that waits for its turn to wait is deaf to signals.
const DEAF: Duration = Duration::from_millis(50);

/// The receiving half of a node.
pub(crate) struct Receiver {
    handle: Handle,
    incoming: Mutex<Incoming>,
    waiter: Waiter,
    turn: Turn,
    wakeup: Wakeup,
}

struct Incoming {
    events: Events,
    /// An event loop waits for the eventfd.
    is_armed: bool,
}

/// What came of a request.
type Answer = Result<Sample, CallError>;

/// How an event loop has to wait.
pub(crate) struct Armed {
    /// None where nobody writes to it, and `deadline` is all there is.
    pub(crate) eventfd: Option<RawFd>,
    /// When to look again at the latest, in nanoseconds of CLOCK_MONOTONIC.
    pub(crate) deadline: u64,
}

/// How a wait ended.
enum Waiting {
    Found(Next),
    TimedOut,
    Interrupted,
    Armed,
    Forked(NodeForked),
}

impl Receiver {
    pub(crate) fn new(handle: Handle, events: Events) -> Self {
        let waiter = events.waiter();
        Self {
            handle,
            incoming: Mutex::new(Incoming {
                events,
                is_armed: false,
            }),
            waiter,
            turn: Turn::default(),
            wakeup: Wakeup::default(),
        }
    }

    /// Waits for the next event, until `deadline` (nanoseconds of CLOCK_MONOTONIC); `Next::Nothing` when it has passed.
    pub(crate) fn next(&self, py: Python<'_>, deadline: Option<u64>) -> PyResult<Next> {
        self.check_fork(py)?;
        if let Some(mut incoming) = try_lock(&self.incoming) {
            let next = incoming.events.poll().map_err(|error| forked(py, error))?;
            drop(incoming);
            self.wake_other();
            if !matches!(next, Next::Nothing) {
                return Ok(next);
            }
        }
        let mut signals = Signals::new(&self.wakeup);
        loop {
            let patience = signals.patience();
            match py.detach(|| self.wait(deadline, patience)) {
                Waiting::Found(next) => return Ok(next),
                Waiting::TimedOut => return Ok(Next::Nothing),
                Waiting::Interrupted => signals.check(py)?,
                Waiting::Armed => return Err(busy(py)),
                Waiting::Forked(error) => return Err(forked(py, error)),
            }
        }
    }

    /// The next event, without waiting.
    pub(crate) fn poll(&self, py: Python<'_>) -> PyResult<Next> {
        let next = self.with_incoming(py, |incoming| incoming.events.poll())?;
        next.map_err(|error| forked(py, error))
    }

    /// The newest sample of an input, and the input's name.
    pub(crate) fn latest(&self, py: Python<'_>, input: &str) -> PyResult<Option<Sample>> {
        let found: Result<_, UnknownName> =
            self.with_incoming(py, |incoming| incoming.events.latest(input))?;
        found.map_err(|error| unknown_name(py, &error))
    }

    /// Where a request goes.
    pub(crate) fn prepare_call(
        &self,
        py: Python<'_>,
        client: &str,
    ) -> PyResult<Result<(Ticket, Publisher), CallError>> {
        self.with_incoming(py, |incoming| incoming.events.prepare_call(client))
    }

    /// The request was sent, or was not.
    pub(crate) fn finish_call(
        &self,
        py: Python<'_>,
        ticket: Ticket,
        sent: Result<Receipt, SendError>,
    ) -> PyResult<Result<Ticket, CallError>> {
        self.with_incoming(py, |incoming| incoming.events.finish_call(ticket, sent))
    }

    /// The answer, without waiting.
    pub(crate) fn take_answer(&self, py: Python<'_>, ticket: Ticket) -> PyResult<Option<Answer>> {
        self.with_incoming(py, |incoming| incoming.events.take_answer(ticket))
    }

    /// Gives a request up, and says what was asked.
    pub(crate) fn forget_call(&self, py: Python<'_>, ticket: Ticket) -> PyResult<String> {
        self.with_incoming(py, |incoming| {
            incoming.events.forget_call(ticket);
            incoming.events.service_of(ticket).to_owned()
        })
    }

    /// Waits for the answer; `None` when it did not come until `deadline`.
    pub(crate) fn wait_for_answer(
        &self,
        py: Python<'_>,
        ticket: Ticket,
        deadline: Option<u64>,
    ) -> PyResult<Option<Answer>> {
        let mut signals = Signals::new(&self.wakeup);
        loop {
            if let Some(answer) = self.take_answer(py, ticket)? {
                return Ok(Some(answer));
            }
            if has_passed(deadline) {
                return Ok(None);
            }
            let patience = signals.patience();
            if py
                .detach(|| self.wait_for_news(deadline, patience))
                .is_err()
            {
                return Err(busy(py));
            }
            signals.check(py)?;
        }
    }

    /// Waits until there may be an answer. An error where an event loop waits.
    fn wait_for_news(&self, deadline: Option<u64>, patience: Patience<'_>) -> Result<(), ()> {
        let Some(_turn) = self.turn.take() else {
            return Ok(());
        };
        let incoming = lock(&self.incoming);
        if incoming.is_armed {
            return Err(());
        }
        let rest = incoming.events.rest_for_answer(deadline);
        drop(incoming);
        patience.wait(&self.waiter, rest);
        Ok(())
    }

    /// Asks for the eventfd to become readable; `None` when there is news already.
    pub(crate) fn arm(&self, py: Python<'_>) -> PyResult<Option<Armed>> {
        let armed = self.with_incoming(py, |incoming| {
            if incoming.is_armed || self.turn.is_taken() {
                return Err(());
            }
            incoming.is_armed = incoming.events.arm();
            Ok(incoming.is_armed.then(|| Armed {
                eventfd: incoming
                    .events
                    .is_woken()
                    .then(|| incoming.events.eventfd().as_raw_fd()),
                deadline: incoming.events.next_deadline(),
            }))
        })?;
        armed.map_err(|()| busy(py))
    }

    /// Ends what [`Receiver::arm`] began.
    pub(crate) fn disarm(&self, py: Python<'_>) -> PyResult<()> {
        self.with_incoming(py, |incoming| {
            if std::mem::take(&mut incoming.is_armed) {
                incoming.events.disarm();
            }
        })
    }

    fn wait(&self, deadline: Option<u64>, patience: Patience<'_>) -> Waiting {
        // From here on, whoever takes news in wakes this thread; so the events are looked at once more.
        let Some(_turn) = self.turn.take() else {
            return if has_passed(deadline) {
                Waiting::TimedOut
            } else {
                Waiting::Interrupted
            };
        };
        loop {
            let mut incoming = lock(&self.incoming);
            if incoming.is_armed {
                return Waiting::Armed;
            }
            match incoming.events.poll() {
                Ok(Next::Nothing) => {}
                Ok(next) => return Waiting::Found(next),
                Err(error) => return Waiting::Forked(error),
            }
            let rest = incoming.events.rest(deadline);
            drop(incoming);
            if has_passed(deadline) {
                return Waiting::TimedOut;
            }
            if patience.is_over() || patience.wait(&self.waiter, rest) == Waited::Interrupted {
                return Waiting::Interrupted;
            }
        }
    }

    fn with_incoming<R: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&mut Incoming) -> R + Send,
    ) -> PyResult<R> {
        self.check_fork(py)?;
        let result = match try_lock(&self.incoming) {
            Some(mut incoming) => f(&mut incoming),
            None => py.detach(|| f(&mut lock(&self.incoming))),
        };
        self.wake_other();
        Ok(result)
    }

    /// Before any lock: another thread may have held it at the fork.
    fn check_fork(&self, py: Python<'_>) -> PyResult<()> {
        self.handle.check_fork().map_err(|error| forked(py, error))
    }

    fn wake_other(&self) {
        if self.turn.is_taken() {
            self.waiter.wake();
        }
    }
}

/// Which thread waits.
#[derive(Default)]
struct Turn {
    is_taken: AtomicBool,
    taking: Mutex<()>,
    over: Condvar,
}

impl Turn {
    /// Takes the turn; `None` when it did not come in time, and signals are to be looked at.
    fn take(&self) -> Option<InTurn<'_>> {
        let mut taking = lock(&self.taking);
        if self.is_taken() {
            taking = self
                .over
                .wait_timeout(taking, DEAF)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        let was_taken = self.is_taken.swap(true, Ordering::SeqCst);
        drop(taking);
        (!was_taken).then(|| InTurn(self))
    }

    fn is_taken(&self) -> bool {
        self.is_taken.load(Ordering::SeqCst)
    }
}

struct InTurn<'a>(&'a Turn);

impl Drop for InTurn<'_> {
    fn drop(&mut self) {
        let taking = lock(&self.0.taking);
        self.0.is_taken.store(false, Ordering::SeqCst);
        drop(taking);
        self.0.over.notify_one();
    }
}

fn has_passed(deadline: Option<u64>) -> bool {
    deadline.is_some_and(|deadline| monotonic_nanos() >= deadline)
}

fn busy(py: Python<'_>) -> PyErr {
    let text = "another thread or task waits for the events of this node, and an event loop cannot share them: receive \
                in one place, and pass on what you receive";
    exception(py, "NervureError", text)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
