//! The standard streams of `run`. A write error such as a full disk is reported, and the nodes go
//! on. Only a closed reader (`| head`) ends the dataflow.

use nervure_inspect::format::count;
use rustix::{fd::BorrowedFd, io::Errno, stdio};
use serde_json::{Value, json};

use crate::output::Stream;

/// The stream of a line. Only stdout of nodes goes to stdout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    Stdout,
    Stderr,
}

/// Stdout and stderr.
#[derive(Debug)]
pub struct Streams {
    stdout: Stream<BorrowedFd<'static>>,
    stderr: Stream<BorrowedFd<'static>>,
    is_reported: bool,
}

impl Default for Streams {
    fn default() -> Self {
        let (stdout, stderr) = (Stream::new(stdio::stdout()), Stream::new(stdio::stderr()));
        Self {
            stdout,
            stderr,
            is_reported: false,
        }
    }
}

impl Streams {
    /// Writes whole lines; counts those that cannot be written.
    pub fn write(&mut self, target: Target, lines: &str) {
        match target {
            Target::Stdout => self.stdout.write(lines),
            Target::Stderr => self.stderr.write(lines),
        }
    }

    /// True once the reader of a stream has closed its end.
    pub fn is_closed(&self) -> bool {
        self.stdout.is_closed() || self.stderr.is_closed()
    }

    /// True once a write has failed for another reason than a closed reader.
    pub fn have_failed(&self) -> bool {
        self.failed().is_some()
    }

    /// True while no write to stdout has failed.
    pub fn stdout_is_intact(&self) -> bool {
        !self.stdout.is_closed() && self.stdout.error().is_none()
    }

    /// The message that a stream has failed, once.
    pub fn take_message(&mut self) -> Option<String> {
        let (name, error, _) = self.failed().filter(|_| !self.is_reported)?;
        self.is_reported = true;
        Some(format!(
            "cannot write to {name}: {error}; the dataflow goes on, and the log files have its output"
        ))
    }

    /// The missing part of the output, as text.
    pub fn missing(&self) -> Option<String> {
        let (name, error, lines) = self.failed()?;
        Some(format!(
            "{} could not be written to {name}: {error}",
            count(lines as usize, "line")
        ))
    }

    /// The missing part of the output, as JSON.
    pub fn json(&self) -> Value {
        let stream = |(name, error, lines): (&str, Errno, u64)| json!({"stream": name, "error": error.to_string(), "lines": lines});
        self.failed().map(stream).into()
    }

    fn failed(&self) -> Option<(&'static str, Errno, u64)> {
        let failed =
            |name, stream: &Stream| Some((name, stream.error()?, stream.unwritten_lines()));
        failed("stdout", &self.stdout).or_else(|| failed("stderr", &self.stderr))
    }
}
