//! Deadlines that the dataflow file sets: how often an input is expected, and how long the node's loop may take.
//!
//! Both are kept in the node's own wait, on the dataflow's clock, and cost nothing where none is declared.

use nervure_shm::ControlPage;
use std::time::Duration;

/// How soon an input is looked at again that is due and has a sample waiting.
const LOOK_AGAIN_NANOS: u64 = 1_000_000;

/// An input that is expected every so often.
#[derive(Debug)]
pub(crate) struct Expected {
    /// Index of the input.
    pub(crate) input: usize,
    period_nanos: u64,
    /// When its newest sample was published, or when the dataflow started, on the dataflow's clock.
    newest: i64,
    /// When the node is to be told next, on the dataflow's clock; `None` until the dataflow starts, and when the input
    /// is closed.
    due: Option<i64>,
    /// How often the node was told since the newest sample.
    told: u64,
    is_closed: bool,
}

/// An input that has had no sample for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stale {
    pub(crate) input: usize,
    /// Time since its newest sample was published, or since the start.
    pub(crate) age: Duration,
    /// How often the node was told since then, this time included.
    pub(crate) count: u64,
}

impl Expected {
    pub(crate) fn new(input: usize, period_nanos: u64) -> Self {
        Self {
            input,
            period_nanos: period_nanos.max(1),
            newest: i64::MIN,
            due: None,
            told: 0,
            is_closed: false,
        }
    }

    /// The dataflow starts, or this node does in one that runs: the first sample is expected within a period.
    pub(crate) fn start(&mut self, now: i64) {
        if self.due.is_none() && !self.is_closed {
            self.newest = self.newest.max(now);
            self.expect();
        }
    }

    /// A sample was taken that had been published at `published`.
    pub(crate) fn sample(&mut self, published: i64) {
        // One from the history, or of a producer that tells nonsense, is no newer than what was there.
        if published > self.newest {
            self.newest = published;
            self.told = 0;
            if self.due.is_some() {
                self.expect();
            }
        }
    }

    /// No sample will come any more, which the node is told otherwise.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
        self.due = None;
    }

    /// When the node is to be told, on the dataflow's clock.
    pub(crate) fn due(&self) -> Option<i64> {
        self.due
    }

    /// A sample waits, so that the node takes it and is told nothing.
    pub(crate) fn postpone(&mut self, now: i64) {
        self.due = Some(now.saturating_add_unsigned(LOOK_AGAIN_NANOS));
    }

    /// Says that it is stale. Periods that have passed unheard are merged into one.
    pub(crate) fn take(&mut self, now: i64) -> Stale {
        let age = u64::try_from(now.saturating_sub(self.newest)).unwrap_or(0);
        let periods = age / self.period_nanos + 1;
        self.due = Some(
            self.newest
                .saturating_add_unsigned(periods.saturating_mul(self.period_nanos)),
        );
        self.told += 1;
        Stale {
            input: self.input,
            age: Duration::from_nanos(age),
            count: self.told,
        }
    }

    fn expect(&mut self) {
        self.due = Some(self.newest.saturating_add_unsigned(self.period_nanos));
    }
}

/// The deadline of the node's loop.
#[derive(Debug)]
pub(crate) struct LoopDeadline {
    /// Index of the input whose events begin a turn.
    pub(crate) input: usize,
    finish_within_nanos: u64,
    /// When the turn began, in nanoseconds of CLOCK_MONOTONIC.
    began: Option<u64>,
    missed: u64,
}

/// A turn of the loop that took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overrun {
    pub(crate) input: usize,
    /// Time beyond the deadline.
    pub(crate) by: Duration,
    /// How often that was so in this process, this time included.
    pub(crate) count: u64,
}

impl LoopDeadline {
    pub(crate) fn new(input: usize, finish_within_nanos: u64) -> Self {
        Self {
            input,
            finish_within_nanos,
            began: None,
            missed: 0,
        }
    }

    /// A tick that was due at `due` (on the dataflow's clock) is handed to the node. Its turn began when it was due: a
    /// node that is late from the start is late.
    pub(crate) fn tick(&mut self, due: i64, clock: &ControlPage, now: u64) {
        self.began = Some(clock.monotonic_at(due).map_or(now, |due| due.min(now)));
    }

