//! Two links over loopback.

mod room;
mod sessions;
mod turns;

use std::{net::SocketAddr, time::Duration};

use super::{Link, LinkConfig, LinkEvent, OpenError, OutgoingStream, Peer, StreamError};
use crate::{
    carrier::KeyPair,
    policy::{Decision, Direction, Refusal, StreamPolicy, StreamRules},
    qos::{Delivery, Qos},
    receiver::IncomingState,
    sender::{OutgoingState, SendError},
};

const TIMEOUT: Duration = Duration::from_secs(60);

/// A receiving end, a sending end, and the peer of the latter.
fn connected() -> (Link, Link, Peer) {
    let keys = [1, 2].map(|number| KeyPair::from_seed([number; 32]));
    let ids = keys.each_ref().map(KeyPair::public);
    let address = "127.0.0.1:0".parse().expect("an address");
    let [receiving, sending] = keys.map(|key| LinkConfig {
        allow: vec![ids[1]],
        ..LinkConfig::new(address, key)
    });
    let receiving = Link::bind(receiving).expect("a socket");
    let sending = Link::bind(sending).expect("a socket");
    let peer = sending
        .connect(receiving.local_address(), ids[0])
        .expect("the address is good");
    (receiving, sending, peer)
}

/// The next stream that the peer opened.
fn next_opened(link: &Link) -> (String, super::IncomingStream) {
    loop {
        match link.next_event(TIMEOUT).expect("a stream is opened") {
            LinkEvent::Opened { name, stream, .. } => return (name, stream),
            LinkEvent::Connected { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn every_stream_is_announced_however_many_wait() {
    const STREAMS: usize = 6000;
    let (receiving, _sending, peer) = connected();
    let open = |number| {
        peer.open(
            &format!("stream {number}"),
            Qos::new(Delivery::keep_last(1)),
        )
        .expect("the name is short")
    };
    let streams: Vec<_> = (0..STREAMS).map(open).collect();
    for stream in &streams {
        assert!(stream.wait_opened(TIMEOUT).expect("it is accepted"));
    }
    for number in 0..STREAMS {
        assert_eq!(next_opened(&receiving).0, format!("stream {number}"));
    }
}

#[test]
fn a_stream_that_has_ended_leaves_nothing() {
    let (receiving, _sending, peer) = connected();
    for number in 0..100_u8 {
        let stream = peer
            .open("stream", Qos::new(Delivery::keep_all(2)))
            .expect("the name is short");
        (0..2).for_each(|_| stream.send(vec![number; 3]).expect("it is accepted"));
        drop(stream);
        let (_, incoming) = next_opened(&receiving);
        for _ in 0..2 {
            let sample = incoming.receive(TIMEOUT).expect("it was accepted");
            assert_eq!(&sample.payload[..], [number; 3]);
        }
    }
    assert!(peer.flush(TIMEOUT));
    let state = receiving.shared.lock();
    assert_eq!(state.readable.len(), 0);
}

#[test]
fn a_name_that_is_too_long_is_an_error() {
    let (_receiving, _sending, peer) = connected();
    let name = "n".repeat(600);
    let error = peer.open(&name, Qos::new(Delivery::Latest)).err();
    assert!(matches!(error, Some(OpenError::Name(_))), "{error:?}");
}

#[test]
fn a_receiver_accepts_refuses_and_closes() {
    let (receiving, sending, peer) = connected();
    receiving.set_stream_policy(StreamPolicy::new(|request| match request.name {
        "forbidden" => Decision::Refuse(Refusal::NotAllowed),
        _ => Decision::Ask,
    }));
    let keep_all = Qos::new(Delivery::keep_all(2));
    let open = |name| peer.open(name, keep_all).expect("the name is short");
    let refused = |stream: &OutgoingStream| match stream.send("more") {
        Err(StreamError::Send(SendError::Refused { why, .. })) => why,
        other => panic!("{other:?}"),
    };
    let next_request = || loop {
        match receiving
            .next_event(TIMEOUT)
            .expect("a stream is requested")
        {
            LinkEvent::Requested { request, name, .. } => return (name, request),
            LinkEvent::Connected { .. } => {}
            other => panic!("{other:?}"),
        }
    };

    let forbidden = open("forbidden");
    assert!(forbidden.wait_opened(TIMEOUT).is_err());
    assert_eq!(refused(&forbidden), Refusal::NotAllowed);

    let unwanted = open("unwanted");
    next_request().1.refuse(Refusal::because("not today"));
    assert!(unwanted.wait_opened(TIMEOUT).is_err());
    assert_eq!(refused(&unwanted), Refusal::because("not today"));

    let ignored = open("ignored");
    drop(next_request());
    assert!(ignored.wait_opened(TIMEOUT).is_err());

    let wanted = open("wanted");
    wanted.send("a sample").expect("there is room");
    let (name, request) = next_request();
    assert_eq!((&*name, request.qos()), ("wanted", keep_all));
    let incoming = request.accept().expect("it is still open");
    assert!(wanted.wait_opened(TIMEOUT).expect("it is accepted"));
    let sample = incoming.receive(TIMEOUT).expect("it was sent");
    assert_eq!(&sample.payload[..], b"a sample");
    let [known] = &receiving.peers()[..] else {
        panic!("one peer is connected");
    };
    assert_eq!(known.peer, sending.public_key());
    assert_eq!(known.address, Some(sending.local_address()));
    assert!(known.connected_since.is_some() && known.target.is_none());
    let names: Vec<_> = known
        .incoming
        .iter()
        .map(|stream| (&*stream.name, stream.state))
        .collect();
    assert_eq!(names, [("wanted", IncomingState::Open)]);
    assert_eq!(known.incoming[0].counters.taken, 1);
    let [known] = &sending.peers()[..] else {
        panic!("one peer is known");
    };
    assert_eq!(known.target, Some(receiving.local_address()));
    let states: Vec<_> = known
        .outgoing
        .iter()
        .map(|stream| stream.state.clone())
        .collect();
    assert_eq!(states[0], OutgoingState::Refused(Refusal::NotAllowed));
    assert_eq!((states.len(), &states[3]), (4, &OutgoingState::Open));
    assert_eq!(
        (known.outgoing[3].qos, known.outgoing[3].counters.accepted),
        (keep_all, 1)
    );

    wanted.send("not taken").expect("there is room");
    assert!(wanted.flush(TIMEOUT), "it was delivered");
    incoming.close(Refusal::because("done"));
    // A producer that waits for room learns of it.
    let why = loop {
        match wanted.send("more") {
            Ok(()) => {}
            Err(StreamError::Send(SendError::Refused { why, .. })) => break why,
            Err(other) => panic!("{other}"),
        }
    };
    assert_eq!(why, Refusal::because("done"));
    assert!(wanted.flush(TIMEOUT));
    let received = receiving
        .peer(sending.public_key())
        .status()
        .expect("it is known")
        .received;
    assert_eq!(
        (received.taken, received.discarded),
        (1, received.delivered - 1)
    );
    let sent = wanted.counters().expect("it is open");
    assert_eq!(sent.delivered, received.delivered);
    assert!(sent.is_balanced());

    // A refusal may show in `send` before its event.
    let names: Vec<_> = std::iter::from_fn(|| sending.next_event(TIMEOUT))
        .filter_map(|event| match event {
            LinkEvent::StreamRefused { name, .. } => Some(name),
            _ => None,
        })
        .take(4)
        .collect();
    assert_eq!(names, ["forbidden", "unwanted", "ignored", "wanted"]);
}

#[test]
fn both_ends_learn_a_change_of_the_quality_of_service() {
    let (receiving, _sending, peer) = connected();
    let [all, last] = [Delivery::keep_all(4), Delivery::keep_last(1)].map(Qos::new);
    let stream = peer.open("stream", all).expect("the name is short");
    (0..3_u8).for_each(|number| stream.send(vec![number]).expect("there is room"));
    stream.set_qos(last).expect("it is open");
    assert!(
        stream
            .qos()
            .is_some_and(|(now, then)| then.unwrap_or(now) == last)
    );
    (3..9_u8).for_each(|number| stream.send(vec![number]).expect("it keeps the last"));
    let (_, incoming) = next_opened(&receiving);
    let mut taken = Vec::new();
    while taken.last() != Some(&8) {
        let sample = incoming.receive(TIMEOUT).expect("the last one arrives");
        taken.push(sample.payload[0]);
    }
    assert_eq!(taken[..3], [0, 1, 2], "{taken:?}");
    assert_eq!((incoming.qos(), stream.qos()), (last, Some((last, None))));
    match receiving.next_event(TIMEOUT) {
        Some(LinkEvent::QosChanged { name, qos, .. }) => {
            assert_eq!((&*name, qos), ("stream", last))
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_end_opens_no_stream_that_its_policy_refuses() {
    let (_receiving, sending, peer) = connected();
    let mut rules = StreamRules::default();
    rules.allow(peer.key(), Direction::Outgoing, "cmd/*");
    sending.set_stream_policy(rules.into());
    let latest = Qos::new(Delivery::Latest);
    assert!(peer.open("cmd/vel", latest).is_ok());
    let error = peer.open("secret", latest).err();
    assert!(matches!(error, Some(OpenError::Policy { .. })), "{error:?}");
}

/// Whether the descriptor of a link is readable, now or within the timeout.
fn is_ready(link: &Link, timeout: Duration) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let timeout = Timespec {
        tv_sec: timeout.as_secs() as _,
        tv_nsec: timeout.subsec_nanos().into(),
    };
    let mut descriptors = [PollFd::new(link, PollFlags::IN)];
    poll(&mut descriptors, Some(&timeout)).expect("it can be polled") > 0
}

#[test]
fn one_descriptor_stands_for_events_and_samples() {
    let (receiving, _sending, peer) = connected();
    let stream = peer
        .open("stream", Qos::new(Delivery::keep_all(8)))
        .expect("the name is short");
    // The events of the connection and of the stream.
    let (mut opened, mut events) = (None, 0);
    while opened.is_none() {
        assert!(is_ready(&receiving, TIMEOUT));
        events += 1;
        if let Some(LinkEvent::Opened { stream, .. }) = receiving.next_event(Duration::ZERO) {
            opened = Some(stream);
        }
    }
    let incoming = opened.expect("it was opened");
    assert!(
        events <= 2 && !is_ready(&receiving, Duration::ZERO),
        "{events}"
    );
    for number in 0..100_u8 {
        (0..2).for_each(|_| stream.send(vec![number]).expect("it is accepted"));
        for _ in 0..2 {
            assert!(is_ready(&receiving, TIMEOUT));
            let taken = match number % 3 {
                0 => incoming.receive(Duration::ZERO),
                1 => incoming.try_receive(),
                _ => receiving
                    .receive_any(Duration::ZERO)
                    .map(|received| received.sample),
            };
            assert_eq!(taken.expect("it is readable").payload[..], [number]);
        }
        assert!(!is_ready(&receiving, Duration::ZERO));
    }
    // A sample that no one takes does not keep the descriptor readable when its stream is closed.
    stream.send("not taken").expect("it is accepted");
    assert!(is_ready(&receiving, TIMEOUT));
    incoming.close(Refusal::because("closed"));
    assert!(!is_ready(&receiving, Duration::ZERO));
}

/// Runs a future on this thread.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    super::block_on::block_on(future, None, || true).expect("it goes on until the end")
}

#[test]
fn waiting_for_a_sample_ends_with_the_stream() {
    type End = fn(Link, Peer, OutgoingStream);
    let ends: [(&str, End); 3] = [
        ("its sender closes it", |_receiving, peer, stream| {
            drop(stream);
            assert!(peer.flush(TIMEOUT));
        }),
        ("the peer is forbidden", |receiving, _, _| {
            receiving.forbid(KeyPair::from_seed([2; 32]).public());
        }),
        ("the link is dropped", |receiving, _, _| drop(receiving)),
    ];
    for (why, end) in ends {
        let (receiving, _sending, peer) = connected();
        let stream = peer
            .open("stream", Qos::new(Delivery::keep_all(2)))
            .expect("the name is short");
        let (_, incoming) = next_opened(&receiving);
        let (waits, is_waiting) = std::sync::mpsc::channel();
        let waiting = std::thread::spawn(move || {
            waits.send(()).expect("the test goes on");
            let began = std::time::Instant::now();
            let taken = incoming.receive(TIMEOUT * 60);
            (taken, incoming.has_ended(), began.elapsed())
        });
        is_waiting.recv().expect("it begins");
        end(receiving, peer, stream);
        let (taken, has_ended, took) = waiting.join().expect("it does not panic");
        assert_eq!((taken, has_ended), (None, true), "{why}");
        assert!(took < TIMEOUT * 60, "{why}: after the timeout");
    }
}

#[test]
fn another_thread_ends_the_wait_for_a_sample() {
    let (receiving, _sending, peer) = connected();
    let stream = peer
        .open("stream", Qos::new(Delivery::keep_all(2)))
        .expect("the name is short");
    let (_, incoming) = next_opened(&receiving);
    let goes_on = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(true));
    let for_thread = std::sync::Arc::clone(&goes_on);
    let (took, has_taken) = std::sync::mpsc::channel();
    let waiting = std::thread::spawn(move || {
        let load = || for_thread.load(std::sync::atomic::Ordering::SeqCst);
        let first = incoming.receive_while(load).expect("it is sent");
        assert_eq!(first.payload[..], [1]);
        took.send(()).expect("the test goes on");
        assert_eq!(incoming.receive_while(load), None);
        incoming
    });
    stream.send(vec![1]).expect("it is accepted");
    has_taken.recv().expect("it takes the sample");
    goes_on.store(false, std::sync::atomic::Ordering::SeqCst);
    waiting.thread().unpark();
    let incoming = waiting.join().expect("it does not panic");
    assert!(!incoming.has_ended());
    assert!(receiving.shared.lock().has_no_receivers());
    // Samples still come.
    stream.send(vec![2]).expect("it is accepted");
    let second = incoming.receive(TIMEOUT).expect("it is sent");
    assert_eq!(second.payload[..], [2]);
}

#[test]
fn async_tasks_wait_for_events_room_and_samples() {
    const SAMPLES: u8 = 200;
    let (receiving, _sending, peer) = connected();
    let producer = std::thread::spawn(move || {
        block_on(async {
            let stream = peer
                .open("stream", Qos::new(Delivery::keep_all(2)))
                .expect("the name is short");
            assert!(stream.wait_opened_async().await.expect("it is accepted"));
            for number in 0..SAMPLES {
                stream
                    .send_async(vec![number; 100])
                    .await
                    .expect("it is accepted");
            }
            assert!(stream.flush_async().await);
            let counters = stream.counters().expect("it is open");
            assert_eq!(counters.delivered, SAMPLES.into());
            drop(stream);
            assert!(peer.flush_async().await);
        });
    });
    block_on(async {
        let stream = loop {
            match receiving.next_event_async().await.expect("the link runs") {
                LinkEvent::Opened { stream, .. } => break stream,
                LinkEvent::Connected { .. } => {}
                other => panic!("{other:?}"),
            }
        };
        for number in 0..SAMPLES {
            let sample = stream.receive_async().await.expect("it was sent");
            assert_eq!(sample.payload[..], [number; 100]);
        }
        assert_eq!(stream.receive_async().await, None, "the stream has ended");
    });
    producer.join().expect("the producer ends");
}

#[test]
fn limits_that_are_too_low_are_errors() {
    type Set = fn(&mut LinkConfig);
    let configs: [(&str, Set); 6] = [
        ("limits.peers is 0, expected at least 1", |config| {
            config.limits.peers = 0
        }),
        ("limits.handshakes is 8, expected at least 9", |config| {
            config.limits.handshakes = 8
        }),
        (
            "session.receiver.budget_bytes is 1048576, expected at least 268435456",
            |config| config.session.receiver.budget_bytes = 1 << 20,
        ),
        (
            "session.receiver.max_streams is 0, expected at least 1",
            |config| config.session.receiver.max_streams = 0,
        ),
        (
            "session.receiver.initial_credit is 1, expected at least 4096",
            |config| config.session.receiver.initial_credit = 1,
        ),
        (
            "largest_packet_bytes is 1000, expected at least 1200",
            |config| config.largest_packet_bytes = 1000,
        ),
    ];
    for (expected, change) in configs {
        let address = "127.0.0.1:0".parse().expect("an address");
        let mut config = LinkConfig::new(address, KeyPair::from_seed([1; 32]));
        change(&mut config);
        let error = Link::bind(config).map(drop).expect_err(expected);
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn a_link_takes_no_more_peers_than_configured() {
    let keys = [1, 2, 3].map(|seed| KeyPair::from_seed([seed; 32]));
    let ids = keys.each_ref().map(KeyPair::public);
    let [acceptor, first, second] = keys;
    let address: SocketAddr = "127.0.0.1:0".parse().expect("an address");
    let mut config = LinkConfig {
        allow: ids.to_vec(),
        ..LinkConfig::new(address, acceptor)
    };
    config.limits.peers = 1;
    let acceptor = Link::bind(config).expect("a socket");
    let links = [first, second].map(|key| {
        let link = Link::bind(LinkConfig::new(address, key)).expect("a socket");
        link.connect(acceptor.local_address(), ids[0])
            .expect("the address is good");
        // One after the other.
        match acceptor.next_event(TIMEOUT) {
            Some(LinkEvent::Connected { peer, .. }) => assert_eq!(peer, ids[1]),
            Some(LinkEvent::Refused { peer, why, .. }) => {
                assert_eq!(peer, Some(ids[2]));
                assert!(why.contains("too many sessions"), "{why}");
            }
            other => panic!("{other:?}"),
        }
        link
    });
    let [known] = &acceptor.peers()[..] else {
        panic!("one peer is connected");
    };
    assert_eq!(known.peer, ids[1]);
    // An idle session leaves room in the least budget for each peer.
    assert!(
        known.session.link.budget_used_bytes < 512 << 10,
        "{:?}",
        known.session.link
    );
    drop(links);
}

/// A peer with several addresses is found at the second one, if nothing answers at the first.
#[test]
fn a_peer_is_found_at_the_next_address() {
    let (receiving, sending, peer) = connected();
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let nowhere = silent.local_addr().expect("it is bound");
    let other = KeyPair::from_seed([2; 32]);
    drop(sending);
    let link = LinkConfig::new("127.0.0.1:0".parse().expect("an address"), other);
    let link = Link::bind(link).expect("a socket");
    let found = link
        .connect_any(
            &[nowhere, receiving.local_address()],
            receiving.public_key(),
        )
        .expect("the addresses are good");
    let stream = found
        .open("stream", Qos::new(Delivery::keep_all(2)))
        .expect("the name is short");
    stream.send("a sample").expect("it is accepted");
    assert!(stream.flush(TIMEOUT));
    let known = &link.peers()[0];
    assert_eq!(known.address, Some(receiving.local_address()));
    assert_eq!(known.target, known.address);
    let error = link.connect_any(&[], peer.key()).err();
    assert!(error.is_some_and(|error| error.to_string().contains("no address")));
}

/// An acceptor on all addresses of a host answers from the one that was asked: from another one, the
/// peer would take no answer.
#[test]
fn an_acceptor_answers_from_the_address_that_was_asked() {
    for wildcard in ["0.0.0.0:0", "[::]:0"] {
        let keys = [1, 2, 3].map(|seed| KeyPair::from_seed([seed; 32]));
        let ids = keys.each_ref().map(KeyPair::public);
        let [acceptor, first, second] = keys;
        let acceptor = Link::bind(LinkConfig {
            allow: ids.to_vec(),
            ..LinkConfig::new(wildcard.parse().expect("an address"), acceptor)
        });
        let Ok(acceptor) = acceptor else {
            // A host without IPv6.
            assert!(wildcard.starts_with('['), "all addresses can be bound");
            continue;
        };
        for (asked, key) in [("127.0.0.1", first), ("127.0.0.2", second)] {
            let own = key.public();
            let address = "127.0.0.1:0".parse().expect("an address");
            let link = Link::bind(LinkConfig::new(address, key)).expect("a socket");
            let to = (
                asked.parse::<std::net::IpAddr>().expect("an address"),
                acceptor.local_address().port(),
            );
            let peer = link
                .connect(to.into(), ids[0])
                .expect("the address is good");
            let stream = peer
                .open("stream", Qos::new(Delivery::keep_all(2)))
                .expect("the name is short");
            stream.send(vec![7; 50_000]).expect("it is accepted");
            let event = link.next_event(Duration::from_secs(20));
            let Some(LinkEvent::Connected { address, .. }) = event else {
                panic!("{wildcard} {asked}: {event:?}");
            };
            assert_eq!(address, to.into());
            assert!(stream.flush(TIMEOUT), "{wildcard} {asked}");
            let known = acceptor.peers();
            assert!(
                known
                    .iter()
                    .any(|known| known.peer == own && known.address == Some(link.local_address()))
            );
        }
    }
}

/// A socket for both families connects to an IPv4 peer, and accepts one.
#[test]
fn a_socket_of_both_families_reaches_ipv4_peers() {
    let loopback = std::net::Ipv4Addr::LOCALHOST;
    for ends in [["[::]:0", "127.0.0.1:0"], ["127.0.0.1:0", "[::]:0"]] {
        let keys = [1, 2].map(|seed| KeyPair::from_seed([seed; 32]));
        let public = [keys[0].public(), keys[1].public()];
        let links = std::iter::zip(ends, keys).map(|(address, key)| {
            Link::bind(LinkConfig {
                allow: public.to_vec(),
                ..LinkConfig::new(address.parse().expect("an address"), key)
            })
        });
        let links: Result<Vec<_>, _> = links.collect();
        let Ok(links) = links else {
            // A host without IPv6.
            return;
        };
        let to = SocketAddr::new(loopback.into(), links[1].local_address().port());
        links[0]
            .connect(to, public[1])
            .expect("the address is good");
        for link in &links {
            let event = link.next_event(Duration::from_secs(20));
            let Some(LinkEvent::Connected { address, .. }) = event else {
                panic!("{event:?}");
            };
            assert_eq!(address.ip(), loopback);
        }
    }
}
