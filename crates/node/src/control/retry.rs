//! Packets that cannot be taken from a socket for lack of a resource, and are tried again.

const MIN_PAUSE_NANOS: u64 = 1_000_000;
const MAX_PAUSE_NANOS: u64 = 100_000_000;

/// When to try a packet again that waits in its socket. The pause between two attempts doubles.
/// Times are in nanoseconds of CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Retry {
    /// The edge that the packet is for.
    pub(super) edge: u32,
    first_attempt: u64,
    pause: u64,
    next_attempt: u64,
}

impl Retry {
    /// After a first attempt that failed at `now`.
    pub(super) fn new(edge: u32, now: u64) -> Self {
        Self {
            edge,
            first_attempt: now,
            pause: MIN_PAUSE_NANOS,
            next_attempt: now + MIN_PAUSE_NANOS,
        }
    }

    pub(super) fn next_attempt(&self) -> u64 {
        self.next_attempt
    }

    /// Notes that another attempt failed at `now`.
    pub(super) fn failed_again(&mut self, now: u64) {
        self.pause = (self.pause * 2).min(MAX_PAUSE_NANOS);
        self.next_attempt = now + self.pause;
    }

    /// Nanoseconds since the first attempt.
    pub(super) fn age(&self, now: u64) -> u64 {
        now.saturating_sub(self.first_attempt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_limit() {
        let mut retry = Retry::new(3, 0);
        let mut now = 0;
        let mut pauses = Vec::new();
        for _ in 0..9 {
            pauses.push((retry.next_attempt() - now) / MIN_PAUSE_NANOS);
            now = retry.next_attempt();
            retry.failed_again(now);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 100, 100]);
        assert_eq!(retry.age(now), 327 * MIN_PAUSE_NANOS);
    }
}