    /// A sample that was taken from its queue at `taken` (CLOCK_MONOTONIC) is handed to the node.
    pub(crate) fn sample(&mut self, taken: u64) {
        self.began = Some(taken);
    }

    /// Whether a turn is under way, whose end is to be told.
    pub(crate) fn is_running(&self) -> bool {
        self.began.is_some()
    }

    /// The node asks for its next event.
    pub(crate) fn end(&mut self, now: u64) -> Option<Overrun> {
        let took = now.saturating_sub(self.began.take()?);
        let by = took
            .checked_sub(self.finish_within_nanos)
            .filter(|&by| by > 0)?;
        self.missed += 1;
        Some(Overrun {
            input: self.input,
            by: Duration::from_nanos(by),
            count: self.missed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stale(age: u64, count: u64) -> Stale {
        Stale {
            input: 0,
            age: Duration::from_nanos(age),
            count,
        }
    }

    #[test]
    fn the_first_sample_is_expected_within_a_period_of_the_start() {
        let mut expected = Expected::new(0, 100);
        assert_eq!(expected.due(), None, "not started");
        expected.start(1000);
        expected.start(1050);
        assert_eq!(expected.due(), Some(1100), "started once");
        assert_eq!(expected.take(1100), stale(100, 1));
        assert_eq!(expected.due(), Some(1200));
    }

    #[test]
    fn it_is_told_once_a_period_until_a_sample_comes() {
        let mut expected = Expected::new(0, 100);
        expected.start(0);
        assert_eq!(expected.take(130), stale(130, 1));
        assert_eq!(expected.take(570), stale(570, 2));
        assert_eq!(
            expected.due(),
            Some(600),
            "the beat is kept, and what passed unheard is one"
        );
        expected.sample(590);
        assert_eq!(expected.due(), Some(690));
        assert_eq!(expected.take(700), stale(110, 1));
    }

    #[test]
    fn a_sample_counts_from_its_publication() {
        let mut expected = Expected::new(0, 100);
        expected.start(0);
        expected.sample(-500);
        assert_eq!(expected.due(), Some(100), "an old one changes nothing");
        expected.sample(40);
        assert_eq!(expected.due(), Some(140));
        expected.postpone(150);
        assert!(expected.due().is_some_and(|due| due > 150));
        expected.close();
        // That the dataflow has started is heard with each message of the keeper.
        expected.start(200);
        assert_eq!(expected.due(), None);
    }

    #[test]
    fn a_sample_before_the_start_does_not_shorten_the_first_period() {
        let mut expected = Expected::new(0, 100);
        expected.sample(40);
        assert_eq!(expected.due(), None);
        expected.start(500);
        assert_eq!(expected.due(), Some(600));
    }

    #[test]
    fn a_turn_that_is_late_is_told_by_how_much() {
        let mut deadline = LoopDeadline::new(3, 20);
        assert_eq!(deadline.end(1000), None, "no turn was begun");
        deadline.sample(1000);
        assert_eq!(deadline.end(1020), None, "in time");
        assert_eq!(deadline.end(2000), None, "it has ended");
        deadline.sample(3000);
        assert_eq!(
            deadline.end(3050),
            Some(Overrun {
                input: 3,
                by: Duration::from_nanos(30),
                count: 1
            })
        );
        deadline.sample(4000);
        assert_eq!(deadline.end(4021).unwrap().count, 2);
    }

    #[test]
    fn the_turn_of_a_tick_begins_when_it_was_due() {
        let (clock, _fd) = ControlPage::create().unwrap();
        clock.set(nervure_shm::RunState::Running, 1_000_000, 500, 1.0);
        let mut deadline = LoopDeadline::new(0, 20);
        deadline.tick(1_000_100, &clock, 615);
        assert_eq!(deadline.end(625).unwrap().by, Duration::from_nanos(5));
        clock.set(nervure_shm::RunState::Paused, 1_000_000, 500, 1.0);
        deadline.tick(1_000_100, &clock, 615);
        assert_eq!(
            deadline.end(625),
            None,
            "a clock that stands still says nothing"
        );
    }
}
