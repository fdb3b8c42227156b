//! Nonsense on the sockets between processes.

use crate::rig::{
    ANNOUNCE, ATTACHED, BesideHostile, HEAD, HonestProducer, RETIRE, RETIRED, RawEdge, SEGMENT,
};
use crate::rig::{memfd, packet, seal, segment, send};
use crate::words::harmful_word;
use fastrand::Rng;
use nervure_protocol::wiring::Policy;
use nervure_shm::{Misbehaviour, ProducerPair, Seqpacket, WakePage, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

/// The consumer's report after a packet. It receives the packet because a descriptor names segment
/// 0.
fn after_packet(bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Misbehaviour {
    let mut hostile = BesideHostile::new();
    hostile.socket.send(bytes, fds).expect("room");
    hostile.edge.describe(0, 0, 0, 10, 0);
    hostile.edge.write_word(HEAD, 1);
    hostile.misbehaviour()
}

fn is_message(found: Misbehaviour) -> bool {
    matches!(found, Misbehaviour::Message(_))
}

#[test]
fn packets_that_are_no_messages_are_refused() {
    let fd = segment(4096);
    let fd = fd.as_fd();
    assert!(is_message(after_packet(b"x", &[])));
    assert!(is_message(after_packet(&[0; 23], &[])));
    assert!(is_message(after_packet(&[0xff; 24], &[])));
    assert!(is_message(after_packet(&vec![1; 200_000], &[])));
    for kind in [0, 4, 6, 7, u64::MAX] {
        assert!(is_message(after_packet(&packet(kind, 0, 0), &[])), "{kind}");
    }
    for (kind, fds) in [
        (SEGMENT, vec![]),
        (SEGMENT, vec![fd; 2]),
        (SEGMENT, vec![fd; 250]),
        (ANNOUNCE, vec![fd]),
    ] {
        assert!(
            is_message(after_packet(&packet(kind, 0, 4096), &fds)),
            "{kind} with {}",
            fds.len()
        );
    }
    for kind in [RETIRE, ATTACHED] {
        assert!(
            is_message(after_packet(&packet(kind, 0, 0), &[fd])),
            "{kind}"
        );
    }
}

#[test]
fn a_descriptor_that_is_no_segment_is_refused() {
    let refuse = |fd: &OwnedFd, bytes: u64| {
        let found = after_packet(&packet(SEGMENT, 0, bytes), &[fd.as_fd()]);
        assert!(is_message(found), "{found:?}");
    };
    let good = segment(4096);
    for bytes in [0, 1, 4095, 4097, 8192, u64::MAX] {
        refuse(&good, bytes);
    }
    let unsealed = memfd(4096);
    rustix::fs::fallocate(&unsealed, rustix::fs::FallocateFlags::empty(), 0, 4096).expect("memory");
    refuse(&unsealed, 4096);
    let shrinkable =
        segment_with(rustix::fs::SealFlags::GROW | rustix::fs::SealFlags::FUTURE_WRITE);
    refuse(&shrinkable, 4096);
    // The owner could make holes later.
    let writable = segment_with(rustix::fs::SealFlags::GROW | rustix::fs::SealFlags::SHRINK);
    refuse(&writable, 4096);
    let empty = memfd(0);
    seal(&empty);
    refuse(&empty, 0);
    refuse(&eventfd().expect("a descriptor"), 4096);
    refuse(&rustix::pipe::pipe().expect("a pipe").0, 4096);
    refuse(&Seqpacket::pair().expect("a socket").0.into(), 4096);
    refuse(
        &std::fs::File::open("/dev/zero").expect("a device").into(),
        4096,
    );
    refuse(
        &std::fs::File::open("/proc/self/exe")
            .expect("a file")
            .into(),
        4096,
    );
}

fn segment_with(seals: rustix::fs::SealFlags) -> OwnedFd {
    let fd = memfd(4096);
    rustix::fs::fallocate(&fd, rustix::fs::FallocateFlags::empty(), 0, 4096).expect("memory");
    rustix::fs::fcntl_add_seals(&fd, seals).expect("a memfd");
    fd
}

/// A consumer that maps a hole would have to provide the memory.
#[test]
fn a_segment_with_holes_is_refused() {
    for bytes in [8192, 1 << 30, 1 << 44] {
        let fd = memfd(bytes);
        rustix::fs::fallocate(&fd, rustix::fs::FallocateFlags::empty(), 0, 4096).expect("memory");
        seal(&fd);
        assert!(is_message(after_packet(
            &packet(SEGMENT, 0, bytes as u64),
            &[fd.as_fd()]
        )));
    }
}

/// Sends packets until the consumer reports misbehaviour, which must be before `at_most` packets.
fn flood(mut packet_of: impl FnMut(u64) -> Vec<u8>, fd: Option<&OwnedFd>, at_most: u64) {
    let mut hostile = BesideHostile::new();
    hostile.edge.describe(0, 0, 0, 10, 0);
    hostile.edge.write_word(HEAD, 1);
    let fds: Vec<_> = fd.iter().map(|fd| fd.as_fd()).collect();
    let mut sent = 0;
    loop {
        assert!(sent < at_most, "{sent} packets are too many");
        if hostile.socket.send(&packet_of(sent), &fds).is_ok() {
            sent += 1;
            continue;
        }
        hostile.consumer.ring();
        if let Some(arrival) = hostile.consumer.next() {
            assert!(
                matches!(arrival, nervure_shm::Arrival::Misbehaved { input: 0, .. }),
                "after {sent} packets: {arrival:?}"
            );
            hostile.assert_others_work();
            return;
        }
    }
}

#[test]
fn floods_of_packets_that_must_be_kept_are_cut_off() {
    let fd = segment(4096);
    flood(|n| packet(SEGMENT, n + 1, 4096), Some(&fd), 40_000);
    flood(|n| packet(ANNOUNCE, n, 0), None, 100_000);
    flood(|n| packet(ATTACHED, n + 1, 0), None, 100_000);
    flood(
        |n| [packet(ANNOUNCE, n, 0), vec![0; 128 * 1024]].concat(),
        None,
        3000,
    );
}

#[test]
fn floods_of_packets_that_need_not_be_kept_delay_nothing_else() {
    let mut hostile = BesideHostile::new();
    let (socket, is_over) = (
        &hostile
            .socket
            .as_fd()
            .try_clone_to_owned()
            .expect("a descriptor"),
        AtomicBool::new(false),
    );
    let socket = Seqpacket::from(socket.try_clone().expect("a descriptor"));
    hostile.edge.describe(0, 0, 0, 10, 0);
    hostile.edge.write_word(HEAD, 1);
    thread::scope(|scope| {
        for kind in [RETIRE, ANNOUNCE] {
            let (socket, is_over) = (&socket, &is_over);
            scope.spawn(move || {
                while !is_over.load(SeqCst) {
                    let _ = socket.send(&packet(kind, 5, 0), &[]);
                }
            });
        }
        for _ in 0..200 {
            hostile.consumer.ring();
            hostile.assert_others_work();
        }
        is_over.store(true, SeqCst);
    });
}

/// The other direction: a consumer floods its producer, whose control thread has other work.
#[test]
fn a_producer_receives_a_flood_in_portions() {
    let (a, b) = Seqpacket::pair().expect("a socket");
    let (pair, is_over) = (ProducerPair::new(a, 1), AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(SeqCst) {
                    let _ = b.send(&packet(RETIRED, 7, 0), &[]);
                }
            });
        }
        let most = (0..50)
            .map(|_| pair.receive().expect("it is open").len())
            .max();
        assert!(most < Some(10_000));
        is_over.store(true, SeqCst);
    });
}

