//! What is counted for an edge and for an input, and the words in which it stands.

use crate::atomics::{AtomicU64, Ordering::Relaxed};
use crate::histogram::{Histogram, bucket_of, saturating_sum};

/// Words of a row of the outputs' edges.
pub(crate) const OUTPUT_WORDS: usize = 16;
/// Words of an input's row before its histogram.
pub(crate) const INPUT_WORDS: usize = 16;
/// No counter gets beyond this: an exabyte, or 36 years in nanoseconds.
pub(crate) const MAX_COUNT: u64 = 1 << 60;

/// Why the counters of a node cannot be read: it has overwritten its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// The constants at the begin of the page changed.
    #[error("the head of its counters page was overwritten")]
    Head,
    /// The page has no such row.
    #[error("its counters page has {rows} rows of that kind, and row {row} was expected")]
    Row {
        /// The row.
        row: u32,
        /// How many there are.
        rows: u32,
    },
    /// A value that nothing can have counted.
    #[error("a counter reads {value}, which nothing can have counted")]
    Value {
        /// What it reads.
        value: u64,
    },
}

/// What happened on an edge, as its producer counts it. All are sums over every process of the producer (see
/// [`CountersPage::create_after`]) and of the consumer: one that is restarted has another edge and the same row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputCounters {
    /// Samples put into the queue.
    pub sent: u64,
    /// Payload bytes of those.
    pub bytes: u64,
    /// Queued samples that made room for newer ones.
    pub dropped_oldest: u64,
    /// New samples that found the queue full.
    pub dropped_newest: u64,
    /// Samples missed because the consumer held as many blocks as it may.
    pub missed_held: u64,
    /// Samples missed because the producer's memory budget was used up.
    pub missed_memory: u64,
    /// Samples missed because the consumer did not accept a segment in time.
    pub missed_control: u64,
    /// Samples that a consumer had taken, and still held, when it died and was restarted.
    pub lost_in_crash: u64,
    /// Samples that were queued when the consumer left or died for good: nobody is there to miss them.
    pub undelivered: u64,
    /// Nanoseconds that the producer waited for this edge.
    pub blocked_nanos: u64,
}

impl OutputCounters {
    /// Samples that were published for this edge: those in the queue, and those that did not get that far.
    pub fn published(&self) -> u64 {
        saturating_sum([
            self.sent,
            self.dropped_newest,
            self.missed_held,
            self.missed_memory,
            self.missed_control,
        ])
    }

    /// Samples that were published and that the consumer had no chance to use, whatever the cause.
    pub fn lost(&self) -> u64 {
        saturating_sum([
            self.dropped_oldest,
            self.dropped_newest,
            self.missed_held,
            self.missed_memory,
            self.missed_control,
            self.lost_in_crash,
        ])
    }
}

/// What happened on an input, as its consumer counts it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InputCounters {
    /// Samples taken from the queue.
    pub received: u64,
    /// Payload bytes of those.
    pub bytes: u64,
    /// Blocks that views of the consumer hold now.
    pub held: u64,
    /// Samples that it inherited, and whose memory had gone with their producer.
    pub lost: u64,
    /// Times that it was told that no sample came for as long as it expects one.
    pub stale: u64,
    /// Events of this input for which its loop took longer than it may.
    pub deadlines_missed: u64,
    /// Longest time beyond that deadline, in nanoseconds.
    pub max_overrun_nanos: u64,
    /// Time from publication until the consumer took the sample.
    pub latency: Histogram,
}

/// Adds to a counter of which the caller is the only writer.
#[inline]
pub(crate) fn add(word: &AtomicU64, amount: u64) {
    word.store(word.load(Relaxed).wrapping_add(amount), Relaxed);
}

/// Raises a maximum of which the caller is the only writer.
#[inline]
fn raise(word: &AtomicU64, value: u64) {
    if value > word.load(Relaxed) {
        word.store(value, Relaxed);
    }
}

pub(crate) fn check_values(words: &[AtomicU64]) -> Result<(), Unreadable> {
    let too_large = words
        .iter()
        .map(|word| word.load(Relaxed))
        .find(|&value| value > MAX_COUNT);
    too_large.map_or(Ok(()), |value| Err(Unreadable::Value { value }))
}

