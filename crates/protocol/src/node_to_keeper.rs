//! What a node tells its keeper.

use crate::VersionRange;
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
    Goodbye,
    /// A peer broke the data plane's rules on this edge (a hostile descriptor, say); the node has cut the edge off.
    Misbehaviour {
        /// The edge.
        edge: u32,
        /// What was wrong, for the log.
        what: String,
    },
    /// A message of a later version.
    #[serde(other)]
    Unknown,
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
