//! The control thread's access to an inbox: commands and wake-ups.

use crate::fork;
use crate::input_edge::InputEdge;
use crate::lock_free::Waited;
use crate::received_sample::ReceivedSample;
use crate::wake::OwnWakePage;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A handle to an inbox, for the control thread.
#[derive(Clone, Debug)]
pub struct InboxHandle {
    pub(crate) fork_generation: u32,
    pub(crate) page: Arc<OwnWakePage>,
    pub(crate) eventfd: Arc<OwnedFd>,
    commands: Arc<Mutex<VecDeque<Command>>>,
}

#[derive(Debug)]
pub(crate) enum Command {
    Attach(Arc<InputEdge>),
    Close { edge: u32, last: bool },
    Deliver { input: u32, sample: ReceivedSample },
    DeliverEnd { input: u32 },
    Notify,
}

impl InboxHandle {
    pub(crate) fn new(page: Arc<OwnWakePage>, eventfd: Arc<OwnedFd>) -> Self {
        Self {
            fork_generation: fork::generation(),
            page,
            eventfd,
            commands: Arc::default(),
        }
    }

    /// Adds an edge behind those of its input.
    pub fn attach(&self, edge: InputEdge) {
        self.push(Command::Attach(Arc::new(edge)));
    }

    /// Reports that the producer of `edge` is gone; `last` if no other producer will come.
    pub fn close(&self, edge: u32, last: bool) {
        self.push(Command::Close { edge, last });
    }

    /// Adds a sample behind everything that the edges of `input` hold now, and before edges that
    /// are attached later.
    pub fn deliver(&self, input: u32, sample: ReceivedSample) {
        self.push(Command::Deliver { input, sample });
    }

    /// Makes the inbox deliver [`crate::Arrival::Ended`] for `input`, behind everything that it
    /// holds.
    pub fn deliver_end(&self, input: u32) {
        self.push(Command::DeliverEnd { input });
    }

    /// Makes the inbox deliver [`crate::Arrival::Notified`].
    pub fn notify(&self) {
        self.push(Command::Notify);
    }

    /// Makes the inbox look into every ring, whether its producer rang or not.
    pub fn check_all_inputs(&self) {
        if fork::check(self.fork_generation).is_ok() {
            self.page.check_all_inputs(self.eventfd.as_fd());
        }
    }

    /// As [`crate::Inbox::wait`], for a caller without the inbox. Only one thread at a time may
    /// wait, and none while the inbox is armed.
    pub fn wait(&self, deadline: Option<u64>) -> Waited {
        if fork::check(self.fork_generation).is_err() {
            return Waited::LookAgain;
        }
        self.page.sleep(deadline)
    }

    /// As [`InboxHandle::wait`], but ends as [`Waited::Interrupted`] if `other` is readable. A
    /// producer that rings then pays for a write to the eventfd.
    pub fn wait_beside(&self, other: BorrowedFd<'_>, deadline: Option<u64>) -> Waited {
        if fork::check(self.fork_generation).is_err() {
            return Waited::LookAgain;
        }
        self.page
            .sleep_beside(self.eventfd.as_fd(), other, deadline)
    }

    pub(crate) fn arm(&self) -> bool {
        fork::check(self.fork_generation).is_ok() && self.page.arm()
    }

    pub(crate) fn disarm(&self) {
        if fork::check(self.fork_generation).is_ok() {
            self.page.disarm(self.eventfd.as_fd());
        }
    }

    pub(crate) fn take_commands(&self) -> VecDeque<Command> {
        std::mem::take(&mut *self.lock_commands())
    }

    fn push(&self, command: Command) {
        if fork::check(self.fork_generation).is_err() {
            return;
        }
        self.lock_commands().push_back(command);
        self.page.interrupt(self.eventfd.as_fd());
    }

    fn lock_commands(&self) -> MutexGuard<'_, VecDeque<Command>> {
        self.commands.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
