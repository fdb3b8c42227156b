//! The streams of a sender, their events and counters.

use std::collections::{BTreeSet, VecDeque};

use bytes::Bytes;
use thiserror::Error;

use super::{
    counters::SendCounters,
    stream::{CONTROL_STREAM, Change, SendStream},
};
use crate::{
    policy::Refusal,
    qos::Qos,
    streams::Streams,
    wire::control::{Control, NAME_BYTES_MAX},
};

/// Why a sample was not accepted. The sample comes back.
#[derive(Debug, Error)]
pub enum SendError {
    /// There is no such stream, or it was closed.
    #[error("stream {0} is not open")]
    NotOpen(u32),
    /// The stream holds as many samples as its depth allows.
    #[error("stream {stream} is full: {depth} samples are pending or in flight")]
    Full {
        /// The stream.
        stream: u32,
        /// Its depth, in samples.
        depth: usize,
        /// The sample, unsent.
        payload: Bytes,
    },
    /// The sample is longer than the protocol or the memory of the peer allows.
    #[error("a sample of {bytes} bytes is too long, expected at most {most}")]
    TooLong {
        /// Its length.
        bytes: usize,
        /// The greatest length.
        most: usize,
    },
    /// The quality of service is being changed, and samples wait for that.
    #[error("the quality of service of stream {0} is being changed already")]
    Changing(u32),
    /// The receiver does not accept the stream, or not any more.
    #[error("the peer refuses stream {stream}: {why}")]
    Refused {
        /// The stream.
        stream: u32,
        /// The reason.
        why: Refusal,
    },
}

/// A stream was not opened: its name is too long for the peer to learn it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the name of a stream has {bytes} bytes, expected at most {NAME_BYTES_MAX}")]
pub struct NameTooLong {
    /// The length of the name, in bytes.
    pub bytes: usize,
}

/// An event at the sending end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SenderEvent {
    /// The peer has opened a stream, for the first time or again: samples now go at once.
    Opened(u32),
    /// A stream that keeps all has room again.
    Writable(u32),
    /// A stream has the quality of service that it was changed to.
    Changed(u32),
    /// A closed stream has ended; all of its samples are accounted for.
    Finished(u32, SendCounters),
    /// The peer does not accept a stream, or not any more.
    Refused {
        /// The stream.
        stream: u32,
        /// Its name.
        name: String,
        /// The reason.
        why: Refusal,
    },
}

/// The state of a stream at its sending end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutgoingState {
    /// The peer has not accepted it yet.
    Opening,
    /// Samples go at once.
    Open,
    /// It is closed; accepted samples are still carried.
    Closing,
    /// The peer does not accept it, or not any more.
    Refused(Refusal),
}

/// A stream at its sending end, with its counters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutgoingStatus {
    /// Its number.
    pub stream: u32,
    /// Its name.
    pub name: String,
    /// Its quality of service.
    pub qos: Qos,
    /// Its state.
    pub state: OutgoingState,
    /// Samples that wait.
    pub pending: usize,
    /// Samples in flight.
    pub in_flight: usize,
    /// The quality of service that it is being changed to, if it is.
    pub changes_to: Option<Qos>,
    /// Bytes of samples that may be in flight at once.
    pub credit_bytes: u64,
    /// Its counters.
    pub counters: SendCounters,
}

/// The streams of a sender, by number.
#[derive(Debug)]
pub struct SendStreams {
    by_id: Streams<SendStream>,
    next_stream: u32,
    /// A stream may be waiting for a grant.
    awaits_grant: bool,
    events: VecDeque<SenderEvent>,
    /// The counters of streams that have ended.
    totals: SendCounters,
}

impl SendStreams {
    pub(super) fn new() -> Self {
        let mut by_id = Streams::default();
        by_id.insert(CONTROL_STREAM, SendStream::control());
        Self {
            by_id,
            next_stream: 1,
            awaits_grant: false,
            events: VecDeque::new(),
            totals: SendCounters::default(),
        }
    }

