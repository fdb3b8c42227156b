//! Settings that change over time.

use std::time::Duration;

use crate::{Outage, Settings, nanos};

/// The settings of one direction over time: each holds until the next.
///
/// ```
/// use std::time::Duration;
/// use nervure_linkemu::{Schedule, Settings};
///
/// let second = Duration::from_secs(1);
/// let schedule = Schedule::from(Settings { rate_bits_per_second: Some(300_000_000), ..Settings::default() })
///     .change(10 * second, |settings| settings.rate_bits_per_second = Some(30_000_000))
///     .during(12 * second, 2 * second, |settings| settings.loss = 0.4);
/// assert_eq!(schedule.at(13 * second).rate_bits_per_second, Some(30_000_000));
/// assert_eq!(schedule.at(13 * second).loss, 0.4);
/// assert_eq!(schedule.at(14 * second).loss, 0.0);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// Ordered by time; the first begins at 0.
    steps: Vec<Step>,
    /// The period, in nanoseconds, after which the schedule repeats.
    period: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Step {
    at: u64,
    settings: Settings,
}

/// A stretch of time with the same settings.
pub(crate) struct Piece<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) since: u64,
    pub(crate) until: u64,
}

impl From<Settings> for Schedule {
    fn from(settings: Settings) -> Self {
        Self {
            steps: vec![Step { at: 0, settings }],
            period: None,
        }
    }
}

impl Schedule {
    /// `first`, then the given settings from the given nanoseconds on, in order of time.
    pub(crate) fn steps(first: Settings, later: impl Iterator<Item = (u64, Settings)>) -> Self {
        let mut schedule = Self::from(first);
        for (at, settings) in later {
            if at == 0 {
                schedule.steps.clear();
            }
            schedule.steps.push(Step { at, settings });
        }
        schedule
    }

    /// Changes the settings from `at` on, in everything that was scheduled there before.
    #[must_use]
    pub fn change(mut self, at: Duration, change: impl Fn(&mut Settings)) -> Self {
        self.apply(nanos(at), u64::MAX, change);
        self
    }

    /// Changes the settings from `at` on for the time `lasting`.
    #[must_use]
    pub fn during(
        mut self,
        at: Duration,
        lasting: Duration,
        change: impl Fn(&mut Settings),
    ) -> Self {
        self.apply(nanos(at), nanos(at.saturating_add(lasting)), change);
        self
    }

    /// Interrupts the link from `at` on for the time `lasting`: packets are sent and lost.
    #[must_use]
    pub fn outage(self, at: Duration, lasting: Duration) -> Self {
        self.during(at, lasting, |settings| settings.outage = Some(Outage::Lose))
    }

    /// Repeats the schedule after every `period`. A period of zero changes nothing.
    #[must_use]
    pub fn repeat_every(mut self, period: Duration) -> Self {
        self.period = Some(nanos(period)).filter(|&period| period > 0);
        self
    }

    /// The settings in force at a time.
    pub fn at(&self, time: Duration) -> &Settings {
        self.piece(nanos(time)).settings
    }

    /// The stretch of equal settings around a time.
    pub(crate) fn piece(&self, time: u64) -> Piece<'_> {
        let cycle = self.period.map_or(0, |period| time - time % period);
        let local = time - cycle;
        let next = self.steps.partition_point(|step| step.at <= local);
        let current = &self.steps[next - 1];
        let until = self
            .steps
            .get(next)
            .map_or(u64::MAX, |step| step.at)
            .min(self.period.unwrap_or(u64::MAX));
        Piece {
            settings: &current.settings,
            since: cycle + current.at,
            until: if until == u64::MAX {
                u64::MAX
            } else {
                cycle.saturating_add(until)
            },
        }
    }

    /// The length of a cycle, and the integral of `amount` per nanosecond over it; `None` where it
    /// has no bound.
    pub(crate) fn cycle(&self, amount: impl Fn(&Settings) -> Option<u64>) -> Option<(u64, u128)> {
        let period = self.period?;
        let mut sum = 0;
        let ends = self
            .steps
            .iter()
            .skip(1)
            .map(|step| step.at)
            .chain([u64::MAX]);
        for (step, end) in self
            .steps
            .iter()
            .zip(ends)
            .filter(|(step, _)| step.at < period)
        {
            sum += u128::from(amount(&step.settings)?) * u128::from(end.min(period) - step.at);
        }
        Some((period, sum))
    }

    fn apply(&mut self, from: u64, until: u64, change: impl Fn(&mut Settings)) {
        if from >= until {
            return;
        }
        self.split(from);
        self.split(until);
        for step in self
            .steps
            .iter_mut()
            .filter(|step| from <= step.at && step.at < until)
        {
            change(&mut step.settings);
        }
    }

    /// Makes a step begin at `at`, with the settings in force there.
    fn split(&mut self, at: u64) {
        let next = self.steps.partition_point(|step| step.at <= at);
        let current = self.steps[next - 1];
        if current.at < at && at < u64::MAX {
            self.steps.insert(next, Step { at, ..current });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn loss(value: f64) -> impl Fn(&mut Settings) {
        move |settings| settings.loss = value
    }

    #[test]
    fn later_changes_win_and_stretches_end() {
        let schedule = Schedule::from(Settings::default())
            .during(2 * SECOND, 4 * SECOND, loss(0.2))
            .change(4 * SECOND, |settings| settings.delay = SECOND)
            .change(5 * SECOND, loss(0.5));
        let seen: Vec<_> = (0..8)
            .map(|second| schedule.at(second * SECOND).loss)
            .collect();
        assert_eq!(seen, [0.0, 0.0, 0.2, 0.2, 0.2, 0.5, 0.5, 0.5]);
        assert_eq!(schedule.at(3 * SECOND).delay, Duration::ZERO);
        assert_eq!(schedule.at(7 * SECOND).delay, SECOND);
    }

    #[test]
    fn a_schedule_repeats_after_its_period() {
        let schedule = Schedule::from(Settings::default())
            .change(SECOND, loss(1.0))
            .repeat_every(3 * SECOND);
        let seen: Vec<_> = (0..7)
            .map(|second| schedule.at(second * SECOND).loss)
            .collect();
        assert_eq!(seen, [0.0, 1.0, 1.0, 0.0, 1.0, 1.0, 0.0]);
        let piece = schedule.piece(nanos(SECOND * 7 / 2));
        assert_eq!(
            (piece.since, piece.until),
            (nanos(3 * SECOND), nanos(4 * SECOND))
        );
    }

    #[test]
    fn nothing_changes_for_no_time() {
        let schedule =
            Schedule::from(Settings::default()).during(SECOND, Duration::ZERO, loss(1.0));
        assert_eq!(schedule, Schedule::from(Settings::default()));
    }
}
