//! The sending end: from samples to symbols.
//!
//! Samples are *pending* in their stream until the schedule *admits* them, as late as possible. An
//! admitted sample gets a transmit id, and its blocks become *ready*. A block needs another symbol
//! while not all source shards were sent once, or while fewer symbols are expected to arrive than
//! it needs. A transmission ends when the receiver reports it closed, with its outcome.

mod admission;
mod change;
mod counters;
mod feedback;
mod fill;
mod given_up;
mod in_flight;
mod schedule;
mod stream;
mod streams;
mod transmission;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use bytes::Bytes;

use crate::{
    coding::{Coder, geometry::SAMPLE_BYTES_MAX},
    policy::Refusal,
    qos::{Delivery, Qos, TrafficClass},
    wire::control::{Control, NAME_BYTES_MAX},
};

pub use counters::SendCounters;
pub use feedback::FeedbackError;
use given_up::{Cause, GivenUp, GivenUpList};
use in_flight::InFlight;
use schedule::Schedule;
pub(crate) use stream::CONTROL_STREAM;
use stream::SendStream;
pub use streams::{
    NameTooLong, OutgoingState, OutgoingStatus, SendError, SendStreams, SenderEvent,
};
pub use transmission::PathEstimate;
use transmission::{Transmission, Transmissions};

/// Credit is returned when it was not used in two of these periods: streams with a sample every two
/// seconds keep theirs.
const REVIEW_PERIOD: Duration = Duration::from_secs(2);

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
    pub(crate) path: PathEstimate,
    /// The number of the newest feedback, 0: none.
    pub(crate) feedback_seen: u64,
    /// Streams whose quality of service changes when the peer has this control message.
    changes: BTreeMap<u64, u32>,
    /// Streams that lack credit, and when to ask for it again.
    asking: BTreeSet<(Instant, u32)>,
    /// Streams with credit to return when they do not use it.
    large: BTreeSet<u32>,
    /// When to look for unused credit.
    review_at: Option<Instant>,
    /// Whether a sample of more than one shard was admitted: its repair needs the tables of the
    /// erasure code.
    pub(crate) uses_coding: bool,
    /// Bytes of samples and repair shards copied.
    pub(crate) bytes_copied: u64,
}

