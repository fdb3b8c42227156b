//! The page on which a node sleeps: its doorbell as a consumer, its space futex as a producer.
//!
//! Every peer of the node maps it writable, so that a peer can overwrite each word of it at any time. Nothing that
//! the node depends on is read from it:
//!
//! - Sizes come from the size of the memory, which is sealed, and from the keeper's messages. There is no header.
//! - Whether the node sleeps is in its own memory and, for the keeper, in its counters page. The node's own threads
//!   wake it by these ([`OwnWakePage::interrupt`], [`OwnWakePage::notify_room`]), the keeper unconditionally
//!   ([`WakePage::ring_all`]).
//! - Every sleep is bounded by [`MAX_SLEEP_NANOS`]. As often, the node looks into all rings and clears the bits,
//!   whatever the page says, so that samples of other producers arrive late at worst.
//!
//! A word that only the node writes and that reads otherwise is a proof that a peer overwrote the page:
//! see [`OwnWakePage::on_overwritten`].

use crate::atomics::{AtomicU64, FutexWord};
use crate::counters::CountersPage;
use crate::lock_free::Waited;
use crate::lock_free::doorbell::{Doorbell, Parking, Sleeper, Wake};
use crate::lock_free::room_futex::{RoomFutex, RoomWaiters};
use crate::pages::LINE;
use crate::sys::{self, Mapping, Sharing, monotonic_nanos};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io;
use std::sync::Arc;
// Private to a process, so that no model needs to know them.
use std::sync::atomic::{AtomicBool, AtomicU64 as PrivateU64, Ordering::Relaxed};

/// The most inputs of a node: one summary word of words, less the bit that is its own in private memory.
pub const MAX_INPUTS: u32 = 64 * 64 - 1;

/// Longest sleep of a consumer before it looks again.
///
/// Bounds the delay of samples while a peer overwrites the wake page; nothing else depends on it. One wake-up a second
/// costs an idle node some 20 microseconds of a core.
pub const MAX_SLEEP_NANOS: u64 = 1_000_000_000;

/// How a peer is known to have overwritten a wake page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Overwritten {
    /// `parked` changed while the node slept.
    #[error("the word that says how the node sleeps was changed while it slept")]
    Parked,
    /// `waiters` changed while threads waited.
    #[error("the number of threads that wait for room was changed while they waited")]
    Waiters,
}

/// The wake page of another node, to ring its doorbell and to notify it of room.
#[derive(Debug)]
pub struct WakePage {
    mapping: Mapping,
    /// Words of the bitmap.
    words: usize,
}

impl WakePage {
    const ROOM_SEQUENCE: usize = LINE;
    const ROOM_WAITERS: usize = LINE + 8;
    // The doorbell has one line, and not one a field: ringing and waking up each touch all of them, and
    // each line costs it a trip to the other core. While the node is awake, next to nothing here is written.
    const PARKED: usize = 2 * LINE;
    const SEQUENCE: usize = 2 * LINE + 8;
    const SUMMARY: usize = 2 * LINE + 16;
    const WORDS: usize = 2 * LINE + 24;

    /// At least one, so that a node without inputs can be rung, too.
    fn words(inputs: u32) -> usize {
        (inputs as usize).div_ceil(64).max(1)
    }

    fn bytes(inputs: u32) -> usize {
        sys::whole_pages(Self::WORDS + Self::words(inputs) * size_of::<u64>())
    }

    /// Makes the page of a node with `inputs` inputs.
    ///
    /// # Errors
    /// `InvalidInput` beyond [`MAX_INPUTS`]; else when memory or descriptors run out.
    pub fn create(inputs: u32) -> io::Result<(Self, OwnedFd)> {
        check_inputs(inputs)?;
        let bytes = Self::bytes(inputs);
        let fd = sys::memfd("nervure-wake", bytes)?;
        let mapping = Mapping::new(fd.as_fd(), bytes, true, false)?;
        sys::seal(fd.as_fd(), Sharing::ReadWrite)?;
        Ok((
            Self {
                mapping,
                words: Self::words(inputs),
            },
            fd,
        ))
    }

    /// Maps a received page.
    ///
    /// # Errors
    /// `InvalidData` when it is no wake page.
    pub fn map(fd: &OwnedFd) -> io::Result<Self> {
        let bytes = sys::frozen_bytes(fd.as_fd())?;
        if bytes < Self::bytes(0) {
            let text = format!(
                "the wake page is {bytes} bytes long, expected at least {}",
                Self::bytes(0)
            );
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        let words = ((bytes - Self::WORDS) / size_of::<u64>()).min(Self::words(MAX_INPUTS));
        Ok(Self {
            mapping: Mapping::received(fd, bytes, true, true)?,
            words,
        })
    }

    /// Whether the page has a bit for that input.
    pub(crate) fn has_input(&self, input: u32) -> bool {
        (input as usize) / 64 < self.words
    }

    #[inline]
    fn doorbell(&self) -> Doorbell<'_> {
        // SAFETY: `FutexWord` is a transparent atomic, within the page: `create` has made it so long, or `map` checked it.
        let sequence = unsafe { self.mapping.at::<FutexWord>(Self::SEQUENCE) };
        // SAFETY: atomics, within the page.
        let (parked, summary) = unsafe {
            (
                self.mapping.at(Self::PARKED),
                self.mapping.at(Self::SUMMARY),
            )
        };
        // SAFETY: as above.
        let words = unsafe { self.mapping.slice_at::<AtomicU64>(Self::WORDS, self.words) };
        Doorbell {
            sequence,
            parked,
            summary,
            words,
        }
    }

