//! What a node is told.

use crate::ParamValue;
use crate::calls::Request;
use crate::sample::Sample;
use std::sync::Arc;
use std::time::Duration;

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
    /// No sample was published for an input for as long as its `expect_every`. Told again each time that as much
    /// passes, until one comes.
    Stale {
        /// The input.
        id: Arc<str>,
        /// Time since its newest sample was published; since the start when there was none.
        age: Duration,
        /// How often this was told since then, this time included.
        count: u64,
    },
    /// The node asked for this event later than its `loop` allows.
    DeadlineMissed {
        /// The input whose event took so long.
        id: Arc<str>,
        /// Time beyond the deadline.
        overrun: Duration,
        /// How often that was so in this process, this time included.
        count: u64,
    },
    /// Another node asks for something: answer with [`Request::reply`].
    Request(Request),
    /// A parameter of this node was changed; [`crate::Handle::param`] has the value already.
    Param {
        /// Its name.
        name: String,
        /// Its value.
        value: ParamValue,
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
        /// `RELOAD`, ..
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
            Self::Stale { .. } => "STALE",
            Self::DeadlineMissed { .. } => "DEADLINE_MISSED",
            Self::Request(_) => "REQUEST",
            Self::Param { .. } => "PARAM",
            Self::NodeFailed { .. } => "NODE_FAILED",
            Self::NodeRestarted { .. } => "NODE_RESTARTED",
            Self::Stop { .. } => "STOP",
            Self::Other { kind, .. } => kind,
        }
    }
}

impl From<nervure_protocol::keeper_to_node::Event> for Event {
    fn from(event: nervure_protocol::keeper_to_node::Event) -> Self {
        let nervure_protocol::keeper_to_node::Event {
            kind,
            node,
            inputs,
            reason,
        } = event;
        match kind.as_str() {
            "NODE_FAILED" => Self::NodeFailed {
                node,
                inputs,
                reason,
            },
            "NODE_RESTARTED" => Self::NodeRestarted { node, inputs },
            _ => Self::Other {
                kind,
                node,
                inputs,
                reason,
            },
        }
    }
}
