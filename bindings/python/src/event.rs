//! Events as Python objects. Nothing is converted before it is requested.

use crate::array::{self, Access};
use crate::arrow;
use crate::calls::reply_error;
use crate::classes::{self, Target};
use crate::error::{exception, sample_error};
use crate::metadata;
use crate::params;
use crate::sending;
use nervure_node::binding::{reply_with, update_with};
use nervure_node::message::{DType, Header, Layout, Scalar, TensorLayout};
use nervure_node::{Event as NodeEvent, Handle, Request, Sample};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};
use std::sync::Arc;

/// An event of a node: a sample that arrived, a timer that is due, a stale input, a neighbour that
/// failed, the order to stop.
///
/// Values are views of shared memory where possible. They are read-only, and keep their block from
/// being reused until the last view is gone. Copy data that you keep for long.
#[pyclass(frozen, name = "Event", module = "nervure")]
pub(crate) struct PyEvent {
    event: NodeEvent,
    handle: Handle,
}

impl PyEvent {
    pub(crate) fn new(event: NodeEvent, handle: Handle) -> Self {
        Self { event, handle }
    }

    pub(crate) fn node_event(&self) -> &NodeEvent {
        &self.event
    }

    pub(crate) fn sample(&self) -> Option<&Sample> {
        match &self.event {
            NodeEvent::Input { sample, .. } => Some(sample),
            other => other.request().map(Request::sample),
        }
    }

    pub(crate) fn stamp(&self) -> Option<i64> {
        match &self.event {
            NodeEvent::Input { sample, .. } => Some(sample.stamp()),
            NodeEvent::Tick { due, .. } => Some(*due),
            NodeEvent::Synced(set) => Some(set.stamp()),
            other => Some(other.request()?.sample().stamp()),
        }
    }

    /// The sample, for attributes that only samples have.
    fn expect_sample(&self, py: Python<'_>) -> PyResult<&Sample> {
        self.sample().ok_or_else(|| {
            let what = match &self.event {
                NodeEvent::Tick { id, .. } => format!("the tick of timer {id:?} carries no value"),
                NodeEvent::Synced(_) => {
                    "an event of type SYNC carries several values: see its `samples`".to_owned()
                }
                other => format!("an event of type {} carries no value", other.kind()),
            };
            exception(py, "SampleError", what)
        })
    }

    /// The objects that records in the value become.
    fn records(&self, py: Python<'_>) -> PyResult<Target> {
        match &self.event {
            NodeEvent::Input { id, .. } => classes::of_input(py, &self.handle, id),
            _ => Ok(Target::Dict),
        }
    }

    fn layout<'a>(py: Python<'_>, sample: &'a Sample) -> PyResult<&'a Layout> {
        // `view` also checks the payload's size.
        Ok(sample
            .view()
            .map_err(|error| sample_error(py, &error))?
            .layout())
    }
}

fn expect_request<'e>(py: Python<'_>, event: &'e NodeEvent) -> PyResult<&'e Request> {
    event.request().ok_or_else(|| {
        let text = format!("an event of type {} is not a request", event.kind());
        exception(py, "ServiceError", text)
    })
}

