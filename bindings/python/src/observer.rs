//! Receiving topics of a dataflow that one is no node of.

use crate::error::{exception, observe_error};
use crate::event::{Event, seconds};
use crate::receiving::{Armed, Receiver};
use crate::sending::deadline;
use nervure_node::{Event as NodeEvent, Gaps, Handle, Next, monotonic_nanos};
use pyo3::exceptions::PyStopAsyncIteration;
use pyo3::prelude::*;
use pyo3::types::PyTuple;
use std::os::fd::RawFd;
use std::sync::{Mutex, PoisonError};

/// Samples of topics of a running dataflow, as they come.
#[pyclass(frozen, weakref, module = "nervure")]
pub(crate) struct Observer {
    handle: Handle,
    receiver: Receiver,
    gaps: Mutex<Gaps>,
}

/// Receives topics (`node/output`) of a running dataflow, from any program.
#[pyfunction]
#[pyo3(signature = (*topics, dataflow = None, depth = 4))]
pub(crate) fn observe(
    py: Python<'_>,
    topics: Vec<String>,
    dataflow: Option<&str>,
    depth: u32,
) -> PyResult<Observer> {
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
        nervure_node::Observer::open_as(dataflow, &topics, depth, "python", go_on)
    });
    if let Some(error) = raised {
        return Err(error);
    }
    let (handle, events) = opened.map_err(|error| observe_error(py, &error))?.split();
    let receiver = Receiver::new(handle.clone(), events);
    Ok(Observer {
        handle,
        receiver,
        gaps: Mutex::default(),
    })
}

#[pymethods]
impl Observer {
    /// Its id in the dataflow, `python@4711`.
    #[getter]
    fn id(&self) -> &str {
        self.handle.id()
    }

    /// The dataflow's name.
    #[getter]
    fn dataflow(&self) -> &str {
        self.handle.dataflow()
    }

    /// The topics.
    #[getter]
    fn topics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.handle.inputs())
    }

    /// How many samples were missed between those that were received.
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
    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Event>> {
        self.next_sample(py, None)
    }

    /// Waits at most `timeout` seconds for the next sample; without a timeout, until there is one.
    #[pyo3(signature = (*, timeout = None))]
    fn next(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Event>> {
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

    /// The next sample without waiting; None when there is none, `StopAsyncIteration` when there will be none.
    fn _poll(&self, py: Python<'_>) -> PyResult<Option<Event>> {
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

    /// Asks for the eventfd to become readable: its number, and seconds until the next look; None when there is news.
    fn _arm(&self, py: Python<'_>) -> PyResult<Option<(Option<RawFd>, f64)>> {
        let in_seconds = |deadline: u64| deadline.saturating_sub(monotonic_nanos()) as f64 / 1e9;
        let armed = self.receiver.arm(py)?;
        Ok(armed.map(|Armed { eventfd, deadline }| (eventfd, in_seconds(deadline))))
    }

    fn _disarm(&self, py: Python<'_>) -> PyResult<()> {
        self.receiver.disarm(py)
    }
}

impl Observer {
    fn next_sample(&self, py: Python<'_>, deadline: Option<u64>) -> PyResult<Option<Event>> {
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

    /// The event, if it is a sample. It is copied: a notebook keeps as many as it likes, and the producer's memory is free
    /// again.
    fn sample(&self, py: Python<'_>, event: NodeEvent) -> Option<Event> {
        let NodeEvent::Input { id, sample } = event else {
            return None;
        };
        self.gaps
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .before(&id, sample.header());
        let sample = py.detach(move || sample.copied());
        Some(Event::new(
            NodeEvent::Input { id, sample },
            self.handle.clone(),
        ))
    }
}
