//! The resolved graph of a dataflow: names are indices, defaults are filled in.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use nervure_protocol::graph::{NodeSettings, Program, StaticTransform};
use nervure_protocol::nanos;
use nervure_protocol::wiring::{self, NewGoal, Policy};
use nervure_types::Definition;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::json;

use crate::name::TypeName;

/// Default depth of a queue.
pub const DEFAULT_QUEUE_SIZE: u32 = 10;
/// Default number of samples that a node can use at once in addition to its queue.
pub const DEFAULT_HELD_BEYOND_QUEUE: u32 = 8;

/// Labels by the role whose machine must have them.
pub type Labels = BTreeMap<String, BTreeMap<String, String>>;

/// Minimum resources of a machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Resources {
    /// Processors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u32>,
    /// Memory in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<u64>,
    /// Graphics processors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
}

/// A dataflow without errors.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Dataflow {
    /// The name, as in the topic `name:node/output`.
    pub name: String,
    /// The folder of the file: the working directory of nodes and builds.
    pub directory: PathBuf,
    /// Environment variables for all nodes; already merged into each node's.
    pub env: BTreeMap<String, String>,
    /// The nodes, in the order of the file.
    pub nodes: Vec<Node>,
    /// The connections between outputs and inputs; timers are not among them.
    pub edges: Vec<Edge>,
    /// Roles of the machines that nodes run on; empty for a dataflow of one machine.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub machines: Vec<String>,
    /// Labels that the machine of a role must have, for roles with some.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: Labels,
    /// Minimum resources of the machine of a role, for roles with some.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: BTreeMap<String, Resources>,
    /// Poses of frames that never change.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub static_transforms: Vec<StaticTransform>,
}

/// A node: a process, or a thread of one. Indices in other structures refer to its place in [`Dataflow::nodes`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Node {
    /// Name, unique in the dataflow.
    pub id: String,
    /// Role of the machine that it runs on; `None` if the dataflow has no roles.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Whether it runs only while its machine holds its lease (`on_partition: stop`).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub stops_on_partition: bool,
    /// Name to display.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Description for users.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The program that it runs.
    #[serde(serialize_with = "program_with_field")]
    pub program: Program,
    /// False if the program does not exist yet and `build` makes it.
    #[serde(skip)]
    pub is_built: bool,
    /// Its settings. The environment has the variables of the dataflow, overridden by its own.
    #[serde(flatten)]
    pub settings: NodeSettings,
    /// Commands that build the program, one a line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
    /// The repository that it is built from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub git: Option<GitSource>,
    /// Its inputs, in the order of the file.
    pub inputs: Vec<Input>,
    /// Its outputs, in the order of the file.
    pub outputs: Vec<Output>,
    /// Definitions of the types of its outputs, by the name in the file, for types of folders.
    #[serde(skip)]
    pub types: BTreeMap<String, Arc<Definition>>,
    /// Requests that it answers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<Service>,
    /// Requests that it makes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<Client>,
    /// Limit on the memory of all its outputs, in bytes; `None` for half of the memory of the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shared_memory: Option<u64>,
    /// First line of the node in the file, counted from 1.
    pub line: usize,
}

/// A repository that `nervure build` clones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct GitSource {
    /// Its URL.
    pub url: String,
    /// What to check out; `None` for the default branch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reference: Option<GitReference>,
    /// The folder of the clone.
    pub folder: PathBuf,
}

/// What to check out of a repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GitReference {
    /// The newest commit of a branch.
    Branch(String),
    /// A tag.
    Tag(String),
    /// A commit.
    Rev(String),
}

/// A service of a node: requests that it answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Service {
    /// Name, unique among the services of the node.
    pub name: String,
    /// The clients. Each has its own input and output of this node.
    pub clients: Vec<ServiceClient>,
    /// The output that sends the answers to requests of tools: index in [`Node::outputs`]. A stand-in of
    /// the node has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<usize>,
    /// For an action, whose requests are goals: its handling of a goal during another one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<NewGoal>,
}

