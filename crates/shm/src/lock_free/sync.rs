//! Atomics, fences and futexes of the lock-free structures: the real ones, or loom's models of
//! them.

#[cfg(not(loom))]
pub(crate) use crate::atomics::{
    AtomicBool, AtomicU32, AtomicU64, FutexWord, Mutex, Ordering, fence, spin_loop,
};

#[cfg(loom)]
pub(crate) use self::model::FutexWord;
#[cfg(loom)]
pub(crate) use loom::{
    hint::spin_loop,
    sync::Mutex,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence},
};

#[cfg(loom)]
mod model {
    use super::{AtomicU32, Ordering};
    use crate::lock_free::Waited;
    use loom::sync::{Condvar, Mutex};

    /// A futex as the kernel implements it: comparing and going to sleep are one step.
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
