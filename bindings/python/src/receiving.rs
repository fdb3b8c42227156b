//! Receiving events from any thread or an event loop.
//!
//! Two rules keep threads and signals working. First, a thread never waits for a lock or futex
//! while it holds the interpreter: it tries without waiting, and otherwise detaches. Second, every
//! wait returns when a signal handler ran, so that Python's own handlers run (Ctrl-C).
//!
//! One thread waits at a time, and does not hold the lock on the events, so that other threads can
//! take events. They may take the news that the waiting thread waits for, so they wake it.

use crate::error::{exception, forked, unknown_name};
use crate::signals::{SIGNAL_CHECK_NANOS, SignalWatch, Signals, Wakeup};
use nervure_node::binding::{self, Waiter};
use nervure_node::{
    Actions, CallError, Events, GoalState, Handle, LookupError, LookupTime, Next, NodeForked,
    Publisher, Receipt, Sample, SendError, Ticket, Transform, UnknownName, Waited, monotonic_nanos,
};
use pyo3::prelude::*;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

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

/// The result of a request.
pub(crate) type Answer = Result<Sample, CallError>;

/// Progress of a goal.
pub(crate) enum Progress {
    Feedback(Sample),
    Result(Answer),
}

/// Conditions that end the wait of an event loop.
pub(crate) struct Armed {
    /// `None` for an observer that polls: nothing writes to its eventfd, and only `deadline`
    /// counts.
    pub(crate) eventfd: Option<RawFd>,
    /// The latest time of the next check for events, in nanoseconds of CLOCK_MONOTONIC.
    pub(crate) deadline: u64,
}

/// Result of a wait.
enum Waiting {
    Found(Next),
    TimedOut,
    Interrupted,
    Armed,
    Forked(NodeForked),
}

