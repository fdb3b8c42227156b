//! Sending a Python object with its options.

use crate::calls::reply_error;
use crate::error::{chain, exception, send_error};
use crate::metadata;
use crate::outgoing::{Content, Outgoing};
use crate::signals::SIGNAL_CHECK_NANOS;
use nervure_node::binding::{self, Written};
use nervure_node::message::ArraySample;
use nervure_node::{
    Encode, Envelope, Metadata, Publisher, Receipt, ReplyError, Sample, SendError, Wait,
    monotonic_nanos,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// A payload above this size is copied detached from the interpreter. Below it, the copy is faster
/// than detaching.
const DETACHED_COPY_BYTES: usize = 64 * 1024;

/// The keyword arguments of `send`.
#[derive(Default)]
pub(crate) struct SendOptions {
    pub(crate) stamp: Option<i64>,
    pub(crate) like: Option<Sample>,
    pub(crate) metadata: Option<Metadata>,
    pub(crate) frame: Option<String>,
    /// The envelope to start from. It carries the number of a request or answer.
    pub(crate) envelope: Envelope<'static>,
}

impl SendOptions {
    /// For a request or an answer, which have no options but metadata.
    pub(crate) fn for_call(
        envelope: Envelope<'static>,
        metadata: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        Ok(Self {
            metadata: metadata.map(metadata::from_dict).transpose()?,
            envelope,
            ..Self::default()
        })
    }

    pub(crate) fn envelope(&self) -> Envelope<'_> {
        self.envelope_with(self.metadata.as_ref())
    }

    /// The envelope, with this metadata instead of that of the options.
    fn envelope_with<'e>(&'e self, metadata: Option<&'e Metadata>) -> Envelope<'e> {
        let mut envelope = self.envelope.clone();
        if let Some(stamp) = self.stamp {
            envelope = envelope.stamp(stamp);
        }
        if let Some(like) = &self.like {
            envelope = envelope.like(like);
        }
        if let Some(metadata) = metadata {
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
    Reply(ReplyError),
    Python(PyErr),
}

impl Failure {
    pub(crate) fn raise(self, py: Python<'_>) -> PyErr {
        match self {
            Self::Send(error) => send_error(py, &error),
            Self::Reply(error) => reply_error(py, &error),
            Self::Python(error) => error,
        }
    }
}

impl From<ReplyError> for Failure {
    fn from(error: ReplyError) -> Self {
        Self::Reply(error)
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
    options: &SendOptions,
    wait: Wait,
) -> Result<Receipt, Failure> {
    send_outgoing(py, publisher, &Outgoing::new(value)?, options, wait)
}

/// Sends an answer to a request, or feedback on a goal, without waiting.
pub(crate) fn answer(
    py: Python<'_>,
    publisher: &Publisher,
    envelope: Envelope<'static>,
    value: &Bound<'_, PyAny>,
    metadata: Option<&Bound<'_, PyDict>>,
) -> Result<(), Failure> {
    let options = SendOptions::for_call(envelope, metadata)?;
    send(py, publisher, value, &options, Wait::Never)?;
    Ok(())
}

/// Sends a value that was converted already.
pub(crate) fn send_outgoing(
    py: Python<'_>,
    publisher: &Publisher,
    outgoing: &Outgoing<'_>,
    options: &SendOptions,
    wait: Wait,
) -> Result<Receipt, Failure> {
    let merged = outgoing.metadata.as_ref().map(|own| {
        let mut merged = own.clone();
        for (key, value) in options.metadata.iter().flat_map(Metadata::iter) {
            merged.insert(key, value.clone());
        }
        merged
    });
    let envelope = options.envelope_with(merged.as_ref().or(options.metadata.as_ref()));
    match &outgoing.content {
        Content::Raw(buffer) => send_encoded(py, publisher, buffer, &envelope, wait),
        Content::Record(record) => send_encoded(py, publisher, record, &envelope, wait),
        Content::Arrow { array, schema } => {
            let sample = ArraySample::new(array, schema)
                .map_err(|error| exception(py, "NotSendable", chain(&error)))?;
            send_encoded(py, publisher, &sample, &envelope, wait)
        }
    }
}

fn send_encoded<V: Encode + Sync>(
    py: Python<'_>,
    publisher: &Publisher,
    value: &V,
    envelope: &Envelope<'_>,
    wait: Wait,
) -> Result<Receipt, Failure> {
    let mut written: Option<Box<Written<'_>>> = None;
    let mut attempt = |wait| {
        let sent = match written.take() {
            // The value is already in shared memory: no second copy.
            Some(written) => written.send_once(wait),
            None => binding::send_once(publisher, value, envelope, wait),
        };
        sent.map_err(|unsent| {
            written = unsent.written;
            unsent.cause
        })
    };
    if value.payload_bytes() <= DETACHED_COPY_BYTES {
        match attempt(Wait::Never) {
            Err(SendError::WouldBlock { .. } | SendError::Paused) if wait != Wait::Never => {}
            result => return result.map_err(Failure::Send),
        }
    }
    in_slices(py, wait, attempt)
}

/// Repeats `attempt`, detached, in slices of 50 ms until `wait` is over, and runs Python's signal
/// handlers in between: a signal that arrives just before an attempt starts to wait, or in another
/// thread, does not interrupt it. (A waiting producer checks for room at this interval in any
/// case.)
pub(crate) fn in_slices<T: Send>(
    py: Python<'_>,
    wait: Wait,
    mut attempt: impl FnMut(Wait) -> Result<T, SendError> + Send,
) -> Result<T, Failure> {
    loop {
        let slice_end = monotonic_nanos() + SIGNAL_CHECK_NANOS;
        let slice = match wait {
            Wait::Never => Wait::Never,
            Wait::Forever => Wait::Until(slice_end),
            Wait::Until(deadline) => Wait::Until(deadline.min(slice_end)),
        };
        match py.detach(|| attempt(slice)) {
            Err(SendError::Interrupted) => {}
            Err(SendError::TimedOut { .. } | SendError::Paused) if slice != wait => {}
            result => return result.map_err(Failure::Send),
        }
        py.check_signals()?;
    }
}

/// The deadline of a wait of `timeout` seconds, in nanoseconds of CLOCK_MONOTONIC; `None` without a
/// timeout.
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

/// A stamp in nanoseconds.
pub(crate) fn stamp_nanos(seconds: f64) -> PyResult<i64> {
    /// In the year 2261, shortly before nanoseconds overflow 64 bits.
    const MAX_SECONDS: f64 = 9.2e9;
    if seconds.abs() < MAX_SECONDS {
        return Ok((seconds * 1e9).round() as i64);
    }
    let text = format!(
        "stamp is {seconds:e}, expected seconds since 1970-01-01 (UTC); for nanoseconds use stamp_nanos"
    );
    Err(PyValueError::new_err(text))
}
