//! A host of the simulated network: a session, and an application that sends and checks.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use bytes::Bytes;
use nervure_linkemu::Ecn;
use nervure_linkemu::network::{Endpoint, Packet};

use crate::{
    carrier,
    policy::Refusal,
    qos::Qos,
    receiver::{LinkSample, ReceiverEvent},
    sender::{SendError, SenderEvent},
    session::{Session, SessionConfig, SessionEvent},
};

pub const DATAGRAM_BYTES: usize = 1400;

/// The load of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub qos: Qos,
    pub sample_bytes: usize,
    pub period: Duration,
    pub count: u64,
    pub start: Duration,
}

#[derive(Debug)]
struct Source {
    load: Load,
    stream: u32,
    next: Duration,
    sent: u64,
    blocked: bool,
    refused: bool,
}

impl Source {
    /// When the next sample is due, if one is.
    fn next(&self) -> Option<Duration> {
        let waits = self.blocked || self.refused || self.sent == self.load.count;
        (!waits).then_some(self.next)
    }

    fn is_due(&self, now: Duration) -> bool {
        self.next().is_some_and(|next| next <= now)
    }
}

/// The samples that arrived of a stream.
#[derive(Debug, Default)]
pub struct Arrived {
    pub qos: Option<Qos>,
    pub samples: u64,
    pub last_sequence: Option<u64>,
    pub latencies: Vec<Duration>,
    /// (arrival, time of sending) of each sample.
    pub times: Vec<(Duration, Duration)>,
    pub ended: bool,
}

pub struct Host {
    start: Instant,
    pub session: Session,
    sources: Vec<Source>,
    /// By name of the stream.
    pub arrived: BTreeMap<String, Arrived>,
    names: BTreeMap<u32, String>,
    /// The application takes nothing before this time.
    pub takes_from: Duration,
    pub peer_lost: Vec<u64>,
    pub peer_restarted: Vec<u64>,
    pub finished: u64,
    /// Streams of this host that the peer refused or closed.
    pub refused: Vec<(u32, Refusal)>,
    /// Streams that the peer requests.
    pub requested: Vec<(u32, String)>,
    /// The host is off: nothing is sent or taken.
    pub off: bool,
}

impl Host {
    pub fn new(seed: u64, host: u64, loads: &[Load]) -> Self {
        Self::with_config(SessionConfig::default(), seed, host, loads)
    }

    pub fn with_config(config: SessionConfig, seed: u64, host: u64, loads: &[Load]) -> Self {
        let start = epoch();
        let session = Session::new(config, seed * 2 + host, start);
        let mut host = Self {
            start,
            session,
            sources: Vec::new(),
            arrived: BTreeMap::new(),
            names: BTreeMap::new(),
            takes_from: Duration::ZERO,
            peer_lost: Vec::new(),
            peer_restarted: Vec::new(),
            finished: 0,
            refused: Vec::new(),
            requested: Vec::new(),
            off: false,
        };
        for (number, load) in loads.iter().enumerate() {
            let stream = host
                .session
                .open(start, format!("stream {number}"), load.qos)
                .expect("the name is short");
            host.sources.push(Source {
                load: *load,
                stream,
                next: load.start,
                sent: 0,
                blocked: false,
                refused: false,
            });
        }
        host
    }

    /// The time of the virtual clock as the session takes it.
    pub fn instant(&self, now: Duration) -> Instant {
        self.start + now
    }

    /// The application no longer reads a stream.
    pub fn forget(&mut self, stream: u32) {
        self.names.remove(&stream);
    }

    /// Whether every sample was sent.
    pub fn has_sent_all(&self) -> bool {
        self.sources
            .iter()
            .all(|source| source.refused || source.sent == source.load.count)
    }

    pub fn close_all(&mut self, now: Duration) {
        for source in &self.sources {
            self.session.close(self.start + now, source.stream);
        }
    }

    fn produce(&mut self, now: Duration) {
        for (number, source) in self.sources.iter_mut().enumerate() {
            while source.is_due(now) {
                let payload = payload(number, source.sent, source.next, source.load.sample_bytes);
                match self.session.send(self.start + now, source.stream, payload) {
                    Ok(()) => source.sent += 1,
                    Err(SendError::Full { .. }) => {
                        source.blocked = true;
                        break;
                    }
                    Err(SendError::Refused { .. }) => {
                        source.refused = true;
                        break;
                    }
                    Err(other) => panic!("{other}"),
                }
                source.next += source.load.period;
            }
        }
    }

    fn on_events(&mut self, now: Duration) {
        while let Some(event) = self.session.poll_event() {
            match event {
                SessionEvent::Sender(SenderEvent::Opened(_) | SenderEvent::Changed(_)) => {}
                SessionEvent::Sender(SenderEvent::Writable(stream)) => {
                    let sources = self.sources.iter_mut();
                    for source in sources.filter(|source| source.stream == stream) {
                        assert!(source.blocked, "no source waits for this room");
                        source.blocked = false;
                    }
                }
                SessionEvent::Sender(SenderEvent::Finished(_, counters)) => {
                    assert!(counters.is_balanced(), "{counters:?}");
                    assert_eq!(counters.held, 0);
                    self.finished += 1;
                }
                SessionEvent::Receiver(ReceiverEvent::Opened { stream, name, qos }) => {
                    self.arrived.entry(name.clone()).or_default().qos = Some(qos);
                    self.names.insert(stream, name);
                }
                SessionEvent::Receiver(ReceiverEvent::Readable(_) | ReceiverEvent::Changed(_)) => {}
                SessionEvent::Receiver(ReceiverEvent::Requested { stream, name, qos }) => {
                    self.arrived.entry(name.clone()).or_default().qos = Some(qos);
                    self.names.insert(stream, name.clone());
                    self.requested.push((stream, name));
                }
                SessionEvent::Receiver(ReceiverEvent::Ended(stream)) => {
                    self.arrived
                        .get_mut(&self.names[&stream])
                        .expect("it was opened")
                        .ended = true;
                }
                SessionEvent::Receiver(ReceiverEvent::PeerRestarted { lost }) => {
                    self.peer_restarted.push(lost);
                    self.names.clear();
                    for arrived in self.arrived.values_mut() {
                        arrived.last_sequence = None;
                    }
                }
                SessionEvent::Sender(SenderEvent::Refused { stream, why, .. }) => {
                    self.refused.push((stream, why));
                    self.sources
                        .iter_mut()
                        .filter(|source| source.stream == stream)
                        .for_each(|source| source.refused = true);
                }
                SessionEvent::PeerLost { unconfirmed } => self.peer_lost.push(unconfirmed),
            }
        }
        if now >= self.takes_from {
            self.consume(now);
        }
    }

