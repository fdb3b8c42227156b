//! A malicious peer on an encrypted connection, and unauthenticated hosts. They send encrypted
//! packets with false contents, modified, replayed and unencrypted packets. An honest peer must
//! still get through.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use arbitrary::Arbitrary;
use nervure_link::{
    carrier::{
        Carrier, KeyPair, SessionId,
        quic::{QuicCarrier, QuicConfig},
    },
    endpoint::{Endpoint, EndpointEvent},
    qos::{Delivery, Qos},
    receiver::ReceiverEvent,
    session::{SessionConfig, SessionEvent},
};

use crate::peer::{self, Bytes, Change, Peer, Pool, Saying};

#[derive(Arbitrary, Debug)]
enum Step {
    /// The peer sends something, encrypted. Its packets may be modified, repeated, or come from
    /// another address.
    Say {
        saying: Saying,
        change: Option<Change>,
        times: u8,
        from: u8,
    },
    /// A packet from any host, possibly with the header of an encrypted packet.
    Stranger {
        has_head: bool,
        bytes: Bytes,
        from: u8,
    },
    /// Replays an earlier packet.
    Again { which: u8, from: u8 },
    /// Time passes, and the victim sends its pending packets.
    Wait { millis: u8 },
    /// The victim's application sends a sample.
    Send { bytes: u16 },
    /// The victim's application receives samples.
    Take { count: u8 },
}

/// Number of packets that are kept for replay.
const KEPT: usize = 64;
/// Size of the first byte, connection id and packet number of an encrypted packet, at most.
const HEAD_BYTES: usize = 13;

/// Runs the target.
pub fn run(bytes: &[u8]) {
    let Some((honest_too, story)) = crate::read::<(bool, Vec<Step>)>(bytes) else {
        return;
    };
    let mut world = World::new();
    for step in story {
        world.act(&step);
        world.check();
    }
    if honest_too {
        world.assert_an_honest_peer_gets_through();
    }
    drop(world.victim);
    assert_eq!(
        world.given.load(Ordering::Relaxed),
        0,
        "all memory must be freed"
    );
}

struct World {
    now: Instant,
    victim: Endpoint<QuicCarrier>,
    hostile: QuicCarrier,
    session: SessionId,
    peer: Peer,
    stream: u32,
    kept: Vec<Vec<u8>>,
    readable: Vec<u32>,
    given: Arc<AtomicU64>,
}

fn key(number: u8) -> KeyPair {
    KeyPair::from_seed([number; 32])
}

fn address(host: u8) -> SocketAddr {
    ([10, 0, 0, host], 4000).into()
}

const HOSTILE: u8 = 1;
const VICTIM: u8 = 2;
const HONEST: u8 = 3;

impl World {
    /// Connects the two.
    fn new() -> Self {
        let now = Instant::now();
        let config = |host: u8| QuicConfig {
            simulation_seed: Some(host.into()),
            ..QuicConfig::new(key(host))
        };
        let mut carrier = QuicCarrier::new(QuicConfig {
            accepts: true,
            max_sessions: 4,
            ..config(VICTIM)
        });
        carrier.allow(key(HOSTILE).public());
        carrier.allow(key(HONEST).public());
        let mut victim = Endpoint::new(carrier, peer::victim_config(), 1);
        let given = Arc::new(AtomicU64::new(0));
        let pool_given = Arc::clone(&given);
        victim.set_memory(Box::new(move |who| {
            if who == key(HOSTILE).public() {
                Box::new(Pool::new(&pool_given))
            } else {
                Box::new(nervure_link::memory::Heap)
            }
        }));
        let mut hostile = QuicCarrier::new(config(HOSTILE));
        let session = hostile
            .connect(now, address(VICTIM), key(VICTIM).public())
            .expect("the address is good");
        let mut world = Self {
            now,
            victim,
            hostile,
            session,
            peer: Peer::new(),
            stream: 0,
            kept: Vec::new(),
            readable: Vec::new(),
            given,
        };
        while world.victim.session(&key(HOSTILE).public()).is_none() {
            world.exchange();
            world.now += Duration::from_millis(1);
        }
        (0..4).for_each(|_| world.exchange());
        let session = world
            .victim
            .session_mut(&key(HOSTILE).public())
            .expect("it has just connected");
        world.stream = session
            .open(world.now, "stream", Qos::new(Delivery::keep_last(2)))
            .expect("the name is short");
        world
    }

