//! What is told when a command fails, and its exit code.

use std::{fmt::Display, process::ExitCode};

/// Something in Nervure or in the system failed.
pub const INTERNAL: u8 = 1;

/// The command line or a dataflow file is wrong.
pub const INVALID: u8 = 2;

/// The dataflow finished, but a node failed, or an edge that must not lose anything lost something.
pub const IMPERFECT: u8 = 3;

/// A second Ctrl-C killed the nodes.
pub const KILLED: u8 = 130;

/// Why a command failed.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    text: String,
    causes: Vec<String>,
    hint: Option<String>,
}

impl Failure {
    /// Something in Nervure or in the system failed.
    pub fn internal(text: impl Into<String>) -> Self {
        Self { code: INTERNAL, text: text.into(), causes: Vec::new(), hint: None }
    }

    /// The command line or a dataflow file is wrong.
    pub fn invalid(text: impl Into<String>) -> Self {
        Self { code: INVALID, ..Self::internal(text) }
    }

    /// Adds what caused it.
    pub fn because(mut self, cause: impl Display) -> Self {
        self.causes.push(cause.to_string());
        self
    }

    /// Adds the likely fix.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Tells it on stderr.
    pub fn report(&self) -> ExitCode {
        eprintln!("error: {}", self.text);
        for cause in &self.causes {
            eprintln!("  caused by: {cause}");
        }
        if let Some(hint) = &self.hint {
            eprintln!("\nhint: {hint}");
        }
        ExitCode::from(self.code)
    }
}
