//! Identifies each descriptor of the event loop.

use rustix::event::epoll;

use super::slot::Stream;

/// A descriptor of the event loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
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
    /// A host sent a message.
    Host(usize),
    HostOutput(usize, Stream),
    /// The log writer has notices.
    Logs,
}

impl Token {
    pub fn pack(self) -> epoll::EventData {
        let (kind, node) = match self {
            Self::Children => (0, 0),
            Self::Termination => (1, 0),
            Self::Control(node) => (2, node),
            Self::Output(node, Stream::Stdout) => (3, node),
            Self::Output(node, Stream::Stderr) => (4, node),
            Self::Listener => (5, 0),
            Self::Client(client) => (6, client),
            Self::ClientEnded(client) => (7, client),
            Self::Logs => (8, 0),
            Self::Host(host) => (9, host),
            Self::HostOutput(host, Stream::Stdout) => (10, host),
            Self::HostOutput(host, Stream::Stderr) => (11, host),
        };
        epoll::EventData::new_u64((node as u64) << 8 | kind)
    }

    pub fn unpack(data: epoll::EventData) -> Self {
        let node = (data.u64() >> 8) as usize;
        match data.u64() & 0xff {
            0 => Self::Children,
            1 => Self::Termination,
            2 => Self::Control(node),
            3 => Self::Output(node, Stream::Stdout),
            4 => Self::Output(node, Stream::Stderr),
            5 => Self::Listener,
            6 => Self::Client(node),
            7 => Self::ClientEnded(node),
            9 => Self::Host(node),
            10 => Self::HostOutput(node, Stream::Stdout),
            11 => Self::HostOutput(node, Stream::Stderr),
            _ => Self::Logs,
        }
    }
}
