//! A session with one peer: samples in both directions, and the rate of sending.
//!
//! Each end has two random numbers: a *session* number for the samples it sends and an
//! *incarnation* number for those it receives. A receiver that sees a new session drops its state
//! of the old one; a sender that sees a new incarnation in feedback begins a new session. So either
//! end may be lost at any time, and the other reports the number of samples lost with it. The
//! carrier's connection may be replaced under a session without any loss.

mod questions;

use std::time::{Duration, Instant};

use bytes::Bytes;
use thiserror::Error;

use crate::{
    budget::Budget,
    carrier::Ecn,
    memory::Memory,
    path_watch::{Action, PathWatch, Patience},
    policy::{Decision, Direction, PeerPolicy, Refusal},
    qos::Qos,
    random::{Random, derive},
    rate::{self, FalseReport, Observed, Permission, Rate},
    receiver::{
        LinkReceiveCounters, LinkSample, ReceiveCounters, Receiver, ReceiverConfig, ReceiverEvent,
    },
    sender::{NameTooLong, PathEstimate, SendCounters, SendError, Sender, SenderEvent},
    trace::{Record, Trace, TraceEvent},
    wire::{Kind, control::Control, feedback::Feedback},
};
use questions::Questions;

/// Before the round-trip time is known, a packet without a report counts as lost after this time.
const FIRST_RTO: Duration = Duration::from_millis(50);
/// A packet without a report counts as lost after two round-trip times, the time between reports,
/// and this.
const RTO_MARGIN: Duration = Duration::from_millis(4);
/// Interval at which to check whether the peer has fallen silent.
const SILENCE_CHECK: Duration = Duration::from_millis(50);
/// When all packets in flight are overdue, the window stays full until feedback arrives. Until then
/// probes go at this interval at first, so that a fade costs little more than its own length.
const TAIL_PROBE: Duration = Duration::from_millis(5);
/// The shortest wait while the rate holds packets back. Then several go at once, since each wake-up
/// costs a system call.
const PACING_STEP: Duration = Duration::from_micros(200);
/// The most control messages that wait for the peer, before its own are no longer read.
const CONTROL_BACKLOG: usize = 512;
/// The shortest time between two new sessions because of a peer that lost its state.
const RESTART_PERIOD: Duration = Duration::from_millis(100);

/// The configuration of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SessionConfig {
    /// Bounds of the rate.
    pub rate: rate::Config,
    /// Limits on the peer's use of memory.
    pub receiver: ReceiverConfig,
}

/// Why a stream was not opened.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OpenError {
    /// The name is too long.
    #[error(transparent)]
    Name(#[from] NameTooLong),
    /// The policy of this end refuses it.
    #[error("the policy of this end does not allow stream {name:?}: {why}")]
    Policy {
        /// Its name.
        name: String,
        /// The reason.
        why: Refusal,
    },
}

/// An event of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionEvent {
    /// An event of the sending end.
    Sender(SenderEvent),
    /// An event of the receiving end.
    Receiver(ReceiverEvent),
    /// The peer has lost the state of its receiver. The samples in flight may or may not have been
    /// delivered.
    PeerLost {
        /// Number of samples in flight.
        unconfirmed: u64,
    },
}

/// The state and counters of a session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SessionStatus {
    /// The path from here to the peer.
    pub path: rate::Status,
    /// Counters of sent samples, all streams.
    pub sent: SendCounters,
    /// Counters of received samples, all streams.
    pub received: ReceiveCounters,
    /// Counters of the receiving end.
    pub link: LinkReceiveCounters,
    /// Data packets sent.
    pub packets_sent: u64,
    /// Packets of this session that the peer reports as marked for congestion.
    pub congestion_marks: u64,
    /// Bytes of datagrams sent, feedback included.
    pub datagram_bytes_sent: u64,
    /// Bytes of datagrams received.
    pub datagram_bytes_received: u64,
    /// When the last datagram arrived; when the session began, if none has.
    pub last_arrival: Instant,
    /// Bytes of samples and symbols copied for sending.
    pub bytes_copied_out: u64,
    /// Number of feedbacks that cannot be true, or do not parse.
    pub invalid_feedback: u64,
}

