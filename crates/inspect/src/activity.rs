//! Detects a consumer that does not take its queued samples.

use std::time::Duration;

/// A consumer that is idle for less than this may be slow, or about to start.
const DECIDED_AFTER: Duration = Duration::from_secs(1);

/// The activity of a consumer, from its counters.
#[derive(Debug, Default)]
pub struct ConsumerActivity {
    received: u64,
    /// Whether it took samples between the last two updates, or before the first one.
    took: bool,
    /// Since when samples are queued and none is taken.
    waiting_since: Option<Duration>,
    updated_at: Duration,
}

impl ConsumerActivity {
    /// Updates the activity with the queue length and the count of received samples at a time.
    pub fn update(&mut self, queued: u64, received: u64, elapsed: Duration) {
        self.took = received != self.received;
        self.received = received;
        self.updated_at = elapsed;
        self.waiting_since = match (queued, self.took) {
            (0, _) => None,
            (_, true) => Some(elapsed),
            (_, false) => Some(self.waiting_since.unwrap_or(elapsed)),
        };
    }

    /// Time without a taken sample although samples are queued; `None` below [`DECIDED_AFTER`].
    pub fn took_nothing_for(&self) -> Option<Duration> {
        let idle = self.updated_at.saturating_sub(self.waiting_since?);
        (idle >= DECIDED_AFTER).then_some(idle)
    }

    /// Whether only a later update can distinguish a slow consumer from one that takes nothing.
    pub fn is_undecided(&self) -> bool {
        self.waiting_since.is_some() && !self.took && self.took_nothing_for().is_none()
    }

    /// After this time no consumer is undecided any more.
    pub const fn decided_after() -> Duration {
        DECIDED_AFTER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_consumer_that_takes_nothing_is_not_a_slow_one() {
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
            "its queue is empty"
        );
    }
}
