//! What a node tells its keeper.

use crate::{VersionRange, wiring::EdgeState};
use serde::{Deserialize, Serialize};

/// A message from a node to its keeper. None carries descriptors.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum Message {
    /// The first message.
    Hello(Hello),
    /// `node.ready()` of a node that is declared `ready: manual`.
    Ready,
    /// The node leaves in order: its inputs need no more samples, its outputs will send none.
    Goodbye {
        /// True when a call of the node's program failed because the dataflow stops. The program may end with that
        /// error, which is then no failure.
        #[serde(default)]
        cut_short: bool,
    },
    /// A peer broke the data plane's rules on this edge (a hostile descriptor, say); the node has cut the edge off.
    Misbehaviour {
        /// The edge.
        edge: u32,
        /// What was wrong, for the log.
        what: String,
    },
    /// An edge cannot be attached, or memory of its producer not be mapped; or it can again.
    EdgeStatus(EdgeStatus),
    /// A peer has overwritten the page on which the node sleeps. The node goes on; it says so once.
    WakePageOverwritten {
        /// How that is known, for the log.
        what: String,
    },
    /// The dataflow's clock, from the node that drives it.
    Clock(Clock),
    /// A message of a later version.
    #[serde(other)]
    Unknown,
}

/// Whether the node has what it needs for an edge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeStatus {
    /// The edge.
    pub edge: u32,
    /// What follows from it.
    pub state: EdgeState,
    /// What is missing, for people; empty when nothing is.
    #[serde(default)]
    pub cause: String,
}

/// What the dataflow's clock shall read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    /// False while it stands still.
    pub runs: bool,
    /// What it reads at `base_mono`, in nanoseconds since the Unix epoch.
    pub origin_utc_nanos: i64,
    /// A reading of CLOCK_MONOTONIC, in nanoseconds.
    pub base_mono: u64,
    /// How much it gains in a million seconds, in seconds.
    pub rate_millionths: u64,
}

/// Who the node is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Control protocol versions that it speaks.
    pub versions: VersionRange,
    /// `rust`, `python`, ..
    pub language: String,
    /// Version of the node library.
    pub library: String,
}