/// Both directions of the exchange with one peer.
#[derive(Debug)]
pub struct Session {
    config: SessionConfig,
    random: Random,
    policy: PeerPolicy,
    /// Watches the path, if there is another one to change to.
    pub(crate) watch: Option<PathWatch>,
    sender: Sender,
    receiver: Receiver,
    rate: Rate,
    peer_incarnation: Option<u32>,
    /// When a session was last begun because the peer had lost its state.
    restarted_at: Option<Instant>,
    peer_clock: PeerClock,
    /// When the rate allows the next packet.
    paced_until: Option<Instant>,
    last_sent: Instant,
    /// When the first packet was sent since all earlier ones were answered or are overdue.
    asked: Instant,
    /// When the last feedback arrived that was not overtaken.
    last_feedback: Instant,
    /// When the last datagram arrived from the peer.
    last_arrival: Instant,
    rto: Duration,
    questions: Questions,
    /// Samples in flight whenever the peer lost its state, if the application is still to learn of
    /// it.
    peer_lost: Option<u64>,
    packets_sent: u64,
    congestion_marks: u64,
    datagram_bytes_sent: u64,
    datagram_bytes_received: u64,
    invalid_feedback: u64,
    violation: Option<String>,
    trace: Option<Box<Trace>>,
}

impl Session {
    /// A session with an unknown peer, and a budget of its own. `seed` must be random and differ
    /// each time.
    pub fn new(config: SessionConfig, seed: u64, now: Instant) -> Self {
        let budget = Budget::new(config.receiver.budget_bytes, 1);
        Self::with_budget(config, &budget, seed, now)
    }

    /// A session that shares a budget with others.
    pub fn with_budget(config: SessionConfig, budget: &Budget, seed: u64, now: Instant) -> Self {
        // The peer sees numbers drawn from this.
        let mut random = Random::new(derive(seed, "session numbers"));
        let (session, incarnation) = (random.next_u32(), random.next_u32());
        Self {
            config,
            random,
            policy: PeerPolicy::default(),
            watch: None,
            sender: Sender::new(session, derive(seed, "packet numbers")),
            receiver: Receiver::new(config.receiver, budget, incarnation, now),
            rate: Rate::new(config.rate, now),
            peer_incarnation: None,
            restarted_at: None,
            peer_clock: PeerClock::default(),
            paced_until: None,
            last_sent: now,
            asked: now,
            last_feedback: now,
            last_arrival: now,
            rto: FIRST_RTO,
            questions: Questions::new(now),
            peer_lost: None,
            packets_sent: 0,
            congestion_marks: 0,
            datagram_bytes_sent: 0,
            datagram_bytes_received: 0,
            invalid_feedback: 0,
            violation: None,
            trace: None,
        }
    }

    /// Sets the memory for samples that begin to arrive from now on, instead of the heap.
    pub fn set_memory(&mut self, memory: Box<dyn Memory>) {
        self.receiver.set_memory(memory);
    }

    /// Sets the policy for streams that are opened from now on, in both directions.
    pub fn set_policy(&mut self, policy: PeerPolicy) {
        self.receiver.policy = policy.clone();
        self.policy = policy;
    }

    /// Closes streams of the peer that the policy does not allow any more.
    pub(crate) fn apply_policy(&mut self, now: Instant) {
        let refused = self.receiver.streams().filter_map(|(stream, name, qos)| {
            match self.policy.decide(Direction::Incoming, name, qos) {
                Decision::Refuse(why) => Some((stream, why)),
                Decision::Accept | Decision::Ask => None,
            }
        });
        let refused: Vec<_> = refused.collect();
        for (stream, why) in refused {
            self.refuse_stream(now, stream, why);
        }
    }

    /// Sets the largest rate of sending to the peer from now on, in bytes per second.
    pub fn set_max_rate(&mut self, bytes_per_second: u64) {
        let most = (bytes_per_second as f64).max(self.config.rate.min_bytes_per_second);
        self.config.rate.max_bytes_per_second = most;
        self.rate.set_max_bytes_per_second(most);
    }

    /// Begins a trace of the sender, with times since `began`. The records wait for
    /// [`take_trace`](Self::take_trace).
    pub fn begin_trace(&mut self, began: Instant) {
        self.trace = Some(Box::new(Trace::new(began)));
    }

    /// Takes the records made since the last call.
    pub fn take_trace(&mut self) -> impl Iterator<Item = Record> {
        self.trace.iter_mut().flat_map(|trace| trace.take())
    }

