//! The plan: everything that a keeper needs to run a dataflow.
//!
//! The nodes have the declarations of the file (`nervure_protocol::graph`) and their inputs and
//! outputs as they see them (`nervure_protocol::wiring`). `run` writes the plan as JSON into a
//! memfd, because a graph of a thousand edges does not fit a control message.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

pub use nervure_protocol::graph::{
    LastValueSpec, NodeSettings, Program, Ready, Restart, RestartPolicy, Scheduling,
    StaticTransform,
};
use nervure_protocol::wiring::{self, ClientSpec, InputSpec, OutputSpec, Queue, ServiceSpec};
use serde::{Deserialize, Serialize};

use crate::log_space::LogLimit;

/// Grace period between SIGTERM and SIGKILL. SIGTERM follows the grace period after Stop.
pub const TERMINATE_GRACE: Duration = Duration::from_secs(2);

/// A dataflow as its keeper runs it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Name of the dataflow.
    pub dataflow: String,
    /// The working directory of every node.
    pub folder: PathBuf,
    /// The dataflow file, for messages; `None` if there is none.
    #[serde(default)]
    pub file: Option<PathBuf>,
    /// The folder of this run, which exists: for log files and the token of nodes that join. `None`
    /// without both.
    pub log_folder: Option<PathBuf>,
    /// Limit on the size of the logs of all runs; `None` if this run writes none.
    pub log_limit: Option<LogLimit>,
    /// Time of the start, in nanoseconds since the Unix epoch.
    pub started_utc_nanos: i64,
    /// Whether the dataflow outlives the `run` that started it.
    pub detached: bool,
    /// The clock; `None` for real time.
    #[serde(default)]
    pub clock: Option<ClockPlan>,
    /// A file, and its new name after all nodes have ended, unless a signal has stopped them: for a
    /// daemon that was dead at the end. `None` without a daemon.
    #[serde(default)]
    pub end_note: Option<(PathBuf, PathBuf)>,
    /// Grace period of a node between Stop and SIGTERM.
    pub grace: Duration,
    /// The token with which a process joins as a node that the keeper does not start; `None`
    /// without such nodes.
    #[serde(default)]
    pub join_token: Option<String>,
    /// Poses of frames that never change, for tools. Nodes have them in their settings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub static_transforms: Vec<StaticTransform>,
    /// The nodes; edges refer to them by index.
    pub nodes: Vec<NodePlan>,
    /// The edges between outputs and inputs; timers have none.
    pub edges: Vec<EdgePlan>,
}

/// A clock that a node drives. It stands still until that node advances it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockPlan {
    /// Index of the node.
    pub node: usize,
    /// First time of the clock, in nanoseconds since the Unix epoch.
    pub origin_utc_nanos: i64,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodePlan {
    /// Its id.
    pub id: String,
    /// The program that it runs.
    pub program: Program,
    /// Its settings, as in the file.
    pub settings: NodeSettings,
    /// Its outputs; edges refer to them by index.
    pub outputs: Vec<OutputSpec>,
    /// Definitions of types of its outputs, for its process.
    #[serde(default)]
    pub types: BTreeMap<String, serde_json::Value>,
    /// Its inputs; edges refer to them by index.
    pub inputs: Vec<InputSpec>,
    /// Limit on its shared memory, in bytes.
    pub shared_memory_bytes: u64,
    /// Requests that it answers.
    #[serde(default)]
    pub services: Vec<ServiceSpec>,
    /// Requests that it makes.
    #[serde(default)]
    pub clients: Vec<ClientSpec>,
}

impl NodePlan {
    /// Whether the keeper does not start it: a process joins as the node.
    pub fn is_dynamic(&self) -> bool {
        self.program.is_joined()
    }

    /// Whether it has no process when the dataflow starts: one joins later, or a client starts it.
    pub fn begins_held(&self) -> bool {
        self.is_dynamic() || self.settings.held
    }

