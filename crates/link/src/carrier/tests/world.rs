//! Carriers on a simulated network, on a virtual clock.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use bytes::Bytes;
use nervure_linkemu::{self as emulator, Air, Duplex, Header, Schedule, Settings};

use crate::carrier::quic::{QuicCarrier, QuicConfig};
use crate::carrier::{Carrier, CarrierEvent, Ecn, KeyPair, PublicKey, SessionId};

/// Headers of IPv4 and UDP.
const HEADER_BYTES: u32 = 28;

pub struct World<C> {
    pub hosts: Vec<Host<C>>,
    pub air: Air<Packet>,
    pub now: Duration,
    epoch: Instant,
    /// The largest packet that was offered to the network, with its headers.
    pub largest_packet: u32,
}

pub struct Host<C> {
    pub carrier: C,
    pub address: SocketAddr,
    pub events: Vec<(Duration, CarrierEvent)>,
    /// Datagrams to send: each goes when its session may send.
    pub outbox: VecDeque<(SessionId, Vec<u8>)>,
}

pub struct Packet {
    from: SocketAddr,
    to: SocketAddr,
    bytes: Vec<u8>,
}

pub fn address(host: u8, port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, host)), port)
}

pub fn key(number: u8) -> KeyPair {
    KeyPair::from_seed([number; 32])
}

pub fn settings(one_way: Duration, loss: f64) -> Settings {
    Settings {
        rate_bits_per_second: Some(100_000_000),
        delay: one_way,
        loss,
        ..Settings::default()
    }
}

fn to_air(ecn: Option<Ecn>) -> emulator::Ecn {
    match ecn {
        None => emulator::Ecn::NotCapable,
        Some(Ecn::Ect0) => emulator::Ecn::Capable,
        Some(Ecn::Ect1) => emulator::Ecn::CapableL4s,
        Some(Ecn::CongestionExperienced) => emulator::Ecn::CongestionExperienced,
    }
}

fn from_air(ecn: emulator::Ecn) -> Option<Ecn> {
    match ecn {
        emulator::Ecn::NotCapable => None,
        emulator::Ecn::Capable => Some(Ecn::Ect0),
        emulator::Ecn::CapableL4s => Some(Ecn::Ect1),
        emulator::Ecn::CongestionExperienced => Some(Ecn::CongestionExperienced),
    }
}

/// Host 0 begins sessions, and host 1 accepts them.
pub fn quic_pair<S: Into<Schedule> + Clone>(seed: u64, network: S) -> World<QuicCarrier> {
    let initiator = QuicCarrier::new(QuicConfig::new(key(0)));
    let mut acceptor = QuicCarrier::new(QuicConfig {
        accepts: true,
        ..QuicConfig::new(key(1))
    });
    acceptor.allow(key(0).public());
    World::new(seed, network, vec![initiator, acceptor])
}

impl<C: Carrier> World<C> {
    pub fn new<S: Into<Schedule> + Clone>(seed: u64, network: S, carriers: Vec<C>) -> Self {
        let air = Air::new(
            Duplex::Full,
            seed,
            carriers.iter().map(|_| network.clone().into()),
        );
        let host = |(number, carrier)| Host {
            carrier,
            address: address(number as u8, 4000),
            events: Vec::new(),
            outbox: VecDeque::new(),
        };
        let hosts = carriers.into_iter().enumerate().map(host).collect();
        Self {
            hosts,
            air,
            now: Duration::ZERO,
            epoch: Instant::now(),
            largest_packet: 0,
        }
    }

    pub fn instant(&self) -> Instant {
        self.epoch + self.now
    }

    pub fn connect(&mut self, from: usize, to: usize, peer: PublicKey) -> SessionId {
        let (now, to) = (self.instant(), self.hosts[to].address);
        self.hosts[from].carrier.connect(now, to, peer).unwrap()
    }

    pub fn send(&mut self, host: usize, session: SessionId, datagram: impl Into<Vec<u8>>) {
        self.hosts[host]
            .outbox
            .push_back((session, datagram.into()));
        self.pump(host);
    }

    /// Runs until the condition holds. Panics when it does not by `limit`.
    pub fn run_until(&mut self, limit: Duration, mut done: impl FnMut(&mut Self) -> bool) {
        (0..self.hosts.len()).for_each(|host| self.pump(host));
        let mut stuck = 0;
        while !done(self) {
            let timeouts = self
                .hosts
                .iter_mut()
                .filter_map(|host| host.carrier.poll_timeout());
            let timeouts = timeouts
                .map(|at| at.saturating_duration_since(self.epoch))
                .min();
            let next = timeouts
                .into_iter()
                .chain(self.air.next_event())
                .min()
                .unwrap_or(limit)
                .max(self.now);
            assert!(
                next <= limit,
                "the condition does not hold within {limit:?}"
            );
            stuck = if next == self.now { stuck + 1 } else { 0 };
            assert!(
                stuck < 10_000,
                "time stands still at {next:?}: {:?}",
                self.hosts
                    .iter()
                    .map(|host| &host.events)
                    .collect::<Vec<_>>()
            );
            self.step(next);
        }
    }