/// A client of a service, as its server sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ServiceClient {
    /// Index in [`Dataflow::nodes`].
    pub node: usize,
    /// The input that receives its requests: index in [`Node::inputs`].
    pub input: usize,
    /// The output that sends the answers: index in [`Node::outputs`].
    pub output: usize,
    /// The output that sends the feedback of an action.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub feedback: Option<usize>,
}

/// A client of a service, as its own node sees it: requests that the node makes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Client {
    /// The node's own name for the service.
    pub name: String,
    /// The node that answers: index in [`Dataflow::nodes`].
    pub server: usize,
    /// Index in [`Node::services`] of the server.
    pub service: usize,
    /// The output that sends the requests: index in [`Node::outputs`].
    pub output: usize,
    /// The input that receives the answers: index in [`Node::inputs`].
    pub input: usize,
    /// The input that receives the feedback of an action.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub feedback: Option<usize>,
}

/// An input of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Input {
    /// Name, unique among the inputs of the node.
    pub name: String,
    /// Where its samples come from.
    pub source: Source,
    /// Its queue. A timer always has `latest`: missed ticks become a count.
    pub queue: InputQueue,
    /// The type that the node expects, if the file says so.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_name: Option<TypeName>,
    /// Longest time between samples; after it the node receives a `STALE` event.
    #[serde(
        rename = "expect_every_nanos",
        with = "nanos::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub expect_every: Option<Duration>,
    /// Quality of service, for samples that come over a link.
    #[serde(skip_serializing_if = "Qos::is_default")]
    pub qos: Qos,
    /// Line in the file, counted from 1; 0 if it belongs to a service or client.
    #[serde(skip)]
    pub line: usize,
}

/// Quality of service on a link between machines, in addition to the queue of the input.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Qos {
    /// Whether losses are left as they are, instead of repaired.
    pub best_effort: bool,
    /// Age at which a sample that was not delivered is dropped.
    #[serde(
        rename = "lifespan_nanos",
        with = "nanos::optional",
        skip_serializing_if = "Option::is_none"
    )]
    pub lifespan: Option<Duration>,
    /// Priority among the samples of a link.
    pub traffic_class: TrafficClass,
}

/// Priority among the samples of a link: a higher class takes all that it needs.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
pub enum TrafficClass {
    /// Commands and small state.
    Control,
    /// The default.
    #[default]
    Default,
    /// Images, clouds, recordings.
    Bulk,
}

impl Qos {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Where an input's samples come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A timer.
    Timer {
        /// Time between ticks, in nanoseconds.
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

/// The queue of an input, as the file declares it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct InputQueue {
    /// What happens when it is full.
    pub policy: QueuePolicy,
    /// Maximum number of samples in the queue; 1 for `latest`.
    pub depth: u32,
    /// Maximum number of samples in the queue and in use by the node together.
    pub max_held: u32,
}

/// Policy of an input whose queue is full, as the file declares it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueuePolicy {
    /// A policy of edges, for a queue of any depth.
    Edge(Policy),
    /// The queue holds only the newest sample.
    Latest,
}

/// An output of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Output {
    /// Name, unique among the outputs of the node.
    pub name: String,
    /// Number of last samples kept for inputs that connect late.
    pub history: u32,
    /// The type of its samples, if the file says so.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_name: Option<TypeName>,
    /// Line in the file, counted from 1; 0 if it belongs to a service or client.
    #[serde(skip)]
    pub line: usize,
}

/// A connection from an output to an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
pub struct Edge {
    /// The output that samples come from.
    pub from: OutputIndex,
    /// The input that samples go to.
    pub to: InputIndex,
}

/// An output, by its place in [`Dataflow::nodes`] and [`Node::outputs`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct OutputIndex {
    /// Index in [`Dataflow::nodes`].
    pub node: usize,
    /// Index in [`Node::outputs`].
    pub output: usize,
}

