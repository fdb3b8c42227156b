//! What the `nervure` command, or any other program of the same user, asks a keeper on its public socket.
//!
//! The first message is `Hello`; the keeper answers with `Welcome` or `Refused`. Every later message is answered by
//! `Done`, `Refused`, or what it documents. After `Observe` the connection is that of a node: `node_to_keeper` and
//! `keeper_to_node`. To add a command: a variant here, and an arm in the keeper's `machine/clients.rs`.

use crate::VersionRange;
use serde::{Deserialize, Serialize};

/// A message from a client to a keeper. None carries descriptors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum Message {
    /// The first message.
    Hello(Hello),
    /// Answered by the state of the dataflow (`NodeDeclared` and `Report`), `SnapshotComplete`, and from then on every
    /// report that `run` gets.
    Watch(Watch),
    /// Makes this connection a guest of the dataflow: a node that only receives. Answered by `Observing`.
    Observe(Observe),
    /// Stop every node in order.
    Stop {
        /// Why, for people.
        reason: String,
    },
    /// Kill every node now.
    Kill,
    /// Do something to one node.
    Node {
        /// Its id.
        node: String,
        /// What.
        order: NodeOrder,
    },
    /// What parameters there are. Answered by `Params` for each node that has some, or for the one named, and `Done`.
    Params {
        /// The node's id; all nodes if `None`.
        node: Option<String>,
    },
    /// Change a parameter.
    SetParam(SetParam),
    /// A message of a later version.
    #[serde(other)]
    Unknown,
}

/// The value that a parameter shall have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetParam {
    /// The node's id.
    pub node: String,
    /// The parameter's name.
    pub name: String,
    /// The value.
    pub value: serde_json::Value,
}

/// Who the client is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Control protocol versions that it speaks.
    pub versions: VersionRange,
    /// What it is, for people: `top`, `echo`, `record`, ..
    pub program: String,
}

/// What a watcher wants to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {
    /// True for log records too.
    #[serde(default)]
    pub logs: bool,
    /// False for the snapshot alone: nothing follows it.
    #[serde(default)]
    pub follow: bool,
}

/// What a guest wants to receive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observe {
    /// `node/output` of each; they become its inputs, in this order.
    pub topics: Vec<String>,
    /// Samples that each of its queues holds; the oldest makes room.
    pub depth: u32,
}

/// What can be done to one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeOrder {
    /// Stop it in order, and do not start it again until it is asked for.
    Stop,
    /// Start it again.
    Start,
    /// Stop it in order, if it runs, and start it again.
    Restart,
}
