//! When a recorded message is due again.

/// Maps times of a recording to readings of CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// Seconds of the recording a second; `None` for as fast as possible.
    rate: Option<f64>,
    /// A time of the recording, and when it was played.
    anchor: Option<(u64, u64)>,
}

impl Pace {
    pub(crate) fn new(rate: Option<f64>) -> Self {
        Self { rate, anchor: None }
    }

    /// When a message of that time is due, in nanoseconds of CLOCK_MONOTONIC. The first one is due at once.
    pub(crate) fn due(&mut self, time: u64, now: u64) -> u64 {
        let Some(rate) = self.rate else { return now };
        let (first, began) = *self.anchor.get_or_insert((time, now));
        let elapsed = time.saturating_sub(first) as f64 / rate;
        began.saturating_add(elapsed as u64)
    }

    /// Begins anew with the next message.
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
        assert_eq!(due.map(|(time, now)| pace.due(time, now)), [50, 50, 300, 1050, 50]);
        pace.restart();
        assert_eq!(pace.due(1000, 5000), 5000);
        assert_eq!(Pace::new(None).due(77, 5), 5);
    }
}
