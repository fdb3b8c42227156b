//! The limit on the blocks that a consumer holds.

use super::{Line, block, drain, hold, next_sample, numbers, small};
use crate::plane::{Plane, Receipt, Refusal, Sent, Wait};
use nervure_protocol::wiring::{Policy, Queue};
use std::thread;

/// Consumers that hold less miss nothing.
pub fn a_consumer_that_holds_too_much_misses_alone<P: Plane>(plane: &P) {
    for policy in Policy::ALL
        .into_iter()
        .filter(|policy| !policy.is_lossless())
    {
        let mut line = Line::new(
            plane,
            Queue {
                policy,
                depth: 10,
                max_held: 3,
            },
        );
        let (other, mut other_inbox) = plane.consumer(1);
        let other_edge = plane.connect(
            &line.output,
            &other,
            0,
            Queue {
                policy,
                depth: 10,
                max_held: 3,
            },
        );
        let mut held = Vec::new();
        for number in 0..3 {
            block(number)
                .send(&line.output, Wait::Forever)
                .expect("no wait");
            held.push(next_sample(&mut line.inbox, 0));
            drop(next_sample(&mut other_inbox, 0));
        }
        assert_eq!(plane.received(&line.consumer, 0).held, 3);
        for number in 3..8 {
            let receipt = block(number)
                .send(&line.output, Wait::Forever)
                .expect("no wait");
            assert_eq!(
                receipt,
                Receipt {
                    queued: 1,
                    missed: 1
                }
            );
            assert_eq!(drain(&mut other_inbox), [number]);
        }
        assert!(drain(&mut line.inbox).is_empty());
        let bytes = 3 * block(0).payload_bytes as u64;
        assert_eq!(
            line.sent(),
            Sent {
                sent: 3,
                bytes,
                missed_held: 5,
                ..Sent::default()
            }
        );
        assert_eq!(
            plane.sent(other_edge),
            Sent {
                sent: 8,
                bytes: plane.sent(other_edge).bytes,
                ..Sent::default()
            }
        );
        held.pop();
        assert_eq!(
            block(8).send(&line.output, Wait::Forever),
            Ok(Receipt {
                queued: 2,
                missed: 0
            })
        );
        assert_eq!(drain(&mut line.inbox), [8]);
        assert_eq!(numbers(&held), [0, 1]);
    }
}

/// Such samples are in the consumer's own memory.
pub fn samples_without_a_block_are_never_held_against_the_consumer<P: Plane>(plane: &P) {
    for policy in Policy::ALL {
        let mut line = Line::new(
            plane,
            Queue {
                policy,
                depth: 4,
                max_held: 4,
            },
        );
        let mut held = Vec::new();
        for number in 0..50 {
            small(number).send(&line.output, Wait::Never).expect("room");
            held.push(next_sample(&mut line.inbox, 0));
        }
        assert_eq!(numbers(&held), (0..50).collect::<Vec<_>>());
        assert_eq!(plane.received(&line.consumer, 0).held, 0);
    }
}

/// Nothing is lost. The drop of the sample wakes the producer, on any thread.
pub fn a_block_edge_waits_for_blocks_that_its_consumer_holds<P: Plane>(plane: &P) {
    let mut line = Line::new(
        plane,
        Queue {
            policy: Policy::Block,
            depth: 4,
            max_held: 4,
        },
    );
    for number in 0..4 {
        block(number).send(&line.output, Wait::Never).expect("room");
    }
    let mut held = hold::<P>(&mut line.inbox, 4);
    assert_eq!(
        block(4).send(&line.output, Wait::Never),
        Err(Refusal::WouldBlock)
    );
    small(4)
        .send(&line.output, Wait::Never)
        .expect("it takes no block");
    let (output, inbox) = (&line.output, &mut line.inbox);
    thread::scope(|scope| {
        scope.spawn(move || {
            for number in 5..100 {
                block(number).send(output, Wait::Forever).expect("room");
            }
        });
        assert_eq!(numbers(&[next_sample(inbox, 0)]), [4]);
        for number in 5..100 {
            drop(held.remove(0));
            held.push(next_sample(inbox, 0));
            assert_eq!(numbers(&held[3..]), [number]);
        }
    });
    assert_eq!(line.sent().missed_held, 0);
}

/// With `drop_oldest`, held blocks reduce the length of the queue.
pub fn what_is_queued_makes_room_for_newer_blocks<P: Plane>(plane: &P) {
    let mut line = Line::new(
        plane,
        Queue {
            policy: Policy::DropOldest,
            depth: 4,
            max_held: 4,
        },
    );
    for number in 0..2 {
        block(number).send(&line.output, Wait::Never).expect("room");
    }
    let held = hold::<P>(&mut line.inbox, 2);
    for number in 2..8 {
        block(number).send(&line.output, Wait::Never).expect("room");
    }
    assert_eq!(drain(&mut line.inbox), [6, 7]);
    assert_eq!(line.sent().dropped_oldest, 4);
    assert_eq!(numbers(&held), [0, 1]);
}

/// Dropping them would not free any blocks.
pub fn small_samples_are_not_dropped_for_blocks_that_the_consumer_holds<P: Plane>(plane: &P) {
    let mut line = Line::new(
        plane,
        Queue {
            policy: Policy::DropOldest,
            depth: 4,
            max_held: 2,
        },
    );
    for number in 0..2 {
        block(number).send(&line.output, Wait::Never).expect("room");
    }
    let held = hold::<P>(&mut line.inbox, 2);
    for number in 2..4 {
        small(number).send(&line.output, Wait::Never).expect("room");
    }
    assert_eq!(
        block(4).send(&line.output, Wait::Never),
        Ok(Receipt {
            queued: 0,
            missed: 1
        })
    );
    assert_eq!(drain(&mut line.inbox), [2, 3]);
    let sent = line.sent();
    assert_eq!((sent.missed_held, sent.dropped_oldest), (1, 0));
    drop(held);
}