    fn act(&mut self, step: &Step) {
        match step {
            Step::Say {
                saying,
                change,
                times,
                from,
            } => {
                let Some(session) = self.victim.session(&key(HOSTILE).public()) else {
                    return;
                };
                for datagram in self.peer.say(saying, session) {
                    for mut packet in self.packets_with(datagram) {
                        change.iter().for_each(|change| change.apply(&mut packet));
                        for _ in 0..=times % 3 {
                            self.deliver(*from, &packet);
                        }
                        self.keep(packet);
                    }
                }
            }
            Step::Stranger {
                has_head,
                bytes,
                from,
            } => {
                let head = self
                    .kept
                    .last()
                    .filter(|_| *has_head)
                    .map_or(&[][..], |packet| &packet[..packet.len().min(HEAD_BYTES)]);
                let packet = [head, &bytes.0].concat();
                self.deliver(*from, &packet);
            }
            Step::Again { which, from } => {
                if let Some(packet) = self.kept.get(usize::from(*which) % KEPT).cloned() {
                    self.deliver(*from, &packet);
                }
            }
            Step::Wait { millis } => {
                self.now += Duration::from_millis((*millis).into());
                self.victim.handle_timeout(self.now);
                if self.hostile.poll_timeout().is_some_and(|at| at <= self.now) {
                    self.hostile.handle_timeout(self.now);
                }
                self.exchange();
            }
            Step::Send { bytes } => {
                if let Some(session) = self.victim.session_mut(&key(HOSTILE).public()) {
                    // A stream that was refused accepts no samples.
                    let _ = session.send(self.now, self.stream, vec![1; (*bytes).into()].into());
                }
            }
            Step::Take { count } => {
                let Some(session) = self.victim.session_mut(&key(HOSTILE).public()) else {
                    return;
                };
                let from = self.readable.len().saturating_sub((*count).into());
                self.readable
                    .drain(from..)
                    .for_each(|stream| drop(session.take(self.now, stream)));
            }
        }
        self.on_events();
    }

    /// The packets that the malicious end's carrier makes of a datagram.
    fn packets_with(&mut self, datagram: Vec<u8>) -> Vec<Vec<u8>> {
        let mut next = Some(datagram);
        let mut give = |_, most: usize, out: &mut Vec<u8>| {
            let datagram = next.take_if(|datagram| datagram.len() <= most);
            datagram.map(|datagram| out.extend(datagram)).is_some()
        };
        self.hostile.wake(self.session);
        let mut packets = Vec::new();
        let mut packet = Vec::new();
        while packets.len() < 16
            && self
                .hostile
                .poll_transmit(self.now, &mut give, &mut packet)
                .is_some()
        {
            packets.push(std::mem::take(&mut packet));
        }
        packets
    }

    fn deliver(&mut self, from: u8, packet: &[u8]) {
        let from = if from < 200 { HOSTILE } else { from };
        self.victim
            .handle_packet(self.now, address(from), None, packet.to_vec());
        self.on_events();
    }

    fn keep(&mut self, packet: Vec<u8>) {
        if self.kept.len() == KEPT {
            self.kept.remove(0);
        }
        self.kept.push(packet);
    }

    /// Delivers all pending packets in both directions.
    fn exchange(&mut self) {
        for packet in self.packets_with(Vec::new()) {
            self.deliver(HOSTILE, &packet);
        }
        for (to, mut packet) in self.sent_by_victim() {
            if to == address(HOSTILE) {
                self.hostile
                    .handle_packet(self.now, address(VICTIM), None, &mut packet);
            }
        }
        while self.hostile.poll_event().is_some() {}
        self.on_events();
    }

    fn sent_by_victim(&mut self) -> Vec<(SocketAddr, Vec<u8>)> {
        let mut packets = Vec::new();
        let mut packet = Vec::new();
        while packets.len() < 200
            && let Some(transmit) = self.victim.poll_transmit(self.now, &mut packet)
        {
            assert_eq!(transmit.size, packet.len());
            packets.push((transmit.destination, std::mem::take(&mut packet)));
        }
        packets
    }

    fn on_events(&mut self) {
        while let Some(event) = self.victim.poll_event() {
            if let EndpointEvent::Session {
                event: SessionEvent::Receiver(ReceiverEvent::Readable(stream)),
                ..
            } = event
            {
                self.readable.push(stream);
            }
        }
    }

    fn check(&self) {
        assert!(self.victim.carrier().half_open_connections() <= 64);
        self.victim
            .session(&key(HOSTILE).public())
            .into_iter()
            .for_each(peer::check);
    }

    /// Asserts that an honest peer can connect and deliver a sample.
    fn assert_an_honest_peer_gets_through(&mut self) {
        let carrier = QuicCarrier::new(QuicConfig::new(key(HONEST)));
        let mut honest = Endpoint::new(carrier, SessionConfig::default(), 3);
        let (us, them) = (key(HONEST).public(), key(VICTIM).public());
        honest
            .connect(self.now, address(VICTIM), them)
            .expect("the address is good");
        let session = honest.session_mut(&them).expect("it was just made");
        let stream = session
            .open(self.now, "honest", Qos::new(Delivery::keep_all(1)))
            .expect("the name is short");
        session
            .send(self.now, stream, vec![7; 10_000].into())
            .expect("there is room");
        for _ in 0..2000 {
            self.now += Duration::from_millis(1);
            honest.handle_timeout(self.now);
            self.victim.handle_timeout(self.now);
            let mut packet = Vec::new();
            while honest.poll_transmit(self.now, &mut packet).is_some() {
                let packet = std::mem::take(&mut packet);
                self.victim
                    .handle_packet(self.now, address(HONEST), None, packet);
            }
            for (_, packet) in self
                .sent_by_victim()
                .into_iter()
                .filter(|(to, _)| *to == address(HONEST))
            {
                honest.handle_packet(self.now, address(VICTIM), None, packet);
            }
            while self.victim.poll_event().is_some() {}
            while honest.poll_event().is_some() {}
            let session = self.victim.session_mut(&us);
            if let Some(sample) = session.and_then(|session| session.take(self.now, stream)) {
                assert_eq!(&sample.payload[..], [7; 10_000]);
                return;
            }
        }
        panic!("the honest peer did not get through within 2 seconds");
    }
}
