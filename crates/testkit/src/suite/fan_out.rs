//! One output, many consumers.

use super::{block, drain, drain_until_closed, next_sample, queue, small};
use crate::content::Content;
use crate::plane::{Limits, Plane, Receipt, Refusal, Sent, Wait};
use nervure_protocol::wiring::Policy;
use std::thread;

/// The `block` edge gets everything, the others an ordered subset, and every sample is counted.
pub fn eight_consumers_of_mixed_policies_each_get_their_own<P: Plane>(plane: &P) {
    const COUNT: u64 = 600;
    let output = plane.producer(Limits::default());
    let consumers: Vec<_> = (0..8)
        .map(|index| {
            let (consumer, inbox) = plane.consumer(1);
            let queue = queue(
                Policy::ALL[index % Policy::ALL.len()],
                [1, 4, 16][index / 3],
            );
            (queue, plane.connect(&output, &consumer, 0, queue), inbox)
        })
        .collect();
    thread::scope(|scope| {
        let receivers: Vec<_> = consumers
            .into_iter()
            .map(|(queue, edge, mut inbox)| {
                (
                    queue,
                    edge,
                    scope.spawn(move || drain_until_closed(&mut inbox)),
                )
            })
            .collect();
        for number in 0..COUNT {
            let payload = [10, 1000, 80_000][number as usize % 3];
            Content::new(number, payload)
                .send(&output, Wait::Forever)
                .expect("room");
        }
        plane.producer_gone(&output, true);
        for (queue, edge, receiver) in receivers {
            let received = receiver.join().expect("no panic");
            assert!(received.is_sorted_by(|a, b| a < b), "{received:?}");
            let sent = plane.sent(edge);
            assert_eq!(
                sent.sent + sent.dropped_newest + sent.missed_held,
                COUNT,
                "{queue:?}: {sent:?}"
            );
            assert_eq!(
                received.len() as u64 + sent.dropped_oldest,
                sent.sent,
                "{queue:?}: {sent:?}"
            );
            if queue.policy.is_lossless() {
                assert_eq!(received.len() as u64, COUNT);
            }
            // A loss at either end is one of those counted.
            if sent.dropped_oldest == 0 {
                assert_eq!(received.first(), Some(&0), "{queue:?}");
            }
            if sent.sent == COUNT {
                assert_eq!(received.last(), Some(&(COUNT - 1)), "{queue:?}");
            }
        }
    });
}

/// Nothing is published on any edge until all have room.
pub fn a_full_block_edge_holds_every_edge_back<P: Plane>(plane: &P) {
    let output = plane.producer(Limits::default());
    let mut ends: Vec<_> = [
        (Policy::DropOldest, 8),
        (Policy::Block, 3),
        (Policy::Block, 1),
        (Policy::DropNewest, 8),
    ]
    .into_iter()
    .map(|(policy, depth)| {
        let (consumer, inbox) = plane.consumer(1);
        (
            plane.connect(&output, &consumer, 0, queue(policy, depth)),
            inbox,
        )
    })
    .collect();
    assert_eq!(
        small(0).send(&output, Wait::Never),
        Ok(Receipt {
            queued: 4,
            missed: 0
        })
    );
    assert_eq!(
        small(1).send(&output, Wait::Never),
        Err(Refusal::WouldBlock)
    );
    let sent = |ends: &[(_, _)]| {
        ends.iter()
            .map(|&(edge, _)| plane.sent(edge).sent)
            .collect::<Vec<_>>()
    };
    assert_eq!(sent(&ends), [1; 4]);
    next_sample(&mut ends[2].1, 0);
    assert_eq!(
        small(1).send(&output, Wait::Never),
        Ok(Receipt {
            queued: 4,
            missed: 0
        })
    );
    assert_eq!(sent(&ends), [2; 4]);
}

/// A consumer may read one output twice, with different queues.
pub fn two_edges_to_one_process_are_two_edges<P: Plane>(plane: &P) {
    let output = plane.producer(Limits::default());
    let (consumer, mut inbox) = plane.consumer(2);
    let first = plane.connect(&output, &consumer, 0, queue(Policy::DropOldest, 2));
    let second = plane.connect(&output, &consumer, 1, queue(Policy::DropNewest, 3));
    for number in 0..6 {
        block(number).send(&output, Wait::Never).expect("memory");
    }
    let mut got = drain(&mut inbox);
    got.sort_unstable();
    assert_eq!(got, [0, 1, 2, 4, 5]);
    assert_eq!(plane.sent(first).dropped_oldest, 4);
    assert_eq!(plane.sent(second).dropped_newest, 3);
}

/// No call waits, and nothing is kept.
pub fn an_output_without_edges_publishes_to_no_consumer<P: Plane>(plane: &P) {
    let output = plane.producer(Limits {
        memory_bytes: 300_000,
        ..Limits::default()
    });
    for number in 0..20 {
        assert_eq!(
            block(number).send(&output, Wait::Forever),
            Ok(Receipt::default())
        );
    }
    let (consumer, mut inbox) = plane.consumer(1);
    let edge = plane.connect(&output, &consumer, 0, queue(Policy::DropOldest, 2));
    assert!(drain(&mut inbox).is_empty());
    assert_eq!(plane.sent(edge), Sent::default());
}