    fn consume(&mut self, now: Duration) {
        let streams: Vec<_> = self
            .names
            .iter()
            .map(|(stream, name)| (*stream, name.clone()))
            .collect();
        for (stream, name) in streams {
            while let Some(sample) = self.session.take(self.start + now, stream) {
                self.arrived
                    .get_mut(&name)
                    .expect("it was opened")
                    .check(&name, &sample, now);
            }
        }
    }
}

impl Arrived {
    fn check(&mut self, name: &str, sample: &LinkSample, now: Duration) {
        let number: usize = name
            .strip_prefix("stream ")
            .expect("a name")
            .parse()
            .expect("a number");
        let sent = sent_at(&sample.payload);
        let expected = payload(number, sample.sequence, sent, sample.payload.len());
        assert!(
            expected == sample.payload,
            "the bytes of sample {} differ",
            sample.sequence
        );
        let qos = self.qos.expect("it was opened");
        match self.last_sequence {
            Some(last) if qos.delivery.keeps_all() && qos.lifespan.is_none() => {
                assert_eq!(sample.sequence, last + 1, "{name} has a gap");
            }
            Some(last) => assert!(
                sample.sequence > last,
                "{name}: {} after {last}",
                sample.sequence
            ),
            None => {}
        }
        self.last_sequence = Some(sample.sequence);
        self.samples += 1;
        self.latencies.push(now.saturating_sub(sent));
        self.times.push((now, sent));
    }

    pub fn percentile(&self, share: f64) -> Duration {
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        sorted[((sorted.len() - 1) as f64 * share) as usize]
    }
}

impl Endpoint for Host {
    fn handle_packet(&mut self, now: Duration, packet: Packet) {
        if !self.off {
            let ecn = match packet.ecn {
                Ecn::NotCapable => None,
                Ecn::Capable => Some(carrier::Ecn::Ect0),
                Ecn::CapableL4s => Some(carrier::Ecn::Ect1),
                Ecn::CongestionExperienced => Some(carrier::Ecn::CongestionExperienced),
            };
            self.session
                .on_datagram(self.start + now, ecn, &packet.bytes);
            self.on_events(now);
            self.produce(now);
        }
    }

    fn handle_timeout(&mut self, now: Duration) {
        self.session.handle_timeout(self.start + now);
        self.on_events(now);
        self.produce(now);
    }

    fn next_timeout(&self) -> Option<Duration> {
        if self.off {
            return None;
        }
        let session = self
            .session
            .poll_timeout()
            .map(|at| at.saturating_duration_since(self.start));
        let source = self.sources.iter().filter_map(Source::next).min();
        session.into_iter().chain(source).min()
    }

    fn poll_transmit(&mut self, now: Duration) -> Option<Packet> {
        let mut bytes = Vec::new();
        let sent = !self.off
            && self
                .session
                .next_datagram(self.start + now, DATAGRAM_BYTES, &mut bytes);
        sent.then_some(Packet {
            from: 0,
            to: usize::MAX,
            ecn: Ecn::Capable,
            bytes,
        })
    }
}

/// The two hosts of a network send to each other.
pub struct HostPair(pub usize, pub Host);

impl Endpoint for HostPair {
    fn handle_packet(&mut self, now: Duration, packet: Packet) {
        self.1.handle_packet(now, packet);
    }
    fn handle_timeout(&mut self, now: Duration) {
        self.1.handle_timeout(now);
    }
    fn next_timeout(&self) -> Option<Duration> {
        self.1.next_timeout()
    }
    fn poll_transmit(&mut self, now: Duration) -> Option<Packet> {
        self.1.poll_transmit(now).map(|packet| Packet {
            to: self.0,
            ..packet
        })
    }
}

/// One instant for all hosts of all tests, since only differences count.
fn epoch() -> Instant {
    use std::sync::OnceLock;
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    *EPOCH.get_or_init(|| Instant::now() + Duration::from_secs(3600))
}

/// The bytes of a sample: the time of sending, if there is room for it, then its own noise.
fn payload(stream: usize, sequence: u64, sent: Duration, bytes: usize) -> Bytes {
    let mut state = (stream as u64) << 48 | sequence;
    let mut payload = if bytes < 8 {
        Vec::new()
    } else {
        (sent.as_nanos() as u64).to_le_bytes().to_vec()
    };
    while payload.len() < bytes {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        payload.extend_from_slice(&(state >> 32).to_le_bytes()[..4]);
    }
    payload.truncate(bytes);
    payload.into()
}

fn sent_at(payload: &[u8]) -> Duration {
    payload.first_chunk().map_or(Duration::ZERO, |nanos| {
        Duration::from_nanos(u64::from_le_bytes(*nanos))
    })
}
