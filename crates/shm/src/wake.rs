//! The page on which a node sleeps: its doorbell as a consumer, its room futex as a producer.
//!
//! Every peer of the node maps the page writable, so a peer can overwrite each word at any time.
//! The node depends on nothing that it reads from the page:
//!
//! - Sizes come from the size of the memory, which is sealed, and from the keeper's messages. The
//!   page has no header.
//! - Whether the node sleeps is recorded in its own memory and, for the keeper, in its counters
//!   page. The node's own threads wake it by these ([`OwnWakePage::interrupt`],
//!   [`OwnWakePage::notify_room`]); the keeper wakes it unconditionally ([`WakePage::ring_all`]).
//! - Every sleep is bounded by [`MAX_SLEEP_NANOS`]. At the same interval the node looks into all
//!   rings and clears the bits, whatever the page holds. So samples of other producers arrive late
//!   at worst.
//!
//! A word that only the node writes, and that has changed, proves that a peer overwrote the page:
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
// Private to a process, so that they are no kill points.
use std::sync::atomic::{AtomicBool, AtomicU64 as PrivateU64, Ordering::Relaxed};

/// The most inputs of a node: 64 words of 64 bits, less the bit for the node's own interrupts.
pub const MAX_INPUTS: u32 = 64 * 64 - 1;

/// Longest sleep of a consumer before it looks into its rings again.
///
/// It bounds the delay of samples while a peer overwrites the wake page; nothing else depends on
/// it. One wake-up per second costs an idle node about 20 microseconds of a core.
pub const MAX_SLEEP_NANOS: u64 = 1_000_000_000;

/// The word of a wake page that a peer has overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OverwrittenWord {
    /// `parked` changed while the node slept.
    #[error("the word that records how the node sleeps was changed while it slept")]
    Parked,
    /// `waiters` changed while threads waited.
    #[error("the number of threads that wait for room was changed while they waited")]
    Waiters,
}

/// The wake page of another node, to ring its doorbell and to notify it of room.
#[derive(Debug)]
pub struct WakePage {
    mapping: Mapping,
    /// Number of words of the bitmap.
    words: usize,
}

impl WakePage {
    const ROOM_SEQUENCE: usize = LINE;
    const ROOM_WAITERS: usize = LINE + 8;
    // The fields of the doorbell share one cache line: ringing and waking up each touch all of
    // them, and each line would cost a transfer between cores. While the node is awake, they are
    // rarely written.
    const PARKED: usize = 2 * LINE;
    const SEQUENCE: usize = 2 * LINE + 8;
    const SUMMARY: usize = 2 * LINE + 16;
    const WORDS: usize = 2 * LINE + 24;

    /// Number of words for these inputs. At least one, so that a node without inputs can be rung.
    fn words(inputs: u32) -> usize {
        (inputs as usize).div_ceil(64).max(1)
    }

    fn bytes(inputs: u32) -> usize {
        sys::whole_pages(Self::WORDS + Self::words(inputs) * size_of::<u64>())
    }

    /// Makes the page of a node with `inputs` inputs.
    ///
    /// # Errors
    /// `InvalidInput` beyond [`MAX_INPUTS`]; others if memory or descriptors run out.
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
    /// `InvalidData` if it is no wake page.
    pub fn map(fd: &OwnedFd) -> io::Result<Self> {
        let bytes = sys::sealed_size(fd.as_fd())?;
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
        // SAFETY: `FutexWord` is a transparent atomic, within the page: `create` made it that long,
        // or `map` checked it.
        let sequence = unsafe { self.mapping.at::<FutexWord>(Self::SEQUENCE) };
        // SAFETY: atomics, within the page, as above.
        let (parked, summary) = unsafe {
            (
                self.mapping.at(Self::PARKED),
                self.mapping.at(Self::SUMMARY),
            )
        };
        // SAFETY: atomics, within the page: `create` and `map` derive `words` from its length.
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
        // SAFETY: `FutexWord` is a transparent atomic, within the page: `create` made it that long,
        // or `map` checked it.
        let sequence = unsafe { self.mapping.at::<FutexWord>(Self::ROOM_SEQUENCE) };
        // SAFETY: an atomic, within the page, as above.
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

    /// Wakes the node for all of its inputs and for room, even if it seems to be awake: a peer of
    /// it died, perhaps before it rang.
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
    /// The next [`OwnWakePage::take`] marks all inputs as pending, whatever the bits are.
    sweep_requested: AtomicBool,
    /// When the next such sweep is due, in nanoseconds of CLOCK_MONOTONIC.
    next_sweep: PrivateU64,
    /// The page from which the keeper reads whether the node sleeps.
    counters: Arc<CountersPage>,
    was_overwritten: AtomicBool,
    on_overwritten: Box<dyn Fn(OverwrittenWord) + Send + Sync>,
}

impl std::fmt::Debug for OwnWakePage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OwnWakePage")
            .field("inputs", &self.inputs)
            .finish_non_exhaustive()
    }
}

impl OwnWakePage {
    /// Maps the page of the node that has `inputs` inputs and these counters.
    ///
    /// # Errors
    /// `InvalidData` if it is no wake page, or has another number of inputs.
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

