//! What a keeper is told to do: a dataflow in which every name has become an index and every default a value.
//!
//! `run` writes it as JSON into a memfd, because a graph of a thousand edges does not fit a control message.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

pub use nervure_protocol::wiring::Program;
use nervure_protocol::wiring::{
    self, ClientSpec, InputSpec, LoopDeadline, OutputSpec, Policy, Queue, ServiceSpec,
};
use serde::{Deserialize, Serialize};

use crate::log_space::LogLimit;

/// How long a node may take to end after SIGTERM, which follows the grace period after Stop.
pub const TERMINATE_GRACE: Duration = Duration::from_secs(2);

/// A dataflow as its keeper runs it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Its name.
    pub dataflow: String,
    /// The working directory of every node.
    pub folder: PathBuf,
    /// The dataflow file, for messages; `None` when there is none.
    #[serde(default)]
    pub file: Option<PathBuf>,
    /// The folder of this run, for its log files and the token of nodes that join; it exists. `None` when it has neither.
    pub log_folder: Option<PathBuf>,
    /// What the logs of all runs may take; `None` when this one writes none.
    pub log_limit: Option<LogLimit>,
    /// When it was started, in nanoseconds since the Unix epoch.
    pub started_utc_nanos: i64,
    /// True when it shall outlive the `run` that started it.
    pub detached: bool,
    /// Who drives the clock; `None` for real time.
    #[serde(default)]
    pub clock: Option<ClockPlan>,
    /// How long a node may take to end after Stop.
    pub grace: Duration,
    /// What a process must know to join as a node that the keeper does not start; `None` without such nodes.
    #[serde(default)]
    pub join_token: Option<String>,
    /// The nodes; edges name them by index.
    pub nodes: Vec<NodePlan>,
    /// The edges; a timer is none.
    pub edges: Vec<EdgePlan>,
}

/// A clock that a node drives. It stands still until that node says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockPlan {
    /// Index of the node.
    pub node: usize,
    /// What the clock reads at first, in nanoseconds since the Unix epoch.
    pub origin_utc_nanos: i64,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodePlan {
    /// Its id.
    pub id: String,
    /// What it runs.
    pub program: Program,
    /// The program's arguments.
    pub args: Vec<String>,
    /// Variables added to the keeper's environment, the dataflow's and then the node's.
    pub env: BTreeMap<String, String>,
    /// True when the node calls `ready()` itself.
    pub manual_ready: bool,
    /// Its outputs; edges name them by index.
    pub outputs: Vec<OutputSpec>,
    /// Its inputs; edges name them by index.
    pub inputs: Vec<InputSpec>,
    /// How long its loop may take.
    pub loop_deadline: Option<LoopDeadline>,
    /// Most bytes of shared memory that it may own.
    pub shared_memory_bytes: u64,
    /// What happens when it ends.
    pub restart: RestartPlan,
    /// Longest time from its start until it is connected and ready.
    pub startup_timeout: Option<Duration>,
    /// Longest time without a sign of life.
    pub health_check_timeout: Option<Duration>,
    /// What the consumers of an output get when the node fails.
    #[serde(default)]
    pub on_failure: Vec<LastValuePlan>,
    /// The requests that it answers.
    #[serde(default)]
    pub services: Vec<ServiceSpec>,
    /// The requests that it makes.
    #[serde(default)]
    pub clients: Vec<ClientSpec>,
    /// Its parameters.
    #[serde(default)]
    pub params: Vec<nervure_protocol::params::ParamSpec>,
    /// The CPUs that it may run on; empty for all.
    pub cpu_affinity: Vec<u32>,
    /// How its threads are scheduled.
    pub scheduling: Scheduling,
}

/// What the consumers of an output get when its node fails.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LastValuePlan {
    /// Index of the output.
    pub output: usize,
    /// The value.
    pub value: serde_json::Value,
}

impl NodePlan {
    /// True when the keeper does not start it: a process joins as it.
    pub fn is_dynamic(&self) -> bool {
        self.program == Program::Dynamic
    }

    /// True when the node has something to connect for; a program without inputs and outputs never has to.
    pub fn connects(&self) -> bool {
        !self.inputs.is_empty() || !self.outputs.is_empty()
    }
}

/// When and how a node is started again.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RestartPlan {
    /// After which ends.
    pub policy: RestartPolicy,
    /// The pause before the first restart; it doubles from one to the next.
    pub delay: Duration,
    /// The longest pause.
    pub max_delay: Duration,
    /// Most restarts within the window; `None` for any number.
    pub max_restarts: Option<u32>,
    /// How long a restart counts; `None` for ever.
    pub window: Option<Duration>,
}

/// After which ends a node is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RestartPolicy {
    /// None.
    Never,
    /// A failure.
    OnFailure,
    /// Any, unless all its inputs have ended and it exited in order.
    Always,
}

/// How the kernel schedules a node's threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scheduling {
    /// As the keeper is.
    Inherited,
    /// Time sharing, with a niceness of -20 to 19.
    Other {
        /// -20 is the most urgent.
        nice: i8,
    },
    /// Real time, first in first out.
    Fifo {
        /// 1 to 99, 99 being the most urgent.
        priority: u8,
    },
    /// Real time, round robin.
    RoundRobin {
        /// 1 to 99, 99 being the most urgent.
        priority: u8,
    },
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
    /// True when the producer waits for room, so that nothing may be lost.
    pub fn is_lossless(&self) -> bool {
        self.queue.policy == Policy::Block
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

// What a file may ask for is what shared memory has room for.
const _: () = assert!(wiring::MAX_NODE_INPUTS == nervure_shm::MAX_INPUTS);

/// Observers that an output has at a time.
pub const OBSERVERS_PER_OUTPUT: u32 = 16;

/// Blocks that an observer holds at most, its queue included.
pub const OBSERVER_MAX_HELD: u32 = 16;

/// Rows of the lease tables of an output's edges: the most blocks that may be in use at once, and those of observers
/// that join later.
pub fn lease_rows(queues: impl IntoIterator<Item = Queue>, history: u32) -> u32 {
    const FOR_OBSERVERS: u32 = OBSERVERS_PER_OUTPUT * OBSERVER_MAX_HELD;
    // Blocks of samples that are not sent yet.
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

    #[test]
    fn lease_tables_have_whole_words_and_air_for_observers() {
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
