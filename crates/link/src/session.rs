//! One peer: both directions of its samples, and the rate at which ours may go.
//!
//! Each end has a *session* number for what it sends and an *incarnation* number for what it receives, both random. A
//! receiver that sees a new session drops what it had of the old one; a sender that sees a new incarnation in the
//! feedback begins a new session. So either end may be lost at any time, and the other tells how many samples that cost.
//! The carrier's connection may be replaced under a session without any loss.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use bytes::Bytes;

use crate::{
    memory::Memory,
    qos::Qos,
    random::Random,
    rate::{self, Observed, Permission, Rate},
    receiver::{
        LinkReceiveCounters, LinkSample, ReceiveCounters, Receiver, ReceiverConfig, ReceiverEvent,
    },
    sender::{PathEstimate, SendCounters, SendError, Sender, SenderEvent},
    wire::{
        Kind,
        control::{Control, NAME_BYTES_MAX},
        feedback::Feedback,
    },
};

/// Before the round-trip time is known, a packet without a report counts as lost after this time.
const FIRST_RTO: Duration = Duration::from_millis(50);
/// A packet without a report counts as lost after two round-trip times, the time between reports, and this.
const RTO_MARGIN: Duration = Duration::from_millis(4);
/// How often it is looked whether the peer has fallen silent.
const SILENCE_CHECK: Duration = Duration::from_millis(50);
/// A peer that may have lost its state, or has not told what became of samples, is asked again after this time, when nothing
/// else is sent to it.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// Sooner, as long as it answers, where samples may have to wait for what it says.
const ASK_AGAIN_SOON: Duration = Duration::from_millis(20);
/// When everything under way is overdue, the window stays full until something is heard, so a probe goes after this
/// time, again and again: a fade costs little more than its own length.
const TAIL_PROBE: Duration = Duration::from_millis(5);
/// While the rate holds packets back, it is asked again after this time, and then lets a few go at once: each time costs a
/// wake-up and a system call.
const PACING_STEP: Duration = Duration::from_micros(200);
/// Control messages to the peer that wait, at most, before its own are read no further.
const CONTROL_BACKLOG: usize = 1024;

/// How a session is set up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SessionConfig {
    /// Bounds of the rate.
    pub rate: rate::Config,
    /// Bounds of what the peer may take.
    pub receiver: ReceiverConfig,
}

/// What a session tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionEvent {
    /// About a stream that this end sends.
    Sender(SenderEvent),
    /// About a stream that this end receives.
    Receiver(ReceiverEvent),
    /// The peer has lost what it had received: so many samples were under way, and whether they were delivered is not
    /// known.
    PeerLost {
        /// Samples under way.
        unconfirmed: u64,
    },
}

/// What is known of a session, at any time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SessionStatus {
    /// The path from here to the peer.
    pub path: rate::Status,
    /// Sent samples, all streams.
    pub sent: SendCounters,
    /// Received samples, all streams.
    pub received: ReceiveCounters,
    /// What the receiving end saw.
    pub link: LinkReceiveCounters,
    /// Data packets sent.
    pub packets_sent: u64,
    /// Bytes of datagrams sent, feedback included.
    pub datagram_bytes_sent: u64,
    /// Bytes of datagrams received.
    pub datagram_bytes_received: u64,
    /// Bytes of samples and symbols copied on the way out.
    pub bytes_copied_out: u64,
    /// Feedback that cannot be true, or does not parse.
    pub invalid_feedback: u64,
}

/// See the module.
#[derive(Debug)]
pub struct Session {
    config: SessionConfig,
    random: Random,
    sender: Sender,
    receiver: Receiver,
    rate: Rate,
    peer_incarnation: Option<u32>,
    peer_clock: PeerClock,
    /// When the rate lets the next packet go.
    paced_until: Option<Instant>,
    last_sent: Instant,
    /// When feedback came that was not overtaken.
    last_heard: Instant,
    /// When anything last came from the peer.
    last_arrival: Instant,
    rto: Duration,
    /// When the peer is asked for a sign that it still knows of this session.
    ask_at: Instant,
    /// The carrier has made a connection, and nothing was heard through it yet.
    is_new_connection: bool,
    events: VecDeque<SessionEvent>,
    packets_sent: u64,
    datagram_bytes_sent: u64,
    datagram_bytes_received: u64,
    invalid_feedback: u64,
}

