//! Connecting, packet sizes and changes of address over QUIC.

use std::time::Duration;

use nervure_linkemu::Schedule;

use super::world::{World, address, key, quic_pair, settings};
use crate::carrier::quic::{QuicCarrier, QuicConfig};
use crate::carrier::{Carrier, CarrierEvent, DisconnectReason, SessionId};

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);

/// The time until the first datagram, sent as soon as possible, has arrived.
fn first_datagram(seed: u64, one_way: Duration, loss: f64) -> Duration {
    first_datagram_in(quic_pair(seed, settings(one_way, loss)))
}

fn first_datagram_in(mut world: World<QuicCarrier>) -> Duration {
    let begin = world.now;
    let session = world.connect(0, 1, key(1).public());
    world.run_until(20 * SECOND, |world| world.connected(0).is_some());
    // As a link does until its arrival is confirmed.
    loop {
        world.send(0, session, "first");
        world.run_for(5 * MILLI);
        if let Some(at) = world.first(1, |event| matches!(event, CarrierEvent::Datagram { .. })) {
            return at - begin;
        }
    }
}

/// A process that is killed during a handshake cannot close it. Its half-open connections say
/// nothing about the path of the next process.
#[test]
fn a_process_killed_in_a_handshake_does_not_delay_the_next_one() {
    let took = |ended: usize, seed: u64| {
        let mut acceptor = QuicCarrier::new(QuicConfig {
            accepts: true,
            ..QuicConfig::new(key(1))
        });
        acceptor.allow(key(0).public());
        let initiator = || QuicCarrier::new(QuicConfig::new(key(0)));
        let carriers = std::iter::once(initiator())
            .chain([acceptor])
            .chain((0..ended).map(|_| initiator()));
        let network =
            Schedule::from(settings(MILLI, 0.0)).change(10 * MILLI, |settings| settings.loss = 0.4);
        let mut world = World::new(seed, network, carriers.collect());
        for host in 2..2 + ended {
            world.hosts[host].address = address(0, 5000 + host as u16);
            world.connect(host, 1, key(1).public());
        }
        (0..world.hosts.len()).for_each(|host| world.pump(host));
        for host in &mut world.hosts[2..] {
            host.carrier = initiator();
            host.address.set_port(host.address.port() + 1000);
        }
        world.run_for(10 * MILLI);
        assert_eq!(world.hosts[1].carrier.half_open_connections(), ended);
        first_datagram_in(world)
    };
    let sum = |ended| (0..30).map(|seed| took(ended, seed)).sum::<Duration>();
    let (alone, after_others) = (sum(0), sum(3));
    assert!(
        after_others < alone * 2,
        "{after_others:?}, alone {alone:?}"
    );
}

#[test]
fn the_first_datagram_arrives_soon() {
    for one_way in [MILLI, 20 * MILLI, 100 * MILLI] {
        let took = first_datagram(1, one_way, 0.0);
        assert!(
            took <= 6 * one_way + 20 * MILLI,
            "{took:?} at a round-trip time of {:?}",
            2 * one_way
        );
    }
    for loss in [0.2, 0.4] {
        let mut times: Vec<_> = (0..100)
            .map(|seed| first_datagram(seed, MILLI, loss))
            .collect();
        times.sort();
        assert!(
            times[94] <= SECOND / 2,
            "95 % within {:?} at {loss}",
            times[94]
        );
    }
}

/// On a path slower than the time between attempts, such as one with a queue that others fill, one
/// attempt gets the time it needs.
#[test]
fn a_path_of_seconds_is_connected_over() {
    for one_way in [SECOND / 2, SECOND, 2 * SECOND] {
        let took = first_datagram(1, one_way, 0.0);
        assert!(
            took <= 6 * one_way,
            "{took:?} at a round-trip time of {:?}",
            2 * one_way
        );
    }
}

