//! The memory budget of a receiver, and the credit granted from it.

/// A quarter of the budget can be granted to streams: an assembly takes up to twice the length of
/// its sample, the sample and as much of repair shards. Half holds samples for the application.
const GRANT_SHARE: u64 = 4;
const QUEUE_SHARE: u64 = 2;
/// A stream is granted at most this part of what can be granted.
const STREAM_SHARE: u64 = 2;
/// The least that an opening stream is granted, in bytes, whatever the number of streams.
const OPENING_LEAST: u64 = 256;
/// The first streams to open share this part of what can be granted. Most links have no more
/// streams, so even large first samples need not request credit, which takes a round trip.
const OPENING_SHARE: u64 = 4;

#[derive(Debug)]
pub(super) struct Budget {
    limit: u64,
    granted: u64,
    queued: u64,
}

impl Budget {
    pub(super) fn new(limit: u64) -> Self {
        Self {
            limit,
            granted: 0,
            queued: 0,
        }
    }

    /// Raises a grant to `wanted`, or as far as possible. Returns the new grant, in bytes.
    pub(super) fn grant(&mut self, granted: u64, wanted: u64) -> u64 {
        let all = self.limit / GRANT_SHARE;
        let most = granted + (all - self.granted);
        let grant = wanted.min(all / STREAM_SHARE).min(most).max(granted);
        self.granted += grant - granted;
        grant
    }

    /// The first grant of an opening stream, in bytes: `wanted`, or less where little is left, so
    /// that `streams` can open; 0 if nothing is left.
    pub(super) fn grant_opening(&mut self, wanted: u64, streams: usize) -> u64 {
        let all = self.limit / GRANT_SHARE;
        let left = all - self.granted;
        // Each takes a part of what is left: after `streams`, one fiftieth is left.
        let share = match self.granted + wanted <= all / OPENING_SHARE {
            true => wanted,
            false => (left * 4 / streams.max(4) as u64).max(OPENING_LEAST),
        };
        self.grant(0, wanted.min(share))
    }

    /// Takes the grant of a stream back.
    pub(super) fn release(&mut self, granted: u64) {
        self.granted -= granted;
    }

    /// Takes memory for a sample in a queue. Returns false when there is none.
    pub(super) fn queue(&mut self, bytes: usize) -> bool {
        let fits = self.queued + bytes as u64 <= self.limit / QUEUE_SHARE;
        if fits {
            self.queued += bytes as u64;
        }
        fits
    }

    /// Returns the memory of a sample that left its queue.
    pub(super) fn unqueue(&mut self, bytes: usize) {
        self.queued -= bytes as u64;
    }

    pub(super) fn used(&self) -> u64 {
        self.granted * 2 + self.queued
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_streams_can_open_as_may() {
        let mut budget = Budget::new(1 << 30);
        let grants: Vec<_> = (0..16_384)
            .map(|_| budget.grant_opening(4 << 20, 16_384))
            .collect();
        assert_eq!(grants[..16], [4 << 20; 16]);
        assert!(grants[1000] > 36 << 10);
        assert!(grants.iter().all(|grant| *grant >= OPENING_LEAST));
    }

    #[test]
    fn grants_stay_within_the_budget() {
        let mut budget = Budget::new(4000);
        assert_eq!(budget.grant(0, 100), 100);
        assert_eq!(budget.grant(100, 10_000), 500);
        assert_eq!(budget.grant(0, 10_000), 500);
        assert_eq!(budget.grant(0, 1), 0);
        assert_eq!(budget.grant(500, 100), 500, "a grant is never taken back");
        budget.release(500);
        assert_eq!(budget.grant(0, 200), 200);
        assert!(budget.queue(2000));
        assert!(!budget.queue(1));
        budget.unqueue(1000);
        assert!(budget.queue(1));
        assert!(budget.used() <= 4000);
    }
}
