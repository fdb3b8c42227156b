//! The counters of an edge and of an input, as values and as rows of a counters page.

use crate::atomics::{AtomicU64, Ordering::Relaxed};
use crate::histogram::{Histogram, bucket_of, saturating_sum};

/// Words of an output row.
pub(crate) const OUTPUT_WORDS: usize = 16;
/// Words of an input row before its histogram.
pub(crate) const INPUT_WORDS: usize = 16;
/// Upper limit of a plausible counter: an exabyte, or 36 years in nanoseconds.
pub(crate) const MAX_COUNT: u64 = 1 << 60;

/// Why the counters of a node cannot be read: the node has overwritten its page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CountersError {
    /// The constants at the beginning of the page changed.
    #[error("the head of its counters page was overwritten")]
    Head,
    /// The page has no such row.
    #[error("its counters page has {rows} rows of that kind, and row {row} was expected")]
    Row {
        /// Index of the row.
        row: u32,
        /// Rows of that kind in the page.
        rows: u32,
    },
    /// A counter is implausibly large.
    #[error("a counter reads {value}, which is impossibly large")]
    Value {
        /// Its value.
        value: u64,
    },
}

/// Counters of an edge at its producer.
///
/// All values are sums over every process of the producer (see
/// [`crate::CountersPage::create_after`]) and of the consumer: a restarted consumer has another
/// edge and the same row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputCounters {
    /// Samples queued.
    pub sent: u64,
    /// Payload bytes of the queued samples.
    pub bytes: u64,
    /// Queued samples dropped to make room for newer ones.
    pub dropped_oldest: u64,
    /// New samples dropped because the queue was full.
    pub dropped_newest: u64,
    /// Samples missed because the consumer already held `max_held` blocks.
    pub missed_held: u64,
    /// Samples missed because the producer's memory budget was used up.
    pub missed_memory: u64,
    /// Samples missed because the consumer did not accept a segment in time.
    pub missed_control: u64,
    /// Samples missed because the consumer had no process and was awaited.
    pub missed_away: u64,
    /// Queued samples dropped with the queue, because the consumer was awaited and its next process
    /// does not inherit the queue.
    pub dropped_away: u64,
    /// Samples that the consumer had taken and still held when it died; it was restarted.
    pub lost_in_crash: u64,
    /// Samples that were queued when the consumer left for good. They do not count as lost.
    pub undelivered: u64,
    /// Nanoseconds that the producer waited for this edge.
    pub blocked_nanos: u64,
}

impl OutputCounters {
    /// Samples published for this edge, whether they were queued or missed.
    pub fn published(&self) -> u64 {
        saturating_sum([
            self.sent,
            self.dropped_newest,
            self.missed_held,
            self.missed_memory,
            self.missed_control,
            self.missed_away,
        ])
    }

    /// Samples in the queue, beside the counts of the consumer.
    pub fn queued(&self, input: &InputCounters) -> u64 {
        [
            input.received,
            input.lost,
            self.dropped_oldest,
            self.dropped_away,
            self.undelivered,
        ]
        .into_iter()
        .fold(self.sent, u64::saturating_sub)
    }

    /// Samples published that the consumer had no chance to use, for whatever cause.
    pub fn lost(&self) -> u64 {
        saturating_sum([
            self.dropped_oldest,
            self.dropped_newest,
            self.missed_held,
            self.missed_memory,
            self.missed_control,
            self.missed_away,
            self.dropped_away,
            self.lost_in_crash,
        ])
    }
}

/// Counters of an input at its consumer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InputCounters {
    /// Samples taken from the queue.
    pub received: u64,
    /// Payload bytes of the received samples.
    pub bytes: u64,
    /// Blocks that the consumer views now.
    pub held: u64,
    /// Samples for a previous process whose queue or memory was gone with their producer.
    pub lost: u64,
    /// Times that the node was notified of a stale input: no sample came for as long as it expects
    /// one.
    pub stale: u64,
    /// Events of this input that the node's loop handled later than its deadline.
    pub deadlines_missed: u64,
    /// Longest overrun of that deadline, in nanoseconds.
    pub max_overrun_nanos: u64,
    /// Received samples that the node did not use: without a partner in time (`sync`), or a transform
    /// that is not valid.
    pub unused: u64,
    /// Time from publication until the consumer took the sample.
    pub latency: Histogram,
}

