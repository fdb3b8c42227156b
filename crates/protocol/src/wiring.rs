//! What an edge, an input and an output are called, as keeper and nodes agree on it.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;

/// Inputs of a node at most: as many as its doorbell has bits.
pub const MAX_NODE_INPUTS: u32 = 64 * 64 - 1;

/// The name of a topic: `node/output`. A node that plays a recording has outputs that are called as the topics that they
/// replay, and these keep their name; no output of a dataflow file has a slash.
pub fn topic(node: &str, output: &str) -> String {
    if output.contains('/') {
        output.to_owned()
    } else {
        format!("{node}/{output}")
    }
}

/// What a node runs. Paths are absolute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Program {
    /// A script for the Python of the active environment.
    Python(PathBuf),
    /// An executable file.
    Executable(PathBuf),
    /// A command to look up on the PATH.
    Command(String),
    /// Nothing that the keeper starts: a process joins by itself.
    Dynamic,
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Python(path) | Self::Executable(path) => path.display().fmt(f),
            Self::Command(name) => name.fmt(f),
            Self::Dynamic => "dynamic".fmt(f),
        }
    }
}

/// What happens on an edge whose queue is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// The oldest queued sample makes room (the default, and `latest` with depth 1).
    DropOldest,
    /// The new sample is not queued.
    DropNewest,
    /// The producer waits.
    Block,
}

/// The queue of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    /// What happens when it is full.
    pub policy: Policy,
    /// Samples that it holds, at least 1.
    pub depth: u32,
    /// Blocks that may be queued or held by the consumer at once, at least 1.
    pub max_held: u32,
}

/// An output of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputSpec {
    /// Its name in the dataflow file.
    pub name: String,
    /// How many of its last samples a late joiner receives.
    #[serde(default)]
    pub history: u32,
    /// Rows of the lease table of each of its edges: the most blocks that it may own.
    pub blocks: u32,
    /// `std/Image@1` and the like, where declared.
    #[serde(default)]
    pub type_name: Option<String>,
}

/// An input of a node. Its index in [`crate::keeper_to_node::Welcome::inputs`] is its bit in the doorbell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputSpec {
    /// Its name in the dataflow file.
    pub name: String,
    /// Where its samples come from.
    pub source: Source,
    /// Its queue; a timer has none.
    #[serde(default)]
    pub queue: Option<Queue>,
    /// `std/Image@1` and the like, where declared.
    #[serde(default)]
    pub type_name: Option<String>,
    /// Longest time between samples, in nanoseconds, before the node is told that the input is stale.
    #[serde(default)]
    pub expect_every_nanos: Option<u64>,
    /// How many last samples its output keeps for late joiners.
    #[serde(default)]
    pub history: u32,
}

/// A kind of request that a node answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceSpec {
    /// Its name.
    pub name: String,
    /// Those who ask.
    pub clients: Vec<ServiceClientSpec>,
}

/// Who asks for a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceClientSpec {
    /// Its node's id.
    pub node: String,
    /// Index of the input on which its requests come in.
    pub input: u32,
    /// Index of the output on which the answers go out.
    pub output: u32,
}

/// A kind of request that a node makes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientSpec {
    /// The node's own name for it.
    pub name: String,
    /// `node/service`.
    pub service: String,
    /// Index of the output on which the requests go out.
    pub output: u32,
    /// Index of the input on which the answers come in.
    pub input: u32,
}

/// How long a node may take for an event of one of its inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopDeadline {
    /// Index of the input.
    pub input: u32,
    /// Longest time, in nanoseconds, until the node asks for its next event.
    pub finish_within_nanos: u64,
}

/// Where an input's samples come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A timer, kept by the node itself.
    Timer {
        /// Its period in nanoseconds, at least 1.
        period_nanos: u64,
    },
    /// An output of another node.
    Output {
        /// `node/output`.
        topic: String,
    },
}

/// How an edge does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EdgeState {
    /// A resource of the system is short at one end, which tries again. Samples wait, or are dropped as the policy says.
    Waiting,
    /// It works (again).
    Working,
    /// It was given up.
    Failed,
    /// A state of a later version.
    #[serde(other)]
    Unknown,
}