    /// Notes that the carrier has a connection to the peer, for the first time or again. The next
    /// packet asks whether the peer has kept its state.
    pub fn on_connected(&mut self, now: Instant) {
        self.questions.on_connected(now);
        if let Some(trace) = &mut self.trace {
            trace.record(now, TraceEvent::Connected);
        }
    }

    /// Whether the path has died and another one is to be tried.
    pub(crate) fn is_path_dead(&mut self, now: Instant) -> bool {
        let patience = Patience::of(&self.rate.status(), self.rto);
        let action = self
            .watch
            .as_mut()
            .and_then(|watch| watch.poll(now, &patience));
        if action == Some(Action::Ask) {
            // The same question as after a new connection.
            self.questions.on_connected(now);
        }
        action == Some(Action::FailOver)
    }

    /// Notes that packets travel on another path from now on, with about this round-trip time.
    /// Packets in flight count as lost, and the peer is asked and gets a report, whatever it has
    /// received.
    pub(crate) fn on_path_changed(&mut self, now: Instant, rtt: Duration) {
        self.rate.on_path_changed(rtt);
        // Packets in flight are overdue.
        let overdue = PathEstimate {
            rto: Duration::ZERO,
            ..self.sender.path
        };
        self.sender.set_path(now, overdue);
        self.sender.handle_timeout(now);
        self.update_path(now);
        self.receiver.reporter.report_again(now);
        self.on_connected(now);
        if let Some(watch) = &mut self.watch {
            watch.on_path_changed();
        }
    }

    /// Opens a stream to the peer and returns its number. Samples may be sent at once.
    ///
    /// # Errors
    /// When the name is longer than [`NAME_BYTES_MAX`](crate::wire::control::NAME_BYTES_MAX), or the
    /// policy of this end refuses it.
    pub fn open(
        &mut self,
        now: Instant,
        name: impl Into<String>,
        qos: Qos,
    ) -> Result<u32, OpenError> {
        let name = name.into();
        match self.policy.decide(Direction::Outgoing, &name, qos) {
            Decision::Refuse(why) => Err(OpenError::Policy { name, why }),
            Decision::Accept | Decision::Ask => Ok(self.sender.open(now, name, qos)?),
        }
    }

    /// Changes the quality of service of the samples that are accepted from now on. They go when all
    /// earlier ones are closed and the peer has learned of it: [`SenderEvent::Changed`] follows.
    ///
    /// # Errors
    /// When the stream is not open or refused, or samples wait for an earlier change.
    pub fn set_qos(&mut self, now: Instant, stream: u32, qos: Qos) -> Result<(), SendError> {
        self.sender.streams.begin_change(stream, qos)?;
        self.sender.refresh(now, stream);
        Ok(())
    }

    /// Closes a stream to the peer; accepted samples are still carried.
    pub fn close(&mut self, now: Instant, stream: u32) {
        self.sender.close(now, stream);
    }

    /// Accepts a stream that the peer has [requested](ReceiverEvent::Requested). Returns false if
    /// there is no such request any more, or no memory for it: then the stream is refused.
    pub fn accept_stream(&mut self, now: Instant, stream: u32) -> bool {
        let accepted = self.receiver.accept_stream(stream);
        self.exchange_control(now);
        accepted
    }

    /// Refuses a stream that the peer has requested, or closes one that it has opened. Samples of it
    /// that the application has not taken are dropped. Returns false if there is no such stream.
    pub fn refuse_stream(&mut self, now: Instant, stream: u32, why: Refusal) -> bool {
        let known = self.receiver.refuse_stream(stream, why);
        self.receiver.report_closed(now);
        self.exchange_control(now);
        known
    }

    /// Accepts a sample for sending.
    ///
    /// # Errors
    /// When the stream is not open, is full (if it keeps all), or is refused by the peer.
    pub fn send(&mut self, now: Instant, stream: u32, payload: Bytes) -> Result<(), SendError> {
        self.sender.accept(now, stream, payload)
    }

    /// Takes the oldest received sample of a stream.
    pub fn take(&mut self, now: Instant, stream: u32) -> Option<LinkSample> {
        let sample = self.receiver.take(stream);
        self.receiver.report_closed(now);
        self.exchange_control(now);
        sample
    }

