//! Functions for `nervure._host`, the process of composed nodes.

use nervure_node::binding;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Returns the control socket of the calling thread's node, or of the node with an id.
static TAKE_CONTROL: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// Makes `Node()` connect over the control socket that `take_control(id)` returns.
#[pyfunction]
#[pyo3(name = "_set_host")]
pub(crate) fn set_host(py: Python<'_>, take_control: Py<PyAny>) {
    let _ = TAKE_CONTROL.set(py, take_control);
}

/// Runs this thread on these processors, all if there are none, with this scheduling as JSON.
#[pyfunction]
#[pyo3(name = "_prepare_thread")]
#[expect(clippy::needless_pass_by_value, reason = "PyO3 extracts a list")]
pub(crate) fn prepare_thread(cpu_affinity: Vec<u32>, scheduling: &str) -> PyResult<()> {
    binding::prepare_thread(&cpu_affinity, scheduling).map_err(PyOSError::new_err)
}

/// The control socket for a node of this process; `None` if the process is no host.
pub(crate) fn control_socket(py: Python<'_>, id: Option<&str>) -> PyResult<Option<OwnedFd>> {
    let Some(take_control) = TAKE_CONTROL.get(py) else {
        return Ok(None);
    };
    let number: RawFd = take_control.call1(py, (id,))?.extract(py)?;
    // SAFETY: the function gives an open descriptor away.
    Ok(Some(unsafe { OwnedFd::from_raw_fd(number) }))
}
