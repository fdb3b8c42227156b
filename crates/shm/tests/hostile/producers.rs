//! Producers that write nonsense into the ring of an honest consumer.

use crate::rig::{ATTACHED, BLOCKS, BesideHostile, DEPTH, HEAD, NO_BLOCK, RawEdge, SEGMENT, TAIL};
use crate::rig::{expect_sample, packet, segment};
use crate::words::harmful_word;
use fastrand::Rng;
use nervure_shm::{Arrival, Misbehaviour, RingError};
use rustix::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

const PAGE: usize = 4096;
const SEGMENT_BYTES: usize = 4 * PAGE;

/// A valid edge with a segment 3 of four pages, and one descriptor in its ring.
fn after_descriptor(block: u64, offset: u64, payload: u64, head: u64) -> BesideHostile {
    let hostile = BesideHostile::new();
    let fd = segment(SEGMENT_BYTES);
    hostile
        .socket
        .send(&packet(SEGMENT, 3, SEGMENT_BYTES as u64), &[fd.as_fd()])
        .expect("room");
    hostile
        .socket
        .send(&packet(ATTACHED, 0, 0), &[])
        .expect("room");
    hostile.edge.describe(0, block, offset, payload, head);
    hostile.edge.write_word(HEAD, 1);
    hostile
}

fn at(block: u64, segment: u64) -> u64 {
    block | segment << 32
}

#[test]
fn the_last_byte_of_a_segment_is_in_bounds() {
    let end = SEGMENT_BYTES as u64;
    for (offset, payload, head) in [
        (0, end, 0),
        (256, end - 256, 5),
        (end - 256, 256, 0),
        (0, end - 1000, 1000),
    ] {
        let mut hostile = after_descriptor(at(0, 3), offset, payload, head);
        let sample = expect_sample(&mut hostile.consumer, 0);
        assert_eq!(
            (sample.payload().len() as u64, sample.head().len() as u64),
            (payload, head)
        );
    }
}

#[test]
fn a_descriptor_beyond_its_segment_is_refused() {
    let end = SEGMENT_BYTES as u64;
    let cases = [
        (0, end + 1, 0),
        (end, 1, 0),
        (end - 256, 257, 0),
        (256, end, 0),
        (0, u64::MAX, 0),
        (256, u64::MAX - 255, 0),
        (u64::MAX - 255, 256, 0),
        (1 << 63, 1 << 63, 0),
        (0, end - 999, 1000),
        (0, end, 257),
        (0, u64::MAX, 1000),
        (0, u64::MAX - 7, 1000),
        (u64::MAX - 255, 0, 257),
    ];
    for (offset, payload, head) in cases {
        let found = after_descriptor(at(0, 3), offset, payload, head).misbehaviour();
        assert!(
            matches!(found, Misbehaviour::Bounds { .. }),
            "{offset} {payload} {head}: {found:?}"
        );
    }
}

#[test]
fn a_block_that_is_not_aligned_is_refused() {
    for offset in [1, 8, 64, 128, 255, 257] {
        let found = after_descriptor(at(0, 3), offset, 10, 0).misbehaviour();
        assert!(
            matches!(found, Misbehaviour::Bounds { .. }),
            "{offset}: {found:?}"
        );
    }
}

#[test]
fn a_block_beyond_the_lease_table_is_refused() {
    for block in [BLOCKS, BLOCKS + 1, 1 << 20, u32::MAX - 1] {
        let found = after_descriptor(at(u64::from(block), 3), 0, 10, 0).misbehaviour();
        assert_eq!(
            found,
            Misbehaviour::Block {
                block,
                blocks: BLOCKS
            }
        );
    }
}

#[test]
fn a_segment_that_was_never_sent_is_refused() {
    for segment in [0, 2, 4, u32::MAX] {
        let found = after_descriptor(at(0, u64::from(segment)), 0, 10, 0).misbehaviour();
        assert_eq!(found, Misbehaviour::Segment { segment });
    }
}

