//! A stream at its sending end.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use bytes::Bytes;

use super::counters::SendCounters;
use crate::{
    budget::SMALL_BYTES,
    policy::Refusal,
    qos::{Delivery, Qos, TrafficClass},
    wire::control::{CONTROL_CREDIT, SAMPLE_CREDIT},
};

/// The stream of control messages.
pub(crate) const CONTROL_STREAM: u32 = 0;
/// Unclosed transmissions of a stream, at most.
const UNCLOSED_PER_STREAM: usize = 1024;
/// Above this number of unclosed transmissions in the session, each stream may have only
/// [`UNCLOSED_PER_STREAM_SCARCE`], so that streams with slow receivers never block others.
const UNCLOSED_PER_SESSION: usize = 16_384;
const UNCLOSED_PER_STREAM_SCARCE: usize = 8;
/// The most credit that a stream requests, in bytes, unless one sample takes more: 1 Gbit/s for a
/// round trip of a quarter of a second.
const WINDOW_MAX: u64 = 32 << 20;
/// A stream that lacks credit asks again after this time.
const ASK_AGAIN: Duration = Duration::from_millis(50);

/// A sample that is not admitted yet.
#[derive(Debug)]
pub(super) struct PendingSample {
    pub(super) sequence: u64,
    pub(super) payload: Bytes,
    pub(super) accepted: Instant,
}

