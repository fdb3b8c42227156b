//! Addresses change while samples are in flight: streams continue, and a stream that keeps all loses
//! and repeats nothing.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    time::{Duration, Instant},
};

use nervure_linkemu::network::{Draw, for_each_seed};

use crate::{
    carrier::{
        Addresses, Carrier, KeyPair, PublicKey,
        quic::{QuicCarrier, QuicConfig},
    },
    endpoint::{Endpoint, EndpointEvent},
    qos::{Delivery, Qos},
    receiver::ReceiverEvent,
    sender::SendError,
    session::{SessionConfig, SessionEvent},
};

fn address(host: u8) -> SocketAddr {
    ([10, 0, 0, host], 4000).into()
}

struct End {
    address: SocketAddr,
    /// Another address, on another network.
    other: Option<SocketAddr>,
    endpoint: Endpoint<QuicCarrier>,
    peer: PublicKey,
    stream: u32,
    sent: u64,
    taken: u64,
    connections: u64,
    unconfirmed: u64,
}

/// Two endpoints that send each other a stream that keeps all, and the packets in flight.
struct Pair {
    now: Instant,
    ends: [End; 2],
    in_flight: VecDeque<(Instant, SocketAddr, SocketAddr, Vec<u8>)>,
    loss: f64,
    delay: Duration,
    /// Packets from and to this address are lost.
    dead: Option<SocketAddr>,
}

impl Pair {
    /// The first connects to the second.
    fn connecting(seed: u64, draw: &mut Draw) -> Self {
        let now = Instant::now();
        let keys = [1, 2].map(|number| KeyPair::from_seed([number; 32]));
        let ids = keys.each_ref().map(KeyPair::public);
        let mut number = 0;
        let ends = keys.map(|key| {
            let this = number;
            number += 1;
            let config = QuicConfig {
                accepts: this == 1,
                simulation_seed: Some(seed * 2 + this as u64),
                ..QuicConfig::new(key)
            };
            let mut carrier = QuicCarrier::new(config);
            carrier.allow(ids[1 - this]);
            End {
                address: address(this as u8),
                other: None,
                endpoint: Endpoint::new(carrier, SessionConfig::default(), seed * 2 + this as u64),
                peer: ids[1 - this],
                stream: 0,
                sent: 0,
                taken: 0,
                connections: 0,
                unconfirmed: 0,
            }
        });
        let mut pair = Self {
            now,
            ends,
            in_flight: VecDeque::new(),
            loss: draw.share() * 0.3,
            delay: Duration::from_millis(1 + draw.below(20)),
            dead: None,
        };
        pair.ends[0].connect(now, address(1));
        pair
    }

    /// A millisecond passes.
    fn step(&mut self, draw: &mut Draw) {
        self.now += Duration::from_millis(1);
        let now = self.now;
        while self.in_flight.front().is_some_and(|(at, ..)| *at <= now)
            && let Some((_, from, to, packet)) = self.in_flight.pop_front()
        {
            let is_dead = [Some(from), Some(to)].contains(&self.dead) && self.dead.is_some();
            let is_here = |end: &&mut End| end.address == to || end.other == Some(to);
            if let Some(end) = self.ends.iter_mut().find(is_here)
                && !is_dead
            {
                let addresses = Addresses {
                    remote: from,
                    local: end.other.map(|_| to.ip()),
                };
                end.endpoint.handle_packet(now, addresses, None, packet);
            }
        }
        for end in &mut self.ends {
            end.endpoint.handle_timeout(now);
            let mut packet = Vec::new();
            while let Some(transmit) = end.endpoint.poll_transmit(now, &mut packet) {
                let packet = std::mem::take(&mut packet);
                if draw.share() >= self.loss {
                    let from = transmit.source.map_or(end.address, |ip| (ip, 4000).into());
                    let arrival = (now + self.delay, from, transmit.destination, packet);
                    self.in_flight.push_back(arrival);
                }
            }
            end.on_events(now);
        }
    }

    fn run_until(
        &mut self,
        draw: &mut Draw,
        limit: Duration,
        done: impl Fn(&Self) -> bool,
    ) -> bool {
        let end = self.now + limit;
        while self.now < end && !done(self) {
            self.step(draw);
        }
        done(self)
    }
}

impl End {
    fn connect(&mut self, now: Instant, to: SocketAddr) {
        self.endpoint
            .connect(now, to, self.peer)
            .expect("the address is good");
    }

    fn open(&mut self, now: Instant) {
        let session = self.endpoint.session_mut(&self.peer).expect("it is known");
        let keep_all = Qos::new(Delivery::keep_all(8));
        self.stream = session.open(now, "stream", keep_all).expect("a name");
    }

