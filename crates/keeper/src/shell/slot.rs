//! The connection of the keeper to a node's process: control socket, stdout and stderr.

use std::{
    collections::VecDeque,
    io,
    path::{Path, PathBuf},
    rc::Rc,
    time::Duration,
};

use nervure_protocol::decode;
use nervure_shm::{Received, Seqpacket};
use rustix::{fd::OwnedFd, process::Pid};
use serde::de::DeserializeOwned;

use super::{
    lines::Lines,
    outbox::{Delivery, Outbox},
    process::Started,
};

/// Last lines of stderr that are kept for the report of a failure.
const TAIL_LINES: usize = 12;

/// Bytes of one stream that are read in a turn.
const READ_BYTES: usize = 64 * 1024;

/// Limit of the bytes read from a stream whose node has ended: another process may still write to
/// it.
const DRAIN_BYTES: usize = 4 << 20;

/// Messages of one node that are received in a turn.
const MESSAGES_PER_TURN: usize = 64;

/// One of a node's output streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    /// Its name in a log record.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// The place of a node, with its process or without.
#[derive(Debug)]
pub struct Slot {
    process: Option<Process>,
}

#[derive(Debug)]
struct Process {
    /// `None` for a guest, and for a node that joined: the keeper does not signal them.
    pid: Option<Pid>,
    interpreter: Option<PathBuf>,
    /// `None` once the node has closed its end.
    control: Option<Seqpacket>,
    outbox: Outbox,
    /// Stdout and stderr.
    outputs: [Output; 2],
    stderr_tail: VecDeque<String>,
}

#[derive(Debug)]
struct Output {
    /// `None` once every writer has closed it.
    pipe: Option<OwnedFd>,
    lines: Lines,
}

impl Slot {
    /// A node without a process.
    pub fn new() -> Self {
        Self { process: None }
    }

    /// The node's process was started.
    pub fn begin(&mut self, control: Seqpacket, started: Started) {
        let output = |pipe| Output {
            pipe: Some(pipe),
            lines: Lines::default(),
        };
        self.process = Some(Process {
            pid: Some(started.pid),
            interpreter: started.interpreter,
            control: Some(control),
            outbox: Outbox::default(),
            outputs: [output(started.stdout), output(started.stderr)],
            stderr_tail: VecDeque::new(),
        });
    }

    /// A node without a process of its own has this place: a guest, or one that joined. `outbox` may
    /// hold messages for it.
    pub fn begin_guest(&mut self, control: Seqpacket, outbox: Outbox) {
        self.begin_without_process(control, outbox, [None, None], None);
    }

    /// A node that a host runs has this place. `outputs` are the keeper's ends of its stdout and
    /// stderr, if it has its own; `interpreter` is the Python that runs it.
    pub fn begin_hosted(
        &mut self,
        control: Seqpacket,
        outputs: [Option<OwnedFd>; 2],
        interpreter: Option<PathBuf>,
    ) {
        self.begin_without_process(control, Outbox::default(), outputs, interpreter);
    }

    fn begin_without_process(
        &mut self,
        control: Seqpacket,
        outbox: Outbox,
        outputs: [Option<OwnedFd>; 2],
        interpreter: Option<PathBuf>,
    ) {
        let output = |pipe| Output {
            pipe,
            lines: Lines::default(),
        };
        self.process = Some(Process {
            pid: None,
            interpreter,
            control: Some(control),
            outbox,
            outputs: outputs.map(output),
            stderr_tail: VecDeque::new(),
        });
    }

    /// True when there is no control socket, or its other end is closed.
    pub fn is_closed(&self) -> bool {
        self.process
            .as_ref()
            .is_none_or(|process| process.control.is_none())
    }

    /// Closes the control socket.
    pub fn close(&mut self) {
        if let Some(process) = &mut self.process {
            process.control = None;
        }
    }

    /// The Python that runs it.
    pub fn interpreter(&self) -> Option<&Path> {
        self.process.as_ref()?.interpreter.as_deref()
    }

    /// The last lines of its stderr.
    pub fn stderr_tail(&self) -> Vec<String> {
        let process = self.process.as_ref();
        process
            .map(|process| process.stderr_tail.iter().cloned().collect())
            .unwrap_or_default()
    }

    /// The node's process was reaped, or the guest is gone. Returns the last lines of its stderr.
    pub fn end(&mut self) -> Vec<String> {
        self.process
            .take()
            .map(|process| process.stderr_tail.into())
            .unwrap_or_default()
    }

    /// The process, until it is reaped.
    pub fn pid(&self) -> Option<Pid> {
        self.process.as_ref()?.pid
    }

    /// When to [`Self::flush`] again.
    pub fn deadline(&self) -> Option<Duration> {
        self.process.as_ref()?.outbox.deadline()
    }

