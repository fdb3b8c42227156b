//! The receiving end: from symbols to samples.
//!
//! A budget bounds the memory: an assembly begins only within the credit granted to its stream, and
//! the sum of all grants and of samples that wait for the application stays within the budget.

mod assembly;
mod budget;
mod counters;
mod events;
mod notices;
mod ranges;
mod report;
mod stream;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque, btree_map::Entry},
    time::{Duration, Instant},
};

use crate::{
    coding::Coder,
    memory::{Heap, Memory, NoMemory, Payload},
    qos::Qos,
    sender::{CONTROL_CREDIT, CONTROL_STREAM},
    streams::Streams,
    window::PacketWindow,
    wire::{
        WireError,
        control::{CONTROL_BYTES_MAX, Control, StreamEnds},
        data::{self, Abandoned, Frame, Symbol},
        expand,
        feedback::Outcome,
    },
};

use assembly::Assembly;
use budget::Budget;
pub use counters::{LinkReceiveCounters, ReceiveCounters};
use notices::{Notices, StreamNotices};
use ranges::{ClosedIds, Reports};
use report::Reporter;
pub use stream::LinkSample;
use stream::{CompleteSample, QueueOutcome, ReceiveStream};

/// The most ranges of ids that are remembered: more than any honest sender leaves.
const RANGES_MAX: usize = 65_536;
/// The most messages that wait for the peer; then its own wait too.
const REPLIES_MAX: usize = 256;
/// Number of past sessions that are remembered, so that late packets do not begin them again.
const RETIRED_SESSIONS: usize = 16;

/// Limits on a peer's use of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiverConfig {
    /// Memory for samples that arrive or wait for the application, in bytes.
    pub budget_bytes: u64,
    /// The most streams that the peer may open.
    pub max_streams: usize,
    /// Credit of a stream that has not requested more, in bytes.
    pub initial_credit: u64,
}

impl Default for ReceiverConfig {
    fn default() -> Self {
        Self {
            budget_bytes: 1 << 30,
            max_streams: 16_384,
            initial_credit: 4 << 20,
        }
    }
}

/// An event at the receiving end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiverEvent {
    /// The peer has opened a stream.
    Opened {
        /// Its number.
        stream: u32,
        /// Its name.
        name: String,
        /// Its quality of service.
        qos: Qos,
    },
    /// A stream has samples: at least one came since the last such event, or is left after one was
    /// taken.
    Readable(u32),
    /// A stream has ended: no samples follow those in its queue.
    Ended(u32),
    /// The peer has begun a new session: all streams are new.
    PeerRestarted {
        /// Number of samples that had arrived in part, or waited for their predecessors.
        lost: u64,
    },
}

/// The receiving end of a session.
pub struct Receiver {
    config: ReceiverConfig,
    memory: Box<dyn Memory>,
    incarnation: u32,
    start: Instant,
    session: Option<u32>,
    retired: VecDeque<u32>,
    streams: Streams<ReceiveStream>,
    assemblies: BTreeMap<u64, Assembly>,
    /// Complete transmissions that wait for their predecessors or for room.
    held: BTreeSet<u64>,
    closed: ClosedIds,
    reports: Reports,
    reporter: Reporter,
    packets: PacketWindow,
    budget: Budget,
    coder: Coder,
    uses_coding: bool,
    notices: Notices,
    /// Messages for the peer.
    replies: VecDeque<Control>,
    /// Messages from the peer about the streams that this end sends.
    answers: VecDeque<Control>,
    counters: LinkReceiveCounters,
    totals: ReceiveCounters,
}

