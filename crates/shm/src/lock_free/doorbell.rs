//! The doorbell of a consuming node: which of its inputs have news, and whether a producer must
//! wake the node.
//!
//! One consumer waits; many producers ring. A producer pays for a system call only if the consumer
//! sleeps, and of several producers that ring a sleeping consumer only the first pays.
//!
//! Fields (all in the consumer's wake page, written by both sides):
//! - `words`: one bit per input, set by its producer after a push, cleared by the consumer before
//!   it looks into the ring.
//! - `summary`: one bit per word, set after the word's bit, cleared by the consumer before the
//!   word.
//! - `parked`: bits 32.. hold how the consumer sleeps ([`Parking`]), bits 0..32 the number of this
//!   sleep, which is the value of `sequence` when the sleep begins. Only the consumer writes it:
//!   every protocol in which a producer clears it loses wake-ups.
//! - `sequence`: the futex word. The consumer increments it when a sleep begins, so that no two
//!   sleeps have the same number. The producer that wakes the consumer increments it once per
//!   sleep.
//!
//! Why no wake-up is lost: a producer stores (bit, summary), fences, loads `parked`. The consumer
//! stores `parked`, fences, loads `summary`. One of the two sees the other. Of the producers that
//! see a parked consumer, the one that increments `sequence` from the number of that sleep wakes
//! it. If `sequence` has changed already, the consumer's futex wait cannot begin, or has been ended
//! by the producer that changed it. A producer that was delayed since an earlier sleep fails to
//! increment `sequence`; otherwise it might wake a consumer that now sleeps in another way.
//!
//! Why a producer need not ring while its own bit is still set: the consumer clears the bit,
//! fences, then looks into the ring. The producer pushes, fences, then loads the bit. If the
//! producer still sees it set, the consumer's look comes after the push. For a producer that dies
//! between the bit and the wake, the keeper rings with [`Doorbell::ring_all`].
//!
//! All of that holds between peers that keep the rules. A hostile peer can overwrite every field.
//! Two paths do not depend on the fields: the consumer's own process wakes it by [`Sleeper`], which
//! is private memory, and [`Doorbell::take_all`] finds all pushed samples whatever the fields hold.
//!
//! Orderings: the fences order everything but the bits of `words` against `summary`. Those are
//! ordered by a release in the producer and an acquire in the consumer. (Loom cannot show that: in
//! its models a read-modify-write sees the newest value.)

use super::Waited;
use super::sync::{AtomicBool, AtomicU64, FutexWord, Ordering::*, fence};

/// How a consumer sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parking {
    /// On the futex word, in a system call of its own.
    Futex = 1,
    /// In an event loop that watches the eventfd.
    EventFd = 2,
}

/// The producer's task after ringing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Wake {
    /// Nothing: the consumer is awake, or another producer wakes it.
    Nothing,
    /// Nothing: the futex was woken.
    Futex,
    /// The caller must write to the consumer's eventfd.
    EventFd,
}

/// The consumer's own record of its sleep, in memory that no peer can write.
///
/// The consumer stores `parked` here and in the doorbell, fences, then loads `summary` and
/// `interrupted`. Another thread of its process stores `interrupted`, fences, then loads `parked`
/// from here. One of the two sees the other.
#[derive(Debug, Default)]
pub(crate) struct Sleeper {
    /// The value that the consumer stored in [`Doorbell::parked`]; 0 while it is awake.
    parked: AtomicU64,
    /// Another thread of the process wants the consumer to wake up.
    interrupted: AtomicBool,
}

impl Sleeper {
    /// Whether another thread interrupted the consumer since the last call. If so, everything that
    /// thread did before is visible.
    #[inline]
    pub(crate) fn take_interrupt(&self) -> bool {
        self.interrupted.load(Relaxed) && self.interrupted.swap(false, Acquire)
    }
}

/// A view of a doorbell whose fields lie in shared memory.
pub(crate) struct Doorbell<'a> {
    pub(crate) sequence: &'a FutexWord,
    pub(crate) parked: &'a AtomicU64,
    pub(crate) summary: &'a AtomicU64,
    pub(crate) words: &'a [AtomicU64],
}

