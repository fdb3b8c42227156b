//! The node: events in, values out.
//!
//! Two rules keep threads and signals right. No lock is waited for, and no futex, with the interpreter held: what can be
//! done at once is tried first, the rest is done detached. And whoever waits returns when a signal handler ran, so that
//! Python's own handlers run (Ctrl-C).

use crate::error::{connect_error, exception, forked, send_error, unknown_name};
use crate::event::{Event, seconds};
use crate::loan::Loan;
use crate::outgoing::{Content, Outgoing};
use crate::{array, metadata};
use nervure_node::message::{ArraySample, Layout, TensorLayout};
use nervure_node::{
    Encode, Envelope, Event as NodeEvent, Events, Handle, Metadata, Next, NodeForked, Publisher, Sample,
    SendError, UnknownName, Wait, Waited, Waiter, monotonic_nanos,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

/// A payload above this size is copied detached from the interpreter: below, the copy is faster than the switch.
const DETACHED_COPY_BYTES: usize = 64 * 1024;

/// A node of a running dataflow.
#[pyclass(frozen, weakref, module = "nervure")]
pub(crate) struct Node {
    handle: Handle,
    publishers: Vec<Publisher>,
    receiving: Mutex<Receiving>,
    waiter: Waiter,
    /// Held by the one thread that waits for events.
    turn: Mutex<()>,
    /// Whether a thread waits: it must be told of news that another takes in.
    is_awaited: AtomicBool,
}

struct Receiving {
    events: Events,
    /// An event loop waits for the eventfd.
    is_armed: bool,
}

/// How a wait ended.
enum Waiting {
    Event(NodeEvent),
    End,
    TimedOut,
    Interrupted,
    Armed,
    Forked(NodeForked),
}

/// What goes along with a value.
#[derive(Default)]
pub(crate) struct Given {
    pub(crate) stamp: Option<i64>,
    pub(crate) like: Option<Sample>,
    pub(crate) metadata: Option<Metadata>,
    pub(crate) frame: Option<String>,
}

#[pymethods]
impl Node {
    #[new]
    fn new(py: Python<'_>) -> PyResult<Self> {
        let mut raised = None;
        let connected = py.detach(|| {
            nervure_node::Node::connect_as("python", || {
                raised = Python::attach(|py| py.check_signals()).err();
                raised.is_none()
            })
        });
        if let Some(error) = raised {
            return Err(error);
        }
        let (handle, events) = connected.map_err(|error| connect_error(py, &error))?.split();
        let publishers = handle.outputs().map(|name| handle.output(name)).collect::<Result<_, _>>();
        Ok(Self {
            publishers: publishers.map_err(|error| unknown_name(py, &error))?,
            handle,
            waiter: events.waiter(),
            receiving: Mutex::new(Receiving { events, is_armed: false }),
            turn: Mutex::new(()),
            is_awaited: AtomicBool::new(false),
        })
    }

    /// The node's id in the dataflow file.
    #[getter]
    fn id(&self) -> &str {
        self.handle.id()
    }

    /// The dataflow's name.
    #[getter]
    fn dataflow(&self) -> &str {
        self.handle.dataflow()
    }

    /// 0 at the first start, one more after each restart.
    #[getter]
    fn incarnation(&self) -> u32 {
        self.handle.incarnation()
    }

    /// Names of the inputs, timers included.
    #[getter]
    fn inputs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.handle.inputs())
    }

    /// Names of the outputs.
    #[getter]
    fn outputs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.handle.outputs())
    }

    /// Whether the node was told to stop; for programs that do not look at their events.
    #[getter]
    fn stopping(&self) -> bool {
        self.handle.is_stopping()
    }

    /// Whether the dataflow is paused.
    #[getter]
    fn paused(&self) -> bool {
        self.handle.is_paused()
    }

    /// The dataflow's clock, in seconds since 1970-01-01 UTC. It stands still while the dataflow is
    /// paused.
    fn now(&self) -> f64 {
        seconds(self.handle.now())
    }

    /// The dataflow's clock, in nanoseconds since 1970-01-01 UTC.
    fn now_nanos(&self) -> i64 {
        self.handle.now()
    }

    /// Says that a node with `ready: manual` is ready. The dataflow starts when all nodes are.
    fn ready(&self) {
        self.handle.ready();
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// Waits for the next event. Other threads run meanwhile, and Ctrl-C ends the wait.
    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Event>> {
        self.next_until(py, None)
    }

    /// Waits at most `timeout` seconds for the next event; without a timeout, until there is one.
    #[pyo3(signature = (*, timeout = None))]
    fn next(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Event>> {
        self.next_until(py, deadline(timeout)?)
    }

    /// The newest sample of an input, without waiting: taken from its queue, or else the newest
    /// that came since the first call for this input: it is kept, and its block with it.
    fn latest(&self, py: Python<'_>, input: &str) -> PyResult<Option<Event>> {
        let found = self.with_events(py, |receiving| receiving.events.latest(input))?;
        self.wake_other();
        let sample = found.map_err(|error| unknown_name(py, &error))?;
        let known = self.handle.inputs().find(|known| *known == input);
        Ok(sample.zip(known).map(|(sample, id)| self.event(NodeEvent::Input { id: id.into(), sample })))
    }

    /// Sends a value. It is copied, once, into the memory that its receivers read.
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    #[pyo3(signature = (
        output, value, *, stamp = None, stamp_nanos = None, like = None, metadata = None, frame = None, timeout = None
    ))]
    fn send(
        &self,
        py: Python<'_>,
        output: &str,
        value: &Bound<'_, PyAny>,
        stamp: Option<f64>,
        stamp_nanos: Option<i64>,
        like: Option<&Bound<'_, Event>>,
        metadata: Option<&Bound<'_, PyDict>>,
        frame: Option<String>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let wait = deadline(timeout)?.map_or(Wait::Forever, Wait::Until);
        let publisher = self.publisher(py, output)?;
        let given = Given::new(stamp, stamp_nanos, like, metadata, frame)?;
        send(py, publisher, value, &given, wait).map_err(|error| error.raise(py))
    }

    /// As :meth:`send`, but never waits. `False`, and nothing is sent, while a receiver has no
    /// room.
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    #[pyo3(signature = (
        output, value, *, stamp = None, stamp_nanos = None, like = None, metadata = None, frame = None
    ))]
    fn try_send(
        &self,
        py: Python<'_>,
        output: &str,
        value: &Bound<'_, PyAny>,
        stamp: Option<f64>,
        stamp_nanos: Option<i64>,
        like: Option<&Bound<'_, Event>>,
        metadata: Option<&Bound<'_, PyDict>>,
        frame: Option<String>,
    ) -> PyResult<bool> {
        let publisher = self.publisher(py, output)?;
        let given = Given::new(stamp, stamp_nanos, like, metadata, frame)?;
        match send(py, publisher, value, &given, Wait::Never) {
            Ok(()) => Ok(true),
            Err(Failure::Send(SendError::WouldBlock { .. })) => Ok(false),
            Err(error) => Err(error.raise(py)),
        }
    }

    /// As :meth:`send`, for asyncio: other tasks run while a receiver has no room. Do not change
    /// the value before.
    #[pyo3(signature = (output, value, **envelope))]
    fn send_async<'py>(
        slf: &Bound<'py, Self>,
        output: &Bound<'py, PyAny>,
        value: &Bound<'py, PyAny>,
        envelope: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let send = slf.py().import("nervure._asyncio")?.getattr("send")?;
        send.call((slf, output, value), envelope)
    }

    /// Borrows shared memory to be filled in place, so that nothing is copied.
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of Python")]
    #[pyo3(signature = (
        output, shape, dtype, *, stamp = None, stamp_nanos = None, like = None, metadata = None, frame = None, timeout = None
    ))]
    fn loan(
        &self,
        py: Python<'_>,
        output: &str,
        shape: &Bound<'_, PyAny>,
        dtype: &Bound<'_, PyAny>,
        stamp: Option<f64>,
        stamp_nanos: Option<i64>,
        like: Option<&Bound<'_, Event>>,
        metadata: Option<&Bound<'_, PyDict>>,
        frame: Option<String>,
        timeout: Option<f64>,
    ) -> PyResult<Loan> {
        let wait = deadline(timeout)?.map_or(Wait::Forever, Wait::Until);
        let publisher = self.publisher(py, output)?;
        let given = Given::new(stamp, stamp_nanos, like, metadata, frame)?;
        // A number is the shape of a vector, as for NumPy.
        let shape = shape.extract::<usize>().map(|length| vec![length]).or_else(|_| shape.extract())?;
        let layout = TensorLayout::contiguous(array::dtype_from_python(dtype)?, &shape)
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        let loan = loop {
            let bytes = layout.payload_bytes();
            match py.detach(|| publisher.loan_layout(Layout::Tensor(layout.clone()), bytes, wait)) {
                Err(SendError::Interrupted) => py.check_signals()?,
                result => break result.map_err(|error| send_error(py, &error))?,
            }
        };
        Loan::new(py, loan, &layout, given, wait)
    }

    fn __aiter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// Waits for the next event without blocking the event loop of asyncio.
    fn __anext__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py().import("nervure._asyncio")?.getattr("next_event")?.call1((slf,))
    }

    fn __repr__(&self) -> String {
        format!("<Node {:?} of dataflow {:?}>", self.handle.id(), self.handle.dataflow())
    }

    // -- for nervure._asyncio

    /// The next event without waiting; None when there is none, `StopAsyncIteration` when there will be none.
    fn _poll(&self, py: Python<'_>) -> PyResult<Option<Event>> {
        let next = self.with_events(py, |receiving| receiving.events.poll())?;
        self.wake_other();
        match next.map_err(|error| forked(py, error))? {
            Next::Event(event) => Ok(Some(self.event(event))),
            Next::Nothing => Ok(None),
            Next::End => Err(pyo3::exceptions::PyStopAsyncIteration::new_err(())),
        }
    }

    /// Asks for the eventfd to become readable: its number, and seconds until a timer is due; None when there is news.
    fn _arm(&self, py: Python<'_>) -> PyResult<Option<(i32, Option<f64>)>> {
        if self.is_awaited.load(Ordering::SeqCst) {
            return Err(busy(py));
        }
        self.with_events(py, |receiving| {
            if !receiving.events.arm() {
                return None;
            }
            receiving.is_armed = true;
            let wait = |deadline: u64| deadline.saturating_sub(monotonic_nanos()) as f64 / 1e9;
            Some((receiving.events.eventfd().as_raw_fd(), receiving.events.next_deadline().map(wait)))
        })
    }

    fn _disarm(&self, py: Python<'_>) -> PyResult<()> {
        self.with_events(py, |receiving| {
            if std::mem::take(&mut receiving.is_armed) {
                receiving.events.disarm();
            }
        })
    }
}

