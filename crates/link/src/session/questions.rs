//! When to ask the peer whether it still knows this session, or for the outcome of samples that it
//! has: its report may be lost.

use std::time::{Duration, Instant};

use crate::sender::Sender;

/// A peer that may have lost its state, or that has not reported the outcome of samples, is asked
/// again after this time, unless anything else is sent to it.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// The same, as long as the peer answers, where samples may have to wait for its answer.
const ASK_AGAIN_SOON: Duration = Duration::from_millis(20);

/// The questions of a session to its peer.
#[derive(Debug)]
pub(super) struct Questions {
    /// When to ask, if there is a question.
    pub(super) due_at: Instant,
    /// The carrier has made a connection, and no feedback has come through it yet.
    pub(super) is_new_connection: bool,
}

impl Questions {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            due_at: now,
            is_new_connection: false,
        }
    }

    /// The carrier has made a connection: the next question is due at once.
    pub(super) fn on_connected(&mut self, now: Instant) {
        (self.due_at, self.is_new_connection) = (now, true);
    }

    /// A packet was sent, which the peer answers as it would a question.
    pub(super) fn on_sent(&mut self, now: Instant, sender: &Sender, silence: Duration) {
        self.due_at = now + self.ask_again(sender, silence);
    }

    /// Whether there is a question.
    pub(super) fn is_open(&self, sender: &Sender) -> bool {
        self.is_new_connection || sender.streams().awaits_grant() || sender.awaits_closing()
    }

    /// Whether to ask now. Otherwise nothing would reveal a restart of the peer if all samples sent
    /// before had been confirmed and a grant was lost.
    pub(super) fn asks(&mut self, now: Instant, sender: &mut Sender, silence: Duration) -> bool {
        self.due_at <= now && self.is_open(sender) && {
            self.due_at = now + self.ask_again(sender, silence);
            sender.streams.check_grants() || self.is_new_connection || sender.awaits_closing()
        }
    }

    /// The time until the next question, after this time without feedback.
    fn ask_again(&self, sender: &Sender, silence: Duration) -> Duration {
        if self.is_new_connection || sender.streams().awaits_grant() {
            (silence / 4).clamp(ASK_AGAIN_SOON, ASK_AGAIN)
        } else {
            ASK_AGAIN
        }
    }
}
