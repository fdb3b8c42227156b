//! A limit on the rate of a topic.

/// Takes the samples of a topic at most so often, by their times. The mean rate is the limit if more
/// samples are there, because the times at which one is due have a fixed distance.
#[derive(Clone, Debug, Default)]
pub(crate) struct Throttle {
    /// In nanoseconds; `None` for no limit.
    period: Option<u64>,
    /// When the next sample is due, in nanoseconds.
    due: Option<u64>,
}

impl Throttle {
    /// At most `hz` samples a second.
    pub(crate) fn new(hz: f64) -> Self {
        Self {
            period: Some((1e9 / hz) as u64),
            due: None,
        }
    }

    /// Whether the sample with this time is taken.
    pub(crate) fn takes(&mut self, time: u64) -> bool {
        let Some(period) = self.period else {
            return true;
        };
        let next = match self.due {
            Some(due) if time < due && due - time <= period => return false,
            Some(due) if time >= due && time - due < period => due,
            // The first sample, one after a gap, or the clock was set back.
            _ => time,
        };
        self.due = Some(next.saturating_add(period));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(hz: f64, times: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let mut throttle = Throttle::new(hz);
        times
            .into_iter()
            .filter(|time| throttle.takes(*time))
            .collect()
    }

    #[test]
    fn the_mean_rate_is_the_limit() {
        let hundred_hz = || (0..1000).map(|number| number * 10_000_000);
        for (hz, expected) in [(30.0, 300), (100.0, 1000), (1.0, 10), (500.0, 1000)] {
            assert_eq!(taken(hz, hundred_hz()).len(), expected, "{hz} Hz");
        }
        assert!(Throttle::default().takes(1));
    }

    #[test]
    fn gaps_and_clocks_that_go_back_begin_again() {
        let seconds = [10, 10, 100, 100, 3, 3, 4];
        let times = seconds.map(|second: u64| second * 1_000_000_000);
        assert_eq!(
            taken(1.0, times),
            [10, 100, 3, 4].map(|second: u64| second * 1_000_000_000)
        );
    }
}