impl Node {
    fn event(&self, event: NodeEvent) -> Event {
        Event::new(event, self.handle.clone())
    }

    fn publisher(&self, py: Python<'_>, output: &str) -> PyResult<&Publisher> {
        self.handle.check_fork().map_err(|error| forked(py, error))?;
        self.publishers.iter().find(|publisher| publisher.name() == output).ok_or_else(|| {
            let unknown = self.handle.output(output).err().unwrap_or_else(|| UnknownName {
                node: self.handle.id().to_owned(),
                kind: "output",
                name: output.to_owned(),
                known: Vec::new(),
            });
            unknown_name(py, &unknown)
        })
    }

    fn next_until(&self, py: Python<'_>, deadline: Option<u64>) -> PyResult<Option<Event>> {
        self.handle.check_fork().map_err(|error| forked(py, error))?;
        if let Some(mut receiving) = try_lock(&self.receiving) {
            let next = receiving.events.poll().map_err(|error| forked(py, error))?;
            drop(receiving);
            self.wake_other();
            match next {
                Next::Event(event) => return Ok(Some(self.event(event))),
                Next::End => return Ok(None),
                Next::Nothing => {}
            }
        }
        loop {
            match py.detach(|| self.wait(deadline)) {
                Waiting::Event(event) => return Ok(Some(self.event(event))),
                Waiting::End | Waiting::TimedOut => return Ok(None),
                Waiting::Interrupted => py.check_signals()?,
                Waiting::Armed => return Err(busy(py)),
                Waiting::Forked(error) => return Err(forked(py, error)),
            }
        }
    }

