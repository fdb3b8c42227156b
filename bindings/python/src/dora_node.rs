//! Functions on a node for the package `dora` in `_dora_path`.

use crate::event::PyEvent;
use crate::node::PyNode;
use nervure_node::binding;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Makes the node's events come in the order of dora.
#[pyfunction]
pub(crate) fn dora_follow(py: Python<'_>, node: &Bound<'_, PyNode>) -> PyResult<()> {
    node.get().receiver.deliver_samples_after_stop(py)
}

/// An event of `__anext__` as a dict of dora; `None` for a kind that dora does not have.
#[pyfunction]
pub(crate) fn dora_event<'py>(
    py: Python<'py>,
    node: &Bound<'py, PyNode>,
    event: &Bound<'py, PyEvent>,
) -> PyResult<Option<Bound<'py, PyDict>>> {
    node.get()
        .dora
        .convert(py, event.get().node_event().clone())
}

/// What [`dora_event`] left of the last event.
#[pyfunction]
pub(crate) fn dora_rest<'py>(
    py: Python<'py>,
    node: &Bound<'py, PyNode>,
) -> PyResult<Option<Bound<'py, PyDict>>> {
    node.get().dora.take_rest(py)
}

/// Ends an output: its receivers get `INPUT_CLOSED`.
#[pyfunction]
pub(crate) fn dora_close_output(node: &Bound<'_, PyNode>, output: &str) {
    binding::close_output(&node.get().handle, output);
}
