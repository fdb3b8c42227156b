//! The mirror of the doorbell: one futex per producing node, on which it waits for its consumers to make room.
//!
//! Fields (in the producer's wake page): `waiters`, how many of its threads wait or are about to; `sequence`, the
//! futex word, moved on by a consumer that has made room and sees a waiter.
//!
//! Why no wake-up is lost: the producer stores the number of its waiting threads in `waiters`, fences, reads `sequence`,
//! then looks once more for room; the consumer makes room, fences, then looks at `waiters`. Either the producer sees the
//! room, or the consumer sees the waiter and moves `sequence` on, which ends the wait or keeps it from beginning. A
//! consumer that dies in between is made good by the keeper's message about its death, on which the producer's own
//! control thread calls [`RoomWaiters::wake`].
//!
//! The number itself is in the producer's own memory ([`RoomWaiters`]): a peer that overwrites `waiters` costs a wake-up, and
//! the next wait writes the true number again. How long a wait takes without a wake-up is the caller's deadline.

use super::Waited;
use super::sync::{AtomicU32, FutexWord, Mutex, Ordering::*, fence};
use std::sync::PoisonError;

/// The space futex, wherever its fields lie.
pub(crate) struct RoomFutex<'a> {
    pub(crate) sequence: &'a FutexWord,
    pub(crate) waiters: &'a AtomicU32,
}

/// How many threads of the producer wait, in memory that no peer can write.
#[derive(Debug, Default)]
pub(crate) struct RoomWaiters(Mutex<u32>);

impl RoomFutex<'_> {
    /// A consumer, or whoever else changed something that a producer may wait for, says so.
    #[inline]
    pub(crate) fn notify(&self) {
        fence(SeqCst);
        if self.waiters.load(Relaxed) != 0 {
            self.wake();
        }
    }

    /// Wakes the producer, whether it seems to wait or not.
    pub(crate) fn wake(&self) {
        // Release: a waiter that reads the new number sees what changed before.
        self.sequence.0.fetch_add(1, Release);
        self.sequence.wake(u32::MAX >> 1);
    }

    /// Sleeps until a consumer notifies, or until `deadline`; not at all when `look_again` finds room. Calls `counted`
    /// with the number of waiting threads when that changes. Returns also whether `waiters` was still what it should be.
    pub(crate) fn wait<T>(
        &self,
        waiting: &RoomWaiters,
        deadline: u64,
        look_again: impl FnOnce() -> Option<T>,
        counted: impl Fn(u32),
    ) -> (Result<T, Waited>, bool) {
        waiting.change(|threads| {
            *threads += 1;
            self.waiters.store(*threads, Relaxed);
            counted(*threads);
        });
        fence(SeqCst);
        let seen = self.sequence.0.load(Acquire);
        let result = match look_again() {
            Some(found) => Ok(found),
            None => Err(self.sequence.wait(seen, deadline)),
        };
        let is_intact = waiting.change(|threads| {
            let is_intact = self.waiters.load(Relaxed) == *threads;
            *threads -= 1;
            self.waiters.store(*threads, Relaxed);
            counted(*threads);
            is_intact
        });
        (result, is_intact)
    }
}

impl RoomWaiters {
    /// Wakes the threads that wait, for something that this process has changed before. A thread that begins to wait
    /// afterwards sees the change when it looks again.
    pub(crate) fn wake(&self, space: &RoomFutex<'_>) {
        if self.change(|threads| *threads) != 0 {
            space.wake();
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut u32) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
