//! Lookups of transforms between coordinate frames.

use crate::error::exception;
use crate::event::PyEvent;
use crate::node::PyNode;
use crate::sending::deadline;
use nervure_node::transforms::LookupFailure;
use nervure_node::{LookupError, LookupTime};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyFloat;

/// Translation, rotation and stamp of a transform, for `nervure._transforms`.
#[pyfunction]
pub(crate) fn lookup_transform(
    node: &Bound<'_, PyNode>,
    target: &str,
    source: &str,
    time: &Bound<'_, PyAny>,
    timeout: Option<f64>,
) -> PyResult<([f64; 3], [f64; 4], Option<i64>)> {
    let (py, time, until) = (node.py(), lookup_time(time)?, deadline(timeout)?);
    let receiver = &node.get().receiver;
    let found = receiver.lookup(py, (target, source), time, until)?;
    let found = found.map_err(|error| lookup_error(py, &error))?;
    Ok((found.translation, found.rotation, found.stamp))
}

/// The time of a lookup: an event, nanoseconds as int, seconds as float, or None for the newest.
fn lookup_time(time: &Bound<'_, PyAny>) -> PyResult<LookupTime> {
    if time.is_none() {
        return Ok(LookupTime::Latest);
    }
    if let Ok(event) = time.cast::<PyEvent>() {
        let stamp = event.get().stamp().map(LookupTime::At);
        return stamp.ok_or_else(|| PyValueError::new_err(format!("{time} has no stamp")));
    }
    if let Ok(seconds) = time.cast::<PyFloat>() {
        let seconds = seconds.extract::<f64>()?;
        return match seconds.is_finite() {
            true => Ok(LookupTime::Seconds(seconds)),
            false => Err(PyValueError::new_err(format!(
                "time is {time}, expected a finite number"
            ))),
        };
    }
    let nanos = time.extract::<i64>();
    nanos.map(LookupTime::At).map_err(|_| {
        PyTypeError::new_err(format!(
            "time is {time}, expected an event, nanoseconds as int, seconds as float, or None for the newest"
        ))
    })
}

fn lookup_error(py: Python<'_>, error: &LookupError) -> PyErr {
    if *error.reason == LookupFailure::Stopped {
        return exception(py, "Stopped", error);
    }
    let raised = exception(py, "TransformError", error);
    match raised.value(py).setattr("kind", error.reason.kind()) {
        Ok(()) => raised,
        Err(error) => error,
    }
}
