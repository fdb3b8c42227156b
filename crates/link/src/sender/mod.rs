//! The sending end: from samples to symbols.
//!
//! A stream's samples wait in the stream until the link has nothing better to send; then one is *admitted*: it gets a
//! transmit id and its symbols become *ready*. A block asks for another symbol while not all source shards were sent
//! once, or while fewer symbols are expected to arrive than it needs. A transmission ends when the receiver reports it
//! closed, with what became of it.

mod counters;
mod feedback;
mod fill;
mod schedule;
mod stream;
mod transmission;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::{Duration, Instant},
};

use bytes::Bytes;
use smallvec::SmallVec;
use thiserror::Error;

use crate::{
    coding::{Coder, geometry::SAMPLE_BYTES_MAX},
    qos::{Delivery, Qos, TrafficClass},
    streams::Streams,
    wire::{control::Control, data::Abandoned},
};

pub use counters::SendCounters;
pub use feedback::FeedbackError;
use schedule::ClassQueue;
use stream::{Pending, SendStream};
use transmission::Transmission;

/// The stream of control messages.
pub(crate) const CONTROL_STREAM: u32 = 0;
/// Bytes of control messages under way at once.
pub(crate) const CONTROL_CREDIT: u64 = 64 << 10;
/// Transmissions of a stream that are not closed, at most.
const UNCLOSED_PER_STREAM: usize = 1024;
/// While there are more transmissions that are not closed than this, a stream may have a few only, so that streams whose
/// receivers are slow never block others.
const UNCLOSED_MANY: usize = 16_384;
const UNCLOSED_FEW: usize = 8;

/// Why a sample was not accepted. The sample comes back.
#[derive(Debug, Error)]
pub enum SendError {
    /// There is no such stream, or it was closed.
    #[error("stream {0} is not open")]
    NotOpen(u32),
    /// As many samples are under way as the stream's depth allows.
    #[error("stream {stream} is full: {depth} samples are under way")]
    Full {
        /// The stream.
        stream: u32,
        /// Its depth.
        depth: usize,
        /// What was to be sent.
        payload: Bytes,
    },
    /// The sample is longer than any can be.
    #[error("a sample of {bytes} bytes is too long, expected at most {SAMPLE_BYTES_MAX}")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// The receiver does not accept the stream, or has no memory for a sample as long as this one.
    #[error("the peer refuses stream {0}: it has no memory for it")]
    Refused(u32),
}

/// What the sender tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SenderEvent {
    /// The peer has opened a stream, for the first time or again: what is sent goes at once.
    Opened(u32),
    /// A stream that keeps all has room again.
    Writable(u32),
    /// A closed stream has ended; all of its samples are accounted for.
    Finished(u32, SendCounters),
    /// The peer does not accept a stream.
    Refused(u32),
}

/// What is known of the path to the peer.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// The share of packets that are lost, well below 1.
    pub loss: f64,
    /// A packet without a report counts as lost after this time.
    pub rto: Duration,
    /// How often reports are wanted.
    pub report_interval: Duration,
    /// How long a packet takes to the peer, about: by so much a sample is older when it arrives.
    pub transit: Duration,
    /// Nothing comes back.
    pub silent: bool,
    /// The rate is being found: soon more will pass.
    pub starting: bool,
}

impl Default for Path {
    fn default() -> Self {
        Self {
            loss: 0.0,
            rto: Duration::from_millis(250),
            report_interval: Duration::from_millis(1),
            transit: Duration::ZERO,
            silent: false,
            starting: true,
        }
    }
}

/// The sending end of a session.
#[derive(Debug)]
pub struct Sender {
    session: u32,
    next_packet: u64,
    next_transmit: u64,
    next_stream: u32,
    streams: Streams<SendStream>,
    /// Admitted and neither closed nor given up.
    transmissions: BTreeMap<u64, Transmission>,
    /// Given up, and not yet reported closed.
    given_up: BTreeMap<u64, GivenUp>,
    classes: [ClassQueue; TrafficClass::ALL.len()],
    /// When samples with a lifespan expire.
    expiries: BTreeSet<(Instant, u64)>,
    in_flight: VecDeque<InFlight>,
    coder: Coder,
    status: StatusTimer,
    path: Path,
    feedback_seen: u64,
    /// A stream may wait for a grant.
    awaits_grant: bool,
    events: VecDeque<SenderEvent>,
    totals: SendCounters,
    bytes_copied: u64,
}

