//! Hostile packets, from peers and from unknown sources.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::world::{World, address, key, quic_pair, settings};
use crate::carrier::quic::{QuicCarrier, QuicConfig};
use crate::carrier::{Carrier, CarrierEvent, PublicKey, SessionId};

const SECOND: Duration = Duration::from_secs(1);

fn acceptor() -> QuicCarrier {
    let mut acceptor = QuicCarrier::new(QuicConfig {
        accepts: true,
        ..QuicConfig::new(key(1))
    });
    acceptor.allow(key(0).public());
    acceptor
}

/// The first packet of an attempt to connect, which any source can send.
fn first_packet(now: Instant, peer: PublicKey) -> Vec<u8> {
    let mut initiator = QuicCarrier::new(QuicConfig::new(key(0)));
    initiator.connect(now, address(1, 4000), peer).unwrap();
    let mut packet = Vec::new();
    initiator
        .poll_transmit(now, &mut |_, _, _| false, &mut packet)
        .unwrap();
    packet
}

/// Bytes that the carrier wants to send.
fn drain(carrier: &mut QuicCarrier, now: Instant) -> usize {
    let (mut bytes, mut packet) = (0, Vec::new());
    while let Some(transmit) = carrier.poll_transmit(now, &mut |_, _, _| false, &mut packet) {
        packet.clear();
        bytes += transmit.size;
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Packets that were changed in transit, truncated, or forged, at either end, at any stage.
    #[test]
    fn garbage_changes_nothing(
        garbage in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..1500), 0..20),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 1..=255_u8), 0..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut world = quic_pair(1, settings(Duration::from_millis(1), 0.0));
        let session = world.connect(0, 1, key(1).public());
        for stage in 0..4 {
            let now = world.instant();
            let mut changed = first_packet(now, key(1).public());
            for (index, flip) in &flips {
                let index = index.index(changed.len());
                changed[index] ^= flip;
            }
            if stage % 2 == 0 {
                changed.truncate(cut.index(changed.len()));
            }
            for packet in garbage.iter().chain([&changed]) {
                for host in 0..2 {
                    let from = world.hosts[1 - host].address;
                    world.receive(host, now, from, packet.clone());
                }
            }
            world.run_for(Duration::from_millis(2));
        }
        world.run_until(world.now + 5 * SECOND, |world| world.connected(0).is_some() && world.connected(1).is_some());
        world.send(0, session, "through");
        world.run_for(SECOND);
        prop_assert_eq!(world.datagrams(1), [b"through".to_vec()]);
    }
}

#[test]
fn spoofed_attempts_cost_little_and_lock_no_peer_out() {
    let now = Instant::now();
    let mut acceptor = acceptor();
    let mut received = 0;
    let mut sent = 0;
    for number in 0..2000_u32 {
        let mut packet = first_packet(now, key(1).public());
        received += packet.len();
        let from = address((number % 250) as u8, 1000 + (number / 250) as u16);
        acceptor.handle_packet(now, from, None, &mut packet);
        sent += drain(&mut acceptor, now);
    }
    assert!(
        acceptor.half_open_connections() <= 64,
        "{}",
        acceptor.half_open_connections()
    );
    assert!(
        sent <= 3 * received,
        "{sent} bytes for {received} from an unknown source"
    );
    let refused = std::iter::from_fn(|| acceptor.poll_event())
        .filter(|e| matches!(e, CarrierEvent::Refused { .. }));
    assert!(refused.count() <= 1, "a flood makes one message");

    // A peer with an allowed key connects, even while the attempts of the flood wait.
    let mut world = quic_pair(1, settings(Duration::from_millis(1), 0.0));
    world.hosts[1].carrier = acceptor;
    world.connect(0, 1, key(1).public());
    world.run_until(SECOND, |world| {
        world.connected(0).is_some() && world.connected(1).is_some()
    });
}

