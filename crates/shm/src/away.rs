//! Consumers of an output that have no edge, because their process is gone, and that may return.
//!
//! The queue of an edge that drops ends with the consumer's process. If another process follows,
//! the queued samples and those sent meanwhile are lost to the consumer, apart from the samples of
//! the history. If none follows, the queue was undelivered, and later samples were for no consumer.

use crate::counter_rows::OutputCounter;
use crate::counters::CountersPage;

/// A consumer without an edge.
#[derive(Debug)]
pub(crate) struct AwayConsumer {
    /// The row of its edges in the producer's counters.
    pub(crate) row: u32,
    returns: bool,
    /// Samples in its last queue that are not counted yet.
    queued: u64,
    /// Samples sent since then that are not counted yet.
    sent: u64,
    /// Samples without memory since then that are not counted yet.
    unsent: u64,
}

impl AwayConsumer {
    pub(crate) fn new(row: u32) -> Self {
        Self {
            row,
            returns: false,
            queued: 0,
            sent: 0,
            unsent: 0,
        }
    }

    /// Its last edge ended with `queued` samples.
    pub(crate) fn take_queue(&mut self, queued: u64, counters: &CountersPage) {
        self.queued += queued;
        self.settle(u64::MAX, counters);
    }

    /// Another process of it will follow.
    pub(crate) fn will_return(&mut self, history_depth: usize, counters: &CountersPage) {
        self.returns = true;
        self.settle(history_depth as u64, counters);
    }

    /// A sample was sent.
    pub(crate) fn miss(&mut self, history_depth: usize, counters: &CountersPage) {
        self.sent += 1;
        self.settle(history_depth as u64, counters);
    }

    /// A sample found no memory, so that the history does not have it. Counted as missed while away: the
    /// receipt of the sample, as any, is of the edges alone.
    pub(crate) fn miss_without_memory(&mut self, counters: &CountersPage) {
        self.unsent += 1;
        self.settle(u64::MAX, counters);
    }

    /// The next process is there, and gets the last `from_history` samples.
    pub(crate) fn returned(mut self, from_history: u64, counters: &CountersPage) {
        self.returns = true;
        self.settle(from_history, counters);
    }

    /// No other process follows.
    pub(crate) fn ended(self, counters: &CountersPage) {
        count(counters, self.row, OutputCounter::Undelivered, self.queued);
    }

    /// Counts the losses, apart from the last `spared` samples sent, if the consumer returns.
    fn settle(&mut self, spared: u64, counters: &CountersPage) {
        if !self.returns {
            return;
        }
        let queued = std::mem::take(&mut self.queued);
        count(counters, self.row, OutputCounter::DroppedAway, queued);
        let missed = self.sent.saturating_sub(spared);
        self.sent -= missed;
        let missed = missed + std::mem::take(&mut self.unsent);
        count(counters, self.row, OutputCounter::MissedAway, missed);
    }
}

fn count(counters: &CountersPage, row: u32, counter: OutputCounter, amount: u64) {
    if let Some(row) = counters.output_row(row) {
        row.add(counter, amount);
    }
}