    /// Queues a control message.
    pub fn send(&mut self, bytes: Vec<u8>, descriptors: Vec<Rc<OwnedFd>>) {
        if let Some(process) = self
            .process
            .as_mut()
            .filter(|process| process.control.is_some())
        {
            process.outbox.push(bytes, descriptors);
        }
    }

    /// Sends queued messages without waiting.
    pub fn flush(&mut self, now: Duration) {
        let Some(process) = &mut self.process else {
            return;
        };
        if let Some(control) = &process.control {
            // A node that closed its socket is about to end, which is noticed elsewhere.
            let _ = process.outbox.flush(control, now);
        }
    }

    /// The next notice of a shortage that delays messages.
    pub fn delivery(&mut self, now: Duration) -> Option<Delivery> {
        self.process.as_mut()?.outbox.notice(now)
    }

    /// Receives messages of the node; an error describes an invalid one. `buffer` has room for the
    /// longest message.
    pub fn receive<M: DeserializeOwned>(&mut self, buffer: &mut Vec<u8>) -> Vec<Result<M, String>> {
        let mut messages = Vec::new();
        let Some(process) = &mut self.process else {
            return messages;
        };
        while let Some(control) = &process.control {
            if messages.len() >= MESSAGES_PER_TURN {
                break;
            }
            match control.receive(buffer) {
                Ok(Received::Packet(descriptors)) if descriptors.is_empty() => {
                    messages.push(decode(buffer).map_err(|error| error.to_string()));
                }
                Ok(Received::Packet(_)) => {
                    messages.push(Err("it sent file descriptors".to_owned()))
                }
                Ok(Received::Closed) => process.control = None,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    process.control = None;
                    messages.push(Err(error.to_string()));
                }
            }
        }
        messages
    }

    /// Lines that the node wrote, of at most [`READ_BYTES`].
    pub fn read(&mut self, stream: Stream, now: Duration) -> Vec<String> {
        self.read_at_most(stream, READ_BYTES, now)
    }

    /// The rest of a stream of a node that has ended.
    pub fn drain(&mut self, stream: Stream, now: Duration) -> Vec<String> {
        let mut lines = self.read_at_most(stream, DRAIN_BYTES, now);
        if let Some(process) = &mut self.process {
            let output = &mut process.outputs[stream as usize];
            output.pipe = None;
            output.lines.finish(|line| {
                if stream == Stream::Stderr {
                    keep(&mut process.stderr_tail, &line);
                }
                lines.push(line);
            });
        }
        lines
    }

    /// The Python interpreter, if the node ended because it did not find a module.
    pub fn missing_module(&self) -> Option<&Path> {
        let process = self.process.as_ref()?;
        process
            .interpreter
            .as_deref()
            .filter(|_| process.stderr_tail.back().is_some_and(is_missing_module))
    }

    fn read_at_most(&mut self, stream: Stream, max_bytes: usize, now: Duration) -> Vec<String> {
        let mut lines = Vec::new();
        let Some(process) = &mut self.process else {
            return lines;
        };
        let output = &mut process.outputs[stream as usize];
        let mut buffer = [0; 16 * 1024];
        let mut left = max_bytes;
        while let Some(pipe) = output.pipe.as_ref().filter(|_| left > 0) {
            match rustix::io::read(pipe, &mut buffer) {
                Ok(0) => output.pipe = None,
                Ok(count) => {
                    left = left.saturating_sub(count);
                    let bytes = &buffer[..count];
                    output.lines.push(bytes, now, |line| lines.push(line));
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => break,
            }
        }
        if stream == Stream::Stderr {
            for line in lines.iter().rev().take(TAIL_LINES).rev() {
                keep(&mut process.stderr_tail, line);
            }
        }
        lines
    }
}

/// True if Python's last line reports that an import or `python -m` found no module. Text of a
/// program's own under the same exception, or an exception that was caught and logged before, is
/// another failure.
fn is_missing_module(line: impl AsRef<str>) -> bool {
    let line = line.as_ref();
    let from_import = line.strip_prefix("ModuleNotFoundError: No module named ");
    let from_command = || {
        line.split_once(": No module named ")
            .filter(|(program, _)| program.starts_with('/'))
    };
    from_import.is_some_and(|module| module.starts_with('\'')) || from_command().is_some()
}

fn keep(tail: &mut VecDeque<String>, line: &str) {
    if tail.len() == TAIL_LINES {
        tail.pop_front();
    }
    tail.push_back(line.to_owned());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pythons_own_message_counts_as_a_missing_module() {
        assert!(is_missing_module(
            "ModuleNotFoundError: No module named 'cv2'"
        ));
        assert!(is_missing_module(
            "/usr/bin/python3: No module named detector"
        ));
        assert!(!is_missing_module(
            "ModuleNotFoundError: event.value is a pyarrow array, and pyarrow is not installed"
        ));
        assert!(!is_missing_module("KeyError: 'No module named x'"));
        assert!(!is_missing_module(
            "WARNING detector: No module named cv2, going on without"
        ));
    }
}
