//! The atomics of the lock-free structures, which loom replaces in its models.

#[cfg(not(loom))]
pub(crate) use std::{
    hint::spin_loop,
    sync::Mutex,
    sync::atomic::{AtomicBool, Ordering, fence},
};

#[cfg(all(feature = "kill-points", debug_assertions, not(loom)))]
pub(crate) use crate::kill_points::{AtomicU32, AtomicU64};
#[cfg(not(any(loom, all(feature = "kill-points", debug_assertions))))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64};

#[cfg(loom)]
pub(crate) use loom::{
    hint::spin_loop,
    sync::Mutex,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence},
};

/// Begins to fetch the cache line of `word`, and does not wait for it.
#[cfg(not(loom))]
#[inline]
pub(crate) fn prefetch(word: &AtomicU64) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint, which reads nothing.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(word).cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = word;
}

#[cfg(not(loom))]
pub(crate) use futex_os::FutexWord;

#[cfg(loom)]
pub(crate) use futex_model::FutexWord;

/// Whether a wait ended by its deadline. Anything else, a signal included, is a reason to look again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// Woken, the word had changed already, or a signal came.
    LookAgain,
    /// A signal handler ran (EINTR); the caller may want to see to it.
    Interrupted,
    /// The deadline passed.
    TimedOut,
}

#[cfg(not(loom))]
mod futex_os {
    use super::{AtomicU32, Waited};
    use rustix::io::Errno;
    use rustix::thread::futex::{self, Flags};
    use std::num::NonZeroU32;

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
            // The bitset form takes an absolute time, so that a loop of spurious wake-ups cannot stretch it.
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
}

#[cfg(loom)]
mod futex_model {
    use super::{AtomicU32, Ordering, Waited};
    use loom::sync::{Condvar, Mutex};

    /// A futex as the kernel keeps it: comparing and going to sleep are one step.
    pub(crate) struct FutexWord(pub(crate) AtomicU32, Mutex<()>, Condvar);

    impl FutexWord {
        pub(crate) fn new() -> Self {
            Self(AtomicU32::new(0), Mutex::new(()), Condvar::new())
        }

        pub(crate) fn wait(&self, expected: u32, _deadline: u64) -> Waited {
            let guard = self.1.lock().unwrap();
            if self.0.load(Ordering::SeqCst) == expected {
                drop(self.2.wait(guard).unwrap());
            }
            Waited::LookAgain
        }

        pub(crate) fn wake(&self, _count: u32) {
            let _guard = self.1.lock().unwrap();
            self.2.notify_all();
        }
    }
}
