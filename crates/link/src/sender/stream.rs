//! A stream at its sending end.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use bytes::Bytes;

use super::counters::SendCounters;
use crate::qos::{Delivery, Qos, TrafficClass};

/// The stream of control messages.
pub(crate) const CONTROL_STREAM: u32 = 0;
/// Bytes of control messages in flight at most.
pub(crate) const CONTROL_CREDIT: u64 = 64 << 10;
/// Unclosed transmissions of a stream, at most.
const UNCLOSED_PER_STREAM: usize = 1024;
/// Above this number of unclosed transmissions in the session, each stream may have only
/// [`UNCLOSED_PER_STREAM_SCARCE`], so that streams with slow receivers never block others.
const UNCLOSED_PER_SESSION: usize = 16_384;
const UNCLOSED_PER_STREAM_SCARCE: usize = 8;
/// The least that a sample counts against its stream's credit, in bytes.
const CHARGE_MIN: u64 = 64;
/// The first grant to expect from a receiver, in bytes: for a larger sample the sender asks for
/// credit at once.
const FIRST_GRANT: u64 = 64 << 10;

/// A sample that is not admitted yet.
#[derive(Debug)]
pub(super) struct PendingSample {
    pub(super) sequence: u64,
    pub(super) payload: Bytes,
    pub(super) accepted: Instant,
}

#[derive(Debug)]
pub(super) struct SendStream {
    pub(super) name: String,
    pub(super) qos: Qos,
    pub(super) next_sequence: u64,
    pub(super) pending: VecDeque<PendingSample>,
    /// Transmissions that the receiver has not closed.
    pub(super) unclosed: usize,
    pub(super) unclosed_bytes: u64,
    /// The transmission of which not all source shards were sent once.
    pub(super) sending: Option<u64>,
    /// The newest transmission.
    pub(super) newest: Option<u64>,
    /// Recent maximum of the time from a sample's admission until it is known to have arrived.
    transfer_time: Duration,
    /// Bytes of unclosed samples that the receiver allows.
    pub(super) credit: u64,
    /// The highest credit that was asked for.
    pub(super) wanted: u64,
    /// Grants still to come: one for the opening, one for each request.
    pub(super) wants_in_flight: u32,
    pub(super) largest: u64,
    /// The finish tag under which the stream waits in the schedule.
    pub(super) tag: Option<u64>,
    /// The finish tag of its last transmission.
    pub(super) last_finish: u64,
    /// Samples were dropped for newer ones since the last admission.
    pub(super) dropped: bool,
    /// A sample was turned away because the stream was full.
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
            transfer_time: Duration::ZERO,
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

    /// What a sample of this length counts against the credit, in bytes.
    pub(super) fn charge(bytes: usize) -> u64 {
        (bytes as u64).max(CHARGE_MIN)
    }

    /// Samples that are pending or not closed.
    pub(super) fn under_way(&self) -> usize {
        self.pending.len() + self.unclosed
    }

    /// The counters, `held` included.
    pub(super) fn counters(&self) -> SendCounters {
        SendCounters {
            held: self.under_way() as u64,
            ..self.counters
        }
    }

    /// Whether the first pending sample may be admitted, with this number of unclosed transmissions
    /// in the session.
    pub(super) fn may_admit(&self, unclosed_in_session: usize) -> bool {
        let limit = if unclosed_in_session > UNCLOSED_PER_SESSION {
            UNCLOSED_PER_STREAM_SCARCE
        } else {
            UNCLOSED_PER_STREAM
        };
        self.sending.is_none()
            && self.unclosed < limit
            && self
                .pending
                .front()
                .is_some_and(|first| self.has_credit(first.payload.len()))
    }

    fn has_credit(&self, bytes: usize) -> bool {
        self.unclosed_bytes + Self::charge(bytes) <= self.credit
    }

