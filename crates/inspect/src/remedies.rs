//! Settings of the dataflow file that prevent losses on an edge.

use std::fmt;

use nervure_dataflow::InputQueue;
use nervure_protocol::wiring::Policy;

use crate::edges::Edge;

/// A change of the dataflow file. `nervure validate` accepts each in a file with the edge that it
/// was made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting {
    /// A longer queue on the input.
    LongerQueue {
        /// The present value.
        now: u32,
        /// The `max_held` of the file, which has to be above `queue_size`.
        max_held: Option<u32>,
    },
    /// A longer queue on an input with `latest`, which takes no `queue_size`.
    QueueForLatest {
        /// The present value.
        now: u32,
        /// As above.
        max_held: Option<u32>,
    },
    /// The producer waits.
    Block {
        /// As above, where the file may have no `queue_size`.
        max_held: Option<u32>,
    },
    /// More samples in use on the input.
    MaxHeld { now: u32 },
    /// More memory of the producer.
    SharedMemory { node: String },
    /// The last samples are kept for consumers that connect later.
    History { topic: String },
}

impl Setting {
    /// Settings that reduce the losses of a full queue.
    pub fn for_full_queue(edge: &Edge) -> Vec<Self> {
        let now = edge.queue.depth;
        let default = InputQueue::new(Policy::DropOldest, now).max_held;
        let max_held = Some(edge.queue.max_held).filter(|&held| held != default);
        let longer = match edge.is_latest() {
            true => Self::QueueForLatest { now, max_held },
            false => Self::LongerQueue { now, max_held },
        };
        [longer].into_iter().chain(Self::block(edge)).collect()
    }

    /// `block`, unless the node would wait for itself.
    pub fn block(edge: &Edge) -> Option<Self> {
        let default = InputQueue::LATEST.max_held;
        let max_held = Some(edge.queue.max_held).filter(|&held| held != default);
        (!edge.is_self_loop()).then(|| Self::Block {
            max_held: max_held.filter(|_| edge.is_latest()),
        })
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LongerQueue { now, max_held } => {
                write!(f, "a larger `queue_size` (now {now})")?;
                write_max_held(f, *max_held)
            }
            Self::QueueForLatest { now, max_held } => {
                let text = "`queue_policy: drop_oldest` with a larger `queue_size`";
                write!(f, "{text} (now {now})")?;
                write_max_held(f, *max_held)
            }
            Self::Block { max_held: None } => f.write_str("`queue_policy: block`"),
            Self::Block {
                max_held: Some(max_held),
            } => write!(
                f,
                "`queue_policy: block` with a `queue_size` below `max_held` (now {max_held})"
            ),
            Self::MaxHeld { now } => write!(f, "a larger `max_held` (now {now})"),
            Self::SharedMemory { node } => write!(f, "a larger `shared_memory` for node `{node}`"),
            Self::History { topic } => write!(f, "a `history` on output `{topic}`"),
        }
    }
}

fn write_max_held(f: &mut fmt::Formatter<'_>, max_held: Option<u32>) -> fmt::Result {
    match max_held {
        Some(max_held) => write!(f, " with a larger `max_held` (now {max_held})"),
        None => Ok(()),
    }
}

/// `a larger `queue_size` (now 10) or `queue_policy: block``
pub fn any_of(settings: &[Setting]) -> String {
    let settings = settings.iter().map(ToString::to_string);
    settings.collect::<Vec<_>>().join(" or ")
}
