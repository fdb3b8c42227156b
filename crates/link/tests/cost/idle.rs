//! The cost of peers that send nothing, at an end that has many: all of it but system calls, on a
//! virtual clock.

use std::{
    collections::{BTreeMap, VecDeque},
    net::SocketAddr,
    time::{Duration, Instant},
};

use nervure_link::{
    carrier::quic::{QuicCarrier, QuicConfig},
    endpoint::Endpoint,
    session::SessionConfig,
};

use crate::measure::{key_of, processor_time, stranger};

const ONE_WAY: Duration = Duration::from_millis(2);
/// The shortest time between two turns of an end.
const STEP: Duration = Duration::from_micros(100);

/// The cost of idle peers, at the end that has them all.
#[derive(Debug)]
pub struct IdleCost {
    /// Wake-ups a second.
    pub wake_ups: f64,
    /// Packets a second, in both directions.
    pub packets: f64,
    /// The share of a core, without system calls.
    pub core: f64,
}

struct Host {
    address: SocketAddr,
    endpoint: Endpoint<QuicCarrier>,
    next: Option<Instant>,
    arrived: Vec<(SocketAddr, Vec<u8>)>,
    turns: u64,
    packets: u64,
    time: Duration,
}

/// Connects this number of peers, and lets them rest for a time.
pub fn idle_peers(count: usize, time: Duration) -> IdleCost {
    let mut now = Instant::now();
    let mut hosts = vec![Host::new(0, count)];
    let hub = (hosts[0].address, key_of(0).public());
    for number in 1..=count {
        let carrier = hosts[0].endpoint.carrier_mut();
        carrier.allow(key_of(number).public());
        hosts.push(Host::new(number, count));
    }
    let mut in_flight = VecDeque::new();
    // A few at a time, as handshakes in progress are bounded.
    for first in (1..=count).step_by(4) {
        for host in hosts.iter_mut().skip(first).take(4) {
            let begun = host.endpoint.connect(now, hub.0, hub.1);
            begun.expect("the address is good");
            host.next = Some(now);
        }
        run(
            &mut hosts,
            &mut in_flight,
            &mut now,
            Duration::from_millis(50),
        );
    }
    // The size of packets is found within this time.
    run(
        &mut hosts,
        &mut in_flight,
        &mut now,
        Duration::from_secs(10),
    );
    let hub = &mut hosts[0];
    (hub.turns, hub.packets, hub.time) = (0, 0, Duration::ZERO);
    run(&mut hosts, &mut in_flight, &mut now, time);
    let (hub, seconds) = (&hosts[0], time.as_secs_f64());
    let connected = hosts.iter().skip(1).filter(|host| {
        let key = key_of(0).public();
        host.endpoint.session(&key).is_some()
    });
    assert_eq!(connected.count(), count);
    IdleCost {
        wake_ups: hub.turns as f64 / seconds,
        packets: hub.packets as f64 / seconds,
        core: hub.time.as_secs_f64() / seconds,
    }
}

type InFlight = VecDeque<(Instant, SocketAddr, SocketAddr, Vec<u8>)>;

fn run(hosts: &mut [Host], in_flight: &mut InFlight, now: &mut Instant, time: Duration) {
    let end = *now + time;
    let by_address: BTreeMap<_, _> = hosts
        .iter()
        .enumerate()
        .map(|(number, host)| (host.address, number))
        .collect();
    let mut due: BTreeMap<(Instant, usize), ()> = BTreeMap::new();
    for (number, host) in hosts.iter().enumerate() {
        due.extend(host.next.map(|at| ((at, number), ())));
    }
    loop {
        let arrives = in_flight.front().map(|(at, ..)| *at);
        let wakes = due.keys().next().map(|(at, _)| *at);
        let Some(next) = [arrives, wakes]
            .into_iter()
            .flatten()
            .min()
            .filter(|at| *at < end)
        else {
            *now = end;
            return;
        };
        *now = next.max(*now + STEP);
        let mut turns = Vec::new();
        while let Some((at, ..)) = in_flight.front()
            && *at <= *now
        {
            let (_, from, to, packet) = in_flight.pop_front().expect("it was just seen");
            if let Some(number) = by_address.get(&to) {
                hosts[*number].arrived.push((from, packet));
                turns.push(*number);
            }
        }
        turns.extend(
            due.keys()
                .take_while(|(at, _)| *at <= *now)
                .map(|(_, number)| *number),
        );
        turns.sort_unstable();
        turns.dedup();
        for number in turns {
            let host = &mut hosts[number];
            if let Some(at) = host.next {
                due.remove(&(at, number));
            }
            let from = host.address;
            let sent = host.turn(*now).into_iter();
            in_flight.extend(sent.map(|(to, packet)| (*now + ONE_WAY, from, to, packet)));
            due.extend(hosts[number].next.map(|at| ((at, number), ())));
        }
    }
}

impl Host {
    fn new(number: usize, peers: usize) -> Self {
        let carrier = QuicCarrier::new(QuicConfig {
            accepts: number == 0,
            max_sessions: peers + 1,
            ..QuicConfig::new(key_of(number))
        });
        Self {
            address: stranger(number),
            endpoint: Endpoint::new(carrier, SessionConfig::default(), number as u64),
            next: None,
            arrived: Vec::new(),
            turns: 0,
            packets: 0,
            time: Duration::ZERO,
        }
    }

    /// Processes arrived packets and timeouts; returns the packets sent.
    fn turn(&mut self, now: Instant) -> Vec<(SocketAddr, Vec<u8>)> {
        self.turns += 1;
        let mut sent = Vec::new();
        let began = processor_time();
        for (from, mut packet) in self.arrived.drain(..) {
            self.packets += 1;
            self.endpoint.handle_packet(now, from, None, &mut packet);
        }
        self.endpoint.handle_timeout(now);
        let mut packet = Vec::new();
        while let Some(transmit) = self.endpoint.poll_transmit(now, &mut packet) {
            self.packets += 1;
            sent.push((transmit.destination, std::mem::take(&mut packet)));
        }
        while self.endpoint.poll_event().is_some() {}
        self.next = self.endpoint.poll_timeout(now);
        self.time += processor_time() - began;
        sent
    }
}
