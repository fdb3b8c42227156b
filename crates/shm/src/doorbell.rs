//! The doorbell of a consuming node: which of its inputs have news, and whether it must be woken for them.
//!
//! One consumer waits; many producers ring. A producer pays for a system call only when the consumer sleeps, and
//! only the first of those who ring a sleeping consumer pays.
//!
//! Fields (all in the consumer's wake page, written by both sides):
//! - `words`: one bit an input, set by its producer after a push, cleared by the consumer before it looks.
//! - `summary`: one bit a word, set after the word's bit, cleared by the consumer before the word.
//! - `parked`: bits 32.. say how the consumer sleeps ([`Parking`]), bits 0..32 the number of this sleep, which is
//!   `sequence` as it is when it lies down. Written by the consumer alone: every protocol in which a producer clears it
//!   loses wake-ups.
//! - `sequence`: the futex word. Moved on by the consumer when it lies down, so that no two sleeps have the same number,
//!   and once per sleep by the producer that then wakes.
//!
//! Why no wake-up is lost: a producer stores (bit, summary), fences, loads `parked`; the consumer stores `parked`,
//! fences, loads `summary`. One of the two sees the other. Of the producers that see a parked consumer, the one
//! that moves `sequence` on from the number of that sleep wakes it; if `sequence` has moved on already, the consumer's
//! futex wait cannot begin or has been ended by whoever moved it. A producer that was held up since an earlier sleep
//! fails to move `sequence`: it might wake a consumer that now sleeps in another way.
//! Why an own bit that is still set needs no ring: the consumer clears the bit, fences, then looks into the ring;
//! the producer pushes, fences, then looks at the bit. If the producer still sees it set, the consumer's look
//! comes after the push. A producer that dies between the bit and the wake is made good by the keeper, who rings
//! for it with [`Doorbell::ring_all`].
//!
//! Orderings: the fences order everything but the bits of `words` against `summary`, which a release by the producer
//! and an acquire by the consumer do. (Loom cannot show that: in its models a read-modify-write sees the newest value.)

use crate::sync::{AtomicU64, FutexWord, Ordering::*, Waited, fence};

/// How a consumer sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parking {
    /// On the futex word.
    Futex = 1,
    /// In an event loop that watches the eventfd.
    EventFd = 2,
}

/// What the producer has to do after ringing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Wake {
    /// Nothing: the consumer is awake or another producer wakes it.
    Nothing,
    /// The futex was woken.
    Futex,
    /// The caller must write to the consumer's eventfd.
    EventFd,
}

/// A doorbell, wherever its fields lie.
pub(crate) struct Doorbell<'a> {
    pub(crate) sequence: &'a FutexWord,
    pub(crate) parked: &'a AtomicU64,
    pub(crate) summary: &'a AtomicU64,
    pub(crate) words: &'a [AtomicU64],
}

impl Doorbell<'_> {
    /// Says that `input` has news. Call it after the push.
    #[inline]
    pub(crate) fn ring(&self, input: u32) -> Wake {
        let (word, bit) = (input as usize / 64, 1 << (input % 64));
        fence(SeqCst);
        if self.words[word].load(Relaxed) & bit != 0 {
            return Wake::Nothing;
        }
        self.words[word].fetch_or(bit, Relaxed);
        self.summary.fetch_or(1 << word, Release);
        self.wake()
    }

    /// Rings for every input: somebody may have died between its bit and its wake.
    pub(crate) fn ring_all(&self) -> Wake {
        for word in self.words {
            word.fetch_or(u64::MAX, Release);
        }
        self.summary.fetch_or(u64::MAX >> (64 - self.words.len()), Release);
        fence(SeqCst);
        let parked = self.parked.load(Relaxed);
        if parked != 0 {
            // Whoever moved `sequence` on before may have died before it woke: wake in any case.
            self.end_sleep(parked);
        }
        self.wake_as(parked)
    }

    /// Takes what is pending into `local` (one word a word) and says whether anything was.
    #[inline]
    pub(crate) fn take(&self, local: &mut [u64]) -> bool {
        if self.summary.load(Relaxed) == 0 {
            return false;
        }
        let mut any = 0;
        let summary = self.summary.swap(0, Acquire);
        for (index, (word, local)) in self.words.iter().zip(local).enumerate() {
            if summary & 1 << index != 0 {
                let taken = word.swap(0, Relaxed);
                *local |= taken;
                any |= taken;
            }
        }
        fence(SeqCst);
        any != 0
    }

    /// Sleeps on the futex until somebody rings, or until `deadline`; not at all when something is pending.
    pub(crate) fn sleep(&self, deadline: Option<u64>) -> Waited {
        let number = self.park(Parking::Futex);
        let waited = if self.summary.load(Relaxed) == 0 {
            self.sequence.wait(number, deadline)
        } else {
            Waited::LookAgain
        };
        self.unpark();
        waited
    }

    /// Asks for the eventfd to be written at the next ring. False when something is pending already.
    pub(crate) fn arm(&self) -> bool {
        self.park(Parking::EventFd);
        let armed = self.summary.load(Relaxed) == 0;
        if !armed {
            self.unpark();
        }
        armed
    }

    /// Whether the consumer sleeps and nothing is pending.
    #[cfg(not(loom))]
    pub(crate) fn is_asleep(&self) -> bool {
        self.parked.load(Relaxed) != 0 && self.summary.load(Relaxed) == 0
    }

    /// The consumer is awake.
    pub(crate) fn unpark(&self) {
        self.parked.store(0, Relaxed);
    }

    fn park(&self, how: Parking) -> u32 {
        let number = self.sequence.0.fetch_add(1, Relaxed).wrapping_add(1);
        self.parked.store((how as u64) << 32 | u64::from(number), Relaxed);
        fence(SeqCst);
        number
    }

    fn wake(&self) -> Wake {
        fence(SeqCst);
        let parked = self.parked.load(Relaxed);
        if parked != 0 && self.end_sleep(parked) { self.wake_as(parked) } else { Wake::Nothing }
    }

    /// Moves `sequence` on, if that sleep has not ended yet.
    fn end_sleep(&self, parked: u64) -> bool {
        let number = parked as u32;
        self.sequence.0.compare_exchange(number, number.wrapping_add(1), Relaxed, Relaxed).is_ok()
    }

    fn wake_as(&self, parked: u64) -> Wake {
        match parked >> 32 {
            0 => Wake::Nothing,
            mode if mode == Parking::EventFd as u64 => Wake::EventFd,
            _ => {
                self.sequence.wake(1);
                Wake::Futex
            }
        }
    }
}
