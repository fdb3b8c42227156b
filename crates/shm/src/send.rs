//! What a publication waits for, and what becomes of it.

use crate::fork::NodeForked;

/// How long to wait when a `block` edge is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    Never,
    /// Until there is room, or the node is told to stop.
    Forever,
    /// At most until this reading of CLOCK_MONOTONIC, in nanoseconds.
    Until(u64),
}

/// Why a loan or a publication failed.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// A `block` edge is full, and the call does not wait.
    #[error("the queue of consumer {consumer} is full")]
    WouldBlock {
        /// `node/input`.
        consumer: String,
    },
    /// A `block` edge stayed full until the deadline.
    #[error("the queue of consumer {consumer} stayed full until the timeout")]
    TimedOut {
        /// `node/input`.
        consumer: String,
    },
    /// A signal handler ran while the call waited.
    #[error("interrupted by a signal")]
    Interrupted,
    /// The node was told to stop while the call waited.
    #[error("the dataflow is stopping")]
    Stopped,
    /// The budget is used up by samples that consumers or queues hold. The sample is counted as missed.
    #[error(
        "no shared memory for {bytes} more bytes: {used} of {limit} are in use by samples that consumers hold; \
         drop samples sooner, use a shorter queue, or raise `shared_memory` of the node"
    )]
    OutOfMemory {
        /// What was asked for.
        bytes: u64,
        /// What is in use.
        used: u64,
        /// The node's budget.
        limit: u64,
    },
    /// The node has no such output.
    #[error("{0}")]
    UnknownOutput(String),
    /// The sample alone is larger than the budget.
    #[error(
        "a sample of {bytes} bytes is larger than the node's whole budget of {limit} bytes: \
         raise `shared_memory` of the node"
    )]
    TooLarge {
        /// What was asked for.
        bytes: u64,
        /// The node's budget.
        limit: u64,
    },
    /// Layout and metadata are too large.
    #[error("metadata and layout of {bytes} bytes, at most {max} are possible")]
    HeadTooLarge {
        /// Their size.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// The output announced too many schemas, or too large a one.
    #[error("{0}")]
    Announcement(String),
    /// The kernel refused memory.
    #[error("the system gave no shared memory: {0}")]
    System(#[from] std::io::Error),
    /// The handle was inherited by fork.
    #[error(transparent)]
    Forked(#[from] NodeForked),
}

/// What became of a publication. Observers, who may miss what they like, are not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    /// Edges in whose queue it now waits.
    pub queued: u32,
    /// Edges that missed it: counted there with the cause.
    pub missed: u32,
}
