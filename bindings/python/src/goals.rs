//! Goals and answers, for the modules `nervure._actions` and `nervure._asyncio`.

use crate::calls::{Call, call_error};
use crate::event::PyEvent;
use crate::node::PyNode;
use crate::receiving::Progress;
use crate::sending::deadline;
use nervure_node::{Event as NodeEvent, Sample, binding};
use pyo3::prelude::*;
use pyo3::types::PyDict;

fn event(node: &PyNode, client: &str, sample: Sample) -> PyEvent {
    node.event(NodeEvent::Input {
        id: client.into(),
        sample,
    })
}

#[pyfunction]
pub(crate) fn begin_goal(
    py: Python<'_>,
    node: &Bound<'_, PyNode>,
    client: &str,
    goal: &Bound<'_, PyAny>,
    timeout: Option<f64>,
) -> PyResult<Call> {
    let node = node.get();
    deadline(timeout)?;
    let limit = PyDict::new(py);
    if let Some(seconds) = timeout {
        limit.set_item(binding::WITHIN_KEY, seconds)?;
    }
    let prepared = node.receiver.prepare_goal(py, client)?;
    node.begin(py, prepared, goal, Some(&limit))
        .map(|ticket| Call { ticket })
}

/// The next feedback as `(True, event)`, the result as `(False, event)`; `None` after `timeout` seconds.
#[pyfunction]
pub(crate) fn wait_for_progress(
    py: Python<'_>,
    node: &Bound<'_, PyNode>,
    client: &str,
    call: &Bound<'_, Call>,
    timeout: Option<f64>,
) -> PyResult<Option<(bool, PyEvent)>> {
    let node = node.get();
    let until = deadline(timeout)?;
    let ticket = call.get().ticket;
    match node.receiver.wait_for_progress(py, ticket, until)? {
        None => Ok(None),
        Some(Progress::Feedback(sample)) => Ok(Some((true, event(node, client, sample)))),
        Some(Progress::Result(Ok(sample))) => Ok(Some((false, event(node, client, sample)))),
        Some(Progress::Result(Err(error))) => Err(call_error(py, &error)),
    }
}

#[pyfunction]
pub(crate) fn cancel_goal(
    py: Python<'_>,
    node: &Bound<'_, PyNode>,
    call: &Bound<'_, Call>,
) -> PyResult<()> {
    let cancelled = node.get().receiver.cancel_goal(py, call.get().ticket)?;
    cancelled.map_err(|error| call_error(py, &error))
}

#[pyfunction]
pub(crate) fn goal_state(
    py: Python<'_>,
    node: &Bound<'_, PyNode>,
    call: &Bound<'_, Call>,
) -> PyResult<u8> {
    Ok(node.get().receiver.goal_state(py, call.get().ticket)? as u8)
}

/// The answer to a request; `None` if it has not arrived.
#[pyfunction]
pub(crate) fn take_answer(
    py: Python<'_>,
    node: &Bound<'_, PyNode>,
    client: &str,
    call: &Bound<'_, Call>,
) -> PyResult<Option<PyEvent>> {
    let node = node.get();
    match node.receiver.take_answer(py, call.get().ticket)? {
        Some(Ok(sample)) => Ok(Some(event(node, client, sample))),
        Some(Err(error)) => Err(call_error(py, &error)),
        None => Ok(None),
    }
}
