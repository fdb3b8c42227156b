//! Counters of the receiving end.

use std::ops::Add;

/// Counters of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveCounters {
    /// Samples put in the application's queue.
    pub delivered: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    /// Of them, those that the application has taken.
    pub taken: u64,
    /// Of them, those that newer ones pushed out of the queue.
    pub overwritten: u64,
    /// Of them, those that were older than the stream's deadline.
    pub late: u64,
    /// Of them, those in the queue when the application closed the stream.
    pub discarded: u64,
    /// Of them, those that wait in the queue.
    pub queued: u64,
    /// Complete after a newer one was delivered.
    pub superseded: u64,
    /// Complete when older than the lifespan.
    pub expired: u64,
    /// Given up by the sender when part of it had arrived.
    pub incomplete: u64,
    /// Complete when there was no memory for it, or when the application closed its stream before its
    /// turn had come.
    pub refused: u64,
}

impl ReceiveCounters {
    /// Whether every delivered sample is accounted for.
    pub fn is_balanced(&self) -> bool {
        self.delivered == self.taken + self.overwritten + self.discarded + self.queued
    }
}

impl Add for ReceiveCounters {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            delivered: self.delivered + other.delivered,
            delivered_bytes: self.delivered_bytes + other.delivered_bytes,
            taken: self.taken + other.taken,
            overwritten: self.overwritten + other.overwritten,
            late: self.late + other.late,
            discarded: self.discarded + other.discarded,
            queued: self.queued + other.queued,
            superseded: self.superseded + other.superseded,
            expired: self.expired + other.expired,
            incomplete: self.incomplete + other.incomplete,
            refused: self.refused + other.refused,
        }
    }
}

/// Counters of the link's receiving end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkReceiveCounters {
    /// Packets that do not parse.
    pub invalid_packets: u64,
    /// Control messages that do not parse.
    pub invalid_messages: u64,
    /// Packets of a past session.
    pub stale_packets: u64,
    /// Packets that arrived more than once.
    pub repeated_packets: u64,
    /// Symbols of samples that were closed already.
    pub late_symbols: u64,
    /// Symbols that belong to no stream, exceed its credit, or contradict others.
    pub refused_symbols: u64,
    /// Bytes of symbols and decoded shards copied.
    pub bytes_copied: u64,
    /// Memory in use of the budget: reserved by grants, or charged, in bytes.
    pub budget_used_bytes: u64,
    /// Of that, memory that is filled, in bytes.
    pub budget_held_bytes: u64,
}
