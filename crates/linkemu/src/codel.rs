//! CoDel: drops or marks at the head of a queue whose delay stays above a target.
//!
//! (K. Nichols, V. Jacobson, A. McGregor, J. Iyengar, "Controlled Delay Active Queue Management",
//! RFC 8289, section 5, whose names are kept.)

use crate::{Aqm, nanos};

/// Below this the queue holds no more than the packet in transmission. (RFC 8289: `maxpacket`.)
const MAX_PACKET_BYTES: u64 = 1514;
/// A drop rate that was right is resumed when the queue stands again within as many intervals.
/// (RFC 8289, section 5.5.)
const RESUME_INTERVALS: u64 = 16;

/// Decision on the packet at the head of the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Send it.
    Send,
    /// Signal congestion: mark it if possible; otherwise drop it and decide on the next one.
    Signal,
}

/// The state of one queue. Times in nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct CoDel {
    /// When the delay will have been above the target for an interval; `None` below the target.
    first_above_time: Option<u64>,
    dropping: bool,
    drop_next: u64,
    count: u64,
    last_count: u64,
}

impl CoDel {
    /// The queue is empty.
    pub(crate) fn on_empty(&mut self) {
        self.first_above_time = None;
    }

    /// Decides on the packet at the head, which waited for `sojourn`. `bytes_behind` wait behind
    /// it. After [`Decision::Signal`] and a drop, decide on the next one in the same way.
    pub(crate) fn decide(
        &mut self,
        aqm: &Aqm,
        now: u64,
        sojourn: u64,
        bytes_behind: u64,
    ) -> Decision {
        let interval = nanos(aqm.interval).max(1);
        let above = self.is_above(aqm, now, sojourn, bytes_behind, interval);
        if self.dropping {
            if !above {
                self.dropping = false;
            } else if now >= self.drop_next {
                self.count += 1;
                self.drop_next = control_law(self.drop_next, interval, self.count);
                return Decision::Signal;
            }
            return Decision::Send;
        }
        if !above {
            return Decision::Send;
        }
        self.dropping = true;
        let delta = self.count.saturating_sub(self.last_count);
        let recently = now.saturating_sub(self.drop_next) < RESUME_INTERVALS * interval;
        self.count = if delta > 1 && recently { delta } else { 1 };
        self.drop_next = control_law(now, interval, self.count);
        self.last_count = self.count;
        Decision::Signal
    }

    fn is_above(
        &mut self,
        aqm: &Aqm,
        now: u64,
        sojourn: u64,
        bytes_behind: u64,
        interval: u64,
    ) -> bool {
        if sojourn < nanos(aqm.target) || bytes_behind <= MAX_PACKET_BYTES {
            self.first_above_time = None;
            return false;
        }
        let since = *self
            .first_above_time
            .get_or_insert(now.saturating_add(interval));
        now >= since
    }
}

/// The time of the next drop: drops become more frequent with the square root of their number, to
/// which the throughput of a TCP flow is inversely proportional.
fn control_law(time: u64, interval: u64, count: u64) -> u64 {
    time.saturating_add((interval as f64 / (count as f64).sqrt()) as u64)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MILLI: u64 = 1_000_000;

    fn signals(sojourn: impl Fn(u64) -> u64, millis: u64) -> Vec<u64> {
        let aqm = Aqm {
            target: Duration::from_millis(5),
            interval: Duration::from_millis(100),
            fair: false,
            ecn: false,
        };
        let mut codel = CoDel::default();
        (0..millis)
            .filter(|&at| {
                codel.decide(&aqm, at * MILLI, sojourn(at) * MILLI, 100_000) == Decision::Signal
            })
            .collect()
    }

    #[test]
    fn a_short_queue_and_a_burst_pass() {
        assert_eq!(signals(|_| 4, 1000), [0; 0]);
        assert_eq!(signals(|at| if at < 90 { 50 } else { 1 }, 1000), [0; 0]);
    }

    #[test]
    fn a_standing_queue_is_signalled_more_and_more_often() {
        // The first after an interval; then interval / sqrt(count) apart.
        let expected = [100, 200, 271, 329, 379, 424, 464, 502];
        assert_eq!(signals(|_| 20, 510), expected);
    }

    #[test]
    fn a_queue_that_comes_back_soon_meets_the_former_rate() {
        let back = signals(|at| if (600..620).contains(&at) { 1 } else { 20 }, 1000);
        let after: Vec<u64> = back.into_iter().filter(|&at| at >= 620).collect();
        assert_eq!(after[0], 720);
        assert!(after[1] - after[0] < 50, "{after:?}");
    }

    #[test]
    fn the_last_packet_is_never_dropped() {
        let aqm = Aqm::default();
        let mut codel = CoDel::default();
        for at in 0..1000 {
            let decision = codel.decide(&aqm, at * MILLI, 500 * MILLI, 0);
            assert_eq!(decision, Decision::Send);
        }
    }
}
