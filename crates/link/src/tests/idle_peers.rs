//! Work for one peer does not grow with the number of others that have nothing to do.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    time::{Duration, Instant},
};

use crate::{
    carrier::{
        KeyPair,
        quic::{QuicCarrier, QuicConfig},
    },
    endpoint::Endpoint,
    qos::{Delivery, Qos},
    session::SessionConfig,
};

fn key(number: usize) -> KeyPair {
    KeyPair::from_seed([number as u8; 32])
}

fn address(number: usize) -> SocketAddr {
    ([10, 0, 0, number as u8], 4000).into()
}

/// One end, the first, to which all others are connected.
struct Star {
    now: Instant,
    ends: Vec<Endpoint<QuicCarrier>>,
    in_flight: VecDeque<(usize, SocketAddr, Vec<u8>)>,
}

impl Star {
    fn connected(peers: usize) -> Self {
        let now = Instant::now();
        let ends = (0..=peers).map(|number| {
            let mut carrier = QuicCarrier::new(QuicConfig {
                accepts: number == 0,
                simulation_seed: Some(number as u64),
                ..QuicConfig::new(key(number))
            });
            (0..=peers).for_each(|other| carrier.allow(key(other).public()));
            Endpoint::new(carrier, SessionConfig::default(), number as u64)
        });
        let mut star = Self {
            now,
            ends: ends.collect(),
            in_flight: VecDeque::new(),
        };
        for number in 1..=peers {
            star.ends[number]
                .connect(now, address(0), key(0).public())
                .expect("the address is good");
            star.run(Duration::from_millis(20));
        }
        star
    }

    /// A millisecond passes, which is the delay of a packet.
    fn step(&mut self) {
        self.now += Duration::from_millis(1);
        for (to, from, mut packet) in std::mem::take(&mut self.in_flight) {
            self.ends[to].handle_packet(self.now, from, None, &mut packet);
        }
        for (number, end) in self.ends.iter_mut().enumerate() {
            end.handle_timeout(self.now);
            let mut packet = Vec::new();
            while let Some(transmit) = end.poll_transmit(self.now, &mut packet) {
                let SocketAddr::V4(to) = transmit.destination else {
                    panic!("{transmit:?}");
                };
                let to = usize::from(to.ip().octets()[3]);
                let packet = std::mem::take(&mut packet);
                self.in_flight.push_back((to, address(number), packet));
            }
            while end.poll_event().is_some() {}
        }
    }

    fn run(&mut self, time: Duration) {
        (0..time.as_millis()).for_each(|_| self.step());
    }

    fn looked_at(&self) -> u64 {
        self.ends[0].looked_at() + self.ends[0].carrier().looked_at()
    }
}

/// Peers, connections and sessions that the first end looks at in a second, while one peer sends.
fn looked_at(peers: usize) -> (u64, u64) {
    let mut star = Star::connected(peers);
    star.run(Duration::from_secs(5));
    let before = star.looked_at();
    star.run(Duration::from_secs(1));
    let idle = star.looked_at() - before;
    let session = star.ends[1].session_mut(&key(0).public());
    let stream = session
        .expect("it is connected")
        .open(star.now, "stream", Qos::new(Delivery::keep_last(1)))
        .expect("the name is short");
    let before = star.looked_at();
    for _ in 0..100 {
        let session = star.ends[1].session_mut(&key(0).public());
        session
            .expect("it is connected")
            .send(star.now, stream, vec![7; 2000].into())
            .expect("the newest sample has room");
        star.run(Duration::from_millis(10));
    }
    (idle, star.looked_at() - before)
}

#[test]
fn work_for_a_peer_does_not_grow_with_idle_ones() {
    let (idle_few, busy_few) = looked_at(2);
    let (idle_many, busy_many) = looked_at(60);
    println!("looked at in a second: idle {idle_few}, {idle_many}; busy {busy_few}, {busy_many}");
    // An idle peer costs its keep-alive and the answer, once a second each.
    assert!(idle_many <= 60 * 40, "{idle_many}");
    let (few, many) = (
        busy_few - idle_few.min(busy_few),
        busy_many - idle_many.min(busy_many),
    );
    assert!(
        many <= few * 5 / 4,
        "{few} beside 1 idle peer, {many} beside 59"
    );
}
