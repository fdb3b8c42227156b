//! Writes the trace in a thread of its own, so that a slow disk does not hold up the link.

use std::{
    fmt,
    io::{self, BufWriter, Write},
    sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    thread::JoinHandle,
};

use crate::{carrier::PublicKey, trace::Record};

/// Lines that may wait for the writer. Further ones are left out and counted in the last line.
const LINES_WAITING_MAX: usize = 1 << 16;

/// The destination of the trace; see [`crate::trace`].
pub struct TraceSink(Box<dyn Write + Send>);

impl TraceSink {
    /// Writes to this, such as a file. Lines are collected in a buffer first.
    pub fn new(to: impl Write + Send + 'static) -> Self {
        Self(Box::new(to))
    }
}

impl fmt::Debug for TraceSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TraceSink")
    }
}

/// The end of the channel to the writer.
#[derive(Debug)]
pub(super) struct TraceLines {
    lines: SyncSender<String>,
    left_out: u64,
}

/// The thread that writes.
pub(super) type Writer = JoinHandle<io::Result<()>>;

/// Starts the thread.
pub(super) fn start(sink: TraceSink) -> io::Result<(TraceLines, Writer)> {
    let (lines, to_write) = sync_channel(LINES_WAITING_MAX);
    let writer = std::thread::Builder::new()
        .name("nervure-trace".into())
        .spawn(move || write(sink, &to_write))?;
    Ok((TraceLines { lines, left_out: 0 }, writer))
}

impl TraceLines {
    /// Passes a record on. Returns false when the writer has failed.
    pub(super) fn push(&mut self, peer: &PublicKey, record: &Record) -> bool {
        let mut line = String::with_capacity(512);
        record.write_line(peer, &mut line);
        match self.lines.try_send(line) {
            Ok(()) => true,
            Err(TrySendError::Full(_)) => {
                self.left_out += 1;
                true
            }
            Err(TrySendError::Disconnected(_)) => false,
        }
    }
}

impl Drop for TraceLines {
    fn drop(&mut self) {
        if self.left_out > 0 {
            let records = self.left_out;
            let line = format!("{{\"name\":\"missing\",\"data\":{{\"records\":{records}}}}}\n");
            // Fails when the writer has failed, which it reports.
            let _ = self.lines.send(line);
        }
    }
}

fn write(sink: TraceSink, lines: &Receiver<String>) -> io::Result<()> {
    let mut to = BufWriter::new(sink.0);
    for line in lines {
        to.write_all(line.as_bytes())?;
    }
    to.flush()
}