impl Receiver {
    /// A receiver without streams that stores samples on the heap. `incarnation` is a random
    /// number.
    pub fn new(config: ReceiverConfig, incarnation: u32, now: Instant) -> Self {
        let mut receiver = Self {
            config,
            memory: Box::new(Heap),
            incarnation,
            start: now,
            session: None,
            retired: VecDeque::new(),
            streams: Streams::default(),
            assemblies: BTreeMap::new(),
            held: BTreeSet::new(),
            closed: ClosedIds::default(),
            reports: Reports::default(),
            reporter: Reporter::default(),
            packets: PacketWindow::new(),
            budget: Budget::new(config.budget_bytes),
            coder: Coder::default(),
            uses_coding: false,
            notices: Notices::default(),
            replies: VecDeque::new(),
            answers: VecDeque::new(),
            counters: LinkReceiveCounters::default(),
            totals: ReceiveCounters::default(),
        };
        receiver.begin_session();
        receiver
    }

    /// Sets where samples are stored that begin to arrive from now on.
    pub fn set_memory(&mut self, memory: Box<dyn Memory>) {
        self.memory = memory;
    }

    /// Processes a data packet, which the path may have marked for congestion.
    ///
    /// # Errors
    /// When the packet does not parse. Then none of it is used.
    pub fn on_data(
        &mut self,
        now: Instant,
        is_marked: bool,
        datagram: &[u8],
    ) -> Result<(), WireError> {
        let (header, frames) =
            data::read(datagram).inspect_err(|_| self.counters.invalid_packets += 1)?;
        if !self.is_current(header.session) {
            self.counters.stale_packets += 1;
            return Ok(());
        }
        let number = expand(header.packet_number, self.packets.highest);
        let newest = number > self.packets.highest;
        if !self.packets.insert(number) {
            self.counters.repeated_packets += 1;
            return Ok(());
        }
        self.reporter.on_packet(
            now,
            newest.then_some(header.report_interval),
            datagram.len(),
            is_marked,
        );
        for frame in frames {
            match frame {
                Frame::Symbol { symbol, shard } => self.on_symbol(&symbol, &datagram[shard]),
                Frame::Status(status) => {
                    let reported = self.reporter.acknowledged(status.feedback_seen);
                    if let Some(reported) = reported {
                        self.reports.forget(&reported);
                    }
                    self.reports.raise_floor(status.floor);
                    self.drop_below(status.floor);
                    status
                        .abandoned
                        .iter()
                        .for_each(|run| self.on_abandoned(run));
                }
            }
        }
        Ok(())
    }

    /// Takes the oldest sample in the queue of a stream.
    pub fn take(&mut self, stream: u32) -> Option<LinkSample> {
        let state = self
            .streams
            .get_mut(&stream)
            .filter(|_| stream != CONTROL_STREAM)?;
        let sample = state.queue.pop_front()?;
        state.counters.taken += 1;
        let more = !state.queue.is_empty();
        self.budget.unqueue(sample.payload.len());
        self.reporter.begin_taking();
        self.deliver_in_order(stream);
        if more {
            self.note_readable(stream);
        }
        self.forget_if_done(stream);
        Some(sample)
    }

    /// Messages for the peer.
    pub(crate) fn poll_reply(&mut self) -> Option<Control> {
        let reply = self.replies.pop_front()?;
        self.deliver_in_order(CONTROL_STREAM);
        Some(reply)
    }

    /// Returns the next message of the peer about the streams that this end sends.
    pub(crate) fn poll_answer(&mut self) -> Option<Control> {
        self.answers.pop_front()
    }

    /// The grants of all streams, to be repeated in a new session of this end.
    pub(crate) fn grants(&self) -> Vec<Control> {
        let streams = self
            .streams
            .iter()
            .filter(|(stream, _)| **stream != CONTROL_STREAM);
        streams
            .map(|(stream, state)| self.grant(*stream, state.granted))
            .collect()
    }

    fn grant(&self, stream: u32, bytes: u64) -> Control {
        Control::Grant {
            stream,
            ends: self.ends(),
            bytes,
        }
    }

    fn ends(&self) -> StreamEnds {
        StreamEnds {
            session: self.session.unwrap_or_default(),
            incarnation: self.incarnation,
        }
    }