/// An input, by its place in [`Dataflow::nodes`] and [`Node::inputs`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct InputIndex {
    /// Index in [`Dataflow::nodes`].
    pub node: usize,
    /// Index in [`Node::inputs`].
    pub input: usize,
}

impl Dataflow {
    /// The node with the id.
    #[must_use]
    pub fn node(&self, id: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.id == id)
    }

    /// The name of an output for people and tools: `dataflow:node/output`.
    ///
    /// # Panics
    /// If `output` is not part of this dataflow.
    #[must_use]
    pub fn topic(&self, output: OutputIndex) -> String {
        let node = &self.nodes[output.node];
        let topic = wiring::topic(&node.id, &node.outputs[output.output].name);
        format!("{}:{topic}", self.name)
    }

    /// The input that an edge leads to.
    ///
    /// # Panics
    /// If `edge` is not part of this dataflow.
    #[must_use]
    pub fn input(&self, edge: &Edge) -> &Input {
        &self.nodes[edge.to.node].inputs[edge.to.input]
    }
}

impl Node {
    /// Definitions of types as JSON of `nervure_types`, for the node's process.
    #[must_use]
    pub fn portable_types(&self) -> BTreeMap<String, serde_json::Value> {
        let types = self.types.iter();
        types
            .map(|(name, definition)| (name.clone(), definition.to_portable()))
            .collect()
    }
}

impl InputQueue {
    /// The default: 10 samples, dropping the oldest.
    pub const DEFAULT: InputQueue = InputQueue::new(Policy::DropOldest, DEFAULT_QUEUE_SIZE);
    /// The queue of `latest`.
    pub const LATEST: InputQueue = InputQueue {
        policy: QueuePolicy::Latest,
        ..InputQueue::new(Policy::DropOldest, 1)
    };

    /// A queue with the default limit on samples in use.
    #[must_use]
    pub const fn new(policy: Policy, depth: u32) -> InputQueue {
        InputQueue {
            policy: QueuePolicy::Edge(policy),
            depth,
            max_held: depth.saturating_add(DEFAULT_HELD_BEYOND_QUEUE),
        }
    }
}

impl QueuePolicy {
    /// The word in a dataflow file.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            QueuePolicy::Edge(policy) => policy.name(),
            QueuePolicy::Latest => "latest",
        }
    }

    /// The policy of the edge. `latest` is `drop_oldest` with a queue of one sample.
    #[must_use]
    pub const fn on_edge(self) -> Policy {
        match self {
            QueuePolicy::Edge(policy) => policy,
            QueuePolicy::Latest => Policy::DropOldest,
        }
    }
}

impl fmt::Display for QueuePolicy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

impl Serialize for QueuePolicy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl From<InputQueue> for wiring::Queue {
    fn from(queue: InputQueue) -> Self {
        Self {
            policy: queue.policy.on_edge(),
            depth: queue.depth,
            max_held: queue.max_held,
        }
    }
}

/// A program in JSON, with the name of its only field: `{"python": {"script": ..}}`.
fn program_with_field<S: Serializer>(program: &Program, serializer: S) -> Result<S::Ok, S::Error> {
    match program {
        Program::Python(script) => json!({"python": {"script": script}}),
        Program::Function(function) => json!({"function": {"name": function}}),
        Program::Executable(file) => json!({"executable": {"file": file}}),
        Program::Command(name) => json!({"command": {"name": name}}),
        Program::Component(file) => json!({"component": {"file": file}}),
        Program::Dynamic => json!("dynamic"),
        Program::Remote { machine } => json!({"remote": {"machine": machine}}),
        Program::LogOutputs(outputs) => json!({"log_outputs": outputs}),
        Program::Operators(operators) => json!({"operators": operators}),
    }
    .serialize(serializer)
}