    /// Whether the peer has opened a stream.
    ///
    /// # Errors
    /// When the stream was closed and has ended, or the peer refuses it.
    pub fn is_opened(&self, stream: u32) -> Result<bool, SendError> {
        match self.by_id.get(&stream) {
            None => Err(SendError::NotOpen(stream)),
            Some(state) => match state.refused.clone() {
                Some(why) => Err(SendError::Refused { stream, why }),
                None => Ok(state.credit > 0),
            },
        }
    }

    /// The quality of service of a stream, and the one that it is being changed to.
    pub fn qos(&self, stream: u32) -> Option<(Qos, Option<Qos>)> {
        let state = self.by_id.get(&stream)?;
        Some((state.qos, state.change.as_ref().map(|change| change.qos)))
    }

    /// Begins a change of the quality of service of the samples that are accepted from now on.
    pub(crate) fn begin_change(&mut self, stream: u32, qos: Qos) -> Result<(), SendError> {
        let state = self.application_stream(stream);
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
        self.notify_room(stream);
        Ok(())
    }

    /// Why the peer does not accept a stream, if it does not.
    pub fn refusal(&self, stream: u32) -> Option<&Refusal> {
        self.by_id.get(&stream)?.refused.as_ref()
    }

    /// Whether a stream that keeps all would accept a sample now.
    pub fn has_room(&self, stream: u32) -> bool {
        self.by_id.get(&stream).is_some_and(SendStream::has_room)
    }

    /// The counters of an open stream.
    pub fn counters(&self, stream: u32) -> Option<SendCounters> {
        self.by_id.get(&stream).map(SendStream::counters)
    }

    /// The state of each stream, in the order in which they were opened.
    pub fn list(&self) -> impl Iterator<Item = OutgoingStatus> {
        self.application_streams()
            .map(|(stream, state)| OutgoingStatus {
                stream,
                name: state.name.clone(),
                qos: state.qos,
                state: match &state.refused {
                    Some(why) => OutgoingState::Refused(why.clone()),
                    None if state.closing => OutgoingState::Closing,
                    None if state.credit == 0 => OutgoingState::Opening,
                    None => OutgoingState::Open,
                },
                pending: state.under_way() - state.unclosed,
                in_flight: state.unclosed,
                changes_to: state.change.as_ref().map(|change| change.qos),
                credit_bytes: state.credit,
                counters: state.counters(),
            })
    }

    /// The counters of all streams, ended ones included, without control messages.
    pub fn totals(&self) -> SendCounters {
        self.application_streams()
            .fold(self.totals, |sum, (_, state)| sum + state.counters())
    }

    /// Whether nothing is pending or in flight.
    pub fn is_idle(&self) -> bool {
        self.by_id.values().all(|state| state.under_way() == 0)
    }

    /// Control messages that are pending or in flight.
    pub(crate) fn control_backlog(&self) -> usize {
        self.by_id[&CONTROL_STREAM].under_way()
    }

    /// Control messages in flight.
    pub(super) fn unclosed_control(&self) -> usize {
        self.by_id[&CONTROL_STREAM].unclosed
    }

    /// Whether a stream may be waiting for a grant.
    pub(crate) fn awaits_grant(&self) -> bool {
        self.awaits_grant
    }

    /// Looks through the streams for one that waits for a grant.
    pub(crate) fn check_grants(&mut self) -> bool {
        self.awaits_grant = self
            .by_id
            .values()
            .any(|state| state.wants_in_flight > 0 && state.refused.is_none());
        self.awaits_grant
    }

    /// Notes a control message that the peer answers with a grant.
    pub(super) fn note_request(&mut self) {
        self.awaits_grant = true;
    }