    /// Whether a sample of a stream waits for the application.
    pub fn has_sample(&self, stream: u32) -> bool {
        self.streams
            .get(&stream)
            .is_some_and(|state| !state.queue.is_empty())
    }

    /// The counters of a stream.
    pub fn counters(&self, stream: u32) -> Option<ReceiveCounters> {
        self.streams.get(&stream).map(ReceiveStream::counters)
    }

    /// The counters of all streams, ended ones included, without control messages.
    pub fn totals(&self) -> ReceiveCounters {
        let open = self
            .streams
            .iter()
            .filter(|(stream, _)| **stream != CONTROL_STREAM);
        open.fold(self.totals, |sum, (_, state)| sum + state.counters())
    }

    /// Bytes of samples that arrive, of their repair shards, and of samples in queues.
    pub fn memory_bytes(&self) -> u64 {
        let assemblies: usize = self.assemblies.values().map(Assembly::memory_bytes).sum();
        let held = self
            .streams
            .values()
            .flat_map(|state| state.waiting.values());
        let held: usize = held
            .filter_map(|complete| complete.sample.as_ref())
            .map(|s| s.payload.len())
            .sum();
        let queued = self.streams.values().flat_map(|state| &state.queue);
        (assemblies + held + queued.map(|sample| sample.payload.len()).sum::<usize>()) as u64
    }

    #[cfg(test)]
    pub(crate) fn streams_looked_at(&self) -> u64 {
        self.streams.looked_at()
    }

    /// The counters of the receiving end.
    pub fn link_counters(&self) -> LinkReceiveCounters {
        LinkReceiveCounters {
            budget_used_bytes: self.budget.used(),
            ..self.counters
        }
    }

    /// The open streams.
    pub fn streams(&self) -> impl Iterator<Item = (u32, &str, Qos)> {
        let streams = self
            .streams
            .iter()
            .filter(|(stream, _)| **stream != CONTROL_STREAM);
        streams.map(|(stream, state)| (*stream, state.name.as_str(), state.qos))
    }

    /// Whether a sample of more than one shard has begun to arrive: its repair needs the tables of
    /// the erasure code.
    pub(crate) fn uses_coding(&self) -> bool {
        self.uses_coding
    }

    /// The application took a sample: lets the sender know if that made room for another.
    pub(crate) fn report_closed(&mut self, now: Instant) {
        self.reporter.report_closed(now);
    }

    /// When feedback is due.
    pub fn feedback_due(&self) -> Option<Instant> {
        self.reporter.due()
    }

    /// Appends the feedback that is due, of at most `datagram_bytes`. False when none is due.
    pub fn write_feedback(
        &mut self,
        now: Instant,
        datagram_bytes: usize,
        out: &mut Vec<u8>,
    ) -> bool {
        let Some(session) = self.session else {
            return false;
        };
        let (packets, closed) = (&self.packets, &self.closed);
        let next = self
            .reporter
            .next_feedback(now, self.start, packets, closed, &mut self.reports);
        let Some(mut feedback) = next else {
            return false;
        };
        (feedback.session, feedback.incarnation) = (session, self.incarnation);
        feedback.write(datagram_bytes, out);
        self.reporter.on_sent(feedback);
        true
    }

    /// Whether a packet belongs to the running session. Begins a new session if its number was not
    /// seen before.
    fn is_current(&mut self, session: u32) -> bool {
        if self.session == Some(session) {
            return true;
        }
        if self.retired.contains(&session) {
            return false;
        }
        if let Some(old) = self.session.replace(session) {
            self.retired.push_back(old);
            if self.retired.len() > RETIRED_SESSIONS {
                self.retired.pop_front();
            }
            let arriving = self.assemblies.values().map(|assembly| assembly.stream);
            let arriving = arriving.filter(|stream| *stream != CONTROL_STREAM).count();
            let streams = self.streams.iter().filter(|(id, _)| **id != CONTROL_STREAM);
            let waiting: usize = streams.map(|(_, state)| state.waiting.len()).sum();
            let lost = (arriving + waiting) as u64;
            self.begin_session();
            self.notices.on_restart(lost);
        }
        true
    }

