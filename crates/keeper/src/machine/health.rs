//! Health checks: nodes that do not start in time, or give no sign of life for too long, are
//! killed.
//!
//! A node's signs of life are a count in its counters page. Whether it sleeps is there, too, and
//! not in its wake page, to which its peers can write. Neither costs the node a system call. The
//! keeper reads both several times within the node's timeout. The threads of a node that hangs are
//! logged before it is killed; its end is then a failure like any other.

use std::time::Duration;

/// Checks per timeout: a node that hangs is noticed within its timeout and two more check
/// intervals.
const CHECKS_PER_TIMEOUT: u32 = 4;

/// Longest time that a process has to write its stacks before it is killed.
pub(super) const STACKS_GRACE: Duration = Duration::from_millis(300);

/// The signs of life of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pulse {
    /// The number of its signs of life so far.
    pub beats: u64,
    /// It waits for samples, for room in a queue, or for its next timer.
    pub is_waiting: bool,
}

/// The health checks of a process.
#[derive(Debug, Default)]
pub(super) struct Health {
    /// The timeout of its start, and when it ends, until it is connected and ready.
    start: Option<(Duration, Duration)>,
    check_at: Option<Duration>,
    /// The beats while it has neither waited nor given a sign of life, and since when.
    still: Option<(u64, Duration)>,
}

impl Health {
    /// Its process was started.
    pub fn started(timeout: Option<Duration>, now: Duration) -> Self {
        Self {
            start: timeout.map(|timeout| (timeout, now + timeout)),
            ..Self::default()
        }
    }

    /// It is connected and ready.
    pub fn ready(&mut self, timeout: Option<Duration>, now: Duration) {
        self.start = None;
        self.check_at = timeout.map(|timeout| now + timeout / CHECKS_PER_TIMEOUT);
    }

    /// When a check is due.
    pub fn deadline(&self) -> Option<Duration> {
        let start_by = self.start.map(|(_, by)| by);
        start_by.into_iter().chain(self.check_at).min()
    }

    /// A pause of the dataflow has ended: it counts neither for the start nor for signs of life.
    pub fn resume(&mut self, paused_for: Duration) {
        for at in self
            .start
            .iter_mut()
            .map(|(_, by)| by)
            .chain(&mut self.check_at)
        {
            *at += paused_for;
        }
        self.still = None;
    }

    /// The timeout of its start, when that has passed.
    pub fn missed_start(&self, now: Duration) -> Option<Duration> {
        let (timeout, by) = self.start?;
        (by <= now).then_some(timeout)
    }

    /// True when its signs of life are to be read, and sets when they are to be read next.
    pub fn take_due_check(&mut self, timeout: Option<Duration>, now: Duration) -> bool {
        let is_due = self.check_at.is_some_and(|at| at <= now);
        if is_due {
            self.check_at = timeout.map(|timeout| now + timeout / CHECKS_PER_TIMEOUT);
        }
        is_due
    }

    /// True from when it is ready.
    pub fn is_checked(&self) -> bool {
        self.check_at.is_some()
    }

    /// Takes a reading. Returns for how long there was no sign of life.
    pub fn see(&mut self, pulse: Pulse, now: Duration) -> Duration {
        let is_still =
            !pulse.is_waiting && self.still.is_some_and(|(beats, _)| beats == pulse.beats);
        if !is_still {
            self.still = (!pulse.is_waiting).then_some((pulse.beats, now));
        }
        self.still
            .map_or(Duration::ZERO, |(_, since)| now.saturating_sub(since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn only_time_without_a_sign_of_life_counts() {
        let mut health = Health::default();
        let works = |beats| Pulse {
            beats,
            is_waiting: false,
        };
        let waits = |beats| Pulse {
            beats,
            is_waiting: true,
        };
        assert_eq!(health.see(works(1), at(0)), at(0));
        assert_eq!(health.see(works(1), at(100)), at(100));
        assert_eq!(health.see(works(2), at(200)), at(0), "a sign of life");
        assert_eq!(health.see(works(2), at(300)), at(100));
        assert_eq!(
            health.see(waits(2), at(400)),
            at(0),
            "a node that waits does not hang"
        );
        assert_eq!(health.see(waits(2), at(9000)), at(0));
        assert_eq!(
            health.see(works(2), at(9100)),
            at(0),
            "it may have woken just now"
        );
        assert_eq!(health.see(works(2), at(9200)), at(100));
    }
}
