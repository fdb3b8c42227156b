//! Breaches of the protocol by a peer.

use crate::lock_free::ring::RingError;

/// The peer wrote or sent something that breaks the protocol. Its edge is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Misbehaviour {
    /// The counters of a ring are wrong.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// A descriptor names a block beyond the lease table.
    #[error("descriptor names block {block} of {blocks}")]
    Block {
        /// Row in the lease table.
        block: u32,
        /// Rows of the lease table.
        blocks: u32,
    },
    /// A descriptor names a segment that was never sent.
    #[error("descriptor names segment {segment}, which was never sent")]
    Segment {
        /// Id of the segment within its producer.
        segment: u32,
    },
    /// A descriptor reaches beyond its segment.
    #[error("descriptor reaches to byte {end} of a segment of {bytes} bytes")]
    Bounds {
        /// End of the sample within the segment, in bytes.
        end: u64,
        /// Size of the segment in bytes.
        bytes: u64,
    },
    /// The head (layout and metadata) of a sample is larger than allowed.
    #[error("head of {bytes} bytes, at most {max} are allowed")]
    Head {
        /// Size of the head in bytes.
        bytes: u64,
        /// The limit in bytes.
        max: u64,
    },
    /// A packet on the pair socket is malformed.
    #[error("malformed message on the pair socket: {0}")]
    Message(&'static str),
}
