//! Consumers that write nonsense into the ring and leases of an honest producer.

use crate::rig::{BLOCKS, DEPTH, HEAD, HonestConsumer, HonestProducer, LEASES, RawEdge, TAIL};
use crate::rig::{expect_sample, send};
use crate::words::harmful_word;
use fastrand::Rng;
use nervure_message::Header;
use nervure_protocol::wiring::Policy;
use nervure_shm::{
    EdgeRegion, Misbehaviour, Receipt, RingError, SendError, Seqpacket, Wait, WakePage,
};
use rustix::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

/// An honest producer with a hostile consumer on edge 0 and an honest one on edge 1.
struct HonestProducerBesideHostile {
    producer: HonestProducer,
    edge: RawEdge,
    bell: OwnedFd,
    /// The hostile end; nothing is received from it.
    _socket: Seqpacket,
    consumer: HonestConsumer,
}

impl HonestProducerBesideHostile {
    fn new(policy: Policy) -> Self {
        let (producer, consumer) = (HonestProducer::new(), HonestConsumer::new());
        let edge = RawEdge::new();
        let (_, bell) = WakePage::create(1).expect("memory");
        let (a, socket) = Seqpacket::pair().expect("a socket");
        producer.attach(0, policy, &edge.0, &bell, a);
        let region = EdgeRegion::create(DEPTH, BLOCKS).expect("memory");
        let (a, b) = Seqpacket::pair().expect("a socket");
        consumer.attach(1, &region, &producer.wake, b);
        producer.attach(1, Policy::DropOldest, &region, &consumer.wake, a);
        Self {
            producer,
            edge,
            bell,
            _socket: socket,
            consumer,
        }
    }

    /// Sends `count` blocks, each of which the honest consumer must receive.
    fn assert_other_works(&mut self, count: usize) {
        for number in 0..count {
            send(&self.producer.output, &vec![number as u8; 70_000]);
            let sample = expect_sample(&mut self.consumer, 1);
            assert!(sample.payload().iter().all(|&byte| byte == number as u8));
        }
    }
}

#[test]
fn an_impossible_tail_cuts_the_edge_off_once() {
    for policy in [Policy::DropOldest, Policy::DropNewest, Policy::Block] {
        for tail in [2, u64::from(DEPTH) + 5, u64::MAX - 100, 1 << 63] {
            let mut hostile = HonestProducerBesideHostile::new(policy);
            hostile.assert_other_works(1);
            hostile.edge.write_word(TAIL, tail);
            // A `block` edge must not block, either.
            hostile.assert_other_works(40);
            let cut = hostile.producer.cut();
            assert!(
                matches!(
                    cut.as_slice(),
                    [(0, Misbehaviour::Ring(RingError::Counters { .. }))]
                ),
                "{tail}: {cut:?}"
            );
            assert_eq!(
                send(&hostile.producer.output, b"x"),
                Receipt {
                    queued: 1,
                    missed: 1
                }
            );
            let counters = hostile.producer.process.counters.output(0);
            assert_eq!(counters.sent + counters.lost(), 42, "{counters:?}");
        }
    }
}

/// The leases of blocks that the consumer was given, and of others.
#[test]
fn leases_that_are_never_cleared_cost_other_edges_nothing() {
    for policy in [Policy::DropOldest, Policy::DropNewest] {
        let mut hostile = HonestProducerBesideHostile::new(policy);
        for round in 0..100_u64 {
            hostile.edge.write(LEASES, &[0xff; BLOCKS as usize * 4]);
            // The consumer takes the queued samples, as if it had read them.
            hostile.edge.write_word(TAIL, hostile.edge.read_word(HEAD));
            hostile.assert_other_works(1);
            if round == 50 {
                let counters = hostile.producer.process.counters.output(0);
                assert!(counters.missed_held > 0, "{counters:?}");
            }
        }
        // The blocks that it may hold, and those for the other edge; not one per sample.
        assert!(hostile.producer.process.budget.used() < 40 * 81_920);
        assert!(
            hostile.producer.cut().is_empty(),
            "holding many blocks breaks no rule"
        );
    }
}