fn settled_size(mut world: World<QuicCarrier>) -> (usize, usize) {
    let session = world.connect(0, 1, key(1).public());
    world.run_for(10 * SECOND);
    let other = world.connected(1).unwrap();
    let sizes = [(0, session), (1, other)]
        .map(|(host, session)| world.hosts[host].carrier.max_datagram_bytes(session));
    let lost = world.first(0, |event| matches!(event, CarrierEvent::Lost { .. }));
    assert_eq!(lost, None, "the session goes on");
    // A full datagram passes in each direction.
    for (host, session) in [(0, session), (1, other)] {
        for _ in 0..40 {
            world.send(host, session, vec![0; sizes[host].unwrap()]);
        }
    }
    world.run_for(SECOND);
    assert!(world.datagrams(0).len() > 5 && world.datagrams(1).len() > 5);
    (sizes[0].unwrap(), sizes[1].unwrap())
}

#[test]
fn packets_become_as_large_as_the_path_takes() {
    for (mtu, loss, seeds) in [
        (1500, 0.0, 1),
        (1420, 0.0, 1),
        (1280, 0.0, 1),
        (1500, 0.4, 10),
        (1420, 0.4, 10),
    ] {
        for seed in 0..seeds {
            let mut network = settings(5 * MILLI, loss);
            network.mtu_bytes = Some(mtu);
            let (there, back) = settled_size(quic_pair(seed, network));
            // 28 bytes for IP and UDP, 36 for QUIC.
            let expected = mtu as usize - 28 - 40;
            assert!(
                there >= expected && back >= expected,
                "{there} and {back} at {mtu}, seed {seed}"
            );
        }
    }
}

/// Handshakes of larger packets that succeed at one end, and are given up at the other, do no harm.
#[test]
fn no_session_is_lost_over_the_search_for_a_packet_size() {
    for seed in 0..60 {
        let mut network = settings(MILLI, 0.5);
        network.mtu_bytes = Some(1500);
        let mut world = quic_pair(seed, network);
        world.connect(0, 1, key(1).public());
        world.run_for(8 * SECOND);
        for host in 0..2 {
            let lost = world.first(host, |event| matches!(event, CarrierEvent::Lost { .. }));
            assert_eq!(lost, None, "at host {host}, seed {seed}");
        }
    }
}

/// Both sides send full datagrams, and small ones between them.
fn send_for(world: &mut World<QuicCarrier>, sides: [(usize, SessionId); 2], time: Duration) {
    let end = world.now + time;
    while world.now < end {
        for (host, session) in sides {
            let most = world.hosts[host]
                .carrier
                .max_datagram_bytes(session)
                .unwrap();
            world.send(host, session, vec![0; most]);
            world.send(host, session, vec![0; 100]);
        }
        world.run_for(10 * MILLI);
    }
}

/// The ends do not disagree for long about the connection in use, whatever is lost of handshakes
/// and closing packets.
#[test]
fn datagrams_go_on_while_packet_sizes_are_tried() {
    for seed in 0..100 {
        let mut network = settings(MILLI, 0.75);
        network.mtu_bytes = Some(1500);
        let mut world = quic_pair(seed, network);
        let session = world.connect(0, 1, key(1).public());
        while world.connected(1).is_none() {
            world.run_for(SECOND);
        }
        let sides = [(0, session), (1, world.connected(1).unwrap())];
        send_for(&mut world, sides, 8 * SECOND);
        let settled = world.now;
        send_for(&mut world, sides, 2 * SECOND);
        for (host, _) in sides {
            let datagrams = |(at, event): &&(Duration, CarrierEvent)| {
                *at > settled && matches!(event, CarrierEvent::Datagram { .. })
            };
            let arrived = world.hosts[host].events.iter().filter(datagrams).count();
            assert!(arrived > 40, "{arrived} of 400 at host {host}, seed {seed}");
        }
    }
}