impl Receiver {
    pub(crate) fn new(handle: Handle, events: Events) -> Self {
        let waiter = binding::waiter(&events);
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

    /// Waits for the next event until `deadline` (nanoseconds of CLOCK_MONOTONIC). Returns
    /// `Next::Nothing` when it has passed.
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
            let watch = signals.watch();
            match py.detach(|| self.wait(deadline, watch)) {
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

    /// Makes the samples that are queued when Stop comes follow it.
    pub(crate) fn deliver_samples_after_stop(&self, py: Python<'_>) -> PyResult<()> {
        self.with_incoming(py, |incoming| {
            binding::deliver_samples_after_stop(&mut incoming.events);
        })
    }

    /// The newest sample of an input.
    pub(crate) fn latest(&self, py: Python<'_>, input: &str) -> PyResult<Option<Sample>> {
        let found: Result<_, UnknownName> =
            self.with_incoming(py, |incoming| incoming.events.latest(input))?;
        found.map_err(|error| unknown_name(py, &error))
    }

    /// Registers a request, which the caller then sends to the returned output.
    pub(crate) fn prepare_call(
        &self,
        py: Python<'_>,
        client: &str,
    ) -> PyResult<Result<(Ticket, Publisher), CallError>> {
        self.with_incoming(py, |incoming| {
            binding::prepare_call(&mut incoming.events, client)
        })
    }

    /// As [`Self::prepare_call`], for a goal of an action.
    pub(crate) fn prepare_goal(
        &self,
        py: Python<'_>,
        client: &str,
    ) -> PyResult<Result<(Ticket, Publisher), CallError>> {
        self.with_incoming(py, |incoming| {
            binding::prepare_goal(&mut incoming.events, client)
        })
    }

    /// Asks to cancel a goal.
    pub(crate) fn cancel_goal(
        &self,
        py: Python<'_>,
        ticket: Ticket,
    ) -> PyResult<Result<(), CallError>> {
        self.with_incoming(py, |incoming| {
            Actions::new(&mut incoming.events).cancel(ticket)
        })
    }

    /// The state of a goal.
    pub(crate) fn goal_state(&self, py: Python<'_>, ticket: Ticket) -> PyResult<GoalState> {
        self.with_incoming(py, |incoming| {
            Actions::new(&mut incoming.events).state(ticket)
        })
    }

    /// Feedback on a goal, without waiting.
    pub(crate) fn take_update(&self, py: Python<'_>, ticket: Ticket) -> PyResult<Option<Sample>> {
        self.with_incoming(py, |incoming| {
            Actions::new(&mut incoming.events).take_feedback(ticket)
        })
    }

    /// Waits for feedback on a goal, or its result. Returns `None` if neither came before `deadline`.
    pub(crate) fn wait_for_progress(
        &self,
        py: Python<'_>,
        ticket: Ticket,
        deadline: Option<u64>,
    ) -> PyResult<Option<Progress>> {
        self.wait_for(py, deadline, || {
            Ok(match self.take_update(py, ticket)? {
                Some(feedback) => Some(Progress::Feedback(feedback)),
                None => self.take_answer(py, ticket)?.map(Progress::Result),
            })
        })
    }

    /// Takes the result of sending a request.
    pub(crate) fn finish_call(
        &self,
        py: Python<'_>,
        ticket: Ticket,
        sent: Result<Receipt, SendError>,
    ) -> PyResult<Result<Ticket, CallError>> {
        self.with_incoming(py, |incoming| {
            binding::finish_call(&mut incoming.events, ticket, sent)
        })
    }

    /// The answer, without waiting.
    pub(crate) fn take_answer(&self, py: Python<'_>, ticket: Ticket) -> PyResult<Option<Answer>> {
        self.with_incoming(py, |incoming| incoming.events.take_answer(ticket))
    }

    /// Abandons a request. Returns its service, as `node/service`.
    pub(crate) fn forget_call(&self, py: Python<'_>, ticket: Ticket) -> PyResult<String> {
        self.with_incoming(py, |incoming| {
            incoming.events.forget_call(ticket);
            binding::service_of(&incoming.events, ticket).to_owned()
        })
    }

    /// Waits for the answer. Returns `None` if it did not arrive before `deadline`.
    pub(crate) fn wait_for_answer(
        &self,
        py: Python<'_>,
        ticket: Ticket,
        deadline: Option<u64>,
    ) -> PyResult<Option<Answer>> {
        self.wait_for(py, deadline, || self.take_answer(py, ticket))
    }

    fn wait_for<T>(
        &self,
        py: Python<'_>,
        deadline: Option<u64>,
        take: impl Fn() -> PyResult<Option<T>>,
    ) -> PyResult<Option<T>> {
        let mut signals = Signals::new(&self.wakeup);
        loop {
            if let Some(taken) = take()? {
                return Ok(Some(taken));
            }
            if has_passed(deadline) {
                return Ok(None);
            }
            let watch = signals.watch();
            if py.detach(|| self.wait_for_news(deadline, watch)).is_err() {
                return Err(busy(py));
            }
            signals.check(py)?;
        }
    }

    /// Looks up a transform between frames, and waits for it until `deadline`.
    pub(crate) fn lookup(
        &self,
        py: Python<'_>,
        (target, source): (&str, &str),
        time: LookupTime,
        deadline: Option<u64>,
    ) -> PyResult<Result<Transform, LookupError>> {
        let began = monotonic_nanos();
        let mut waited = Duration::ZERO;
        let mut signals = Signals::new(&self.wakeup);
        loop {
            let (found, has_stopped) = self.with_incoming(py, |incoming| {
                let mut transforms = incoming.events.transforms();
                let found = transforms.try_lookup(target, source, time);
                (found, transforms.has_stopped())
            })?;
            match found.map_err(|error| LookupError { waited, ..error }) {
                Err(error) if error.reason.may_pass() && !has_passed(deadline) => {
                    if has_stopped {
                        return Ok(Err(error.stopped()));
                    }
                }
                found => return Ok(found),
            }
            let watch = signals.watch();
            if py.detach(|| self.wait_for_news(deadline, watch)).is_err() {
                return Err(busy(py));
            }
            signals.check(py)?;
            waited = Duration::from_nanos(monotonic_nanos() - began);
        }
    }

    /// Waits until there may be news for a call that waits for something of its own. Fails if an event loop waits for events.
    fn wait_for_news(&self, deadline: Option<u64>, watch: SignalWatch<'_>) -> Result<(), ()> {
        let Some(_turn) = self.turn.take() else {
            return Ok(());
        };
        let incoming = lock(&self.incoming);
        if incoming.is_armed {
            return Err(());
        }
        let plan = binding::plan_wait_for_answer(&incoming.events, deadline);
        drop(incoming);
        watch.wait(&self.waiter, plan);
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
                eventfd: binding::is_woken(&incoming.events)
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

    fn wait(&self, deadline: Option<u64>, watch: SignalWatch<'_>) -> Waiting {
        // From here on, a thread that takes news wakes this one. So check the events once more.
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
            let plan = binding::plan_wait(&incoming.events, deadline);
            drop(incoming);
            if has_passed(deadline) {
                return Waiting::TimedOut;
            }
            if watch.is_over() || watch.wait(&self.waiter, plan) == Waited::Interrupted {
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

    /// Call it before any lock is taken: another thread may have held the lock at the fork.
    fn check_fork(&self, py: Python<'_>) -> PyResult<()> {
        self.handle.check_fork().map_err(|error| forked(py, error))
    }

    fn wake_other(&self) {
        if self.turn.is_taken() {
            self.waiter.wake();
        }
    }
}

/// Lets one thread at a time wait.
#[derive(Default)]
struct Turn {
    is_taken: AtomicBool,
    /// Number of threads that wait for the turn.
    taking: Mutex<u32>,
    over: Condvar,
}

impl Turn {
    /// Takes the turn. Returns `None` if another thread kept it for 50 ms: then it is time to check
    /// for signals.
    fn take(&self) -> Option<InTurn<'_>> {
        let mut taking = lock(&self.taking);
        if self.is_taken() {
            *taking += 1;
            taking = self
                .over
                .wait_timeout(taking, Duration::from_nanos(SIGNAL_CHECK_NANOS))
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            *taking -= 1;
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
        let waiting = lock(&self.0.taking);
        self.0.is_taken.store(false, Ordering::SeqCst);
        let is_awaited = *waiting > 0;
        drop(waiting);
        // A system call, with and without a thread that waits.
        if is_awaited {
            self.0.over.notify_one();
        }
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
