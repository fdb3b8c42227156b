//! The streams of a receiver: their counters, and their notices for the application.

use super::{
    ReceiverEvent,
    counters::ReceiveCounters,
    ledger::Ledger,
    notices::{Notices, StreamNotices},
    stream::{IncomingStatus, ReceiveStream},
};
use crate::{budget::Size, qos::Qos, sender::CONTROL_STREAM, streams::Streams};

/// The streams of a receiver, by number.
#[derive(Debug, Default)]
pub struct ReceiveStreams {
    pub(super) by_id: Streams<Box<ReceiveStream>>,
    pub(super) notices: Notices,
    /// The counters of streams that have ended.
    pub(super) totals: ReceiveCounters,
}

impl ReceiveStreams {
    /// The state of each stream.
    pub fn list(&self) -> impl Iterator<Item = IncomingStatus> {
        self.application_streams()
            .map(|(stream, state)| state.status(stream))
    }

    /// The name and the quality of service of a stream.
    pub fn get(&self, stream: u32) -> Option<(&str, Qos)> {
        let state = self.by_id.get(&stream)?;
        Some((&state.name, state.qos))
    }

    /// Whether no sample of a stream comes any more, and all were taken. [`ReceiverEvent::Ended`]
    /// announces it, unless the application has closed the stream itself or the peer's session has ended.
    pub fn has_ended(&self, stream: u32) -> bool {
        let state = self.by_id.get(&stream);
        state.is_none_or(|state| state.is_complete())
    }

    /// The counters of all streams, ended ones included, without control messages.
    pub fn totals(&self) -> ReceiveCounters {
        self.application_streams()
            .fold(self.totals, |sum, (_, state)| sum + state.counters())
    }

    pub(super) fn application_streams(&self) -> impl Iterator<Item = (u32, &ReceiveStream)> {
        self.by_id
            .iter()
            .filter(|(stream, _)| **stream != CONTROL_STREAM)
            .map(|(stream, state)| (*stream, &**state))
    }

    /// Ends all streams: the peer has lost its state.
    pub(super) fn clear(&mut self) {
        for state in self.by_id.values() {
            self.totals = self.totals + state.counters();
        }
        self.by_id.clear();
    }

    /// Whether a stream is to be announced.
    pub(crate) fn has_opened(&self) -> bool {
        !self.notices.opened.is_empty()
    }

    /// Announces a stream.
    pub(super) fn poll_opened(&mut self, ledger: &mut Ledger) -> Option<ReceiverEvent> {
        let stream = self.notices.opened.pop_front()?;
        let state = self
            .by_id
            .get_mut(&stream)
            .expect("a stream is kept until it is announced");
        state.notices.opened = false;
        let (name, qos) = (state.name.clone(), state.qos);
        let event = match state.requested {
            true => ReceiverEvent::Requested { stream, name, qos },
            false => ReceiverEvent::Opened { stream, name, qos },
        };
        self.forget_if_done(ledger, stream);
        Some(event)
    }

    /// Returns the oldest event of a stream that was announced or will be.
    pub(super) fn poll_change(&mut self, ledger: &mut Ledger) -> Option<ReceiverEvent> {
        let stream = *self.notices.changed.front()?;
        let state = self
            .by_id
            .get_mut(&stream)
            .expect("a stream is kept while it has notices");
        let event = if std::mem::take(&mut state.notices.readable) {
            ReceiverEvent::Readable(stream)
        } else if std::mem::take(&mut state.notices.changed) {
            ReceiverEvent::Changed(stream)
        } else {
            state.notices.ended = false;
            ReceiverEvent::Ended(stream)
        };
        if !state.notices.has_changed() {
            self.notices.changed.pop_front();
            self.forget_if_done(ledger, stream);
        }
        Some(event)
    }

    /// Notes that a stream has samples.
    pub(super) fn note_readable(&mut self, stream: u32) {
        self.note(stream, |of_stream| of_stream.readable = true);
    }

    /// Notes that a stream has another quality of service.
    pub(super) fn note_changed(&mut self, stream: u32) {
        self.note(stream, |of_stream| of_stream.changed = true);
    }

    /// Notes that a stream has ended, if nothing is left of it. The notice is the last, so that a task
    /// that waits for the stream learns of its end after any other notice.
    pub(super) fn note_if_complete(&mut self, stream: u32) {
        if self
            .by_id
            .get(&stream)
            .is_some_and(|state| state.is_complete())
        {
            self.note(stream, |of_stream| of_stream.ended = true);
        }
    }

    fn note(&mut self, stream: u32, set: impl FnOnce(&mut StreamNotices)) {
        if let Some(state) = self.by_id.get_mut(&stream) {
            if !state.notices.has_changed() {
                self.notices.changed.push_back(stream);
            }
            set(&mut state.notices);
        }
    }

    /// Ends a stream of which no sample arrives, and drops those in its queue. An application that knows it
    /// learns of its end by a notice.
    pub(super) fn end(&mut self, ledger: &mut Ledger, stream: u32) {
        let Some(state) = self.by_id.get_mut(&stream) else {
            return;
        };
        while state.pop(&mut ledger.queued).is_some() {
            state.counters.discarded += 1;
        }
        state.ended = true;
        match state.notices.opened {
            true => self.remove(ledger, stream),
            false => self.note_if_complete(stream),
        }
    }

    /// Forgets an ended stream of which nothing is left, once all notices of it are taken.
    fn forget_if_done(&mut self, ledger: &mut Ledger, stream: u32) {
        if self.by_id.get(&stream).is_some_and(|state| state.is_done()) {
            self.remove(ledger, stream);
        }
    }

    /// Forgets a stream without samples, and returns its memory.
    pub(super) fn remove(&mut self, ledger: &mut Ledger, stream: u32) {
        let Some(mut state) = self.by_id.remove(&stream) else {
            return;
        };
        self.notices.forget(stream, state.notices);
        self.totals = self.totals + state.counters();
        state.free_queue(&mut ledger.queued);
        ledger
            .arriving
            .give(Size::Small, ReceiveStream::own_cost(&state.name));
        ledger.give_grant(state.granted);
    }
}
