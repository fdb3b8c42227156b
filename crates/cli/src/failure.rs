//! Errors of commands: their text, JSON and exit code.

use std::{fmt::Display, io::Write, process::ExitCode};

use nervure_dataflow::Diagnostic;
use nervure_inspect::{
    Fault,
    answers::{ErrorAnswer, ErrorDetails},
};
use nervure_launch::ErrorKind;
use nervure_node::{ObserveError, running::ConnectionError};
use nervure_protocol::domain::{DOMAIN_VARIABLE, DomainError};
use serde_json::{Value, json};

pub use nervure_inspect::{INTERNAL, INVALID};

/// The dataflow finished, but a node failed, or a lossless edge lost samples.
pub const IMPERFECT: u8 = 3;

/// A second Ctrl-C killed the nodes.
pub const KILLED: u8 = 130;

/// The error of a command.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    text: String,
    causes: Vec<String>,
    hint: Option<String>,
    /// Findings in a dataflow file.
    findings: Vec<Diagnostic>,
}

impl Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)?;
        self.causes
            .iter()
            .try_for_each(|cause| write!(f, ": {cause}"))
    }
}

impl From<nervure_launch::Error> for Failure {
    fn from(error: nervure_launch::Error) -> Self {
        let failure = match error.kind {
            ErrorKind::Invalid => Self::invalid(error.text),
            ErrorKind::Internal => Self::internal(error.text),
        };
        Self {
            causes: error.causes,
            hint: error.hint,
            findings: error.findings,
            ..failure
        }
    }
}

impl From<nervure_inspect::Error> for Failure {
    fn from(error: nervure_inspect::Error) -> Self {
        Self::of(&error)
    }
}

impl From<ConnectionError> for Failure {
    fn from(error: ConnectionError) -> Self {
        nervure_inspect::Error::from(error).into()
    }
}

impl From<ObserveError> for Failure {
    fn from(error: ObserveError) -> Self {
        nervure_inspect::Error::from(error).into()
    }
}

impl From<DomainError> for Failure {
    fn from(error: DomainError) -> Self {
        Self::invalid(format!("{DOMAIN_VARIABLE}: {error}"))
    }
}

impl Failure {
    /// The failure of a library.
    pub fn of(fault: &impl Fault) -> Self {
        let failure = match fault.is_invalid() {
            true => Self::invalid(fault.to_string()),
            false => Self::internal(fault.to_string()),
        };
        Self {
            causes: fault.causes(),
            hint: fault.hint(),
            ..failure
        }
    }

    /// Something in Nervure or in the system failed.
    pub fn internal(text: impl Into<String>) -> Self {
        Self {
            code: INTERNAL,
            text: text.into(),
            causes: Vec::new(),
            hint: None,
            findings: Vec::new(),
        }
    }

    /// The command line or a dataflow file is wrong.
    pub fn invalid(text: impl Into<String>) -> Self {
        Self {
            code: INVALID,
            ..Self::internal(text)
        }
    }

    /// Adds a cause, the nearest one first.
    pub fn because(mut self, cause: impl Display) -> Self {
        self.causes.push(cause.to_string());
        self
    }

    /// Adds the likely fix.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The failure as JSON, in one form for all commands.
    pub fn json(&self) -> Value {
        let first = self.findings.iter().find(|finding| finding.is_error());
        let location = first.and_then(|finding| finding.location.as_ref());
        let of_finding = || first.and_then(|finding| finding.hint.clone());
        json!(ErrorAnswer::from(ErrorDetails {
            message: self.text.clone(),
            file: first.map(|finding| finding.file.clone()),
            line: location.map(|location| location.line),
            column: location.map(|location| location.column),
            hint: self.hint.clone().or_else(of_finding),
            caused_by: self.causes.clone(),
            exit_code: self.code,
            findings: self.findings.clone(),
        }))
    }

    /// Writes the failure as a line of JSON to stdout. An error of stdout is ignored: the text on
    /// stderr is still written.
    pub fn write_json(&self) {
        let _ = writeln!(std::io::stdout().lock(), "{}", self.json());
    }

    /// Writes the failure as text to stderr, and with `as_json` as JSON to stdout too.
    pub fn report(&self, as_json: bool) -> ExitCode {
        if as_json {
            self.write_json();
        }
        note!("error: {}", self.text);
        for cause in &self.causes {
            note!("  caused by: {cause}");
        }
        if let Some(hint) = &self.hint {
            note!("\nhint: {hint}");
        }
        ExitCode::from(self.code)
    }
}
