//! Events, metadata and values as dora's Python API has them, for the package `dora` in `_dora_path`.
//!
//! dora's events are plain dicts, and its metadata has times, which Nervure's has not.

use crate::arrow;
use crate::error::{sample_error, text};
use crate::outgoing::{Content, Outgoing};
use crate::params;
use crate::sending::SendOptions;
use nervure_node::binding::{self, Heard, SilentInputs};
use nervure_node::{Event as NodeEvent, Handle, Metadata, Sample, Value};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple, PyType};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Blocks of one input that a node views before further samples are copied. A queue leaves a node 8
/// blocks by default (`max_held`); beyond them samples are lost. dora has no such limit, and its
/// programs keep samples in lists.
const MAX_VIEWED_BLOCKS: u64 = 4;

/// Turns events into dora's. `None` for an event that dora does not have.
#[derive(Default)]
pub(crate) struct Converter {
    /// `None` if no input can be silent for too long, so that events of most nodes cost no lock.
    watched: Option<Mutex<Watched>>,
}

#[derive(Default)]
struct Watched {
    inputs: SilentInputs,
    /// The sample that ended the silence of its input: `INPUT_RECOVERED` comes before it.
    recovering: VecDeque<NodeEvent>,
}

impl Converter {
    pub(crate) fn new(handle: &Handle) -> Self {
        let watched = Watched {
            inputs: SilentInputs::new(handle),
            ..Watched::default()
        };
        Self {
            watched: (!watched.inputs.is_empty()).then(|| Mutex::new(watched)),
        }
    }

    /// The second event of a conversion, if any: call it before the next conversion.
    pub(crate) fn take_rest<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some(watched) = &self.watched else {
            return Ok(None);
        };
        let event = lock(watched).recovering.pop_front();
        event.map_or(Ok(None), |event| to_dict(py, &event))
    }

    pub(crate) fn convert<'py>(
        &self,
        py: Python<'py>,
        event: NodeEvent,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some(watched) = &self.watched else {
            return to_dict(py, &event);
        };
        let mut watched = lock(watched);
        let heard = watched.inputs.note(&event);
        match (heard, &event) {
            (Heard::Recovery, NodeEvent::Input { id, .. }) => {
                let recovered = about_input(py, "INPUT_RECOVERED", id)?;
                watched.recovering.push_back(event);
                Ok(Some(recovered))
            }
            (Heard::Closed, NodeEvent::Stale { id, .. }) => {
                about_input(py, "INPUT_CLOSED", id).map(Some)
            }
            (Heard::Nothing, _) => Ok(None),
            _ => {
                drop(watched);
                to_dict(py, &event)
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn about_input<'py>(py: Python<'py>, kind: &str, input: &str) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item(intern!(py, "kind"), intern!(py, "dora"))?;
    dict.set_item(intern!(py, "type"), kind)?;
    dict.set_item(intern!(py, "id"), input)?;
    Ok(dict)
}

