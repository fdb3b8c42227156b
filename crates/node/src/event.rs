//! What a node is told.

use crate::sample::Sample;
use std::sync::Arc;

/// An event. New kinds may come: ignore those that you do not know.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A sample arrived.
    Input {
        /// The input.
        id: Arc<str>,
        /// The sample.
        sample: Sample,
    },
    /// A timer is due.
    Tick {
        /// The input that is wired to the timer.
        id: Arc<str>,
        /// When it was due, in nanoseconds since the Unix epoch on the dataflow's clock.
        due: i64,
        /// Earlier ticks that came due since the last one and were merged into this one.
        missed: u64,
    },
    /// An input's producer has ended, and its last sample was delivered.
    InputClosed {
        /// The input.
        id: Arc<str>,
    },
    /// A neighbour failed. If it will be restarted, [`Event::NodeRestarted`] follows.
    NodeFailed {
        /// The node that failed.
        node: String,
        /// The inputs of this node that it feeds.
        inputs: Vec<String>,
        /// What happened.
        reason: String,
    },
    /// A neighbour that had failed runs again.
    NodeRestarted {
        /// The node.
        node: String,
        /// The inputs of this node that it feeds.
        inputs: Vec<String>,
    },
    /// The node shall end. The last event.
    Stop {
        /// Why.
        reason: String,
    },
    /// An event of a kind that this version only passes on.
    Other {
        /// `PARAM`, `RELOAD`, ..
        kind: String,
        /// The node that it is about.
        node: String,
        /// The inputs that it concerns.
        inputs: Vec<String>,
        /// What happened.
        reason: String,
    },
}

impl Event {
    /// The kind, as Python and the log name it.
    pub fn kind(&self) -> &str {
        match self {
            Self::Input { .. } | Self::Tick { .. } => "INPUT",
            Self::InputClosed { .. } => "INPUT_CLOSED",
            Self::NodeFailed { .. } => "NODE_FAILED",
            Self::NodeRestarted { .. } => "NODE_RESTARTED",
            Self::Stop { .. } => "STOP",
            Self::Other { kind, .. } => kind,
        }
    }
}

impl From<nervure_protocol::keeper_to_node::Event> for Event {
    fn from(event: nervure_protocol::keeper_to_node::Event) -> Self {
        let nervure_protocol::keeper_to_node::Event { kind, node, inputs, reason } = event;
        match kind.as_str() {
            "NODE_FAILED" => Self::NodeFailed { node, inputs, reason },
            "NODE_RESTARTED" => Self::NodeRestarted { node, inputs },
            _ => Self::Other { kind, node, inputs, reason },
        }
    }
}
