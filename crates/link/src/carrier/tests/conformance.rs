//! The contract, checked on every carrier.

use std::time::Duration;

use super::world::{World, address, key, quic_pair, settings};
use crate::carrier::plain::PlainCarrier;
use crate::carrier::{Carrier, CarrierEvent, ConnectError, DisconnectReason};

const SECOND: Duration = Duration::from_secs(1);

fn plain_pair(loss: f64) -> World<PlainCarrier> {
    let network = settings(Duration::from_millis(1), loss);
    World::new(
        1,
        network,
        vec![
            PlainCarrier::new(key(0).public()),
            PlainCarrier::new(key(1).public()),
        ],
    )
}

#[test]
fn plain_keeps_the_contract() {
    conforms(plain_pair(0.0));
    survives_loss(plain_pair(0.3));
}

#[test]
fn quic_keeps_the_contract() {
    conforms(quic_pair(1, settings(Duration::from_millis(1), 0.0)));
    for seed in 0..10 {
        survives_loss(quic_pair(seed, settings(Duration::from_millis(1), 0.3)));
    }
}

fn conforms<C: Carrier>(mut world: World<C>) {
    let to = address(1, 0);
    let now = world.instant();
    assert_eq!(
        world.hosts[0].carrier.connect(now, to, key(1).public()),
        Err(ConnectError::Address(to))
    );

    let session = world.connect(0, 1, key(1).public());
    assert_eq!(
        world.hosts[0].carrier.max_datagram_bytes(session),
        None,
        "not connected yet"
    );
    world.run_until(SECOND, |world| {
        world.connected(0).is_some() && world.connected(1).is_some()
    });
    let other = world.connected(1).unwrap();
    assert_eq!(world.connected(0), Some(session));
    for (host, peer) in [(0, 1), (1, 0)] {
        let expected = CarrierEvent::Connected {
            session: world.connected(host).unwrap(),
            peer: key(peer as u8).public(),
            address: world.hosts[peer].address,
        };
        assert_eq!(world.hosts[host].events[0].1, expected);
    }

    // Datagrams of every size pass unchanged in both directions.
    let most = world.hosts[0].carrier.max_datagram_bytes(session).unwrap();
    assert!(most >= 1100, "{most}");
    let sent: Vec<Vec<u8>> = [1, 2, 100, most - 1, most]
        .iter()
        .map(|size| vec![*size as u8; *size])
        .collect();
    for datagram in &sent {
        world.send(0, session, datagram.clone());
        world.send(1, other, datagram.clone());
    }
    world.run_until(world.now + SECOND, |world| {
        world.datagrams(0).len() == sent.len() && world.datagrams(1).len() == sent.len()
    });
    assert_eq!(world.datagrams(0), sent);
    assert_eq!(world.datagrams(1), sent);

    let counters = world.hosts[0].carrier.counters();
    assert_eq!(
        (counters.datagrams_sent, counters.datagrams_received),
        (sent.len() as u64, sent.len() as u64)
    );

    // Both ends report the end of the session.
    let now = world.instant();
    world.hosts[0]
        .carrier
        .close(now, session, DisconnectReason::ClosedHere);
    world.run_until(world.now + SECOND, |world| {
        world
            .first(1, |e| matches!(e, CarrierEvent::Lost { .. }))
            .is_some()
    });
    assert!(world.hosts[0].events.iter().any(|(_, e)| *e
        == CarrierEvent::Lost {
            session,
            why: DisconnectReason::ClosedHere
        }));
    let lost = CarrierEvent::Lost {
        session: other,
        why: DisconnectReason::ClosedByPeer,
    };
    assert!(
        world.hosts[1]
            .events
            .iter()
            .any(|(_, event)| *event == lost),
        "{:?}",
        world.hosts[1].events
    );
    assert_eq!(world.hosts[0].carrier.max_datagram_bytes(session), None);
    let now = world.instant();
    let moved = world.hosts[0]
        .carrier
        .reconnect(now, session, address(1, 4000));
    assert_eq!(moved, Err(ConnectError::NoSession(session.0)));
}

fn survives_loss<C: Carrier>(mut world: World<C>) {
    let session = world.connect(0, 1, key(1).public());
    world.run_until(5 * SECOND, |world| {
        world.connected(0).is_some() && world.connected(1).is_some()
    });
    for number in 0..1000_u32 {
        world.send(0, session, number.to_le_bytes());
        world.run_for(Duration::from_micros(500));
    }
    world.run_for(SECOND);
    let arrived = world.datagrams(1);
    let mut unique = arrived.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(arrived.len(), unique.len(), "nothing arrives twice");
    assert!(
        (600..800).contains(&arrived.len()),
        "{} of 1000 arrived at 30 % loss",
        arrived.len()
    );
}
