//! The receiving end: from symbols to samples.
//!
//! The peer's share of the [`Budget`] bounds the memory. A grant reserves the cost of the samples
//! of its stream, and a sample begins to arrive only within that grant. All other state that the
//! peer can cause is charged as it comes, at its cost.

mod arrivals;
mod assembly;
mod cost;
mod counters;
mod grants;
mod ledger;
mod notices;
mod ranges;
mod report;
mod stream;
mod streams;

use std::{
    collections::{BTreeMap, VecDeque},
    time::Instant,
};

use crate::{
    budget::{Budget, Size},
    coding::Coder,
    memory::{Heap, Memory},
    policy::PeerPolicy,
    qos::Qos,
    sender::CONTROL_STREAM,
    window::{PacketWindow, WINDOW_BYTES},
    wire::{
        WireError,
        control::{CONTROL_CREDIT, Control},
        data::{self, Frame},
        expand,
    },
};

use assembly::Assembly;
pub use counters::{LinkReceiveCounters, ReceiveCounters};
use ledger::Ledger;
use ranges::{ClosedIds, Reports};
use report::{HISTORY_COST, Reporter};
use stream::{Described, ReceiveStream, reserve};
pub use stream::{IncomingState, IncomingStatus, LinkSample};
pub use streams::ReceiveStreams;

/// Number of past sessions that are remembered, so that late packets do not begin them again.
const RETIRED_SESSIONS: usize = 16;

/// Limits on a peer's use of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiverConfig {
    /// Memory for all that peers can make this end keep, in bytes. Half of it is for samples that
    /// wait for the application.
    pub budget_bytes: u64,
    /// Number of peers with a share of their own for small items; see [`budget`](crate::budget).
    pub shares: usize,
    /// The most streams that the peer may open.
    pub max_streams: usize,
    /// Credit of a stream that has not requested more, in bytes.
    pub initial_credit: u64,
}