    #[inline]
    pub(crate) fn room_futex(&self) -> RoomFutex<'_> {
        // SAFETY: as for the doorbell.
        let sequence = unsafe { self.mapping.at::<FutexWord>(Self::ROOM_SEQUENCE) };
        // SAFETY: as above.
        let waiters = unsafe { self.mapping.at(Self::ROOM_WAITERS) };
        RoomFutex { sequence, waiters }
    }

    /// Rings for `input`, and writes the eventfd if the node sleeps in an event loop.
    #[inline]
    pub(crate) fn ring(&self, input: u32, eventfd: BorrowedFd<'_>) {
        if self.doorbell().ring(input) == Wake::EventFd {
            sys::eventfd_write(eventfd);
        }
    }

    /// Wakes the node for all of its inputs and for room, whether it seems to sleep or not: a peer of it died, perhaps
    /// before it rang.
    pub fn ring_all(&self, eventfd: BorrowedFd<'_>) {
        self.doorbell().ring_all();
        sys::eventfd_write(eventfd);
        self.room_futex().wake();
    }
}

fn check_inputs(inputs: u32) -> io::Result<()> {
    if inputs <= MAX_INPUTS {
        return Ok(());
    }
    let text = format!("a node of {inputs} inputs, at most {MAX_INPUTS} are possible");
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

/// A node's own wake page.
pub struct OwnWakePage {
    page: WakePage,
    inputs: u32,
    sleeper: Sleeper,
    waiting: RoomWaiters,
    /// The rings are looked into at the next look, whatever the bits say.
    sweep_requested: AtomicBool,
    /// When they are next, in nanoseconds of CLOCK_MONOTONIC.
    next_sweep: PrivateU64,
    /// Where the keeper sees whether the node sleeps.
    counters: Arc<CountersPage>,
    was_overwritten: AtomicBool,
    on_overwritten: Box<dyn Fn(Overwritten) + Send + Sync>,
}

impl std::fmt::Debug for OwnWakePage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OwnWakePage")
            .field("inputs", &self.inputs)
            .finish_non_exhaustive()
    }
}

impl OwnWakePage {
    /// Maps the page of the node with `inputs` inputs that has those counters.
    ///
    /// # Errors
    /// `InvalidData` when it is no wake page, or of another number of inputs.
    pub fn map(fd: &OwnedFd, inputs: u32, counters: Arc<CountersPage>) -> io::Result<Self> {
        check_inputs(inputs)?;
        let bytes = WakePage::bytes(inputs);
        let mapping = Mapping::received(fd, bytes, true, true)?;
        Ok(Self {
            page: WakePage {
                mapping,
                words: WakePage::words(inputs),
            },
            inputs,
            sleeper: Sleeper::default(),
            waiting: RoomWaiters::default(),
            sweep_requested: AtomicBool::new(false),
            next_sweep: PrivateU64::new(0),
            counters,
            was_overwritten: AtomicBool::new(false),
            on_overwritten: Box::new(|_| {}),
        })
    }

    /// Calls `notify` once, from the thread that finds out, when a peer has overwritten the page.
    #[must_use]
    pub fn on_overwritten(self, notify: impl Fn(Overwritten) + Send + Sync + 'static) -> Self {
        Self {
            on_overwritten: Box::new(notify),
            ..self
        }
    }

    /// How many inputs the node has.
    pub(crate) fn inputs(&self) -> u32 {
        self.inputs
    }

    /// Takes what is pending into `pending`, one bit an input, and returns whether anything was. Sets bit `inputs` when
    /// another thread of this process has interrupted the node.
    #[inline]
    pub(crate) fn take(&self, pending: &mut [u64]) -> bool {
        // First: what the interrupting thread did before, a look at everything included, is visible then.
        let is_interrupted = self.sleeper.take_interrupt();
        let mut any = if self.sweep_requested.load(Relaxed) {
            self.sweep_requested.store(false, Relaxed);
            self.page.doorbell().take_all(pending)
        } else {
            self.page.doorbell().take(pending)
        };
        if is_interrupted {
            pending[self.inputs as usize / 64] |= 1 << (self.inputs % 64);
            any = true;
        }
        any
    }

    /// Sleeps until a producer rings, another thread interrupts, or `deadline` (nanoseconds of CLOCK_MONOTONIC); at most
    /// for [`MAX_SLEEP_NANOS`], and not at all when something is pending.
    pub(crate) fn sleep(&self, deadline: Option<u64>) -> Waited {
        let until = self.begin_sleep(deadline);
        let (waited, is_intact) = self.page.doorbell().sleep(&self.sleeper, until);
        self.end_sleep(until, waited == Waited::TimedOut, is_intact);
        caller_outcome(waited, until, deadline)
    }

