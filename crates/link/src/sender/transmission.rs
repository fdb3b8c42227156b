//! Samples in transmission.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    time::{Duration, Instant},
};

use bytes::Bytes;

use super::stream::SendStream;
use crate::{
    coding::{RepairShards, geometry::Geometry},
    qos::TrafficClass,
};

/// By how many standard deviations the expected symbols must exceed those that are needed: on a
/// path where repair is quick, and on one where a second round comes too late to keep samples in
/// order; see [`surplus`]. These values cost least where the round-trip time is short beside the
/// time between samples.
const SURPLUS: [f64; 2] = [1.5, 4.0];
/// The same when streams ask for more than the link carries: surplus symbols then cost other
/// samples.
const SURPLUS_SCARCE: [f64; 2] = [0.5, 1.5];
/// Retransmission timeouts, in seconds, up to which repair counts as quick, and from which on as
/// slow.
const REPAIR_SECONDS: [f64; 2] = [0.030, 0.080];

/// The shortest time between two statuses.
const STATUS_INTERVAL_MIN: Duration = Duration::from_millis(5);

/// A coding block in transmission: transmit id and number of the block.
pub(super) type BlockId = (u64, u16);

/// The sender's estimate of the path to the peer.
#[derive(Clone, Copy, Debug)]
pub struct PathEstimate {
    /// The share of packets that are lost, well below 1.
    pub loss: f64,
    /// A packet without a report counts as lost after this time.
    pub rto: Duration,
    /// The time between reports that the sender asks for.
    pub report_interval: Duration,
    /// The one-way delay, about: a sample is this much older when it arrives.
    pub transit: Duration,
    /// Nothing comes back from the peer.
    pub silent: bool,
    /// The rate is still being found, and will grow.
    pub starting: bool,
}

impl Default for PathEstimate {
    fn default() -> Self {
        Self {
            loss: 0.0,
            rto: Duration::from_millis(250),
            report_interval: Duration::from_millis(1),
            transit: Duration::ZERO,
            silent: false,
            starting: true,
        }
    }
}

impl PathEstimate {
    /// The time between two statuses.
    pub(super) fn status_interval(&self) -> Duration {
        (self.rto / 2).max(STATUS_INTERVAL_MIN)
    }
}

/// A sample that was admitted and is neither closed nor given up.
#[derive(Debug)]
pub(super) struct Transmission {
    pub(super) stream: u32,
    pub(super) sequence: u64,
    pub(super) class: TrafficClass,
    pub(super) payload: Bytes,
    pub(super) accepted: Instant,
    pub(super) admitted: Instant,
    pub(super) expires: Option<Instant>,
    pub(super) geometry: Geometry,
    pub(super) repairs: bool,
    /// Its stream had to drop samples: the streams ask for more than the link carries, so surplus
    /// symbols cost others.
    pub(super) scarce: bool,
    /// Its start and its finish tag in the virtual time of its class.
    pub(super) start: u64,
    pub(super) tag: u64,
    /// Bytes of source shards sent.
    pub(super) sent_bytes: u64,
    pub(super) blocks: Vec<OutBlock>,
    /// Blocks of which not all source shards were sent once.
    pub(super) unsent_blocks: usize,
    pub(super) in_flight: u32,
}

/// A coding block in transmission.
#[derive(Debug, Default)]
pub(super) struct OutBlock {
    pub(super) source_shards: u32,
    /// Symbols sent.
    pub(super) next: u32,
    /// Symbols that the receiver has.
    pub(super) got: u32,
    pub(super) in_flight: u32,
    pub(super) repair: RepairShards,
    /// It is among the schedule's ready blocks.
    pub(super) ready: bool,
}

impl Transmission {
    /// Bytes that it counts against its stream's credit.
    pub(super) fn charge(&self) -> u64 {
        SendStream::charge(self.payload.len())
    }

    /// Whether every source shard was sent once.
    pub(super) fn sent_once(&self) -> bool {
        self.unsent_blocks == 0
    }

    /// Whether a block needs another symbol; see [`OutBlock::wants`].
    pub(super) fn wants_symbol(&self, block: u16, path: &PathEstimate) -> bool {
        let surplus = surplus(path.rto.as_secs_f64(), self.scarce);
        self.blocks[usize::from(block)].wants(self.repairs, path.loss, surplus)
    }
}

impl OutBlock {
    /// Whether to send another symbol: not all source shards were sent once, or the symbols that
    /// are expected to arrive, less `surplus` standard deviations, are fewer than the block needs.
    fn wants(&self, repairs: bool, loss: f64, surplus: f64) -> bool {
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

/// The surplus, in standard deviations, for a path with this retransmission timeout.
fn surplus(rto_seconds: f64, scarce: bool) -> f64 {
    let [quick, slow] = if scarce { SURPLUS_SCARCE } else { SURPLUS };
    let [from, to] = REPAIR_SECONDS;
    quick + (slow - quick) * ((rto_seconds - from) / (to - from)).clamp(0.0, 1.0)
}

/// The transmissions of a session by id, and when they expire.
#[derive(Debug)]
pub(super) struct Transmissions {
    next_id: u64,
    by_id: BTreeMap<u64, Transmission>,
    expiries: BTreeSet<(Instant, u64)>,
}

impl Default for Transmissions {
    fn default() -> Self {
        Self {
            next_id: 1,
            by_id: BTreeMap::new(),
            expiries: BTreeSet::new(),
        }
    }
}

impl Transmissions {
    /// Takes the next transmit id.
    pub(super) fn new_id(&mut self) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        id
    }

    /// The id that the next transmission gets; from 1.
    pub(super) fn next_id(&self) -> u64 {
        self.next_id
    }

    pub(super) fn insert(&mut self, id: u64, transmission: Transmission) {
        self.expiries
            .extend(transmission.expires.map(|at| (at, id)));
        self.by_id.insert(id, transmission);
    }

    pub(super) fn remove(&mut self, id: u64) -> Option<Transmission> {
        let transmission = self.by_id.remove(&id)?;
        if let Some(at) = transmission.expires {
            self.expiries.remove(&(at, id));
        }
        Some(transmission)
    }

    pub(super) fn get(&self, id: u64) -> Option<&Transmission> {
        self.by_id.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut Transmission> {
        self.by_id.get_mut(&id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Transmission)> {
        self.by_id
            .iter()
            .map(|(id, transmission)| (*id, transmission))
    }

    pub(super) fn ids(&self, range: Range<u64>) -> Vec<u64> {
        self.by_id.range(range).map(|(id, _)| *id).collect()
    }

    pub(super) fn ids_of(&self, stream: u32) -> Vec<u64> {
        let of_stream = self.iter().filter(|(_, state)| state.stream == stream);
        of_stream.map(|(id, _)| id).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    pub(super) fn lowest_id(&self) -> Option<u64> {
        self.by_id.keys().next().copied()
    }

    /// When the first transmission expires, and its id.
    pub(super) fn first_expiry(&self) -> Option<(Instant, u64)> {
        self.expiries.first().copied()
    }
}
