//! One block of shared memory, a futex word and a count of releases, in a memfd that the driver creates and all
//! endpoints inherit.
#![expect(
    unsafe_code,
    reason = "maps memory that other processes read and write"
)]

use std::os::fd::{BorrowedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::mm::{MapFlags, ProtFlags};
use rustix::thread::futex;

/// Futex word and count of releases have a cache line each.
const RELEASES_OFFSET_BYTES: usize = 64;
const BLOCK_OFFSET_BYTES: usize = 128;

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
        // SAFETY: this process inherited the descriptor and never closes it.
        let memfd = unsafe { BorrowedFd::borrow_raw(number) };
        let bytes = BLOCK_OFFSET_BYTES + words * 8;
        // SAFETY: the kernel chooses the address, so the new mapping overlaps no other.
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

    /// Number of calls of [`Self::wake_all`].
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
            // Not private: another process wakes. The loop handles both errors, EAGAIN and EINTR.
            let _ = futex::wait(self.futex(), futex::Flags::empty(), last, None);
        }
    }

    /// Starts a new generation and wakes all waiting processes.
    pub fn wake_all(&self) {
        self.futex().fetch_add(1, Ordering::Release);
        let _ = futex::wake(self.futex(), futex::Flags::empty(), i32::MAX as u32);
    }

    /// Counts that this consumer has read the current generation.
    pub fn release(&self) {
        self.releases().fetch_add(1, Ordering::Release);
    }

    /// Waits until each of `consumers` has released every generation. At 50 Hz it returns at once.
    pub fn wait_until_released(&self, consumers: usize) {
        while self.releases().load(Ordering::Acquire) < self.generation() * consumers as u32 {
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    pub fn words(&self) -> &[u64] {
        // SAFETY: in bounds, aligned to 64, initialised by the kernel, and not written until it is released.
        unsafe { std::slice::from_raw_parts(self.block(), self.words) }
    }

    pub fn words_mut(&mut self) -> &mut [u64] {
        // SAFETY: as for `words`; there is one producer, which waits until all consumers have released the block.
        unsafe { std::slice::from_raw_parts_mut(self.block(), self.words) }
    }

    fn block(&self) -> *mut u64 {
        // SAFETY: the mapping is longer than the offset.
        unsafe { self.base.as_ptr().add(BLOCK_OFFSET_BYTES).cast() }
    }

    fn releases(&self) -> &AtomicU32 {
        // SAFETY: as for `futex`, a cache line further on.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(RELEASES_OFFSET_BYTES).cast()) }
    }

    fn futex(&self) -> &AtomicU32 {
        // SAFETY: the start of the mapping is aligned, lives as long as the process, and is only used as this atomic.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().cast()) }
    }
}
