//! A link as applications use it: the endpoint with its QUIC carrier, streams that are fed on a
//! schedule, and streams whose samples are taken as soon as they arrive, and compared with those
//! sent.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use nervure_link::carrier::quic::{QuicCarrier, QuicConfig};
use nervure_link::carrier::{Ecn, PublicKey, Transmit};
use nervure_link::endpoint::{Endpoint, EndpointEvent};
use nervure_link::qos::Qos;
use nervure_link::receiver::ReceiverEvent;
use nervure_link::sender::{SendError, SenderEvent};
use nervure_link::session::{Session, SessionConfig, SessionEvent};

use crate::machine::{address, epoch, key};

/// Delay of a schedule after its peer is connected, so that the search for the rate and packet size
/// does not count.
const SETTLING: Duration = Duration::from_millis(200);

/// The load of a stream: sample n is due `n * period` after the schedule has begun, whatever
/// happened to those before it.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub qos: Qos,
    pub sample_bytes: usize,
    pub period: Duration,
    pub count: u64,
    /// The schedule begins at this time, or later, if no peer is connected by then. `None`: with
    /// the first attempt to connect.
    pub start: Option<Duration>,
    /// Begin and end of a pause, in which no sample is due.
    pub pause: Option<(Duration, Duration)>,
}

struct Source {
    peer: PublicKey,
    stream: u32,
    load: Load,
    begin: Option<Duration>,
    offered: u64,
    /// When each sample was accepted.
    accepted: Vec<Duration>,
    blocked: bool,
}

/// The samples that arrived of a stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Arrived {
    /// The number of each sample, and when it arrived.
    pub samples: Vec<(u64, Duration)>,
    pub bytes: u64,
}

/// A link and its application.
pub struct Peer {
    pub endpoint: Endpoint<QuicCarrier>,
    sources: Vec<Source>,
    /// By the key of the sender and the name of the stream.
    pub arrived: BTreeMap<(PublicKey, String), Arrived>,
    incoming: BTreeMap<(PublicKey, u32), (String, Qos)>,
    /// When each peer was first connected.
    pub connected: BTreeMap<PublicKey, Duration>,
    pub disconnected: u64,
    pub refused: u64,
    /// Samples that the endpoint reported lost with a peer's state.
    pub lost_with_state: u64,
    /// It replaces a process that may have received samples.
    pub is_restarted: bool,
    /// The number of unconfirmed samples, each time that a peer had lost its state.
    pub unconfirmed: Vec<u64>,
}

impl Peer {
    /// The link at a socket of a host. It accepts connections from these keys.
    pub fn new(seed: u64, host: usize, socket: usize, allowed: &[PublicKey]) -> Self {
        Self::with_config(SessionConfig::default(), seed, host, socket, allowed)
    }

    /// The same with another configuration.
    pub fn with_config(
        config: SessionConfig,
        seed: u64,
        host: usize,
        socket: usize,
        allowed: &[PublicKey],
    ) -> Self {
        let seed = seed
            .wrapping_mul(1009)
            .wrapping_add(host as u64 * 64 + socket as u64);
        let quic = QuicConfig {
            accepts: !allowed.is_empty(),
            simulation_seed: Some(seed),
            ..QuicConfig::new(key(host, socket))
        };
        let mut carrier = QuicCarrier::new(quic);
        allowed.iter().for_each(|peer| carrier.allow(*peer));
        Self {
            endpoint: Endpoint::new(carrier, config, seed),
            sources: Vec::new(),
            arrived: BTreeMap::new(),
            incoming: BTreeMap::new(),
            connected: BTreeMap::new(),
            disconnected: 0,
            refused: 0,
            lost_with_state: 0,
            is_restarted: false,
            unconfirmed: Vec::new(),
        }
    }

    /// Connects to the link at another host's socket, and feeds streams to it.
    pub fn connect(&mut self, now: Duration, host: usize, socket: usize, loads: &[Load]) {
        let (now_instant, peer) = (epoch() + now, key(host, socket).public());
        self.endpoint
            .connect(now_instant, address(host, socket), peer)
            .expect("the address is good");
        self.feed(now, peer, loads);
    }