    /// Waits for the next event, detached from the interpreter.
    fn wait(&self, deadline: Option<u64>) -> Waiting {
        let _turn = lock(&self.turn);
        // Before the events are looked at: whoever takes news in after that will wake this thread.
        self.is_awaited.store(true, Ordering::SeqCst);
        let waiting = self.wait_in_turn(deadline);
        self.is_awaited.store(false, Ordering::SeqCst);
        waiting
    }

    fn wait_in_turn(&self, deadline: Option<u64>) -> Waiting {
        loop {
            let mut receiving = lock(&self.receiving);
            if receiving.is_armed {
                return Waiting::Armed;
            }
            match receiving.events.poll() {
                Ok(Next::Event(event)) => return Waiting::Event(event),
                Ok(Next::End) => return Waiting::End,
                Ok(Next::Nothing) => {}
                Err(error) => return Waiting::Forked(error),
            }
            let timer = receiving.events.next_deadline();
            drop(receiving);
            if deadline.is_some_and(|deadline| monotonic_nanos() >= deadline) {
                return Waiting::TimedOut;
            }
            if self.waiter.wait(timer.into_iter().chain(deadline).min()) == Waited::Interrupted {
                return Waiting::Interrupted;
            }
        }
    }

    fn with_events<R: Send>(
        &self,
        py: Python<'_>,
        f: impl FnOnce(&mut Receiving) -> R + Send,
    ) -> PyResult<R> {
        self.handle.check_fork().map_err(|error| forked(py, error))?;
        match try_lock(&self.receiving) {
            Some(mut receiving) => Ok(f(&mut receiving)),
            None => Ok(py.detach(|| f(&mut lock(&self.receiving)))),
        }
    }