#[test]
fn a_path_that_takes_only_smaller_packets_is_noticed() {
    for (loss, seed) in [(0.0, 1), (0.3, 1), (0.3, 2)] {
        let mut network = settings(5 * MILLI, loss);
        network.mtu_bytes = Some(1500);
        let network =
            Schedule::from(network).change(2 * SECOND, |settings| settings.mtu_bytes = Some(1400));
        let mut world = quic_pair(seed, network);
        let session = world.connect(0, 1, key(1).public());
        world.run_for(SECOND);
        let other = world.connected(1).unwrap();
        let most = world.hosts[0].carrier.max_datagram_bytes(session).unwrap();
        assert!(most > 1400, "{most}");
        let sides = [(0, session), (1, other)];
        let fits = |world: &World<QuicCarrier>| {
            sides
                .map(|(host, session)| world.hosts[host].carrier.max_datagram_bytes(session))
                .map(|most| most.is_some_and(|most| (1300..1400 - 28).contains(&most)))
                == [true; 2]
        };
        send_for(&mut world, sides, 2 * SECOND);
        while !fits(&world) && world.now < 60 * SECOND {
            send_for(&mut world, sides, SECOND);
        }
        assert!(fits(&world), "no size is found at {loss}, seed {seed}");
        let found = world.now;
        send_for(&mut world, sides, 2 * SECOND);
        for (host, _) in sides {
            assert_eq!(
                world.first(host, |event| matches!(event, CarrierEvent::Lost { .. })),
                None
            );
            let full = world.hosts[host].events.iter().filter(|(at, event)| {
                matches!(event, CarrierEvent::Datagram { datagram, .. } if *at > found && datagram.len() > 1300)
            });
            assert!(full.count() > 100);
        }
    }
}

#[test]
fn a_session_survives_a_change_of_the_initiators_address() {
    let mut world = quic_pair(1, settings(5 * MILLI, 0.0));
    let session = world.connect(0, 1, key(1).public());
    world.run_for(SECOND);
    let other = world.connected(1).unwrap();
    world.hosts[0].address = address(77, 4001);
    let now = world.instant();
    world.hosts[0].carrier.local_address_changed(now);
    let moved = world.now;
    world.send(0, session, "from elsewhere");
    world.run_for(SECOND);
    assert_eq!(world.datagrams(1), [b"from elsewhere".to_vec()]);
    world.send(1, other, "still there?");
    world.run_for(SECOND);
    assert_eq!(world.datagrams(0), [b"still there?".to_vec()]);
    assert!(
        world
            .first(0, |event| matches!(event, CarrierEvent::Datagram { .. }))
            .unwrap()
            > moved
    );
}

/// As behind a router that loses its state: neither end is notified.
#[test]
fn a_change_of_the_initiators_address_is_noticed_under_way() {
    for loss in [0.0, 0.3] {
        let mut world = quic_pair(1, settings(5 * MILLI, loss));
        let session = world.connect(0, 1, key(1).public());
        world.run_for(2 * SECOND);
        let other = world.connected(1).unwrap();
        for number in 0..2000_u32 {
            if number == 1000 {
                world.hosts[0].address = address(77, 4001);
            }
            world.send(0, session, vec![0; 1000]);
            world.send(1, other, vec![0; 1000]);
            world.run_for(MILLI);
        }
        let moved = world.now - SECOND;
        let after = |(at, event): &&(Duration, CarrierEvent)| {
            matches!(event, CarrierEvent::Datagram { .. }) && *at > moved + 10 * MILLI
        };
        let first = world.hosts[0]
            .events
            .iter()
            .find(after)
            .expect("datagrams arrive again")
            .0
            - moved;
        assert!(first < 150 * MILLI, "{first:?} at {loss}");
        for host in 0..2 {
            assert_eq!(
                world.first(host, |event| matches!(event, CarrierEvent::Lost { .. })),
                None
            );
        }
    }
}

#[test]
fn a_session_survives_a_change_of_the_acceptors_address() {
    let mut world = quic_pair(1, settings(20 * MILLI, 0.0));
    let session = world.connect(0, 1, key(1).public());
    world.run_for(SECOND);
    world.hosts[1].address = address(88, 4000);
    let now = world.instant();
    world.hosts[0]
        .carrier
        .reconnect(now, session, address(88, 4000))
        .unwrap();
    let moved = world.now;
    let events_before = world.hosts[0].events.len();
    world.run_until(moved + SECOND, |world| {
        world.hosts[0].events.len() > events_before
    });
    assert!(
        world.now - moved < 42 * MILLI,
        "one round trip, not {:?}",
        world.now - moved
    );
    world.send(0, session, "found you");
    world.run_for(SECOND);
    assert_eq!(world.datagrams(1), [b"found you".to_vec()]);
    for host in 0..2 {
        assert_eq!(
            world.first(host, |event| matches!(event, CarrierEvent::Lost { .. })),
            None
        );
    }
}

