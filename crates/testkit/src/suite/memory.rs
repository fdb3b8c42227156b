//! The memory of producers.

use super::{Line, block, drain, hold, next_sample, numbers, queue, send_served};
use crate::content::Content;
use crate::plane::{Limits, Plane, PlaneOutput, Receipt, Refusal, Wait};
use nervure_protocol::wiring::{Policy, Queue};
use std::thread;
use std::time::Duration;

const KILOBYTE: usize = 1024;
/// A size that is not rounded up by planes with size classes.
const QUARTER: usize = 256 * KILOBYTE;

fn limited(memory_bytes: usize) -> Limits {
    Limits {
        memory_bytes: memory_bytes as u64,
        ..Limits::default()
    }
}

fn quarter(number: u64) -> Content {
    Content::new(number, QUARTER)
}

/// Applies to edges of all policies, since waiting would not help.
pub fn a_sample_beyond_the_limit_is_too_large<P: Plane>(plane: &P) {
    for policy in [Policy::DropOldest, Policy::Block] {
        let line = Line::with_limits(plane, queue(policy, 2), limited(4 * QUARTER));
        for bytes in [
            4 * QUARTER + 1,
            100 * QUARTER,
            usize::MAX / 2,
            usize::MAX - 7,
            usize::MAX,
        ] {
            assert_eq!(
                line.output.loan(bytes, 0, Wait::Forever).err(),
                Some(Refusal::TooLarge),
                "{bytes}"
            );
        }
        assert_eq!(line.sent().missed_memory, 0);
    }
}

/// A sample within the limit must eventually get memory; otherwise a sender would wait forever.
pub fn every_sample_that_is_not_too_large_can_be_sent<P: Plane>(plane: &P) {
    for limit in [
        4096,
        20 * KILOBYTE,
        50 * KILOBYTE,
        100 * KILOBYTE,
        333 * KILOBYTE,
    ] {
        let mut line = Line::with_limits(plane, queue(Policy::Block, 1), limited(limit));
        let mut sent = 0;
        for bytes in (limit / 20..=limit + 4096).step_by(limit / 20) {
            let content = Content::new(sent, bytes);
            match send_served(
                plane,
                &line.output,
                content,
                Wait::AtMost(Duration::from_secs(5)),
            ) {
                Ok(_) => sent += 1,
                Err(refusal) => {
                    assert_eq!(refusal, Refusal::TooLarge, "{bytes} of {limit}");
                    assert!(bytes > limit / 2, "{bytes} of {limit} must do");
                    continue;
                }
            }
            assert_eq!(Content::check(&next_sample(&mut line.inbox, 0)), content);
            plane.serve();
        }
        assert!(sent >= 9);
    }
}

/// An output whose history would take all of its memory can still publish. It keeps as much history
/// as there is room for.
pub fn history_gives_way_to_new_samples<P: Plane>(plane: &P) {
    let output = plane.producer(Limits {
        history: 10,
        ..limited(4 * QUARTER)
    });
    for number in 0..8 {
        quarter(number).send(&output, Wait::Never).expect("memory");
    }
    let (consumer, mut inbox) = plane.consumer(1);
    plane.connect(&output, &consumer, 0, queue(Policy::Block, 10));
    assert_eq!(drain(&mut inbox), [4, 5, 6, 7]);
    for number in 8..30 {
        quarter(number)
            .send(&output, Wait::AtMost(Duration::from_secs(5)))
            .expect("memory");
        assert_eq!(drain(&mut inbox), [number]);
    }
}

