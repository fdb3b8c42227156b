//! The error of this crate.

use std::fmt::{self, Display};

use nervure_dataflow::Diagnostic;
use nervure_node::running::ConnectionError;
use nervure_protocol::domain::{DOMAIN_VARIABLE, DomainError};

/// Where the fault lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// In the dataflow file, an override or a setting.
    Invalid,
    /// In Nervure or in the system.
    Internal,
}

/// A dataflow cannot be read or started.
#[derive(Clone, Debug)]
pub struct Error {
    /// Where the fault lies.
    pub kind: ErrorKind,
    /// The failed operation, and the name of the thing that it failed for.
    pub text: String,
    /// The nearest first.
    pub causes: Vec<String>,
    /// The likely fix.
    pub hint: Option<String>,
    /// Findings in the dataflow file.
    pub findings: Vec<Diagnostic>,
}

impl Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        self.causes
            .iter()
            .try_for_each(|cause| write!(f, ": {cause}"))
    }
}

impl std::error::Error for Error {}

impl From<DomainError> for Error {
    fn from(error: DomainError) -> Self {
        Self::invalid(format!("{DOMAIN_VARIABLE}: {error}"))
    }
}

impl From<ConnectionError> for Error {
    fn from(error: ConnectionError) -> Self {
        Self {
            hint: error.hint(),
            ..Self::internal(error.to_string())
        }
    }
}

impl Error {
    pub(crate) fn internal(text: impl Into<String>) -> Self {
        Self {
            kind: ErrorKind::Internal,
            text: text.into(),
            causes: Vec::new(),
            hint: None,
            findings: Vec::new(),
        }
    }

    pub(crate) fn invalid(text: impl Into<String>) -> Self {
        Self {
            kind: ErrorKind::Invalid,
            ..Self::internal(text)
        }
    }

    pub(crate) fn because(mut self, cause: impl Display) -> Self {
        self.causes.push(cause.to_string());
        self
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}
