//! The receiver decides on the peer's streams: it accepts, refuses and closes them, and every sample
//! is accounted for at both ends.

use std::time::{Duration, Instant};

use nervure_linkemu::{
    Air, Duplex,
    network::{Draw, Network, Packet, for_each_seed},
};

use super::{
    app::{Host, HostPair},
    networks::{loads, millis, settings},
};
use crate::{
    carrier::PublicKey,
    policy::{Decision, Direction, PeerPolicy, Refusal, SharedPolicy, StreamPolicy, StreamRules},
    qos::{Delivery, Qos},
    receiver::check_charges,
    sender::SendError,
    session::{OpenError, Session, SessionConfig},
};

const PEER: PublicKey = PublicKey([7; 32]);

fn network(seed: u64, draw: &mut Draw) -> Network<HostPair> {
    let air: Air<Packet> = Air::new(Duplex::Full, seed, [settings(draw), settings(draw)]);
    let loads = loads(draw);
    let hosts = [
        HostPair(1, Host::new(seed, 0, &loads)),
        HostPair(0, Host::new(seed, 1, &[])),
    ];
    Network::new(air, hosts)
}

/// Runs until all samples have come to an end, and compares the counters of both ends.
fn finish(seed: u64, network: &mut Network<HostPair>) {
    let done = |network: &Network<HostPair>| {
        let sender = &network.endpoint(0).1;
        sender.has_sent_all() && sender.session.sender().streams().is_idle()
    };
    assert!(
        network.run_until(network.now() + Duration::from_secs(600), done),
        "seed {seed}: stuck: {:#?}",
        network.endpoint(0).1.session
    );
    let now = network.now();
    network.endpoint_mut(0).1.close_all(now);
    network.endpoint_mut(1).1.takes_from = Duration::ZERO;
    let ended = |network: &Network<HostPair>| {
        let [sender, receiver] = [0, 1].map(|host| &network.endpoint(host).1);
        receiver.session.receiver().streams().next().is_none()
            && sender.session.sender().streams().is_idle()
    };
    assert!(
        network.run_until(now + Duration::from_secs(600), ended),
        "seed {seed}: streams are left"
    );
    let [sender, receiver] = [0, 1].map(|host| network.endpoint(host).1.session.status());
    assert!(sender.sent.is_balanced() && sender.sent.held == 0);
    assert!(receiver.received.is_balanced(), "{:?}", receiver.received);
    assert_eq!(
        sender.sent.delivered, receiver.received.delivered,
        "seed {seed}: {:?} {:?}",
        sender.sent, receiver.received
    );
    let session = &network.endpoint(1).1.session;
    assert_eq!(session.receiver().sample_bytes(), 0, "seed {seed}");
    check_charges(session.receiver()).unwrap();
}

#[test]
fn a_receiver_closes_streams_at_any_time_and_the_loss_is_exact() {
    let (mut closed, mut in_part) = (0, 0);
    for_each_seed(0..300, |seed| {
        let mut draw = Draw::new(seed);
        let mut network = network(seed, &mut draw);
        // Some samples are still in the queue.
        if draw.chance(50) {
            network.endpoint_mut(1).1.takes_from = millis(draw.below(2000));
        }
        network.run_to(millis(draw.below(1000)));
        let streams: Vec<_> = network.endpoint(1).1.session.receiver().streams().collect();
        let streams: Vec<_> = streams.into_iter().map(|(stream, ..)| stream).collect();
        let now = network.endpoint(1).1.instant(network.now());
        let why = Refusal::because("not needed");
        let mut expected = Vec::new();
        for stream in streams {
            if draw.chance(60) {
                let receiver = &mut network.endpoint_mut(1).1;
                receiver.forget(stream);
                assert!(receiver.session.refuse_stream(now, stream, why.clone()));
                assert!(!receiver.session.refuse_stream(now, stream, why.clone()));
                check_charges(receiver.session.receiver()).unwrap();
                expected.push((stream, why.clone()));
            }
        }
        let learned =
            |network: &Network<HostPair>| network.endpoint(0).1.refused.len() == expected.len();
        assert!(network.run_until(Duration::from_secs(100), learned));
        finish(seed, &mut network);
        let sender = &network.endpoint(0).1;
        assert_eq!(sender.refused, expected, "seed {seed}");
        closed += expected.len();
        in_part += usize::from(sender.session.status().sent.refused > 0);
    });
    assert!(closed > 100 && in_part > 30, "{closed} {in_part}");
}

