//! A stream at its receiving end.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use super::{cost, counters::ReceiveCounters, notices::StreamNotices, report::PROGRESS_ENTRY};
use crate::{
    budget::{Account, SMALL_BYTES, Size},
    coding::geometry::Geometry,
    memory::Payload,
    qos::{Delivery, Qos},
    wire::{control::SAMPLE_CREDIT, data::Symbol},
};

/// Largest distance of a skipped sequence from the next one to deliver.
const SKIP_AHEAD: u64 = 1 << 16;
/// The cost of a sequence that is skipped.
const SKIPPED: u64 = cost::entry(size_of::<u64>());
/// The cost of a place in the queue.
const QUEUE_PLACE: u64 = size_of::<LinkSample>() as u64;
/// A queue with more places is freed when it is empty.
const IDLE_PLACES: usize = 64;
/// The places of a stream in the two queues of notices, which grow by doubling.
const NOTICES: u64 = 2 * 2 * size_of::<u32>() as u64;

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

/// The state of a stream at its receiving end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IncomingState {
    /// The application is to decide on it.
    Requested,
    /// Samples may arrive.
    Open,
    /// It has ended: no samples follow those in its queue.
    Ended,
}

/// A stream at its receiving end, with its counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IncomingStatus {
    /// Its number.
    pub stream: u32,
    /// Its name.
    pub name: String,
    /// Its quality of service.
    pub qos: Qos,
    /// Its state.
    pub state: IncomingState,
    /// Bytes of samples that arrive, or wait for their predecessors.
    pub arriving_bytes: u64,
    /// Bytes of samples that may arrive at once.
    pub granted_bytes: u64,
    /// Its counters.
    pub counters: ReceiveCounters,
}

/// A complete sample that waits for its predecessors or for room.
#[derive(Debug)]
pub(super) struct CompleteSample {
    pub(super) id: u64,
    /// `None` if it has expired and only keeps its place.
    pub(super) sample: Option<LinkSample>,
    pub(super) geometry: Geometry,
}

impl CompleteSample {
    /// Cost of a waiting sample of this cut, in bytes.
    pub(super) fn cost(geometry: &Geometry) -> u64 {
        cost::entry(size_of::<(u64, Self)>())
            + cost::entry(size_of::<(u64, Described)>())
            + geometry.blocks() as u64 * PROGRESS_ENTRY
            + cost::payload(geometry.sample_bytes())
    }
}

/// The fields that all symbols of a transmission share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Described {
    pub(super) stream: u32,
    pub(super) sequence: u64,
    pub(super) geometry: Geometry,
}

impl From<&Symbol> for Described {
    fn from(symbol: &Symbol) -> Self {
        Self {
            stream: symbol.stream,
            sequence: symbol.sequence,
            geometry: symbol.geometry,
        }
    }
}

/// Outcome of a sample of a stream that delivers at once.
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
    /// Samples at the front of the queue that newer ones do not overwrite: they came when the stream
    /// kept all.
    kept: usize,
    /// Places of the queue that are charged.
    places: usize,
    pub(super) granted: u64,
    /// Bytes of samples that arrive or wait for their predecessors, as the sender counts them.
    unclosed_bytes: u64,
    /// Cost of these samples and of the skipped ones, in bytes.
    pub(super) cost: u64,
    /// The application has not accepted it yet.
    pub(super) requested: bool,
    pub(super) ended: bool,
    pub(super) notices: StreamNotices,
    pub(super) counters: ReceiveCounters,
}