    /// This thread may have taken in news that a waiting one would have to deliver.
    fn wake_other(&self) {
        if self.is_awaited.load(Ordering::SeqCst) {
            self.waiter.wake();
        }
    }
}

impl Given {
    fn new(
        stamp: Option<f64>,
        stamp_nanos: Option<i64>,
        like: Option<&Bound<'_, Event>>,
        metadata: Option<&Bound<'_, PyDict>>,
        frame: Option<String>,
    ) -> PyResult<Self> {
        let mut given = Self { stamp: stamp_nanos, frame, ..Self::default() };
        if let Some(seconds) = stamp {
            if stamp_nanos.is_some() {
                return Err(PyValueError::new_err("give stamp or stamp_nanos, not both"));
            }
            given.stamp = Some(nanos(seconds)?);
        }
        if let Some(like) = like {
            given.like = like.get().sample().cloned();
            given.stamp = given.stamp.or_else(|| like.get().stamp());
        }
        if let Some(dict) = metadata {
            given.metadata = Some(metadata::from_dict(dict)?);
        }
        Ok(given)
    }

    pub(crate) fn envelope(&self) -> Envelope<'_> {
        let mut envelope = Envelope::new();
        if let Some(stamp) = self.stamp {
            envelope = envelope.stamp(stamp);
        }
        if let Some(like) = &self.like {
            envelope = envelope.like(like);
        }
        if let Some(metadata) = &self.metadata {
            envelope = envelope.metadata(metadata);
        }
        if let Some(frame) = &self.frame {
            envelope = envelope.frame(frame);
        }
        envelope
    }
}

/// Why a value was not sent.
enum Failure {
    Send(SendError),
    Python(PyErr),
}

impl Failure {
    fn raise(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Send(error) => send_error(py, &error),
            Self::Python(error) => error,
        }
    }
}

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

fn send(
    py: Python<'_>,
    publisher: &Publisher,
    value: &Bound<'_, PyAny>,
    given: &Given,
    wait: Wait,
) -> Result<(), Failure> {
    let outgoing = Outgoing::new(value)?;
    match &outgoing.content {
        Content::Plain(plain) => send_encoded(py, publisher, plain, given, wait),
        Content::Arrow { array, schema } => {
            let sample = ArraySample::new(array, schema)
                .map_err(|error| exception(py, "NotSendable", crate::error::chain(&error)))?;
            send_encoded(py, publisher, &sample, given, wait)
        }
    }
}

fn send_encoded<V: Encode + Sync>(
    py: Python<'_>,
    publisher: &Publisher,
    value: &V,
    given: &Given,
    wait: Wait,
) -> Result<(), Failure> {
    let envelope = given.envelope();
    if value.payload_bytes() <= DETACHED_COPY_BYTES {
        match publisher.send_once(value, &envelope, Wait::Never) {
            Err(SendError::WouldBlock { .. }) if wait != Wait::Never => {}
            result => return result.map(drop).map_err(Failure::Send),
        }
    }
    loop {
        match py.detach(|| publisher.send_once(value, &envelope, wait)) {
            Err(SendError::Interrupted) => py.check_signals()?,
            result => return result.map(drop).map_err(Failure::Send),
        }
    }
}

/// The reading of CLOCK_MONOTONIC at which a wait of so many seconds ends; `None` for no end.
fn deadline(timeout: Option<f64>) -> PyResult<Option<u64>> {
    match timeout {
        None => Ok(None),
        Some(seconds) if seconds >= 0.0 => {
            let nanos = (seconds * 1e9).min(u64::MAX as f64) as u64;
            Ok(Some(monotonic_nanos().saturating_add(nanos)))
        }
        Some(seconds) => Err(PyValueError::new_err(format!("timeout is {seconds} s, expected 0 or more"))),
    }
}

fn nanos(seconds: f64) -> PyResult<i64> {
    /// The year 2262, where nanoseconds of 64 bits end.
    const MAX_SECONDS: f64 = 9.2e9;
    if seconds.abs() < MAX_SECONDS {
        return Ok((seconds * 1e9).round() as i64);
    }
    let text = format!(
        "stamp is {seconds:e}, expected seconds since 1970-01-01 (UTC); for nanoseconds use stamp_nanos"
    );
    Err(PyValueError::new_err(text))
}

fn busy(py: Python<'_>) -> PyErr {
    let text = "a thread and an event loop cannot wait for events of one node at the same time: receive in one place";
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