impl Default for ReceiverConfig {
    fn default() -> Self {
        Self {
            budget_bytes: 1 << 30,
            shares: 64,
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
    /// The peer requests a stream on which the application is to decide: see
    /// [`Session::accept_stream`](crate::session::Session::accept_stream).
    Requested {
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
    /// A stream has another quality of service.
    Changed(u32),
    /// A stream has ended: no sample comes any more, and all were taken.
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
    /// The policy for streams that the peer opens.
    pub(crate) policy: PeerPolicy,
    incarnation: u32,
    start: Instant,
    /// The number of the peer's session, in which the numbers of its streams hold.
    pub(crate) session: Option<u32>,
    retired: VecDeque<u32>,
    streams: ReceiveStreams,
    assemblies: BTreeMap<u64, Box<Assembly>>,
    /// Complete transmissions that wait for their predecessors or for room.
    held: BTreeMap<u64, Described>,
    closed: ClosedIds,
    reports: Reports,
    pub(crate) reporter: Reporter,
    packets: PacketWindow,
    budget: Budget,
    ledger: Ledger,
    coder: Coder,
    uses_coding: bool,
    /// Messages for the peer.
    replies: VecDeque<Control>,
    /// The next stream whose grant is to be repeated, because this end began a session.
    regrant_from: Option<u32>,
    /// Messages from the peer about the streams that this end sends.
    answers: VecDeque<Control>,
    counters: LinkReceiveCounters,
}

/// Fixed cost of a session, in bytes.
const OWN_COST: u64 = size_of::<Receiver>() as u64 + WINDOW_BYTES + HISTORY_COST;

impl Receiver {
    /// A receiver without streams that stores samples on the heap. `incarnation` is a random
    /// number.
    pub fn new(config: ReceiverConfig, budget: &Budget, incarnation: u32, now: Instant) -> Self {
        let mut receiver = Self {
            config,
            memory: Box::new(Heap),
            policy: PeerPolicy::default(),
            incarnation,
            start: now,
            session: None,
            retired: VecDeque::new(),
            streams: ReceiveStreams::default(),
            assemblies: BTreeMap::new(),
            held: BTreeMap::new(),
            closed: ClosedIds::default(),
            reports: Reports::default(),
            reporter: Reporter::default(),
            packets: PacketWindow::new(),
            budget: budget.clone(),
            ledger: Ledger::new(budget, OWN_COST, CONTROL_CREDIT),
            coder: Coder::default(),
            uses_coding: false,
            replies: VecDeque::new(),
            regrant_from: None,
            answers: VecDeque::new(),
            counters: LinkReceiveCounters::default(),
        };
        receiver.begin_session();
        receiver
    }

    /// Sets the memory for samples that begin to arrive from now on.
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
                    // The sender has closed all assemblies below the floor.
                    self.closed.raise_floor(status.floor);
                    while let Some((id, _)) = self.assemblies.first_key_value()
                        && *id < status.floor
                    {
                        self.drop_assembly(*id);
                    }
                    status
                        .abandoned
                        .iter()
                        .for_each(|run| self.on_abandoned(run));
                }
            }
        }
        self.settle();
        self.ledger.charge_history(&self.reporter);
        Ok(())
    }

    /// Returns the oldest event. A stream is announced before its samples.
    pub fn poll_event(&mut self) -> Option<ReceiverEvent> {
        let restarted = self.streams.notices.restarted.take();
        restarted
            .map(|lost| ReceiverEvent::PeerRestarted { lost })
            .or_else(|| self.poll_opened())
            .or_else(|| self.streams.poll_change(&mut self.ledger))
    }

    /// Returns the oldest [`ReceiverEvent::Opened`] or [`ReceiverEvent::Requested`].
    pub(crate) fn poll_opened(&mut self) -> Option<ReceiverEvent> {
        self.streams.poll_opened(&mut self.ledger)
    }

    /// Returns the oldest event that [`poll_opened`](Self::poll_opened) does not.
    pub(crate) fn poll_unannounced(&mut self) -> Option<ReceiverEvent> {
        let restarted = self.streams.notices.restarted.take();
        restarted
            .map(|lost| ReceiverEvent::PeerRestarted { lost })
            .or_else(|| self.streams.poll_change(&mut self.ledger))
    }

    /// Whether a sample of a stream waits for the application.
    pub fn has_sample(&self, stream: u32) -> bool {
        self.streams
            .by_id
            .get(&stream)
            .is_some_and(|state| !state.queue.is_empty())
    }

    /// The counters of a stream.
    pub fn counters(&self, stream: u32) -> Option<ReceiveCounters> {
        self.streams
            .by_id
            .get(&stream)
            .map(|state| state.counters())
    }

    /// Cost of the state kept for the peer, in bytes: at most the
    /// [used](LinkReceiveCounters::budget_used_bytes) part of the budget.
    pub fn held_bytes(&self) -> u64 {
        let own = |state: &ReceiveStream| ReceiveStream::own_cost(&state.name);
        let streams: u64 = self.streams.by_id.values().map(|state| own(state)).sum();
        self.ledger.held() + streams + self.sample_bytes()
    }

    /// The part of [`held_bytes`](Self::held_bytes) that is for samples: those that arrive or wait,
    /// and the queues.
    pub fn sample_bytes(&self) -> u64 {
        let streams = self.streams.by_id.values();
        streams.map(|state| state.cost + state.queue_cost()).sum()
    }

    #[cfg(test)]
    pub(crate) fn streams_looked_at(&self) -> u64 {
        self.streams.by_id.looked_at()
    }

    /// The counters of the receiving end.
    pub fn link_counters(&self) -> LinkReceiveCounters {
        LinkReceiveCounters {
            budget_used_bytes: self.ledger.arriving.used() + self.ledger.queued.used(),
            budget_held_bytes: self.held_bytes(),
            ..self.counters
        }
    }

    /// The name and quality of service of each open stream.
    pub fn streams(&self) -> impl Iterator<Item = (u32, &str, Qos)> {
        let streams = self.streams.application_streams();
        streams.map(|(stream, state)| (stream, state.name.as_str(), state.qos))
    }

    /// The streams: their state and counters.
    pub fn incoming(&self) -> &ReceiveStreams {
        &self.streams
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
        let room = self.ledger.arriving.room(Size::Small);
        self.reporter.on_sent(feedback, room);
        self.ledger.charge_history(&self.reporter);
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
            let streams = self
                .streams
                .by_id
                .iter()
                .filter(|(id, _)| **id != CONTROL_STREAM);
            let waiting: usize = streams.map(|(_, state)| state.waiting.len()).sum();
            let lost = (arriving + waiting) as u64;
            self.begin_session();
            self.streams.notices.on_restart(lost);
        }
        true
    }

    fn begin_session(&mut self) {
        self.streams.clear();
        self.assemblies.clear();
        self.held.clear();
        self.closed = ClosedIds::default();
        self.reports = Reports::default();
        self.reporter = Reporter::default();
        self.packets = PacketWindow::new();
        self.replies.clear();
        self.regrant_from = None;
        self.coder.free_decoder();
        // The old one returns its memory first.
        self.ledger = Ledger::new(&self.budget, OWN_COST, CONTROL_CREDIT);
        let control = ReceiveStream::control(CONTROL_CREDIT);
        self.streams.by_id.insert(CONTROL_STREAM, Box::new(control));
    }

    /// Charges open and closed transmissions. Returns whether there is room for another.
    fn settle(&mut self) -> bool {
        let open = self.assemblies.len() + self.held.len();
        self.ledger.settle(open, &self.closed, &self.reports)
    }

    /// Charges the messages to the peer that it has not confirmed.
    pub(crate) fn charge_replies(&mut self, unconfirmed: usize) {
        self.ledger.charge_replies(unconfirmed);
    }
}

/// Compares the charges for samples and kept state with a new count. For tests.
///
/// # Errors
/// The difference, as text.
pub fn check_charges(receiver: &Receiver) -> Result<(), String> {
    let mut costs: BTreeMap<u32, u64> = BTreeMap::new();
    for assembly in receiver.assemblies.values() {
        *costs.entry(assembly.stream).or_default() += assembly.recount();
    }
    let (mut reserved, mut queued) = (receiver.ledger.reserved(), 0);
    for (stream, state) in receiver.streams.by_id.iter() {
        let counted = costs.remove(stream).unwrap_or(0) + state.recount();
        if counted != state.cost {
            return Err(format!(
                "samples of stream {stream} cost {counted} bytes, and {} are charged",
                state.cost
            ));
        }
        let grant: u64 = reserve(state.granted).iter().map(|(_, bytes)| bytes).sum();
        let own = match *stream {
            CONTROL_STREAM => 0,
            _ => ReceiveStream::own_cost(&state.name),
        };
        reserved += grant + own;
        queued += state.queue_cost();
    }
    let used = [
        receiver.ledger.arriving.used(),
        receiver.ledger.queued.used(),
    ];
    if !costs.is_empty() || used != [reserved, queued] {
        return Err(format!(
            "{reserved} and {queued} bytes are kept, {used:?} charged; of no stream: {costs:?}"
        ));
    }
    Ok(())
}

impl std::fmt::Debug for Receiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receiver")
            .field("session", &self.session)
            .field("counters", &self.counters)
            .finish()
    }
}
