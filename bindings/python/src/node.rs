//! The node: events in, values out.

use crate::array;
use crate::calls::{Call, call_error};
use crate::classes;
use crate::dora;
use crate::dora_sample::PyDoraSample;
use crate::error::{connect_error, forked, text, unknown_name};
use crate::event::{PyEvent, seconds};
use crate::host;
use crate::loan::PyLoan;
use crate::metadata;
use crate::params;
use crate::receiving::{Armed, Receiver};
use crate::sending::{
    Failure, SendOptions, deadline, in_slices, send, send_outgoing, stamp_nanos as to_nanos,
};
use nervure_node::binding;
use nervure_node::message::{DType, Layout, TensorLayout};
use nervure_node::{
    CallError, Event as NodeEvent, Handle, Loan, Next, Publisher, Receipt, SendError, Ticket, Wait,
    monotonic_nanos,
};
use pyo3::exceptions::{PyStopAsyncIteration, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyString, PyTuple};
use std::os::fd::RawFd;
use std::time::Duration;

/// A node of a running dataflow.
#[pyclass(frozen, weakref, name = "Node", module = "nervure")]
pub(crate) struct PyNode {
    pub(crate) handle: Handle,
    publishers: Vec<Publisher>,
    pub(crate) receiver: Receiver,
    pub(crate) dora: dora::Converter,
}

#[pymethods]
impl PyNode {
    #[new]
    #[pyo3(signature = (id = None, *, dataflow = None))]
    fn new(py: Python<'_>, id: Option<&str>, dataflow: Option<&str>) -> PyResult<Self> {
        if id.is_none() && dataflow.is_some() {
            let text =
                "`dataflow` is for nodes that join by their id: Node(\"plot\", dataflow=\"drive\")";
            return Err(PyTypeError::new_err(text));
        }
        let own = host::control_socket(py, id)?;
        let mut raised = None;
        let connected = py.detach(|| {
            let go_on = || {
                raised = Python::attach(|py| py.check_signals()).err();
                raised.is_none()
            };
            match (own, id) {
                (Some(control), _) => binding::connect_over(control, "python"),
                (None, Some(id)) => binding::join(dataflow, id, "python", go_on),
                (None, None) => binding::connect("python", go_on),
            }
        });
        if let Some(error) = raised {
            return Err(error);
        }
        let (handle, events) = connected
            .map_err(|error| connect_error(py, &error))?
            .split();
        classes::load(py, &handle)?;
        let publishers = handle
            .outputs()
            .map(|name| handle.output(name))
            .collect::<Result<_, _>>();
        Ok(Self {
            publishers: publishers.map_err(|error| unknown_name(py, &error))?,
            receiver: Receiver::new(handle.clone(), events),
            dora: dora::Converter::new(&handle),
            handle,
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

    /// The number of restarts of the node: 0 at the first start.
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

    /// The current value of a parameter.
    fn param<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
        let value = self
            .handle
            .param(name)
            .map_err(|error| unknown_name(py, &error))?;
        params::to_object(py, &value)
    }

    /// All parameters with their current values, in the order of the dataflow file.
    #[getter]
    fn params<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (name, value) in self.handle.params() {
            dict.set_item(name, params::to_object(py, &value)?)?;
        }
        Ok(dict)
    }

    /// Whether the node has to stop; for programs that do not receive events.
    #[getter]
    fn stopping(&self) -> bool {
        self.handle.is_stopping()
    }

    /// Whether the dataflow is paused.
    #[getter]
    fn paused(&self) -> bool {
        self.handle.is_paused()
    }

    /// The dataflow's clock, in seconds since 1970-01-01 UTC. It stops while the dataflow is
    /// paused.
    fn now(&self) -> f64 {
        seconds(self.handle.now())
    }

    /// The dataflow's clock, in nanoseconds since 1970-01-01 UTC.
    fn now_nanos(&self) -> i64 {
        self.handle.now()
    }

    /// Reports that this node, declared with `ready: manual`, is ready. The dataflow starts when
    /// all nodes are ready.
    fn ready(&self) {
        self.handle.ready();
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// Waits for the next event. Other threads run meanwhile, and Ctrl-C ends the wait.
    fn __next__(&self, py: Python<'_>) -> PyResult<Option<PyEvent>> {
        self.next(py, None)
    }

    /// Waits at most `timeout` seconds for the next event, or without a limit.
    #[pyo3(signature = (*, timeout = None))]
    fn next(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<PyEvent>> {
        match self.receiver.next(py, deadline(timeout)?)? {
            Next::Event(event) => Ok(Some(self.event(event))),
            Next::Nothing | Next::End => Ok(None),
        }
    }

    /// The newest sample of an input, without waiting: from its queue, or else the newest that was
    /// received since the first call for this input. It is kept, and with it its block.
    fn latest(&self, py: Python<'_>, input: &str) -> PyResult<Option<PyEvent>> {
        let sample = self.receiver.latest(py, input)?;
        let known = self.handle.inputs().find(|known| *known == input);
        Ok(sample.zip(known).map(|(sample, id)| {
            self.event(NodeEvent::Input {
                id: id.into(),
                sample,
            })
        }))
    }

    /// Transforms between coordinate frames, for a node with `transforms: true` in the dataflow file.
    #[getter]
    fn transforms<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let class = slf.py().import("nervure._transforms")?;
        class.getattr("Transforms")?.call1((slf,))
    }

    /// Sends a value. It is copied once, into the memory that its receivers read.
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
        like: Option<&Bound<'_, PyEvent>>,
        metadata: Option<&Bound<'_, PyDict>>,
        frame: Option<&Bound<'_, PyString>>,
        timeout: Option<f64>,
    ) -> PyResult<()> {
        let wait = deadline(timeout)?.map_or(Wait::Forever, Wait::Until);
        let publisher = self.publisher(py, output)?;
        let options = send_options(stamp, stamp_nanos, like, metadata, frame)?;
        send(py, publisher, value, &options, wait)
            .map(drop)
            .map_err(|error| error.raise(py))
    }

    /// As :meth:`send`, but never waits. Returns `False`, and sends nothing, while a receiver has
    /// no room, or if the dataflow is paused and this node has no inputs.
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
        like: Option<&Bound<'_, PyEvent>>,
        metadata: Option<&Bound<'_, PyDict>>,
        frame: Option<&Bound<'_, PyString>>,
    ) -> PyResult<bool> {
        let publisher = self.publisher(py, output)?;
        let options = send_options(stamp, stamp_nanos, like, metadata, frame)?;
        match send(py, publisher, value, &options, Wait::Never) {
            Ok(_) => Ok(true),
            Err(Failure::Send(SendError::WouldBlock { .. } | SendError::Paused)) => Ok(false),
            Err(error) => Err(error.raise(py)),
        }
    }