    /// Processes a received datagram, whose packet arrived with this mark. It may be anything;
    /// invalid ones are counted.
    pub fn on_datagram(&mut self, now: Instant, ecn: Option<Ecn>, datagram: &[u8]) {
        self.datagram_bytes_received += datagram.len() as u64;
        self.last_arrival = now;
        let kind = Kind::of(datagram);
        if let Some(watch) = self.watch.as_mut().filter(|_| kind == Ok(Kind::Data)) {
            watch.on_data(now);
        }
        match kind {
            Ok(Kind::Feedback) => self.on_feedback(now, datagram),
            // The receiver counts packets that do not parse.
            _ => {
                let is_marked = ecn == Some(Ecn::CongestionExperienced);
                let _ = self.receiver.on_data(now, is_marked, datagram);
            }
        }
        self.exchange_control(now);
    }

    /// Appends the next datagram, of at most `bytes`, to the buffer. Returns false when there is
    /// nothing to send now.
    pub fn next_datagram(&mut self, now: Instant, bytes: usize, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        let written =
            self.receiver.write_feedback(now, bytes, out) || self.write_data(now, bytes, out);
        self.datagram_bytes_sent += (out.len() - start) as u64;
        written
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), and then
    /// [`next_datagram`](Self::next_datagram).
    pub fn poll_timeout(&self) -> Option<Instant> {
        [
            self.sender.poll_timeout(),
            self.receiver.feedback_due(),
            self.paced_until,
            self.watch
                .as_ref()
                .and_then(|watch| watch.timeout(&Patience::of(&self.rate.status(), self.rto))),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Processes everything that is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.sender.handle_timeout(now);
        self.paced_until = self.paced_until.filter(|at| *at > now);
    }

    /// Returns the oldest event.
    pub fn poll_event(&mut self) -> Option<SessionEvent> {
        let sent = self.poll_sender_event();
        sent.or_else(|| self.receiver.poll_event().map(SessionEvent::Receiver))
    }

    /// Returns the oldest event that is no [`ReceiverEvent::Opened`]. These are for
    /// [`poll_opened`](Self::poll_opened): until then the receiver holds their streams.
    pub fn poll_event_but_opened(&mut self) -> Option<SessionEvent> {
        let sent = self.poll_sender_event();
        sent.or_else(|| self.receiver.poll_unannounced().map(SessionEvent::Receiver))
    }

    /// Returns the oldest [`ReceiverEvent::Opened`].
    pub fn poll_opened(&mut self) -> Option<SessionEvent> {
        self.receiver.poll_opened().map(SessionEvent::Receiver)
    }

    fn poll_sender_event(&mut self) -> Option<SessionEvent> {
        let lost = self.peer_lost.take();
        lost.map(|unconfirmed| SessionEvent::PeerLost { unconfirmed })
            .or_else(|| self.sender.poll_event().map(SessionEvent::Sender))
    }

    /// The peer's breach of the protocol, after which the session must end.
    pub fn violation(&self) -> Option<&str> {
        self.violation.as_deref()
    }

    /// The sending end.
    pub fn sender(&self) -> &Sender {
        &self.sender
    }

    /// The receiving end.
    pub fn receiver(&self) -> &Receiver {
        &self.receiver
    }

    /// Whether a sample of more than one shard was sent or is arriving: its repair needs
    /// [the tables](crate::coding::make_tables) of the erasure code.
    pub fn uses_coding(&self) -> bool {
        self.sender.uses_coding || self.receiver.uses_coding()
    }

    /// The state and counters of the session.
    pub fn status(&self) -> SessionStatus {
        SessionStatus {
            path: self.rate.status(),
            sent: self.sender.streams().totals(),
            received: self.receiver.incoming().totals(),
            link: self.receiver.link_counters(),
            packets_sent: self.packets_sent,
            congestion_marks: self.congestion_marks,
            datagram_bytes_sent: self.datagram_bytes_sent,
            datagram_bytes_received: self.datagram_bytes_received,
            last_arrival: self.last_arrival,
            bytes_copied_out: self.sender.bytes_copied,
            invalid_feedback: self.invalid_feedback,
        }
    }

    fn write_data(&mut self, now: Instant, bytes: usize, out: &mut Vec<u8>) -> bool {
        let permission = self.rate.permission(now);
        self.update_path(now);
        // Probes are useless when nothing is unfinished.
        let status = self.rate.status();
        let unfinished = self.sender.has_unfinished();
        let in_flight = status.in_flight_bytes > 0 && unfinished;
        // On a silent link the rate decides on probes.
        let tail_probe_at = Some(self.tail_probe_at()).filter(|_| in_flight && !status.silent);
        let silence = now.saturating_duration_since(self.last_feedback);
        self.paced_until = None;
        let filled = match permission {
            Permission::Send if self.sender.has_work(now) => {
                self.sender.fill(now, bytes, false, out)
            }
            Permission::Send if self.questions.asks(now, &mut self.sender, silence) => {
                self.sender.fill(now, bytes, true, out)
            }
            Permission::Send => None,
            Permission::Probe if unfinished && self.probe_at() <= now => {
                self.sender.fill(now, bytes, true, out)
            }
            Permission::Probe if self.questions.asks(now, &mut self.sender, silence) => {
                self.sender.fill(now, bytes, true, out)
            }
            Permission::Probe => {
                self.paced_until = unfinished.then(|| self.probe_at());
                None
            }
            Permission::Wait(_) if tail_probe_at.is_some_and(|at| at <= now) => {
                self.sender.fill(now, bytes, true, out)
            }
            Permission::Wait(at) => {
                if unfinished || self.sender.has_work(now) {
                    let at = at.max(now + PACING_STEP);
                    self.paced_until = Some(tail_probe_at.map_or(at, |probe| at.min(probe)));
                }
                None
            }
        };
        if let Some(trace) = &mut self.trace {
            trace.on_path(now, &status, silence);
            match &filled {
                Some(filled) => trace.on_sent(filled.bytes, permission != Permission::Send),
                None if permission != Permission::Send => trace.on_wait(),
                None => {}
            }
        }
        let Some(filled) = filled else {
            if !self.sender.has_work(now) {
                self.rate.on_nothing_to_send();
            }
            let check = (in_flight && self.paced_until.is_none()).then(|| now + SILENCE_CHECK);
            let status = self.sender.next_status(now);
            let questions = &self.questions;
            let ask = questions
                .is_open(&self.sender)
                .then_some(questions.due_at.max(now + PACING_STEP));
            self.paced_until = [self.paced_until, check, status, ask]
                .into_iter()
                .flatten()
                .min();
            return false;
        };
        let all_answered = status.in_flight_bytes == 0;
        let all_overdue = permission == Permission::Send && now > self.last_sent + self.rto;
        if all_answered || all_overdue {
            self.asked = now;
        }
        self.rate.on_sent(now, filled.packet, filled.bytes);
        self.questions.on_sent(now, &self.sender, silence);
        if let Some(watch) = &mut self.watch {
            watch.on_sent(now, filled.packet);
        }
        self.last_sent = now;
        self.packets_sent += 1;
        true
    }

    /// When a probe goes although the window is full, unless feedback arrives before: once an
    /// answer is overdue (like the tail loss probe of RFC 8985, section 7), and less often the
    /// longer it is. The answer may wait in a queue that probes make longer.
    fn tail_probe_at(&self) -> Instant {
        let due = self.last_feedback.max(self.asked) + self.rto;
        let overdue = self.last_sent.saturating_duration_since(due);
        due.max(self.last_sent) + TAIL_PROBE.max(overdue / 4)
    }

    /// When a silent link is probed. Samples must not wait for it. If only control messages are in
    /// flight, the answer may be slow because many share the channel, so probes become rarer, less
    /// so if the peer sends.
    fn probe_at(&self) -> Instant {
        let silence = self.last_sent.saturating_duration_since(self.last_feedback);
        let peer_sends = self.last_arrival > self.last_sent;
        self.last_sent
            + match (self.sender.has_samples(), peer_sends) {
                (true, _) => Duration::ZERO,
                (false, true) => silence / 16,
                (false, false) => silence / 4,
            }
    }

    /// Passes the rate's estimate of the path to the sender.
    fn update_path(&mut self, now: Instant) {
        let status = self.rate.status();
        let report_interval = self.rate.report_interval(now);
        let known = self.peer_incarnation.is_some() && !status.rtt.is_zero();
        let rto = if known {
            status.rtt * 2 + report_interval + RTO_MARGIN
        } else {
            FIRST_RTO
        };
        self.rto = rto;
        let path = PathEstimate {
            loss: status.loss.clamp(0.0, 0.95),
            rto,
            report_interval,
            transit: status.base_rtt / 2 + status.queue_delay,
            silent: status.silent,
            starting: status.starting,
        };
        self.sender.set_path(now, path);
    }

    fn on_feedback(&mut self, now: Instant, datagram: &[u8]) {
        let Ok(feedback) = Feedback::read(datagram) else {
            self.invalid_feedback += 1;
            return;
        };
        if feedback.session != self.sender.session() {
            return;
        }
        self.questions.is_new_connection = false;
        if let Some(watch) = &mut self.watch {
            watch.on_answer(now, feedback.highest_packet);
        }
        if !self.is_known(now, feedback.incarnation) {
            return;
        }
        if let Err(error) = self.sender.check_feedback(&feedback) {
            return self.on_violation(now, error.to_string());
        }
        let observed = Observed {
            highest_packet_number: feedback.highest_packet,
            packets_received: feedback.packets,
            bytes_received: feedback.bytes,
            congestion_marks: feedback.congestion_marks,
            arrived: self.peer_clock.expand(feedback.arrived_micros),
            held: Duration::from_micros(feedback.held_micros.into()),
        };
        // Overtaken feedback has no news about the path.
        let overtaken = feedback.number <= self.sender.feedback_seen;
        if !overtaken {
            self.last_feedback = now;
        }
        let mut believed = true;
        if !overtaken {
            let before = self.trace.as_ref().map(|_| self.rate.status());
            match self.rate.on_feedback(now, &observed) {
                Err(error @ FalseReport::Miscounted { .. }) => {
                    return self.on_violation(now, error.to_string());
                }
                // It names a packet so old that it is forgotten.
                Err(FalseReport::NeverSent { .. }) => believed = false,
                Ok(()) => {
                    self.congestion_marks = self.congestion_marks.max(feedback.congestion_marks);
                }
            }
            if let Some((trace, before)) = self.trace.as_mut().zip(before) {
                let path = self.rate.status();
                trace.on_feedback(now, &feedback, path, before.bytes_per_second);
                trace.on_path(now, &path, Duration::ZERO);
            }
        }
        self.update_path(now);
        if believed {
            self.sender.on_feedback(now, &feedback);
        } else {
            self.invalid_feedback += 1;
        }
    }

    fn on_violation(&mut self, now: Instant, why: String) {
        self.invalid_feedback += 1;
        if let Some(trace) = &mut self.trace {
            trace.record(now, TraceEvent::Violation(why.clone()));
        }
        self.violation.get_or_insert(why);
    }

    /// Whether this incarnation, in the running session, is the receiver that had all of the
    /// session. If not, begins a new session.
    fn is_known(&mut self, now: Instant, incarnation: u32) -> bool {
        let known = *self.peer_incarnation.get_or_insert(incarnation) == incarnation;
        let restarts = self.restarted_at.map(|last| last + RESTART_PERIOD);
        if !known && restarts.is_none_or(|next| next <= now) {
            self.restarted_at = Some(now);
            self.restart(now, incarnation);
        }
        known
    }

    /// Begins a new session, because the peer has lost its state.
    fn restart(&mut self, now: Instant, incarnation: u32) {
        let unconfirmed = self.sender.restart(now, self.random.next_u32());
        self.rate = Rate::new(self.config.rate, now);
        self.congestion_marks = 0;
        self.peer_incarnation = Some(incarnation);
        self.peer_clock = PeerClock::default();
        self.receiver.repeat_grants();
        *self.peer_lost.get_or_insert(0) += unconfirmed;
        if let Some(trace) = &mut self.trace {
            trace.record(now, TraceEvent::PeerLost { unconfirmed });
        }
    }

    fn exchange_control(&mut self, now: Instant) {
        while let Some(answer) = self.receiver.poll_answer() {
            let (Control::Grant { ends, .. } | Control::Refuse { ends, .. }) = answer else {
                continue;
            };
            // The first message of a receiver may be a grant. A grant of a receiver that lost its
            // state since is void.
            if ends.session != self.sender.session() || !self.is_known(now, ends.incarnation) {
                continue;
            }
            match answer {
                Control::Grant {
                    stream,
                    bytes,
                    most,
                    ..
                } => self.sender.on_grant(now, stream, bytes, most),
                Control::Refuse { stream, why, .. } => self.sender.on_refuse(now, stream, why),
                _ => {}
            }
        }
        while self.sender.streams().control_backlog() < CONTROL_BACKLOG
            && let Some(reply) = self.receiver.poll_reply()
        {
            self.sender.control(now, &reply);
        }
        let unconfirmed = self.sender.streams().control_backlog();
        self.receiver
            .charge_replies(unconfirmed.min(CONTROL_BACKLOG));
    }
}

/// The peer's clock, restored from its low 32 bits in microseconds.
#[derive(Debug, Default)]
struct PeerClock {
    last: Option<u64>,
}

impl PeerClock {
    fn expand(&mut self, low: u32) -> Duration {
        // The first reading is arbitrary; it is put a full turn ahead, so that later ones may lie
        // before it.
        let micros = self.last.map_or((1 << 32) + u64::from(low), |last| {
            crate::wire::expand(low, last)
        });
        self.last = Some(self.last.map_or(micros, |last| last.max(micros)));
        Duration::from_micros(micros)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::qos::Delivery;

    /// Taking a sample late makes room, and the producer is notified although nothing else is in
    /// flight.
    #[test]
    fn room_that_an_application_makes_is_reported() {
        (2..9).for_each(room_is_reported);
    }

    #[test]
    fn a_producer_can_wait_until_its_stream_is_opened_and_gets_a_refusal() {
        let now = Instant::now();
        let mut sender = Session::new(SessionConfig::default(), 1, now);
        let bounds = ReceiverConfig {
            max_streams: 1,
            ..ReceiverConfig::default()
        };
        let mut receiver = Session::new(
            SessionConfig {
                receiver: bounds,
                ..SessionConfig::default()
            },
            2,
            now,
        );
        let streams =
            ["first", "second"].map(|name| open(&mut sender, now, name, Delivery::Latest));
        assert!(
            streams
                .iter()
                .all(|stream| matches!(sender.sender().streams().is_opened(*stream), Ok(false)))
        );
        for millis in 0..20 {
            exchange(
                &mut sender,
                &mut receiver,
                now + Duration::from_millis(millis),
                |_| true,
            );
        }
        assert!(matches!(
            sender.sender().streams().is_opened(streams[0]),
            Ok(true)
        ));
        assert!(matches!(
            sender.sender().streams().is_opened(streams[1]),
            Err(SendError::Refused {
                why: Refusal::TooManyStreams,
                ..
            })
        ));
        let events: Vec<_> = std::iter::from_fn(|| sender.poll_event()).collect();
        let opened = |stream| SessionEvent::Sender(SenderEvent::Opened(stream));
        assert!(
            events.contains(&opened(streams[0])) && !events.contains(&opened(streams[1])),
            "{events:?}"
        );
    }

    /// Samples behind one for which the peer has no memory are still delivered.
    #[test]
    fn a_sample_that_is_too_long_for_the_peer_is_passed_over() {
        let mut now = Instant::now();
        let mut sender = Session::new(SessionConfig::default(), 1, now);
        let bounds = ReceiverConfig {
            budget_bytes: 4 << 20,
            ..ReceiverConfig::default()
        };
        let mut receiver = Session::new(
            SessionConfig {
                receiver: bounds,
                ..SessionConfig::default()
            },
            2,
            now,
        );
        let stream = open(&mut sender, now, "stream", Delivery::keep_all(8));
        for bytes in [100, 2 << 20, 3 << 20, 200] {
            sender
                .send(now, stream, vec![7; bytes].into())
                .expect("nothing was granted yet");
        }
        let mut taken = Vec::new();
        for _ in 0..1000 {
            now += Duration::from_millis(1);
            exchange(&mut sender, &mut receiver, now, |_| true);
            taken.extend(
                receiver
                    .take(now, stream)
                    .map(|sample| (sample.sequence, sample.payload.len())),
            );
        }
        assert_eq!(taken, [(0, 100), (3, 200)]);
        let sent = sender.status().sent;
        assert_eq!(
            (sent.delivered, sent.refused, sent.held),
            (2, 2, 0),
            "{sent:?}"
        );
    }

    /// The times of packets with data since a sample of 20 kB was sent after a pause, over a slow path with a round trip of
    /// 200 ms on which no answer comes back any more.
    fn packets_after_a_pause() -> Vec<Duration> {
        let start = Instant::now();
        let [mut sender, mut receiver] =
            [1, 2].map(|seed| Session::new(SessionConfig::default(), seed, start));
        sender.set_max_rate(12_000);
        let stream = open(&mut sender, start, "stream", Delivery::Latest);
        let (pause_ends, end) = (Duration::from_secs(4), Duration::from_secs(5));
        let mut in_flight = [VecDeque::new(), VecDeque::new()];
        let (mut time, mut sent) = (Duration::ZERO, Vec::new());
        while time < end {
            let now = start + time;
            if time.is_zero() || time == pause_ends {
                sender
                    .send(now, stream, vec![7; 20_000].into())
                    .expect("it is open");
            }
            for (session, arriving) in [&mut receiver, &mut sender].into_iter().zip(&mut in_flight)
            {
                while arriving.front().is_some_and(|(at, _)| *at <= now) {
                    let packet: Option<(_, Vec<u8>)> = arriving.pop_front();
                    session.on_datagram(now, None, &packet.expect("it is due").1);
                }
            }
            while receiver.take(now, stream).is_some() {}
            for (from, session) in [&mut sender, &mut receiver].into_iter().enumerate() {
                session.handle_timeout(now);
                let mut packet = Vec::new();
                while session.next_datagram(now, 1200, &mut packet) {
                    let packet = std::mem::take(&mut packet);
                    if from == 0 && time >= pause_ends && Kind::of(&packet) == Ok(Kind::Data) {
                        sent.push(time - pause_ends);
                    }
                    if time < pause_ends {
                        in_flight[from].push_back((now + Duration::from_millis(100), packet));
                    }
                }
            }
            time += Duration::from_millis(1);
        }
        sent
    }

    #[test]
    fn no_probe_goes_before_an_answer_is_overdue() {
        let sent = packets_after_a_pause();
        // Ten packets may go at once, and two that fill the window.
        let within = |millis: u64| {
            let limit = Duration::from_millis(millis);
            sent.iter().filter(|at| **at < limit).count()
        };
        assert!((10..=13).contains(&within(400)), "{sent:?}");
    }

    #[test]
    fn probes_become_rarer_the_longer_an_answer_is_overdue() {
        let sent = packets_after_a_pause();
        let probes: Vec<_> = sent.iter().filter(|at| at.as_millis() > 400).collect();
        assert!((5..=25).contains(&probes.len()), "{sent:?}");
    }

    fn open(session: &mut Session, now: Instant, name: &str, delivery: Delivery) -> u32 {
        session
            .open(now, name, Qos::new(delivery))
            .expect("the name is short")
    }

    /// Carries the datagrams of both directions, as far as `passes` allows.
    fn exchange(
        one: &mut Session,
        other: &mut Session,
        now: Instant,
        mut passes: impl FnMut(&[u8]) -> bool,
    ) {
        let ends = [one, other];
        for from in [0, 1] {
            ends[from].handle_timeout(now);
            let mut packet = Vec::new();
            while ends[from].next_datagram(now, 1200, &mut packet) {
                if passes(&packet) {
                    ends[1 - from].on_datagram(now, None, &packet);
                }
                packet.clear();
            }
        }
    }

    /// Only every `lost`-th feedback arrives.
    fn room_is_reported(lost: u64) {
        let mut feedbacks = 0;
        let mut now = Instant::now();
        let [mut sender, mut receiver] =
            [1, 2].map(|seed| Session::new(SessionConfig::default(), seed, now));
        let stream = open(&mut sender, now, "stream", Delivery::keep_all(2));
        let (mut sent, mut taken) = (0, 0);
        for millis in 0..10_000 {
            now += Duration::from_millis(1);
            if sent < 20 && sender.sender().streams().has_room(stream) {
                sender
                    .send(now, stream, vec![7; 3000].into())
                    .expect("there is room");
                sent += 1;
            }
            if millis % 100 == 99 {
                taken += u64::from(receiver.take(now, stream).is_some());
            }
            exchange(&mut sender, &mut receiver, now, |packet| {
                let is_feedback = Kind::of(packet) == Ok(Kind::Feedback);
                feedbacks += u64::from(is_feedback);
                !is_feedback || feedbacks % lost == 0
            });
        }
        assert_eq!((sent, taken), (20, 20));
    }
}
