//! How a process ended.

use std::fmt;

use super::node::AfterStop;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It exited with this code.
    Code(i32),
    /// A signal killed it.
    Signal(i32),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let signal = match *self {
            Self::Code(code) => return write!(f, "exited with code {code}"),
            Self::Signal(signal) => signal,
        };
        write!(f, "killed by ")?;
        match signal {
            libc::SIGABRT => {
                write!(
                    f,
                    "SIGABRT (it aborted itself: a failed assertion, or memory corruption found)"
                )
            }
            libc::SIGBUS => write!(f, "SIGBUS (access to memory that is not backed)"),
            libc::SIGFPE => write!(f, "SIGFPE (arithmetic error)"),
            libc::SIGHUP => write!(f, "SIGHUP"),
            libc::SIGILL => write!(f, "SIGILL (illegal instruction: built for another CPU?)"),
            libc::SIGINT => write!(f, "SIGINT"),
            libc::SIGKILL => {
                write!(
                    f,
                    "SIGKILL (by hand, or by the kernel because memory ran out: see `dmesg`)"
                )
            }
            libc::SIGPIPE => write!(f, "SIGPIPE"),
            libc::SIGSEGV => write!(f, "SIGSEGV (invalid memory access)"),
            libc::SIGTERM => write!(f, "SIGTERM"),
            other => write!(f, "signal {other}"),
        }
    }
}

/// The end of a process, as far as the node alone knows.
#[derive(Debug)]
pub(super) struct Exit {
    pub end: End,
    /// What happened, for people.
    pub reason: String,
    /// The dataflow stops, or the node was stopped by hand.
    pub was_asked: bool,
    /// The next step, if the node was stopped by hand.
    pub after_stop: Option<AfterStop>,
    /// It was asked to stop, and ended by itself with an error, before the keeper sent it a signal.
    pub stopped_with_error: bool,
    /// The keeper killed it, for misbehaviour or because it did not end in time.
    pub was_killed: bool,
    pub never_connected: bool,
}

/// Effects of clients' requests on the end of a process.
#[derive(Debug, Default)]
pub(super) struct ExitContext {
    /// The new program of the node has failed, and the one before comes back: for people.
    pub rolled_back: Option<String>,
    /// The client that the node's place is kept for.
    pub kept_for: Option<String>,
}
