//! The sending end: from samples to symbols.
//!
//! Samples are *pending* in their stream until the schedule *admits* them, as late as possible. An
//! admitted sample gets a transmit id, and its blocks become *ready*. A block needs another symbol
//! while not all source shards were sent once, or while fewer symbols are expected to arrive than
//! it needs. A transmission ends when the receiver reports it closed, with its outcome.

mod admission;
mod counters;
mod feedback;
mod fill;
mod given_up;
mod in_flight;
mod schedule;
mod stream;
mod streams;
mod transmission;

use std::time::Instant;

use bytes::Bytes;

use crate::{
    coding::{Coder, geometry::SAMPLE_BYTES_MAX},
    qos::{Delivery, Qos, TrafficClass},
    wire::control::{Control, NAME_BYTES_MAX},
};

pub use counters::SendCounters;
pub use feedback::FeedbackError;
use given_up::{Cause, GivenUp, GivenUpList};
use in_flight::InFlight;
use schedule::Schedule;
use stream::SendStream;
pub(crate) use stream::{CONTROL_CREDIT, CONTROL_STREAM};
pub use streams::{NameTooLong, SendError, SendStreams, SenderEvent};
pub use transmission::PathEstimate;
use transmission::{Transmission, Transmissions};

/// The sending end of a session.
#[derive(Debug)]
pub struct Sender {
    session: u32,
    pub(crate) streams: SendStreams,
    transmissions: Transmissions,
    given_up: GivenUpList,
    schedule: Schedule,
    in_flight: InFlight,
    coder: Coder,
    path: PathEstimate,
    feedback_seen: u64,
    uses_coding: bool,
    bytes_copied: u64,
}

impl Sender {
    /// A sender without streams. `session` is a random number.
    pub fn new(session: u32) -> Self {
        Self {
            session,
            streams: SendStreams::new(),
            transmissions: Transmissions::default(),
            given_up: GivenUpList::default(),
            schedule: Schedule::default(),
            in_flight: InFlight::default(),
            coder: Coder::default(),
            path: PathEstimate::default(),
            feedback_seen: 0,
            uses_coding: false,
            bytes_copied: 0,
        }
    }

    /// The session's number.
    pub fn session(&self) -> u32 {
        self.session
    }

    /// The streams: their state and counters.
    pub fn streams(&self) -> &SendStreams {
        &self.streams
    }

    /// Opens a stream and returns its number. Samples may be sent at once; they leave when the peer
    /// has granted credit.
    ///
    /// # Errors
    /// When the name is longer than [`NAME_BYTES_MAX`].
    pub fn open(&mut self, now: Instant, name: String, qos: Qos) -> Result<u32, NameTooLong> {
        if name.len() > NAME_BYTES_MAX {
            return Err(NameTooLong { bytes: name.len() });
        }
        let stream = self.streams.add(name.clone(), qos);
        self.control(
            now,
            &Control::Open {
                stream,
                qos,
                first_sequence: 0,
                name,
            },
        );
        Ok(stream)
    }

    /// Closes a stream: accepted samples are still carried, then [`SenderEvent::Finished`] comes.
    pub fn close(&mut self, now: Instant, stream: u32) {
        if let Some(state) = self.streams.application_stream(stream) {
            state.closing = true;
            self.finish_if_done(now, stream);
        }
    }

    /// Accepts a sample for sending.
    ///
    /// # Errors
    /// When the stream is not open, is full (if it keeps all), or is refused by the peer.
    pub fn accept(&mut self, now: Instant, stream: u32, payload: Bytes) -> Result<(), SendError> {
        let Some(state) = self.streams.get_mut(stream).filter(|state| !state.closing) else {
            return Err(SendError::NotOpen(stream));
        };
        if payload.len() > SAMPLE_BYTES_MAX {
            return Err(SendError::TooLong {
                bytes: payload.len(),
            });
        }
        if state.refused || state.cannot_ever_carry(payload.len()) {
            return Err(SendError::Refused(stream));
        }
        state.drop_expired(now);
        let depth = state.qos.delivery.depth();
        if !state.has_room() {
            state.blocked = true;
            return Err(SendError::Full {
                stream,
                depth,
                payload,
            });
        }
        state.counters.accepted_bytes += payload.len() as u64;
        state.largest = state.largest.max(payload.len() as u64);
        state.push(now, payload);
        while state.pending.len() > depth {
            state.pending.pop_front();
            state.counters.overwritten += 1;
            state.dropped = true;
        }
        if state.qos.delivery == Delivery::Latest {
            self.supersede_sent_once(now, stream);
        }
        self.refresh(now, stream);
        Ok(())
    }

    /// Sends a control message.
    pub(crate) fn control(&mut self, now: Instant, message: &Control) {
        if matches!(message, Control::Open { .. } | Control::Want { .. }) {
            self.streams.note_request();
        }
        let payload = Bytes::from(message.encode());
        self.streams.control().push(now, payload);
        self.refresh(now, CONTROL_STREAM);
    }

    /// Whether, as far as is known, all samples have arrived, and their outcome is not known yet.
    pub(crate) fn awaits_closing(&self) -> bool {
        !self.transmissions.is_empty() && self.in_flight.is_empty() && !self.schedule.has_symbols()
    }

