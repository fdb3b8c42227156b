//! Errors of the emulator, and its exit codes.

use std::fmt::Display;
use std::process::ExitCode;

/// The emulator failed, or lacks rights.
pub const FAILED: u8 = 1;
/// The command line or a scenario file is wrong.
pub const INVALID: u8 = 2;
/// A command failed.
pub const COMMAND_FAILED: u8 = 3;
/// A second Ctrl-C.
pub const KILLED: u8 = 130;

/// Why the emulator does not run.
#[derive(Debug)]
pub struct Failure {
    pub code: u8,
    pub what: String,
    pub cause: Option<String>,
    pub hint: Option<String>,
}

impl Failure {
    pub fn new(what: impl Into<String>, cause: impl Display) -> Self {
        Self {
            code: FAILED,
            what: what.into(),
            cause: Some(cause.to_string()),
            hint: None,
        }
    }

    pub fn invalid(what: impl Into<String>) -> Self {
        Self {
            code: INVALID,
            what: what.into(),
            cause: None,
            hint: None,
        }
    }

    /// Prints it on stderr.
    pub fn report(&self) -> ExitCode {
        eprintln!("error: {}", self.what);
        if let Some(cause) = &self.cause {
            eprintln!("  caused by: {cause}");
        }
        if let Some(hint) = &self.hint {
            eprintln!("\nhint: {hint}");
        }
        ExitCode::from(self.code)
    }
}