/// A change of the quality of service that is not complete.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) qos: Qos,
    /// The sequence of the first sample behind the change.
    pub(super) from: u64,
    /// The samples behind it.
    pub(super) next: VecDeque<PendingSample>,
    /// The peer is being notified.
    pub(super) is_requested: bool,
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
    /// The most that the receiver can ever grant, once it is known.
    most: u64,
    /// When to ask again for credit that was not granted.
    pub(super) ask_at: Option<Instant>,
    /// The most credit in use, now and in the review period before.
    peaks: [u64; 2],
    /// Bytes of pending samples, as they count against the credit.
    pub(super) pending_bytes: u64,
    /// Samples that wait until the stream has another quality of service.
    pub(super) change: Option<Box<Change>>,
    /// The finish tag under which the stream waits in the schedule.
    pub(super) tag: Option<u64>,
    /// The finish tag of its last transmission.
    pub(super) last_finish: u64,
    /// Samples were dropped for newer ones since the last admission.
    pub(super) dropped: bool,
    /// A sample was turned away because the stream was full.
    pub(super) blocked: bool,
    pub(super) closing: bool,
    /// Why the receiver does not accept the stream, or not any more.
    pub(super) refused: Option<Refusal>,
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
            most: u64::MAX,
            ask_at: None,
            peaks: [0; 2],
            pending_bytes: 0,
            change: None,
            tag: None,
            last_finish: 0,
            dropped: false,
            blocked: false,
            closing: false,
            refused: None,
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

    /// Credit that a sample of this length uses, in bytes.
    pub(super) fn charge(bytes: usize) -> u64 {
        bytes as u64 + SAMPLE_CREDIT
    }

    /// Samples that are pending or not closed.
    pub(super) fn under_way(&self) -> usize {
        let behind_change = self.change.as_ref().map_or(0, |change| change.next.len());
        self.pending.len() + self.unclosed + behind_change
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
    pub(super) fn credit_to_request(&mut self, now: Instant) -> Option<u64> {
        let first = self.pending.front().filter(|_| !self.is_control)?;
        let need = self.unclosed_bytes + Self::charge(first.payload.len());
        self.peaks[0] = self.peaks[0].max(need);
        let is_asking = self.wants_in_flight > 0 && self.wanted.max(SMALL_BYTES) >= need;
        if 2 * need <= self.credit || is_asking || self.ask_at.is_some_and(|at| now < at) {
            return None;
        }
        let lacks_credit = need > self.credit && self.sending.is_none();
        let wanted = match lacks_credit {
            true => 2 * (self.unclosed_bytes + self.pending_bytes),
            false => 2 * need,
        };
        let wanted = wanted.min(WINDOW_MAX.max(need)).min(self.most);
        (wanted > self.credit).then(|| {
            self.wanted = wanted;
            self.wants_in_flight += 1;
            self.ask_at = None;
            wanted
        })
    }

    /// Takes a grant. Returns whether the stream must ask again, and when.
    pub(super) fn on_grant(&mut self, now: Instant, bytes: u64, most: u64) -> Option<Instant> {
        self.credit = bytes;
        self.most = most.max(bytes);
        self.wants_in_flight = self.wants_in_flight.saturating_sub(1);
        let is_short = self.wants_in_flight == 0 && bytes < self.wanted;
        self.ask_at = is_short.then(|| now + ASK_AGAIN);
        self.ask_at
    }

    /// Returns the credit to keep now that another stream lacks credit, if that is less than all.
    pub(super) fn credit_to_yield(&mut self) -> Option<u64> {
        let first = self.pending.front();
        let next = first.map_or(0, |first| Self::charge(first.payload.len()));
        let keep = (self.unclosed_bytes + next).max(SMALL_BYTES);
        let yields = self.wants_in_flight == 0 && keep < self.credit;
        yields.then(|| {
            (self.credit, self.wanted) = (keep, keep);
            keep
        })
    }

    /// Begins a review period. Returns the credit to keep, if much of it was not used in the last
    /// two.
    pub(super) fn credit_to_return(&mut self) -> Option<u64> {
        let used = 2 * self.peaks[0].max(self.peaks[1]);
        self.peaks = [self.unclosed_bytes, self.peaks[0]];
        let keep = used.max(self.unclosed_bytes).max(SMALL_BYTES);
        let returns = self.wants_in_flight == 0 && 2 * keep <= self.credit;
        returns.then(|| {
            (self.credit, self.wanted) = (keep, keep);
            keep
        })
    }

    /// Whether the stream has credit to return when it does not use it.
    pub(super) fn has_large_credit(&self) -> bool {
        !self.is_control && self.credit >= 2 * SMALL_BYTES
    }

    /// The greatest length of a sample that the peer can ever have credit for.
    pub(super) fn longest(&self) -> usize {
        usize::try_from(self.most.saturating_sub(SAMPLE_CREDIT)).unwrap_or(usize::MAX)
    }

    /// Whether a sample of this length needs more credit than the peer can ever grant.
    pub(super) fn cannot_ever_carry(&self, bytes: usize) -> bool {
        Self::charge(bytes) > self.most
    }

    /// Removes the first pending sample, if the peer has no memory for it.
    pub(super) fn pop_too_long(&mut self) -> Option<PendingSample> {
        let first = self.pending.front()?;
        self.cannot_ever_carry(first.payload.len())
            .then(|| self.pop_pending())
            .flatten()
    }

    /// Removes the first pending sample.
    pub(super) fn pop_pending(&mut self) -> Option<PendingSample> {
        let first = self.pending.pop_front()?;
        self.pending_bytes -= Self::charge(first.payload.len());
        Some(first)
    }

    /// Makes a sample pending again, before later ones.
    pub(super) fn push_again(&mut self, sample: PendingSample) {
        let place = self
            .pending
            .partition_point(|other| other.sequence < sample.sequence);
        self.pending_bytes += Self::charge(sample.payload.len());
        self.pending.insert(place, sample);
    }

    /// Removes all pending samples.
    pub(super) fn clear_pending(&mut self) -> u64 {
        let behind_change = self.change.take().map_or(0, |change| change.next.len());
        let count = self.pending.len() + behind_change;
        self.pending.clear();
        self.pending_bytes = 0;
        count as u64
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
            self.pop_pending();
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
        let delivery = self.accepts_as().delivery;
        !delivery.keeps_all() || self.under_way() < delivery.depth()
    }

    /// Adds a pending sample.
    pub(super) fn push(&mut self, now: Instant, payload: Bytes) {
        self.pending_bytes += Self::charge(payload.len());
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
            .map_or(self.end_of_pending(), |first| first.sequence);
        let mut gaps = Vec::new();
        for sequence in pending.chain([self.end_of_pending()]) {
            gaps.extend(next..sequence);
            next = sequence + 1;
        }
        gaps
    }

    /// The quality of service of a sample that is accepted now.
    pub(super) fn accepts_as(&self) -> Qos {
        self.change.as_ref().map_or(self.qos, |change| change.qos)
    }

    /// The sequence behind the last sample that is pending.
    pub(super) fn end_of_pending(&self) -> u64 {
        self.change
            .as_ref()
            .map_or(self.next_sequence, |change| change.from)
    }

    /// Adds a sample behind the change.
    pub(super) fn push_behind_change(&mut self, now: Instant, payload: Bytes) {
        let Some(change) = &mut self.change else {
            return;
        };
        change.next.push_back(PendingSample {
            sequence: self.next_sequence,
            payload,
            accepted: now,
        });
        self.next_sequence += 1;
        self.counters.accepted += 1;
        let delivery = change.qos.delivery;
        while !delivery.keeps_all() && change.next.len() > delivery.depth() {
            change.next.pop_front();
            self.counters.overwritten += 1;
        }
    }

    /// Whether all samples before a change are closed.
    pub(super) fn is_drained(&self) -> bool {
        self.pending.is_empty() && self.unclosed == 0 && self.unclosed_bytes == 0
    }

    /// Makes the samples behind a change pending, if all before it are closed. Returns whether it
    /// did.
    pub(super) fn finish_change_if_drained(&mut self) -> bool {
        let is_drained = self.is_drained();
        let Some(change) = self.change.take_if(|_| is_drained) else {
            if let Some(change) = &mut self.change {
                change.is_requested = false;
            }
            return false;
        };
        self.qos = change.qos;
        self.pending_bytes = change
            .next
            .iter()
            .map(|sample| Self::charge(sample.payload.len()))
            .sum();
        self.pending = change.next;
        self.last_finish = 0;
        true
    }

    /// Counts a transmission as closed and returns its credit.
    pub(super) fn close(&mut self, charge: u64) -> &mut SendCounters {
        self.unclosed -= 1;
        self.unclosed_bytes -= charge;
        &mut self.counters
    }

    /// Forgets the state of the session, as the peer has lost its own.
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
            self.most = u64::MAX;
            self.ask_at = None;
            self.peaks = [0; 2];
        }
    }
}
