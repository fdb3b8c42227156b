//! The inputs and outputs of the machine: events and actions.

use nervure_protocol::{
    cli_to_keeper::{self, Watch},
    keeper_to_cli, keeper_to_node, node_to_keeper,
    report::{Level, Report},
};

use super::{exit::End, health::Pulse};

/// Something that happened.
#[derive(Debug)]
pub enum Event {
    /// The keeper is set up.
    Launch,
    /// A process was started, as [`Action::Spawn`] asked.
    Started {
        node: usize,
        pid: u32,
        /// Its thread, if it shares the process.
        thread: Option<u32>,
    },
    /// A process could not be started.
    NotStarted { node: usize, reason: String },
    /// A node sent a message.
    Message {
        node: usize,
        message: node_to_keeper::Message,
    },
    /// A node sent a packet that is not a valid message.
    Misbehaved { node: usize, what: String },
    /// A message for a node cannot be sent, whatever the node does.
    Undeliverable { node: usize, why: String },
    /// A process ended, or a node that shares one.
    Ended {
        node: usize,
        end: End,
        /// Explains `end`, for people.
        reason: Option<String>,
        stderr_tail: Vec<String>,
    },
    /// The answer to [`Action::ReadPulse`].
    Pulse { node: usize, pulse: Pulse },
    /// A signal asked the keeper to end.
    Terminated,
    /// A client sent a message. `pid` is its process.
    ClientMessage {
        client: usize,
        pid: u32,
        message: cli_to_keeper::Message,
    },
    /// A client closed its connection, or its process ended.
    ClientGone { client: usize },
    /// The time that `Machine::deadline` returned has come.
    Deadline,
}

/// Something to do, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Create new pages for the node and start its process.
    Spawn { node: usize },
    /// Send a message to a node.
    Send {
        node: usize,
        message: keeper_to_node::Message,
        descriptors: Vec<Descriptor>,
    },
    /// Send a report to its audience.
    Report {
        message: Report,
        descriptor: Option<Descriptor>,
        audience: Audience,
    },
    /// Send a message to a client.
    Reply {
        client: usize,
        message: keeper_to_cli::Message,
        descriptor: Option<Descriptor>,
    },
    /// Send further reports to a client, as it has requested.
    Follow { client: usize, watch: Watch },
    /// Create the pages of a guest, or of a node that joins; the client's connection becomes its
    /// control socket.
    Admit { client: usize, node: usize },
    /// Close the connection of a client.
    CloseClient { client: usize },
    /// Close the control socket of a guest, and release its pages.
    CloseGuest { node: usize },
    /// Close the control socket of a node that had joined.
    CloseJoined { node: usize },
    /// Write a line to the log of a node, or of the keeper itself.
    Log {
        node: Option<usize>,
        level: Level,
        text: String,
    },
    /// Wake everything that sleeps on the node's doorbell and room futex.
    Ring { node: usize },
    /// Set the clock that the control page shows.
    SetClock { clock: node_to_keeper::Clock },
    /// Stop the clock that the control page shows, or let it go on.
    SetPaused { is_paused: bool },
    /// Read a node's signs of life; the answer is [`Event::Pulse`].
    ReadPulse { node: usize },
    /// Log the state of each thread of a node that hangs.
    Examine { node: usize, why: String },
    /// Send a signal to the process group of a node.
    Signal { node: usize, signal: Signal },
    /// Create the region of an edge.
    CreateRegion { edge: u32, depth: u32, blocks: u32 },
    /// Close the keeper's descriptor of an edge's region.
    ReleaseRegion { edge: u32 },
    /// Close those ends of a pair's socket that were not sent.
    ReleasePair { pair: u32 },
    /// Every node has ended.
    Finish,
}

/// The receivers of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// The clients that follow.
    Everyone,
    /// Those that did not exclude reports about observers.
    ObserversToo,
}

/// Names a descriptor that the shell holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descriptor {
    /// The dataflow's control page.
    ControlPage,
    /// A node's wake page.
    WakePage(usize),
    /// A node's eventfd.
    Eventfd(usize),
    /// A node's counters page.
    Counters(usize),
    /// A node's counters page, for reading.
    CountersReadOnly(usize),
    /// An edge's region.
    Region(u32),
    /// One end, 0 or 1, of a pair's socket. It is created when first named, and moved into the
    /// message.
    PairEnd { pair: u32, end: u32 },
}

/// A signal that the keeper sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM
    Terminate,
    /// SIGKILL
    Kill,
    /// `STACKS_SIGNAL`, to the process and not to its group, if it has a handler for it.
    Stacks,
}
