//! A change of a stream's quality of service while it runs.
//!
//! Samples that were accepted before the change are delivered as they were accepted. Those accepted
//! after it wait until the earlier ones are closed and the peer has learned of the change. So at both
//! ends each sample has exactly one quality of service, and no order of arrival can mix them up.

use std::time::Instant;

use super::{Sender, SenderEvent, stream::SendStream};
use crate::wire::control::Control;

impl Sender {
    /// Notifies the peer of a change, once all earlier samples are closed.
    pub(super) fn request_change_if_drained(&mut self, now: Instant, stream: u32) {
        let Some(state) = self.streams.get_mut(stream) else {
            return;
        };
        let is_drained = state.is_drained();
        let Some(change) = &mut state.change else {
            return;
        };
        if !is_drained || std::mem::replace(&mut change.is_requested, true) {
            return;
        }
        let (qos, first_sequence) = (change.qos, change.from);
        let message = self.streams.control().next_sequence;
        self.changes.insert(message, stream);
        self.control(
            now,
            &Control::Change {
                stream,
                qos,
                first_sequence,
            },
        );
    }

    /// Completes the change that this control message announced: the peer has it.
    pub(super) fn finish_change(&mut self, now: Instant, message: u64) {
        let Some(stream) = self.changes.remove(&message) else {
            return;
        };
        let state = self.streams.get_mut(stream);
        if state.is_some_and(SendStream::finish_change_if_drained) {
            self.streams.note(SenderEvent::Changed(stream));
            self.refresh(now, stream);
            self.streams.notify_room(stream);
        }
    }
}