#[pymethods]
impl PyEvent {
    /// `INPUT`, `SYNC`, `INPUT_CLOSED`, `STALE`, `DEADLINE_MISSED`, `REQUEST`, `GOAL`, `CANCEL`, `PARAM`,
    /// `NODE_FAILED`, `NODE_RESTARTED`, `PAUSE`, `RESUME` or `STOP`. Ignore unknown types.
    #[getter]
    fn r#type<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        match self.event.kind() {
            "INPUT" => pyo3::intern!(py, "INPUT").clone(),
            kind => PyString::intern(py, kind),
        }
    }

    /// The input of a sample or tick; `None` for every other event. So `event.id == "image"` is
    /// enough to know that there is a sample.
    #[getter]
    fn id<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyString>> {
        match &self.event {
            NodeEvent::Input { id, .. } | NodeEvent::Tick { id, .. } => {
                Some(PyString::intern(py, id))
            }
            _ => None,
        }
    }

    /// For `SYNC`, the samples of the inputs of `sync` that belong together: a dict from the name of an
    /// input to its `Event` of type `INPUT`, or of a collected input to a list of them. `None` for other
    /// events.
    #[getter]
    fn samples<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let NodeEvent::Synced(set) = &self.event else {
            return Ok(None);
        };
        let event = |(id, sample): (&Arc<str>, &Sample)| {
            let (id, sample) = (id.clone(), sample.clone());
            Self::new(NodeEvent::Input { id, sample }, self.handle.clone())
        };
        let samples = PyDict::new(py);
        for (input, sample) in set.iter() {
            if !set.collected().contains(input) {
                samples.set_item(&**input, event((input, sample)))?;
            }
        }
        for input in set.collected() {
            let events = set.all(input).map(|sample| event((input, sample)));
            samples.set_item(&**input, events.collect::<Vec<_>>())?;
        }
        Ok(Some(samples))
    }

    /// The value as a pyarrow array or record batch; `None` for events without a value (a timer's
    /// tick). For `PARAM`, the same as `object`.
    #[getter]
    fn value<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        if let NodeEvent::Param { value, .. } = &self.event {
            return params::to_object(py, value).map(Some);
        }
        self.sample()
            .map(|sample| arrow::to_pyarrow(py, sample))
            .transpose()
    }

    /// The value as it was sent: `bytes`, `str`, a number, a NumPy array, a list or dict, an Arrow
    /// array; of an input with a standard type, its dataclass. For `PARAM`, the parameter's value.
    #[getter]
    fn object<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        if let NodeEvent::Param { value, .. } = &self.event {
            return params::to_object(py, value).map(Some);
        }
        let Some(sample) = self.sample() else {
            return Ok(None);
        };
        let object = match Self::layout(py, sample)? {
            Layout::Bytes => PyBytes::new(py, sample.bytes()).into_any(),
            Layout::Text => self.text(py)?.into_any(),
            Layout::Scalar(scalar) => scalar_object(py, *scalar)?,
            Layout::Tensor(_) => self.numpy(py)?,
            Layout::Array(_) => arrow::to_object(py, sample, &self.records(py)?)?,
        };
        Ok(Some(object))
    }

    /// The dict, dataclass or struct that was sent, as an object of a dataclass.
    fn read<'py>(&self, py: Python<'py>, cls: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        arrow::to_dataclass(py, self.expect_sample(py)?, cls)
    }

    /// The value as a NumPy array: a tensor with its dtype and shape, in place and read-only; bytes
    /// as `uint8`.
    fn numpy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let sample = self.expect_sample(py)?;
        match Self::layout(py, sample)? {
            Layout::Tensor(layout) if array::is_native(layout.dtype()) => {
                view(py, sample, layout.clone())
            }
            Layout::Tensor(layout) => array::custom_over(&flat(py, sample)?, layout),
            Layout::Bytes => flat(py, sample),
            Layout::Text => py
                .import("numpy")?
                .getattr("array")?
                .call1((self.text(py)?,)),
            Layout::Scalar(scalar) => py
                .import("numpy")?
                .getattr("array")?
                .call1((scalar_object(py, *scalar)?,)),
            Layout::Array(_) => arrow::to_numpy(py, sample),
        }
    }

    /// The same event with a copy of its value, which holds no shared memory: for events that you
    /// keep. A copied `REQUEST` or `GOAL` can still be answered.
    fn copied(&self) -> Self {
        let event = match &self.event {
            NodeEvent::Input { id, sample } => NodeEvent::Input {
                id: id.clone(),
                sample: sample.copied(),
            },
            NodeEvent::Request(request) => NodeEvent::Request(request.copied()),
            NodeEvent::Goal(request) => NodeEvent::Goal(request.copied()),
            NodeEvent::Synced(set) => NodeEvent::Synced(set.copied()),
            other => other.clone(),
        };
        Self {
            event,
            handle: self.handle.clone(),
        }
    }

    /// The value of a text sample.
    #[getter]
    fn text<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        let text = self
            .expect_sample(py)?
            .text()
            .map_err(|error| sample_error(py, &error))?;
        Ok(PyString::new(py, &text))
    }

    /// A copy of the value's bytes, in any layout.
    #[getter]
    fn bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, self.expect_sample(py)?.bytes()))
    }

    /// The metadata that was sent with the value, by name.
    #[getter]
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        match self.sample() {
            Some(sample) => {
                let metadata = sample
                    .metadata()
                    .map_err(|error| sample_error(py, &error))?;
                metadata::to_dict(py, &metadata)
            }
            None => Ok(PyDict::new(py)),
        }
    }

    /// The time at which the value was true, in seconds since 1970-01-01 UTC. For a tick, when it
    /// was due.
    #[getter(stamp)]
    fn stamp_seconds(&self) -> Option<f64> {
        self.stamp().map(seconds)
    }

    /// The stamp in nanoseconds since 1970-01-01 UTC.
    #[getter]
    fn stamp_nanos(&self) -> Option<i64> {
        self.stamp()
    }

    /// Seconds since the stamp. For `STALE`, seconds since the input's newest sample was sent, or
    /// since the start if there was none.
    #[getter]
    fn age(&self) -> Option<f64> {
        if let NodeEvent::Stale { age, .. } = &self.event {
            return Some(age.as_secs_f64());
        }
        self.stamp()
            .map(|stamp| seconds(self.handle.now().saturating_sub(stamp).max(0)))
    }

    /// Seconds from the send until this node took the sample from its queue.
    #[getter]
    fn latency(&self) -> Option<f64> {
        self.sample().map(|sample| sample.latency().as_secs_f64())
    }

    /// Number of the sample within its output and incarnation, from 0. A gap is a loss. `None` for
    /// a value of `on_failure`, which the sender did not send itself.
    #[getter]
    fn sequence(&self) -> Option<u64> {
        self.sample()
            .map(|sample| sample.header().sequence)
            .filter(|&number| number != Header::NO_SEQUENCE)
    }

    /// Restarts of the sender before this sample. Each restart begins a new sequence.
    #[getter]
    fn incarnation(&self) -> Option<u32> {
        self.sample().map(|sample| sample.header().incarnation)
    }

    /// The coordinate frame, if one was sent.
    #[getter]
    fn frame(&self) -> Option<String> {
        self.sample().and_then(Sample::frame)
    }

    /// For a timer's tick, the number of earlier ticks that were merged into this one.
    #[getter]
    fn missed(&self) -> Option<u64> {
        if let NodeEvent::Tick { missed, .. } = &self.event {
            Some(*missed)
        } else {
            None
        }
    }

    /// For `REQUEST`, the name of the service; for `GOAL` and `CANCEL`, that of the action.
    #[getter]
    fn service(&self) -> Option<&str> {
        self.event.request().map(Request::service)
    }

    /// For `GOAL` and `CANCEL`, the number of the goal in this process, from 1.
    #[getter]
    fn goal(&self) -> Option<u64> {
        self.event.request()?.goal()
    }

    /// Sends feedback on a `GOAL` to its client. One that takes it slowly misses the oldest.
    #[pyo3(signature = (value, *, metadata = None))]
    fn update(
        &self,
        py: Python<'_>,
        value: &Bound<'_, PyAny>,
        metadata: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let request = expect_request(py, &self.event)?;
        let sent = update_with(request, |publisher, envelope| {
            sending::answer(py, publisher, envelope, value, metadata)
        });
        sent.map_err(|failure| failure.raise(py))
    }

    /// Ends a `GOAL` as cancelled. A `CANCEL` is an event of the same goal.
    fn canceled(&self, py: Python<'_>) -> PyResult<()> {
        expect_request(py, &self.event)?
            .canceled()
            .map_err(|error| reply_error(py, &error))
    }

    /// Answers a `REQUEST`, or ends a `GOAL` with its result.
    #[pyo3(signature = (value, *, metadata = None))]
    fn reply(
        &self,
        py: Python<'_>,
        value: &Bound<'_, PyAny>,
        metadata: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let request = expect_request(py, &self.event)?;
        let sent = reply_with(request, |publisher, envelope| {
            sending::answer(py, publisher, envelope, value, metadata)
        });
        sent.map_err(|failure| failure.raise(py))
    }

    /// Reports to the caller of a `REQUEST` or `GOAL` that it failed, and why.
    fn fail(&self, py: Python<'_>, reason: &str) -> PyResult<()> {
        expect_request(py, &self.event)?
            .fail(reason)
            .map_err(|error| reply_error(py, &error))
    }

    /// For `PARAM`, the name of the parameter that was changed.
    #[getter]
    fn param(&self) -> Option<&str> {
        if let NodeEvent::Param { name, .. } = &self.event {
            Some(name)
        } else {
            None
        }
    }

    /// For `DEADLINE_MISSED`, seconds beyond the deadline.
    #[getter]
    fn overrun(&self) -> Option<f64> {
        if let NodeEvent::DeadlineMissed { overrun, .. } = &self.event {
            return Some(overrun.as_secs_f64());
        }
        None
    }

    /// The number of events of this kind, including this one: for `STALE`, since the newest sample;
    /// for `DEADLINE_MISSED`, since the start of the process.
    #[getter]
    fn count(&self) -> Option<u64> {
        match &self.event {
            NodeEvent::Stale { count, .. } | NodeEvent::DeadlineMissed { count, .. } => {
                Some(*count)
            }
            _ => None,
        }
    }

    /// The neighbour that the event is about, or that sent the request.
    #[getter]
    fn node(&self) -> Option<&str> {
        match &self.event {
            NodeEvent::NodeFailed { node, .. }
            | NodeEvent::NodeRestarted { node, .. }
            | NodeEvent::Other { node, .. } => Some(node),
            other => other.request().map(Request::client),
        }
    }

    /// The reason, as text for users.
    #[getter]
    fn reason(&self) -> Option<String> {
        match &self.event {
            NodeEvent::NodeFailed { reason, .. }
            | NodeEvent::Stop { reason }
            | NodeEvent::Other { reason, .. } => Some(reason.clone()),
            NodeEvent::Cancel(request) => Some(request.cancel_cause()?.to_string()),
            _ => None,
        }
    }

    /// The input that was closed, is stale, or whose event took too long to handle; or the inputs
    /// that a neighbour's failure or restart concerns.
    #[getter]
    fn inputs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        match &self.event {
            NodeEvent::NodeFailed { inputs, .. }
            | NodeEvent::NodeRestarted { inputs, .. }
            | NodeEvent::Other { inputs, .. } => PyList::new(py, inputs),
            NodeEvent::InputClosed { id }
            | NodeEvent::Stale { id, .. }
            | NodeEvent::DeadlineMissed { id, .. } => PyList::new(py, [&**id]),
            _ => Ok(PyList::empty(py)),
        }
    }

    fn __getitem__<'py>(slf: &Bound<'py, Self>, key: &str) -> PyResult<Bound<'py, PyAny>> {
        // For programs written for dora, which read the closed input there after a look at the
        // type.
        if let ("id", NodeEvent::InputClosed { id }) = (key, &slf.get().event) {
            return Ok(PyString::new(slf.py(), id).into_any());
        }
        if KEYS.contains(&key) {
            return slf.as_any().getattr(key);
        }
        Err(PyKeyError::new_err(format!(
            "an event has {}; got {key:?}",
            KEYS.join(", ")
        )))
    }

    fn __repr__(&self) -> String {
        match &self.event {
            NodeEvent::Input { id, sample } => {
                let what = match sample.layout() {
                    Ok(Layout::Tensor(layout)) => {
                        format!("{} {:?}", layout.dtype(), layout.shape())
                    }
                    Ok(Layout::Array(layout)) => format!("an Arrow array of {}", layout.len()),
                    Ok(Layout::Scalar(scalar)) => format!("{scalar:?}"),
                    Ok(layout) => format!("{}, {} bytes", layout.kind_name(), sample.bytes().len()),
                    Err(error) => error.to_string(),
                };
                format!("<Event INPUT {id:?}: {what}>")
            }
            NodeEvent::Tick { id, missed, .. } => {
                format!("<Event INPUT {id:?}: tick, {missed} missed>")
            }
            NodeEvent::Synced(set) => {
                let inputs: Vec<&str> = set.iter().map(|(input, _)| &**input).collect();
                format!("<Event SYNC: {}>", inputs.join(", "))
            }
            NodeEvent::InputClosed { id } => format!("<Event INPUT_CLOSED {id:?}>"),
            NodeEvent::Stale { id, age, .. } => {
                format!(
                    "<Event STALE {id:?}: no sample for {:.3} s>",
                    age.as_secs_f64()
                )
            }
            NodeEvent::DeadlineMissed { id, overrun, .. } => {
                format!(
                    "<Event DEADLINE_MISSED {id:?}: {:.6} s late>",
                    overrun.as_secs_f64()
                )
            }
            NodeEvent::Request(request) | NodeEvent::Goal(request) | NodeEvent::Cancel(request) => {
                let number = request.goal().map(|number| format!(" {number}"));
                format!(
                    "<Event {}{} {:?} of node {:?}>",
                    self.event.kind(),
                    number.unwrap_or_default(),
                    request.service(),
                    request.client()
                )
            }
            NodeEvent::Param { name, value } => format!("<Event PARAM {name:?}: {value}>"),
            NodeEvent::NodeFailed { node, reason, .. } => {
                format!("<Event NODE_FAILED {node:?}: {reason}>")
            }
            NodeEvent::NodeRestarted { node, .. } => format!("<Event NODE_RESTARTED {node:?}>"),
            NodeEvent::Stop { reason } => format!("<Event STOP: {reason}>"),
            other => format!("<Event {}>", other.kind()),
        }
    }
}

