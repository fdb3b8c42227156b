//! Messages of a keeper to a host: the process in which composed nodes run.
//!
//! A host ends when this connection is closed.

use serde::{Deserialize, Serialize};

use crate::graph::{Program, Scheduling};

/// A message from a keeper to a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum Message {
    /// Run a node on a thread of its own. Descriptors: the node's control socket; of a node in Python
    /// also the pipes for its stdout and stderr.
    Start(Start),
    /// A message of a later version.
    #[serde(other)]
    Unknown,
}

/// A node to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// Its id.
    pub node: String,
    /// Its component, or its script or function in Python.
    pub program: Program,
    /// The arguments of a script or function.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Processors that its threads may run on; all if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpu_affinity: Vec<u32>,
    /// How its threads are scheduled.
    #[serde(default)]
    pub scheduling: Scheduling,
}
