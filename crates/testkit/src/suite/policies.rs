//! Edges with a full queue.

use super::{Line, block, drain, next_sample, queue, small};
use crate::content::Content;
use crate::plane::{Plane, PlaneInbox, PlaneOutput, PlaneSample, Receipt, Refusal, Sent, Wait};
use nervure_protocol::wiring::Policy;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const SHORT: Duration = Duration::from_millis(20);

/// Holds for any depth, and for samples with and without blocks.
pub fn drop_oldest_keeps_the_newest<P: Plane>(plane: &P) {
    for depth in [1, 2, 3, 10] {
        for content in [small, block] {
            let mut line = Line::new(plane, queue(Policy::DropOldest, depth));
            for number in 0..25 {
                let receipt = content(number)
                    .send(&line.output, Wait::Forever)
                    .expect("no wait");
                assert_eq!(
                    receipt,
                    Receipt {
                        queued: 1,
                        missed: 0
                    }
                );
            }
            let kept = u64::from(depth);
            assert_eq!(drain(&mut line.inbox), (25 - kept..25).collect::<Vec<_>>());
            let bytes = 25 * content(0).payload_bytes as u64;
            assert_eq!(
                line.sent(),
                Sent {
                    sent: 25,
                    bytes,
                    dropped_oldest: 25 - kept,
                    ..Sent::default()
                }
            );
        }
    }
}

/// Holds for any depth.
pub fn drop_newest_keeps_the_oldest<P: Plane>(plane: &P) {
    for depth in [1, 2, 3, 10] {
        let mut line = Line::new(plane, queue(Policy::DropNewest, depth));
        for number in 0..25 {
            let queued = u32::from(number < u64::from(depth));
            let receipt = small(number)
                .send(&line.output, Wait::Forever)
                .expect("no wait");
            assert_eq!(
                receipt,
                Receipt {
                    queued,
                    missed: 1 - queued
                }
            );
        }
        let kept = u64::from(depth);
        assert_eq!(drain(&mut line.inbox), (0..kept).collect::<Vec<_>>());
        assert_eq!(
            line.sent(),
            Sent {
                sent: kept,
                bytes: kept * 24,
                dropped_newest: 25 - kept,
                ..Sent::default()
            }
        );
    }
}

/// Nothing is published on any edge, and no sequence number is used up.
pub fn a_full_block_edge_refuses_a_try_and_publishes_nothing<P: Plane>(plane: &P) {
    let mut line = Line::new(plane, queue(Policy::Block, 2));
    let (other, mut other_inbox) = plane.consumer(1);
    let other_edge = plane.connect(&line.output, &other, 0, queue(Policy::DropOldest, 10));
    for number in 0..2 {
        small(number).send(&line.output, Wait::Never).expect("room");
    }
    for content in [small(9), block(9)] {
        assert_eq!(
            content.send(&line.output, Wait::Never),
            Err(Refusal::WouldBlock)
        );
    }
    assert_eq!((line.sent().sent, plane.sent(other_edge).sent), (2, 2));
    assert_eq!(next_sample(&mut line.inbox, 0).header().sequence, 0);
    small(2).send(&line.output, Wait::Never).expect("room");
    assert_eq!(drain(&mut line.inbox), [1, 2]);
    let sequences: Vec<u64> = (0..3)
        .map(|_| next_sample(&mut other_inbox, 0).header().sequence)
        .collect();
    assert_eq!(sequences, [0, 1, 2]);
    assert_eq!(
        line.sent(),
        Sent {
            sent: 3,
            bytes: 72,
            ..Sent::default()
        }
    );
}

/// The filled loan is returned intact.
pub fn a_full_block_edge_times_out_and_the_loan_can_be_tried_again<P: Plane>(plane: &P) {
    use crate::plane::PlaneLoan;
    for content in [small, block] {
        let mut line = Line::new(plane, queue(Policy::Block, 1));
        content(0).send(&line.output, Wait::Never).expect("room");
        let mut loan = line
            .output
            .loan(content(1).payload_bytes, 0, Wait::Never)
            .expect("memory");
        content(1).fill(loan.payload_mut());
        for (wait, expected) in [
            (Wait::AtMost(SHORT), Refusal::TimedOut),
            (Wait::AtMost(Duration::ZERO), Refusal::TimedOut),
        ] {
            let (again, refusal) = line
                .output
                .publish(loan, content(1).header(), b"", wait)
                .expect_err("full");
            assert_eq!(refusal, expected);
            loan = again;
        }
        assert_eq!(drain(&mut line.inbox), [0]);
        assert!(
            line.output
                .publish(loan, content(1).header(), b"", Wait::AtMost(SHORT))
                .is_ok()
        );
        assert_eq!(drain(&mut line.inbox), [1]);
    }
}

