//! Messages of a host to its keeper.

use serde::{Deserialize, Serialize};

/// The code with which a node ends that panicked, as Rust's programs do.
pub const PANIC_CODE: i32 = 101;

/// A message from a host to its keeper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "message", rename_all = "snake_case")]
pub enum Message {
    /// A node runs, on the thread with this id.
    Running {
        /// The node's id.
        node: String,
        /// The kernel's id of its thread.
        thread: u32,
    },
    /// A node has ended.
    Ended(Ended),
    /// A message of a later version.
    #[serde(other)]
    Unknown,
}

/// How a node has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// The node's id.
    pub node: String,
    /// Its exit code; 0 is success.
    pub code: i32,
    /// The reason, for people; empty if there is nothing to add to the code.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}
