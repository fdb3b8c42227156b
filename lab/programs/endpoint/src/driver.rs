//! The protocol with the driver, one line of JSON a message: hello, start, report, leave.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde::Serialize;

use crate::case::Case;

/// An endpoint that knows its case and is connected to the driver.
pub struct Endpoint {
    case: Case,
    stream: BufReader<UnixStream>,
}

impl Endpoint {
    /// Reads the case from the environment and connects to the driver.
    pub fn from_environment() -> Result<Self, String> {
        let case = Case::from_environment()?;
        let stream = UnixStream::connect(&case.rendezvous).map_err(|error| {
            format!(
                "connecting to the driver at {}: {error}",
                case.rendezvous.display()
            )
        })?;
        Ok(Self {
            case,
            stream: BufReader::new(stream),
        })
    }

    pub fn case(&self) -> &Case {
        &self.case
    }

    /// Notifies the driver that this endpoint can send or receive, and waits until all endpoints can.
    pub(crate) fn ready_then_wait_for_start(&mut self) -> Result<(), String> {
        #[derive(Serialize)]
        struct Hello {
            role: crate::Role,
            index: usize,
            pid: u32,
        }
        self.send(&Hello {
            role: self.case.role,
            index: self.case.index,
            pid: std::process::id(),
        })?;
        self.wait_for_line()
    }

    pub(crate) fn report(&mut self, record: &impl Serialize) -> Result<(), String> {
        self.send(record)
    }

    /// Waits for the driver's permission to exit, so that the exit of one endpoint does not disturb the others.
    pub(crate) fn wait_for_leave(&mut self) -> Result<(), String> {
        self.wait_for_line()
    }

    /// Waits up to `timeout` for the driver's permission to exit.
    pub(crate) fn may_leave_within(&mut self, timeout: Duration) -> Result<bool, String> {
        let socket = self.stream.get_ref();
        socket
            .set_read_timeout(Some(timeout))
            .map_err(|error| error.to_string())?;
        match self.stream.read_line(&mut String::new()) {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                Ok(false)
            }
            Err(error) => Err(format!("reading from the driver: {error}")),
        }
    }

    fn wait_for_line(&mut self) -> Result<(), String> {
        match self.stream.read_line(&mut String::new()) {
            Ok(0) => Err("the driver closed the connection".to_owned()),
            Ok(_) => Ok(()),
            Err(error) => Err(format!("reading from the driver: {error}")),
        }
    }

    fn send(&mut self, message: &impl Serialize) -> Result<(), String> {
        let mut line = serde_json::to_string(message).map_err(|error| error.to_string())?;
        line.push('\n');
        let socket = self.stream.get_mut();
        socket
            .write_all(line.as_bytes())
            .map_err(|error| format!("writing to the driver: {error}"))
    }
}
