//! The futex on which a producing node waits for its consumers to make room: the counterpart of the
//! doorbell.
//!
//! Fields (in the producer's wake page): `waiters`, the number of its threads that wait or are
//! about to; `sequence`, the futex word, incremented by a consumer that has made room and sees a
//! waiter.
//!
//! Why no wake-up is lost: the producer stores the number of its waiting threads in `waiters`,
//! fences, loads `sequence`, then looks again for room. The consumer makes room, fences, then loads
//! `waiters`. Either the producer sees the room, or the consumer sees the waiter and increments
//! `sequence`, which ends the wait or keeps it from beginning. If a consumer dies in between, the
//! keeper reports the death to the producer, whose control thread then calls [`RoomWaiters::wake`].
//!
//! The true number is in the producer's own memory ([`RoomWaiters`]). A peer that overwrites
//! `waiters` costs a wake-up, and the next wait restores the number. Without a wake-up a wait ends
//! at the caller's deadline.

use super::Waited;
use super::sync::{AtomicU32, FutexWord, Mutex, Ordering::*, fence};
use std::sync::PoisonError;

/// A view of a room futex whose fields lie in shared memory.
pub(crate) struct RoomFutex<'a> {
    pub(crate) sequence: &'a FutexWord,
    pub(crate) waiters: &'a AtomicU32,
}

/// Number of waiting threads of the producer, in memory that no peer can write.
#[derive(Debug, Default)]
pub(crate) struct RoomWaiters(Mutex<u32>);

impl RoomFutex<'_> {
    /// Wakes the producer, if it waits. Call it after making room, or after any other change that a
    /// producer may wait for.
    #[inline]
    pub(crate) fn notify(&self) {
        fence(SeqCst);
        if self.waiters.load(Relaxed) != 0 {
            self.wake();
        }
    }

    /// Wakes the producer even if it seems not to wait.
    pub(crate) fn wake(&self) {
        // Release: a waiter that loads the new number sees all earlier changes.
        self.sequence.0.fetch_add(1, Release);
        self.sequence.wake(u32::MAX >> 1);
    }

    /// Sleeps until a consumer notifies, or until `deadline`. Returns at once if `look_again` finds
    /// room. Calls `counted` with the number of waiting threads when that changes. The flag is
    /// false if a peer overwrote `waiters` meanwhile.
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
    /// Wakes the waiting threads after a change by this process. A thread that begins to wait
    /// afterwards sees the change when it looks again.
    pub(crate) fn wake(&self, futex: &RoomFutex<'_>) {
        if self.change(|threads| *threads) != 0 {
            futex.wake();
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut u32) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
