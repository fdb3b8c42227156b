//! Waiting for news in the place of [`Events`](super::Events), which other threads may use
//! meanwhile.

use nervure_shm::{InboxHandle, Waited, monotonic_nanos};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::BorrowedFd;
use std::time::Duration;

/// End of a wait, and whether news ends it earlier: see [`crate::binding::plan_wait`].
#[derive(Clone, Copy, Debug)]
pub struct WaitPlan {
    /// Nanoseconds of CLOCK_MONOTONIC.
    until: Option<u64>,
    /// False for an observer that polls.
    is_woken: bool,
}

impl WaitPlan {
    pub(crate) fn new(until: Option<u64>, is_woken: bool) -> Self {
        Self { until, is_woken }
    }

    /// The same plan, which ends at `until` (nanoseconds of CLOCK_MONOTONIC) at the latest.
    #[must_use]
    pub fn no_later_than(self, until: u64) -> Self {
        Self {
            until: Some(self.until.map_or(until, |own| own.min(until))),
            ..self
        }
    }

    pub(super) fn run(self, wait_for_news: impl FnOnce(Option<u64>) -> Waited) -> Waited {
        if self.is_woken {
            return wait_for_news(self.until);
        }
        std::thread::sleep(self.time_left().unwrap_or_default());
        Waited::LookAgain
    }

    fn time_left(self) -> Option<Duration> {
        self.until
            .map(|until| Duration::from_nanos(until.saturating_sub(monotonic_nanos())))
    }
}

/// Waits in the place of [`Events`](super::Events), so that a caller that keeps the events behind a
/// lock need not hold it meanwhile.
#[derive(Clone, Debug)]
pub struct Waiter(InboxHandle);

impl Waiter {
    pub(super) fn new(inbox: InboxHandle) -> Self {
        Self(inbox)
    }

    /// Waits for news. Only one thread may wait at a time, and none while the events are armed.
    pub fn wait(&self, plan: WaitPlan) -> Waited {
        plan.run(|until| self.0.wait(until))
    }

    /// As [`Waiter::wait`], and also ends, with [`Waited::Interrupted`], when `other` is readable.
    /// A producer that wakes this wait writes to an eventfd, which costs it a system call.
    pub fn wait_beside(&self, other: BorrowedFd<'_>, plan: WaitPlan) -> Waited {
        if plan.is_woken {
            return self.0.wait_beside(other, plan.until);
        }
        let timeout = plan.time_left().and_then(|left| left.try_into().ok());
        let interest = PollFd::from_borrowed_fd(other, PollFlags::IN);
        match rustix::event::poll(&mut [interest], timeout.as_ref()) {
            Ok(0) => Waited::LookAgain,
            _ => Waited::Interrupted,
        }
    }

    /// Ends the current or next wait of another thread: this thread may have taken the news that it
    /// waits for.
    pub fn wake(&self) {
        self.0.notify();
    }
}