    /// Sends a request to a service, and waits for its answer, at most `timeout` seconds.
    #[pyo3(signature = (client, value, *, timeout = None, metadata = None))]
    fn call(
        &self,
        py: Python<'_>,
        client: &str,
        value: &Bound<'_, PyAny>,
        timeout: Option<f64>,
        metadata: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<PyEvent> {
        let until = deadline(timeout)?;
        let prepared = self.receiver.prepare_call(py, client)?;
        let ticket = self.begin(py, prepared, value, metadata)?;
        match self.receiver.wait_for_answer(py, ticket, until) {
            Ok(Some(Ok(sample))) => Ok(self.event(NodeEvent::Input {
                id: client.into(),
                sample,
            })),
            Ok(Some(Err(error))) => Err(call_error(py, &error)),
            Ok(None) => {
                let service = self.receiver.forget_call(py, ticket)?;
                let timeout = Duration::from_secs_f64(timeout.unwrap_or_default().min(1e9));
                Err(call_error(py, &CallError::TimedOut { service, timeout }))
            }
            Err(error) => {
                self.receiver.forget_call(py, ticket)?;
                Err(error)
            }
        }
    }

    /// As :meth:`call`, for asyncio: other tasks run meanwhile, and can call as well.
    #[pyo3(signature = (client, value, *, timeout = None, metadata = None))]
    fn call_async<'py>(
        slf: &Bound<'py, Self>,
        client: &Bound<'py, PyAny>,
        value: &Bound<'py, PyAny>,
        timeout: Option<f64>,
        metadata: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let call = slf.py().import("nervure._asyncio")?.getattr("call")?;
        call.call1((slf, client, value, timeout, metadata))
    }

    /// As :meth:`send`, for asyncio: other tasks run while a receiver has no room. Do not change
    /// the value before it was sent.
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