    /// Whether it stands in for a node, or for consumers, on another machine.
    pub fn is_remote(&self) -> bool {
        matches!(self.program, Program::Remote { .. })
    }

    /// Whether an output carries requests to a service, or the answers or feedback of one.
    pub fn calls_on(&self, output: usize) -> bool {
        let is_same = |index: u32| usize::try_from(index) == Ok(output);
        let mut answered = self.services.iter().flat_map(|service| &service.clients);
        self.clients.iter().any(|client| is_same(client.output))
            || answered.any(|client| is_same(client.output) || client.feedback.is_some_and(is_same))
    }

    /// The process that it runs in as a thread: that of its name, or for a component one of its own
    /// with its id. `None` for a program that is a process itself.
    pub fn host(&self) -> Option<&str> {
        let process = self.settings.process.as_deref();
        match self.program {
            Program::Component(_) => Some(process.unwrap_or(&self.id)),
            Program::Python(_) | Program::Function(_) => process,
            _ => None,
        }
    }

    /// Whether the node connects to the keeper. A program without inputs and outputs need not.
    pub fn connects(&self) -> bool {
        !self.inputs.is_empty() || !self.outputs.is_empty() || self.settings.transforms.is_some()
    }
}

/// An edge from an output to an input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgePlan {
    /// Index of the producing node.
    pub producer: usize,
    /// Index of its output.
    pub output: usize,
    /// Index of the consuming node.
    pub consumer: usize,
    /// Index of its input.
    pub input: usize,
    /// The queue.
    pub queue: Queue,
}

impl EdgePlan {
    /// Whether the producer waits for room, so that no sample is lost.
    pub fn is_lossless(&self) -> bool {
        self.queue.policy.is_lossless()
    }
}

impl Plan {
    /// `node/output` of an edge.
    pub fn topic(&self, edge: &EdgePlan) -> String {
        let producer = &self.nodes[edge.producer];
        wiring::topic(&producer.id, &producer.outputs[edge.output].name)
    }

    /// `node/input` of an edge.
    pub fn input(&self, edge: &EdgePlan) -> String {
        let consumer = &self.nodes[edge.consumer];
        format!("{}/{}", consumer.id, consumer.inputs[edge.input].name)
    }
}

// The limit of files is that of shared memory.
const _: () = assert!(wiring::MAX_NODE_INPUTS == nervure_shm::MAX_INPUTS);

/// Maximum number of observers of an output.
pub const OBSERVERS_PER_OUTPUT: u32 = 16;

/// Maximum number of blocks that an observer holds, its queue included.
pub const OBSERVER_MAX_HELD: u32 = 16;

/// Rows of the lease tables of an output's edges: the maximum number of blocks in use at once, and
/// those of observers that join later.
pub fn lease_rows(queues: impl IntoIterator<Item = Queue>, history: u32) -> u32 {
    const FOR_OBSERVERS: u32 = OBSERVERS_PER_OUTPUT * OBSERVER_MAX_HELD;
    // Blocks that the producer fills before it sends them.
    const OWN: u32 = 16;
    let held = queues
        .into_iter()
        .fold(0u32, |sum, queue| sum.saturating_add(queue.max_held));
    let rows = held
        .saturating_add(history)
        .saturating_add(FOR_OBSERVERS)
        .saturating_add(OWN);
    rows.checked_next_multiple_of(64).unwrap_or(u32::MAX - 63)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nervure_protocol::wiring::Policy;

    #[test]
    fn lease_tables_have_whole_words_and_rows_for_observers() {
        let queue = |max_held| Queue {
            policy: Policy::Block,
            depth: 1,
            max_held,
        };
        assert_eq!(lease_rows([], 0), 320);
        assert_eq!(lease_rows([queue(24), queue(24)], 0), 320);
        assert_eq!(lease_rows([queue(24), queue(24)], 1), 384);
        assert_eq!(lease_rows([queue(u32::MAX)], 9) % 64, 0);
    }
}