    /// Takes a grant of credit from the peer.
    pub(crate) fn on_grant(&mut self, now: Instant, stream: u32, bytes: u64) {
        let Some(state) = self.streams.application_stream(stream) else {
            return;
        };
        let opened = state.credit == 0;
        let keeps_all = state.qos.delivery.keeps_all();
        state.credit = bytes;
        state.wants_in_flight = state.wants_in_flight.saturating_sub(1);
        // The receiver of a stream that keeps all must skip what is not sent.
        let mut skipped = Vec::new();
        if opened && keeps_all {
            let gaps = state.gaps().into_iter();
            skipped.extend(gaps.map(|gap| (gap, 0, Cause::Unconfirmed)));
        }
        while let Some(sample) = state.pop_too_long() {
            if keeps_all {
                state.unclosed += 1;
                skipped.push((sample.sequence, sample.payload.len(), Cause::Refused));
            } else {
                state.counters.refused += 1;
            }
        }
        for (sequence, bytes, cause) in skipped {
            state.unclosed_bytes += SendStream::charge(bytes);
            let given_up = GivenUp {
                stream,
                sequence: Some(sequence),
                bytes,
                cause,
            };
            self.given_up.insert(self.transmissions.new_id(), given_up);
        }
        if opened {
            self.streams.note(SenderEvent::Opened(stream));
        }
        self.refresh(now, stream);
        self.streams.notify_room(stream);
        self.finish_if_done(now, stream);
    }

    /// Notes that the peer does not accept a stream.
    pub(crate) fn on_refuse(&mut self, stream: u32) {
        let Some(state) = self.streams.application_stream(stream) else {
            return;
        };
        state.refused = true;
        state.counters.refused += state.pending.len() as u64;
        state.pending.clear();
        self.schedule.place_stream(stream, state, None);
        self.streams.note(SenderEvent::Refused(stream));
    }

    /// Takes the latest estimate of the path.
    pub fn set_path(&mut self, now: Instant, path: PathEstimate) {
        let before = std::mem::replace(&mut self.path, path);
        if before.silent && !path.silent {
            self.keep_freshest(now);
        }
    }

    /// Begins a new session, because the peer has lost its state: samples in flight count as
    /// unconfirmed, pending ones are carried in the new session. Returns the number of unconfirmed
    /// samples.
    pub fn restart(&mut self, now: Instant, session: u32) -> u64 {
        self.session = session;
        self.feedback_seen = 0;
        self.transmissions = Transmissions::default();
        self.given_up = GivenUpList::default();
        self.in_flight = InFlight::default();
        self.schedule = Schedule::default();
        let (unconfirmed, opens) = self.streams.begin_session();
        for open in opens {
            self.control(now, &open);
        }
        for stream in self.streams.ids() {
            self.streams.notify_room(stream);
            self.finish_if_done(now, stream);
        }
        unconfirmed
    }

    /// Returns the oldest event.
    pub fn poll_event(&mut self) -> Option<SenderEvent> {
        self.streams.poll_event()
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let lost = self.in_flight.next_timeout(self.path.rto);
        let expiry = self.transmissions.first_expiry().map(|(at, _)| at);
        lost.into_iter().chain(expiry).min()
    }

    /// When the next status on given-up transmissions is due, if that is later than `now`.
    pub(crate) fn next_status(&self, now: Instant) -> Option<Instant> {
        self.given_up.next_status(now, self.path.status_interval())
    }

    /// Gives up expired transmissions, and counts overdue packets as lost.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some((at, id)) = self.transmissions.first_expiry()
            && at <= now
        {
            self.give_up(now, id, Cause::Expired);
        }
        let overdue = self.in_flight.take_overdue(now, self.path.rto);
        self.resolve(now, overdue);
    }

    /// Bytes of samples and repair shards copied.
    pub fn bytes_copied(&self) -> u64 {
        self.bytes_copied
    }

    /// Whether a sample of more than one shard was admitted: its repair needs the tables of the
    /// erasure code.
    pub(crate) fn uses_coding(&self) -> bool {
        self.uses_coding
    }

    /// The number of the newest feedback, 0: none.
    pub(crate) fn feedback_seen(&self) -> u64 {
        self.feedback_seen
    }

    /// Whether anything is in flight, may be sent, or must be reported to the receiver.
    pub(crate) fn has_unfinished(&self) -> bool {
        !self.transmissions.is_empty() || !self.given_up.is_empty() || self.schedule.has_symbols()
    }

    /// Whether samples are in flight or may be sent, or hold credit that others wait for.
    pub(crate) fn has_samples(&self) -> bool {
        !self.given_up.is_empty()
            || self.transmissions.len() > self.streams.unclosed_control()
            || self.schedule.has_symbols_of(TrafficClass::Default)
            || self.schedule.has_symbols_of(TrafficClass::Bulk)
    }

    /// Ends a transmission before it is complete. Statuses report it until the receiver has closed
    /// it.
    fn give_up(&mut self, now: Instant, id: u64, cause: Cause) {
        let Some(transmission) = self.remove_transmission(id) else {
            return;
        };
        let stream = transmission.stream;
        let state = self.streams.get_mut(stream);
        let keeps_all = state.is_some_and(|state| {
            if cause == Cause::Expired {
                state.expired_after(now.saturating_duration_since(transmission.admitted));
            }
            state.qos.delivery.keeps_all()
        });
        let sequence = (keeps_all && cause != Cause::Recut).then_some(transmission.sequence);
        self.given_up.insert(
            id,
            GivenUp {
                stream,
                sequence,
                bytes: transmission.payload.len(),
                cause,
            },
        );
        self.refresh(now, stream);
    }

    fn remove_transmission(&mut self, id: u64) -> Option<Transmission> {
        let transmission = self.transmissions.remove(id)?;
        self.schedule.remove(id, &transmission);
        if let Some(state) = self.streams.get_mut(transmission.stream)
            && state.sending == Some(id)
        {
            state.sending = None;
        }
        Some(transmission)
    }

    fn finish_if_done(&mut self, now: Instant, stream: u32) {
        if self.streams.end_if_done(stream) == Some(true) {
            self.control(now, &Control::Close { stream });
        }
    }
}