    /// Sets a function that is called once, by the thread that detects it, if a peer has
    /// overwritten the page.
    #[must_use]
    pub fn on_overwritten(self, notify: impl Fn(OverwrittenWord) + Send + Sync + 'static) -> Self {
        Self {
            on_overwritten: Box::new(notify),
            ..self
        }
    }

    /// Number of inputs of the node.
    pub(crate) fn inputs(&self) -> u32 {
        self.inputs
    }

    /// Moves the pending bits into `pending`, one per input, and returns whether there were any.
    /// Sets bit `inputs` if another thread of this process has interrupted the node.
    #[inline]
    pub(crate) fn take(&self, pending: &mut [u64]) -> bool {
        // First, so that everything the interrupting thread did before is visible: it may have
        // requested a sweep.
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

    /// Sleeps until a producer rings, another thread interrupts, or `deadline` (nanoseconds of
    /// CLOCK_MONOTONIC), and at most for [`MAX_SLEEP_NANOS`]. Returns at once if something is
    /// pending.
    pub(crate) fn sleep(&self, deadline: Option<u64>) -> Waited {
        let until = self.begin_sleep(deadline);
        let (waited, is_intact) = self.page.doorbell().sleep(&self.sleeper, until);
        self.end_sleep(until, waited == Waited::TimedOut, is_intact);
        caller_outcome(waited, until, deadline)
    }

    /// As [`OwnWakePage::sleep`], but ends as [`Waited::Interrupted`] if `other` is readable.
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

    /// Requests that the next ring writes the eventfd. False if something is pending already.
    pub(crate) fn arm(&self) -> bool {
        self.page.doorbell().arm(&self.sleeper)
    }

    /// Ends the wait that [`OwnWakePage::arm`] began.
    pub(crate) fn disarm(&self, eventfd: BorrowedFd<'_>) {
        let is_intact = self.page.doorbell().unpark(&self.sleeper);
        sys::eventfd_clear(eventfd);
        self.counters.set_sleeps_until(None);
        self.check(is_intact, OverwrittenWord::Parked);
    }

    /// Until when a node may sleep in an event loop that wants to look again at `deadline`: at most
    /// for [`MAX_SLEEP_NANOS`]. The keeper considers a node that sleeps longer to hang.
    pub fn sleep_deadline(&self, deadline: Option<u64>) -> u64 {
        let until = self.begin_sleep(deadline);
        // The caller looks at the clock before each sleep, so it was awake until now.
        self.sweep_if_due(until.saturating_sub(MAX_SLEEP_NANOS));
        until
    }

    /// Wakes the node on behalf of another thread of its process.
    pub(crate) fn interrupt(&self, eventfd: BorrowedFd<'_>) {
        if self.page.doorbell().interrupt(&self.sleeper) == Some(Parking::EventFd) {
            sys::eventfd_write(eventfd);
        }
    }

    /// As [`OwnWakePage::interrupt`], and makes the node look into all rings, whether their
    /// producers rang or not.
    pub(crate) fn check_all_inputs(&self, eventfd: BorrowedFd<'_>) {
        self.sweep_requested.store(true, Relaxed);
        self.interrupt(eventfd);
    }

    /// Waits until `look_again` finds room, a consumer notifies, or `deadline` (nanoseconds of
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
        self.check(is_intact, OverwrittenWord::Waiters);
        result
    }

    /// Wakes the threads of this process that wait for room.
    pub(crate) fn notify_room(&self) {
        self.waiting.wake(&self.page.room_futex());
    }

    // -- helpers

    /// Publishes for the keeper until when the node sleeps at most, and returns that time.
    fn begin_sleep(&self, deadline: Option<u64>) -> u64 {
        let latest = monotonic_nanos().saturating_add(MAX_SLEEP_NANOS);
        let until = deadline.map_or(latest, |deadline| deadline.min(latest));
        self.counters.set_sleeps_until(Some(until));
        until
    }

    fn end_sleep(&self, until: u64, timed_out: bool, is_intact: bool) {
        self.counters.set_sleeps_until(None);
        // A time that has certainly come, without reading a clock.
        self.sweep_if_due(if timed_out {
            until
        } else {
            until.saturating_sub(MAX_SLEEP_NANOS)
        });
        self.check(is_intact, OverwrittenWord::Parked);
    }

    fn sweep_if_due(&self, now: u64) {
        if now >= self.next_sweep.load(Relaxed) {
            self.next_sweep
                .store(now.saturating_add(MAX_SLEEP_NANOS), Relaxed);
            self.sweep_requested.store(true, Relaxed);
        }
    }

    #[inline]
    fn check(&self, is_intact: bool, overwritten: OverwrittenWord) {
        if !is_intact && !self.was_overwritten.swap(true, Relaxed) {
            (self.on_overwritten)(overwritten);
        }
    }
}

/// Outcome of the caller's wait: after a sleep that timed out before the caller's deadline, look
/// again.
fn caller_outcome(waited: Waited, until: u64, deadline: Option<u64>) -> Waited {
    if waited == Waited::TimedOut && deadline != Some(until) {
        Waited::LookAgain
    } else {
        waited
    }
}
