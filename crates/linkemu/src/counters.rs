//! Exact counters of a direction.

use std::ops::AddAssign;
use std::time::Duration;

/// Why a packet did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// `Settings::loss`.
    Random,
    /// A burst of `Settings::bursts`.
    Burst,
    /// An interruption of the kind `Outage::Lose`.
    Outage,
    /// The queue was full.
    Queue,
    /// `Settings::aqm` dropped it.
    Aqm,
    /// Above `Settings::policer`.
    Policer,
    /// Above `Settings::mtu_bytes`.
    TooBig,
}

/// Packets and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Number of packets.
    pub packets: u64,
    /// Their bytes as they were offered, without `Settings::overhead_bytes`.
    pub bytes: u64,
}

impl Count {
    pub(crate) fn add(&mut self, bytes: u32) {
        self.packets += 1;
        self.bytes += u64::from(bytes);
    }
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

/// The fates of the packets of one direction.
///
/// `offered` is always `delivered` plus [`Counters::lost`] plus [`Counters::in_flight`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Given to the link.
    pub offered: Count,
    /// Delivered at the other end.
    pub delivered: Count,
    /// Lost at random, independently.
    pub lost_random: Count,
    /// Lost in a burst.
    pub lost_burst: Count,
    /// Lost in an interruption.
    pub lost_outage: Count,
    /// Dropped because the queue was full.
    pub dropped_queue: Count,
    /// Dropped by the active queue management.
    pub dropped_aqm: Count,
    /// Dropped by the policer.
    pub dropped_policer: Count,
    /// Dropped because they were above the MTU.
    pub dropped_too_big: Count,
    /// Marked by the active queue management instead of dropped; may be lost later.
    pub marked: Count,
    /// Time spent sending, interruptions that hold packets included.
    pub airtime: Duration,
    /// The longest time from being offered to the start of the transmission.
    pub longest_wait: Duration,
}

impl Counters {
    /// All packets that will never arrive.
    pub fn lost(&self) -> Count {
        let mut lost = self.lost_random;
        lost += self.lost_burst;
        lost += self.lost_outage;
        lost += self.dropped_queue;
        lost += self.dropped_aqm;
        lost += self.dropped_policer;
        lost += self.dropped_too_big;
        lost
    }

    /// All packets that wait or are in flight.
    pub fn in_flight(&self) -> Count {
        let lost = self.lost();
        Count {
            packets: self.offered.packets - self.delivered.packets - lost.packets,
            bytes: self.offered.bytes - self.delivered.bytes - lost.bytes,
        }
    }

    pub(crate) fn lose(&mut self, cause: Cause, bytes: u32) {
        match cause {
            Cause::Random => self.lost_random.add(bytes),
            Cause::Burst => self.lost_burst.add(bytes),
            Cause::Outage => self.lost_outage.add(bytes),
            Cause::Queue => self.dropped_queue.add(bytes),
            Cause::Aqm => self.dropped_aqm.add(bytes),
            Cause::Policer => self.dropped_policer.add(bytes),
            Cause::TooBig => self.dropped_too_big.add(bytes),
        }
    }
}