impl Sender {
    /// A sender without streams. `session` is a random number, and `seed` one that the peer cannot
    /// derive from it.
    pub fn new(session: u32, seed: u64) -> Self {
        Self {
            session,
            streams: SendStreams::new(),
            transmissions: Transmissions::default(),
            given_up: GivenUpList::default(),
            schedule: Schedule::default(),
            in_flight: InFlight::new(seed),
            coder: Coder::default(),
            path: PathEstimate::default(),
            feedback_seen: 0,
            changes: BTreeMap::new(),
            asking: BTreeSet::new(),
            large: BTreeSet::new(),
            review_at: None,
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
        if let Some(why) = state.refused.clone() {
            return Err(SendError::Refused { stream, why });
        }
        let (bytes, most) = (payload.len(), state.longest().min(SAMPLE_BYTES_MAX));
        if bytes > most {
            return Err(SendError::TooLong { bytes, most });
        }
        state.drop_expired(now);
        if !state.has_room() {
            state.blocked = true;
            return Err(SendError::Full {
                stream,
                depth: state.accepts_as().delivery.depth(),
                payload,
            });
        }
        state.counters.accepted_bytes += payload.len() as u64;
        if state.change.is_some() {
            state.push_behind_change(now, payload);
            return Ok(());
        }
        let depth = state.qos.delivery.depth();
        state.push(now, payload);
        while state.pending.len() > depth {
            state.pop_pending();
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
    pub(crate) fn on_grant(&mut self, now: Instant, stream: u32, bytes: u64, most: u64) {
        let state = self.streams.application_stream(stream);
        let Some(state) = state.filter(|state| state.refused.is_none()) else {
            return;
        };
        let opened = state.credit == 0;
        let keeps_all = state.qos.delivery.keeps_all();
        state
            .ask_at
            .map(|before| self.asking.remove(&(before, stream)));
        let ask_at = state.on_grant(now, bytes, most);
        self.asking.extend(ask_at.map(|at| (at, stream)));
        if state.has_large_credit() && self.large.insert(stream) {
            self.review_at.get_or_insert(now + REVIEW_PERIOD);
        }
        // The receiver of a stream that keeps all must skip the gaps.
        if opened && keeps_all {
            for gap in state.gaps() {
                state.unclosed_bytes += SendStream::charge(0);
                let given_up = GivenUp {
                    stream,
                    sequence: Some(gap),
                    bytes: 0,
                    cause: Cause::Unconfirmed,
                };
                self.given_up.insert(self.transmissions.new_id(), given_up);
            }
        }
        if opened {
            self.streams.note(SenderEvent::Opened(stream));
        }
        self.refresh(now, stream);
        self.streams.notify_room(stream);
        self.finish_if_done(now, stream);
    }

    /// Refuses pending samples for which the peer can never have memory, up to one that it can.
    fn refuse_too_long(&mut self, stream: u32) {
        let Some(state) = self.streams.get_mut(stream) else {
            return;
        };
        while let Some(sample) = state.pop_too_long() {
            if !state.qos.delivery.keeps_all() {
                state.counters.refused += 1;
                continue;
            }
            let bytes = sample.payload.len();
            state.unclosed += 1;
            state.unclosed_bytes += SendStream::charge(bytes);
            let given_up = GivenUp {
                stream,
                sequence: Some(sample.sequence),
                bytes,
                cause: Cause::Refused,
            };
            self.given_up.insert(self.transmissions.new_id(), given_up);
        }
    }

    /// Notes that the peer does not accept a stream, or not any more: drops its samples. The receiver
    /// reports those in flight that were delivered before.
    pub(crate) fn on_refuse(&mut self, now: Instant, stream: u32, why: Refusal) {
        let Some(state) = self
            .streams
            .application_stream(stream)
            .filter(|state| state.refused.is_none())
        else {
            return;
        };
        state.refused = Some(why.clone());
        state.counters.refused += state.clear_pending();
        state.credit = 0;
        let (ask_at, unclosed, name) = (state.ask_at.take(), state.unclosed, state.name.clone());
        self.schedule.place_stream(stream, state, None);
        ask_at.map(|at| self.asking.remove(&(at, stream)));
        if unclosed > 0 {
            for id in self.transmissions.ids_of(stream) {
                self.give_up(now, id, Cause::Refused);
            }
        }
        self.streams
            .note(SenderEvent::Refused { stream, name, why });
        self.finish_if_done(now, stream);
    }

    /// Takes the latest estimate of the path.
    pub fn set_path(&mut self, now: Instant, path: PathEstimate) {
        let before = std::mem::replace(&mut self.path, path);
        if before.silent && !path.silent {
            self.keep_history(now);
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
        self.in_flight.restart();
        self.schedule = Schedule::default();
        (self.asking, self.large, self.review_at) = Default::default();
        self.changes.clear();
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
        let asking = self.asking.first().map(|(at, _)| *at);
        [lost, expiry, asking, self.review_at]
            .into_iter()
            .flatten()
            .min()
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
        let due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        let others_lack_it = due(self.asking.first().map(|(at, _)| *at));
        let is_review = due(self.review_at);
        if others_lack_it || is_review {
            let (streams, large) = (&mut self.streams, &mut self.large);
            for (stream, bytes) in streams.credit_to_return(large, others_lack_it) {
                self.control(now, &Control::Return { stream, bytes });
            }
        }
        if is_review {
            self.review_at = (!self.large.is_empty()).then_some(now + REVIEW_PERIOD);
        }
        while let Some((at, stream)) = self.asking.first().copied()
            && at <= now
        {
            self.asking.pop_first();
            self.refresh(now, stream);
        }
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
