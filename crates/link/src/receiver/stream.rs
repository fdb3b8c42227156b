//! A stream at its receiving end.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use super::{budget::Budget, counters::ReceiveCounters, notices::StreamNotices};
use crate::{
    memory::Payload,
    qos::{Delivery, Qos},
};

/// The least that a sample counts against the credit, in bytes; the sender counts alike.
const CHARGE_MIN: u64 = 64;
/// How far ahead of the next sample a skipped one may be.
const SKIP_AHEAD: u64 = 1 << 16;

/// A received sample.
#[derive(Debug, PartialEq, Eq)]
pub struct LinkSample {
    /// Its place in its stream; a gap is a loss.
    pub sequence: u64,
    /// Its age when its last symbol was sent, plus the sender's estimate of the transit time.
    /// Saturates at 65.535 s.
    pub age: Duration,
    /// Its bytes.
    pub payload: Payload,
}

/// A complete sample that waits for its predecessors or for room.
#[derive(Debug)]
pub(super) struct CompleteSample {
    pub(super) id: u64,
    /// `None` if it has expired and only keeps its place.
    pub(super) sample: Option<LinkSample>,
    pub(super) bytes: usize,
}

/// What happened to a sample of a stream that delivers at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueOutcome {
    Queued,
    Superseded,
    NoRoom,
}

#[derive(Debug)]
pub(super) struct ReceiveStream {
    pub(super) name: String,
    pub(super) qos: Qos,
    /// The sequence to deliver next in a stream that keeps all; in others, older ones are not
    /// delivered.
    pub(super) next_sequence: u64,
    /// Complete samples of a stream that keeps all, by sequence.
    pub(super) waiting: BTreeMap<u64, CompleteSample>,
    /// Sequences, of a stream that keeps all, that its sender has given up.
    skipped: BTreeSet<u64>,
    pub(super) queue: VecDeque<LinkSample>,
    pub(super) granted: u64,
    /// Bytes of samples that arrive or wait for their predecessors.
    unclosed_bytes: u64,
    pub(super) ended: bool,
    pub(super) notices: StreamNotices,
    pub(super) counters: ReceiveCounters,
}

impl ReceiveStream {
    pub(super) fn new(name: String, qos: Qos, first_sequence: u64, granted: u64) -> Self {
        Self {
            name,
            qos,
            next_sequence: first_sequence,
            waiting: BTreeMap::new(),
            skipped: BTreeSet::new(),
            queue: VecDeque::new(),
            granted,
            unclosed_bytes: 0,
            ended: false,
            notices: StreamNotices::NONE,
            counters: ReceiveCounters::default(),
        }
    }

    pub(super) fn control(credit: u64) -> Self {
        Self::new(
            String::new(),
            Qos::new(Delivery::keep_all(u32::MAX)),
            0,
            credit,
        )
    }

    pub(super) fn counters(&self) -> ReceiveCounters {
        ReceiveCounters {
            queued: self.queue.len() as u64,
            ..self.counters
        }
    }

    /// Whether a sample was delivered or skipped.
    pub(super) fn is_past(&self, sequence: u64) -> bool {
        sequence < self.next_sequence
    }

    /// Takes credit for a sample that begins to arrive. Returns false when there is none.
    pub(super) fn begin(&mut self, bytes: usize) -> bool {
        let charge = (bytes as u64).max(CHARGE_MIN);
        let fits = !self.ended && self.unclosed_bytes + charge <= self.granted;
        if fits {
            self.unclosed_bytes += charge;
        }
        fits
    }

    /// Whether samples arrive or wait for their predecessors.
    pub(super) fn has_unclosed(&self) -> bool {
        self.unclosed_bytes > 0
    }

    /// Returns the credit of a sample.
    pub(super) fn end(&mut self, bytes: usize) {
        self.unclosed_bytes -= (bytes as u64).max(CHARGE_MIN);
    }

    /// Queues a sample, unless a newer one was queued before.
    pub(super) fn put_newest(&mut self, sample: LinkSample, budget: &mut Budget) -> QueueOutcome {
        if self.is_past(sample.sequence) {
            self.counters.superseded += 1;
            return QueueOutcome::Superseded;
        }
        self.next_sequence = sample.sequence.saturating_add(1);
        while self.queue.len() >= self.qos.delivery.depth() {
            self.overwrite_oldest(budget);
        }
        while !budget.queue(sample.payload.len()) {
            if self.queue.is_empty() {
                self.counters.refused += 1;
                return QueueOutcome::NoRoom;
            }
            self.overwrite_oldest(budget);
        }
        self.counters.delivered += 1;
        self.counters.delivered_bytes += sample.payload.len() as u64;
        self.note_age(sample.age);
        self.queue.push_back(sample);
        QueueOutcome::Queued
    }

    fn overwrite_oldest(&mut self, budget: &mut Budget) {
        if let Some(oldest) = self.queue.pop_front() {
            budget.unqueue(oldest.payload.len());
            self.counters.overwritten += 1;
        }
    }

    /// Counts a sample that is delivered after its deadline.
    pub(super) fn note_age(&mut self, age: Duration) {
        if self.qos.deadline.is_some_and(|deadline| age > deadline) {
            self.counters.late += 1;
        }
    }

    /// Notes that the sender has given a sample up.
    pub(super) fn note_skipped(&mut self, sequence: u64) {
        let ahead = self.next_sequence..self.next_sequence.saturating_add(SKIP_AHEAD);
        if ahead.contains(&sequence) && !self.waiting.contains_key(&sequence) {
            self.skipped.insert(sequence);
        }
    }

    /// Skips the next sample, if its sender has given it up.
    pub(super) fn skip(&mut self) -> bool {
        let skipped = self.skipped.remove(&self.next_sequence);
        if skipped {
            self.next_sequence += 1;
        }
        skipped
    }
}
