//! One block of shared memory and a futex word, in a memfd that the driver made and all endpoints inherit.
#![expect(unsafe_code, reason = "maps memory and reads what another process writes")]

use std::os::fd::{BorrowedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{MapFlags, ProtFlags};
use rustix::thread::futex;

/// The block starts after the cache line of the futex word.
const BLOCK_OFFSET_BYTES: usize = 64;

/// A mapping that lives as long as the process.
pub struct SharedBlock {
    base: NonNull<u8>,
    words: usize,
}

impl SharedBlock {
    /// Maps the memfd whose number is in `NERVURE_LAB_MEMFD`.
    pub fn from_environment(words: usize) -> Result<Self, String> {
        let number: RawFd = std::env::var("NERVURE_LAB_MEMFD")
            .ok()
            .and_then(|text| text.parse().ok())
            .ok_or("NERVURE_LAB_MEMFD: expected the number of an inherited file descriptor")?;
        // SAFETY: the driver made this descriptor for us and nobody here closes it.
        let memfd = unsafe { BorrowedFd::borrow_raw(number) };
        let bytes = BLOCK_OFFSET_BYTES + words * 8;
        // SAFETY: a fresh shared mapping at an address that the kernel chooses overlaps nothing of ours.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::SHARED,
                memfd,
                0,
            )
        }
        .map_err(|error| format!("mapping {bytes} bytes of descriptor {number}: {error}"))?;
        let base = NonNull::new(base.cast()).ok_or("mmap returned null")?;
        Ok(Self { base, words })
    }

    /// How often [`Self::wake_all`] was called.
    pub fn generation(&self) -> u32 {
        self.futex().load(Ordering::Acquire)
    }

    /// Sleeps until the generation differs from `last`, and returns it.
    pub fn wait_for_change(&self, last: u32) -> u32 {
        loop {
            let generation = self.generation();
            if generation != last {
                return generation;
            }
            // Not private: the waker is another process. Errors are EAGAIN and EINTR, which the loop answers.
            let _ = futex::wait(self.futex(), futex::Flags::empty(), last, None);
        }
    }

    /// Announces a new generation and wakes everyone.
    pub fn wake_all(&self) {
        self.futex().fetch_add(1, Ordering::Release);
        let _ = futex::wake(self.futex(), futex::Flags::empty(), i32::MAX as u32);
    }

    /// The block, to read.
    pub fn words(&self) -> &[u64] {
        // SAFETY: in bounds, aligned to 64, initialised by the kernel. The producer writes again only a period later;
        // a consumer that is slower than that sees mixed words, which as numbers are harmless and count as losses.
        unsafe { std::slice::from_raw_parts(self.block(), self.words) }
    }

    /// The block, to write.
    pub fn words_mut(&mut self) -> &mut [u64] {
        // SAFETY: as for `words`; there is one producer.
        unsafe { std::slice::from_raw_parts_mut(self.block(), self.words) }
    }

    fn block(&self) -> *mut u64 {
        // SAFETY: the mapping is longer than the offset.
        unsafe { self.base.as_ptr().add(BLOCK_OFFSET_BYTES).cast() }
    }

    fn futex(&self) -> &AtomicU32 {
        // SAFETY: the start of the mapping is aligned, lives as long as the process, and is only used as this atomic.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().cast()) }
    }
}
