//! Receiving topics of a dataflow from outside.

use crate::error::{exception, observe_error};
use crate::event::{PyEvent, seconds};
use crate::receiving::{Armed, Receiver};
use crate::sending::deadline;
use nervure_node::binding::{self, SequenceGaps};
use nervure_node::{Event as NodeEvent, Handle, Next, monotonic_nanos};
use pyo3::exceptions::PyStopAsyncIteration;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::os::fd::RawFd;
use std::sync::{Mutex, PoisonError};

/// Samples of topics of a running dataflow, in order of arrival.
#[pyclass(frozen, weakref, name = "Observer", module = "nervure")]
pub(crate) struct PyObserver {
    handle: Handle,
    receiver: Receiver,
    gaps: Mutex<SequenceGaps>,
}

/// Receives topics (`node/output`) of a running dataflow, from any program.
#[pyfunction]
#[pyo3(signature = (*topics, dataflow = None, depth = 4))]
pub(crate) fn observe(
    py: Python<'_>,
    topics: Vec<String>,
    dataflow: Option<&str>,
    depth: u32,
) -> PyResult<PyObserver> {
    if topics.is_empty() {
        return Err(exception(
            py,
            "ConnectError",
            "no topic was named: observe(\"camera/image\")",
        ));
    }
    let mut raised = None;
    let opened = py.detach(|| {
        let go_on = || {
            raised = Python::attach(|py| py.check_signals()).err();
            raised.is_none()
        };
        binding::observe(dataflow, &topics, depth, "python", go_on)
    });
    if let Some(error) = raised {
        return Err(error);
    }
    let (handle, events) = opened.map_err(|error| observe_error(py, &error))?.split();
    let receiver = Receiver::new(handle.clone(), events);
    Ok(PyObserver {
        handle,
        receiver,
        gaps: Mutex::default(),
    })
}

#[pymethods]
impl PyObserver {
    /// The observer's id in the dataflow, for example `python@4711`.
    #[getter]
    fn id(&self) -> &str {
        self.handle.id()
    }

    /// The dataflow's name.
    #[getter]
    fn dataflow(&self) -> &str {
        self.handle.dataflow()
    }

    /// The observed topics.
    #[getter]
    fn topics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.handle.inputs())
    }

    /// The number of samples that were missed between those that were received.
    #[getter]
    fn dropped(&self) -> u64 {
        self.gaps
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .total()
    }

    /// The dataflow's clock, in seconds since 1970-01-01 UTC.
    fn now(&self) -> f64 {
        seconds(self.handle.now())
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// Waits for the next sample. Other threads run meanwhile, and Ctrl-C ends the wait.
    fn __next__(&self, py: Python<'_>) -> PyResult<Option<PyEvent>> {
        self.next_sample(py, None)
    }

    /// Waits at most `timeout` seconds for the next sample, or without a limit.
    #[pyo3(signature = (*, timeout = None))]
    fn next(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<PyEvent>> {
        self.next_sample(py, deadline(timeout)?)
    }

    fn __aiter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    /// Waits for the next sample without blocking the event loop of asyncio.
    fn __anext__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        slf.py()
            .import("nervure._asyncio")?
            .getattr("next_event")?
            .call1((slf,))
    }

    fn __repr__(&self) -> String {
        let topics: Vec<_> = self.handle.inputs().collect();
        format!(
            "<Observer of {} of dataflow {:?}>",
            topics.join(", "),
            self.handle.dataflow()
        )
    }

    // -- for nervure._asyncio

    /// The next sample without waiting: `None` if there is none yet, `StopAsyncIteration` after the
    /// last.
    fn _poll(&self, py: Python<'_>) -> PyResult<Option<PyEvent>> {
        loop {
            match self.receiver.poll(py)? {
                Next::Event(event) => match self.sample(py, event) {
                    None => {}
                    sample => return Ok(sample),
                },
                Next::Nothing => return Ok(None),
                Next::End => return Err(PyStopAsyncIteration::new_err(())),
            }
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
}

impl PyObserver {
    fn next_sample(&self, py: Python<'_>, deadline: Option<u64>) -> PyResult<Option<PyEvent>> {
        loop {
            match self.receiver.next(py, deadline)? {
                Next::Event(event) => match self.sample(py, event) {
                    None => {}
                    sample => return Ok(sample),
                },
                Next::Nothing | Next::End => return Ok(None),
            }
        }
    }

    /// The event, if it is a sample. The sample is copied, so that a notebook can keep any number
    /// of them while the producer's memory is free again.
    fn sample(&self, py: Python<'_>, event: NodeEvent) -> Option<PyEvent> {
        let NodeEvent::Input { id, sample } = event else {
            return None;
        };
        self.gaps
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .record(&id, sample.header());
        let sample = py.detach(move || sample.copied());
        Some(PyEvent::new(
            NodeEvent::Input { id, sample },
            self.handle.clone(),
        ))
    }
}
