//! Edges, inputs and outputs as a node sees them: peers have names, not indices.

use serde::{Deserialize, Serialize};

/// Maximum number of inputs of a node: the number of bits of its doorbell.
pub const MAX_NODE_INPUTS: u32 = 64 * 64 - 1;

/// The name of a topic: `node/output`. A node that plays a recording sends the topics of other
/// nodes: its outputs are named by [`absolute_output`], and keep that name.
pub fn topic(node: &str, output: &str) -> String {
    match output.strip_prefix('/') {
        Some(topic) => topic.to_owned(),
        None => format!("{node}/{output}"),
    }
}

/// The name of an output that sends `topic`, whatever node it belongs to: no output of a dataflow
/// file begins with a slash. A topic without a slash names no node, and becomes an output like any
/// other.
pub fn absolute_output(topic: &str) -> String {
    match topic.contains('/') {
        true => format!("/{topic}"),
        false => topic.to_owned(),
    }
}

/// The name of the output with the answers of a service to requests of tools.
pub fn answers_to_tools(service: &str) -> String {
    format!("{service}~tools")
}

/// Policy of an edge whose queue is full. `latest` in a file is `DropOldest` with depth 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Policy {
    /// The oldest sample in the queue is dropped.
    DropOldest,
    /// The new sample is dropped.
    DropNewest,
    /// The producer waits.
    Block,
}

impl Policy {
    /// Every policy.
    pub const ALL: [Self; 3] = [Self::DropOldest, Self::DropNewest, Self::Block];

    /// The word in a dataflow file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DropOldest => "drop_oldest",
            Self::DropNewest => "drop_newest",
            Self::Block => "block",
        }
    }

    /// Whether the producer waits for room, so that no sample is lost. The next process of a consumer
    /// that died inherits such a queue.
    #[inline]
    pub const fn is_lossless(self) -> bool {
        match self {
            Self::Block => true,
            Self::DropOldest | Self::DropNewest => false,
        }
    }
}

/// Whether a consumer without a process will have another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Return {
    /// No other process follows, or it is attached.
    Never,
    /// Its process has left, and how it ends decides.
    Undecided,
    /// Another process follows.
    Certain,
}

/// The queue of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    /// The policy when it is full.
    pub policy: Policy,
    /// Maximum number of samples in the queue, at least 1.
    pub depth: u32,
    /// Maximum number of blocks in the queue and held by the consumer together, at least 1.
    pub max_held: u32,
}

impl Queue {
    /// Whether it holds only the newest sample, so that drops are by design.
    pub const fn is_latest(self) -> bool {
        match self.policy {
            Policy::DropOldest => self.depth == 1,
            Policy::DropNewest | Policy::Block => false,
        }
    }

    /// The word for its policy in a dataflow file.
    pub const fn policy_name(self) -> &'static str {
        match self.is_latest() {
            true => "latest",
            false => self.policy.name(),
        }
    }
}

/// An output of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputSpec {
    /// Its name in the dataflow file.
    pub name: String,
    /// Number of last samples that a late joiner receives.
    #[serde(default)]
    pub history: u32,
    /// Rows of the lease table of each of its edges: the maximum number of blocks that it owns.
    pub blocks: u32,
    /// Its type, such as `std/Image@1`, if declared.
    #[serde(default)]
    pub type_name: Option<String>,
}

/// An input of a node. Its index in [`crate::keeper_to_node::Welcome::inputs`] is its bit in the
/// doorbell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputSpec {
    /// Its name in the dataflow file.
    pub name: String,
    /// The source of its samples.
    pub source: Source,
    /// Its queue; `None` for a timer.
    #[serde(default)]
    pub queue: Option<Queue>,
    /// Its type, such as `std/Image@1`, or that of its output, if either is declared.
    #[serde(default)]
    pub type_name: Option<String>,
    /// Longest time between samples, in nanoseconds; after it the node receives a `STALE` event.
    #[serde(default)]
    pub expect_every_nanos: Option<u64>,
    /// Number of last samples that its output keeps for late joiners.
    #[serde(default)]
    pub history: u32,
}

/// A service of a node: requests that it answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceSpec {
    /// Its name.
    pub name: String,
    /// The clients of the service.
    pub clients: Vec<ServiceClientSpec>,
    /// Index of the output that sends the answers to requests of tools; `None` for a stand-in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<u32>,
    /// For an action, whose requests are goals: its handling of a goal during another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<NewGoal>,
}

/// The handling of a goal that arrives while the node works on others of the same action.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NewGoal {
    /// The node works on all of them.
    #[default]
    Parallel,
    /// The others are cancelled.
    Preempt,
    /// The new goal is refused.
    Reject,
}

impl NewGoal {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Parallel, Self::Preempt, Self::Reject];

    /// The word in a dataflow file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Parallel => "parallel",
            Self::Preempt => "preempt",
            Self::Reject => "reject",
        }
    }
}

/// A client of a service, as its server sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceClientSpec {
    /// Id of the client's node.
    pub node: String,
    /// Index of the input that receives its requests.
    pub input: u32,
    /// Index of the output that sends the answers.
    pub output: u32,
    /// Index of the output that sends the feedback of an action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feedback: Option<u32>,
}

/// A client of a service, as its own node sees it: requests that the node makes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientSpec {
    /// The node's own name for the service.
    pub name: String,
    /// `node/service`.
    pub service: String,
    /// Index of the output that sends the requests.
    pub output: u32,
    /// Index of the input that receives the answers.
    pub input: u32,
    /// Index of the input that receives the feedback of an action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feedback: Option<u32>,
}

/// The source of an input's samples.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A timer, which the node runs itself.
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

/// The state of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EdgeState {
    /// One end lacks a system resource and retries. Samples wait, or are dropped according to the
    /// policy.
    Waiting,
    /// It works, possibly again.
    Working,
    /// One end gave up.
    Failed,
    /// A state of a later version.
    #[serde(other)]
    Unknown,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_policy_has_the_same_name_in_files_and_messages() {
        for policy in Policy::ALL {
            assert_eq!(serde_json::to_value(policy).unwrap(), json!(policy.name()));
            let queue = |depth| Queue {
                policy,
                depth,
                max_held: 9,
            };
            assert_eq!(queue(2).policy_name(), policy.name());
            let is_latest = queue(1).policy_name() == "latest";
            assert_eq!(is_latest, policy == Policy::DropOldest);
        }
    }

    #[test]
    fn the_output_of_a_player_keeps_its_topic() {
        assert_eq!(topic("camera", "image"), "camera/image");
        assert_eq!(topic("runtime", "detect/boxes"), "runtime/detect/boxes");
        for name in ["camera/image", "runtime/detect/boxes"] {
            assert_eq!(topic("replay", &absolute_output(name)), name);
        }
        assert_eq!(topic("replay", &absolute_output("map")), "replay/map");
    }
}
