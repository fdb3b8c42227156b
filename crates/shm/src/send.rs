//! Parameters and results of a publication.

use crate::fork::NodeForked;

/// How long to wait while the queue of a `block` edge is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Return at once.
    Never,
    /// Wait until there is room, or the dataflow stops.
    Forever,
    /// Wait at most until this time of CLOCK_MONOTONIC, in nanoseconds.
    Until(u64),
}

/// Why a loan or a publication failed.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// A `block` edge is full, and the call does not wait.
    #[error("the queue of consumer {consumer} is full")]
    WouldBlock {
        /// The consumer, as `node/input`.
        consumer: String,
    },
    /// A `block` edge stayed full until the deadline.
    #[error("the queue of consumer {consumer} stayed full until the timeout")]
    TimedOut {
        /// The consumer, as `node/input`.
        consumer: String,
    },
    /// The dataflow is paused, and its sources are held ([`Producer::hold`](crate::Producer::hold)).
    /// The call does not wait, or its timeout has passed.
    #[error("the dataflow is paused")]
    Paused,
    /// A signal handler ran while the call waited.
    #[error("interrupted by a signal")]
    Interrupted,
    /// The dataflow began to stop while the call waited.
    #[error("the dataflow is stopping")]
    Stopped,
    /// The budget is used up by samples that consumers or queues hold. The sample counts as missed.
    #[error(
        "no shared memory for {bytes} more bytes: {used} of {limit} are in use by samples that consumers hold; \
         drop samples sooner, use a shorter queue, or raise `shared_memory` of the node"
    )]
    OutOfMemory {
        /// Bytes requested.
        bytes: u64,
        /// Bytes in use.
        used: u64,
        /// The node's budget in bytes.
        limit: u64,
        /// Edges that miss the sample.
        missed: u32,
    },
    /// The node has no such output.
    #[error("{0}")]
    UnknownOutput(String),
    /// The sample does not fit the type that the dataflow file declares for the output.
    #[error("the output `{output}` sends {misfit}")]
    Misfit {
        /// The output's name.
        output: String,
        /// The type, the field, and its expected and found type.
        misfit: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The sample alone is larger than the budget.
    #[error(
        "a sample of {bytes} bytes is larger than the node's whole budget of {limit} bytes: \
         raise `shared_memory` of the node"
    )]
    TooLarge {
        /// Bytes requested.
        bytes: u64,
        /// The node's budget in bytes.
        limit: u64,
    },
    /// Layout and metadata of the sample are too large.
    #[error("metadata and layout of {bytes} bytes, at most {max} are possible")]
    HeadTooLarge {
        /// Their size in bytes.
        bytes: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// The output announced too many schemas, or one that is too large.
    #[error("{0}")]
    Announcement(String),
    /// The kernel provided no memory.
    #[error("the system provided no shared memory: {0}")]
    System(#[from] std::io::Error),
    /// The handle was inherited by a fork.
    #[error(transparent)]
    Forked(#[from] NodeForked),
}

/// Result of a publication. Observers are not counted: their losses are harmless.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    /// Number of edges that queued the sample.
    pub queued: u32,
    /// Number of edges that missed the sample. Each counts it with the cause.
    pub missed: u32,
}
