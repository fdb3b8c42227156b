//! Messages of `nervure run` to the keeper that it started. End of file on this socket means: stop
//! in order.

use serde::{Deserialize, Serialize};

/// A message from `run` to its keeper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum Message {
    /// The first message. Descriptor: a memfd with the plan of the dataflow as JSON.
    Launch,
    /// Stop every node in order: Stop, grace period, SIGTERM, SIGKILL.
    Stop {
        /// Why, for people.
        reason: String,
    },
    /// Kill every node now.
    Kill,
    /// A message of a later version.
    #[serde(other)]
    Unknown,
}
