//! Errors of requests and answers as Python's exceptions.

use crate::error::{exception, send_error, unknown_name};
use nervure_node::{CallError, ReplyError, Ticket};
use pyo3::prelude::*;

/// A request or goal in flight, for `nervure._asyncio` and `nervure._actions`.
#[pyclass(frozen, module = "nervure._native")]
pub(crate) struct Call {
    pub(crate) ticket: Ticket,
}

pub(crate) fn call_error(py: Python<'_>, error: &CallError) -> PyErr {
    let class = match error {
        CallError::Unknown(unknown) => return unknown_name(py, unknown),
        CallError::Send(error) => return send_error(py, error),
        CallError::NotRunning { .. } | CallError::Gone { .. } => "ServiceGone",
        CallError::TimedOut { .. } => "NodeTimeout",
        CallError::Stopped => "Stopped",
        CallError::Canceled { .. } => "GoalCanceled",
        CallError::Busy { .. } | CallError::Failed { .. } | CallError::NoAction { .. } => {
            "ServiceError"
        }
    };
    exception(py, class, error)
}

pub(crate) fn reply_error(py: Python<'_>, error: &ReplyError) -> PyErr {
    match error {
        ReplyError::Twice { .. } | ReplyError::NoGoal { .. } => {
            exception(py, "ServiceError", error)
        }
        ReplyError::Send(error) => send_error(py, error),
    }
}
