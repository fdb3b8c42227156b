//! The schedule by the dataflow's clock: ticks of timers, and inputs that become stale.

use super::deadlines::{Expected, Stale};
use super::timer::{Tick, Timer};
use crate::sample::Sample;
use nervure_protocol::wiring::{InputSpec, Source};
use nervure_shm::ControlPage;

#[derive(Debug)]
pub(super) struct Schedule {
    timers: Vec<Timer>,
    expected: Vec<Expected>,
}

/// An item of the schedule, by its index.
#[derive(Clone, Copy, Debug)]
pub(super) enum DueItem {
    Timer(usize),
    Expected(usize),
}

impl Schedule {
    pub(super) fn new(inputs: &[InputSpec]) -> Self {
        let timer = |(index, input): (usize, &InputSpec)| match input.source {
            Source::Timer { period_nanos } => Some(Timer::new(index, period_nanos)),
            Source::Output { .. } => None,
        };
        let expected = |(index, input): (usize, &InputSpec)| {
            Some(Expected::new(index, input.expect_every_nanos?))
        };
        Self {
            timers: inputs.iter().enumerate().filter_map(timer).collect(),
            expected: inputs.iter().enumerate().filter_map(expected).collect(),
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.timers.is_empty() && self.expected.is_empty()
    }

    pub(super) fn timers(&self) -> usize {
        self.timers.len()
    }

    /// Starts all items, once; later calls change nothing. `now` is on the dataflow's clock.
    pub(super) fn start(&mut self, now: i64) {
        for timer in &mut self.timers {
            timer.start(now);
        }
        for expected in &mut self.expected {
            expected.start(now);
        }
    }

    /// Resumes after a pause, which makes no input stale.
    pub(super) fn resume(&mut self, now: i64) {
        for expected in &mut self.expected {
            expected.resume(now);
        }
    }

    /// The item that is due first, and when, on the dataflow's clock.
    pub(super) fn next_due(&self) -> Option<(i64, DueItem)> {
        if self.is_empty() {
            return None;
        }
        let timers = self.timers.iter().enumerate();
        let timers = timers.filter_map(|(at, timer)| Some((timer.due()?, DueItem::Timer(at))));
        let expected = self.expected.iter().enumerate();
        let expected = expected.filter_map(|(at, it)| Some((it.due()?, DueItem::Expected(at))));
        timers.chain(expected).min_by_key(|(due, _)| *due)
    }

    pub(super) fn take_tick(&mut self, timer: usize, now: i64) -> Option<Tick> {
        self.timers[timer].take(now)
    }

    /// Takes a stale input, unless `has_queued` finds a sample in its queue: then the input is
    /// checked again soon.
    pub(super) fn take_stale(
        &mut self,
        expected: usize,
        now: i64,
        has_queued: impl FnOnce(u32) -> bool,
    ) -> Option<Stale> {
        let expected = &mut self.expected[expected];
        if has_queued(expected.input as u32) {
            expected.postpone(now);
            return None;
        }
        Some(expected.take(now))
    }

    /// Notes when a sample was published, if its input is expected at an interval.
    pub(super) fn note_published(&mut self, input: usize, sample: &Sample, clock: &ControlPage) {
        if self.expected.is_empty() {
            return;
        }
        if let Some(expected) = self.expected.iter_mut().find(|it| it.input == input) {
            // The producer wrote this time, so it may be any number.
            let published = sample
                .header()
                .publish_mono
                .min(sample.raw().received_mono());
            expected.sample(clock.read(published).1);
        }
    }

    /// Expects no more samples of an input.
    pub(super) fn close(&mut self, input: usize) {
        self.expected
            .iter_mut()
            .filter(|it| it.input == input)
            .for_each(Expected::close);
    }
}
