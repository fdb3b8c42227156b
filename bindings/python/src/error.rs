//! Errors as Python's exceptions.
//!
//! The classes are written in Python (`nervure.errors`), where a class can have two bases:
//! `NodeTimeout` is also a `TimeoutError`.

use nervure_node::{ConnectError, NodeForked, ObserveError, SampleError, SendError, UnknownName};
use pyo3::prelude::*;
use pyo3::types::PyString;
use std::fmt::Display;

/// An exception of the named class of `nervure.errors`.
pub(crate) fn exception(py: Python<'_>, class: &str, message: impl Display) -> PyErr {
    let class = py
        .import("nervure.errors")
        .and_then(|errors| errors.getattr(class));
    match class.and_then(|class| class.call1((message.to_string(),))) {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

/// The text of a str that is to be sent.
///
/// # Errors
/// `NotSendable` for lone surrogates, which stand for bytes that are not UTF-8 in names of files.
pub(crate) fn text<'a>(value: &'a Bound<'_, PyString>) -> PyResult<&'a str> {
    value.to_str().map_err(|_| {
        let shown = value.repr().map(|shown| shown.to_string());
        let shown = shown.unwrap_or_default();
        let text = format!(
            "the text {shown} has lone surrogates, expected valid Unicode (hint: os.fsencode(text) gives \
             the bytes of a file's name)"
        );
        exception(value.py(), "NotSendable", text)
    })
}

pub(crate) fn connect_error(py: Python<'_>, error: &ConnectError) -> PyErr {
    exception(py, "ConnectError", error)
}

pub(crate) fn observe_error(py: Python<'_>, error: &ObserveError) -> PyErr {
    let hint = match error {
        ObserveError::Connection(error) => error.hint(),
        ObserveError::Connect(_) => None,
    };
    let hint = hint
        .map(|hint| format!(" (hint: {hint})"))
        .unwrap_or_default();
    exception(py, "ConnectError", format!("{error}{hint}"))
}

pub(crate) fn forked(py: Python<'_>, error: NodeForked) -> PyErr {
    exception(py, "NodeForked", error)
}

pub(crate) fn sample_error(py: Python<'_>, error: &SampleError) -> PyErr {
    exception(py, "SampleError", chain(error))
}

pub(crate) fn send_error(py: Python<'_>, error: &SendError) -> PyErr {
    let class = match error {
        SendError::TimedOut { .. } | SendError::WouldBlock { .. } | SendError::Paused => {
            "NodeTimeout"
        }
        SendError::Misfit { .. } => "NotSendable",
        SendError::Stopped => "Stopped",
        SendError::Forked(_) => "NodeForked",
        SendError::OutOfMemory { .. } | SendError::System(_) => "OutOfMemory",
        SendError::TooLarge { .. }
        | SendError::HeadTooLarge { .. }
        | SendError::Announcement(_) => "TooLarge",
        _ => "NervureError",
    };
    exception(py, class, chain(error))
}

pub(crate) fn unknown_name(py: Python<'_>, error: &UnknownName) -> PyErr {
    let class = match error.kind {
        "output" => "UnknownOutput",
        "parameter" => "UnknownParam",
        "client" => "UnknownClient",
        _ => "UnknownInput",
    };
    exception(py, class, error)
}

/// The error with its causes, on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let reason = error.to_string();
        if !text.contains(&reason) {
            text = format!("{text}: {reason}");
        }
        cause = error.source();
    }
    text
}
