//! The history that late joiners get.

use super::{block, drain, next_sample, queue, small};
use crate::plane::{Limits, Plane, PlaneSample, Wait};
use nervure_protocol::wiring::Policy;
use std::thread;

fn keeping(history: u32) -> Limits {
    Limits {
        history,
        ..Limits::default()
    }
}

/// In order, and before anything new.
pub fn a_late_joiner_gets_the_history_first<P: Plane>(plane: &P) {
    for policy in Policy::ALL {
        let output = plane.producer(keeping(3));
        for content in (0..7).map(|number| {
            if number % 2 == 0 {
                block(number)
            } else {
                small(number)
            }
        }) {
            content.send(&output, Wait::Never).expect("room");
        }
        let (consumer, mut inbox) = plane.consumer(1);
        let edge = plane.connect(&output, &consumer, 0, queue(policy, 10));
        assert_eq!(plane.sent(edge).sent, 3);
        block(7).send(&output, Wait::Never).expect("room");
        assert_eq!(drain(&mut inbox), [4, 5, 6, 7]);
    }
}

/// With any policy, the newest samples of the history are delivered.
pub fn a_short_queue_gets_the_newest_of_the_history<P: Plane>(plane: &P) {
    for policy in Policy::ALL {
        let output = plane.producer(keeping(5));
        for number in 0..9 {
            block(number).send(&output, Wait::Never).expect("room");
        }
        let (consumer, mut inbox) = plane.consumer(1);
        plane.connect(&output, &consumer, 0, queue(policy, 2));
        assert_eq!(drain(&mut inbox), [7, 8]);
    }
}

/// Blocks of the history are not overwritten by later samples, and become free when the history
/// moves on.
pub fn history_keeps_its_blocks<P: Plane>(plane: &P) {
    let output = plane.producer(Limits {
        history: 2,
        blocks: 5,
        ..Limits::default()
    });
    let (early, mut early_inbox) = plane.consumer(1);
    plane.connect(&output, &early, 0, queue(Policy::DropOldest, 1));
    let mut late = Vec::new();
    for number in 0..30 {
        block(number).send(&output, Wait::Never).expect("memory");
        drop(next_sample(&mut early_inbox, 0));
        if number % 10 == 5 {
            let (consumer, mut inbox) = plane.consumer(1);
            plane.connect(&output, &consumer, 0, queue(Policy::DropOldest, 1));
            assert_eq!(next_sample(&mut inbox, 0).header().correlation_id, number);
            late.push((consumer, inbox));
        }
    }
}

/// Joining is one step between two publications.
pub fn joining_a_running_output_leaves_no_gap<P: Plane>(plane: &P) {
    const COUNT: u64 = 400;
    let output = plane.producer(keeping(4));
    small(0).send(&output, Wait::Never).expect("room");
    thread::scope(|scope| {
        let (producer, plane_) = (&output, plane);
        scope.spawn(move || {
            for number in 1..COUNT {
                small(number).send(producer, Wait::Forever).expect("room");
            }
            plane_.producer_gone(producer, true);
        });
        for _ in 0..20 {
            let (consumer, mut inbox) = plane.consumer(1);
            plane.connect(
                &output,
                &consumer,
                0,
                queue(Policy::DropNewest, COUNT as u32),
            );
            let got = drain_some(&mut inbox);
            assert!(got.is_sorted_by(|a, b| a + 1 == *b), "{got:?}");
            plane.consumer_died(&consumer, inbox, Vec::new(), false);
        }
    });
}

fn drain_some<I: crate::plane::PlaneInbox>(inbox: &mut I) -> Vec<u64> {
    use crate::plane::Arrival;
    let samples = std::iter::from_fn(|| match inbox.try_next() {
        Some(Arrival::Sample(_, sample)) => Some(sample.header().correlation_id),
        _ => None,
    });
    samples.collect()
}
