//! What each descriptor of the event loop is.

use rustix::event::epoll;

use super::slot::Stream;

/// A descriptor of the event loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    Run,
    /// SIGCHLD came.
    Children,
    /// SIGTERM, SIGINT or SIGHUP came.
    Termination,
    Control(usize),
    Output(usize, Stream),
    /// A client wants to connect.
    Listener,
    Client(usize),
    /// The process of a client has ended.
    ClientEnded(usize),
    /// The log writer has notices.
    Logs,
}

impl Token {
    pub fn pack(self) -> epoll::EventData {
        let (kind, node) = match self {
            Self::Run => (0, 0),
            Self::Children => (1, 0),
            Self::Termination => (2, 0),
            Self::Control(node) => (3, node),
            Self::Output(node, Stream::Stdout) => (4, node),
            Self::Output(node, Stream::Stderr) => (5, node),
            Self::Listener => (6, 0),
            Self::Client(client) => (7, client),
            Self::ClientEnded(client) => (8, client),
            Self::Logs => (9, 0),
        };
        epoll::EventData::new_u64((node as u64) << 8 | kind)
    }

    pub fn unpack(data: epoll::EventData) -> Self {
        let node = (data.u64() >> 8) as usize;
        match data.u64() & 0xff {
            0 => Self::Run,
            1 => Self::Children,
            2 => Self::Termination,
            3 => Self::Control(node),
            4 => Self::Output(node, Stream::Stdout),
            5 => Self::Output(node, Stream::Stderr),
            6 => Self::Listener,
            7 => Self::Client(node),
            8 => Self::ClientEnded(node),
            _ => Self::Logs,
        }
    }
}