    pub fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        self.run_until(end + Duration::from_secs(3600), |world| {
            let timeouts = world
                .hosts
                .iter_mut()
                .filter_map(|host| host.carrier.poll_timeout());
            let timeouts = timeouts
                .map(|at| at.saturating_duration_since(world.epoch))
                .min();
            timeouts
                .into_iter()
                .chain(world.air.next_event())
                .min()
                .is_none_or(|next| next > end)
        });
        self.step(end);
    }

    fn step(&mut self, to: Duration) {
        self.now = self.now.max(to);
        while let Some(delivery) = self.air.deliver(self.now) {
            let packet = delivery.packet;
            let Some(host) = self.hosts.iter().position(|host| host.address == packet.to) else {
                continue;
            };
            let (now, ecn) = (self.instant(), from_air(delivery.ecn));
            self.receive_marked(host, now, packet.from, ecn, packet.bytes);
        }
        for host in 0..self.hosts.len() {
            let now = self.instant();
            if self.hosts[host]
                .carrier
                .poll_timeout()
                .is_some_and(|at| at <= now)
            {
                self.hosts[host].carrier.handle_timeout(now);
            }
            self.pump(host);
        }
    }

    /// Delivers a packet to a host.
    pub fn receive(&mut self, index: usize, now: Instant, from: SocketAddr, packet: Vec<u8>) {
        self.receive_marked(index, now, from, None, packet);
    }

    fn receive_marked(
        &mut self,
        index: usize,
        now: Instant,
        from: SocketAddr,
        ecn: Option<Ecn>,
        mut packet: Vec<u8>,
    ) {
        let host = &mut self.hosts[index];
        if let Some((session, datagram)) = host.carrier.handle_packet(now, from, ecn, &mut packet) {
            let event = CarrierEvent::Datagram {
                session,
                ecn,
                datagram: Bytes::copy_from_slice(datagram),
            };
            host.events.push((self.now, event));
        }
        self.pump(index);
    }

    pub fn pump(&mut self, index: usize) {
        let now = self.instant();
        let host = &mut self.hosts[index];
        for (session, _) in &host.outbox {
            host.carrier.wake(*session);
        }
        loop {
            let mut packet = Vec::new();
            let outbox = &mut host.outbox;
            let mut next = |session: SessionId, most: usize, datagram: &mut Vec<u8>| {
                let fits =
                    |(to, content): &(SessionId, Vec<u8>)| *to == session && content.len() <= most;
                let Some(position) = outbox.iter().position(fits) else {
                    return false;
                };
                datagram.extend(outbox.remove(position).expect("just found").1);
                true
            };
            let Some(transmit) = host.carrier.poll_transmit(now, &mut next, &mut packet) else {
                break;
            };
            assert_eq!(transmit.size, packet.len());
            let bytes = packet.len() as u32 + HEADER_BYTES;
            self.largest_packet = self.largest_packet.max(bytes);
            let packet = Packet {
                from: host.address,
                to: transmit.destination,
                bytes: packet,
            };
            let header = Header {
                bytes,
                flow: index as u64,
                ecn: to_air(transmit.ecn),
            };
            self.air.offer(self.now, index, header, packet);
        }
        while let Some(event) = host.carrier.poll_event() {
            host.events.push((self.now, event));
        }
    }

    /// When the host first had an event for which `is` holds.
    pub fn first(&self, host: usize, is: impl Fn(&CarrierEvent) -> bool) -> Option<Duration> {
        self.hosts[host]
            .events
            .iter()
            .find(|(_, event)| is(event))
            .map(|(at, _)| *at)
    }

    pub fn connected(&self, host: usize) -> Option<SessionId> {
        self.hosts[host]
            .events
            .iter()
            .rev()
            .find_map(|(_, event)| match event {
                CarrierEvent::Connected { session, .. } => Some(*session),
                _ => None,
            })
    }

    pub fn datagrams(&self, host: usize) -> Vec<Vec<u8>> {
        let datagrams = self.hosts[host]
            .events
            .iter()
            .filter_map(|(_, event)| match event {
                CarrierEvent::Datagram { datagram, .. } => Some(datagram.to_vec()),
                _ => None,
            });
        datagrams.collect()
    }
}