/// Each edge counts the samples, and the producer continues.
pub fn drop_edges_count_samples_without_memory<P: Plane>(plane: &P) {
    let mut line = Line::with_limits(plane, queue(Policy::DropOldest, 4), limited(4 * QUARTER));
    let (other, _other_inbox) = plane.consumer(1);
    let other_edge = plane.connect(&line.output, &other, 0, queue(Policy::DropNewest, 1));
    for number in 0..4 {
        quarter(number)
            .send(&line.output, Wait::Forever)
            .expect("memory");
    }
    let held = hold::<P>(&mut line.inbox, 4);
    for number in 4..7 {
        assert_eq!(
            quarter(number).send(&line.output, Wait::Forever),
            Err(Refusal::OutOfMemory)
        );
    }
    assert_eq!(line.sent().missed_memory, 3);
    let other = plane.sent(other_edge);
    assert_eq!(
        (other.sent, other.dropped_newest, other.missed_memory),
        (1, 3, 3)
    );
    assert_eq!(numbers(&held), [0, 1, 2, 3]);
    assert!(plane.memory_bytes(&line.output) <= 4 * QUARTER as u64);
    drop(held);
    quarter(7)
        .send(&line.output, Wait::Forever)
        .expect("memory");
    assert_eq!(drain(&mut line.inbox), [7]);
}

/// They wait for blocks that the consumer holds. The drop of a sample wakes the producer.
pub fn block_edges_wait_for_memory<P: Plane>(plane: &P) {
    let mut line = Line::with_limits(plane, queue(Policy::Block, 8), limited(4 * QUARTER));
    for number in 0..4 {
        quarter(number)
            .send(&line.output, Wait::Never)
            .expect("memory");
    }
    assert_eq!(
        quarter(4).send(&line.output, Wait::Never),
        Err(Refusal::WouldBlock)
    );
    let mut held = hold::<P>(&mut line.inbox, 4);
    let (output, inbox) = (&line.output, &mut line.inbox);
    thread::scope(|scope| {
        scope.spawn(move || {
            for number in 4..60 {
                quarter(number).send(output, Wait::Forever).expect("memory");
            }
        });
        for number in 4..60 {
            drop(held.remove(0));
            held.push(next_sample(inbox, 0));
            assert_eq!(numbers(&held[3..]), [number]);
        }
    });
    assert_eq!(line.sent().missed_memory, 0);
    assert!(plane.memory_bytes(&line.output) <= 4 * QUARTER as u64);
}

/// Memory is constant after the first few samples, even if sizes vary slightly.
pub fn steady_state_uses_no_more_memory<P: Plane>(plane: &P) {
    let mut line = Line::new(plane, queue(Policy::DropOldest, 3));
    let mut after_warming = 0;
    for number in 0..400 {
        let payload_bytes = 2_000_000 - number as usize % 20 * 5000;
        let content = Content::new(number, if number % 4 == 3 { 900 } else { payload_bytes });
        content.send(&line.output, Wait::Never).expect("memory");
        if number % 3 == 2 {
            drop(hold::<P>(&mut line.inbox, 2));
        }
        let memory = plane.memory_bytes(&line.output);
        match number {
            0..120 => after_warming = after_warming.max(memory),
            _ => assert!(
                memory <= after_warming,
                "{memory} bytes after {number} samples, {after_warming} before"
            ),
        }
    }
}

/// Repeated, since a leak would show only after several loans.
pub fn a_dropped_loan_returns_its_block<P: Plane>(plane: &P) {
    let mut line = Line::with_limits(plane, queue(Policy::DropOldest, 2), limited(2 * QUARTER));
    for number in 0..20 {
        let first = line.output.loan(QUARTER, 0, Wait::Never).expect("memory");
        let second = line.output.loan(QUARTER, 0, Wait::Never).expect("memory");
        assert_eq!(
            line.output.loan(QUARTER, 0, Wait::Never).err(),
            Some(Refusal::OutOfMemory)
        );
        drop((first, second));
        assert_eq!(
            quarter(number).send(&line.output, Wait::Never),
            Ok(Receipt {
                queued: 1,
                missed: 0
            })
        );
        assert_eq!(drain(&mut line.inbox), [number]);
    }
}