impl Doorbell<'_> {
    /// Marks `input` as having news. Call it after the push.
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

    /// Rings for every input, and wakes the consumer from a futex even if it seems to be awake: a
    /// producer may have died between its bit and its wake, or have overwritten `parked`. The
    /// caller writes to the eventfd.
    pub(crate) fn ring_all(&self) {
        for word in self.words {
            word.fetch_or(u64::MAX, Release);
        }
        self.summary
            .fetch_or(u64::MAX >> (64 - self.words.len()), Release);
        fence(SeqCst);
        self.end_any_sleep();
    }

    /// Wakes the consumer on behalf of another thread of its process, and returns how it slept. For
    /// [`Parking::EventFd`] the caller writes to the eventfd.
    pub(crate) fn interrupt(&self, sleeper: &Sleeper) -> Option<Parking> {
        sleeper.interrupted.store(true, Release);
        fence(SeqCst);
        match sleeper.parked.load(Relaxed) >> 32 {
            0 => None,
            mode if mode == Parking::EventFd as u64 => Some(Parking::EventFd),
            _ => {
                self.end_any_sleep();
                Some(Parking::Futex)
            }
        }
    }

    /// Moves all pending bits into `local`, word by word, and returns whether there were any.
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

    /// Marks every input as pending and clears all bits, so that each producer rings at its next
    /// push. This repairs whatever a peer has overwritten.
    #[cold]
    pub(crate) fn take_all(&self, local: &mut [u64]) -> bool {
        self.summary.swap(0, Acquire);
        for (word, local) in self.words.iter().zip(local) {
            word.swap(0, Relaxed);
            *local = u64::MAX;
        }
        fence(SeqCst);
        true
    }

    /// Sleeps on the futex until a producer rings, another thread interrupts, or `deadline`.
    /// Returns at once if something is pending. The flag is false if a peer overwrote `parked`
    /// meanwhile.
    pub(crate) fn sleep(&self, sleeper: &Sleeper, deadline: u64) -> (Waited, bool) {
        let number = self.park(sleeper, Parking::Futex);
        let waited = if self.is_quiet(sleeper) {
            self.sequence.wait(number, deadline)
        } else {
            Waited::LookAgain
        };
        (waited, self.unpark(sleeper))
    }

    /// Requests that the next ring writes the eventfd. False if something is pending already.
    pub(crate) fn arm(&self, sleeper: &Sleeper) -> bool {
        self.park(sleeper, Parking::EventFd);
        let armed = self.is_quiet(sleeper);
        if !armed {
            self.unpark(sleeper);
        }
        armed
    }

    /// Marks the consumer as awake. False if a peer overwrote `parked` meanwhile.
    pub(crate) fn unpark(&self, sleeper: &Sleeper) -> bool {
        let own = sleeper.parked.load(Relaxed);
        let is_intact = own == 0 || self.parked.load(Relaxed) == own;
        sleeper.parked.store(0, Relaxed);
        self.parked.store(0, Relaxed);
        is_intact
    }

    fn park(&self, sleeper: &Sleeper, how: Parking) -> u32 {
        let number = self.sequence.0.fetch_add(1, Relaxed).wrapping_add(1);
        let parked = (how as u64) << 32 | u64::from(number);
        sleeper.parked.store(parked, Relaxed);
        self.parked.store(parked, Relaxed);
        fence(SeqCst);
        number
    }

    fn is_quiet(&self, sleeper: &Sleeper) -> bool {
        self.summary.load(Relaxed) == 0 && !sleeper.interrupted.load(Relaxed)
    }

    fn wake(&self) -> Wake {
        fence(SeqCst);
        let parked = self.parked.load(Relaxed);
        if parked == 0 || !self.end_sleep(parked) {
            return Wake::Nothing;
        }
        if parked >> 32 == Parking::EventFd as u64 {
            return Wake::EventFd;
        }
        self.sequence.wake(1);
        Wake::Futex
    }

    fn end_any_sleep(&self) {
        self.sequence.0.fetch_add(1, Relaxed);
        self.sequence.wake(1);
    }

    /// Increments `sequence`, unless that sleep has ended already.
    fn end_sleep(&self, parked: u64) -> bool {
        let number = parked as u32;
        self.sequence
            .0
            .compare_exchange(number, number.wrapping_add(1), Relaxed, Relaxed)
            .is_ok()
    }
}
