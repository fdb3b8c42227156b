//! A stream at its sending end.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use bytes::Bytes;

use super::{CONTROL_CREDIT, SendCounters, UNCLOSED_FEW, UNCLOSED_PER_STREAM};
use crate::qos::{Delivery, Qos, TrafficClass};

/// What a sample counts against its stream's credit, at least.
const CHARGE_MIN: u64 = 64;

/// What a receiver is thought to grant unasked: for a larger sample credit is asked for at once.
const FIRST_GRANT: u64 = 64 << 10;

/// A sample that waits for its turn.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) sequence: u64,
    pub(super) payload: Bytes,
    pub(super) accepted: Instant,
}

#[derive(Debug)]
pub(super) struct SendStream {
    pub(super) name: String,
    pub(super) qos: Qos,
    pub(super) next_sequence: u64,
    pub(super) pending: VecDeque<Pending>,
    /// Transmissions that are not closed.
    pub(super) unclosed: usize,
    pub(super) unclosed_bytes: u64,
    /// The transmission of which not all source shards were sent once.
    pub(super) sending: Option<u64>,
    /// The newest transmission.
    pub(super) newest: Option<u64>,
    /// How long a sample is on its way, from its turn until it is known to have arrived: as long as the slowest of late.
    takes: Duration,
    /// Bytes that may be unclosed.
    pub(super) credit: u64,
    /// The most credit that was asked for.
    pub(super) wanted: u64,
    /// Grants that are to come: one for the opening, one for each wish.
    pub(super) wants_in_flight: u32,
    pub(super) largest: u64,
    /// Where the stream stands among those that wait for their turn.
    pub(super) tag: Option<u64>,
    /// The finish tag of its last transmission.
    pub(super) last_finish: u64,
    /// Samples were dropped for newer ones since the last was admitted.
    pub(super) dropped: bool,
    /// The producer was turned away.
    pub(super) blocked: bool,
    pub(super) closing: bool,
    pub(super) refused: bool,
    is_control: bool,
    pub(super) counters: SendCounters,
}

impl SendStream {
    pub(super) fn new(name: String, qos: Qos) -> Self {
        Self {
            name,
            qos,
            next_sequence: 0,
            pending: VecDeque::new(),
            unclosed: 0,
            unclosed_bytes: 0,
            sending: None,
            newest: None,
            takes: Duration::ZERO,
            credit: 0,
            wanted: 0,
            wants_in_flight: 1,
            largest: 0,
            tag: None,
            last_finish: 0,
            dropped: false,
            blocked: false,
            closing: false,
            refused: false,
            is_control: false,
            counters: SendCounters::default(),
        }
    }

    pub(super) fn control() -> Self {
        let qos = Qos {
            traffic_class: TrafficClass::Control,
            ..Qos::new(Delivery::keep_all(u32::MAX))
        };
        Self {
            is_control: true,
            credit: CONTROL_CREDIT,
            wants_in_flight: 0,
            ..Self::new(String::new(), qos)
        }
    }

    /// What a sample of this length counts against the credit.
    pub(super) fn charge(bytes: usize) -> u64 {
        (bytes as u64).max(CHARGE_MIN)
    }

    /// Samples that wait or are not closed.
    pub(super) fn under_way(&self) -> usize {
        self.pending.len() + self.unclosed
    }

    /// The counters, with what is held.
    pub(super) fn counters(&self) -> SendCounters {
        SendCounters {
            held: self.under_way() as u64,
            ..self.counters
        }
    }

    /// Whether the first that waits may be admitted; `many`: there are many unclosed transmissions.
    pub(super) fn may_admit(&self, many: bool) -> bool {
        self.sending.is_none()
            && self.unclosed
                < if many {
                    UNCLOSED_FEW
                } else {
                    UNCLOSED_PER_STREAM
                }
            && self
                .pending
                .front()
                .is_some_and(|first| self.has_credit(first.payload.len()))
    }

    fn has_credit(&self, bytes: usize) -> bool {
        self.unclosed_bytes + Self::charge(bytes) <= self.credit
    }

    /// How much credit to ask for, when the first that waits lacks it or takes more than half of it: the answer is a round
    /// trip away. Control messages have what they have.
    pub(super) fn credit_to_want(&mut self) -> Option<u64> {
        let first = self.pending.front().filter(|_| !self.is_control)?;
        let charge = Self::charge(first.payload.len());
        let suffices = 2 * (self.unclosed_bytes + charge) <= self.credit;
        let waits = self.wants_in_flight > 0 && self.wanted.max(FIRST_GRANT) >= charge;
        if suffices || waits || self.credit < self.wanted {
            return None;
        }
        self.wanted = (self.credit * 4).max(self.largest * 8);
        self.wants_in_flight += 1;
        Some(self.wanted)
    }

    /// The peer was asked for more than it grants, and what it grants is too little.
    pub(super) fn cannot_ever_carry(&self, bytes: usize) -> bool {
        let charge = Self::charge(bytes);
        self.wants_in_flight == 0
            && charge > self.credit
            && self.wanted >= charge
            && self.credit < self.wanted
    }

    /// A sample whose turn came so long ago has arrived.
    pub(super) fn arrived_after(&mut self, time: Duration) {
        self.takes = time.max(self.takes * 7 / 8);
    }

    /// A sample whose turn came so long ago has expired on its way: it takes longer.
    pub(super) fn expired_after(&mut self, time: Duration) {
        let lifespan = self.qos.lifespan.unwrap_or(time);
        self.takes = (time.max(self.takes) * 5 / 4).min(lifespan);
    }

    /// Drops what waits and is too old, or would be when it arrives where a newer one waits: else a link that cannot carry
    /// all would send each only to see it expire. What a stream that keeps all drops must be told to its receiver, which is
    /// done when its turn comes.
    pub(super) fn drop_expired(&mut self, now: Instant) {
        let Some(lifespan) = self.qos.lifespan.filter(|_| !self.qos.delivery.keeps_all()) else {
            return;
        };
        while let Some(first) = self.pending.front() {
            let needs = if self.pending.len() > 1 {
                self.takes
            } else {
                Duration::ZERO
            };
            if first.accepted + lifespan > now + needs {
                return;
            }
            self.pending.pop_front();
            self.counters.expired += 1;
        }
    }

    /// The peer has lost its state.
    pub(super) fn reset_session(&mut self) {
        self.unclosed = 0;
        self.unclosed_bytes = 0;
        self.sending = None;
        self.newest = None;
        self.takes = Duration::ZERO;
        self.tag = None;
        self.last_finish = 0;
        if !self.is_control {
            self.credit = 0;
            self.wanted = 0;
            self.wants_in_flight = 1;
        }
    }
}
