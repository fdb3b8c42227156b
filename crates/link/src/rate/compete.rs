//! Beside a flow that fills the queue whatever the delay: claiming a share of the bottleneck.
//!
//! Copa (Arun and Balakrishnan, NSDI 2018, section 2.3) leaves its delay target when the queue never empties, and
//! becomes as aggressive as an AIMD flow; Copa+ (IEEE/ACM ToN 2023) found its way of doing so unfriendly to Cubic. Both
//! take loss as the sign to slow down, which on a lossy channel it is not. A loss-based flow grows until the queue
//! overflows, so it takes all free capacity, and it suffices to know the capacity and to take a share of it:
//!
//! - While we send less by `r`, the queue gets shorter by `r / capacity` every second, whatever else fills it and
//!   however long it was. So a drain measures our part of the traffic, and `capacity = our rate / our part`.
//! - If several claim more than there is, loss exceeds the channel's, and the claim shrinks.

/// A rate within this factor of the claimed one is near the claim.
const NEAR: f64 = 1.35;
/// Drains in a row near the claimed rate that settle a claim: a single drain may coincide with another flow's own step.
const SETTLING_DRAINS: u32 = 2;
/// A smaller part of the queue is lost among its own changes.
const LEAST_PART: f64 = 0.1;
/// Weight of the earlier drains, relative to the next one.
const FORGET: f64 = 0.5;
/// Excess loss shrinks the claim by this factor, at most once in [`SHRINK_INTERVAL_SECONDS`].
const SHRINK: f64 = 0.85;
const SHRINK_INTERVAL_SECONDS: f64 = 0.5;
/// A claim that was shrunk grows back by this share of the capacity a second.
const GROWTH: f64 = 0.02;

/// The capacity of a bottleneck, as measured by drains.
///
/// A single drain attributes changes of the others to us; over several drains, they cancel out.
#[derive(Clone, Copy, Debug, Default)]
pub struct Capacity {
    bytes: f64,
    seconds: f64,
}

impl Capacity {
    /// Adds a drain: holding back this many bytes made the queue this much shorter.
    pub fn add(&mut self, bytes: f64, seconds: f64) {
        self.bytes = FORGET * self.bytes + bytes;
        self.seconds = FORGET * self.seconds + seconds;
    }

    /// In bytes per second; infinite before the first drain.
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 {
            self.bytes / self.seconds
        } else {
            f64::INFINITY
        }
    }
}

/// A claim on a bottleneck. Rates in bytes per second, times in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// The share that is claimed, at most.
    full: f64,
    share: f64,
    capacity: f64,
    /// Drains in a row that left the claim near the rate before them.
    near: u32,
    last: f64,
    shrunk: f64,
}

impl Claim {
    /// Claims this share of the capacity, which is at least the largest rate `passed` before.
    pub fn new(time: f64, share: f64, passed: f64) -> Self {
        Self {
            full: share,
            share,
            capacity: passed,
            near: 0,
            last: time,
            shrunk: time,
        }
    }

    /// The rate that is claimed.
    pub fn rate(&mut self, time: f64) -> f64 {
        self.share = (self.share + GROWTH * (time - self.last)).min(self.full);
        self.last = time;
        self.share * self.capacity
    }

    /// A drain at our `rate` measured this capacity. The largest rate that passed in the last minute was `passed`.
    pub fn on_drain(&mut self, rate: f64, capacity: f64, passed: f64) {
        self.capacity = passed.max(capacity.min(rate / LEAST_PART));
        let claimed = self.share * self.capacity;
        let near = rate > claimed / NEAR && rate < claimed * NEAR;
        self.near = if near { self.near + 1 } else { 0 };
    }

    /// Whether the capacity was measured near the claimed rate, so that another drain can wait: at a much smaller rate,
    /// a drain measures little of it.
    pub fn is_settled(&self) -> bool {
        self.near >= SETTLING_DRAINS
    }

    /// Loss exceeds the channel's.
    pub fn on_excess_loss(&mut self, time: f64) {
        if time - self.shrunk > SHRINK_INTERVAL_SECONDS {
            self.share *= SHRINK;
            self.shrunk = time;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_change_during_single_drains_cancels_out() {
        let mut capacity = Capacity::default();
        assert_eq!(capacity.rate(), f64::INFINITY);
        // 100 KB less are 10 ms of 10 MB/s; another flow made it 1 and 19 ms.
        for milliseconds in [1.0, 19.0, 10.0, 1.0, 19.0, 10.0] {
            capacity.add(1e5, milliseconds * 1e-3);
        }
        assert!(
            (capacity.rate() / 1e7 - 1.0).abs() < 0.2,
            "{}",
            capacity.rate()
        );
    }

    #[test]
    fn no_more_is_claimed_than_our_part_of_the_queue_can_tell() {
        let mut claim = Claim::new(0.0, 0.5, 1e6);
        claim.on_drain(1e6, f64::INFINITY, 1e6);
        assert_eq!(claim.rate(0.0), 0.5 * 1e6 / LEAST_PART);
        claim.on_drain(5e6, 1e7, 5e6);
        assert_eq!(claim.rate(0.0), 5e6);
    }

    #[test]
    fn a_claim_settles_when_drains_at_its_own_rate_confirm_it() {
        let mut claim = Claim::new(0.0, 0.5, 1e6);
        for (rate, capacity, settled) in [
            (1e6, 1e7, false),
            (5e6, 1e7, false),
            (5e6, 1e7, true),
            (5e6, 2e7, false),
            (1e7, 2e7, false),
            (1e7, 2.2e7, true),
        ] {
            claim.on_drain(rate, capacity, rate);
            assert_eq!(claim.is_settled(), settled, "{rate} of {capacity}");
        }
    }
}