/// The time that a robot takes to connect while a hostile host forges first packets with the
/// robot's address, from its port and from others, before and during the robot's handshake.
fn time_to_connect(seed: u64, loss: f64, forged_each_milli: u16) -> Duration {
    const MILLI: Duration = Duration::from_millis(1);
    let mut world = quic_pair(seed, settings(5 * MILLI, loss));
    let robot = world.hosts[0].address;
    let forge = |world: &mut World<QuicCarrier>| {
        for number in 0..forged_each_milli {
            let now = world.instant();
            let packet = first_packet(now, key(1).public());
            let from = SocketAddr::new(robot.ip(), robot.port() + number % 4);
            world.receive(1, now, from, packet);
        }
        world.run_for(MILLI);
    };
    (0..20).for_each(|_| forge(&mut world));
    let began = world.now;
    world.connect(0, 1, key(1).public());
    while world.connected(0).is_none() || world.connected(1).is_none() {
        forge(&mut world);
        assert!(world.now < began + 10 * SECOND, "the robot is kept out");
    }
    world.now - began
}

#[test]
fn attempts_with_a_peers_address_do_not_keep_that_peer_out() {
    let usual = time_to_connect(1, 0.0, 0);
    let attacked = time_to_connect(1, 0.0, 5);
    // The round trip of a Retry, which validates the address.
    assert!(
        attacked <= usual + Duration::from_millis(11),
        "{attacked:?}, without an attack {usual:?}"
    );
    let mean = |forged| {
        let seeds = 0..20;
        let total: Duration = seeds.map(|seed| time_to_connect(seed, 0.2, forged)).sum();
        total / 20
    };
    let (usual, attacked) = (mean(0), mean(2));
    assert!(
        attacked < usual * 3,
        "{attacked:?}, without an attack {usual:?}"
    );
}

/// Begins a handshake from an address that receives its packets, and leaves it open. Returns
/// whether the acceptor holds it open.
fn begin_handshake(acceptor: &mut QuicCarrier, now: Instant, from: SocketAddr) -> bool {
    let before = acceptor.half_open_connections();
    let mut initiator = QuicCarrier::new(QuicConfig::new(key(0)));
    let to = address(1, 4000);
    initiator.connect(now, to, key(1).public()).unwrap();
    let mut none = |_, _: usize, _: &mut Vec<u8>| false;
    // The first packet is answered by a Retry, the one with its token by a handshake.
    for _ in 0..2 {
        let mut packet = Vec::new();
        let Some(_) = initiator.poll_transmit(now, &mut none, &mut packet) else {
            return false;
        };
        acceptor.handle_packet(now, from, None, &mut packet);
        if acceptor.half_open_connections() > before {
            drain(acceptor, now);
            return true;
        }
        let mut answer = Vec::new();
        while acceptor
            .poll_transmit(now, &mut none, &mut answer)
            .is_some()
        {
            initiator.handle_packet(now, to, None, &mut answer);
            answer.clear();
        }
    }
    false
}

#[test]
fn limits_count_hosts_whose_addresses_are_validated() {
    let now = Instant::now();
    let mut acceptor = acceptor();
    for number in 0..20 {
        let mut packet = first_packet(now, key(1).public());
        acceptor.handle_packet(now, address(9, 1000 + number), None, &mut packet);
        drain(&mut acceptor, now);
    }
    assert_eq!(
        acceptor.half_open_connections(),
        8,
        "the others got a Retry"
    );
    let mut begun_from = |ip: IpAddr, port| {
        let from = SocketAddr::new(ip, port);
        begin_handshake(&mut acceptor, now, from)
    };
    let mapped = |host: u8| Ipv4Addr::new(10, 0, 0, host).to_ipv6_mapped().into();
    for port in 0..8 {
        assert!(begun_from(mapped(9), 1000 + port));
    }
    assert!(!begun_from(mapped(9), 2000), "the host has its share");
    assert!(!begun_from(address(9, 0).ip(), 2000), "it is the same host");
    assert!(begun_from(mapped(8), 2000), "this is another host");
    let in_network =
        |network: u16, host| Ipv6Addr::new(0xfd00, 0, 0, network, 0, 0, 0, host).into();
    for host in 0..8 {
        assert!(begun_from(in_network(1, host), 1000));
    }
    assert!(
        !begun_from(in_network(1, 8), 1000),
        "its network has its share"
    );
    assert!(begun_from(in_network(2, 8), 1000));
}

