//! Deadlines of the dataflow file: how often an input is expected (`expect_every`), and how long a
//! turn of the node's loop may take (`loop`).
//!
//! Both are checked by the node itself, on the dataflow's clock. They cost nothing where none is
//! declared.

use nervure_shm::ControlPage;
use std::time::Duration;

/// When an input that is due has a sample in its queue, it is checked again after this time.
const RECHECK_NANOS: u64 = 1_000_000;

/// An input on which a sample is expected at least once per period.
#[derive(Debug)]
pub(crate) struct Expected {
    /// Index of the input.
    pub(crate) input: usize,
    period_nanos: u64,
    /// Publication of the newest sample, or the start of the dataflow, on the dataflow's clock.
    newest: i64,
    /// When the input becomes stale, on the dataflow's clock; `None` until the dataflow starts, and
    /// when the input is closed.
    due: Option<i64>,
    /// Reports since the newest sample.
    reports: u64,
    is_closed: bool,
}

/// A report of an input that has had no sample for too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stale {
    /// Index of the input.
    pub(crate) input: usize,
    /// Time since its newest sample was published, or since the start.
    pub(crate) age: Duration,
    /// Reports since then, including this one.
    pub(crate) count: u64,
}

impl Expected {
    pub(crate) fn new(input: usize, period_nanos: u64) -> Self {
        Self {
            input,
            period_nanos: period_nanos.max(1),
            newest: i64::MIN,
            due: None,
            reports: 0,
            is_closed: false,
        }
    }

    /// The dataflow has started, or this node has in a running one. The first sample is expected
    /// within a period. Later calls change nothing.
    pub(crate) fn start(&mut self, now: i64) {
        if self.due.is_none() && !self.is_closed {
            self.newest = self.newest.max(now);
            self.expect();
        }
    }

    /// Resumes after a pause: a sample is expected within a period from now on.
    pub(crate) fn resume(&mut self, now: i64) {
        if self.due.is_some() {
            self.newest = self.newest.max(now);
            self.expect();
        }
    }

    /// Notes a sample that was published at `published`.
    pub(crate) fn sample(&mut self, published: i64) {
        // A sample from the history is older, and so may be the time that a faulty producer wrote.
        if published > self.newest {
            self.newest = published;
            self.reports = 0;
            if self.due.is_some() {
                self.expect();
            }
        }
    }

    /// Expects no more samples: the input is closed, which is an event of its own.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
        self.due = None;
    }

    /// When the input becomes stale, on the dataflow's clock.
    pub(crate) fn due(&self) -> Option<i64> {
        self.due
    }

    /// Checks again soon: a sample waits in the queue, so the input is not stale.
    pub(crate) fn postpone(&mut self, now: i64) {
        self.due = Some(now.saturating_add_unsigned(RECHECK_NANOS));
    }

    /// Reports the input as stale. Periods that passed without a check are merged into one report.
    pub(crate) fn take(&mut self, now: i64) -> Stale {
        let age = u64::try_from(now.saturating_sub(self.newest)).unwrap_or(0);
        let periods = age / self.period_nanos + 1;
        self.due = Some(
            self.newest
                .saturating_add_unsigned(periods.saturating_mul(self.period_nanos)),
        );
        self.reports += 1;
        Stale {
            input: self.input,
            age: Duration::from_nanos(age),
            count: self.reports,
        }
    }

    fn expect(&mut self) {
        self.due = Some(self.newest.saturating_add_unsigned(self.period_nanos));
    }
}

/// The deadline for a turn of the node's loop.
#[derive(Debug)]
pub(crate) struct LoopDeadline {
    /// Index of the input whose events start a turn.
    pub(crate) input: usize,
    finish_within_nanos: u64,
    /// Start of the turn, in nanoseconds of CLOCK_MONOTONIC.
    began: Option<u64>,
    missed: u64,
}

/// A turn of the loop that took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overrun {
    /// Index of the input whose event started the turn.
    pub(crate) input: usize,
    /// Time beyond the deadline.
    pub(crate) by: Duration,
    /// Overruns in this process, including this one.
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

    /// Starts a turn with a tick that was due at `due`, on the dataflow's clock. The turn starts
    /// when the tick was due, so that a late start counts as lateness.
    pub(crate) fn tick(&mut self, due: i64, clock: &ControlPage, now: u64) {
        self.began = Some(clock.monotonic_at(due).map_or(now, |due| due.min(now)));
    }

    /// Starts a turn with a sample that was taken from its queue at `taken`, in nanoseconds of
    /// CLOCK_MONOTONIC.
    pub(crate) fn sample(&mut self, taken: u64) {
        self.began = Some(taken);
    }

    /// Whether a turn has started and not ended.
    pub(crate) fn is_running(&self) -> bool {
        self.began.is_some()
    }

    /// Ends the turn without a check.
    pub(crate) fn cancel(&mut self) {
        self.began = None;
    }

    /// Ends the turn, if one is running. Returns by how much it missed the deadline.
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
    fn a_stale_input_is_reported_once_a_period_until_a_sample_arrives() {
        let mut expected = Expected::new(0, 100);
        expected.start(0);
        assert_eq!(expected.take(130), stale(130, 1));
        assert_eq!(expected.take(570), stale(570, 2));
        assert_eq!(
            expected.due(),
            Some(600),
            "the phase is kept, and missed periods count as one"
        );
        expected.sample(590);
        assert_eq!(expected.due(), Some(690));
        assert_eq!(expected.take(700), stale(110, 1));
    }

    #[test]
    fn the_period_starts_with_the_publication_of_a_sample() {
        let mut expected = Expected::new(0, 100);
        expected.start(0);
        expected.sample(-500);
        assert_eq!(expected.due(), Some(100), "an old one changes nothing");
        expected.sample(40);
        assert_eq!(expected.due(), Some(140));
        expected.postpone(150);
        assert!(expected.due().is_some_and(|due| due > 150));
        expected.close();
        // `start` is called with every message of the keeper once the dataflow has started.
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
    fn a_late_turn_is_reported_with_its_lateness() {
        let mut deadline = LoopDeadline::new(3, 20);
        assert_eq!(deadline.end(1000), None, "no turn was started");
        deadline.sample(1000);
        assert_eq!(deadline.end(1020), None, "in time");
        assert_eq!(deadline.end(2000), None, "the turn has ended already");
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
    fn the_turn_of_a_tick_starts_when_the_tick_was_due() {
        let (clock, _fd) = ControlPage::create().unwrap();
        clock.set(nervure_shm::RunState::Running, 1_000_000, 500, 1.0);
        let mut deadline = LoopDeadline::new(0, 20);
        deadline.tick(1_000_100, &clock, 615);
        assert_eq!(deadline.end(625).unwrap().by, Duration::from_nanos(5));
        clock.set(nervure_shm::RunState::Paused, 1_000_000, 500, 1.0);
        deadline.tick(1_000_100, &clock, 615);
        assert_eq!(deadline.end(625), None, "a paused clock gives no start");
    }
}
