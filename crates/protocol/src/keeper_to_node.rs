//! Messages of a keeper to a node.
//!
//! Order: `Welcome`, an `AttachOutput` or `AttachInput` for each declared edge, `Wired`, and
//! `Start` once the dataflow is ready. After that edges come and go at run time.

use crate::graph::{DeadlineSpec, SyncSpec, TransformsSpec};
use crate::wiring::{ClientSpec, InputSpec, OutputSpec, Queue, Return, ServiceSpec};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A message from a keeper to a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum Message {
    /// The answer to `Hello`. Descriptors: control page (mapped read-only), the node's own wake
    /// page, its own eventfd, its own counters page.
    Welcome(Box<Welcome>),
    /// `Hello` was refused; the node reports the reason to its user and ends.
    Refused {
        /// Why, for people.
        reason: String,
    },
    /// A consumer joins an output. Descriptors: edge region, the consumer's wake page, the
    /// consumer's eventfd, and, when `peer` was not named before, this node's end of the pair
    /// socket.
    AttachOutput(AttachOutput),
    /// An input gets a producer. Descriptors: edge region, the producer's wake page, and, when
    /// `peer` was not named before, this node's end of the pair socket.
    AttachInput(AttachInput),
    /// Every declared edge has been sent.
    Wired,
    /// The dataflow is ready: timers run and sources may send.
    Start,
    /// The consumer of an edge is gone.
    DetachOutput {
        /// The edge.
        edge: u32,
        /// True when the consumer will be restarted and inherits the queued samples (`block`
        /// edges): the edge stays, waits for an `AttachOutput` with the same id, and its popped but
        /// unreleased blocks count as lost.
        suspended: bool,
    },
    /// A consumer whose edge drops has no process. Comes before the `DetachOutput` of its last
    /// edge. If it returns, the queue of that edge and samples sent until the next `AttachOutput`
    /// with this row count as lost there.
    AwaitConsumer {
        /// Index of the output.
        output: u32,
        /// Row of its edges in the producer's counters page.
        counters_row: u32,
        /// Whether it returns.
        returns: Return,
    },
    /// The producer of an edge is gone. Queued samples are still delivered.
    CloseInput {
        /// The edge.
        edge: u32,
        /// True when no other producer will take its place: INPUT_CLOSED follows the last sample.
        last: bool,
    },
    /// A value for an input whose producer failed, to be delivered behind every sample of that
    /// producer.
    LastValue(LastValue),
    /// A parameter has another value.
    Param(crate::params::Param),
    /// A request of a tool to a service of the node.
    Call(Call),
    /// A sample of a tool. Answered by `Published`.
    Publish(Publish),
    /// An event about a neighbour, for the node's program.
    Event(NeighbourEvent),
    /// The node shall end in order.
    Stop {
        /// Why, for people: `run stopped`, `all nodes finished`, ..
        reason: String,
        /// Milliseconds until SIGTERM.
        grace_millis: u64,
    },
    /// The node shall end once it has received its queued samples. No producer of it sends any
    /// more.
    StopWhenDrained {
        /// Why, for people.
        reason: String,
    },
    /// A message of a later version.
    #[serde(other)]
    Unknown,
}

