//! The resolved dataflow: every name looked up, every default filled in.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use nervure_protocol::params::ParamSpec;
use serde::Serialize;

use crate::name::TypeName;

/// Samples that wait for a node at most, unless the file says otherwise.
pub const DEFAULT_QUEUE_SIZE: u32 = 10;
/// Samples that a node can use at a time beyond those that wait for it, unless the file says
/// otherwise.
pub const DEFAULT_HELD_BEYOND_QUEUE: u32 = 8;

/// A dataflow that can run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Dataflow {
    /// Its name, as in the topic `name:node/output`.
    pub name: String,
    /// The folder of its file: nodes and builds run there.
    pub directory: PathBuf,
    /// Environment variables of every node; already merged into [`Node::env`].
    pub env: BTreeMap<String, String>,
    /// The nodes, in the order of the file.
    pub nodes: Vec<Node>,
    /// The connections between outputs and inputs; timers are not among them.
    pub edges: Vec<Edge>,
}

/// A node: one process.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Node {
    /// Its name, unique in the dataflow.
    pub id: String,
    /// Its name for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it does, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What it runs.
    pub program: Program,
    /// False when the program is not there yet, and `build` makes it.
    #[serde(skip)]
    pub is_built: bool,
    /// The program's arguments.
    pub args: Vec<String>,
    /// Its environment variables beside those that it inherits: the dataflow's, and its own on top.
    pub env: BTreeMap<String, String>,
    /// Commands that build it, one a line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
    /// Its inputs, in the order of the file.
    pub inputs: Vec<Input>,
    /// Its outputs, in the order of the file.
    pub outputs: Vec<Output>,
    /// When it is started again.
    pub restart: Restart,
    /// Longest time until it is connected and ready.
    #[serde(
        rename = "startup_timeout_nanos",
        serialize_with = "as_optional_nanos",
        skip_serializing_if = "Option::is_none"
    )]
    pub startup_timeout: Option<Duration>,
    /// Longest time without a sign of life.
    #[serde(
        rename = "health_check_timeout_nanos",
        serialize_with = "as_optional_nanos",
        skip_serializing_if = "Option::is_none"
    )]
    pub health_check_timeout: Option<Duration>,
    /// The requests that it answers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<Service>,
    /// The requests that it makes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<Client>,
    /// Its parameters, in the order of the file.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub params: Vec<ParamSpec>,
    /// What the consumers of its outputs get when it fails.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub on_failure: Vec<LastValue>,
    /// Processors that it may run on; all if empty.
    pub cpu_affinity: Vec<u32>,
    /// Scheduling class of its threads.
    pub scheduling: Scheduling,
    /// When it counts as ready.
    pub ready: Ready,
    /// How long it may take for an event.
    #[serde(rename = "loop", skip_serializing_if = "Option::is_none")]
    pub loop_deadline: Option<LoopDeadline>,
    /// Most bytes that its outputs may take together; a default of the plane if `None`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared_memory: Option<u64>,
    /// Line of the file at which it begins, counted from 1.
    pub line: usize,
}

/// A kind of request that a node answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Service {
    /// Its name, unique among the node's services.
    pub name: String,
    /// Those who ask. Each has an input and an output of this node for itself.
    pub clients: Vec<ServiceClient>,
}

/// Who asks for a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ServiceClient {
    /// Index in [`Dataflow::nodes`].
    pub node: usize,
    /// Where its requests come in: index in [`Node::inputs`].
    pub input: usize,
    /// Where the answers go out: index in [`Node::outputs`].
    pub output: usize,
}

/// A kind of request that a node makes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Client {
    /// The node's own name for it.
    pub name: String,
    /// Who answers: index in [`Dataflow::nodes`].
    pub server: usize,
    /// Index in [`Node::services`] of the server.
    pub service: usize,
    /// Where the requests go out: index in [`Node::outputs`].
    pub output: usize,
    /// Where the answers come in: index in [`Node::inputs`].
    pub input: usize,
}

/// What the consumers of an output get when its node fails.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LastValue {
    /// Index in [`Node::outputs`].
    pub output: usize,
    /// The value; it can be sent.
    pub value: serde_json::Value,
}

/// What a node runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Program {
    /// A script for the Python of the active environment.
    Python {
        /// The script; relative paths are already joined to the dataflow's folder.
        script: PathBuf,
    },
    /// An executable file.
    Executable {
        /// The file; relative paths are already joined to the dataflow's folder.
        file: PathBuf,
    },
    /// A command to look up on the PATH.
    Command {
        /// The command, without a slash.
        name: String,
    },
    /// Nothing: a process that is started by hand joins as the node.
    Dynamic,
}

/// An input of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Input {
    /// Its name, unique among the node's inputs.
    pub name: String,
    /// Where its samples come from.
    pub source: Source,
    /// How samples wait for the node. Of a timer always `latest`: missed ticks become a count.
    pub queue: Queue,
    /// The type that the node expects, if the file says so.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_name: Option<TypeName>,
    /// Longest time between samples before the node is told.
    #[serde(
        rename = "expect_every_nanos",
        serialize_with = "as_optional_nanos",
        skip_serializing_if = "Option::is_none"
    )]
    pub expect_every: Option<Duration>,
    /// Line of the file at which it stands, counted from 1; 0 for that of a service.
    #[serde(skip)]
    pub line: usize,
}

/// How long a node may take for an event of one of its inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LoopDeadline {
    /// Index in [`Node::inputs`].
    pub input: usize,
    /// Longest time until it asks for its next event.
    #[serde(rename = "finish_within_nanos", serialize_with = "as_nanos")]
    pub finish_within: Duration,
}

