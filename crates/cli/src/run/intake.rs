//! Whether the consumer of an edge takes the samples that wait for it.

use std::time::Duration;

use super::edges::Totals;

/// A consumer that took nothing for less may be slow, or about to start.
const DECIDED_AFTER: Duration = Duration::from_secs(1);

/// What is known of a consumer from its counters.
#[derive(Debug, Default)]
pub struct Intake {
    received: u64,
    /// It took samples between the last two looks, or has taken some before the first.
    took: bool,
    /// Since when samples wait and none is taken.
    waiting_since: Option<Duration>,
    looked_at: Duration,
}

impl Intake {
    /// Takes in what the counters say at that time.
    pub fn look(&mut self, totals: &Totals, elapsed: Duration) {
        self.took = totals.input.received != self.received;
        self.received = totals.input.received;
        self.looked_at = elapsed;
        self.waiting_since = match (totals.queued(), self.took) {
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
    use nervure_shm::{InputCounters, OutputCounters};

    use super::*;

    fn look(intake: &mut Intake, seconds: u64, sent: u64, received: u64) {
        let totals = Totals {
            output: OutputCounters {
                sent,
                ..OutputCounters::default()
            },
            input: InputCounters {
                received,
                ..InputCounters::default()
            },
        };
        intake.look(&totals, Duration::from_secs(seconds));
    }

    #[test]
    fn a_consumer_that_takes_nothing_is_told_from_a_slow_one() {
        let mut intake = Intake::default();
        look(&mut intake, 1, 10, 0);
        assert!(intake.is_undecided());
        look(&mut intake, 5, 20, 0);
        assert_eq!(
            (intake.took_nothing_for(), intake.is_undecided()),
            (Some(Duration::from_secs(4)), false)
        );
        look(&mut intake, 6, 20, 1);
        assert_eq!(
            (intake.took_nothing_for(), intake.is_undecided()),
            (None, false),
            "it is slow"
        );
        look(&mut intake, 9, 20, 20);
        look(&mut intake, 20, 20, 20);
        assert_eq!(
            (intake.took_nothing_for(), intake.is_undecided()),
            (None, false),
            "nothing waits for it"
        );
    }
}
