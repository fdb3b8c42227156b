//! Sending a value with what goes along with it.

use crate::error::{chain, exception, send_error};
use crate::event::Event;
use crate::metadata;
use crate::outgoing::{Content, Outgoing};
use crate::signals::DEAF_NANOS;
use nervure_node::message::ArraySample;
use nervure_node::{
    Encode, Envelope, Metadata, Publisher, Receipt, Sample, SendError, Wait, Written,
    monotonic_nanos,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// A payload above this size is copied detached from the interpreter: below, the copy is faster than the switch.
const DETACHED_COPY_BYTES: usize = 64 * 1024;

/// What goes along with a value.
#[derive(Default)]
pub(crate) struct Given {
    pub(crate) stamp: Option<i64>,
    pub(crate) like: Option<Sample>,
    pub(crate) metadata: Option<Metadata>,
    pub(crate) frame: Option<String>,
    /// What the envelope begins with: the number of a request.
    pub(crate) envelope: Envelope<'static>,
}

impl Given {
    pub(crate) fn new(
        stamp: Option<f64>,
        stamp_nanos: Option<i64>,
        like: Option<&Bound<'_, Event>>,
        metadata: Option<&Bound<'_, PyDict>>,
        frame: Option<String>,
    ) -> PyResult<Self> {
        let mut given = Self {
            stamp: stamp_nanos,
            frame,
            ..Self::default()
        };
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
        let mut envelope = self.envelope.clone();
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
pub(crate) enum Failure {
    Send(SendError),
    Python(PyErr),
}

impl Failure {
    pub(crate) fn raise(self, py: Python<'_>) -> PyErr {
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

pub(crate) fn send(
    py: Python<'_>,
    publisher: &Publisher,
    value: &Bound<'_, PyAny>,
    given: &Given,
    wait: Wait,
) -> Result<Receipt, Failure> {
    let outgoing = Outgoing::new(value)?;
    match &outgoing.content {
        Content::Plain(plain) => send_encoded(py, publisher, plain, given, wait),
        Content::Record(record) => send_encoded(py, publisher, record, given, wait),
        Content::Arrow { array, schema } => {
            let sample = ArraySample::new(array, schema)
                .map_err(|error| exception(py, "NotSendable", chain(&error)))?;
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
) -> Result<Receipt, Failure> {
    let envelope = given.envelope();
    let mut written: Option<Box<Written<'_>>> = None;
    let mut attempt = |wait| {
        let sent = match written.take() {
            // Waiting for room again and again, it is not copied again and again.
            Some(written) => written.send_once(wait),
            None => publisher.send_once(value, &envelope, wait),
        };
        sent.map_err(|unsent| {
            written = unsent.written;
            unsent.cause
        })
    };
    if value.payload_bytes() <= DETACHED_COPY_BYTES {
        match attempt(Wait::Never) {
            Err(SendError::WouldBlock { .. }) if wait != Wait::Never => {}
            result => return result.map_err(Failure::Send),
        }
    }
    in_slices(py, wait, attempt)
}

/// Attempts as often as it takes until `wait` is over. Python's signal handlers run in between: a signal that comes before
/// an attempt begins to wait, or that another thread gets, does not interrupt it. (A producer that waits looks for room as
/// often in any case.)
pub(crate) fn in_slices<T: Send>(
    py: Python<'_>,
    wait: Wait,
    mut attempt: impl FnMut(Wait) -> Result<T, SendError> + Send,
) -> Result<T, Failure> {
    loop {
        let slice_end = monotonic_nanos() + DEAF_NANOS;
        let slice = match wait {
            Wait::Never => Wait::Never,
            Wait::Forever => Wait::Until(slice_end),
            Wait::Until(deadline) => Wait::Until(deadline.min(slice_end)),
        };
        match py.detach(|| attempt(slice)) {
            Err(SendError::Interrupted) => {}
            Err(SendError::TimedOut { .. }) if slice != wait => {}
            result => return result.map_err(Failure::Send),
        }
        py.check_signals()?;
    }
}

/// The reading of CLOCK_MONOTONIC at which a wait of so many seconds ends; `None` for no end.
pub(crate) fn deadline(timeout: Option<f64>) -> PyResult<Option<u64>> {
    match timeout {
        None => Ok(None),
        Some(seconds) if seconds >= 0.0 => {
            let nanos = (seconds * 1e9).min(u64::MAX as f64) as u64;
            Ok(Some(monotonic_nanos().saturating_add(nanos)))
        }
        Some(seconds) => Err(PyValueError::new_err(format!(
            "timeout is {seconds} s, expected 0 or more"
        ))),
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
