//! What cannot be taken from a socket for lack of a resource, and is tried again.

const SHORTEST_PAUSE_NANOS: u64 = 1_000_000;
const LONGEST_PAUSE_NANOS: u64 = 100_000_000;

/// A packet that waits in a socket. The pause between two tries doubles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shortfall {
    /// The edge that it is for.
    pub(crate) edge: u32,
    since: u64,
    pause: u64,
    again: u64,
}

impl Shortfall {
    /// Of a first try at `now`, in nanoseconds.
    pub(crate) fn new(edge: u32, now: u64) -> Self {
        Self {
            edge,
            since: now,
            pause: SHORTEST_PAUSE_NANOS,
            again: now + SHORTEST_PAUSE_NANOS,
        }
    }

    /// When to try again.
    pub(crate) fn again(&self) -> u64 {
        self.again
    }

    /// Another try was in vain.
    pub(crate) fn failed_again(&mut self, now: u64) {
        self.pause = (self.pause * 2).min(LONGEST_PAUSE_NANOS);
        self.again = now + self.pause;
    }

    /// Nanoseconds since the first try.
    pub(crate) fn age(&self, now: u64) -> u64 {
        now.saturating_sub(self.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_limit() {
        let mut shortfall = Shortfall::new(3, 0);
        let mut now = 0;
        let mut pauses = Vec::new();
        for _ in 0..9 {
            pauses.push((shortfall.again() - now) / SHORTEST_PAUSE_NANOS);
            now = shortfall.again();
            shortfall.failed_again(now);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 100, 100]);
        assert_eq!(shortfall.age(now), 327 * SHORTEST_PAUSE_NANOS);
    }
}
