//! Beside a flow that fills the queue whatever the delay: claiming a share of the bottleneck.
//!
//! Copa (Arun and Balakrishnan, NSDI 2018, section 2.3) leaves its delay target when the queue never empties, and
//! becomes as aggressive as an AIMD flow; Copa+ (IEEE/ACM ToN 2023) found its way of doing so unfriendly to Cubic. Both
//! take loss as the sign to slow down, which on a lossy channel it is not. But a loss-based flow takes exactly what the
//! others leave (it grows until the queue overflows), so it is enough to know the capacity and to take a share of it:
//!
//! - While we send less by `r`, the queue gets shorter by `r / capacity` every second, whoever else fills it and however
//!   long it was. So a drain tells our part of the traffic, and `capacity = our rate / our part`.
//! - If several claim more than there is, loss exceeds the channel's, and the claim shrinks.

/// Our part of the queue is known well from here on.
const CLEAR_PART: f64 = 0.2;
/// A smaller part is not seen among the queue's own changes.
const LEAST_PART: f64 = 0.05;
/// Excess loss shrinks the claim by this factor, at most once in [`PATIENCE`] seconds.
const SHRINK: f64 = 0.85;
const PATIENCE: f64 = 0.5;
/// A claim that was shrunk grows back by so much a second, relative to the capacity.
const GROWTH: f64 = 0.02;

/// A claim on a bottleneck. Rates in bytes per second, times in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Claim {
    /// The share that is claimed, at most.
    full: f64,
    share: f64,
    capacity: f64,
    measured: bool,
    last: f64,
    shrunk: f64,
}

impl Claim {
    /// Claims this share of the capacity, which is at least what has passed before.
    pub fn new(time: f64, share: f64, passed: f64) -> Self {
        Self { full: share, share, capacity: passed, measured: false, last: time, shrunk: time }
    }

    /// The rate that is claimed.
    pub fn rate(&mut self, time: f64) -> f64 {
        self.share = (self.share + GROWTH * (time - self.last)).min(self.full);
        self.last = time;
        self.share * self.capacity
    }

    /// While we held back, the queue fell by this part of what it would have, were all the traffic ours. Our rate was
    /// `rate`; the largest that passed in the last minute was `passed`.
    pub fn on_drain(&mut self, rate: f64, part: f64, passed: f64) {
        let seen = rate / part.max(LEAST_PART);
        // The others' own changes while we held back are taken for ours.
        let capacity = if self.measured { 0.5 * (self.capacity + seen) } else { seen };
        self.measured = part >= CLEAR_PART;
        self.capacity = passed.max(capacity);
    }

    /// Whether the capacity was measured, so that another drain can wait.
    pub fn is_measured(&self) -> bool {
        self.measured
    }

    /// More is lost than the channel loses.
    pub fn on_excess_loss(&mut self, time: f64) {
        if time - self.shrunk > PATIENCE {
            self.share *= SHRINK;
            self.shrunk = time;
        }
    }
}
