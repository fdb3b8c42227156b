//! Requests of the `nervure` command, or of any other program of the same user, to a keeper on its
//! public socket.
//!
//! `nervure run` is such a client, over the connection with which it starts the keeper.
//!
//! The first message is `Hello`; the keeper answers with `Welcome` or `Refused`. Every later
//! message is answered by `Done`, `Refused`, or its documented answer. After `Observe` and `Join`
//! the connection carries a node's messages: `node_to_keeper` and `keeper_to_node`. To add a
//! command: a variant here, and an arm in the keeper's `machine/requests.rs`.

use std::path::PathBuf;

use crate::{VersionRange, graph::Program};
use serde::{Deserialize, Serialize};

/// A message from a client to a keeper. None carries descriptors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum Message {
    /// The first message.
    Hello(Hello),
    /// Answered by the state of the dataflow (`NodeDeclared` and `Report`), `SnapshotComplete`, and
    /// from then on every report that it asks for.
    Watch(Watch),
    /// Makes this connection a guest of the dataflow: a node that only receives. Answered by
    /// `Observing`.
    Observe(Observe),
    /// Makes this connection the one of a node of the file, whose process the keeper has not
    /// started. Answered by `Joined`.
    Join(Join),
    /// Keeps a node's place for a program of the client's, as long as this connection lasts. The
    /// process that the keeper started is stopped in order; a process with the token can join.
    /// Answered by `Attached`.
    Attach(Attach),
    /// Stop every node in order.
    Stop {
        /// Why, for people.
        reason: String,
    },
    /// Stop sources first, and every other node once it has received its queued samples.
    Drain {
        /// Why, for people.
        reason: String,
        /// Milliseconds until an ordinary stop; the grace period if `None`.
        #[serde(default)]
        limit_millis: Option<u64>,
    },
    /// Kill every node now.
    Kill,
    /// Stop the dataflow's clock, timers and watchdogs until `Resume`.
    Pause,
    /// Let a paused dataflow go on.
    Resume,
    /// Stop, start or restart one node.
    Node {
        /// Its id.
        node: String,
        /// The order.
        order: NodeOrder,
    },
    /// Give a node another program. Answered by `Done` once the new program is ready, or by
    /// `Refused` if it is not ready within the startup timeout and the program before comes back.
    Replace(Replace),
    /// List parameters. Answered by `Params` for each node that has some, or for the one named, and
    /// `Done`.
    Params {
        /// The node's id; all nodes if `None`.
        node: Option<String>,
    },
    /// Change a parameter.
    SetParam(SetParam),
    /// Send a request to a service. Answered by `Done` when it is on its way.
    Call(Call),
    /// Publish a sample on an output, or deliver it to one input. Answered by `Published`.
    Publish(Publish),
    /// A message of a later version.
    #[serde(other)]
    Unknown,
}

/// The new value of a parameter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetParam {
    /// The node's id.
    pub node: String,
    /// The parameter's name.
    pub name: String,
    /// The value.
    pub value: serde_json::Value,
}

/// A request of a tool to a service. The answer is a sample of the output
/// [`crate::wiring::answers_to_tools`] with the same correlation id; feedback on a goal has its complement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// The id of the service's node.
    pub node: String,
    /// The name of the service.
    pub service: String,
    /// A random number, so that the answers to two tools differ.
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

/// A sample of a tool. The output's own node publishes it, so that it is counted, recorded and delivered
/// like any sample of that output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Publish {
    /// The id of the node.
    pub node: String,
    /// The name of its output, or else of its input.
    pub name: String,
    /// The value.
    pub value: serde_json::Value,
}

/// The client's version and name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Control protocol versions that it speaks.
    pub versions: VersionRange,
    /// The command, for people: `top`, `echo`, `record`, ..
    pub program: String,
}

/// The reports that a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watch {
    /// True for log records too.
    #[serde(default)]
    pub logs: bool,
    /// True for further reports after the snapshot.
    #[serde(default)]
    pub follow: bool,
    /// True without reports about observers.
    #[serde(default)]
    pub without_observers: bool,
}

/// The topics that a guest wants to receive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observe {
    /// `node/output` of each. They become its inputs, in this order.
    pub topics: Vec<String>,
    /// Length of each of its queues in samples; a full queue drops the oldest.
    pub depth: u32,
}

/// A process joins as a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Join {
    /// The node's id.
    pub node: String,
    /// The token of the attachment, or else of the dataflow ([`crate::TOKEN_FILE`]).
    pub token: String,
}

/// Keep a node's place for another program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attach {
    /// The node's id.
    pub node: String,
    /// A secret of the client's choice, for the `Join` of its program.
    pub token: String,
    /// True if the node stays stopped afterwards; else its own program is started again.
    #[serde(default)]
    pub leave_stopped: bool,
}

/// The new program of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replace {
    /// The node's id.
    pub node: String,
    /// The program.
    pub program: Program,
    /// Its arguments; `None` for the arguments of the program before.
    #[serde(default)]
    pub args: Option<Vec<String>>,
    /// Its working directory; `None` for the one of the program before.
    #[serde(default)]
    pub folder: Option<PathBuf>,
    /// Its version. A node that runs this one goes on; if it is not ready yet, this request waits in
    /// the place of the one before. `None` for a program without a version, which is always started.
    #[serde(default)]
    pub version: Option<String>,
}

/// An order to one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeOrder {
    /// Stop it in order, and hold it until `Start` or `Restart`.
    Stop,
    /// Start it again.
    Start,
    /// Stop it in order, if it runs, and start it again.
    Restart,
    /// End it in its process, which goes on. Its edges close as after an end by itself.
    Unload,
    /// Start it in its process, after `Unload` or an end by itself, with its edges open again.
    Load,
}
