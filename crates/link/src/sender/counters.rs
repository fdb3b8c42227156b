//! Counters of the sending end of a stream.

use std::ops::Add;

/// The outcomes of samples. Every accepted sample is in exactly one of the others: `accepted =
/// delivered + overwritten + expired + superseded + incomplete + refused + unconfirmed + held`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendCounters {
    /// Samples accepted from the producer.
    pub accepted: u64,
    /// Their bytes.
    pub accepted_bytes: u64,
    /// Samples that the receiver has put in its application's queue.
    pub delivered: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    /// Dropped for newer ones before they were admitted.
    pub overwritten: u64,
    /// Dropped, at either end, because they were older than the lifespan.
    pub expired: u64,
    /// Dropped, at either end, because a newer one was or could be delivered.
    pub superseded: u64,
    /// Dropped because too few symbols arrived, without repair.
    pub incomplete: u64,
    /// Refused by the receiver.
    pub refused: u64,
    /// In flight when a session ended: whether they were delivered is not known.
    pub unconfirmed: u64,
    /// Pending or in flight.
    pub held: u64,
    /// Symbols sent.
    pub symbols: u64,
    /// Of them, those beyond the first for each source shard.
    pub repair_symbols: u64,
}

impl SendCounters {
    /// Whether every accepted sample is accounted for.
    pub fn is_balanced(&self) -> bool {
        let gone =
            self.overwritten + self.expired + self.superseded + self.incomplete + self.refused;
        self.accepted == self.delivered + gone + self.unconfirmed + self.held
    }
}

impl Add for SendCounters {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            accepted: self.accepted + other.accepted,
            accepted_bytes: self.accepted_bytes + other.accepted_bytes,
            delivered: self.delivered + other.delivered,
            delivered_bytes: self.delivered_bytes + other.delivered_bytes,
            overwritten: self.overwritten + other.overwritten,
            expired: self.expired + other.expired,
            superseded: self.superseded + other.superseded,
            incomplete: self.incomplete + other.incomplete,
            refused: self.refused + other.refused,
            unconfirmed: self.unconfirmed + other.unconfirmed,
            held: self.held + other.held,
            symbols: self.symbols + other.symbols,
            repair_symbols: self.repair_symbols + other.repair_symbols,
        }
    }
}