    fn begin_session(&mut self) {
        for state in self.streams.values() {
            self.totals = self.totals + state.counters();
        }
        self.streams.clear();
        self.streams
            .insert(CONTROL_STREAM, ReceiveStream::control(CONTROL_CREDIT));
        self.assemblies.clear();
        self.held.clear();
        self.closed = ClosedIds::default();
        self.reports = Reports::default();
        self.reporter = Reporter::default();
        self.packets = PacketWindow::new();
        self.budget = Budget::new(self.config.budget_bytes);
        self.replies.clear();
    }

    fn on_symbol(&mut self, symbol: &Symbol, shard: &[u8]) {
        let id = symbol.transmit_id;
        if self.closed.contains(id) {
            self.counters.late_symbols += 1;
            return;
        }
        if self.held.contains(&id) {
            // The sender does not know yet that it is complete.
            let shards = symbol.geometry.block(symbol.block.into()).source_shards();
            self.reporter.on_progress(id, symbol.block, shards as u16);
            self.counters.late_symbols += 1;
            return;
        }
        let Some(state) = self.streams.get_mut(&symbol.stream) else {
            self.counters.refused_symbols += 1;
            return;
        };
        if !self.assemblies.contains_key(&id) {
            if state.is_past(symbol.sequence) {
                let keeps_all = state.qos.delivery.keeps_all();
                self.close(
                    id,
                    if keeps_all {
                        Outcome::Delivered
                    } else {
                        Outcome::Superseded
                    },
                );
                return;
            }
            let bytes = symbol.geometry.sample_bytes();
            let too_long = symbol.stream == CONTROL_STREAM && bytes > CONTROL_BYTES_MAX;
            let many = self.closed.len() + self.reports.len() >= RANGES_MAX;
            if too_long || many || !state.begin(bytes) {
                self.counters.refused_symbols += 1;
                return;
            }
            let Ok(payload) = allocate(&mut *self.memory, symbol.stream, bytes) else {
                state.end(bytes);
                self.counters.refused_symbols += 1;
                return;
            };
            self.uses_coding |= symbol.geometry.needs_coding();
            self.assemblies.insert(id, Assembly::new(symbol, payload));
        }
        let assembly = self.assemblies.get_mut(&id).expect("it was there or begun");
        if !assembly.agrees(symbol) {
            self.counters.refused_symbols += 1;
            return;
        }
        let added = assembly.add(&mut self.coder, symbol, shard);
        self.counters.bytes_copied += added.copied as u64;
        self.reporter.on_progress(id, symbol.block, added.symbols);
        if added.complete {
            self.complete(id, symbol.age_millis);
        }
    }

    fn complete(&mut self, id: u64, age_millis: u16) {
        let assembly = self
            .assemblies
            .remove(&id)
            .expect("what is complete was under way");
        let stream = assembly.stream;
        let state = self
            .streams
            .get_mut(&stream)
            .expect("an assembly belongs to a stream");
        let age = Duration::from_millis(age_millis.into());
        let sequence = assembly.sequence;
        let sample = LinkSample {
            sequence,
            age,
            payload: assembly.into_payload(),
        };
        let bytes = sample.payload.len();
        let expired = state.qos.lifespan.is_some_and(|lifespan| age >= lifespan);
        if state.qos.delivery.keeps_all() {
            // An expired sample keeps its place in the order, like a skipped one.
            let complete = CompleteSample {
                id,
                sample: (!expired).then_some(sample),
                bytes,
            };
            match state.waiting.entry(sequence) {
                Entry::Vacant(place) => {
                    place.insert(complete);
                    self.held.insert(id);
                    self.deliver_in_order(stream);
                }
                Entry::Occupied(_) => {
                    state.end(bytes);
                    self.close(id, Outcome::Refused);
                }
            }
            return;
        }
        state.end(bytes);
        if expired {
            state.counters.expired += 1;
            return self.close(id, Outcome::Expired);
        }
        let outcome = match state.put_newest(sample, &mut self.budget) {
            QueueOutcome::Queued => {
                self.note_readable(stream);
                Outcome::Delivered
            }
            QueueOutcome::Superseded => Outcome::Superseded,
            QueueOutcome::NoRoom => Outcome::Refused,
        };
        self.close(id, outcome);
    }