#[test]
fn leases_that_are_cleared_too_soon_harm_only_their_consumer() {
    let mut hostile = HonestProducerBesideHostile::new(Policy::DropOldest);
    let mut held = Vec::new();
    for number in 0..60_u8 {
        send(&hostile.producer.output, &vec![number; 70_000]);
        hostile.edge.write(LEASES, &[0; BLOCKS as usize * 4]);
        held.push((number, expect_sample(&mut hostile.consumer, 1)));
        if held.len() > 6 {
            held.remove(0);
        }
        for (number, sample) in &held {
            assert!(
                sample.payload().iter().all(|byte| byte == number),
                "the block was overwritten"
            );
        }
    }
}

/// The slots are not trusted when the producer makes room, nor when it sends the references of
/// queued samples to the next incarnation.
#[test]
fn slots_that_the_consumer_rewrote_are_not_trusted() {
    for word in [
        0,
        31,
        32,
        u64::from(u32::MAX) - 1,
        u64::from(u32::MAX),
        5 << 32,
        u64::MAX - 1,
        u64::MAX,
    ] {
        let mut hostile = HonestProducerBesideHostile::new(Policy::DropOldest);
        for _ in 0..30 {
            for index in 0..u64::from(DEPTH) {
                hostile.edge.describe(index, word, word, word, word);
            }
            hostile.assert_other_works(1);
        }
        hostile.producer.output.detach(0, true);
        for index in 0..u64::from(DEPTH) {
            hostile.edge.describe(index, word, word, word, word);
        }
        let (a, _b) = Seqpacket::pair().expect("a socket");
        hostile
            .producer
            .attach(0, Policy::DropOldest, &hostile.edge.0, &hostile.bell, a);
        hostile.assert_other_works(30);
    }
}

#[test]
fn a_consumer_that_takes_nothing_blocks_only_until_it_is_detached() {
    let hostile = HonestProducerBesideHostile::new(Policy::Block);
    for _ in 0..DEPTH {
        send(&hostile.producer.output, b"x");
    }
    let mut loan = hostile
        .producer
        .output
        .loan(1, 0, Wait::Never)
        .expect("memory");
    let refused = hostile
        .producer
        .output
        .publish(&mut loan, Header::default(), b"", Wait::Never)
        .expect_err("full");
    assert!(matches!(refused, SendError::WouldBlock { .. }));
    // The keeper ends the edge.
    hostile.producer.output.detach(0, false);
    assert!(
        hostile
            .producer
            .output
            .publish(&mut loan, Header::default(), b"", Wait::Never)
            .is_ok()
    );
}

/// The consumer rewrites every word that it can, while the producer works.
#[test]
fn a_producer_survives_whatever_is_written_while_it_publishes() {
    for seed in 1..20 {
        for policy in [Policy::DropOldest, Policy::DropNewest] {
            let mut hostile = HonestProducerBesideHostile::new(policy);
            let is_over = AtomicBool::new(false);
            let edge = std::mem::replace(&mut hostile.edge, RawEdge::new());
            let (bell, producer_wake) = (&hostile.bell, &hostile.producer.wake);
            let (bell, producer_wake) = (
                bell.try_clone().expect("a descriptor"),
                producer_wake.try_clone().expect("a descriptor"),
            );
            thread::scope(|scope| {
                scope.spawn(|| {
                    let mut random = Rng::with_seed(seed);
                    while !is_over.load(SeqCst) {
                        edge.write_word(
                            random.u64(..edge.bytes() / 8) * 8,
                            harmful_word(&mut random),
                        );
                        if random.u64(..4) == 0 {
                            edge.write_word(
                                TAIL,
                                edge.read_word(HEAD).wrapping_sub(random.u64(..10)),
                            );
                        }
                        for page in [&bell, &producer_wake] {
                            let word = 64 + random.u64(..4096 / 8 - 8) * 8;
                            rustix::io::pwrite(
                                page,
                                &harmful_word(&mut random).to_ne_bytes(),
                                word,
                            )
                            .expect("a shared page");
                        }
                    }
                });
                hostile.assert_other_works(150);
                is_over.store(true, SeqCst);
            });
            assert!(hostile.producer.cut().len() <= 1);
            // Detaching the edge meets the same memory.
            hostile.producer.output.detach(0, seed % 2 == 0);
            hostile.assert_other_works(10);
        }
    }
}