/// Memory to reserve for a grant, in bytes: for each sample and as many repair shards, and an
/// eighth for their descriptions.
pub(super) fn reserve(granted: u64) -> [(Size, u64); 2] {
    let of = |granted: u64| granted * 2 + granted / 4;
    let small = of(granted.min(SMALL_BYTES));
    [(Size::Small, small), (Size::Large, of(granted) - small)]
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
            kept: 0,
            places: 0,
            granted,
            unclosed_bytes: 0,
            cost: 0,
            requested: false,
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

    /// Cost of a stream without its samples, in bytes.
    pub(super) fn own_cost(name: &str) -> u64 {
        cost::entry(size_of::<(u32, Box<Self>)>())
            + cost::allocation(size_of::<Self>())
            + cost::allocation(name.len())
            + NOTICES
    }

    /// The cost of the queue, in bytes.
    pub(super) fn queue_cost(&self) -> u64 {
        let samples = self.queue.iter();
        let payloads: u64 = samples
            .map(|sample| cost::payload(sample.payload.len()))
            .sum();
        self.places as u64 * QUEUE_PLACE + payloads
    }

    /// Counts the [cost](Self::cost) again, without samples in assembly.
    pub(super) fn recount(&self) -> u64 {
        let waiting = self.waiting.values();
        let waiting: u64 = waiting
            .map(|complete| CompleteSample::cost(&complete.geometry))
            .sum();
        waiting + self.skipped.len() as u64 * SKIPPED
    }

    pub(super) fn counters(&self) -> ReceiveCounters {
        ReceiveCounters {
            queued: self.queue.len() as u64,
            ..self.counters
        }
    }

    pub(super) fn status(&self, stream: u32) -> IncomingStatus {
        IncomingStatus {
            stream,
            name: self.name.clone(),
            qos: self.qos,
            state: match (self.requested, self.ended) {
                (_, true) => IncomingState::Ended,
                (true, false) => IncomingState::Requested,
                (false, false) => IncomingState::Open,
            },
            arriving_bytes: self.unclosed_bytes,
            granted_bytes: self.granted,
            counters: self.counters(),
        }
    }

    /// Whether a sample was delivered or skipped.
    pub(super) fn is_past(&self, sequence: u64) -> bool {
        sequence < self.next_sequence
    }

    /// Whether nothing is left of an ended stream.
    pub(super) fn is_complete(&self) -> bool {
        self.ended && self.queue.is_empty() && self.unclosed_bytes == 0
    }

    /// Whether nothing is left of an ended stream, and the application knows all of it.
    pub(super) fn is_done(&self) -> bool {
        self.is_complete() && self.notices == StreamNotices::NONE
    }

    /// Bytes by which the [cost](Self::cost) may grow.
    pub(super) fn room(&self) -> u64 {
        let reserved: u64 = reserve(self.granted).iter().map(|(_, bytes)| bytes).sum();
        reserved.saturating_sub(self.cost)
    }

    /// The least grant that covers the held samples.
    pub(super) fn least_grant(&self) -> u64 {
        self.unclosed_bytes.max(self.cost.div_ceil(9) * 4 + 4)
    }

    /// Changes the quality of service of the samples from this one on; all earlier ones are closed.
    pub(super) fn change(&mut self, qos: Qos, first_sequence: u64) {
        if self.qos.delivery.keeps_all() {
            self.kept = self.queue.len();
        }
        self.cost -= self.skipped.len() as u64 * SKIPPED;
        self.skipped.clear();
        self.next_sequence = self.next_sequence.max(first_sequence);
        self.qos = qos;
    }

    /// Whether samples arrive or wait for their predecessors.
    pub(super) fn has_open_samples(&self) -> bool {
        self.unclosed_bytes > 0
    }

    /// Takes credit for a sample that begins to arrive and costs this much at most. Returns false
    /// when there is none.
    pub(super) fn begin(&mut self, bytes: usize, cost: u64) -> bool {
        let credit = bytes as u64 + SAMPLE_CREDIT;
        let fits =
            !self.ended && self.unclosed_bytes + credit <= self.granted && cost <= self.room();
        if fits {
            self.unclosed_bytes += credit;
        }
        fits
    }

    /// Returns the credit of a sample.
    pub(super) fn end(&mut self, bytes: usize) {
        self.unclosed_bytes -= bytes as u64 + SAMPLE_CREDIT;
    }

    /// Queues a sample, unless a newer one was queued before.
    pub(super) fn put_newest(&mut self, sample: LinkSample, account: &mut Account) -> QueueOutcome {
        if self.is_past(sample.sequence) {
            self.counters.superseded += 1;
            return QueueOutcome::Superseded;
        }
        self.next_sequence = sample.sequence.saturating_add(1);
        while self.queue.len() - self.kept >= self.qos.delivery.depth() {
            self.overwrite_oldest(account);
        }
        while !self.take_place(sample.payload.len(), account) {
            if self.queue.len() == self.kept {
                self.counters.refused += 1;
                return QueueOutcome::NoRoom;
            }
            self.overwrite_oldest(account);
        }
        self.put(sample);
        QueueOutcome::Queued
    }

    /// Takes memory for a sample in the queue. Returns false when there is none.
    pub(super) fn take_place(&mut self, bytes: usize, account: &mut Account) -> bool {
        let growth = if self.queue.len() == self.places {
            self.places.max(2)
        } else {
            0
        };
        let places = growth as u64 * QUEUE_PLACE;
        if !account.take(Size::Small, places) {
            return false;
        }
        if !account.take(Size::of(bytes), cost::payload(bytes)) {
            account.give(Size::Small, places);
            return false;
        }
        if growth > 0 {
            self.places += growth;
            self.queue.reserve_exact(self.places - self.queue.len());
        }
        true
    }

    /// Queues a sample that has a place.
    pub(super) fn put(&mut self, sample: LinkSample) {
        self.counters.delivered += 1;
        self.counters.delivered_bytes += sample.payload.len() as u64;
        if self
            .qos
            .deadline
            .is_some_and(|deadline| sample.age > deadline)
        {
            self.counters.late += 1;
        }
        self.queue.push_back(sample);
    }

    /// Takes the oldest sample off the queue.
    pub(super) fn pop(&mut self, account: &mut Account) -> Option<LinkSample> {
        self.kept = self.kept.saturating_sub(1);
        self.pop_at(0, account)
    }

    fn pop_at(&mut self, place: usize, account: &mut Account) -> Option<LinkSample> {
        let oldest = self.queue.remove(place)?;
        let bytes = oldest.payload.len();
        account.give(Size::of(bytes), cost::payload(bytes));
        if self.queue.is_empty() && self.places > IDLE_PLACES {
            account.give(Size::Small, self.places as u64 * QUEUE_PLACE);
            self.queue = VecDeque::new();
            self.places = 0;
        }
        Some(oldest)
    }

    /// Returns the memory of an empty queue.
    pub(super) fn free_queue(&mut self, account: &mut Account) {
        account.give(Size::Small, self.places as u64 * QUEUE_PLACE);
        self.places = 0;
    }

    fn overwrite_oldest(&mut self, account: &mut Account) {
        if self.pop_at(self.kept, account).is_some() {
            self.counters.overwritten += 1;
        }
    }

    /// Notes that the sender has given a sample up. Returns false when there is no memory for that.
    pub(super) fn note_skipped(&mut self, sequence: u64) -> bool {
        let ahead = self.next_sequence..self.next_sequence.saturating_add(SKIP_AHEAD);
        if !ahead.contains(&sequence)
            || self.waiting.contains_key(&sequence)
            || self.skipped.contains(&sequence)
        {
            return true;
        }
        // The next sequence is skipped at once.
        let fits = sequence == self.next_sequence || SKIPPED <= self.room();
        if fits {
            self.skipped.insert(sequence);
            self.cost += SKIPPED;
        }
        fits
    }

    /// Skips the next sample, if its sender has given it up.
    pub(super) fn skip(&mut self) -> bool {
        let skipped = self.skipped.remove(&self.next_sequence);
        if skipped {
            self.next_sequence += 1;
            self.cost -= SKIPPED;
        }
        skipped
    }
}