/// Adds to a counter whose only writer is the caller.
#[inline]
pub(crate) fn add(word: &AtomicU64, amount: u64) {
    word.store(word.load(Relaxed).wrapping_add(amount), Relaxed);
}

/// Raises a maximum whose only writer is the caller.
#[inline]
fn raise(word: &AtomicU64, value: u64) {
    if value > word.load(Relaxed) {
        word.store(value, Relaxed);
    }
}

pub(crate) fn check_values(words: &[AtomicU64]) -> Result<(), CountersError> {
    let too_large = words
        .iter()
        .map(|word| word.load(Relaxed))
        .find(|&value| value > MAX_COUNT);
    too_large.map_or(Ok(()), |value| Err(CountersError::Value { value }))
}

pub(crate) fn copy(from: &[AtomicU64], to: &[AtomicU64]) {
    for (from, to) in from.iter().zip(to) {
        to.store(from.load(Relaxed), Relaxed);
    }
}

/// A producer's row: one edge of an output.
pub(crate) struct OutputRow<'a>(pub(crate) &'a [AtomicU64]);

/// Index of a counter in an [`OutputRow`].
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
    MissedAway,
    DroppedAway,
}

impl OutputRow<'_> {
    #[inline]
    pub(crate) fn add(&self, counter: OutputCounter, amount: u64) {
        add(&self.0[counter as usize], amount);
    }

    /// Zeroes the row, for another edge.
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
            missed_away: word(OutputCounter::MissedAway),
            dropped_away: word(OutputCounter::DroppedAway),
        }
    }
}

/// A consumer's row: one input.
pub(crate) struct InputRow<'a> {
    pub(crate) counters: &'a [AtomicU64],
    pub(crate) buckets: &'a [AtomicU64],
}

impl InputRow<'_> {
    const RECEIVED: usize = 0;
    const BYTES: usize = 1;
    pub(crate) const HELD: usize = 2;
    const MAX_LATENCY: usize = 3;
    pub(crate) const LOST: usize = 4;
    const STALE: usize = 5;
    const DEADLINES_MISSED: usize = 6;
    const MAX_OVERRUN: usize = 7;
    const UNUSED: usize = 8;

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

    pub(crate) fn unused(&self, samples: u64) {
        add(&self.counters[Self::UNUSED], samples);
    }

    pub(crate) fn missed_deadline(&self, overrun_nanos: u64) {
        add(&self.counters[Self::DEADLINES_MISSED], 1);
        raise(&self.counters[Self::MAX_OVERRUN], overrun_nanos);
    }

    /// Views are dropped by any thread, so this counter is atomic.
    #[inline]
    pub(crate) fn hold(&self) {
        self.counters[Self::HELD].fetch_add(1, Relaxed);
    }

    #[inline]
    pub(crate) fn release(&self) {
        self.counters[Self::HELD].fetch_sub(1, Relaxed);
    }

    #[inline]
    pub(crate) fn held(&self) -> u64 {
        self.counters[Self::HELD].load(Relaxed)
    }

    pub(crate) fn read(&self) -> InputCounters {
        let counts = self.buckets.iter().map(|word| word.load(Relaxed));
        let max_nanos = self.counters[Self::MAX_LATENCY].load(Relaxed);
        InputCounters {
            received: self.counters[Self::RECEIVED].load(Relaxed),
            bytes: self.counters[Self::BYTES].load(Relaxed),
            held: self.counters[Self::HELD].load(Relaxed),
            lost: self.counters[Self::LOST].load(Relaxed),
            stale: self.counters[Self::STALE].load(Relaxed),
            deadlines_missed: self.counters[Self::DEADLINES_MISSED].load(Relaxed),
            max_overrun_nanos: self.counters[Self::MAX_OVERRUN].load(Relaxed),
            unused: self.counters[Self::UNUSED].load(Relaxed),
            latency: Histogram::of(counts, max_nanos),
        }
    }
}
