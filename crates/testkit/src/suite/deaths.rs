//! The death of either end of an edge.

use super::{Line, block, drain, drain_until_closed, hold, next_sample, queue, small};
use crate::plane::{Arrival, Limits, Plane, PlaneInbox, PlaneSample, Refusal, Sent, Wait};
use nervure_protocol::wiring::{Policy, Queue};
use std::thread;

/// The queue of the dead consumer counts as undelivered.
pub fn a_blocked_producer_goes_on_when_its_consumer_dies_for_good<P: Plane>(plane: &P) {
    let line = Line::new(plane, queue(Policy::Block, 3));
    for number in 0..3 {
        small(number).send(&line.output, Wait::Never).expect("room");
    }
    thread::scope(|scope| {
        let output = &line.output;
        let blocked = scope.spawn(move || small(3).send(output, Wait::Forever));
        plane.consumer_died(&line.consumer, line.inbox, Vec::new(), false);
        blocked
            .join()
            .expect("no panic")
            .expect("no consumer is left to wait for");
    });
    let sent = plane.sent(line.edge);
    assert_eq!(
        sent,
        Sent {
            sent: 3,
            bytes: 72,
            undelivered: 3,
            ..Sent::default()
        }
    );
}

/// They are free at once, whether the consumer is restarted or not, so that a death costs no
/// memory.
pub fn blocks_of_a_dead_consumer_are_reused<P: Plane>(plane: &P) {
    for policy in Policy::ALL {
        for restarts in [false, true] {
            let limits = Limits {
                blocks: 6,
                ..Limits::default()
            };
            let mut line = Line::with_limits(
                plane,
                Queue {
                    policy,
                    depth: 6,
                    max_held: 6,
                },
                limits,
            );
            for number in 0..6 {
                block(number)
                    .send(&line.output, Wait::Never)
                    .expect("a block");
            }
            let held = hold::<P>(&mut line.inbox, 4);
            let before = plane.memory_bytes(&line.output);
            plane.consumer_died(&line.consumer, line.inbox, held, restarts);
            let inherits = restarts && policy.is_lossless();
            let (consumer, mut inbox) = plane.consumer(1);
            plane.reconnect(line.edge, &consumer);
            let free = if inherits { 6..10 } else { 6..12 };
            for number in free.clone() {
                block(number)
                    .send(&line.output, Wait::Never)
                    .expect("a block");
            }
            let expected: Vec<u64> = if inherits {
                (4..10).collect()
            } else {
                free.collect()
            };
            assert_eq!(drain(&mut inbox), expected);
            assert!(plane.memory_bytes(&line.output) <= before.max(6 * 100_352));
        }
    }
}

/// It gets everything that the dead process had not received, in order. Blocks that the dead
/// process held are counted.
pub fn a_restarted_consumer_inherits_a_block_edge<P: Plane>(plane: &P) {
    let mut line = Line::new(plane, queue(Policy::Block, 8));
    for number in 0..8 {
        block(number).send(&line.output, Wait::Never).expect("room");
    }
    drop(hold::<P>(&mut line.inbox, 2));
    let held = hold::<P>(&mut line.inbox, 3);
    plane.consumer_died(&line.consumer, line.inbox, held, true);
    assert_eq!(plane.sent(line.edge).lost_in_crash, 3);
    let (consumer, mut inbox) = plane.consumer(1);
    assert_eq!(plane.reconnect(line.edge, &consumer), line.edge);
    assert_eq!(drain(&mut inbox), [5, 6, 7]);
    for number in 8..20 {
        block(number).send(&line.output, Wait::Never).expect("room");
        assert_eq!(drain(&mut inbox), [number]);
    }
    let sent = plane.sent(line.edge);
    assert_eq!(
        (sent.sent, sent.lost_in_crash, sent.undelivered),
        (20, 3, 0)
    );
    assert_eq!(plane.received(&consumer, 0).received, 15);
}

/// Memory that was announced to the dead process must be announced to the new one, on all of its
/// edges.
pub fn a_restarted_consumer_inherits_every_block_edge_of_an_output<P: Plane>(plane: &P) {
    let output = plane.producer(Limits::default());
    let (mut consumer, mut inbox) = plane.consumer(3);
    let mut edges: Vec<_> = [Policy::Block, Policy::DropOldest, Policy::Block]
        .into_iter()
        .enumerate()
        .map(|(input, policy)| plane.connect(&output, &consumer, input as u32, queue(policy, 4)))
        .collect();
    for incarnation in 0..4 {
        for number in 0..2 {
            block(incarnation * 2 + number)
                .send(&output, Wait::Never)
                .expect("room");
        }
        let mut held = Vec::new();
        for _ in 0..3 {
            let Arrival::Sample(_, sample) = inbox.next() else {
                panic!("closed")
            };
            held.push(sample);
        }
        plane.consumer_died(&consumer, inbox, held, true);
        (consumer, inbox) = plane.consumer(3);
        for edge in &mut edges {
            *edge = plane.reconnect(*edge, &consumer);
        }
        let left = drain(&mut inbox);
        assert!(
            left.iter()
                .filter(|&&number| number == incarnation * 2 + 1)
                .count()
                >= 2,
            "{left:?}"
        );
    }
}