/// The keys of `event[key]`.
const KEYS: [&str; 8] = [
    "type", "id", "value", "metadata", "stamp", "node", "reason", "inputs",
];

/// A sample's memory under NumPy's array interface. NumPy keeps this object, and with it the
/// sample's block, as the base of the array.
#[pyclass(frozen, module = "nervure._native")]
struct SampleMemory {
    _sample: Sample,
}

/// A view of the payload under a layout that was checked to fit into it.
fn view<'py>(
    py: Python<'py>,
    sample: &Sample,
    layout: TensorLayout,
) -> PyResult<Bound<'py, PyAny>> {
    assert!(
        layout.payload_bytes() <= sample.bytes().len(),
        "the view's size was checked"
    );
    let owner = SampleMemory {
        _sample: sample.clone(),
    };
    let owner = Bound::new(py, owner)?;
    let data = sample.bytes().as_ptr();
    // SAFETY: the payload has the layout's bytes, checked above, and stays mapped as long as a clone of
    // the sample lives, which the owner has.
    unsafe { array::over(owner.as_any(), data, &layout, Access::ReadOnly) }
}

/// A view of the whole payload as bytes.
fn flat<'py>(py: Python<'py>, sample: &Sample) -> PyResult<Bound<'py, PyAny>> {
    let layout = TensorLayout::contiguous(DType::U8, &[sample.bytes().len()]);
    view(
        py,
        sample,
        layout.expect("the payload is in memory, so its size fits"),
    )
}

fn scalar_object<'py>(py: Python<'py>, scalar: Scalar) -> PyResult<Bound<'py, PyAny>> {
    Ok(match scalar {
        Scalar::Bool(value) => value.into_pyobject(py)?.to_owned().into_any(),
        Scalar::Integer(value) => value.into_pyobject(py)?.into_any(),
        Scalar::Unsigned(value) => value.into_pyobject(py)?.into_any(),
        Scalar::Float(value) => value.into_pyobject(py)?.into_any(),
    })
}

pub(crate) fn seconds(nanos: i64) -> f64 {
    nanos as f64 / 1e9
}