#[test]
fn an_application_decides_later() {
    let (mut accepted, mut refused) = (0, 0);
    for_each_seed(0..100, |seed| {
        let mut draw = Draw::new(seed);
        let mut network = network(seed, &mut draw);
        let policy = SharedPolicy::default();
        policy.set(StreamPolicy::new(|request| {
            assert_eq!(
                (request.peer, request.direction),
                (PEER, Direction::Incoming)
            );
            Decision::Ask
        }));
        let receiver = &mut network.endpoint_mut(1).1;
        receiver.session.set_policy(PeerPolicy::new(PEER, &policy));
        let is_asked = |network: &Network<HostPair>| !network.endpoint(1).1.requested.is_empty();
        assert!(network.run_until(Duration::from_secs(60), is_asked));
        let until = network.now() + millis(draw.below(500));
        network.run_to(until);
        let receiver = &network.endpoint(1).1.session;
        assert_eq!(receiver.status().received.delivered, 0);
        assert_eq!(receiver.receiver().sample_bytes(), 0);

        let mut expected = Vec::new();
        loop {
            let now = network.endpoint(1).1.instant(network.now());
            let receiver = &mut network.endpoint_mut(1).1;
            for (stream, _) in std::mem::take(&mut receiver.requested) {
                if draw.chance(50) {
                    assert!(receiver.session.accept_stream(now, stream));
                    assert!(!receiver.session.accept_stream(now, stream));
                    accepted += 1;
                } else {
                    receiver.forget(stream);
                    let why = Refusal::because("no");
                    assert!(receiver.session.refuse_stream(now, stream, why.clone()));
                    expected.push((stream, why));
                }
            }
            let until = network.now() + millis(500);
            network.run_to(until);
            if network.endpoint(1).1.requested.is_empty() && network.endpoint(0).1.has_sent_all() {
                break;
            }
        }
        finish(seed, &mut network);
        assert_eq!(network.endpoint(0).1.refused, expected, "seed {seed}");
        refused += expected.len();
    });
    assert!(accepted > 50 && refused > 50, "{accepted} {refused}");
}

#[test]
fn a_stream_that_the_policy_refuses_costs_nothing() {
    let now = Instant::now();
    let [mut sender, mut receiver] =
        [1, 2].map(|seed| Session::new(SessionConfig::default(), seed, now));
    let mut rules = StreamRules::default();
    rules.allow(PEER, Direction::Incoming, "camera/*");
    let policy = SharedPolicy::default();
    policy.set(rules.into());
    receiver.set_policy(PeerPolicy::new(PEER, &policy));
    let keep_all = Qos::new(Delivery::keep_all(4));
    let allowed = sender.open(now, "camera/front", keep_all).unwrap();
    let refused = sender.open(now, "secret", keep_all).unwrap();
    let other = receiver.open(now, "camera/front", keep_all);
    assert!(
        matches!(
            other,
            Err(OpenError::Policy {
                why: Refusal::NotAllowed,
                ..
            })
        ),
        "the rules allow no outgoing stream: {other:?}"
    );
    for stream in [allowed, refused] {
        sender.send(now, stream, vec![1; 1000].into()).unwrap();
    }
    let mut most = 0;
    for millis in 0..50 {
        let now = now + Duration::from_millis(millis);
        super::exchange(now, &mut sender, &mut receiver);
        most = most.max(receiver.receiver().streams().count());
    }
    assert_eq!(most, 1);
    assert!(receiver.take(now, allowed).is_some());
    assert!(receiver.take(now, refused).is_none());
    let error = sender.send(now, refused, vec![1].into());
    assert!(
        matches!(
            error,
            Err(SendError::Refused {
                why: Refusal::NotAllowed,
                ..
            })
        ),
        "{error:?}"
    );
    let sent = sender.status().sent;
    assert_eq!((sent.delivered, sent.refused, sent.held), (1, 1, 0));

    // A policy that allows less closes the stream.
    policy.set(StreamRules::default().into());
    receiver.apply_policy(now);
    assert_eq!(receiver.receiver().streams().count(), 0);
    super::exchange(now + Duration::from_millis(60), &mut sender, &mut receiver);
    assert!(matches!(
        sender.sender().streams().is_opened(allowed),
        Err(SendError::Refused { .. })
    ));
}
