//! When recorded messages are due during playback.

/// Maps log times of a recording to the player's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Recorded seconds per second of playback; `None` for as fast as possible.
    rate: Option<f64>,
    anchor: Option<Anchor>,
}

/// A log time and the moment at which it is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Anchor {
    /// Nanoseconds since the Unix epoch.
    pub(crate) time: u64,
    /// Nanoseconds of the player's clock, which stands still while the dataflow is paused.
    pub(crate) at: u64,
}

impl Pace {
    pub(crate) fn new(rate: Option<f64>) -> Self {
        Self { rate, anchor: None }
    }

    /// Whether messages are due at a certain time at all.
    pub(crate) fn has_rate(&self) -> bool {
        self.rate.is_some()
    }

    /// When a message with log time `time` is due, in nanoseconds of the player's clock. The first
    /// message is due at once.
    pub(crate) fn due(&mut self, time: u64, now: u64) -> u64 {
        let Some(rate) = self.rate else { return now };
        let anchor = *self.anchor.get_or_insert(Anchor { time, at: now });
        let elapsed = time.saturating_sub(anchor.time) as f64 / rate;
        anchor.at.saturating_add(elapsed as u64)
    }

    /// The log time that playback has reached at `now`; `None` before the first message or without
    /// a rate.
    pub(crate) fn time_at(&self, now: u64) -> Option<u64> {
        let (anchor, rate) = (self.anchor?, self.rate?);
        let elapsed = now.saturating_sub(anchor.at) as f64 * rate;
        Some(anchor.time.saturating_add(elapsed as u64))
    }

    /// Continues from a log time that was reached late: everything that follows shifts.
    pub(crate) fn resume(&mut self, anchor: Anchor) {
        self.anchor = Some(anchor);
    }

    /// Starts again with the next message.
    pub(crate) fn restart(&mut self) {
        self.anchor = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_due_at_the_recorded_pace_times_the_rate() {
        let mut pace = Pace::new(Some(2.0));
        let due = [(1000, 50), (1000, 60), (1500, 70), (3000, 80), (900, 90)];
        assert_eq!(
            due.map(|(time, now)| pace.due(time, now)),
            [50, 50, 300, 1050, 50]
        );
        assert_eq!(pace.time_at(300), Some(1500));
        pace.restart();
        assert_eq!(pace.due(1000, 5000), 5000);
        assert_eq!(Pace::new(None).due(77, 5), 5);
    }

    #[test]
    fn a_delay_shifts_all_later_messages() {
        let mut pace = Pace::new(Some(1.0));
        assert_eq!((pace.due(100, 0), pace.due(150, 10)), (0, 50));
        pace.resume(Anchor { time: 150, at: 500 });
        assert_eq!(pace.due(160, 500), 510);
    }
}