#[test]
fn an_outage_of_more_than_a_minute_ends_no_session() {
    for seconds in [20, 70] {
        let network = Schedule::from(settings(5 * MILLI, 0.0)).outage(2 * SECOND, seconds * SECOND);
        let mut world = quic_pair(1, network);
        let session = world.connect(0, 1, key(1).public());
        let end = (2 + seconds) * SECOND;
        world.run_for(end - 10 * MILLI);
        for number in 0..10_u8 {
            world.send(0, session, [number]);
            world.run_for(10 * MILLI);
        }
        let first = world
            .first(1, |event| matches!(event, CarrierEvent::Datagram { .. }))
            .unwrap();
        assert!(
            first < end + 20 * MILLI,
            "the first datagram after the outage arrives at once, not at {first:?}"
        );
        for host in 0..2 {
            assert_eq!(
                world.first(host, |event| matches!(event, CarrierEvent::Lost { .. })),
                None
            );
        }
    }
}

#[test]
fn a_restarted_peer_is_noticed() {
    let mut world = quic_pair(1, settings(5 * MILLI, 0.0));
    let session = world.connect(0, 1, key(1).public());
    world.run_for(SECOND);
    let mut acceptor = QuicCarrier::new(QuicConfig {
        accepts: true,
        ..QuicConfig::new(key(1))
    });
    acceptor.allow(key(0).public());
    world.hosts[1].carrier = acceptor;
    let began_anew = world.now;
    let lost = CarrierEvent::Lost {
        session,
        why: DisconnectReason::Restarted,
    };
    while world.first(0, |event| *event == lost).is_none() && world.now < began_anew + SECOND {
        world.send(0, session, vec![0; 100]);
        world.run_for(MILLI);
    }
    // A round trip for each connection: the one in use, and the one before it.
    assert!(
        world.now - began_anew < 60 * MILLI,
        "{:?}",
        world.now - began_anew
    );
}

#[test]
fn a_restarted_initiator_replaces_its_session() {
    let mut world = quic_pair(1, settings(5 * MILLI, 0.0));
    world.connect(0, 1, key(1).public());
    world.run_for(SECOND);
    let first = world.connected(1).unwrap();
    world.hosts[0].carrier = QuicCarrier::new(QuicConfig::new(key(0)));
    world.connect(0, 1, key(1).public());
    world.run_for(SECOND);
    let lost = CarrierEvent::Lost {
        session: first,
        why: DisconnectReason::Replaced,
    };
    assert!(
        world.hosts[1]
            .events
            .iter()
            .any(|(_, event)| *event == lost)
    );
    assert_ne!(world.connected(1).unwrap(), first);
}

#[test]
fn unknown_peers_are_refused_with_a_reason() {
    let initiator = QuicCarrier::new(QuicConfig::new(key(5)));
    let acceptor = QuicCarrier::new(QuicConfig {
        accepts: true,
        ..QuicConfig::new(key(1))
    });
    let mut world = World::new(1, settings(5 * MILLI, 0.0), vec![initiator, acceptor]);
    world.connect(0, 1, key(1).public());
    world.run_for(2 * SECOND);
    let refused = world.hosts[1]
        .events
        .iter()
        .find_map(|(_, event)| match event {
            CarrierEvent::Refused { peer, why, .. } => Some((*peer, why.clone())),
            _ => None,
        });
    assert_eq!(
        refused,
        Some((
            Some(key(5).public()),
            "its key is not among those allowed".into()
        ))
    );
    let lost = world.hosts[0]
        .events
        .iter()
        .find_map(|(_, event)| match event {
            CarrierEvent::Lost { why, .. } => Some(why.to_string()),
            _ => None,
        });
    assert!(lost.unwrap().contains("hint: give the peer our public key"));
}

