//! The good and bad times of a direction.

use crate::random::{Purpose, exponential, unit};
use crate::{Bursts, nanos};

/// Walks the good and bad times forward.
#[derive(Default)]
pub(crate) struct BurstWalk {
    of: Option<Bursts>,
    bad: bool,
    until: u64,
    periods: u64,
}

impl BurstWalk {
    /// Whether `time` lies in a burst. `since` is when `bursts` came into force. Time does not run
    /// backwards: earlier times count as the latest one.
    pub(crate) fn is_bad(&mut self, bursts: &Bursts, since: u64, time: u64, key: u64) -> bool {
        if bursts.good_mean.is_zero() || bursts.bad_mean.is_zero() {
            return bursts.good_mean.is_zero() && !bursts.bad_mean.is_zero();
        }
        if self.of.as_ref() != Some(bursts) {
            // The chain starts in its steady state, so that a short run loses as much as a long
            // one.
            let (good, bad) = (
                nanos(bursts.good_mean) as f64,
                nanos(bursts.bad_mean) as f64,
            );
            self.of = Some(*bursts);
            self.bad = unit(key, self.periods, Purpose::BurstStart) * (good + bad) < bad;
            self.until = since.saturating_add(self.draw(bursts, key));
        }
        while self.until <= time {
            self.bad = !self.bad;
            // Even a draw of zero moves on.
            self.until = self.until.saturating_add(self.draw(bursts, key).max(1));
        }
        self.bad
    }

    fn draw(&mut self, bursts: &Bursts, key: u64) -> u64 {
        let mean = if self.bad {
            bursts.bad_mean
        } else {
            bursts.good_mean
        };
        self.periods += 1;
        exponential(key, self.periods, Purpose::BurstLength, nanos(mean))
    }
}
