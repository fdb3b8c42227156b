//! What a keeper answers on its public socket.

use crate::{
    graph::Program,
    keeper_to_run,
    params::ParamSpec,
    wiring::{InputSpec, OutputSpec},
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A message from a keeper to a client.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum Message {
    /// The answer to `Hello`.
    Welcome(Welcome),
    /// What was asked for is not done.
    Refused(Refused),
    /// What was asked for is done, or begun.
    Done,
    /// From here on the connection is that of a node.
    Observing {
        /// The id that the guest got.
        node: String,
    },
    /// From here on the connection is that of the node.
    Joined,
    /// The node's place is kept.
    Attached(Attached),
    /// A node of the dataflow: the beginning of a snapshot.
    NodeDeclared(NodeDeclared),
    /// What is the case, in a snapshot, or has just happened, after it. Descriptor: as that of the report.
    Report {
        /// The report, as `run` gets it.
        report: keeper_to_run::Message,
    },
    /// The parameters of a node, in the order of the file.
    Params {
        /// The node's id.
        node: String,
        /// The parameters.
        params: Vec<NodeParam>,
    },
    /// Everything was told; what follows is news.
    SnapshotComplete,
    /// A message of a later version.
    #[serde(other)]
    Unknown,
}

/// A parameter of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeParam {
    /// As it is declared.
    pub spec: ParamSpec,
    /// Its present value.
    pub value: serde_json::Value,
}

/// Why something is not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refused {
    /// Why, for people.
    pub reason: String,
    /// The likely fix.
    #[serde(default)]
    pub hint: Option<String>,
}

impl Refused {
    /// A refusal, with the likely fix.
    pub fn new(reason: impl Into<String>, hint: Option<&str>) -> Self {
        Self {
            reason: reason.into(),
            hint: hint.map(str::to_owned),
        }
    }
}

/// What a dataflow is.
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
    /// Where the log files of this run are.
    pub log_folder: String,
    /// When it was started, in nanoseconds since the Unix epoch.
    pub started_utc_nanos: i64,
    /// Where it is in its life.
    pub state: DataflowState,
    /// How many nodes it has.
    pub nodes: u32,
    /// How many of them run.
    pub running: u32,
    /// Observers that are attached.
    pub observers: u32,
    /// True when no `run` waits for its end.
    pub detached: bool,
}

/// Where a dataflow is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DataflowState {
    /// Not every node is ready yet.
    Starting,
    /// Every node was ready once.
    Running,
    /// It was asked to stop.
    Stopping,
    /// A state of a later version.
    #[serde(other)]
    Unknown,
}

/// What a program must know to run as a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attached {
    /// What the keeper would run.
    pub program: Program,
    /// The program's arguments.
    pub args: Vec<String>,
    /// Variables added to the environment.
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
    /// What it runs, for people.
    pub program: String,
    /// What the file says instead, where it was replaced since.
    #[serde(default)]
    pub file_says: Option<String>,
    /// True for a guest that observes.
    pub observer: bool,
    /// Who is attached to it: whatever runs in its place is not `program`.
    #[serde(default)]
    pub attached: Option<String>,
    /// True when the keeper does not start it: it joins by itself.
    #[serde(default)]
    pub dynamic: bool,
    /// What it has not done that the start of the dataflow waits for, as in "has not connected".
    #[serde(default)]
    pub not_done: Option<String>,
    /// Its outputs.
    pub outputs: Vec<OutputSpec>,
    /// Its inputs.
    pub inputs: Vec<InputSpec>,
}