/// The consumer wakes the producer.
pub fn a_blocked_send_goes_on_when_there_is_room<P: Plane>(plane: &P) {
    let mut line = Line::new(plane, queue(Policy::Block, 1));
    small(0).send(&line.output, Wait::Never).expect("room");
    let (output, inbox) = (&line.output, &mut line.inbox);
    let (done, is_done) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1..200 {
                small(number).send(output, Wait::Forever).expect("room");
                done.send(number).expect("the test listens");
            }
        });
        // The queue is full until a sample is taken, so the sender is at most one sample ahead.
        for number in 0..200 {
            assert!(is_done.try_iter().all(|sent| sent <= number));
            assert_eq!(Content::check(&next_sample(inbox, 0)).number, number);
            if number > 0 && number % 3 == 0 {
                // Gives the producer an occasion to fall asleep.
                thread::yield_now();
            }
        }
    });
    assert_eq!(line.sent().sent, 200);
}

/// A fast producer with a slow consumer, the reverse, and both at once.
pub fn block_loses_nothing_at_any_rates<P: Plane>(plane: &P) {
    const COUNT: u64 = 1500;
    for depth in [1, 2, 10] {
        for (producer_pauses, consumer_pauses) in [(false, true), (true, false), (false, false)] {
            let mut line = Line::new(plane, queue(Policy::Block, depth));
            let (output, inbox) = (&line.output, &mut line.inbox);
            let pause = |pauses: bool, number: u64| {
                if pauses && number.is_multiple_of(101) {
                    thread::sleep(Duration::from_micros(300));
                }
            };
            thread::scope(|scope| {
                scope.spawn(move || {
                    for number in 0..COUNT {
                        pause(producer_pauses, number);
                        let payload_bytes = [8, 250, 300, 5000, 70_000][number as usize % 5];
                        Content::new(number, payload_bytes)
                            .send(output, Wait::Forever)
                            .expect("room");
                    }
                });
                for number in 0..COUNT {
                    pause(consumer_pauses, number);
                    assert_eq!(Content::check(&next_sample(inbox, 0)).number, number);
                }
            });
            assert!(line.inbox.try_next().is_none());
            let sent = line.sent();
            assert_eq!(
                sent,
                Sent {
                    sent: COUNT,
                    bytes: sent.bytes,
                    ..Sent::default()
                }
            );
        }
    }
}

/// Covers sends that wait for a queue or for memory, and sends that would wait later.
pub fn stop_ends_blocked_sends<P: Plane>(plane: &P) {
    let line = Line::new(plane, queue(Policy::Block, 1));
    small(0).send(&line.output, Wait::Never).expect("room");
    thread::scope(|scope| {
        let waiting: Vec<_> = [Wait::Forever, Wait::AtMost(Duration::from_secs(3600))]
            .into_iter()
            .map(|wait| {
                let output = &line.output;
                scope.spawn(move || small(1).send(output, wait))
            })
            .collect();
        plane.stop(&line.output);
        for thread in waiting {
            assert_eq!(thread.join().expect("no panic"), Err(Refusal::Stopped));
        }
    });
    assert_eq!(
        small(2).send(&line.output, Wait::Forever),
        Err(Refusal::Stopped)
    );
    assert_eq!(
        small(2).send(&line.output, Wait::Never),
        Err(Refusal::WouldBlock)
    );
}

/// A node may still publish its last samples.
pub fn stop_leaves_sends_that_have_room_alone<P: Plane>(plane: &P) {
    let mut line = Line::new(plane, queue(Policy::Block, 4));
    plane.stop(&line.output);
    for number in 0..4 {
        small(number)
            .send(&line.output, Wait::Forever)
            .expect("room");
    }
    assert_eq!(drain(&mut line.inbox), [0, 1, 2, 3]);
}
