//! Messages of a node to its keeper.

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
        /// True when a call of the node's program failed because the dataflow stops. The program
        /// may end with that error, which is then no failure.
        #[serde(default)]
        cut_short: bool,
    },
    /// The node sends nothing more on an output, while its others go on.
    CloseOutput {
        /// Index of the output.
        output: u32,
    },
    /// A peer broke the rules of the data plane on this edge, for example by an invalid descriptor;
    /// the node has cut the edge.
    Misbehaviour {
        /// The edge.
        edge: u32,
        /// The breach, for the log.
        what: String,
    },
    /// An edge cannot be attached, or memory of its producer cannot be mapped; or this works again.
    EdgeStatus(EdgeStatus),
    /// A peer has overwritten the page on which the node sleeps. The node continues, and reports it
    /// once.
    WakePageOverwritten {
        /// The evidence, for the log.
        what: String,
    },
    /// From the stand-in of a node on another machine: a change of its process there. Its
    /// neighbours here get the event that they would get if it ran here.
    RemoteProcess(RemoteProcess),
    /// The result of `Publish`.
    Published(Published),
    /// The dataflow's clock, from the node that drives it.
    Clock(Clock),
    /// A message of a later version.
    #[serde(other)]
    Unknown,
}

/// The state of an edge at one of its ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeStatus {
    /// The edge.
    pub edge: u32,
    /// Its state.
    pub state: EdgeState,
    /// The missing resource, for people; empty when nothing is missing.
    #[serde(default)]
    pub cause: String,
}

/// The result of a publication for a tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    /// The number of the request.
    pub id: u64,
    /// The result, or the reason why nothing was published.
    pub result: Result<crate::keeper_to_cli::Published, String>,
}

/// A change of the process of a node on another machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum RemoteProcess {
    /// It has failed.
    Failed {
        /// The reason, for people.
        reason: String,
        /// The node will be started again.
        restarts: bool,
    },
    /// It runs again.
    Restarted,
    /// A change of a later version.
    #[serde(other)]
    Unknown,
}

/// A new setting of the dataflow's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clock {
    /// False while it is stopped.
    pub runs: bool,
    /// Its time at `base_mono`, in nanoseconds since the Unix epoch.
    pub origin_utc_nanos: i64,
    /// A reading of CLOCK_MONOTONIC, in nanoseconds.
    pub base_mono: u64,
    /// Its rate in millionths of real time: 1,000,000 for the speed of real time.
    pub rate_millionths: u64,
}

/// The node's version and language.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Control protocol versions that it speaks.
    pub versions: VersionRange,
    /// `rust`, `python`, ..
    pub language: String,
    /// Version of the node library.
    pub library: String,
}