pub(crate) fn copy(from: &[AtomicU64], to: &[AtomicU64]) {
    for (from, to) in from.iter().zip(to) {
        to.store(from.load(Relaxed), Relaxed);
    }
}

/// A producer's row.
pub(crate) struct OutputRow<'a>(pub(crate) &'a [AtomicU64]);

/// Words of an [`OutputRow`].
#[derive(Clone, Copy)]
pub(crate) enum OutputCounter {
    Sent,
    Bytes,
    DroppedOldest,
    DroppedNewest,
    MissedHeld,
    MissedMemory,
    MissedControl,
    LostInCrash,
    BlockedNanos,
    Undelivered,
}

impl OutputRow<'_> {
    #[inline]
    pub(crate) fn add(&self, counter: OutputCounter, amount: u64) {
        add(&self.0[counter as usize], amount);
    }

    /// The row is another edge's from now on.
    pub(crate) fn clear(&self) {
        for word in self.0 {
            word.store(0, Relaxed);
        }
    }

    pub(crate) fn read(&self) -> OutputCounters {
        let word = |counter: OutputCounter| self.0[counter as usize].load(Relaxed);
        OutputCounters {
            sent: word(OutputCounter::Sent),
            bytes: word(OutputCounter::Bytes),
            dropped_oldest: word(OutputCounter::DroppedOldest),
            dropped_newest: word(OutputCounter::DroppedNewest),
            missed_held: word(OutputCounter::MissedHeld),
            missed_memory: word(OutputCounter::MissedMemory),
            missed_control: word(OutputCounter::MissedControl),
            lost_in_crash: word(OutputCounter::LostInCrash),
            blocked_nanos: word(OutputCounter::BlockedNanos),
            undelivered: word(OutputCounter::Undelivered),
        }
    }
}

/// A consumer's row.
pub(crate) struct InputRow<'a> {
    pub(crate) counters: &'a [AtomicU64],
    pub(crate) buckets: &'a [AtomicU64],
}

impl InputRow<'_> {
    const RECEIVED: usize = 0;
    const BYTES: usize = 1;
    pub(crate) const HELD: usize = 2;
    const MAX_LATENCY: usize = 3;
    const LOST: usize = 4;
    const STALE: usize = 5;
    const DEADLINES_MISSED: usize = 6;
    const MAX_OVERRUN: usize = 7;

    #[inline]
    pub(crate) fn received(&self, bytes: u64, latency_nanos: u64) {
        add(&self.counters[Self::RECEIVED], 1);
        add(&self.counters[Self::BYTES], bytes);
        add(&self.buckets[bucket_of(latency_nanos)], 1);
        raise(&self.counters[Self::MAX_LATENCY], latency_nanos);
    }

    #[inline]
    pub(crate) fn lost(&self) {
        add(&self.counters[Self::LOST], 1);
    }

    pub(crate) fn stale(&self) {
        add(&self.counters[Self::STALE], 1);
    }

    pub(crate) fn missed_deadline(&self, overrun_nanos: u64) {
        add(&self.counters[Self::DEADLINES_MISSED], 1);
        raise(&self.counters[Self::MAX_OVERRUN], overrun_nanos);
    }

    /// Views are dropped by any thread: this one is counted atomically.
    #[inline]
    pub(crate) fn hold(&self) {
        self.counters[Self::HELD].fetch_add(1, Relaxed);
    }

    #[inline]
    pub(crate) fn release(&self) {
        self.counters[Self::HELD].fetch_sub(1, Relaxed);
    }

    pub(crate) fn read(&self) -> InputCounters {
        let mut latency = Histogram::default();
        for (bucket, word) in latency.buckets.iter_mut().zip(self.buckets) {
            *bucket = word.load(Relaxed);
        }
        latency.max_nanos = self.counters[Self::MAX_LATENCY].load(Relaxed);
        InputCounters {
            received: self.counters[Self::RECEIVED].load(Relaxed),
            bytes: self.counters[Self::BYTES].load(Relaxed),
            held: self.counters[Self::HELD].load(Relaxed),
            lost: self.counters[Self::LOST].load(Relaxed),
            stale: self.counters[Self::STALE].load(Relaxed),
            deadlines_missed: self.counters[Self::DEADLINES_MISSED].load(Relaxed),
            max_overrun_nanos: self.counters[Self::MAX_OVERRUN].load(Relaxed),
            latency,
        }
    }
}