/// A packet that was sent and not reported on.
#[derive(Debug)]
struct InFlight {
    packet: u64,
    sent: Instant,
    /// (transmission, block) of each symbol in it.
    symbols: SmallVec<[(u64, u16); 2]>,
}

#[derive(Debug)]
struct GivenUp {
    stream: u32,
    /// Of a stream that keeps all, which must skip it.
    sequence: Option<u64>,
    bytes: usize,
    cause: Cause,
}

/// Why a transmission was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    Expired,
    Superseded,
    Incomplete,
    /// The peer has no memory for it.
    Refused,
    /// It goes on under another id, in shorter shards.
    Recut,
    /// It was under way when the peer lost its state, and counted then.
    Unconfirmed,
}

/// When the receiver is next told what the sender knows.
#[derive(Debug, Default)]
struct StatusTimer {
    last: Option<Instant>,
    /// Feedback with closed transmissions has come since.
    news: bool,
    /// Where to go on telling what was given up, when it does not fit one status.
    cursor: u64,
}

impl Sender {
    /// A sender without streams. `session` is a random number.
    pub fn new(session: u32) -> Self {
        let mut sender = Self {
            session,
            next_packet: 1,
            next_transmit: 1,
            next_stream: 1,
            streams: Streams::default(),
            transmissions: BTreeMap::new(),
            given_up: BTreeMap::new(),
            classes: Default::default(),
            expiries: BTreeSet::new(),
            in_flight: VecDeque::new(),
            coder: Coder::default(),
            status: StatusTimer::default(),
            path: Path::default(),
            feedback_seen: 0,
            awaits_grant: false,
            events: VecDeque::new(),
            totals: SendCounters::default(),
            bytes_copied: 0,
        };
        sender.streams.insert(CONTROL_STREAM, SendStream::control());
        sender
    }

    /// The session's number.
    pub fn session(&self) -> u32 {
        self.session
    }

    /// Opens a stream and returns its number. Samples may be sent at once; they leave when the peer has granted credit.
    pub fn open(&mut self, now: Instant, name: String, qos: Qos) -> u32 {
        let stream = self.next_stream;
        self.next_stream += 1;
        self.streams
            .insert(stream, SendStream::new(name.clone(), qos));
        self.control(
            now,
            &Control::Open {
                stream,
                qos,
                first_sequence: 0,
                name,
            },
        );
        stream
    }

    /// Closes a stream: what was accepted is still carried, then [`SenderEvent::Finished`] comes.
    pub fn close(&mut self, now: Instant, stream: u32) {
        if stream != CONTROL_STREAM
            && let Some(state) = self.streams.get_mut(&stream)
        {
            state.closing = true;
            self.finish_if_done(now, stream);
        }
    }

