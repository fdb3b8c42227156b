//! The mirror of the doorbell: one futex per producing node, on which it waits for its consumers to make room.
//!
//! Fields (in the producer's wake page): `waiters`, how many of its threads wait or are about to; `sequence`, the
//! futex word, moved on by a consumer that has made room and sees a waiter.
//!
//! Why no wake-up is lost: the producer adds itself to `waiters`, fences, reads `sequence`, then looks once more
//! for room; the consumer makes room, fences, then looks at `waiters`. Either the producer sees the room, or the
//! consumer sees the waiter and moves `sequence` on, which ends the wait or keeps it from beginning. A consumer
//! that dies in between is made good by the keeper's message about its death, on which the producer's own control
//! thread calls [`Space::notify`].

use crate::sync::{AtomicU32, FutexWord, Ordering::*, Waited, fence};

/// The space futex, wherever its fields lie.
pub(crate) struct Space<'a> {
    pub(crate) sequence: &'a FutexWord,
    pub(crate) waiters: &'a AtomicU32,
}

impl Space<'_> {
    /// A consumer, or whoever else changed something that a producer may wait for, says so.
    #[inline]
    pub(crate) fn notify(&self) {
        fence(SeqCst);
        if self.waiters.load(Relaxed) != 0 {
            self.sequence.0.fetch_add(1, Relaxed);
            self.sequence.wake(u32::MAX >> 1);
        }
    }

    /// Whether a thread of the producer sleeps, or is about to.
    #[cfg(not(loom))]
    pub(crate) fn is_waited_for(&self) -> bool {
        self.waiters.load(Relaxed) != 0
    }

    /// Sleeps until somebody notifies, or until `deadline`; not at all when `look_again` finds room.
    pub(crate) fn wait<T>(
        &self,
        deadline: Option<u64>,
        look_again: impl FnOnce() -> Option<T>,
    ) -> Result<T, Waited> {
        self.waiters.fetch_add(1, Relaxed);
        fence(SeqCst);
        let seen = self.sequence.0.load(Acquire);
        let result = match look_again() {
            Some(found) => Ok(found),
            None => Err(self.sequence.wait(seen, deadline)),
        };
        self.waiters.fetch_sub(1, Relaxed);
        result
    }
}