/// An event as dora's dict; `None` for a kind that dora does not have.
fn to_dict<'py>(py: Python<'py>, event: &NodeEvent) -> PyResult<Option<Bound<'py, PyDict>>> {
    let dict = PyDict::new(py);
    let (kind, id) = match event {
        NodeEvent::Input { id, sample } => {
            let sample = unless_near_limit(sample);
            // A record batch is an array of structs in dora.
            dict.set_item(intern!(py, "value"), arrow::to_pyarrow_array(py, &sample)?)?;
            dict.set_item(intern!(py, "metadata"), metadata(py, &sample)?)?;
            (intern!(py, "INPUT"), &**id)
        }
        NodeEvent::Tick { id, due, .. } => {
            let metadata = PyDict::new(py);
            metadata.set_item(intern!(py, "timestamp"), Times::get(py)?.time(py, *due)?)?;
            dict.set_item(intern!(py, "value"), empty_value(py)?)?;
            dict.set_item(intern!(py, "metadata"), metadata)?;
            (intern!(py, "INPUT"), &**id)
        }
        NodeEvent::InputClosed { id } => (intern!(py, "INPUT_CLOSED"), &**id),
        NodeEvent::Stop { reason } => {
            let are_inputs_closed = reason == binding::ALL_INPUTS_CLOSED;
            let cause = if are_inputs_closed {
                "ALL_INPUTS_CLOSED"
            } else {
                "MANUAL"
            };
            (intern!(py, "STOP"), cause)
        }
        NodeEvent::NodeRestarted { node, .. } => (intern!(py, "NODE_RESTARTED"), node.as_str()),
        // dora reports only the restart.
        NodeEvent::NodeFailed { restarts: true, .. } => return Ok(None),
        NodeEvent::NodeFailed {
            node,
            inputs,
            reason,
            ..
        } => {
            let failure = PyDict::new(py);
            failure.set_item("source_node_id", node)?;
            failure.set_item("error", reason)?;
            failure.set_item("affected_input_ids", inputs)?;
            dict.set_item(intern!(py, "value"), failure)?;
            (intern!(py, "NODE_FAILED"), node.as_str())
        }
        NodeEvent::Param { name, value } => {
            dict.set_item(intern!(py, "value"), params::to_object(py, value)?)?;
            (intern!(py, "PARAM_UPDATE"), name.as_str())
        }
        _ => return Ok(None),
    };
    dict.set_item(intern!(py, "kind"), intern!(py, "dora"))?;
    dict.set_item(intern!(py, "type"), kind)?;
    dict.set_item(intern!(py, "id"), id)?;
    Ok(Some(dict))
}

/// The event that a wait returns after its timeout.
pub(crate) fn timed_out(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("kind", "dora")?;
    dict.set_item("type", "ERROR")?;
    dict.set_item("error", "Timeout event stream error: Receiver timed out")?;
    Ok(dict)
}

/// The timeout of a wait, in seconds.
pub(crate) fn checked_timeout(timeout: Option<f64>) -> PyResult<Option<f64>> {
    match timeout {
        Some(seconds) if !(0.0..f64::INFINITY).contains(&seconds) => Err(PyValueError::new_err(
            format!("invalid timeout of {seconds} seconds: it is 0 or more, and finite"),
        )),
        timeout => Ok(timeout),
    }
}

/// Data from a dora program: bytes, or an Arrow array.
pub(crate) fn outgoing<'py>(data: &Bound<'py, PyAny>) -> PyResult<Outgoing<'py>> {
    if let Ok(bytes) = data.cast::<PyBytes>() {
        return Ok(Outgoing::bytes(bytes));
    }
    match arrow::import_only_array(data)? {
        Some((array, schema)) => Ok(Outgoing::of(Content::Arrow { array, schema }, data)),
        None => Err(PyRuntimeError::new_err(format!(
            "invalid `data` type, must be `PyBytes` or arrow array; got {}",
            data.get_type().name()?
        ))),
    }
}

/// The options of a send with dora's metadata. A time `timestamp` is the stamp, so that metadata
/// which is passed on keeps the time of its source.
pub(crate) fn send_options(metadata: Option<&Bound<'_, PyDict>>) -> PyResult<SendOptions> {
    let mut options = SendOptions::default();
    let Some(given) = metadata.filter(|given| !given.is_empty()) else {
        return Ok(options);
    };
    let mut sent = Metadata::new();
    for (key, value) in given {
        let Ok(key) = key.cast::<PyString>() else {
            let text = format!("keys of metadata are str, got {}", key.get_type().name()?);
            return Err(PyRuntimeError::new_err(text));
        };
        let key = text(key)?;
        let value = metadata_value(key, &value)?;
        match binding::dora_time(&value).filter(|_| key == "timestamp") {
            Some(nanos) => options.stamp = Some(nanos),
            None => {
                sent.insert(key, value);
            }
        }
    }
    options.metadata = Some(sent);
    Ok(options)
}