    /// Accepts a sample for sending.
    pub fn accept(&mut self, now: Instant, stream: u32, payload: Bytes) -> Result<(), SendError> {
        let Some(state) = self.streams.get_mut(&stream).filter(|state| !state.closing) else {
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
        if state.qos.delivery.keeps_all() && state.under_way() >= depth {
            state.blocked = true;
            return Err(SendError::Full {
                stream,
                depth,
                payload,
            });
        }
        state.counters.accepted += 1;
        state.counters.accepted_bytes += payload.len() as u64;
        state.largest = state.largest.max(payload.len() as u64);
        state.pending.push_back(Pending {
            sequence: state.next_sequence,
            payload,
            accepted: now,
        });
        state.next_sequence += 1;
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

    /// Whether a stream that keeps all would accept a sample now.
    pub fn has_room(&self, stream: u32) -> bool {
        self.streams.get(&stream).is_some_and(|state| {
            !state.qos.delivery.keeps_all() || state.under_way() < state.qos.delivery.depth()
        })
    }

    /// Sends a control message.
    pub(crate) fn control(&mut self, now: Instant, message: &Control) {
        let stream = self
            .streams
            .get_mut(&CONTROL_STREAM)
            .expect("the control stream is never closed");
        let payload = Bytes::from(message.encode());
        self.awaits_grant |= matches!(message, Control::Open { .. } | Control::Want { .. });
        stream.counters.accepted += 1;
        stream.pending.push_back(Pending {
            sequence: stream.next_sequence,
            payload,
            accepted: now,
        });
        stream.next_sequence += 1;
        self.refresh(now, CONTROL_STREAM);
    }

    /// Whether a stream may wait for a grant.
    pub(crate) fn awaits_grant(&self) -> bool {
        self.awaits_grant
    }

    /// Whether all that was sent has arrived, as far as is known, and it is not known what became of it.
    pub(crate) fn awaits_closing(&self) -> bool {
        !self.transmissions.is_empty() && self.in_flight.is_empty() && !self.has_symbols()
    }

    /// Looks whether a stream waits for a grant.
    pub(crate) fn check_grants(&mut self) -> bool {
        self.awaits_grant = self
            .streams
            .values()
            .any(|state| state.wants_in_flight > 0 && !state.refused);
        self.awaits_grant
    }

    /// Control messages that wait or are under way.
    pub(crate) fn control_backlog(&self) -> usize {
        self.streams[&CONTROL_STREAM].under_way()
    }

    /// The peer granted credit.
    pub(crate) fn on_grant(&mut self, now: Instant, stream: u32, bytes: u64) {
        let Some(state) = self
            .streams
            .get_mut(&stream)
            .filter(|_| stream != CONTROL_STREAM)
        else {
            return;
        };
        let opened = state.credit == 0;
        state.credit = bytes;
        if state.wants_in_flight > 0 {
            state.wants_in_flight -= 1;
        }
        if opened {
            let keeps_all = state.qos.delivery.keeps_all();
            self.events.push_back(SenderEvent::Opened(stream));
            if keeps_all {
                self.skip_unconfirmed(stream);
            }
        }
        self.drop_too_long(stream);
        self.refresh(now, stream);
        self.tell_room(stream);
        self.finish_if_done(now, stream);
    }

    /// Drops what waits and the peer has no memory for.
    fn drop_too_long(&mut self, stream: u32) {
        while let Some(state) = self.streams.get_mut(&stream)
            && let Some(first) = state.pending.front()
            && state.cannot_ever_carry(first.payload.len())
        {
            let (sequence, bytes) = (first.sequence, first.payload.len());
            state.pending.pop_front();
            if state.qos.delivery.keeps_all() {
                state.unclosed += 1;
                self.skip(stream, sequence, bytes, Cause::Refused);
            } else {
                state.counters.refused += 1;
            }
        }
    }

    /// What waits at the begin of a session need not be in one piece: a sample that was cut anew waited again while later
    /// ones were under way.
    fn skip_unconfirmed(&mut self, stream: u32) {
        let Some(state) = self.streams.get(&stream) else {
            return;
        };
        let mut next = state
            .pending
            .front()
            .map_or(state.next_sequence, |first| first.sequence);
        let mut holes = Vec::new();
        for waiting in state
            .pending
            .iter()
            .map(|pending| pending.sequence)
            .chain([state.next_sequence])
        {
            holes.extend(next..waiting);
            next = waiting + 1;
        }
        holes
            .into_iter()
            .for_each(|hole| self.skip(stream, hole, 0, Cause::Unconfirmed));
    }

    /// Tells the receiver of a stream that keeps all not to wait for a sample that is not sent.
    fn skip(&mut self, stream: u32, sequence: u64, bytes: usize, cause: Cause) {
        let Some(state) = self.streams.get_mut(&stream) else {
            return;
        };
        state.unclosed_bytes += SendStream::charge(bytes);
        let given_up = GivenUp {
            stream,
            sequence: Some(sequence),
            bytes,
            cause,
        };
        self.given_up.insert(self.next_transmit, given_up);
        self.next_transmit += 1;
    }

    /// The peer does not accept a stream.
    pub(crate) fn on_refuse(&mut self, stream: u32) {
        let Some(state) = self
            .streams
            .get_mut(&stream)
            .filter(|_| stream != CONTROL_STREAM)
        else {
            return;
        };
        state.refused = true;
        state.counters.refused += state.pending.len() as u64;
        state.pending.clear();
        self.refresh_key(stream, None);
        self.events.push_back(SenderEvent::Refused(stream));
    }

    /// What is known of the path.
    pub fn set_path(&mut self, now: Instant, path: Path) {
        let before = std::mem::replace(&mut self.path, path);
        if before.silent && !path.silent {
            self.keep_freshest(now);
        }
    }

    /// Begins a new session, because the peer has lost its state: what is under way counts as unconfirmed, what waits is
    /// carried in the new session. Returns how many samples are unconfirmed.
    pub fn restart(&mut self, now: Instant, session: u32) -> u64 {
        let mut unconfirmed = 0;
        for (stream, state) in self.streams.iter_mut() {
            let lost = state.unclosed as u64;
            state.counters.unconfirmed += lost;
            unconfirmed += if *stream == CONTROL_STREAM { 0 } else { lost };
            state.reset_session();
        }
        self.session = session;
        (self.next_packet, self.next_transmit, self.feedback_seen) = (1, 1, 0);
        self.transmissions.clear();
        self.given_up.clear();
        self.expiries.clear();
        self.in_flight.clear();
        self.classes = Default::default();
        self.status = StatusTimer::default();
        let control = self
            .streams
            .get_mut(&CONTROL_STREAM)
            .expect("the control stream is never closed");
        control.pending.clear();
        control.next_sequence = 0;
        let opens: Vec<_> = self
            .streams
            .iter()
            .filter(|(stream, state)| **stream != CONTROL_STREAM && !state.refused)
            .map(|(stream, state)| Control::Open {
                stream: *stream,
                qos: state.qos,
                first_sequence: state
                    .pending
                    .front()
                    .map_or(state.next_sequence, |pending| pending.sequence),
                name: state.name.clone(),
            })
            .collect();
        for open in opens {
            self.control(now, &open);
        }
        let streams: Vec<u32> = self.streams.keys().copied().collect();
        for stream in streams {
            self.tell_room(stream);
            self.finish_if_done(now, stream);
        }
        unconfirmed
    }

    /// What happened, the oldest first.
    pub fn poll_event(&mut self) -> Option<SenderEvent> {
        self.events.pop_front()
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let lost = self
            .in_flight
            .front()
            .map(|packet| packet.sent + self.path.rto);
        let expiry = self.expiries.first().map(|(at, _)| *at);
        lost.into_iter().chain(expiry).min()
    }

    /// When there is something to tell of what was given up, unless there is now.
    pub(crate) fn next_status(&self, now: Instant) -> Option<Instant> {
        let last = self.status.last.filter(|_| !self.given_up.is_empty())?;
        Some(last + self.status_interval()).filter(|at| *at > now)
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some((at, id)) = self.expiries.first().copied()
            && at <= now
        {
            self.give_up(now, id, Cause::Expired);
        }
        let mut touched = Vec::new();
        while self
            .in_flight
            .front()
            .is_some_and(|packet| packet.sent + self.path.rto <= now)
        {
            let packet = self.in_flight.pop_front().expect("there is a first one");
            touched.extend(packet.symbols);
        }
        self.resolve(now, touched);
    }

    /// Whether the peer has opened a stream.
    ///
    /// # Errors
    /// When the stream was closed and has ended, or the peer refuses it.
    pub fn is_opened(&self, stream: u32) -> Result<bool, SendError> {
        match self.streams.get(&stream) {
            None => Err(SendError::NotOpen(stream)),
            Some(state) if state.refused => Err(SendError::Refused(stream)),
            Some(state) => Ok(state.credit > 0),
        }
    }

    /// The counters of a stream.
    pub fn counters(&self, stream: u32) -> Option<SendCounters> {
        self.streams.get(&stream).map(SendStream::counters)
    }

    /// The counters of all streams, closed ones included, control messages left out.
    pub fn totals(&self) -> SendCounters {
        let open = self
            .streams
            .iter()
            .filter(|(stream, _)| **stream != CONTROL_STREAM);
        open.fold(self.totals, |sum, (_, state)| sum + state.counters())
    }

    /// The open streams.
    pub fn streams(&self) -> impl Iterator<Item = (u32, &str, Qos)> {
        self.streams
            .iter()
            .filter(|(stream, _)| **stream != CONTROL_STREAM)
            .map(|(stream, state)| (*stream, state.name.as_str(), state.qos))
    }

    /// Bytes of samples and repair shards copied.
    pub fn bytes_copied(&self) -> u64 {
        self.bytes_copied
    }

    /// The number of the newest feedback, 0: none.
    pub(crate) fn feedback_seen(&self) -> u64 {
        self.feedback_seen
    }

    /// Packets sent in this session.
    pub fn packets_sent(&self) -> u64 {
        self.next_packet - 1
    }

    #[cfg(test)]
    pub(crate) fn streams_looked_at(&self) -> u64 {
        self.streams.looked_at()
    }

    /// Whether something is under way, may be sent, or is to be told.
    pub(crate) fn has_unfinished(&self) -> bool {
        !self.transmissions.is_empty() || !self.given_up.is_empty() || self.has_symbols()
    }

    /// Whether samples are under way or may be sent, or hold credit that others wait for.
    pub(crate) fn has_samples(&self) -> bool {
        let sendable = |class: TrafficClass| {
            let queue = &self.classes[class as usize];
            !queue.ready.is_empty() || !queue.waiting.is_empty()
        };
        !self.given_up.is_empty()
            || self.transmissions.len() > self.streams[&CONTROL_STREAM].unclosed
            || sendable(TrafficClass::Default)
            || sendable(TrafficClass::Bulk)
    }

    /// Whether nothing is under way and nothing waits.
    pub fn is_idle(&self) -> bool {
        self.streams.values().all(|state| state.under_way() == 0)
    }

    /// Ends a transmission before it is complete. The receiver is told until it reports it closed.
    fn give_up(&mut self, now: Instant, id: u64, cause: Cause) {
        let Some(transmission) = self.remove_transmission(id) else {
            return;
        };
        let stream = transmission.stream;
        if cause == Cause::Expired
            && let Some(state) = self.streams.get_mut(&stream)
        {
            state.expired_after(now.saturating_duration_since(transmission.admitted));
        }
        let keeps_all = self
            .streams
            .get(&stream)
            .is_some_and(|state| state.qos.delivery.keeps_all());
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
        let transmission = self.transmissions.remove(&id)?;
        let queue = &mut self.classes[transmission.class as usize];
        for (number, block) in transmission.blocks.iter().enumerate() {
            if block.ready {
                queue.ready.remove(&(transmission.tag, id, number as u16));
            }
        }
        if let Some(at) = transmission.expires {
            self.expiries.remove(&(at, id));
        }
        if let Some(state) = self.streams.get_mut(&transmission.stream)
            && state.sending == Some(id)
        {
            state.sending = None;
        }
        Some(transmission)
    }

    fn finish_if_done(&mut self, now: Instant, stream: u32) {
        let Some(state) = self.streams.get(&stream) else {
            return;
        };
        if !state.closing || state.under_way() > 0 {
            return;
        }
        let counters = state.counters();
        let refused = state.refused;
        self.streams.remove(&stream);
        self.totals = self.totals + counters;
        if !refused {
            self.control(now, &Control::Close { stream });
        }
        self.events
            .push_back(SenderEvent::Finished(stream, counters));
    }

    fn tell_room(&mut self, stream: u32) {
        if let Some(state) = self.streams.get_mut(&stream)
            && state.blocked
            && state.under_way() < state.qos.delivery.depth()
        {
            state.blocked = false;
            self.events.push_back(SenderEvent::Writable(stream));
        }
    }

    /// What was given up, merged into runs, from the status's cursor on.
    fn abandoned(&mut self, most: usize) -> Vec<Abandoned> {
        let mut runs: Vec<Abandoned> = Vec::new();
        let cursor = self.status.cursor;
        self.status.cursor = 0;
        for (id, given_up) in self.given_up.range(cursor..) {
            if given_up.sequence.is_none()
                && let Some(run) = runs.last_mut()
                && run.stream == CONTROL_STREAM
                && run.transmit_id + run.count == *id
            {
                run.count += 1;
                continue;
            }
            if runs.len() == most {
                self.status.cursor = *id;
                break;
            }
            runs.push(Abandoned {
                transmit_id: *id,
                count: 1,
                stream: given_up
                    .sequence
                    .map_or(CONTROL_STREAM, |_| given_up.stream),
                sequence: given_up.sequence.unwrap_or(0),
            });
        }
        runs
    }
}
