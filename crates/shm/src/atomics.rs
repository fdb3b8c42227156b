//! The atomics in shared memory, and the futex on which processes sleep.
//!
//! With the feature `kill-points`, debug builds count their stores: see `kill_points`.

use crate::lock_free::Waited;
use rustix::io::Errno;
use rustix::thread::futex::{self, Flags};
use std::num::NonZeroU32;

pub(crate) use std::{
    hint::spin_loop,
    sync::Mutex,
    sync::atomic::{AtomicBool, Ordering, fence},
};

#[cfg(all(feature = "kill-points", debug_assertions))]
pub(crate) use crate::kill_points::{AtomicU32, AtomicU64};
#[cfg(not(all(feature = "kill-points", debug_assertions)))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64};

/// A word in shared memory that threads of several processes sleep on.
///
/// The futex is shared (never `FUTEX_PRIVATE`): its word lies in memory of several processes.
#[repr(transparent)]
pub(crate) struct FutexWord(pub(crate) AtomicU32);

impl FutexWord {
    /// Sleeps while the word reads `expected`, until `deadline` (nanoseconds of CLOCK_MONOTONIC).
    pub(crate) fn wait(&self, expected: u32, deadline: u64) -> Waited {
        let timeout = rustix::time::Timespec {
            tv_sec: (deadline / 1_000_000_000).cast_signed(),
            tv_nsec: (deadline % 1_000_000_000).cast_signed() as _,
        };
        // The bitset form takes an absolute time, so a loop of spurious wake-ups cannot stretch it.
        match futex::wait_bitset(
            self.word(),
            Flags::empty(),
            expected,
            Some(&timeout),
            NonZeroU32::MAX,
        ) {
            Err(Errno::TIMEDOUT) => Waited::TimedOut,
            Err(Errno::INTR) => Waited::Interrupted,
            _ => Waited::LookAgain,
        }
    }

    /// Wakes at most `count` of the threads that sleep on the word.
    pub(crate) fn wake(&self, count: u32) {
        // Fails only for an address that is not mapped, and `&self` is.
        let _ = futex::wake(self.word(), Flags::empty(), count);
    }

    fn word(&self) -> &std::sync::atomic::AtomicU32 {
        #[cfg(all(feature = "kill-points", debug_assertions))]
        return &self.0.0;
        #[cfg(not(all(feature = "kill-points", debug_assertions)))]
        &self.0
    }
}

/// Starts to fetch the cache line of `word`, without waiting for it.
#[inline]
pub(crate) fn prefetch(word: &AtomicU64) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint: it reads nothing, and cannot fault at any address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(word).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = word;
}
