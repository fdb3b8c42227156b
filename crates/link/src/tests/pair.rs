//! Two endpoints on a simulated network that send each other a stream that keeps all.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    time::{Duration, Instant},
};

use nervure_linkemu::network::Draw;

use crate::{
    carrier::{
        Addresses, KeyPair, PublicKey,
        quic::{QuicCarrier, QuicConfig},
    },
    endpoint::{Endpoint, EndpointEvent},
    qos::{Delivery, Qos},
    receiver::ReceiverEvent,
    sender::SendError,
    session::{SessionConfig, SessionEvent},
};

pub fn address(host: u8) -> SocketAddr {
    ([10, 0, 0, host], 4000).into()
}

pub struct End {
    pub address: SocketAddr,
    /// Another address, on another network.
    pub other: Option<SocketAddr>,
    pub endpoint: Endpoint<QuicCarrier>,
    pub peer: PublicKey,
    pub stream: u32,
    pub sent: u64,
    pub taken: u64,
    pub connections: u64,
    pub unconfirmed: u64,
}

/// Two endpoints that send each other a stream that keeps all, and the packets in flight.
pub struct Pair {
    pub now: Instant,
    pub ends: [End; 2],
    pub in_flight: VecDeque<(Instant, SocketAddr, SocketAddr, Vec<u8>)>,
    pub loss: f64,
    /// One way, over the acceptor's address and its other one.
    pub delay: [Duration; 2],
    /// Packets from this address, and to this one, are lost.
    pub dead: [Option<SocketAddr>; 2],
}

impl Pair {
    /// The first connects to the second.
    pub fn connecting(seed: u64, draw: &mut Draw) -> Self {
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
            delay: [Duration::from_millis(1 + draw.below(20)); 2],
            dead: [None; 2],
        };
        pair.ends[0].connect(now, address(1));
        pair
    }

    /// A millisecond passes.
    pub fn step(&mut self, draw: &mut Draw) {
        self.now += Duration::from_millis(1);
        let now = self.now;
        let arrived = self.in_flight.iter().enumerate();
        let arrived = arrived.filter(|(_, (at, ..))| *at <= now);
        let arrived: Vec<_> = arrived.map(|(place, _)| place).collect();
        let arrived = arrived
            .iter()
            .rev()
            .filter_map(|place| self.in_flight.remove(*place));
        let arrived: Vec<_> = arrived.collect();
        for (_, from, to, packet) in arrived.into_iter().rev() {
            let is_dead = self.dead[0] == Some(from) || self.dead[1] == Some(to);
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
        let other = self.ends[1].other;
        for end in &mut self.ends {
            end.endpoint.handle_timeout(now);
            let mut packet = Vec::new();
            while let Some(transmit) = end.endpoint.poll_transmit(now, &mut packet) {
                let packet = std::mem::take(&mut packet);
                if draw.share() >= self.loss {
                    let from = transmit.source.map_or(end.address, |ip| (ip, 4000).into());
                    let is_other =
                        other.is_some_and(|other| [from, transmit.destination].contains(&other));
                    let arrival = now + self.delay[usize::from(is_other)];
                    let arrival = (arrival, from, transmit.destination, packet);
                    self.in_flight.push_back(arrival);
                }
            }
            end.on_events(now);
        }
    }

    pub fn run_until(
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
    pub fn connect(&mut self, now: Instant, to: SocketAddr) {
        self.endpoint
            .connect(now, to, self.peer)
            .expect("the address is good");
    }

    pub fn open(&mut self, now: Instant) {
        let session = self.endpoint.session_mut(&self.peer).expect("it is known");
        let keep_all = Qos::new(Delivery::keep_all(8));
        self.stream = session.open(now, "stream", keep_all).expect("a name");
    }

    /// Sends the next sample, if there is room.
    pub fn send(&mut self, now: Instant, bytes: usize) {
        let session = self.endpoint.session_mut(&self.peer).expect("it is known");
        let mut payload = self.sent.to_le_bytes().to_vec();
        payload.resize(8 + bytes, 7);
        match session.send(now, self.stream, payload.into()) {
            Ok(()) => self.sent += 1,
            Err(SendError::Full { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }

    pub fn on_events(&mut self, now: Instant) {
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