#[test]
fn noise_and_false_acknowledgements_harm_no_other_edge() {
    let producer = HonestProducer::new();
    let edge = RawEdge::new();
    let (_, bell) = WakePage::create(1).expect("memory");
    let (a, b) = Seqpacket::pair().expect("a socket");
    let pair_socket = a.as_fd().try_clone_to_owned().expect("a descriptor");
    producer.attach(0, Policy::DropOldest, &edge.0, &bell, a);
    let pair = ProducerPair::new(pair_socket.into(), 0);
    let mut random = Rng::with_seed(99);
    let fd = memfd(10);
    let open = || std::fs::read_dir("/proc/self/fd").expect("proc").count();
    for round in 0..300_u32 {
        send(&producer.output, &vec![1; 70_000]);
        let noise: Vec<u8> = (0..random.u64(..64))
            .flat_map(|_| harmful_word(&mut random).to_ne_bytes())
            .collect();
        for packet in [
            noise,
            packet(RETIRED, random.u64(..40), 0),
            packet(RETIRED, u64::MAX, 0),
        ] {
            let _ = b.send(&packet, &[fd.as_fd(), fd.as_fd()]);
        }
        // An empty packet reads as the end of the stream.
        if let Some(retired) = pair.receive() {
            producer.output.acknowledge(0, &retired);
        }
        let used = producer.process.budget.used();
        assert!(
            (70_000..64 << 20).contains(&used),
            "{used} bytes after {round} rounds"
        );
    }
    assert!(open() < 200, "descriptors that came with noise are closed");
}
