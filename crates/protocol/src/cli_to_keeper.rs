//! What the `nervure` command, or any other program of the same user, asks a keeper on its public socket.
//!
//! The first message is `Hello`; the keeper answers with `Welcome` or `Refused`. Every later message is answered by
//! `Done`, `Refused`, or what it documents. After `Observe` and `Join` the connection is that of a node:
//! `node_to_keeper` and `keeper_to_node`. To add a command: a variant here, and an arm in the keeper's `machine/clients.rs`.

use crate::{VersionRange, graph::Program};
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
    /// Makes this connection that of a node of the file, whose process the keeper has not started. Answered by `Joined`.
    Join(Join),
    /// Keeps a node's place for a program of the client's, as long as this connection lasts. The process that the keeper
    /// started is stopped in order; whoever has the token can join. Answered by `Attached`.
    Attach(Attach),
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
    /// Give a node another program. Answered once that is decided, which takes its time: by `Done` when the new program is
    /// ready, or by `Refused` when it is not and what ran before comes back.
    Replace(Replace),
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

/// Who wants to be which node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Join {
    /// The node's id.
    pub node: String,
    /// What shows that it may: of an attachment its token, else that of the dataflow ([`crate::TOKEN_FILE`]).
    pub token: String,
}

/// Which node's place is to be kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attach {
    /// The node's id.
    pub node: String,
    /// Made up by the client, for the `Join` of its program.
    pub token: String,
    /// True when the node shall stay stopped afterwards; else its own program is started again.
    #[serde(default)]
    pub leave_stopped: bool,
}

/// What a node shall run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replace {
    /// The node's id.
    pub node: String,
    /// The program.
    pub program: Program,
    /// Its arguments; those of the program before if `None`.
    #[serde(default)]
    pub args: Option<Vec<String>>,
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