    /// Feeds streams to a peer that is known.
    pub fn feed(&mut self, now: Duration, peer: PublicKey, loads: &[Load]) {
        let session = self.endpoint.session_mut(&peer).expect("the peer is known");
        for (number, load) in loads.iter().enumerate() {
            let stream = session
                .open(epoch() + now, format!("stream {number}"), load.qos)
                .expect("the name is short");
            let connected = self.connected.contains_key(&peer);
            let begin = (connected || load.start.is_none())
                .then_some(now.max(load.start.unwrap_or_default()));
            self.sources.push(Source {
                peer,
                stream,
                load: *load,
                begin,
                offered: 0,
                accepted: Vec::new(),
                blocked: false,
            });
        }
        self.produce(now);
    }

    /// Closes all streams; accepted samples are still carried.
    pub fn close_streams(&mut self, now: Duration) {
        for source in &self.sources {
            let session = self
                .endpoint
                .session_mut(&source.peer)
                .expect("the peer is known");
            session.close(epoch() + now, source.stream);
        }
    }

    /// The session with the link at another host's socket.
    pub fn session(&self, host: usize, socket: usize) -> &Session {
        self.endpoint
            .session(&key(host, socket).public())
            .expect("the peer is known")
    }

    /// When the schedule of a source began.
    pub fn begin(&self, source: usize) -> Option<Duration> {
        self.sources[source].begin
    }

    /// The time between two samples of a source.
    pub fn period(&self, source: usize) -> Duration {
        self.sources[source].load.period
    }

    /// Whether every sample was offered to the link.
    pub fn has_offered_all(&self) -> bool {
        self.sources
            .iter()
            .all(|source| source.offered == source.load.count)
    }

    /// When the link accepted each sample of a source.
    pub fn accepted(&self, source: usize) -> &[Duration] {
        &self.sources[source].accepted
    }

    pub fn handle_packet(
        &mut self,
        now: Duration,
        from: SocketAddr,
        ecn: Option<Ecn>,
        payload: &[u8],
    ) {
        self.endpoint
            .handle_packet(epoch() + now, from, ecn, BytesMut::from(payload));
        self.on_events(now);
        self.produce(now);
    }

    pub fn handle_timeout(&mut self, now: Duration) {
        self.endpoint.handle_timeout(epoch() + now);
        self.on_events(now);
        self.produce(now);
    }

    pub fn next_timeout(&mut self, now: Duration) -> Option<Duration> {
        let endpoint = self.endpoint.poll_timeout(epoch() + now);
        let endpoint = endpoint.map(|at: Instant| at.saturating_duration_since(epoch()));
        let sources = self.sources.iter().filter_map(Source::due);
        endpoint.into_iter().chain(sources).min()
    }

    pub fn poll_transmit(&mut self, now: Duration) -> Option<(Transmit, Vec<u8>)> {
        let mut packet = Vec::new();
        let sent = self.endpoint.poll_transmit(epoch() + now, &mut packet);
        self.on_events(now);
        sent.map(|transmit| (transmit, packet))
    }

    fn produce(&mut self, now: Duration) {
        for source in &mut self.sources {
            while source.due().is_some_and(|due| due <= now) {
                let Some(session) = self.endpoint.session_mut(&source.peer) else {
                    break;
                };
                let payload = payload(source.offered, source.load.sample_bytes);
                match session.send(epoch() + now, source.stream, payload) {
                    Ok(()) => {
                        source.offered += 1;
                        source.accepted.push(now);
                    }
                    Err(SendError::Full { .. }) => source.blocked = true,
                    Err(other) => panic!("{other}"),
                }
            }
        }
    }