impl Session {
    /// A session with a peer of which nothing is known. `seed` is random, and different each time.
    pub fn new(config: SessionConfig, seed: u64, now: Instant) -> Self {
        let mut random = Random::new(seed);
        let (session, incarnation) = (random.next_u32(), random.next_u32());
        Self {
            config,
            random,
            sender: Sender::new(session),
            receiver: Receiver::new(config.receiver, incarnation, now),
            rate: Rate::new(config.rate, now),
            peer_incarnation: None,
            peer_clock: PeerClock::default(),
            paced_until: None,
            last_sent: now,
            last_heard: now,
            last_arrival: now,
            rto: FIRST_RTO,
            ask_at: now,
            is_new_connection: false,
            events: VecDeque::new(),
            packets_sent: 0,
            datagram_bytes_sent: 0,
            datagram_bytes_received: 0,
            invalid_feedback: 0,
        }
    }

    /// Puts samples that begin to arrive from now on there, instead of on the heap.
    pub fn set_memory(&mut self, memory: Box<dyn Memory>) {
        self.receiver.set_memory(memory);
    }

    /// The carrier has a connection to the peer, for the first time or again: it is asked whether it is the same.
    pub fn on_connected(&mut self, now: Instant) {
        self.is_new_connection = true;
        self.ask_at = now;
    }

    /// Opens a stream to the peer and returns its number. Samples may be sent at once.
    pub fn open(&mut self, now: Instant, name: impl Into<String>, qos: Qos) -> u32 {
        let mut name = name.into();
        while name.len() > NAME_BYTES_MAX {
            name.pop();
        }
        self.sender.open(now, name, qos)
    }

    /// Closes a stream to the peer; what was accepted is still carried.
    pub fn close(&mut self, now: Instant, stream: u32) {
        self.sender.close(now, stream);
    }

    /// Accepts a sample for sending.
    ///
    /// # Errors
    /// When the stream is not open, is full (if it keeps all), or is refused by the peer.
    pub fn send(&mut self, now: Instant, stream: u32, payload: Bytes) -> Result<(), SendError> {
        self.sender.accept(now, stream, payload)
    }

    /// Takes the oldest sample that waits in a stream of the peer.
    pub fn take(&mut self, now: Instant, stream: u32) -> Option<LinkSample> {
        let sample = self.receiver.take(stream);
        self.receiver.report_closed(now);
        self.exchange_control(now);
        sample
    }

    /// A datagram arrived. It may be anything; what is wrong is counted.
    pub fn on_datagram(&mut self, now: Instant, datagram: &[u8]) {
        self.datagram_bytes_received += datagram.len() as u64;
        self.last_arrival = now;
        match Kind::of(datagram) {
            Ok(Kind::Feedback) => self.on_feedback(now, datagram),
            // What does not parse is counted by the receiver.
            _ => drop(self.receiver.on_data(now, datagram)),
        }
        self.exchange_control(now);
    }