    /// Sends the next sample, if there is room.
    fn send(&mut self, now: Instant, bytes: usize) {
        let session = self.endpoint.session_mut(&self.peer).expect("it is known");
        let mut payload = self.sent.to_le_bytes().to_vec();
        payload.resize(8 + bytes, 7);
        match session.send(now, self.stream, payload.into()) {
            Ok(()) => self.sent += 1,
            Err(SendError::Full { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }

    fn on_events(&mut self, now: Instant) {
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                EndpointEvent::Connected { .. } => self.connections += 1,
                EndpointEvent::Session { peer, event } => match event {
                    SessionEvent::Receiver(ReceiverEvent::Readable(stream)) => {
                        let session = self.endpoint.session_mut(&peer).expect("it is known");
                        while let Some(sample) = session.take(now, stream) {
                            let number = sample.payload.first_chunk().expect("8 bytes");
                            assert_eq!(u64::from_le_bytes(*number), self.taken);
                            self.taken += 1;
                        }
                    }
                    SessionEvent::PeerLost { unconfirmed } => self.unconfirmed += unconfirmed,
                    _ => {}
                },
                _ => {}
            }
        }
    }
}

#[test]
fn no_sample_is_lost_or_doubled_when_addresses_change() {
    let mut moves = 0;
    for_each_seed(0..15, |seed| {
        let mut draw = Draw::new(seed);
        let mut pair = Pair::connecting(seed, &mut draw);
        let connected = |pair: &Pair| pair.ends.iter().all(|end| end.connections > 0);
        assert!(
            pair.run_until(&mut draw, Duration::from_secs(30), connected),
            "seed {seed}"
        );
        let now = pair.now;
        pair.ends.iter_mut().for_each(|end| end.open(now));
        let mut next_host = 2;
        for _ in 0..1500 {
            let now = pair.now;
            for end in &mut pair.ends {
                if draw.chance(20) {
                    end.send(now, draw.below(20_000) as usize);
                }
            }
            if draw.chance(1) && next_host < 6 {
                next_host += 1;
                moves += 1;
                if draw.chance(60) {
                    // The initiator has another address, and may not know it: a translator of
                    // addresses has rebooted.
                    pair.ends[0].address = address(next_host);
                    if draw.chance(50) {
                        pair.ends[0]
                            .endpoint
                            .carrier_mut()
                            .local_address_changed(now);
                    }
                } else {
                    // The acceptor has moved, and the initiator learns where to.
                    pair.ends[1].address = address(next_host);
                    pair.ends[0].connect(now, address(next_host));
                }
            }
            pair.step(&mut draw);
        }
        let all_taken = |pair: &Pair| {
            pair.ends[0].sent == pair.ends[1].taken && pair.ends[1].sent == pair.ends[0].taken
        };
        assert!(
            pair.run_until(&mut draw, Duration::from_secs(60), all_taken),
            "seed {seed}: {:?}",
            pair.ends
                .iter()
                .map(|end| (end.sent, end.taken))
                .collect::<Vec<_>>()
        );
        for end in &pair.ends {
            assert!(end.sent > 20, "seed {seed}: {}", end.sent);
            assert_eq!((end.connections, end.unconfirmed), (1, 0), "seed {seed}");
        }
    });
    assert!(moves > 25, "{moves}");
}

/// The acceptor is on two networks, and the one in use dies: the other is used a little later.
#[test]
fn a_session_changes_to_another_network_when_one_dies() {
    let mut gaps = [Vec::new(), Vec::new()];
    let mut expected = [Vec::new(), Vec::new()];
    for_each_seed(0..20, |seed| {
        let mut draw = Draw::new(seed);
        let mut pair = Pair::connecting(seed, &mut draw);
        let other = address(100);
        pair.ends[1].other = Some(other);
        let (now, acceptor) = (pair.now, pair.ends[1].address);
        let peer = pair.ends[0].peer;
        pair.ends[0]
            .endpoint
            .connect_any(now, &[acceptor, other], peer)
            .expect("the addresses are good");
        let connected = |pair: &Pair| pair.ends.iter().all(|end| end.connections > 0);
        assert!(pair.run_until(&mut draw, Duration::from_secs(30), connected));
        let now = pair.now;
        pair.ends.iter_mut().for_each(|end| end.open(now));
        // One direction only, either of them.
        let from = draw.below(2) as usize;
        let (mut last, mut gap) = (pair.now, Duration::ZERO);
        for step in 0..3000 {
            if step == 1500 {
                let in_use = pair.ends[0].endpoint.peers().next();
                pair.dead = in_use.and_then(|peer| peer.address);
                assert!(pair.dead.is_some());
                last = pair.now;
            }
            if step % 10 == 0 {
                let now = pair.now;
                pair.ends[from].send(now, 2000);
            }
            let before = pair.ends[1 - from].taken;
            pair.step(&mut draw);
            if pair.ends[1 - from].taken > before {
                if step >= 1500 {
                    gap = gap.max(pair.now - last);
                }
                last = pair.now;
            }
        }
        let all_taken = |pair: &Pair| pair.ends[from].sent == pair.ends[1 - from].taken;
        assert!(
            pair.run_until(&mut draw, Duration::from_secs(30), all_taken),
            "seed {seed}: {} of {}",
            pair.ends[1 - from].taken,
            pair.ends[from].sent
        );
        assert!(pair.ends[from].sent > 100, "seed {seed}");
        for end in &pair.ends {
            assert_eq!((end.connections, end.unconfirmed), (1, 0), "seed {seed}");
        }
        // Silence, and five round trips: the timeout, the handshake, and the samples.
        let silence = Duration::from_millis([60, 100][from]);
        gaps[from].push(gap);
        expected[from].push(silence + pair.delay * 10);
    });
    for (gaps, expected) in gaps.iter_mut().zip(&mut expected) {
        gaps.sort_unstable();
        expected.sort_unstable();
        println!("gaps {gaps:?}, expected {expected:?}");
        let middle = gaps.len() / 2;
        assert!(gaps[middle] <= expected[middle]);
    }
}