    fn on_events(&mut self, now: Duration) {
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                EndpointEvent::Connected { peer, .. } => {
                    self.connected.entry(peer).or_insert(now);
                    for source in self.sources.iter_mut().filter(|source| source.peer == peer) {
                        let start = source.load.start.unwrap_or_default();
                        source.begin.get_or_insert(start.max(now + SETTLING));
                    }
                }
                EndpointEvent::Disconnected { .. } => self.disconnected += 1,
                EndpointEvent::Forgotten { lost, .. } => self.lost_with_state += lost,
                // Superfluous attempts to connect end like this, too.
                EndpointEvent::Refused { .. } => self.refused += 1,
                EndpointEvent::Session { peer, event } => self.on_session_event(now, peer, event),
            }
        }
    }

    fn on_session_event(&mut self, now: Duration, peer: PublicKey, event: SessionEvent) {
        match event {
            SessionEvent::Sender(SenderEvent::Opened(_) | SenderEvent::Changed(_)) => {}
            SessionEvent::Sender(SenderEvent::Writable(stream)) => {
                let writable =
                    |source: &&mut Source| (source.peer, source.stream) == (peer, stream);
                self.sources
                    .iter_mut()
                    .filter(writable)
                    .for_each(|source| source.blocked = false);
            }
            SessionEvent::Sender(SenderEvent::Finished(_, counters)) => {
                assert!(counters.is_balanced() && counters.held == 0, "{counters:?}");
            }
            SessionEvent::Sender(SenderEvent::Refused { stream, .. }) => {
                panic!("stream {stream} was refused")
            }
            SessionEvent::Receiver(ReceiverEvent::Opened { stream, name, qos }) => {
                // A restarted peer numbers its samples from the beginning.
                self.arrived
                    .insert((peer, name.clone()), Arrived::default());
                self.incoming.insert((peer, stream), (name, qos));
            }
            SessionEvent::Receiver(ReceiverEvent::Readable(stream)) => {
                self.consume(now, peer, stream)
            }
            SessionEvent::Receiver(
                ReceiverEvent::Ended(_)
                | ReceiverEvent::Changed(_)
                | ReceiverEvent::Requested { .. },
            ) => {}
            SessionEvent::Receiver(ReceiverEvent::PeerRestarted { .. }) => {}
            SessionEvent::PeerLost { unconfirmed } => self.unconfirmed.push(unconfirmed),
        }
    }

    fn consume(&mut self, now: Duration, peer: PublicKey, stream: u32) {
        let (name, qos) = self.incoming[&(peer, stream)].clone();
        let arrived = self.arrived.get_mut(&(peer, name)).expect("it was opened");
        let session = self
            .endpoint
            .session_mut(&peer)
            .expect("it just emitted an event");
        while let Some(sample) = session.take(epoch() + now, stream) {
            let expected = payload(sample.sequence, sample.payload.len());
            assert!(
                expected == sample.payload,
                "the bytes of sample {} differ",
                sample.sequence
            );
            let gapless = qos.delivery.keeps_all() && qos.lifespan.is_none() && !self.is_restarted;
            match arrived.samples.last() {
                Some((last, _)) if gapless => {
                    assert_eq!(sample.sequence, last + 1, "there is a gap")
                }
                Some((last, _)) => {
                    assert!(sample.sequence > *last, "{} after {last}", sample.sequence)
                }
                None => {}
            }
            arrived.samples.push((sample.sequence, now));
            arrived.bytes += sample.payload.len() as u64;
        }
    }
}

impl Source {
    /// When the next sample is due, if one is.
    fn due(&self) -> Option<Duration> {
        let begin = self
            .begin
            .filter(|_| !self.blocked && self.offered < self.load.count)?;
        let due = begin + self.load.period.mul_f64(self.offered as f64);
        let paused = self.load.pause.filter(|(from, _)| due >= *from);
        Some(due + paused.map_or(Duration::ZERO, |(from, to)| to - from))
    }
}

/// The bytes of a sample: noise that differs among a thousand samples.
fn payload(sequence: u64, bytes: usize) -> Bytes {
    const LONGEST: usize = 5 << 20;
    const STEP: usize = 8;
    const STEPS: u64 = 4096;
    static NOISE: OnceLock<Bytes> = OnceLock::new();
    let noise = NOISE.get_or_init(|| {
        let mut draw = nervure_linkemu::network::Draw::new(1);
        let words = (LONGEST + STEP * STEPS as usize) / 4;
        Bytes::from_iter((0..words).flat_map(|_| (draw.below(1 << 32) as u32).to_le_bytes()))
    });
    let from = (sequence % STEPS) as usize * STEP;
    noise.slice(from..from + bytes)
}
