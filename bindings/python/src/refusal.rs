//! Why a list, dict or dataclass cannot be sent, and which part of it.

use crate::error::exception;
use nervure_node::message::record::{ColumnError, Kind};
use pyo3::prelude::*;
use std::fmt::Write;

/// Why a value cannot be sent.
pub(crate) struct Refusal {
    cause: Cause,
    /// Steps from the refused value out to the value that was to be sent.
    path: Vec<Step>,
}

enum Cause {
    Text(String),
    Python(PyErr),
}

/// A step from a value to one inside it.
pub(crate) enum Step {
    Index(usize),
    Key(String),
    Attribute(String),
}

impl Refusal {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self {
            cause: Cause::Text(text.into()),
            path: Vec::new(),
        }
    }

    pub(crate) fn too_deep(max_depth: usize) -> Self {
        Self::text(format!(
            "the value nests more than {max_depth} lists and dicts, or contains itself"
        ))
    }

    pub(crate) fn within(mut self, step: Step) -> Self {
        self.path.push(step);
        self
    }

    pub(crate) fn raise(self, py: Python<'_>) -> PyErr {
        let path = self.path();
        match self.cause {
            Cause::Text(text) => exception(py, "NotSendable", format!("{path}: {text}")),
            Cause::Python(error) if is_not_sendable(py, &error) => {
                exception(py, "NotSendable", format!("{path}: {}", error.value(py)))
            }
            Cause::Python(error) => error,
        }
    }

    /// The refused value as a Python expression: `value["a"][3]`. For a value that contains itself,
    /// the beginning of it.
    fn path(&self) -> String {
        const MAX_STEPS: usize = 8;
        let mut path = "value".to_owned();
        for step in self.path.iter().rev().take(MAX_STEPS) {
            let _ = match step {
                Step::Index(index) => write!(path, "[{index}]"),
                Step::Key(key) => write!(path, "[{key:?}]"),
                Step::Attribute(name) => write!(path, ".{name}"),
            };
        }
        if self.path.len() > MAX_STEPS {
            path.push_str("..");
        }
        path
    }
}

impl From<PyErr> for Refusal {
    fn from(error: PyErr) -> Self {
        Self {
            cause: Cause::Python(error),
            path: Vec::new(),
        }
    }
}

impl From<ColumnError> for Refusal {
    fn from(error: ColumnError) -> Self {
        Self::text(match error {
            ColumnError::Mixed { first, found } => {
                let beside = format!("{} stands beside {}", kind_name(&found), kind_name(&first));
                let are_tensors = matches!((&first, &found), (Kind::Tensor(..), Kind::Tensor(..)));
                let rule = if are_tensors {
                    "the arrays of a list, and those that dicts of a list have under one key, must have one \
                     dtype and number of dimensions"
                } else {
                    "the elements of a list, and what dicts of a list have under one key, must be of one type \
                     (None apart)"
                };
                format!("{rule}: {beside} (hint: a dict may hold values of different types)")
            }
            ColumnError::Integers => {
                "the integers of a list do not fit 64 bits together".to_owned()
            }
            error => error.to_string(),
        })
    }
}

/// The name of an object's type in Python.
pub(crate) fn type_name(value: &Bound<'_, PyAny>) -> String {
    value
        .get_type()
        .fully_qualified_name()
        .map_or_else(|_| "an object".to_owned(), |name| name.to_string())
}

fn kind_name(kind: &Kind) -> String {
    let name = match kind {
        Kind::Null => "None",
        Kind::Bool => "bool",
        Kind::Integer => "int",
        Kind::Float => "float",
        Kind::Text => "str",
        Kind::Bytes => "bytes",
        Kind::List => "list",
        Kind::Fields => "dict",
        Kind::Tensor(dtype, dimensions) => {
            return format!("an array of dtype {dtype} and {dimensions} dimension(s)");
        }
    };
    name.to_owned()
}

fn is_not_sendable(py: Python<'_>, error: &PyErr) -> bool {
    let class = py
        .import("nervure.errors")
        .and_then(|errors| errors.getattr("NotSendable"));
    class.is_ok_and(|class| error.matches(py, class).unwrap_or(false))
}