/// The new edge begins empty, or with the history.
pub fn a_restarted_consumer_gets_a_new_drop_edge<P: Plane>(plane: &P) {
    for history in [0, 2] {
        let limits = Limits {
            history,
            ..Limits::default()
        };
        let mut line = Line::with_limits(plane, queue(Policy::DropOldest, 4), limits);
        for number in 0..4 {
            block(number).send(&line.output, Wait::Never).expect("room");
        }
        let held = hold::<P>(&mut line.inbox, 1);
        plane.consumer_died(&line.consumer, line.inbox, held, true);
        assert_eq!(plane.sent(line.edge).undelivered, 3);
        let (consumer, mut inbox) = plane.consumer(1);
        assert_ne!(plane.reconnect(line.edge, &consumer), line.edge);
        block(4).send(&line.output, Wait::Never).expect("room");
        assert_eq!(
            drain(&mut inbox),
            (4 - u64::from(history)..5).collect::<Vec<_>>()
        );
    }
}

/// It waits until the next process has received something.
pub fn a_producer_waits_while_its_consumer_is_away<P: Plane>(plane: &P) {
    let line = Line::new(plane, queue(Policy::Block, 2));
    plane.consumer_died(&line.consumer, line.inbox, Vec::new(), true);
    for number in 0..2 {
        block(number).send(&line.output, Wait::Never).expect("room");
    }
    assert_eq!(
        block(2).send(&line.output, Wait::Never),
        Err(Refusal::WouldBlock)
    );
    thread::scope(|scope| {
        let output = &line.output;
        let blocked = scope.spawn(move || block(2).send(output, Wait::Forever));
        let (consumer, mut inbox) = plane.consumer(1);
        plane.reconnect(line.edge, &consumer);
        for number in 0..3 {
            assert_eq!(next_sample(&mut inbox, 0).header().correlation_id, number);
        }
        blocked.join().expect("no panic").expect("room");
    });
}

/// Also if the end was announced before anything was received.
pub fn an_input_is_drained_then_closed_once<P: Plane>(plane: &P) {
    let mut line = Line::new(plane, queue(Policy::Block, 8));
    for number in 0..8 {
        block(number).send(&line.output, Wait::Never).expect("room");
    }
    plane.producer_gone(&line.output, true);
    drop(line.output);
    assert_eq!(
        drain_until_closed(&mut line.inbox),
        (0..8).collect::<Vec<_>>()
    );
    plane.wake(&line.consumer);
    assert!(line.inbox.try_next().is_none());
}

/// Also without any sample, and in any order with the ends of other inputs.
pub fn an_idle_input_closes_too<P: Plane>(plane: &P) {
    let (consumer, mut inbox) = plane.consumer(3);
    let outputs: Vec<_> = (0..3)
        .map(|input| {
            let output = plane.producer(Limits::default());
            plane.connect(&output, &consumer, input, queue(Policy::DropOldest, 2));
            output
        })
        .collect();
    for (output, last) in outputs.iter().zip([true, false, true]) {
        plane.producer_gone(output, last);
    }
    let mut closed = Vec::new();
    while let Some(arrival) = inbox.try_next() {
        match arrival {
            Arrival::Closed(input) => closed.push(input),
            Arrival::Sample(..) => panic!("nothing was sent"),
        }
    }
    closed.sort_unstable();
    assert_eq!(closed, [0, 2]);
}

/// Both incarnations are wired at the same time.
pub fn the_next_incarnation_comes_after_the_old_one_is_drained<P: Plane>(plane: &P) {
    let mut line = Line::new(plane, queue(Policy::Block, 8));
    for number in 0..3 {
        block(number).send(&line.output, Wait::Never).expect("room");
    }
    let next = plane.producer(Limits {
        incarnation: 1,
        ..Limits::default()
    });
    plane.producer_gone(&line.output, false);
    plane.connect(&next, &line.consumer, 0, queue(Policy::Block, 8));
    for number in 3..6 {
        block(number).send(&next, Wait::Never).expect("room");
    }
    let got: Vec<_> = (0..6)
        .map(|_| {
            let header = next_sample(&mut line.inbox, 0).header();
            (header.incarnation, header.sequence, header.correlation_id)
        })
        .collect();
    assert_eq!(
        got,
        [
            (0, 0, 0),
            (0, 1, 1),
            (0, 2, 2),
            (1, 0, 3),
            (1, 1, 4),
            (1, 2, 5)
        ]
    );
    plane.producer_gone(&next, true);
    assert!(drain_until_closed(&mut line.inbox).is_empty());
}
