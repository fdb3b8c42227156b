//! The memory that the peers of an endpoint can make it keep: one budget for all, with a share for
//! each.
//!
//! Half of the budget is for arriving data: grants, samples in assembly or waiting for their
//! predecessors, and the state of streams and transmissions. The other half is for samples in the
//! application's queues. A quarter of each half is divided evenly among the peers, and serves only
//! small items: control messages, open streams, and samples and grants of at most [`SMALL_BYTES`].
//! So no other peer, and no large sample, can take that room. The rest is common. A peer may use at
//! most three times as much of it as it leaves free ([dynamic thresholds]: Choudhury and Hahne,
//! "Dynamic Queue Length Thresholds for Shared-Memory Packet Switches", IEEE/ACM Transactions on
//! Networking 6, 1998): one peer alone gets three quarters, and `n` peers that take all they can
//! leave `1 / (1 + 3 n)` of it to the next.
//!
//! [dynamic thresholds]: https://doi.org/10.1109/90.664262

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// Largest sample or grant, in bytes, that is a small item.
pub const SMALL_BYTES: u64 = 4096;

/// Largest fraction of the common part that one peer alone can use.
const THRESHOLD: (u64, u64) = (3, 4);

/// The budget of an endpoint. Clones share it.
#[derive(Clone, Debug)]
pub struct Budget {
    pub(crate) arriving: Arc<Pool>,
    pub(crate) queued: Arc<Pool>,
}

impl Budget {
    /// A budget of `bytes`, with shares for `peers` peers. Further peers use only the common part.
    pub fn new(bytes: u64, peers: usize) -> Self {
        let pool = || Arc::new(Pool::new(bytes / 2, peers));
        Self {
            arriving: pool(),
            queued: pool(),
        }
    }
}

/// Memory that accounts draw on.
#[derive(Debug)]
pub(crate) struct Pool {
    /// Bytes for each peer's small items.
    guaranteed: u64,
    common: u64,
    /// Bytes of the common part in use.
    drawn: AtomicU64,
}

impl Pool {
    fn new(bytes: u64, peers: usize) -> Self {
        let peers = peers.max(1) as u64;
        let guaranteed = bytes / 4 / peers;
        Self {
            guaranteed,
            common: bytes - guaranteed * peers,
            drawn: AtomicU64::new(0),
        }
    }

    /// The most that one peer can have for large items, in bytes.
    pub(crate) fn most_large(&self) -> u64 {
        self.common / THRESHOLD.1 * THRESHOLD.0
    }
}

/// Size class of a charged item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    Small,
    Large,
}

impl Size {
    /// The size of a sample of this length.
    pub(crate) fn of(bytes: usize) -> Self {
        if bytes as u64 <= SMALL_BYTES {
            Self::Small
        } else {
            Self::Large
        }
    }
}

/// One peer's use of a pool, in bytes.
#[derive(Debug)]
pub(crate) struct Account {
    pool: Arc<Pool>,
    small: u64,
    large: u64,
}

impl Account {
    pub(crate) fn new(pool: &Arc<Pool>) -> Self {
        Self {
            pool: Arc::clone(pool),
            small: 0,
            large: 0,
        }
    }

    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Bytes in use.
    pub(crate) fn used(&self) -> u64 {
        self.small + self.large
    }

    /// Bytes that can be taken.
    pub(crate) fn room(&self, size: Size) -> u64 {
        let draw = self.draw();
        let left = self
            .pool
            .common
            .saturating_sub(self.pool.drawn.load(Ordering::Relaxed));
        let most = (left + draw) / THRESHOLD.1 * THRESHOLD.0;
        let common = most.saturating_sub(draw);
        match size {
            Size::Large => common,
            Size::Small => common + self.pool.guaranteed.saturating_sub(self.small),
        }
    }

    /// Takes memory. Returns false when there is none.
    pub(crate) fn take(&mut self, size: Size, bytes: u64) -> bool {
        let fits = bytes <= self.room(size);
        if fits {
            self.force(size, bytes);
        }
        fits
    }

    /// Takes memory that is needed in any case, or whose room was checked before.
    pub(crate) fn force(&mut self, size: Size, bytes: u64) {
        let before = self.draw();
        *self.part(size) += bytes;
        self.pool
            .drawn
            .fetch_add(self.draw() - before, Ordering::Relaxed);
    }

    /// Returns memory.
    pub(crate) fn give(&mut self, size: Size, bytes: u64) {
        let before = self.draw();
        *self.part(size) -= bytes;
        self.pool
            .drawn
            .fetch_sub(before - self.draw(), Ordering::Relaxed);
    }

    /// Changes a charge for small items to its true value.
    pub(crate) fn settle(&mut self, charge: &mut u64, bytes: u64) {
        if bytes > *charge {
            self.force(Size::Small, bytes - *charge);
        } else if bytes < *charge {
            self.give(Size::Small, *charge - bytes);
        }
        *charge = bytes;
    }

    /// Bytes in use of the common part.
    fn draw(&self) -> u64 {
        self.large + self.small.saturating_sub(self.pool.guaranteed)
    }

    fn part(&mut self, size: Size) -> &mut u64 {
        match size {
            Size::Small => &mut self.small,
            Size::Large => &mut self.large,
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.pool.drawn.fetch_sub(self.draw(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes all that an account can have, in steps.
    fn fill(account: &mut Account, size: Size, step: u64) {
        while account.take(size, step) {}
    }

    #[test]
    fn every_peer_has_room_whatever_others_take() {
        let pool = Arc::new(Pool::new(1 << 20, 8));
        let mut greedy: Vec<_> = (0..7).map(|_| Account::new(&pool)).collect();
        for account in &mut greedy {
            fill(account, Size::Large, 64);
            fill(account, Size::Small, 64);
        }
        let mut honest = Account::new(&pool);
        assert!(honest.take(Size::Small, (1 << 20) / 4 / 8));
        let used: u64 = greedy.iter().map(Account::used).sum::<u64>() + honest.used();
        assert!(used <= 1 << 20, "{used} bytes of 2^20");
        drop((greedy, honest));
        assert_eq!(pool.drawn.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn large_items_leave_room_for_small_ones_and_for_another_peer() {
        let pool = Arc::new(Pool::new(1 << 20, 4));
        let [mut first, mut second] = [(); 2].map(|()| Account::new(&pool));
        fill(&mut first, Size::Large, 64);
        assert!(first.used() > pool.most_large() - 64 && first.used() <= pool.most_large());
        assert!(first.room(Size::Large) < 64);
        assert!(first.take(Size::Small, 1 << 16));
        // A quarter of the common part is left; the second peer gets three quarters of that.
        let common = 3 << 18;
        assert!(second.take(Size::Large, common / 4 / 4 * 3 - 64));
        first.give(Size::Large, 1 << 18);
        assert!(second.take(Size::Large, 1 << 16));
    }
}
