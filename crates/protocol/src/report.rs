//! Reports of a keeper about its dataflow, for clients that watch.

use crate::wiring::EdgeState;
use serde::{Deserialize, Serialize};

/// A report.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum Report {
    /// A node process was started. Descriptor: its counters page, read-only.
    NodeStarted(NodeStarted),
    /// An edge was wired, for the table.
    EdgeWired(EdgeWired),
    /// An edge does not work as the file says, or works again.
    EdgeStatus(EdgeStatus),
    /// The dataflow is ready: every node is connected and ready.
    Ready,
    /// The dataflow is paused.
    Paused,
    /// A paused dataflow goes on.
    Resumed,
    /// A line of a node's output, or of the keeper's log.
    Log(LogRecord),
    /// A node process ended.
    NodeEnded(NodeEnded),
    /// Every node has ended; the keeper ends next.
    Finished,
    /// A message of a later version.
    #[serde(other)]
    Unknown,
}

/// A node process was started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStarted {
    /// Index of the node in the dataflow.
    pub node: u32,
    /// Its id.
    pub id: String,
    /// Its process id.
    pub pid: u32,
    /// The kernel's id of its thread, if it shares the process with other nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<u32>,
    /// 0 for the first start; every process that is the node counts, those that are attached to it
    /// too.
    pub incarnation: u32,
    /// Restarts of the node's own program so far: by its policy, or by hand.
    #[serde(default)]
    pub restarts: u32,
    /// True for a guest that observes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub observer: bool,
}

/// An edge was wired.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeWired {
    /// The edge's id.
    pub edge: u32,
    /// Index of the producing node, and its incarnation.
    pub producer: (u32, u32),
    /// Row in the producer's counters page.
    pub producer_row: u32,
    /// `node/output`.
    pub topic: String,
    /// Index of the consuming node, and its incarnation.
    pub consumer: (u32, u32),
    /// Row in the consumer's counters page.
    pub consumer_row: u32,
    /// `node/input`.
    pub input: String,
    /// The queue.
    pub queue: crate::wiring::Queue,
    /// True when the consumer is a guest that observes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub observer: bool,
}

/// The state of an edge has changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeStatus {
    /// `node/output`.
    pub topic: String,
    /// `node/input`.
    pub input: String,
    /// Its state.
    pub state: EdgeState,
    /// The cause, for people; empty when nothing is wrong.
    #[serde(default)]
    pub cause: String,
}

/// How a node process ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeEnded {
    /// Index of the node in the dataflow.
    pub node: u32,
    /// Its id.
    pub id: String,
    /// Its incarnation.
    pub incarnation: u32,
    /// Exit code, when it exited.
    pub code: Option<i32>,
    /// Signal number, when it was killed.
    pub signal: Option<i32>,
    /// True when it counts as a failure.
    pub failed: bool,
    /// True when it will be started again.
    pub restarts: bool,
    /// Why it has no process.
    #[serde(default, skip_serializing_if = "EndCause::is_default")]
    pub cause: EndCause,
    /// The reason, for people.
    pub reason: String,
    /// True when it did not end within the grace period of a stop, and got a signal.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub overdue: bool,
    /// The last lines of its stderr.
    pub stderr_tail: Vec<String>,
}

/// Why a node has no process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndCause {
    /// Its process has ended, or was killed.
    #[default]
    Ended,
    /// A command has stopped it.
    Stopped,
    /// A command has taken it out of the process that it shared.
    Unloaded,
    /// Its program could not be started.
    NotStarted,
    /// A process that the keeper had not started has closed its node.
    Left,
    /// A cause of a later version.
    #[serde(other)]
    Unknown,
}

impl EndCause {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// One line of a node's log. The same record, with a time, is a line of its log file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogRecord {
    /// Nanoseconds since the Unix epoch.
    pub utc_nanos: i64,
    /// The node, or `nervure` for the keeper itself.
    pub node: String,
    /// Its level.
    pub level: Level,
    /// `stdout`, `stderr`, or `keeper`.
    pub stream: String,
    /// The line without its newline, decoded as UTF-8; invalid bytes are replaced by U+FFFD.
    pub text: String,
}

/// The level of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Details for debugging, with much output.
    Trace,
    /// Details for the author of the node.
    Debug,
    /// Normal operation.
    Info,
    /// A problem that the dataflow survives.
    Warn,
    /// A failure.
    Error,
}