fn metadata_value(key: &str, given: &Bound<'_, PyAny>) -> PyResult<Value> {
    let py = given.py();
    if let Ok(value) = given.cast::<PyBool>() {
        return Ok(Value::Bool(value.is_true()));
    }
    if given.is_instance_of::<PyInt>() {
        return Ok(Value::Integer(given.extract()?));
    }
    if given.is_instance_of::<PyFloat>() {
        return Ok(Value::Float(given.extract()?));
    }
    if let Ok(given) = given.cast::<PyString>() {
        return Ok(Value::Text(text(given)?.to_owned()));
    }
    if given.is_instance_of::<PyList>() || given.is_instance_of::<PyTuple>() {
        // As in dora, the first element determines the type.
        let first = given.try_iter()?.next().transpose()?;
        match first {
            None => return Ok(Value::Texts(Vec::new())),
            Some(first) if first.is_exact_instance_of::<PyInt>() => {
                return Ok(Value::Integers(given.extract()?));
            }
            Some(first) if first.is_exact_instance_of::<PyFloat>() => {
                return Ok(Value::Floats(given.extract()?));
            }
            Some(first) if first.is_exact_instance_of::<PyString>() => {
                let texts = given.try_iter()?.map(|one| {
                    let one = one?;
                    Ok(text(one.cast::<PyString>()?)?.to_owned())
                });
                return Ok(Value::Texts(texts.collect::<PyResult<_>>()?));
            }
            Some(_) => {}
        }
    }
    let times = Times::get(py)?;
    if given.is_instance(times.class.bind(py))? {
        let seconds: f64 = given.call_method0(intern!(py, "timestamp"))?.extract()?;
        return Ok(binding::dora_time_value(
            (seconds * 1e6).round() as i64 * 1000,
        ));
    }
    let text = given.str()?.to_str()?.to_owned();
    let kind = given.get_type().name()?;
    let warning = format!("metadata `{key}` is {kind}, which is sent as text: {text}");
    py.import("dora._logging")?
        .getattr("warn")?
        .call1((warning,))?;
    Ok(Value::Text(text))
}

/// The sample, or a copy of it if the node views almost as many blocks of this input as it may, and could soon miss
/// samples.
fn unless_near_limit(sample: &Sample) -> Sample {
    if sample.raw().blocks_in_use() > MAX_VIEWED_BLOCKS {
        sample.copied()
    } else {
        sample.clone()
    }
}

fn empty_value(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    static EMPTY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let make = || -> PyResult<Py<PyAny>> {
        let nulls = py.import("pyarrow")?.getattr("nulls")?.call1((0,))?;
        Ok(nulls.unbind())
    };
    Ok(EMPTY.get_or_try_init(py, make)?.bind(py).clone())
}

fn metadata<'py>(py: Python<'py>, sample: &Sample) -> PyResult<Bound<'py, PyDict>> {
    let times = Times::get(py)?;
    let dict = PyDict::new(py);
    dict.set_item(intern!(py, "timestamp"), times.time(py, sample.stamp())?)?;
    let metadata = sample
        .metadata()
        .map_err(|error| sample_error(py, &error))?;
    for (key, value) in metadata.iter() {
        match binding::dora_time(value) {
            Some(nanos) => dict.set_item(key, times.time(py, nanos)?)?,
            None => crate::metadata::set(&dict, key, value)?,
        }
    }
    Ok(dict)
}

/// Python's `datetime`, which has no C interface in the stable ABI.
struct Times {
    class: Py<PyType>,
    from_timestamp: Py<PyAny>,
    utc: Py<PyAny>,
}

impl Times {
    fn get(py: Python<'_>) -> PyResult<&Self> {
        static TIMES: PyOnceLock<Times> = PyOnceLock::new();
        TIMES.get_or_try_init(py, || {
            let module = py.import("datetime")?;
            let class = module.getattr("datetime")?;
            Ok(Self {
                from_timestamp: class.getattr("fromtimestamp")?.unbind(),
                utc: module.getattr("timezone")?.getattr("utc")?.unbind(),
                class: class.cast_into::<PyType>()?.unbind(),
            })
        })
    }

    /// The time with the microseconds that Python's times have.
    fn time<'py>(&self, py: Python<'py>, nanos: i64) -> PyResult<Bound<'py, PyAny>> {
        let seconds = nanos.div_euclid(1000) as f64 / 1e6;
        self.from_timestamp
            .bind(py)
            .call1((seconds, self.utc.bind(py)))
    }
}
