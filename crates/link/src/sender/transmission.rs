//! A sample under way.

use std::time::Instant;

use bytes::Bytes;

use super::stream::SendStream;
use crate::{
    coding::{RepairShards, geometry::Geometry},
    qos::TrafficClass,
};

/// By how many standard deviations the symbols that are expected to arrive must exceed those that are needed, where
/// repairing is quick, and where a second round comes too late to keep samples in order; see [`surplus`]. At a round-trip
/// time that is short beside the time between samples this costs least.
const SURPLUS: [f64; 2] = [1.5, 4.0];
/// The same where more is asked for than the link carries: what is beyond need costs others.
const SURPLUS_SCARCE: [f64; 2] = [0.5, 1.5];
/// Repairing is quick when a packet counts as lost after so many seconds, and slow from the second value on.
const REPAIRED_AFTER: [f64; 2] = [0.030, 0.080];

#[derive(Debug)]
pub(super) struct Transmission {
    pub(super) stream: u32,
    pub(super) sequence: u64,
    pub(super) class: TrafficClass,
    pub(super) payload: Bytes,
    pub(super) accepted: Instant,
    /// When its turn came.
    pub(super) admitted: Instant,
    pub(super) expires: Option<Instant>,
    pub(super) geometry: Geometry,
    pub(super) repairs: bool,
    /// Its stream had to drop samples: more is asked for than the link carries, so what is sent beyond need costs others.
    pub(super) scarce: bool,
    /// Its start and finish in the virtual time of its class.
    pub(super) start: u64,
    pub(super) tag: u64,
    /// Bytes of source shards sent.
    pub(super) sent_bytes: u64,
    pub(super) blocks: Vec<OutBlock>,
    /// Blocks of which not all source shards were sent once.
    pub(super) unsent_blocks: usize,
    pub(super) in_flight: u32,
}

/// A coding block under way.
#[derive(Debug, Default)]
pub(super) struct OutBlock {
    pub(super) source_shards: u32,
    /// Symbols sent.
    pub(super) next: u32,
    /// Symbols that the receiver has.
    pub(super) got: u32,
    pub(super) in_flight: u32,
    pub(super) repair: RepairShards,
    /// It stands among the blocks that ask for a symbol.
    pub(super) ready: bool,
}

impl Transmission {
    /// What it counts against its stream's credit.
    pub(super) fn charge(&self) -> u64 {
        SendStream::charge(self.payload.len())
    }

    /// Whether every source shard was sent once.
    pub(super) fn sent_once(&self) -> bool {
        self.unsent_blocks == 0
    }
}

impl OutBlock {
    /// Whether another symbol is to be sent: not all source shards were sent once, or fewer symbols are expected to
    /// arrive, less `surplus` standard deviations, than the block needs.
    pub(super) fn wants(&self, repairs: bool, loss: f64, surplus: f64) -> bool {
        if self.got >= self.source_shards {
            return false;
        }
        if self.next < self.source_shards {
            return true;
        }
        let in_flight = f64::from(self.in_flight);
        let expected = f64::from(self.got) + in_flight * (1.0 - loss)
            - surplus * (in_flight * loss * (1.0 - loss)).sqrt();
        repairs && expected < f64::from(self.source_shards) - 1e-9
    }
}

/// The surplus for a path on which a packet counts as lost after `rto_seconds`.
pub(super) fn surplus(rto_seconds: f64, scarce: bool) -> f64 {
    let [quick, slow] = if scarce { SURPLUS_SCARCE } else { SURPLUS };
    let [from, to] = REPAIRED_AFTER;
    quick + (slow - quick) * ((rto_seconds - from) / (to - from)).clamp(0.0, 1.0)
}