    /// Appends the next datagram, of at most `bytes`, to the buffer; false when there is nothing to send now.
    pub fn next_datagram(&mut self, now: Instant, bytes: usize, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        let written =
            self.receiver.write_feedback(now, bytes, out) || self.write_data(now, bytes, out);
        self.datagram_bytes_sent += (out.len() - start) as u64;
        written
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called, and then datagrams asked for.
    pub fn poll_timeout(&self) -> Option<Instant> {
        [
            self.sender.poll_timeout(),
            self.receiver.feedback_due(),
            self.paced_until,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.sender.handle_timeout(now);
        self.paced_until = self.paced_until.filter(|at| *at > now);
    }

    /// What happened, the oldest first.
    pub fn poll_event(&mut self) -> Option<SessionEvent> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        let sender = self.sender.poll_event().map(SessionEvent::Sender);
        sender.or_else(|| self.receiver.poll_event().map(SessionEvent::Receiver))
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
        self.sender.uses_coding() || self.receiver.uses_coding()
    }

    /// What is known.
    pub fn status(&self) -> SessionStatus {
        SessionStatus {
            path: self.rate.status(),
            sent: self.sender.streams().totals(),
            received: self.receiver.totals(),
            link: self.receiver.link_counters(),
            packets_sent: self.packets_sent,
            datagram_bytes_sent: self.datagram_bytes_sent,
            datagram_bytes_received: self.datagram_bytes_received,
            bytes_copied_out: self.sender.bytes_copied(),
            invalid_feedback: self.invalid_feedback,
        }
    }

    fn write_data(&mut self, now: Instant, bytes: usize, out: &mut Vec<u8>) -> bool {
        let permission = self.rate.permission(now);
        self.tell_path(now);
        // Without anything to bring to an end, nothing is to be learned from probes.
        let status = self.rate.status();
        let unfinished = self.sender.has_unfinished();
        let in_flight = status.in_flight_bytes > 0 && unfinished;
        // A silent link is probed as the rate allows.
        let tail_probe_at = Some(self.tail_probe_at()).filter(|_| in_flight && !status.silent);
        self.paced_until = None;
        let filled = match permission {
            Permission::Send if self.sender.has_work(now) => {
                self.sender.fill(now, bytes, false, out)
            }
            Permission::Send if self.asks(now) => self.sender.fill(now, bytes, true, out),
            Permission::Send => None,
            Permission::Probe if unfinished && self.probe_at() <= now => {
                self.sender.fill(now, bytes, true, out)
            }
            Permission::Probe if self.asks(now) => self.sender.fill(now, bytes, true, out),
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
        let Some(filled) = filled else {
            if !self.sender.has_work(now) {
                self.rate.on_nothing_to_send();
            }
            let check = (in_flight && self.paced_until.is_none()).then(|| now + SILENCE_CHECK);
            let status = self.sender.next_status(now);
            let ask = self
                .has_question()
                .then_some(self.ask_at.max(now + PACING_STEP));
            self.paced_until = [self.paced_until, check, status, ask]
                .into_iter()
                .flatten()
                .min();
            return false;
        };
        self.rate.on_sent(now, filled.packet, filled.bytes);
        self.ask_at = now + self.ask_again(now);
        self.last_sent = now;
        self.packets_sent += 1;
        true
    }

    /// When a probe goes although the window is full, unless something is heard before. (As the tail loss probe of
    /// RFC 8985, section 7.)
    fn tail_probe_at(&self) -> Instant {
        (self.last_heard + self.rto).max(self.last_sent) + TAIL_PROBE
    }

    /// When a silent link is probed. Samples are not to wait for it; where only control messages are under way, the answer
    /// may be long in coming because many share the air, so probes become rarer, less so if the peer sends.
    fn probe_at(&self) -> Instant {
        let silence = self.last_sent.saturating_duration_since(self.last_heard);
        let peer_sends = self.last_arrival > self.last_sent;
        self.last_sent
            + match (self.sender.has_samples(), peer_sends) {
                (true, _) => Duration::ZERO,
                (false, true) => silence / 16,
                (false, false) => silence / 4,
            }
    }

    /// Whether it is not known that the peer still knows of this session, or what became of samples that it has: it may
    /// have told, and that was lost.
    fn has_question(&self) -> bool {
        self.is_new_connection
            || self.sender.streams().awaits_grant()
            || self.sender.awaits_closing()
    }

    /// Whether to ask now. A peer that was started anew while everything sent before had been confirmed, and a grant
    /// had not arrived, would otherwise never be heard of.
    fn asks(&mut self, now: Instant) -> bool {
        self.ask_at <= now && self.has_question() && {
            self.ask_at = now + self.ask_again(now);
            self.sender.streams.check_grants()
                || self.is_new_connection
                || self.sender.awaits_closing()
        }
    }

    /// After how long the next question follows.
    fn ask_again(&self, now: Instant) -> Duration {
        if self.is_new_connection || self.sender.streams().awaits_grant() {
            let silence = now.saturating_duration_since(self.last_heard);
            (silence / 4).clamp(ASK_AGAIN_SOON, ASK_AGAIN)
        } else {
            ASK_AGAIN
        }
    }

    /// Tells the sender what is known of the path.
    fn tell_path(&mut self, now: Instant) {
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
        self.is_new_connection = false;
        if !self.is_known(now, feedback.incarnation) {
            return;
        }
        let observed = Observed {
            highest_packet_number: feedback.highest_packet,
            packets_received: feedback.packets,
            bytes_received: feedback.bytes,
            arrived: self.peer_clock.expand(feedback.arrived_micros),
            held: Duration::from_micros(feedback.held_micros.into()),
        };
        // One that was overtaken says nothing new about the path.
        let overtaken = feedback.number <= self.sender.feedback_seen();
        if !overtaken {
            self.last_heard = now;
        }
        let believed = overtaken || self.rate.on_feedback(now, &observed).is_ok();
        self.tell_path(now);
        if !believed || self.sender.on_feedback(now, &feedback).is_err() {
            self.invalid_feedback += 1;
        }
    }

    /// Whether what names this incarnation, and the running session, is from the receiver that had all of the session. If
    /// not, a new session begins.
    fn is_known(&mut self, now: Instant, incarnation: u32) -> bool {
        let known = *self.peer_incarnation.get_or_insert(incarnation) == incarnation;
        if !known {
            self.restart(now, incarnation);
        }
        known
    }

    /// The peer has lost its state.
    fn restart(&mut self, now: Instant, incarnation: u32) {
        let unconfirmed = self.sender.restart(now, self.random.next_u32());
        self.rate = Rate::new(self.config.rate, now);
        self.peer_incarnation = Some(incarnation);
        self.peer_clock = PeerClock::default();
        for grant in self.receiver.grants() {
            self.sender.control(now, &grant);
        }
        self.events
            .push_back(SessionEvent::PeerLost { unconfirmed });
    }

    fn exchange_control(&mut self, now: Instant) {
        while let Some(answer) = self.receiver.poll_answer() {
            let (Control::Grant { ends, .. } | Control::Refuse { ends, .. }) = answer else {
                continue;
            };
            // The first word of a receiver may be a grant. One that was lost since has granted nothing.
            if ends.session != self.sender.session() || !self.is_known(now, ends.incarnation) {
                continue;
            }
            match answer {
                Control::Grant { stream, bytes, .. } => self.sender.on_grant(now, stream, bytes),
                Control::Refuse { stream, .. } => self.sender.on_refuse(stream),
                Control::Open { .. } | Control::Close { .. } | Control::Want { .. } => {}
            }
        }
        while self.sender.streams().control_backlog() < CONTROL_BACKLOG
            && let Some(reply) = self.receiver.poll_reply()
        {
            self.sender.control(now, &reply);
        }
    }
}

/// The peer's clock, from its low 32 bits of microseconds.
#[derive(Debug, Default)]
struct PeerClock {
    last: Option<u64>,
}

impl PeerClock {
    fn expand(&mut self, low: u32) -> Duration {
        // The first reading may lie anywhere; it is put a full turn ahead, so that later ones may lie before it.
        let micros = self.last.map_or((1 << 32) + u64::from(low), |last| {
            crate::wire::expand(low, last)
        });
        self.last = Some(self.last.map_or(micros, |last| last.max(micros)));
        Duration::from_micros(micros)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qos::Delivery;

    /// What an application takes late makes room, and the producer hears of it although nothing else is under way.
    #[test]
    fn room_that_an_application_makes_is_told() {
        (2..9).for_each(room_is_told);
    }

    #[test]
    fn a_producer_can_wait_until_its_stream_is_opened_and_hears_of_a_refusal() {
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
            ["first", "second"].map(|name| sender.open(now, name, Qos::new(Delivery::Latest)));
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
            Err(SendError::Refused(_))
        ));
        let told: Vec<_> = std::iter::from_fn(|| sender.poll_event()).collect();
        let opened = |stream| SessionEvent::Sender(SenderEvent::Opened(stream));
        assert!(
            told.contains(&opened(streams[0])) && !told.contains(&opened(streams[1])),
            "{told:?}"
        );
    }

    /// What comes after a sample that the peer has no memory for is delivered all the same.
    #[test]
    fn a_sample_that_is_too_long_for_the_peer_is_passed_over() {
        let mut now = Instant::now();
        let mut sender = Session::new(SessionConfig::default(), 1, now);
        let bounds = ReceiverConfig {
            budget_bytes: 1 << 20,
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
        let stream = sender.open(now, "stream", Qos::new(Delivery::keep_all(8)));
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

    /// Carries what is to be sent in both directions, as far as `passes` lets it.
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
                    ends[1 - from].on_datagram(now, &packet);
                }
                packet.clear();
            }
        }
    }

    /// Every so many feedbacks, all but one are lost.
    fn room_is_told(lost: u64) {
        let mut feedbacks = 0;
        let mut now = Instant::now();
        let [mut sender, mut receiver] =
            [1, 2].map(|seed| Session::new(SessionConfig::default(), seed, now));
        let stream = sender.open(now, "stream", Qos::new(Delivery::keep_all(2)));
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