    /// As [`OwnWakePage::sleep`], and ends as [`Waited::Interrupted`] when `other` is readable.
    pub(crate) fn sleep_beside(
        &self,
        eventfd: BorrowedFd<'_>,
        other: BorrowedFd<'_>,
        deadline: Option<u64>,
    ) -> Waited {
        let until = self.begin_sleep(deadline);
        if !self.page.doorbell().arm(&self.sleeper) {
            self.end_sleep(until, false, true);
            return Waited::LookAgain;
        }
        let waited = sys::wait_readable(eventfd, other, until);
        let is_intact = self.page.doorbell().unpark(&self.sleeper);
        sys::eventfd_clear(eventfd);
        self.end_sleep(until, waited == Waited::TimedOut, is_intact);
        caller_outcome(waited, until, deadline)
    }

    /// Asks for the eventfd to be written at the next ring. False when something is pending already.
    pub(crate) fn arm(&self) -> bool {
        self.page.doorbell().arm(&self.sleeper)
    }

    /// Ends what [`OwnWakePage::arm`] began.
    pub(crate) fn disarm(&self, eventfd: BorrowedFd<'_>) {
        let is_intact = self.page.doorbell().unpark(&self.sleeper);
        sys::eventfd_clear(eventfd);
        self.counters.set_sleeps_until(None);
        self.check(is_intact, Overwritten::Parked);
    }

    /// How long a node may sleep in an event loop that wants to look again at `deadline`: at most for
    /// [`MAX_SLEEP_NANOS`]. The keeper takes a node that sleeps longer for one that hangs.
    pub fn sleep_deadline(&self, deadline: Option<u64>) -> u64 {
        let until = self.begin_sleep(deadline);
        // It looks at the clock before each sleep, and so was awake until now.
        self.sweep_if_due(until.saturating_sub(MAX_SLEEP_NANOS));
        until
    }

    /// Wakes the node for what another thread of its process has for it.
    pub(crate) fn interrupt(&self, eventfd: BorrowedFd<'_>) {
        if self.page.doorbell().interrupt(&self.sleeper) == Some(Parking::EventFd) {
            sys::eventfd_write(eventfd);
        }
    }

    /// As [`OwnWakePage::interrupt`], and the node looks into all rings, whether their producers rang or not.
    pub(crate) fn check_all_inputs(&self, eventfd: BorrowedFd<'_>) {
        self.sweep_requested.store(true, Relaxed);
        self.interrupt(eventfd);
    }

    /// Waits for room until `look_again` finds some, a consumer notifies, or `deadline` (nanoseconds of
    /// CLOCK_MONOTONIC).
    pub(crate) fn wait_for_room<T>(
        &self,
        deadline: u64,
        look_again: impl FnOnce() -> Option<T>,
    ) -> Result<T, Waited> {
        let counted = |threads| self.counters.set_waiting(threads);
        let (result, is_intact) =
            self.page
                .room_futex()
                .wait(&self.waiting, deadline, look_again, counted);
        self.check(is_intact, Overwritten::Waiters);
        result
    }

    /// Wakes the threads of this process that wait for room.
    pub(crate) fn notify_room(&self) {
        self.waiting.wake(&self.page.room_futex());
    }

    // -- helpers

    /// Tells the keeper until when the node sleeps at most.
    fn begin_sleep(&self, deadline: Option<u64>) -> u64 {
        let latest = monotonic_nanos().saturating_add(MAX_SLEEP_NANOS);
        let until = deadline.map_or(latest, |deadline| deadline.min(latest));
        self.counters.set_sleeps_until(Some(until));
        until
    }

    fn end_sleep(&self, until: u64, timed_out: bool, is_intact: bool) {
        self.counters.set_sleeps_until(None);
        // The latest time that has certainly come; no clock is read for it.
        self.sweep_if_due(if timed_out {
            until
        } else {
            until.saturating_sub(MAX_SLEEP_NANOS)
        });
        self.check(is_intact, Overwritten::Parked);
    }

    fn sweep_if_due(&self, now: u64) {
        if now >= self.next_sweep.load(Relaxed) {
            self.next_sweep
                .store(now.saturating_add(MAX_SLEEP_NANOS), Relaxed);
            self.sweep_requested.store(true, Relaxed);
        }
    }

    #[inline]
    fn check(&self, is_intact: bool, overwritten: Overwritten) {
        if !is_intact && !self.was_overwritten.swap(true, Relaxed) {
            (self.on_overwritten)(overwritten);
        }
    }
}

/// A sleep that ended before its caller's deadline is a reason to look again.
fn caller_outcome(waited: Waited, until: u64, deadline: Option<u64>) -> Waited {
    if waited == Waited::TimedOut && deadline != Some(until) {
        Waited::LookAgain
    } else {
        waited
    }
}