/// Where an input's samples come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A timer.
    Timer {
        /// Time between ticks.
        period_nanos: u64,
    },
    /// An output of a node, possibly the same node.
    Output {
        /// Index in [`Dataflow::nodes`].
        node: usize,
        /// Index in [`Node::outputs`].
        output: usize,
    },
}

/// How samples wait for a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Queue {
    /// What happens when it is full.
    pub policy: QueuePolicy,
    /// Samples that wait at most; 1 for `latest`.
    pub depth: u32,
    /// Samples that wait or are in use by the node at most.
    pub max_held: u32,
}

/// What happens when a queue is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum QueuePolicy {
    /// The oldest sample goes.
    DropOldest,
    /// The new sample goes.
    DropNewest,
    /// The producer waits.
    Block,
    /// There is only ever the newest.
    Latest,
}

/// An output of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Output {
    /// Its name, unique among the node's outputs.
    pub name: String,
    /// Last samples that are kept for inputs that connect late.
    pub history: u32,
    /// The type of its samples, if the file says so.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_name: Option<TypeName>,
    /// Line of the file at which it stands, counted from 1; 0 for that of a service.
    #[serde(skip)]
    pub line: usize,
}

/// When a node is started again after it ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Restart {
    /// After which endings.
    pub policy: RestartPolicy,
    /// Wait before the first restart; doubles with each.
    #[serde(rename = "delay_nanos", serialize_with = "as_nanos")]
    pub delay: Duration,
    /// Longest wait.
    #[serde(rename = "max_delay_nanos", serialize_with = "as_nanos")]
    pub max_delay: Duration,
    /// Restarts before giving up; no limit if `None`.
    pub max_restarts: Option<u32>,
    /// The count of restarts begins anew this long after the first of them; never if `None`.
    #[serde(rename = "window_nanos", serialize_with = "as_optional_nanos")]
    pub window: Option<Duration>,
}

impl Default for Restart {
    fn default() -> Restart {
        Restart {
            policy: RestartPolicy::Never,
            delay: Duration::from_millis(100),
            max_delay: Duration::from_secs(30),
            max_restarts: None,
            window: None,
        }
    }
}

/// After which endings a node is started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum RestartPolicy {
    /// After none.
    Never,
    /// After an exit code other than 0, or a signal.
    OnFailure,
    /// After any that was not asked for.
    Always,
}

/// Scheduling class of a node's threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(tag = "policy", rename_all = "snake_case")]
pub enum Scheduling {
    /// Whatever the node inherits.
    #[default]
    Inherited,
    /// The normal one.
    Other {
        /// Niceness, -20 to 19, -20 being the most urgent.
        nice: i8,
    },
    /// Real-time, first in, first out.
    Fifo {
        /// 1 to 99, 99 being the most urgent.
        priority: u8,
    },
    /// Real-time, round-robin.
    RoundRobin {
        /// 1 to 99, 99 being the most urgent.
        priority: u8,
    },
}

/// When a node counts as ready. Sources start when every node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ready {
    /// When it is connected.
    #[default]
    Auto,
    /// When it says so.
    Manual,
}

/// A connection from an output to an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct Edge {
    /// Where samples come from.
    pub from: OutputIndex,
    /// Where they go.
    pub to: InputIndex,
}

/// An output by its place in [`Dataflow::nodes`] and [`Node::outputs`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct OutputIndex {
    /// Index in [`Dataflow::nodes`].
    pub node: usize,
    /// Index in [`Node::outputs`].
    pub output: usize,
}

/// An input by its place in [`Dataflow::nodes`] and [`Node::inputs`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct InputIndex {
    /// Index in [`Dataflow::nodes`].
    pub node: usize,
    /// Index in [`Node::inputs`].
    pub input: usize,
}

impl Dataflow {
    /// The node of that id.
    #[must_use]
    pub fn node(&self, id: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.id == id)
    }

    /// The name of an output for people and tools: `dataflow:node/output`.
    ///
    /// # Panics
    /// If `output` is not of this dataflow.
    #[must_use]
    pub fn topic(&self, output: OutputIndex) -> String {
        let node = &self.nodes[output.node];
        format!(
            "{}:{}/{}",
            self.name, node.id, node.outputs[output.output].name
        )
    }

    /// The input that an edge leads to.
    ///
    /// # Panics
    /// If `edge` is not of this dataflow.
    #[must_use]
    pub fn input(&self, edge: &Edge) -> &Input {
        &self.nodes[edge.to.node].inputs[edge.to.input]
    }
}

impl Queue {
    /// Of an input that says nothing else: the oldest of ten goes.
    pub const DEFAULT: Queue = Queue::new(QueuePolicy::DropOldest, DEFAULT_QUEUE_SIZE);
    /// Of an input that wants only the newest sample.
    pub const LATEST: Queue = Queue::new(QueuePolicy::Latest, 1);

    /// A queue with the default hold limit.
    #[must_use]
    pub const fn new(policy: QueuePolicy, depth: u32) -> Queue {
        Queue {
            policy,
            depth,
            max_held: depth.saturating_add(DEFAULT_HELD_BEYOND_QUEUE),
        }
    }
}

impl QueuePolicy {
    /// The word in a dataflow file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            QueuePolicy::DropOldest => "drop_oldest",
            QueuePolicy::DropNewest => "drop_newest",
            QueuePolicy::Block => "block",
            QueuePolicy::Latest => "latest",
        }
    }
}

impl fmt::Display for QueuePolicy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

fn as_nanos<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    // The longest duration that a file can hold, a year, fits 500 times.
    serializer.serialize_u64(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

fn as_optional_nanos<S: serde::Serializer>(
    duration: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match duration {
        Some(duration) => as_nanos(duration, serializer),
        None => serializer.serialize_none(),
    }
}