    /// Delivers the complete samples of a stream that keeps all, in order, while its queue has
    /// room.
    fn deliver_in_order(&mut self, stream: u32) {
        loop {
            let Some(state) = self.streams.get_mut(&stream) else {
                return;
            };
            if state.skip() {
                continue;
            }
            if state
                .waiting
                .first_key_value()
                .is_none_or(|(sequence, _)| *sequence != state.next_sequence)
            {
                return;
            }
            if stream == CONTROL_STREAM && self.replies.len() >= REPLIES_MAX {
                return;
            }
            let first = state.waiting.first_entry().expect("there is a first one");
            if first.get().sample.is_none() {
                let expired = first.remove();
                state.next_sequence += 1;
                state.end(expired.bytes);
                state.counters.expired += 1;
                self.close(expired.id, Outcome::Expired);
                continue;
            }
            if stream == CONTROL_STREAM {
                let complete = first.remove();
                state.next_sequence += 1;
                state.end(complete.bytes);
                self.close(complete.id, Outcome::Delivered);
                self.on_control(&complete.sample.expect("it was just seen").payload);
                continue;
            }
            if state.queue.len() >= state.qos.delivery.depth()
                || !self.budget.queue(first.get().bytes)
            {
                return;
            }
            let complete = first.remove();
            state.next_sequence += 1;
            state.end(complete.bytes);
            state.counters.delivered += 1;
            state.counters.delivered_bytes += complete.bytes as u64;
            state.note_age(complete.sample.as_ref().expect("it was just seen").age);
            state.queue.extend(complete.sample);
            self.close(complete.id, Outcome::Delivered);
            self.note_readable(stream);
        }
    }

    fn on_control(&mut self, payload: &[u8]) {
        match Control::decode(payload) {
            Ok(Control::Open {
                stream,
                qos,
                first_sequence,
                name,
            }) => {
                let room = self.streams.len() <= self.config.max_streams
                    && !self.streams.contains_key(&stream);
                let granted = self
                    .budget
                    .grant_opening(self.config.initial_credit, self.config.max_streams);
                if !room || granted == 0 {
                    self.budget.release(granted);
                    return self.refuse(stream);
                }
                let mut state = ReceiveStream::new(name, qos, first_sequence, granted);
                state.notices = StreamNotices::OPENED;
                self.streams.insert(stream, state);
                self.notices.on_opened(stream);
                self.replies.push_back(self.grant(stream, granted));
            }
            Ok(Control::Want { stream, bytes }) => {
                if let Some(state) = self.streams.get_mut(&stream) {
                    state.granted = self.budget.grant(state.granted, bytes);
                    let granted = state.granted;
                    self.replies.push_back(self.grant(stream, granted));
                }
            }
            Ok(Control::Close { stream }) => {
                if let Some(state) = self.streams.get_mut(&stream)
                    && !std::mem::replace(&mut state.ended, true)
                {
                    self.note_ended(stream);
                }
            }
            Ok(answer @ (Control::Grant { .. } | Control::Refuse { .. })) => {
                self.answers.push_back(answer)
            }
            Err(_) => {
                self.counters.invalid_messages += 1;
                // Otherwise the sender of a stream with a name that is too long waits for ever.
                if let Some(stream) = Control::opened_by(payload)
                    && !self.streams.contains_key(&stream)
                {
                    self.refuse(stream);
                }
            }
        }
    }

