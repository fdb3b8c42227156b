//! Errors of commands: their text, JSON and exit code.

use std::{fmt::Display, io::Write, process::ExitCode};

use nervure_dataflow::Diagnostic;
use nervure_protocol::domain::{DOMAIN_VARIABLE, DomainError};
use serde_json::{Value, json};

/// Something in Nervure or in the system failed.
pub const INTERNAL: u8 = 1;

/// The command line or a dataflow file is wrong.
pub const INVALID: u8 = 2;

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

impl From<DomainError> for Failure {
    fn from(error: DomainError) -> Self {
        Self::invalid(format!("{DOMAIN_VARIABLE}: {error}"))
    }
}

impl Failure {
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

    /// Adds the findings in a dataflow file.
    pub fn findings(mut self, findings: &[Diagnostic]) -> Self {
        self.findings = findings.to_vec();
        self
    }

    /// The failure as JSON, in one form for all commands. `file`, `line` and `column` are those of
    /// the first error in a dataflow file.
    pub fn json(&self) -> Value {
        let first = self.findings.iter().find(|finding| finding.is_error());
        let location = first.and_then(|finding| finding.location.as_ref());
        json!({
            "message": "error",
            "error": {
                "message": self.text,
                "file": first.map(|finding| &finding.file),
                "line": location.map(|location| location.line),
                "column": location.map(|location| location.column),
                "hint": self.hint.as_ref().or(first.and_then(|finding| finding.hint.as_ref())),
                "caused_by": self.causes,
                "exit_code": self.code,
                "findings": self.findings,
            },
        })
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
