use super::request::Request;
use super::sync::SyncedSamples;
use crate::ParamValue;
use crate::sample::Sample;
use nervure_protocol::keeper_to_node::NeighbourEvent;
use std::sync::Arc;
use std::time::Duration;

/// An event of a node. Later versions may add kinds: ignore unknown ones.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A sample arrived.
    Input {
        /// The input's name.
        id: Arc<str>,
        /// The sample, a view of its producer's memory.
        sample: Sample,
    },
    /// Samples of the inputs of `sync` that belong together. These inputs have no event
    /// [`Event::Input`].
    Synced(SyncedSamples),
    /// A timer is due.
    Tick {
        /// The name of the input that is wired to the timer.
        id: Arc<str>,
        /// When it was due, in nanoseconds since the Unix epoch on the dataflow's clock.
        due: i64,
        /// Earlier ticks that came due since the last one and were merged into this one.
        missed: u64,
    },
    /// An input's producer has ended, and its last sample was delivered.
    InputClosed {
        /// The input's name.
        id: Arc<str>,
    },
    /// No sample was published for an input for as long as its `expect_every`. Repeated once per
    /// such period until a sample arrives.
    Stale {
        /// The input's name.
        id: Arc<str>,
        /// Time since the input's newest sample was published; since the start if there was none.
        age: Duration,
        /// Stale events since then, including this one.
        count: u64,
    },
    /// The node asked for this event later than its `loop` allows.
    DeadlineMissed {
        /// The name of the input whose event took too long to handle.
        id: Arc<str>,
        /// Time beyond the deadline.
        overrun: Duration,
        /// Missed deadlines in this process, including this one.
        count: u64,
    },
    /// A request of another node: answer it with [`Request::reply`].
    Request(Request),
    /// A goal of an action: send feedback with [`Request::update`], and the result with
    /// [`Request::reply`].
    Goal(Request),
    /// A goal is to be cancelled: end it with [`Request::canceled`], or with its result. The request is
    /// the goal's, without its value; [`Request::goal`] is the same number, [`Request::cancel_cause`] the
    /// reason.
    Cancel(Request),
    /// A parameter of this node was changed. [`crate::Handle::param`] already returns the new
    /// value.
    Param {
        /// The parameter's name.
        name: String,
        /// Its new value.
        value: ParamValue,
    },
    /// A neighbour failed. If it is restarted, [`Event::NodeRestarted`] follows.
    NodeFailed {
        /// The id of the node that failed.
        node: String,
        /// The inputs of this node that it feeds.
        inputs: Vec<String>,
        /// What happened.
        reason: String,
        /// The node will be started again.
        restarts: bool,
    },
    /// A neighbour that had failed runs again.
    NodeRestarted {
        /// The id of the node that was restarted.
        node: String,
        /// The inputs of this node that it feeds.
        inputs: Vec<String>,
    },
    /// The dataflow is paused: its clock stands still, no timer ticks until [`Event::Resume`], and
    /// `send` waits until then in nodes without inputs.
    Pause,
    /// The dataflow is resumed.
    Resume,
    /// The node has to end. This is the last event.
    Stop {
        /// Why the node is stopped.
        reason: String,
    },
    /// An event of the keeper without a variant in this version of the library.
    Other {
        /// The kind, for example `RELOAD`.
        kind: String,
        /// The id of the node that the event is about.
        node: String,
        /// The inputs of this node that it concerns.
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
            Self::Synced(_) => "SYNC",
            Self::InputClosed { .. } => "INPUT_CLOSED",
            Self::Stale { .. } => "STALE",
            Self::DeadlineMissed { .. } => "DEADLINE_MISSED",
            Self::Request(_) => "REQUEST",
            Self::Goal(_) => "GOAL",
            Self::Cancel(_) => "CANCEL",
            Self::Param { .. } => "PARAM",
            Self::NodeFailed { .. } => "NODE_FAILED",
            Self::NodeRestarted { .. } => "NODE_RESTARTED",
            Self::Pause => "PAUSE",
            Self::Resume => "RESUME",
            Self::Stop { .. } => "STOP",
            Self::Other { kind, .. } => kind,
        }
    }
}

impl Event {
    /// The request of this event, if it has one.
    pub fn request(&self) -> Option<&Request> {
        match self {
            Self::Request(request) | Self::Goal(request) | Self::Cancel(request) => Some(request),
            _ => None,
        }
    }
}

impl From<NeighbourEvent> for Event {
    fn from(event: NeighbourEvent) -> Self {
        let NeighbourEvent {
            kind,
            node,
            inputs,
            reason,
            restarts,
        } = event;
        match kind.as_str() {
            "NODE_FAILED" => Self::NodeFailed {
                node,
                inputs,
                reason,
                restarts,
            },
            "NODE_RESTARTED" => Self::NodeRestarted { node, inputs },
            "PAUSE" => Self::Pause,
            "RESUME" => Self::Resume,
            _ => Self::Other {
                kind,
                node,
                inputs,
                reason,
            },
        }
    }
}