    /// Reviews the streams with large credit. Returns the credit to keep of each that has used
    /// little of it or, if others lack credit, does not need it now. The set keeps the streams that
    /// still have large credit.
    pub(super) fn credit_to_return(
        &mut self,
        large: &mut BTreeSet<u32>,
        others_lack_it: bool,
    ) -> Vec<(u32, u64)> {
        let mut returned = Vec::new();
        large.retain(|stream| {
            let Some(state) = self.by_id.get_mut(stream) else {
                return false;
            };
            let keep = match others_lack_it {
                true => state.credit_to_yield(),
                false => state.credit_to_return(),
            };
            returned.extend(keep.map(|bytes| (*stream, bytes)));
            state.has_large_credit()
        });
        returned
    }

    pub(super) fn add(&mut self, name: String, qos: Qos) -> u32 {
        let stream = self.next_stream;
        self.next_stream += 1;
        self.by_id.insert(stream, SendStream::new(name, qos));
        stream
    }

    pub(super) fn get(&self, stream: u32) -> Option<&SendStream> {
        self.by_id.get(&stream)
    }

    pub(super) fn get_mut(&mut self, stream: u32) -> Option<&mut SendStream> {
        self.by_id.get_mut(&stream)
    }

    /// A stream of the application: not the one of control messages.
    pub(super) fn application_stream(&mut self, stream: u32) -> Option<&mut SendStream> {
        self.get_mut(stream).filter(|_| stream != CONTROL_STREAM)
    }

    pub(super) fn control(&mut self) -> &mut SendStream {
        self.by_id
            .get_mut(&CONTROL_STREAM)
            .expect("the control stream is never closed")
    }

    pub(super) fn ids(&self) -> Vec<u32> {
        self.by_id.keys().copied().collect()
    }

    /// Ends a closed stream without samples in flight. Returns whether the peer must learn of it.
    pub(super) fn end_if_done(&mut self, stream: u32) -> Option<bool> {
        let state = self
            .by_id
            .get(&stream)
            .filter(|state| state.closing && state.under_way() == 0)?;
        let (counters, refused) = (state.counters(), state.refused.is_some());
        self.by_id.remove(&stream);
        self.totals = self.totals + counters;
        self.note(SenderEvent::Finished(stream, counters));
        Some(!refused)
    }

    /// Notifies a producer that was turned away, if there is room now.
    pub(super) fn notify_room(&mut self, stream: u32) {
        if self.get_mut(stream).is_some_and(SendStream::take_room) {
            self.note(SenderEvent::Writable(stream));
        }
    }

    /// Resets all streams for a new session. Returns the number of samples that were in flight, and
    /// the messages that open the streams again.
    pub(super) fn begin_session(&mut self) -> (u64, Vec<Control>) {
        let mut unconfirmed = 0;
        let mut changed = Vec::new();
        for (stream, state) in self.by_id.iter_mut() {
            let lost = state.unclosed as u64;
            state.counters.unconfirmed += lost;
            unconfirmed += if *stream == CONTROL_STREAM { 0 } else { lost };
            state.reset_session();
            if state.finish_change_if_drained() {
                changed.push(SenderEvent::Changed(*stream));
            }
        }
        self.events.extend(changed);
        let control = self.control();
        control.clear_pending();
        control.next_sequence = 0;
        let opens = self
            .application_streams()
            .filter(|(_, state)| state.refused.is_none())
            .map(|(stream, state)| Control::Open {
                stream,
                qos: state.qos,
                first_sequence: state
                    .pending
                    .front()
                    .map_or(state.end_of_pending(), |pending| pending.sequence),
                name: state.name.clone(),
            });
        (unconfirmed, opens.collect())
    }

    pub(super) fn note(&mut self, event: SenderEvent) {
        self.events.push_back(event);
    }

    pub(super) fn poll_event(&mut self) -> Option<SenderEvent> {
        self.events.pop_front()
    }

    #[cfg(test)]
    pub(crate) fn looked_at(&self) -> u64 {
        self.by_id.looked_at()
    }

    fn application_streams(&self) -> impl Iterator<Item = (u32, &SendStream)> {
        self.by_id
            .iter()
            .filter(|(stream, _)| **stream != CONTROL_STREAM)
            .map(|(stream, state)| (*stream, state))
    }
}