    /// The credit to request, when the first pending sample lacks it or takes more than half of it:
    /// the answer is a round trip away. The credit of control messages is fixed.
    pub(super) fn credit_to_request(&mut self) -> Option<u64> {
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

    /// Whether the peer has granted less than was requested, and less than a sample of this length
    /// needs.
    pub(super) fn cannot_ever_carry(&self, bytes: usize) -> bool {
        let charge = Self::charge(bytes);
        self.wants_in_flight == 0
            && charge > self.credit
            && self.wanted >= charge
            && self.credit < self.wanted
    }

    /// Removes the first pending sample, if the peer has no memory for it.
    pub(super) fn pop_too_long(&mut self) -> Option<PendingSample> {
        let first = self.pending.front()?;
        self.cannot_ever_carry(first.payload.len())
            .then(|| self.pending.pop_front())
            .flatten()
    }

    /// Notes that a sample arrived this long after its admission.
    pub(super) fn arrived_after(&mut self, time: Duration) {
        self.transfer_time = time.max(self.transfer_time * 7 / 8);
    }

    /// Notes that a sample expired in transmission, this long after its admission: the transfer
    /// takes longer.
    pub(super) fn expired_after(&mut self, time: Duration) {
        let lifespan = self.qos.lifespan.unwrap_or(time);
        self.transfer_time = (time.max(self.transfer_time) * 5 / 4).min(lifespan);
    }

    /// Drops pending samples that are too old, or would be on arrival while a newer one is pending:
    /// otherwise a link that cannot carry all samples would send each one only to see it expire. A
    /// stream that keeps all drops nothing here: its receiver must learn of each drop, which
    /// happens at admission.
    pub(super) fn drop_expired(&mut self, now: Instant) {
        let Some(lifespan) = self.qos.lifespan.filter(|_| !self.qos.delivery.keeps_all()) else {
            return;
        };
        while let Some(first) = self.pending.front() {
            let transfer_time = if self.pending.len() > 1 {
                self.transfer_time
            } else {
                Duration::ZERO
            };
            if first.accepted + lifespan > now + transfer_time {
                return;
            }
            self.pending.pop_front();
            self.counters.expired += 1;
        }
    }

    /// The producer's sample was turned away before, and there is room now.
    pub(super) fn take_room(&mut self) -> bool {
        let has_room = self.blocked && self.has_room();
        self.blocked &= !has_room;
        has_room
    }

    /// Whether the stream accepts a sample now; one that may drop samples always does.
    pub(super) fn has_room(&self) -> bool {
        !self.qos.delivery.keeps_all() || self.under_way() < self.qos.delivery.depth()
    }

    /// Adds a pending sample.
    pub(super) fn push(&mut self, now: Instant, payload: Bytes) {
        self.pending.push_back(PendingSample {
            sequence: self.next_sequence,
            payload,
            accepted: now,
        });
        self.next_sequence += 1;
        self.counters.accepted += 1;
    }

    /// Sequences, from the first pending one on, that are not pending: a sample that was cut again
    /// was pending again while later ones were in flight.
    pub(super) fn gaps(&self) -> Vec<u64> {
        let pending = self.pending.iter().map(|pending| pending.sequence);
        let mut next = self
            .pending
            .front()
            .map_or(self.next_sequence, |first| first.sequence);
        let mut gaps = Vec::new();
        for sequence in pending.chain([self.next_sequence]) {
            gaps.extend(next..sequence);
            next = sequence + 1;
        }
        gaps
    }

    /// Counts a transmission as closed and returns its credit.
    pub(super) fn close(&mut self, charge: u64) -> &mut SendCounters {
        self.unclosed -= 1;
        self.unclosed_bytes -= charge;
        &mut self.counters
    }

    /// Forgets what belonged to the session: the peer has lost its state.
    pub(super) fn reset_session(&mut self) {
        self.unclosed = 0;
        self.unclosed_bytes = 0;
        self.sending = None;
        self.newest = None;
        self.transfer_time = Duration::ZERO;
        self.tag = None;
        self.last_finish = 0;
        if !self.is_control {
            self.credit = 0;
            self.wanted = 0;
            self.wants_in_flight = 1;
        }
    }
}
