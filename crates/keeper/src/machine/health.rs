//! Nodes that hang: that do not start in time, or give no sign of life for too long.
//!
//! A node's signs of life are a count in its counters page. Whether it sleeps is there, too, and not in its wake page, to
//! which its peers can write. Neither costs the node a system call. The keeper looks there several times within the node's timeout. What hangs is
//! looked at once more, for the log, and killed: what follows is what follows from any failure.

use std::time::Duration;

/// Looks within a timeout: a node that hangs is noticed within its timeout and two looks more.
const LOOKS: u32 = 4;

/// How long a process that is asked for its stacks may take to write them.
pub(super) const STACKS_GRACE: Duration = Duration::from_millis(300);

/// What is seen of a living process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pulse {
    /// Signs of life so far.
    pub beats: u64,
    /// It waits for something that has not come: news, room, or the time of its next timer.
    pub is_waiting: bool,
}

/// The health checks of a process.
#[derive(Debug, Default)]
pub(super) struct Health {
    /// The timeout of its start, and when it ends, until it is connected and ready.
    start: Option<(Duration, Duration)>,
    check_at: Option<Duration>,
    /// Beats when it was last seen neither to wait nor to have given a sign of life, and since when that is so.
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
        self.check_at = timeout.map(|timeout| now + timeout / LOOKS);
    }

    /// When a check is due.
    pub fn deadline(&self) -> Option<Duration> {
        let start_by = self.start.map(|(_, by)| by);
        start_by.into_iter().chain(self.check_at).min()
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
            self.check_at = timeout.map(|timeout| now + timeout / LOOKS);
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
    fn only_stillness_counts_and_from_when_it_was_first_seen() {
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
            "whoever waits is well"
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
