//! Whether the consumer of an edge takes the samples that wait for it.

use std::time::Duration;

/// A consumer that took nothing for less may be slow, or about to start.
const DECIDED_AFTER: Duration = Duration::from_secs(1);

/// What is known of a consumer from its counters.
#[derive(Debug, Default)]
pub struct ConsumerActivity {
    received: u64,
    /// It took samples between the last two looks, or has taken some before the first.
    took: bool,
    /// Since when samples wait and none is taken.
    waiting_since: Option<Duration>,
    looked_at: Duration,
}

impl ConsumerActivity {
    /// Takes in what the counters say at that time.
    pub fn update(&mut self, queued: u64, received: u64, elapsed: Duration) {
        self.took = received != self.received;
        self.received = received;
        self.looked_at = elapsed;
        self.waiting_since = match (queued, self.took) {
            (0, _) => None,
            (_, true) => Some(elapsed),
            (_, false) => Some(self.waiting_since.unwrap_or(elapsed)),
        };
    }

    /// For how long it has taken nothing although samples wait; `None` when that is too short to mean anything.
    pub fn took_nothing_for(&self) -> Option<Duration> {
        let idle = self.looked_at.saturating_sub(self.waiting_since?);
        (idle >= DECIDED_AFTER).then_some(idle)
    }

    /// Whether a later look will tell a slow consumer from one that takes nothing.
    pub fn is_undecided(&self) -> bool {
        self.waiting_since.is_some() && !self.took && self.took_nothing_for().is_none()
    }

    /// How long to look until nothing is undecided.
    pub const fn decided_after() -> Duration {
        DECIDED_AFTER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_consumer_that_takes_nothing_is_told_from_a_slow_one() {
        let mut activity = ConsumerActivity::default();
        activity.update(10, 0, Duration::from_secs(1));
        assert!(activity.is_undecided());
        activity.update(20, 0, Duration::from_secs(5));
        assert_eq!(
            (activity.took_nothing_for(), activity.is_undecided()),
            (Some(Duration::from_secs(4)), false)
        );
        activity.update(19, 1, Duration::from_secs(6));
        assert_eq!(
            (activity.took_nothing_for(), activity.is_undecided()),
            (None, false),
            "it is slow"
        );
        activity.update(0, 20, Duration::from_secs(9));
        activity.update(0, 20, Duration::from_secs(20));
        assert_eq!(
            (activity.took_nothing_for(), activity.is_undecided()),
            (None, false),
            "nothing waits for it"
        );
    }
}
