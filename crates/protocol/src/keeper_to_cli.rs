//! Answers of a keeper on its public socket.

use crate::{
    graph::{Program, StaticTransform},
    params::ParamSpec,
    report::Report,
    wiring::{ClientSpec, InputSpec, OutputSpec, ServiceSpec},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A message from a keeper to a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum Message {
    /// The answer to `Hello`.
    Welcome(Welcome),
    /// The request failed, or is not allowed.
    Refused(Refused),
    /// The request is carried out, or has begun to be.
    Done,
    /// A sample of the client was published.
    Published(Published),
    /// From here on the connection carries the messages of a guest node.
    Observing {
        /// The id of the guest.
        node: String,
    },
    /// From here on the connection carries the node's messages.
    Joined,
    /// The node's place is kept.
    Attached(Attached),
    /// A node of the dataflow: the beginning of a snapshot.
    NodeDeclared(NodeDeclared),
    /// In a snapshot, a report of the present state; after it, a new report. Descriptor: the
    /// report's.
    Report {
        /// The report.
        report: Report,
    },
    /// The parameters of a node, in the order of the file.
    Params {
        /// The node's id.
        node: String,
        /// The parameters.
        params: Vec<NodeParam>,
    },
    /// The snapshot is complete; new reports follow.
    SnapshotComplete,
    /// A message of a later version.
    #[serde(other)]
    Unknown,
}

/// The result of a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    /// The number of consumers that have it in their queues.
    pub queued: u32,
    /// The number of consumers that miss it, each counted on its edge.
    pub missed: u32,
}

/// A parameter of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeParam {
    /// Its declaration.
    pub spec: ParamSpec,
    /// Its present value.
    pub value: serde_json::Value,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// The reason, for people.
    pub reason: String,
    /// The likely fix.
    #[serde(default)]
    pub hint: Option<String>,
    /// True if a new program was tried and has failed, so that the one before runs again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rolled_back: bool,
}

impl Refused {
    /// A refusal, with the likely fix.
    pub fn new(reason: impl Into<String>, hint: Option<&str>) -> Self {
        Self {
            reason: reason.into(),
            hint: hint.map(str::to_owned),
            rolled_back: false,
        }
    }
}

/// A dataflow and its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// The control protocol version spoken from here on.
    pub version: u32,
    /// The dataflow's name.
    pub dataflow: String,
    /// Version of the keeper.
    pub library: String,
    /// The working directory of its nodes.
    pub folder: String,
    /// The dataflow file, where there is one.
    #[serde(default)]
    pub file: Option<String>,
    /// The folder of the log files of this run; empty without log files.
    pub log_folder: String,
    /// Time of the start, in nanoseconds since the Unix epoch.
    pub started_utc_nanos: i64,
    /// Its state.
    pub state: DataflowState,
    /// The number of its nodes, without observers.
    pub nodes: u32,
    /// The number of nodes that run.
    pub running: u32,
    /// The number of observers that are connected.
    pub observers: u32,
    /// True if the dataflow outlives the `run` that started it.
    pub detached: bool,
    /// Poses of frames that never change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub static_transforms: Vec<StaticTransform>,
}

/// The state of a dataflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DataflowState {
    /// Not every node is ready yet.
    Starting,
    /// Every node was ready once.
    Running,
    /// Its clock, timers and watchdogs stand still.
    Paused,
    /// It was asked to stop.
    Stopping,
    /// A state of a later version.
    #[serde(other)]
    Unknown,
}

/// Properties that a program needs to run as a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    /// The program that the keeper would run.
    pub program: Program,
    /// The program's arguments.
    pub args: Vec<String>,
    /// Environment variables in addition to the client's.
    pub env: BTreeMap<String, String>,
    /// The working directory.
    pub folder: String,
}

/// A node of the dataflow, or a guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeDeclared {
    /// Its index.
    pub node: u32,
    /// Its id.
    pub id: String,
    /// The program that it runs, for people.
    pub program: String,
    /// The program in the file, if it was replaced since.
    #[serde(default)]
    pub file_says: Option<String>,
    /// True for a guest that observes.
    pub observer: bool,
    /// The client that is attached to it; another program than `program` may run in its place.
    #[serde(default)]
    pub attached: Option<String>,
    /// True if the keeper does not start it: a process joins as the node.
    #[serde(default)]
    pub dynamic: bool,
    /// The machine that it is on, if it is a stand-in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<String>,
    /// Why the start of the dataflow waits for it, as in "has not connected".
    #[serde(default)]
    pub not_done: Option<String>,
    /// Its outputs.
    pub outputs: Vec<OutputSpec>,
    /// Its inputs.
    pub inputs: Vec<InputSpec>,
    /// Requests that it answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<ServiceSpec>,
    /// Requests that it makes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<ClientSpec>,
}