    /// Borrows shared memory to fill in place, so that nothing is copied.
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
        like: Option<&Bound<'_, PyEvent>>,
        metadata: Option<&Bound<'_, PyDict>>,
        frame: Option<&Bound<'_, PyString>>,
        timeout: Option<f64>,
    ) -> PyResult<PyLoan> {
        let wait = deadline(timeout)?.map_or(Wait::Forever, Wait::Until);
        let options = send_options(stamp, stamp_nanos, like, metadata, frame)?;
        // As in NumPy, a number is the shape of a vector.
        let lengths = shape
            .extract::<usize>()
            .map(|length| vec![length])
            .or_else(|_| shape.extract());
        let lengths: Vec<usize> = lengths.map_err(|_| {
            PyTypeError::new_err(format!(
                "shape is {shape}, expected an int or a tuple of ints, each 0 or more"
            ))
        })?;
        let layout = TensorLayout::contiguous(array::dtype_from_python(dtype)?, &lengths)
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        let loan = borrow(py, self.publisher(py, output)?, &layout, wait)?;
        PyLoan::new(py, loan, &layout, options, wait)
    }

    fn __aiter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// Waits for the next event without blocking the event loop of asyncio.
    fn __anext__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py()
            .import("nervure._asyncio")?
            .getattr("next_event")?
            .call1((slf,))
    }

    fn __repr__(&self) -> String {
        format!(
            "<Node {:?} of dataflow {:?}>",
            self.handle.id(),
            self.handle.dataflow()
        )
    }

    // -- for nervure._asyncio

    /// The next event without waiting: `None` if there is none yet, `StopAsyncIteration` after the
    /// last.
    fn _poll(&self, py: Python<'_>) -> PyResult<Option<PyEvent>> {
        match self.receiver.poll(py)? {
            Next::Event(event) => Ok(Some(self.event(event))),
            Next::Nothing => Ok(None),
            Next::End => Err(PyStopAsyncIteration::new_err(())),
        }
    }

    /// Makes the eventfd readable at the next news. Returns its number and the seconds until the
    /// next check; `None` if there is news already.
    fn _arm(&self, py: Python<'_>) -> PyResult<Option<(Option<RawFd>, f64)>> {
        let in_seconds = |deadline: u64| deadline.saturating_sub(monotonic_nanos()) as f64 / 1e9;
        let armed = self.receiver.arm(py)?;
        Ok(armed.map(|Armed { eventfd, deadline }| (eventfd, in_seconds(deadline))))
    }

    fn _disarm(&self, py: Python<'_>) -> PyResult<()> {
        self.receiver.disarm(py)
    }

    fn _begin_call(
        &self,
        py: Python<'_>,
        client: &str,
        value: &Bound<'_, PyAny>,
        metadata: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Call> {
        let prepared = self.receiver.prepare_call(py, client)?;
        self.begin(py, prepared, value, metadata)
            .map(|ticket| Call { ticket })
    }

    /// Sends a goal to an action, without waiting. Iterate over the result for its feedback.
    #[pyo3(signature = (client, goal, *, timeout = None))]
    fn act<'py>(
        slf: &Bound<'py, Self>,
        client: &Bound<'py, PyAny>,
        goal: &Bound<'py, PyAny>,
        timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let begin = slf.py().import("nervure._actions")?.getattr("act")?;
        begin.call1((slf, client, goal, timeout))
    }

    // For the package `dora`:

    /// The next event as a dict of dora: `ERROR` after `timeout` seconds, `None` after `STOP`.
    #[pyo3(signature = (timeout = None))]
    fn _next_dora<'py>(
        &self,
        py: Python<'py>,
        timeout: Option<f64>,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let deadline = deadline(dora::checked_timeout(timeout)?)?;
        if let Some(dict) = self.dora.take_rest(py)? {
            return Ok(Some(dict));
        }
        loop {
            match self.receiver.next(py, deadline)? {
                Next::Event(event) => {
                    if let Some(dict) = self.dora.convert(py, event)? {
                        return Ok(Some(dict));
                    }
                }
                Next::Nothing => return dora::timed_out(py).map(Some),
                Next::End => return Ok(None),
            }
        }
    }

    /// The next event as a dict of dora, without waiting. `None` if there is none, `False` after
    /// `STOP`.
    fn _poll_dora<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if let Some(dict) = self.dora.take_rest(py)? {
            return Ok(dict.into_any());
        }
        loop {
            match self.receiver.poll(py)? {
                Next::Event(event) => {
                    if let Some(dict) = self.dora.convert(py, event)? {
                        return Ok(dict.into_any());
                    }
                }
                Next::Nothing => return Ok(py.None().into_bound(py)),
                Next::End => return Ok(PyBool::new(py, false).to_owned().into_any()),
            }
        }
    }

    /// Sends what dora sends. Returns `False`, and sends nothing, if the node has no such output.
    #[pyo3(signature = (output, data, metadata = None))]
    fn _send_dora(
        &self,
        py: Python<'_>,
        output: &str,
        data: &Bound<'_, PyAny>,
        metadata: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<bool> {
        let options = dora::send_options(metadata)?;
        let outgoing = dora::outgoing(data)?;
        if !self.handle.outputs().any(|known| known == output) {
            return Ok(false);
        }
        let publisher = self.publisher(py, output)?;
        send_outgoing(py, publisher, &outgoing, &options, Wait::Forever)
            .map(|_| true)
            .map_err(|error| error.raise(py))
    }

    /// Borrows `bytes` bytes of shared memory. `None` if the node has no such output.
    #[pyo3(signature = (output, bytes, metadata = None))]
    fn _loan_dora(
        &self,
        py: Python<'_>,
        output: &str,
        bytes: usize,
        metadata: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Option<PyDoraSample>> {
        let options = dora::send_options(metadata)?;
        if !self.handle.outputs().any(|known| known == output) {
            return Ok(None);
        }
        let layout = TensorLayout::contiguous(DType::U8, &[bytes])
            .map_err(|error| PyValueError::new_err(error.to_string()))?;
        let loan = borrow(py, self.publisher(py, output)?, &layout, Wait::Forever)?;
        Ok(Some(PyDoraSample::new(loan, options)))
    }

    /// Abandons a request. Returns its service, as `node/service`.
    fn _forget_call(&self, py: Python<'_>, call: &Bound<'_, Call>) -> PyResult<String> {
        self.receiver.forget_call(py, call.get().ticket)
    }
}

impl PyNode {
    pub(crate) fn event(&self, event: NodeEvent) -> PyEvent {
        PyEvent::new(event, self.handle.clone())
    }

    pub(crate) fn begin(
        &self,
        py: Python<'_>,
        prepared: Result<(Ticket, Publisher), CallError>,
        value: &Bound<'_, PyAny>,
        metadata: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Ticket> {
        let (ticket, publisher) = prepared.map_err(|error| call_error(py, &error))?;
        let sent = SendOptions::for_call(binding::request_envelope(ticket), metadata)
            .map_err(Failure::Python)
            .and_then(|options| send(py, &publisher, value, &options, Wait::Never));
        let (sent, raised) = match sent {
            Ok(receipt) => (Ok(receipt), None),
            Err(Failure::Send(error)) => (Err(error), None),
            // Not sent: an empty receipt ends the request, and frees its place in the queue.
            Err(failure) => (Ok(Receipt::default()), Some(failure.raise(py))),
        };
        let finished = self.receiver.finish_call(py, ticket, sent)?;
        match raised {
            Some(error) => Err(error),
            None => finished.map_err(|error| call_error(py, &error)),
        }
    }

    fn publisher(&self, py: Python<'_>, output: &str) -> PyResult<&Publisher> {
        self.handle
            .check_fork()
            .map_err(|error| forked(py, error))?;
        self.publishers
            .iter()
            .find(|publisher| publisher.name() == output)
            .ok_or_else(|| {
                let unknown = self
                    .handle
                    .output(output)
                    .expect_err("`publishers` has all outputs of the node");
                unknown_name(py, &unknown)
            })
    }
}

fn borrow(
    py: Python<'_>,
    publisher: &Publisher,
    layout: &TensorLayout,
    wait: Wait,
) -> PyResult<Loan> {
    let bytes = layout.payload_bytes();
    let tensor = Layout::Tensor(layout.clone());
    let attempt = |wait| binding::loan_layout(publisher, &tensor, bytes, wait);
    in_slices(py, wait, attempt).map_err(|error| error.raise(py))
}

/// The keyword arguments of `send`, `try_send` and `loan`.
fn send_options(
    stamp: Option<f64>,
    stamp_nanos: Option<i64>,
    like: Option<&Bound<'_, PyEvent>>,
    metadata: Option<&Bound<'_, PyDict>>,
    frame: Option<&Bound<'_, PyString>>,
) -> PyResult<SendOptions> {
    if stamp.is_some() && stamp_nanos.is_some() {
        return Err(PyValueError::new_err("give stamp or stamp_nanos, not both"));
    }
    let stamp = stamp.map(to_nanos).transpose()?.or(stamp_nanos);
    let like = like.map(|event| event.get());
    Ok(SendOptions {
        stamp: stamp.or_else(|| like?.stamp()),
        like: like.and_then(PyEvent::sample).cloned(),
        metadata: metadata.map(metadata::from_dict).transpose()?,
        frame: frame
            .map(|frame| text(frame).map(str::to_owned))
            .transpose()?,
        ..SendOptions::default()
    })
}