/// The key of a stolen robot is forbidden while the robot is connected, and while it connects.
#[test]
fn a_forbidden_peer_is_gone_at_once_and_others_are_not() {
    for connected in [true, false] {
        let mut acceptor = QuicCarrier::new(QuicConfig {
            accepts: true,
            ..QuicConfig::new(key(1))
        });
        acceptor.allow(key(0).public());
        acceptor.allow(key(2).public());
        let carriers = vec![
            QuicCarrier::new(QuicConfig::new(key(0))),
            acceptor,
            QuicCarrier::new(QuicConfig::new(key(2))),
        ];
        let mut world = World::new(1, settings(5 * MILLI, 0.0), carriers);
        let stolen = world.connect(0, 1, key(1).public());
        let other = world.connect(2, 1, key(1).public());
        // The first packet of the client has arrived, or the handshake is complete.
        world.run_for(if connected { SECOND } else { 6 * MILLI });
        let forbidden_at = world.now;
        let now = world.instant();
        world.hosts[1].carrier.forbid(now, key(0).public());
        world.pump(1);
        let count = |world: &World<QuicCarrier>, wanted: &DisconnectReason| {
            let is = |(_, event): &&(Duration, CarrierEvent)| matches!(event, CarrierEvent::Lost { why, .. } if why == wanted);
            world.hosts[1].events.iter().filter(is).count()
        };
        assert_eq!(
            count(&world, &DisconnectReason::Forbidden),
            usize::from(connected)
        );
        world.run_for(SECOND);
        let lost = world.hosts[0]
            .events
            .iter()
            .find_map(|(at, event)| match event {
                CarrierEvent::Lost { session, why } if *session == stolen => {
                    Some((*at, why.to_string()))
                }
                _ => None,
            });
        let (at, why) = lost.expect("the robot is notified");
        assert!(at < forbidden_at + 30 * MILLI, "{at:?}");
        assert!(why.starts_with("the peer does not accept our key"), "{why}");

        // It tries again, in vain; the other peer's datagrams arrive.
        world.connect(0, 1, key(1).public());
        world.run_for(SECOND);
        world.send(2, other, "through");
        world.run_for(SECOND);
        assert_eq!(world.datagrams(1), [b"through".to_vec()]);
        let peers = world.hosts[1]
            .events
            .iter()
            .filter_map(|(at, event)| match event {
                CarrierEvent::Connected { peer, .. } if *at > forbidden_at => Some(*peer),
                _ => None,
            });
        assert!(!peers.collect::<Vec<_>>().contains(&key(0).public()));
        assert_eq!(
            world.first(2, |event| matches!(event, CarrierEvent::Lost { .. })),
            None
        );
    }
}

/// Both ends report the version mismatch with their own version.
#[test]
fn ends_with_other_versions_refuse_each_other() {
    let initiator = QuicCarrier::new(QuicConfig {
        protocol: b"nervure-link/2",
        ..QuicConfig::new(key(0))
    });
    let mut acceptor = QuicCarrier::new(QuicConfig {
        accepts: true,
        ..QuicConfig::new(key(1))
    });
    acceptor.allow(key(0).public());
    let mut world = World::new(1, settings(5 * MILLI, 0.0), vec![initiator, acceptor]);
    world.connect(0, 1, key(1).public());
    world.run_for(2 * SECOND);
    let why = [0, 1].map(|host| {
        let mut events = world.hosts[host].events.iter();
        events.find_map(|(_, event)| match event {
            CarrierEvent::Lost { why, .. } => Some(why.to_string()),
            CarrierEvent::Refused { why, .. } => Some(why.clone()),
            _ => None,
        })
    });
    for (why, own) in std::iter::zip(why, ["nervure-link/2", "nervure-link/1"]) {
        let why = why.expect("it is refused");
        let expected = format!("no version of the link in common: this end speaks {own}\nhint: ");
        assert!(why.contains(&expected), "{why}");
    }
}

#[test]
fn an_acceptor_with_another_key_is_refused() {
    let mut world = quic_pair(1, settings(5 * MILLI, 0.0));
    world.connect(0, 1, key(9).public());
    world.run_for(2 * SECOND);
    let lost = world.hosts[0]
        .events
        .iter()
        .find_map(|(_, event)| match event {
            CarrierEvent::Lost { why, .. } => Some(why.to_string()),
            _ => None,
        });
    assert!(
        lost.unwrap()
            .contains("hint: compare the peer's public key")
    );
    assert_eq!(world.connected(1), None);
}