#[test]
fn a_segment_that_never_comes_delays_nothing_else() {
    let mut hostile = BesideHostile::new();
    hostile.edge.describe(0, at(0, 9), 0, 10, 0);
    hostile.edge.write_word(HEAD, 1);
    for _ in 0..1000 {
        hostile.consumer.ring();
        hostile.assert_others_work();
    }
    // The segment may still come: a restarted consumer finds its predecessor's samples in this way.
    let fd = segment(PAGE);
    hostile
        .socket
        .send(&packet(SEGMENT, 9, PAGE as u64), &[fd.as_fd()])
        .expect("room");
    hostile.consumer.ring();
    assert_eq!(expect_sample(&mut hostile.consumer, 0).payload().len(), 10);
}

#[test]
fn a_sample_whose_memory_is_gone_with_its_producer_is_counted_and_skipped() {
    let mut hostile = BesideHostile::new();
    hostile.edge.describe(0, at(0, 9), 0, 10, 0);
    hostile.edge.describe(1, NO_BLOCK, 0, 11, 0);
    hostile.edge.write_word(HEAD, 2);
    drop(std::mem::replace(
        &mut hostile.socket,
        nervure_shm::Seqpacket::pair().expect("a socket").0,
    ));
    assert_eq!(expect_sample(&mut hostile.consumer, 0).payload().len(), 11);
    let counters = hostile.consumer.counters.input(0);
    assert_eq!((counters.lost, counters.received, counters.held), (1, 1, 0));
}

#[test]
fn a_head_beyond_every_limit_is_refused() {
    for (block, head) in [
        (at(0, 3), 64 * 1024 + 1),
        (at(0, 3), u64::from(u32::MAX)),
        (NO_BLOCK, 1 << 20),
    ] {
        let found = after_descriptor(block, 0, 10, head).misbehaviour();
        assert!(
            matches!(found, Misbehaviour::Head { .. }),
            "{head}: {found:?}"
        );
    }
}

#[test]
fn a_small_sample_beyond_its_slot_is_refused() {
    for (payload, head) in [
        (257, 0),
        (0, 257),
        (200, 57),
        (249, 8),
        (u64::MAX, 0),
        (u64::MAX - 7, 1),
        (u64::MAX - 6, 0),
        (1 << 32, 0),
    ] {
        let found = after_descriptor(NO_BLOCK, 0, payload, head).misbehaviour();
        assert!(
            matches!(found, Misbehaviour::Bounds { .. }),
            "{payload} {head}: {found:?}"
        );
    }
    let mut hostile = after_descriptor(NO_BLOCK, 0, 248, 8);
    assert_eq!(expect_sample(&mut hostile.consumer, 0).head().len(), 8);
}

#[test]
fn counters_further_apart_than_the_ring_are_refused() {
    let cap = u64::from(DEPTH);
    for (head, tail) in [
        (cap + 1, 0),
        (u64::MAX, 0),
        (0, 1),
        (5, 6),
        (1 << 63, 0),
        (0, u64::MAX - cap),
        (7, 1 << 40),
    ] {
        let mut hostile = BesideHostile::new();
        hostile.edge.write_word(TAIL, tail);
        hostile.edge.write_word(HEAD, head);
        let found = hostile.misbehaviour();
        assert!(
            matches!(found, Misbehaviour::Ring(RingError::Counters { .. })),
            "{head} {tail}: {found:?}"
        );
    }
}

#[test]
fn counters_may_wrap_around() {
    let mut hostile = BesideHostile::new();
    for index in 0..8 {
        hostile.edge.describe(index, NO_BLOCK, 0, index, 0);
    }
    hostile.edge.write_word(TAIL, u64::MAX - 3);
    hostile.edge.write_word(HEAD, 2);
    let lengths: Vec<_> = (0..6)
        .map(|_| expect_sample(&mut hostile.consumer, 0).payload().len())
        .collect();
    assert_eq!(lengths, [4, 5, 6, 7, 0, 1]);
    assert!(hostile.consumer.next().is_none());
}

#[test]
fn an_edge_that_was_cut_off_still_closes_its_input() {
    let mut hostile = BesideHostile::new();
    hostile.edge.write_word(HEAD, u64::MAX);
    hostile.misbehaviour();
    hostile.consumer.inbox.handle().close(0, true);
    assert!(matches!(
        hostile.consumer.next(),
        Some(Arrival::Closed { input: 0 })
    ));
}

