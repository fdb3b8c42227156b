//! The descriptor ring of one edge: one producer and one consumer. The producer may also take back
//! the oldest descriptor.
//!
//! Fields (in the edge's region):
//! - `head`: number of descriptors ever pushed. Written by the producer, which keeps its own copy.
//! - `tail`: number of descriptors ever taken. Advanced by compare-and-exchange: by the consumer to
//!   pop, by the producer only to drop the oldest.
//! - `slots`: `capacity` descriptors of `SLOT_WORDS` words, at index modulo `capacity`, a power of
//!   two.
//! - `leases`: one word per block of the output; 1 from the push until the consumer dropped its
//!   last view.
//!
//! The consumer copies a slot and then claims it by its exchange on `tail`. The producer overwrites
//! a slot only after it saw `tail` beyond it (acquire) or advanced `tail` itself. In the latter
//! case the consumer's exchange fails, and the consumer discards its copy, which may be torn.
//!
//! Orderings beyond the obvious ones (release to publish, acquire to see):
//! - The producer acquires `tail` also where its exchange fails, because it then overwrites a slot
//!   that the consumer has read.
//! - The consumer's exchange need not acquire, because its load of `head` does.
//! - The consumer's release of `tail`, and of the lease, guarantees that it has finished reading
//!   before the slot, or the block, is overwritten.
//!
//! Each side distrusts all memory that the other can write. Counters that are further apart than
//! the capacity are a [`RingError`], after which the edge is cut off.

use super::sync::{AtomicU32, AtomicU64, Ordering::*};

/// Pop attempts after which the producer counts as hostile. An honest one makes a few attempts
/// fail.
const MAX_POP_ATTEMPTS: u32 = 1_000_000;

/// The counters of a ring are invalid: the peer overwrote them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// `head` and `tail` are further apart than the capacity.
    #[error("the ring's counters are {distance} apart, its capacity is {capacity}")]
    Counters {
        /// `head` minus `tail`.
        distance: u64,
        /// Slots of the ring.
        capacity: u64,
    },
    /// `tail` moved during every attempt to pop.
    #[error("the ring's tail moved under {attempts} attempts to pop")]
    TailContention {
        /// Number of attempts.
        attempts: u32,
    },
}

/// Result of [`Ring::pop`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Popped<T> {
    /// The ring is empty.
    Empty,
    /// `admit` refused the oldest descriptor, which stays in the ring.
    Refused,
    /// The oldest descriptor was taken.
    Taken(T),
}

/// A view of a ring whose fields lie in shared memory.
#[derive(Clone, Copy)]
pub(crate) struct Ring<'a, const SLOT_WORDS: usize> {
    pub(crate) head: &'a AtomicU64,
    pub(crate) tail: &'a AtomicU64,
    /// `capacity * SLOT_WORDS` words.
    pub(crate) slots: &'a [AtomicU64],
}

impl<'a, const SLOT_WORDS: usize> Ring<'a, SLOT_WORDS> {
    fn capacity(&self) -> u64 {
        (self.slots.len() / SLOT_WORDS) as u64
    }

    pub(crate) fn slot(&self, index: u64) -> &'a [AtomicU64] {
        let start = (index & (self.capacity() - 1)) as usize * SLOT_WORDS;
        &self.slots[start..start + SLOT_WORDS]
    }

    fn distance(&self, head: u64, tail: u64) -> Result<u64, RingError> {
        let (distance, capacity) = (head.wrapping_sub(tail), self.capacity());
        if distance > capacity {
            Err(RingError::Counters { distance, capacity })
        } else {
            Ok(distance)
        }
    }

    // -- producer

    /// Number of queued descriptors; `head` is the producer's own copy.
    #[inline]
    pub(crate) fn queued(&self, head: u64) -> Result<u64, RingError> {
        self.distance(head, self.tail.load(Acquire))
    }

    /// Publishes the slot at `head`, filled by `fill`. The ring must not be full.
    #[inline]
    pub(crate) fn push(&self, head: u64, fill: impl FnOnce(&[AtomicU64])) {
        fill(self.slot(head));
        self.head.store(head.wrapping_add(1), Release);
    }

    /// Takes the oldest descriptor back and returns its index. `None` if the ring is empty or the
    /// consumer took the descriptor first.
    pub(crate) fn take_back(&self, head: u64) -> Result<Option<u64>, RingError> {
        let tail = self.tail.load(Acquire);
        if self.distance(head, tail)? == 0 {
            return Ok(None);
        }
        Ok(self
            .tail
            .compare_exchange(tail, tail.wrapping_add(1), Release, Acquire)
            .is_ok()
            .then_some(tail))
    }

    // -- consumer

    /// Whether the ring is empty. False for invalid counters, which the next pop reports.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.tail.load(Relaxed) == self.head.load(Relaxed)
    }

    /// Pops the oldest descriptor. `read` copies the slot, and `admit` may leave the descriptor in
    /// the ring. Both run again if the producer dropped that slot meanwhile: the copy may be torn.
    #[inline]
    pub(crate) fn pop<T>(
        &self,
        mut read: impl FnMut(&[AtomicU64]) -> T,
        mut admit: impl FnMut(&T) -> bool,
    ) -> Result<Popped<T>, RingError> {
        for _ in 0..MAX_POP_ATTEMPTS {
            let tail = self.tail.load(Acquire);
            let head = self.head.load(Acquire);
            match self.distance(head, tail) {
                Ok(0) => return Ok(Popped::Empty),
                // A producer that drops and pushes between the two loads advances both.
                Err(_) if self.tail.load(Relaxed) != tail => continue,
                Err(error) => return Err(error),
                Ok(_) => {}
            }
            let copy = read(self.slot(tail));
            if !admit(&copy) {
                if self.tail.load(Relaxed) == tail {
                    return Ok(Popped::Refused);
                }
                continue;
            }
            if self
                .tail
                .compare_exchange(tail, tail.wrapping_add(1), Release, Relaxed)
                .is_ok()
            {
                return Ok(Popped::Taken(copy));
            }
        }
        Err(RingError::TailContention {
            attempts: MAX_POP_ATTEMPTS,
        })
    }

    /// Reads the descriptor at `cursor`, which stays in the ring, and advances `cursor`. Without a
    /// cursor it begins at the oldest descriptor. `admit` may refuse the descriptor. For a ring whose
    /// producer takes nothing back.
    pub(crate) fn peek<T>(
        &self,
        cursor: &mut Option<u64>,
        read: impl FnOnce(&[AtomicU64]) -> T,
        admit: impl FnOnce(&T) -> bool,
    ) -> Result<Popped<T>, RingError> {
        let at = *cursor.get_or_insert_with(|| self.tail.load(Relaxed));
        if self.distance(self.head.load(Acquire), at)? == 0 {
            return Ok(Popped::Empty);
        }
        let copy = read(self.slot(at));
        if !admit(&copy) {
            return Ok(Popped::Refused);
        }
        *cursor = Some(at.wrapping_add(1));
        Ok(Popped::Taken(copy))
    }

    /// Takes all descriptors up to the one at `index`, which [`Self::peek`] has read.
    pub(crate) fn take_through(&self, index: u64) {
        self.tail.store(index.wrapping_add(1), Release);
    }
}

/// Whether the consumer of an edge holds a block.
#[inline]
pub(crate) fn is_leased(lease: &AtomicU32) -> bool {
    lease.load(Acquire) != 0
}