#[test]
fn attempts_that_lead_nowhere_are_forgotten() {
    let now = Instant::now();
    let mut acceptor = acceptor();
    for number in 0..20 {
        let mut packet = first_packet(now, key(1).public());
        acceptor.handle_packet(now, address(number, 1000), None, &mut packet);
        drain(&mut acceptor, now);
    }
    assert!(acceptor.half_open_connections() > 0);
    let mut later = now;
    while let Some(at) = acceptor.poll_timeout() {
        later = later.max(at);
        acceptor.handle_timeout(later);
        drain(&mut acceptor, later);
    }
    assert_eq!(acceptor.half_open_connections(), 0);
    assert!(
        later < now + 20 * SECOND,
        "forgotten after {:?}",
        later - now
    );
}

/// The packets in which the initiator sends this datagram.
fn packets_that_say(
    world: &mut World<QuicCarrier>,
    session: SessionId,
    content: &[u8],
) -> Vec<Vec<u8>> {
    let now = world.instant();
    let mut packets = Vec::new();
    let mut next = Some(content.to_vec());
    let mut give = |id, _: usize, datagram: &mut Vec<u8>| {
        let content = next.take_if(|_| id == session);
        content.map(|content| datagram.extend(content)).is_some()
    };
    world.hosts[0].carrier.wake(session);
    loop {
        let mut packet = Vec::new();
        if world.hosts[0]
            .carrier
            .poll_transmit(now, &mut give, &mut packet)
            .is_none()
        {
            return packets;
        }
        packets.push(packet);
    }
}

#[test]
fn a_replayed_session_delivers_nothing_twice() {
    let mut world = quic_pair(1, settings(Duration::from_millis(1), 0.0));
    let session = world.connect(0, 1, key(1).public());
    world.run_for(SECOND);
    let (now, from) = (world.instant(), world.hosts[0].address);
    let packets = packets_that_say(&mut world, session, b"once");
    for _ in 0..3 {
        for packet in &packets {
            world.receive(1, now, from, packet.clone());
            // Nor is it accepted as one of the other end.
            world.receive(0, now, world.hosts[1].address, packet.clone());
        }
    }
    assert_eq!(world.datagrams(1), [b"once".to_vec()]);
    assert!(world.datagrams(0).is_empty());
}

#[test]
fn packets_that_were_changed_count_for_nothing() {
    let mut world = quic_pair(1, settings(Duration::from_millis(1), 0.0));
    let session = world.connect(0, 1, key(1).public());
    world.run_for(SECOND);
    let (now, from) = (world.instant(), world.hosts[0].address);
    let packets = packets_that_say(&mut world, session, b"a datagram");
    for index in 0..packets[0].len() {
        for flip in [1, 0x80] {
            let mut changed = packets[0].clone();
            changed[index] ^= flip;
            world.receive(1, now, from, changed);
        }
        world.receive(1, now, from, packets[0][..index].to_vec());
    }
    assert!(world.datagrams(1).is_empty());
    world.receive(1, now, from, packets[0].clone());
    assert_eq!(world.datagrams(1), [b"a datagram".to_vec()]);
}

/// A packet replayed from another address draws no more than QUIC allows: three times its bytes
/// until the address is validated (RFC 9000, section 8.1).
#[test]
fn a_packet_from_elsewhere_draws_little() {
    let mut world = quic_pair(1, settings(Duration::from_millis(1), 0.0));
    let session = world.connect(0, 1, key(1).public());
    world.run_for(SECOND);
    let other = world.connected(1).unwrap();
    let now = world.instant();
    let elsewhere = address(66, 6666);
    let mut received = 0;
    for packet in packets_that_say(&mut world, session, b"a datagram") {
        received += packet.len();
        world.receive(1, now, elsewhere, packet);
    }
    assert_eq!(
        world.datagrams(1),
        [b"a datagram".to_vec()],
        "it is the peer's all the same"
    );
    let mut drawn = 0;
    for _ in 0..100 {
        let mut packet = Vec::new();
        let mut give = |id, most: usize, datagram: &mut Vec<u8>| {
            datagram.resize(datagram.len() + most, 0);
            id == other
        };
        world.hosts[1].carrier.wake(other);
        let transmit = world.hosts[1]
            .carrier
            .poll_transmit(now, &mut give, &mut packet);
        match transmit {
            Some(transmit) if transmit.destination == elsewhere => drawn += transmit.size,
            Some(_) => {}
            None => break,
        }
    }
    assert!(drawn <= 3 * received, "{drawn} bytes for {received}");
}