    fn refuse(&mut self, stream: u32) {
        let ends = self.ends();
        self.replies.push_back(Control::Refuse { stream, ends });
    }

    fn on_abandoned(&mut self, run: &Abandoned) {
        let end = run
            .transmit_id
            .saturating_add(run.count)
            .min(crate::wire::VARINT_MAX);
        if self.closed.len() + self.reports.len() >= RANGES_MAX {
            return;
        }
        // A complete sample that is held will be delivered: it stays open.
        let held: Vec<u64> = self
            .held
            .range(run.transmit_id..end.max(run.transmit_id))
            .copied()
            .collect();
        let mut from = run.transmit_id;
        for id in held.into_iter().chain([end]) {
            self.abandon(from, id);
            from = id + 1;
        }
        if run.stream != CONTROL_STREAM
            && let Some(state) = self.streams.get_mut(&run.stream)
            && state.qos.delivery.keeps_all()
        {
            state.note_skipped(run.sequence);
            self.deliver_in_order(run.stream);
        }
    }

    /// Closes the open transmissions of a range.
    fn abandon(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        for (start, end) in self.closed.insert(start, end) {
            let ids: Vec<u64> = self
                .assemblies
                .range(start..end)
                .map(|(id, _)| *id)
                .collect();
            ids.into_iter().for_each(|id| self.drop_assembly(id));
            self.reports.add(start, end, Outcome::Abandoned);
        }
    }

    /// Drops assemblies below the floor: the sender has closed them all.
    fn drop_below(&mut self, floor: u64) {
        self.closed.raise_floor(floor);
        while let Some((id, _)) = self.assemblies.first_key_value()
            && *id < floor
        {
            self.drop_assembly(*id);
        }
    }

    fn drop_assembly(&mut self, id: u64) {
        let Some(assembly) = self.assemblies.remove(&id) else {
            return;
        };
        self.reporter.on_closed(id);
        if let Some(state) = self.streams.get_mut(&assembly.stream) {
            state.end(assembly.geometry.sample_bytes());
            state.counters.incomplete += 1;
        }
    }

    fn close(&mut self, id: u64, outcome: Outcome) {
        self.held.remove(&id);
        for (start, end) in self.closed.insert(id, id + 1) {
            self.reports.add(start, end, outcome);
        }
        self.reporter.on_closed(id);
    }

    fn forget_if_done(&mut self, stream: u32) {
        let Some(state) = self
            .streams
            .get(&stream)
            .filter(|state| state.ended && state.queue.is_empty())
            .filter(|state| state.notices == StreamNotices::NONE)
        else {
            return;
        };
        // An honest peer closes a stream when none of its samples are in flight; another may open
        // it again.
        if state.has_unclosed() {
            let left = self
                .assemblies
                .iter()
                .filter(|(_, assembly)| assembly.stream == stream);
            let left: Vec<u64> = left.map(|(id, _)| *id).collect();
            left.into_iter().for_each(|id| self.drop_assembly(id));
        }
        let state = self.streams.remove(&stream).expect("it was just seen");
        state
            .waiting
            .values()
            .for_each(|complete| self.close(complete.id, Outcome::Refused));
        self.totals = self.totals + state.counters();
        self.budget.release(state.granted);
    }
}

/// Allocates memory of the application, exactly as long as the sample. Control messages are stored
/// on the heap.
fn allocate(memory: &mut dyn Memory, stream: u32, bytes: usize) -> Result<Payload, NoMemory> {
    let block = if stream == CONTROL_STREAM {
        Heap.allocate(stream, bytes)
    } else {
        memory.allocate(stream, bytes)
    };
    block.map(Payload::new).and_then(|payload| {
        if payload.len() == bytes {
            Ok(payload)
        } else {
            Err(NoMemory)
        }
    })
}

impl std::fmt::Debug for Receiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receiver")
            .field("session", &self.session)
            .field("counters", &self.counters)
            .finish()
    }
}
