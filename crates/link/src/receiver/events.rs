//! The events of the receiving end, made when the application takes them.

use super::{
    Receiver, ReceiverEvent,
    notices::{Notices, StreamNotices},
    stream::ReceiveStream,
};
use crate::streams::Streams;

type ReceiveStreams = Streams<Box<ReceiveStream>>;

impl Receiver {
    /// Returns the oldest event. A stream is announced before its samples.
    pub fn poll_event(&mut self) -> Option<ReceiverEvent> {
        if let Some(lost) = self.notices.restarted.take() {
            return Some(ReceiverEvent::PeerRestarted { lost });
        }
        self.poll_opened().or_else(|| self.poll_change())
    }

    /// Whether a stream is to be announced.
    pub(crate) fn has_opened(&self) -> bool {
        !self.notices.opened.is_empty()
    }

    /// Returns the oldest [`ReceiverEvent::Opened`] or [`ReceiverEvent::Requested`].
    pub(crate) fn poll_opened(&mut self) -> Option<ReceiverEvent> {
        let stream = self.notices.opened.pop_front()?;
        let state = self
            .streams
            .get_mut(&stream)
            .expect("a stream is kept until it is announced");
        state.notices.opened = false;
        let (name, qos) = (state.name.clone(), state.qos);
        let event = match state.requested {
            true => ReceiverEvent::Requested { stream, name, qos },
            false => ReceiverEvent::Opened { stream, name, qos },
        };
        self.forget_if_done(stream);
        Some(event)
    }

    /// Returns the oldest event that [`poll_opened`](Self::poll_opened) does not.
    pub(crate) fn poll_unannounced(&mut self) -> Option<ReceiverEvent> {
        let restarted = self.notices.restarted.take();
        restarted
            .map(|lost| ReceiverEvent::PeerRestarted { lost })
            .or_else(|| self.poll_change())
    }

    fn poll_change(&mut self) -> Option<ReceiverEvent> {
        let stream = *self.notices.changed.front()?;
        let state = self
            .streams
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
            self.forget_if_done(stream);
        }
        Some(event)
    }
}

/// Notes that a stream has samples.
pub(super) fn note_readable(notices: &mut Notices, streams: &mut ReceiveStreams, stream: u32) {
    note(notices, streams, stream, |of_stream| {
        of_stream.readable = true
    });
}

/// Notes that a stream has another quality of service.
pub(super) fn note_changed(notices: &mut Notices, streams: &mut ReceiveStreams, stream: u32) {
    note(notices, streams, stream, |of_stream| {
        of_stream.changed = true
    });
}

/// Notes that a stream has ended.
pub(super) fn note_ended(notices: &mut Notices, streams: &mut ReceiveStreams, stream: u32) {
    note(notices, streams, stream, |of_stream| of_stream.ended = true);
}

fn note(
    notices: &mut Notices,
    streams: &mut ReceiveStreams,
    stream: u32,
    set: impl FnOnce(&mut StreamNotices),
) {
    if let Some(state) = streams.get_mut(&stream) {
        if !state.notices.has_changed() {
            notices.changed.push_back(stream);
        }
        set(&mut state.notices);
    }
}
