//! Two hosts in network namespaces, with real sockets: addresses and networks.

use std::{
    fs::File,
    net::SocketAddr,
    os::fd::AsFd,
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use nervure_link::{
    carrier::{KeyPair, PublicKey},
    qos::{Delivery, Qos},
    shell::{IncomingStream, Link, LinkConfig, LinkEvent, OutgoingStream, Peer},
};
use nervure_linkemu::namespaces::{Namespaces, run};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Time limit of a wait; tests need only a small part of it.
const WAIT_LIMIT: Duration = Duration::from_secs(60);

fn key(host: usize) -> KeyPair {
    KeyPair::from_seed([host as u8 + 1; 32])
}

/// A link in the namespace of a host. Its socket stays there.
fn bind(namespaces: &Namespaces, host: usize, address: &str) -> Link {
    let namespace = format!("/proc/{}/ns/net", namespaces.pid(host));
    let namespace = File::open(namespace).expect("the namespace exists");
    let config = LinkConfig {
        allow: [0, 1].map(|host| key(host).public()).to_vec(),
        ..LinkConfig::new(address.parse().expect("an address"), key(host))
    };
    let bind = || {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
            .expect("this process may enter it");
        Link::bind(config).expect("a socket")
    };
    // Only that thread enters the namespace.
    std::thread::scope(|scope| scope.spawn(bind).join().expect("it is bound"))
}

fn connected_address(link: &Link, peer: PublicKey) -> SocketAddr {
    let peers = link.peers();
    let peer = peers.iter().find(|known| known.peer == peer);
    peer.and_then(|peer| peer.address).expect("it is connected")
}

fn open(peer: &Peer, name: &str) -> OutgoingStream {
    let stream = peer.open(name, Qos::new(Delivery::keep_all(16)));
    stream.expect("the name is short")
}

fn opened(link: &Link) -> IncomingStream {
    loop {
        match link.next_event(WAIT_LIMIT).expect("the stream is opened") {
            LinkEvent::Opened { stream, .. } => return stream,
            LinkEvent::Connected { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_host_with_several_addresses_answers_from_the_one_that_was_asked() {
    let Some(namespaces) = Namespaces::new(2) else {
        return;
    };
    // A second address in the same network, which the system would not choose by itself.
    let second = ["addr", "add", "10.77.0.3/24", "dev", "cable0"];
    run(namespaces.command(1, "ip").args(second));
    for asked in ["10.77.0.2", "10.77.0.3", "10.77.1.2"] {
        let acceptor = bind(&namespaces, 1, "0.0.0.0:0");
        let initiator = bind(&namespaces, 0, "0.0.0.0:0");
        let to = SocketAddr::new(
            asked.parse().expect("an address"),
            acceptor.local_address().port(),
        );
        let peer = initiator.connect(to, key(1).public()).expect("an address");
        let stream = open(&peer, "stream");
        stream.send(vec![7; 50_000]).expect("it is accepted");
        assert!(stream.flush(WAIT_LIMIT), "{asked}");
        assert_eq!(connected_address(&initiator, key(1).public()), to);
        let from = connected_address(&acceptor, key(0).public());
        let network = asked.rsplit_once('.').expect("four numbers").0;
        assert_eq!(from.ip().to_string(), format!("{network}.1"));
    }
}

/// Sends numbered samples every 5 ms, until `done`.
fn produce(stream: &OutgoingStream, done: impl Fn() -> bool) -> u64 {
    let (mut number, began) = (0_u64, Instant::now());
    while !done() {
        let due = began + Duration::from_millis(5) * number as u32;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let mut sample = number.to_le_bytes().to_vec();
        sample.resize(2000, 7);
        stream.send(sample).expect("it is accepted");
        number += 1;
    }
    number
}

/// Takes all samples, which must be complete and in order. Returns their arrivals. `sent` is their
/// number, once it is known.
fn consume(stream: &IncomingStream, sent: &OnceLock<u64>) -> Vec<Instant> {
    let mut arrivals = Vec::new();
    while sent
        .get()
        .is_none_or(|sent| (arrivals.len() as u64) < *sent)
    {
        let Some(sample) = stream.receive(Duration::from_millis(100)) else {
            continue;
        };
        let number = sample.payload.first_chunk().expect("8 bytes");
        assert_eq!(u64::from_le_bytes(*number), arrivals.len() as u64);
        arrivals.push(Instant::now());
    }
    arrivals
}

/// Both ends send while one network fails; later it works again.
#[test]
fn both_directions_continue_over_the_other_network() {
    let Some(namespaces) = Namespaces::new(2) else {
        return;
    };
    let links = [0, 1].map(|host| bind(&namespaces, host, "0.0.0.0:0"));
    let port = links[1].local_address().port();
    let networks = ["10.77.0.2", "10.77.1.2"].map(|address| {
        let address = address.parse().expect("an address");
        SocketAddr::new(address, port)
    });
    let keys = [0, 1].map(|host| key(host).public());
    let peer = links[0].connect_any(&networks, keys[1]).expect("addresses");
    let to_acceptor = open(&peer, "to acceptor");
    let at_acceptor = opened(&links[1]);
    let to_initiator = open(&links[1].peer(keys[0]), "to initiator");
    let at_initiator = opened(&links[0]);
    let in_use = |network: SocketAddr| connected_address(&links[0], keys[1]) == network;
    let wait_for = |network| {
        let began = Instant::now();
        while !in_use(network) && began.elapsed() < WAIT_LIMIT {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(in_use(network), "{network} is used");
    };
    wait_for(networks[0]);
    // The other one is kept ready after a moment.
    std::thread::sleep(Duration::from_secs(2));
    let is_over = AtomicBool::new(false);
    let over = || is_over.load(Ordering::Relaxed);
    let sent = [OnceLock::new(), OnceLock::new()];
    std::thread::scope(|scope| {
        let senders = [&to_acceptor, &to_initiator];
        let senders: Vec<_> = std::iter::zip(senders, &sent)
            .map(|(stream, sent)| {
                scope.spawn(move || {
                    sent.set(produce(stream, over)).expect("it is set once");
                    assert!(stream.flush(WAIT_LIMIT));
                })
            })
            .collect();
        let receivers: Vec<_> = std::iter::zip([&at_acceptor, &at_initiator], &sent)
            .map(|(stream, sent)| scope.spawn(move || consume(stream, sent)))
            .collect();
        std::thread::sleep(Duration::from_secs(1));
        // The far end of the cable: this end sees no error when it sends.
        let cable = |state| {
            run(namespaces
                .command(1, "ip")
                .args(["link", "set", "cable0", state]))
        };
        let failed = Instant::now();
        cable("down");
        wait_for(networks[1]);
        println!("changed after {:?}", failed.elapsed());
        std::thread::sleep(Duration::from_secs(2));
        cable("up");
        wait_for(networks[0]);
        std::thread::sleep(Duration::from_millis(500));
        is_over.store(true, Ordering::Relaxed);
        for sender in senders {
            sender.join().expect("all arrives");
        }
        for receiver in receivers {
            let arrivals = receiver.join().expect("all arrives in order");
            let gaps = arrivals.windows(2).map(|pair| pair[1] - pair[0]);
            println!("{} samples, longest gap {:?}", arrivals.len(), gaps.max());
        }
    });
}
