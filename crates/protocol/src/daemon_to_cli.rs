//! Answers of a daemon to the `nervure` command on its machine.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};

use crate::daemon_to_daemon::{Answer, Listed};
use crate::keeper_to_cli;
use crate::report::NodeEnded;

/// A message from a daemon to the command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum Message {
    /// The answer to `Hello`.
    Welcome {
        /// The control protocol version spoken from here on.
        version: u32,
        /// Name of this machine.
        machine: String,
    },
    /// A machine of the fleet.
    Machine(Machine),
    /// The answer of another machine, or of this daemon in its place. With a sample it has a
    /// descriptor: a memfd with the sample as on the link.
    Answer {
        /// The answer.
        answer: Answer,
    },
    /// After [`Answer::Reached`]: a message of the keeper. Descriptor: a copy of the node's
    /// counters page, which follows its changes.
    Keeper {
        /// The message.
        keeper: keeper_to_cli::Message,
    },
    /// A message of a later version.
    #[serde(other)]
    Unknown,
}

/// A machine of the fleet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Its name.
    pub name: String,
    /// True for the machine of the daemon that answers.
    pub is_own: bool,
    /// Why it does not answer, if it does not.
    #[serde(default)]
    pub unreachable: Option<Unreachable>,
    /// Its dataflows, if it answers.
    #[serde(default)]
    pub dataflows: Vec<Listed>,
    /// The link to it, unless it is the own machine or there has been none yet.
    #[serde(default)]
    pub link: Option<LinkFigures>,
}

/// The link from a machine to another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkFigures {
    /// Smoothed round-trip time in nanoseconds.
    pub round_trip_nanos: u64,
    /// One-way delay above its smallest value, in nanoseconds.
    pub queue_delay_nanos: u64,
    /// Share of the packets that were lost, 0 to 1, smoothed.
    pub loss: f64,
    /// The rate at which packets may be sent now, in bytes per second.
    pub bytes_per_second: f64,
    /// Bytes in flight.
    pub in_flight_bytes: u64,
    /// Data packets sent.
    pub packets_sent: u64,
    /// Bytes of datagrams sent.
    pub sent_bytes: u64,
    /// Bytes of datagrams received.
    pub received_bytes: u64,
}

/// A machine does not answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unreachable {
    /// The reason, for people.
    pub reason: String,
    /// Time since anything arrived from it, in nanoseconds; `None` if nothing has since this daemon
    /// has started.
    #[serde(default)]
    pub silent_nanos: Option<u64>,
    /// The parts of dataflows that it has reported to the coordinator last.
    #[serde(default)]
    pub reported: Vec<Reported>,
}

/// A part of a dataflow as its machine has reported it last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reported {
    /// The id of the run.
    pub run: String,
    /// Name of the dataflow.
    pub dataflow: String,
    /// The state of each node.
    pub nodes: BTreeMap<String, NodeState>,
}

/// The state of a node, as its machine reports it to others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// It has not started.
    Waiting,
    /// Its process runs.
    Running,
    /// It has ended by itself, or as it was asked to.
    Ended,
    /// It has ended, and starts again.
    Restarts {
        /// The reason.
        reason: String,
    },
    /// It has failed.
    Failed {
        /// The reason.
        reason: String,
    },
}

impl NodeState {
    /// The state of a node after the end of its process.
    pub fn after(ended: &NodeEnded) -> Self {
        let reason = ended.reason.clone();
        match (ended.failed, ended.restarts) {
            (true, _) => Self::Failed { reason },
            (false, true) => Self::Restarts { reason },
            (false, false) => Self::Ended,
        }
    }
}

impl fmt::Display for NodeState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting => f.write_str("waiting"),
            Self::Running => f.write_str("running"),
            Self::Ended => f.write_str("ended"),
            Self::Restarts { reason } => write!(f, "restarts: {reason}"),
            Self::Failed { reason } => write!(f, "failed: {reason}"),
        }
    }
}
