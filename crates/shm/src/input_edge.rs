//! The consumer's end of one edge.

use crate::atomics::Ordering;
use crate::counters::CountersPage;
use crate::pages::EdgeRegion;
use crate::pair::ConsumerPair;
use crate::wake::WakePage;
use nervure_protocol::wiring::Policy;
use std::sync::Arc;

/// Index in the ring of the next sample to read; `None` before the first.
pub(crate) type Cursor = Option<u64>;

/// The consumer's end of one edge: see `AttachInput` of the control protocol.
#[derive(Debug)]
pub struct InputEdge {
    /// Id of the edge within the dataflow.
    pub id: u32,
    /// Index of the input, which is also its row in the consumer's counters.
    pub input: u32,
    /// The queue's policy. A producer may wait until a sample is popped from a `block` edge.
    pub policy: Policy,
    /// The ring and the leases.
    pub region: EdgeRegion,
    /// The socket to the producer.
    pub pair: Arc<ConsumerPair>,
    /// The producer's wake page, for its room futex.
    pub producer_wake: Arc<WakePage>,
    /// The consumer's counters.
    pub counters: Arc<CountersPage>,
}

impl InputEdge {
    /// Counts a block that a sample of this process views from now on.
    pub(crate) fn count_held_block(&self) {
        if let Some(row) = self.counters.input_row(self.input) {
            row.hold();
        }
    }

    /// Number of blocks that samples of this process view.
    pub(crate) fn held_blocks(&self) -> u64 {
        let row = self.counters.input_row(self.input);
        row.map_or(0, |row| row.held())
    }

    /// Returns a block to the producer. Nothing in this process may view it any more.
    pub(crate) fn release_block(&self, row: u32) {
        if let Some(counters) = self.counters.input_row(self.input) {
            counters.release();
        }
        self.region.leases()[row as usize].store(0, Ordering::Release);
        self.producer_wake.room_futex().notify();
    }
}