/// Sizes may change permanently.
pub fn a_larger_sample_pushes_free_blocks_out<P: Plane>(plane: &P) {
    let limits = limited(4 * QUARTER);
    let mut line = Line::with_limits(
        plane,
        Queue {
            policy: Policy::Block,
            depth: 8,
            max_held: 8,
        },
        limits,
    );
    let (output, inbox) = (&line.output, &mut line.inbox);
    for bytes in [
        QUARTER / 2,
        QUARTER,
        2 * QUARTER,
        4 * QUARTER,
        3000,
        QUARTER,
        4 * QUARTER,
    ] {
        for round in 0..3 {
            let content = Content::new(round, bytes);
            send_served(plane, output, content, Wait::Forever).expect("memory");
            assert_eq!(Content::check(&next_sample(inbox, 0)), content);
            assert!(plane.memory_bytes(output) <= 4 * QUARTER as u64);
        }
    }
}

/// Memory that is still viewed is never given out again, pushed out or not.
pub fn memory_counts_until_its_last_view_is_gone<P: Plane>(plane: &P) {
    let mut line = Line::with_limits(plane, queue(Policy::DropOldest, 4), limited(4 * QUARTER));
    for number in 0..2 {
        quarter(number)
            .send(&line.output, Wait::Never)
            .expect("memory");
    }
    let mut held = hold::<P>(&mut line.inbox, 2);
    let large = Content::new(2, 3 * QUARTER);
    assert_eq!(
        large.send(&line.output, Wait::Forever),
        Err(Refusal::OutOfMemory)
    );
    plane.serve();
    assert_eq!(numbers(&held), [0, 1]);
    held.pop();
    // The first attempt may only begin to push out the free blocks.
    let first = large.send(&line.output, Wait::Never);
    assert_eq!(numbers(&held), [0]);
    plane.serve();
    if first.is_err() {
        large.send(&line.output, Wait::Never).expect("memory");
    }
    assert_eq!(drain(&mut line.inbox), [2]);
    assert_eq!(numbers(&held), [0]);
    assert!(plane.memory_bytes(&line.output) <= 4 * QUARTER as u64);
}

/// Blocks that one output keeps for reuse are available to the other outputs of its process.
pub fn an_output_gets_memory_that_its_sibling_no_longer_uses<P: Plane>(plane: &P) {
    for policy in [Policy::DropOldest, Policy::Block] {
        let mut line = Line::with_limits(plane, queue(policy, 4), limited(4 * QUARTER));
        let sibling = plane.sibling(&line.output, 64, 0);
        let (other, mut other_inbox) = plane.consumer(1);
        plane.connect(&sibling, &other, 0, queue(policy, 4));
        for round in 0..3 {
            for (output, inbox) in [
                (&line.output, &mut line.inbox),
                (&sibling, &mut other_inbox),
            ] {
                let contents = [0, 1, 2, 3].map(|number| quarter(round * 4 + number));
                for content in contents {
                    send_served(plane, output, content, Wait::Forever).expect("memory");
                }
                assert_eq!(drain(inbox), contents.map(|content| content.number));
            }
        }
    }
}

/// The limit holds for any amount of free memory.
pub fn no_more_blocks_than_allowed_are_in_use<P: Plane>(plane: &P) {
    let limits = Limits {
        blocks: 3,
        ..Limits::default()
    };
    let mut line = Line::with_limits(plane, queue(Policy::DropOldest, 8), limits);
    for number in 0..3 {
        block(number)
            .send(&line.output, Wait::Never)
            .expect("a block");
    }
    let mut held = hold::<P>(&mut line.inbox, 3);
    assert_eq!(
        block(3).send(&line.output, Wait::Forever),
        Err(Refusal::OutOfMemory)
    );
    held.remove(1);
    block(4).send(&line.output, Wait::Forever).expect("a block");
    assert_eq!(
        block(5).send(&line.output, Wait::Forever),
        Err(Refusal::OutOfMemory)
    );
    assert_eq!(drain(&mut line.inbox), [4]);
    assert_eq!(numbers(&held), [0, 2]);
}