#[test]
fn misbehaviour_found_by_take_newest_is_reported_too() {
    let mut hostile = after_descriptor(at(0, 77), 0, 10, 0);
    hostile.consumer.inbox.refresh();
    assert!(
        hostile
            .consumer
            .inbox
            .take_newest(0)
            .expect("not forked")
            .is_none()
    );
    assert_eq!(
        hostile.misbehaviour(),
        Misbehaviour::Segment { segment: 77 }
    );
}

/// Races that no table of cases covers: every word of the region changes while the consumer reads.
#[test]
fn a_consumer_survives_whatever_is_written_while_it_reads() {
    for seed in 1..40 {
        let mut hostile = BesideHostile::new();
        let fd = segment(SEGMENT_BYTES);
        for id in 0..4 {
            hostile
                .socket
                .send(&packet(SEGMENT, id, SEGMENT_BYTES as u64), &[fd.as_fd()])
                .expect("room");
        }
        hostile
            .socket
            .send(&packet(ATTACHED, 0, 0), &[])
            .expect("room");
        let edge = std::mem::replace(&mut hostile.edge, RawEdge::new());
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| scribble(&edge, seed, &is_over));
            let mut held = Vec::new();
            for _ in 0..2000 {
                hostile.consumer.ring();
                match hostile.consumer.next() {
                    Some(Arrival::Sample { sample, .. }) => {
                        let sum: u64 = sample
                            .payload()
                            .iter()
                            .chain(sample.head())
                            .map(|&b| u64::from(b))
                            .sum();
                        held.push((sum, sample));
                    }
                    Some(Arrival::Misbehaved { .. }) => break,
                    _ => {}
                }
                if held.len() > 5 {
                    held.clear();
                }
            }
            is_over.store(true, SeqCst);
        });
        hostile.assert_others_work();
    }
}

/// Writes mostly valid descriptors and counters, and sometimes anything.
fn scribble(edge: &RawEdge, seed: u64, is_over: &AtomicBool) {
    let mut random = Rng::with_seed(seed);
    let mut head = 0;
    while !is_over.load(SeqCst) {
        let descriptor = match random.u64(..3) {
            0 => (NO_BLOCK, 0, random.u64(..256), 0),
            1 => (
                at(random.u64(..32), random.u64(..4)),
                256,
                random.u64(..16_000),
                random.u64(..256),
            ),
            _ => (
                at(random.u64(..32), random.u64(..4)),
                0,
                random.u64(..4000),
                300,
            ),
        };
        let (block, offset, payload, head_bytes) = descriptor;
        edge.describe(head, block, offset, payload, head_bytes);
        head = head.wrapping_add(1);
        let tail = edge.read_word(TAIL);
        if head.wrapping_sub(tail) < u64::from(DEPTH) {
            edge.write_word(HEAD, head);
        } else {
            head = tail;
        }
        match random.u64(..300) {
            0 => edge.write_word(TAIL, head.wrapping_sub(random.u64(..8))),
            1 => edge.write_word(
                random.u64(..edge.bytes() / 8) * 8,
                harmful_word(&mut random),
            ),
            2 => edge.describe(
                random.u64(..),
                harmful_word(&mut random),
                harmful_word(&mut random),
                harmful_word(&mut random),
                harmful_word(&mut random),
            ),
            _ => {}
        }
    }
}

/// The tail keeps changing while the ring seems to hold a sample.
#[test]
fn a_tail_that_keeps_changing_does_not_trap_the_consumer() {
    let mut hostile = BesideHostile::new();
    let edge = std::mem::replace(&mut hostile.edge, RawEdge::new());
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut index = 0_u64;
            while !is_over.load(SeqCst) {
                index += 1;
                edge.write(HEAD, &(index + 4).to_ne_bytes());
                edge.write(TAIL, &index.to_ne_bytes());
            }
        });
        for _ in 0..200 {
            hostile.consumer.ring();
            if matches!(hostile.consumer.next(), Some(Arrival::Misbehaved { .. })) {
                break;
            }
        }
        is_over.store(true, SeqCst);
    });
    hostile.assert_others_work();
}