/// The node's own declarations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The control protocol version spoken from here on.
    pub version: u32,
    /// The dataflow's name.
    pub dataflow: String,
    /// The node's id.
    pub node: String,
    /// 0 for the first start, one more at each restart.
    pub incarnation: u32,
    /// True when the node calls `ready()` itself.
    pub manual_ready: bool,
    /// Most bytes of shared memory that the node may own.
    pub shared_memory_bytes: u64,
    /// Its outputs; edges refer to them by index.
    pub outputs: Vec<OutputSpec>,
    /// Definitions of types of its outputs that are not in the standard set, as JSON of
    /// `nervure_types`, by name.
    #[serde(default)]
    pub types: BTreeMap<String, serde_json::Value>,
    /// Its inputs; edges refer to them by index.
    pub inputs: Vec<InputSpec>,
    /// The requests that it answers.
    #[serde(default)]
    pub services: Vec<ServiceSpec>,
    /// The requests that it makes.
    #[serde(default)]
    pub clients: Vec<ClientSpec>,
    /// Its parameters, in the order of the file.
    #[serde(default)]
    pub params: Vec<crate::params::Param>,
    /// The deadline of its loop.
    #[serde(default)]
    pub loop_deadline: Option<DeadlineSpec>,
    /// Inputs whose samples it gets together.
    #[serde(default)]
    pub sync: Option<SyncSpec>,
    /// The transforms that it can look up.
    #[serde(default)]
    pub transforms: Option<Box<TransformsSpec>>,
    /// Whether the node locks the memory of its process.
    #[serde(default)]
    pub memory_lock: bool,
}

/// A consumer joins an output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachOutput {
    /// The edge's id, unique within the dataflow.
    pub edge: u32,
    /// Index of the output.
    pub output: u32,
    /// `node/input` of the consumer, for messages and counters.
    pub consumer: String,
    /// The consumer's bit in its doorbell (the input's index).
    pub input: u32,
    /// The queue.
    pub queue: Queue,
    /// Row of this edge in the producer's counters page.
    pub counters_row: u32,
    /// True when the row counted another edge before: it begins at zero.
    #[serde(default)]
    pub clear_counters: bool,
    /// True when the consumer is an observer: its queue is given up when memory is short.
    #[serde(default)]
    pub gives_way: bool,
    /// This end of the socket of a pair: edges from the same process to the same process share one.
    pub peer: u32,
}

/// An input gets a producer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachInput {
    /// The edge's id, unique within the dataflow.
    pub edge: u32,
    /// Index of the input.
    pub input: u32,
    /// `node/output` of the producer.
    pub producer: String,
    /// The producer's incarnation.
    pub incarnation: u32,
    /// The queue.
    pub queue: Queue,
    /// Rows of the edge's lease table.
    pub blocks: u32,
    /// This end of the socket of a pair: edges from the same process to the same process share one.
    pub peer: u32,
}

/// The value in place of further samples of a failed producer: `on_failure` in the dataflow file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastValue {
    /// Index of the input.
    pub input: u32,
    /// The incarnation that failed.
    pub incarnation: u32,
    /// The value, at most [`crate::MAX_LAST_VALUE_BYTES`] as JSON.
    pub value: serde_json::Value,
    /// The reason, for people.
    pub reason: String,
}

/// A request of a tool. The answer goes to the output for tools of the service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Index of the service.
    pub service: u32,
    /// The tool, such as `service@4711`.
    pub client: String,
    /// The number that the answer repeats.
    pub correlation_id: u64,
    /// The value.
    pub value: serde_json::Value,
    /// True to cancel the goal with this number of an action.
    #[serde(default)]
    pub cancels: bool,
    /// Time limit of a goal of an action, in nanoseconds.
    #[serde(default)]
    pub within_nanos: Option<u64>,
}

/// A sample of a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Publish {
    /// The number that the answer repeats.
    pub id: u64,
    /// The end of the node that it is for.
    pub at: NodeEnd,
    /// The value.
    pub value: serde_json::Value,
}

/// An output or an input of a node, by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeEnd {
    /// The node publishes on this output.
    Output(u32),
    /// The node receives on this input. No edge counts it.
    Input(u32),
}

/// An event about a neighbour, for the node's program. Unknown kinds are ignored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeighbourEvent {
    /// `NODE_FAILED`, `NODE_RESTARTED`, ..
    pub kind: String,
    /// The node that the event is about.
    pub node: String,
    /// The inputs of the receiving node that it concerns.
    #[serde(default)]
    pub inputs: Vec<String>,
    /// The reason, for people.
    #[serde(default)]
    pub reason: String,
    /// Of `NODE_FAILED`: the node will be started again.
    #[serde(default)]
    pub restarts: bool,
}
