//! A change of a stream's quality of service while it runs.
//!
//! Samples that were accepted before the change are delivered as they were accepted. Those accepted
//! after it wait until the earlier ones are closed and the peer has learned of the change. So at both
//! ends each sample has exactly one quality of service, and no order of arrival can mix them up.

use std::{collections::VecDeque, time::Instant};

use bytes::Bytes;

use super::{
    SendError, Sender, SenderEvent,
    stream::{PendingSample, SendStream},
};
use crate::{qos::Qos, wire::control::Control};

/// A change that is not complete.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) qos: Qos,
    /// The sequence of the first sample behind the change.
    from: u64,
    /// The samples behind it.
    pub(super) next: VecDeque<PendingSample>,
    /// The peer is being notified.
    is_requested: bool,
}

impl Sender {
    /// Changes the quality of service of the samples that are accepted from now on.
    /// [`SenderEvent::Changed`] follows when they can go.
    ///
    /// # Errors
    /// When the stream is not open or refused, or samples wait for an earlier change.
    pub fn set_qos(&mut self, now: Instant, stream: u32, qos: Qos) -> Result<(), SendError> {
        let state = self.streams.application_stream(stream);
        let Some(state) = state.filter(|state| !state.closing) else {
            return Err(SendError::NotOpen(stream));
        };
        if let Some(why) = state.refused.clone() {
            return Err(SendError::Refused { stream, why });
        }
        match &mut state.change {
            Some(change) if change.is_requested || !change.next.is_empty() => {
                return Err(SendError::Changing(stream));
            }
            Some(change) => change.qos = qos,
            None if state.qos == qos => return Ok(()),
            None => {
                state.change = Some(Box::new(Change {
                    qos,
                    from: state.next_sequence,
                    next: VecDeque::new(),
                    is_requested: false,
                }));
            }
        }
        self.refresh(now, stream);
        self.streams.notify_room(stream);
        Ok(())
    }

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

impl SendStream {
    /// The quality of service of a sample that is accepted now.
    pub(super) fn accepts_as(&self) -> Qos {
        self.change.as_ref().map_or(self.qos, |change| change.qos)
    }

    /// The sequence behind the last sample that is pending.
    pub(super) fn end_of_pending(&self) -> u64 {
        self.change
            .as_ref()
            .map_or(self.next_sequence, |change| change.from)
    }

    /// Adds a sample behind the change.
    pub(super) fn push_behind_change(&mut self, now: Instant, payload: Bytes) {
        let Some(change) = &mut self.change else {
            return;
        };
        change.next.push_back(PendingSample {
            sequence: self.next_sequence,
            payload,
            accepted: now,
        });
        self.next_sequence += 1;
        self.counters.accepted += 1;
        let delivery = change.qos.delivery;
        while !delivery.keeps_all() && change.next.len() > delivery.depth() {
            change.next.pop_front();
            self.counters.overwritten += 1;
        }
    }

    /// Whether all samples before a change are closed.
    fn is_drained(&self) -> bool {
        self.pending.is_empty() && self.unclosed == 0 && self.unclosed_bytes == 0
    }

    /// Makes the samples behind a change pending, if all before it are closed. Returns whether it
    /// did.
    pub(super) fn finish_change_if_drained(&mut self) -> bool {
        let is_drained = self.is_drained();
        let Some(change) = self.change.take_if(|_| is_drained) else {
            if let Some(change) = &mut self.change {
                change.is_requested = false;
            }
            return false;
        };
        self.qos = change.qos;
        self.pending_bytes = change
            .next
            .iter()
            .map(|sample| Self::charge(sample.payload.len()))
            .sum();
        self.pending = change.next;
        self.last_finish = 0;
        true
    }
}
