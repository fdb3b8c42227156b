//! Guarantees for a consumer while it has a sample.

use super::{Line, block, hold, numbers, queue, small};
use crate::content::Content;
use crate::plane::{Limits, Plane, PlaneSample, Wait};
use nervure_protocol::wiring::{Policy, Queue};
use std::thread;

/// Samples outlive the inbox, the edge, the output and the producing process.
pub fn samples_outlive_everything<P: Plane>(plane: &P) {
    let mut line = Line::new(plane, queue(Policy::Block, 8));
    for number in 0..6 {
        let content = if number % 2 == 0 {
            block(number)
        } else {
            small(number)
        };
        content
            .with_head(number as usize * 100)
            .send(&line.output, Wait::Never)
            .expect("room");
    }
    let held = hold::<P>(&mut line.inbox, 6);
    plane.producer_gone(&line.output, true);
    drop((line.output, line.inbox));
    plane.serve();
    assert_eq!(numbers(&held), [0, 1, 2, 3, 4, 5]);
    thread::spawn(move || drop(held)).join().expect("no panic");
}

/// The sample stays until the last clone is dropped, on any thread.
pub fn a_clone_keeps_the_sample<P: Plane>(plane: &P) {
    let limits = Limits {
        blocks: 1,
        ..Limits::default()
    };
    let mut line = Line::with_limits(
        plane,
        Queue {
            policy: Policy::Block,
            depth: 2,
            max_held: 2,
        },
        limits,
    );
    block(0).send(&line.output, Wait::Never).expect("a block");
    let sample = hold::<P>(&mut line.inbox, 1).remove(0);
    let clone = sample.clone();
    drop(sample);
    assert!(block(1).send(&line.output, Wait::Never).is_err());
    assert_eq!(numbers(std::slice::from_ref(&clone)), [0]);
    assert_eq!(plane.received(&line.consumer, 0).held, 1);
    thread::spawn(move || drop(clone)).join().expect("no panic");
    assert_eq!(plane.received(&line.consumer, 0).held, 0);
    block(1).send(&line.output, Wait::Never).expect("a block");
}

/// Publishes as much as possible meanwhile.
pub fn held_samples_never_change<P: Plane>(plane: &P) {
    let mut line = Line::new(
        plane,
        Queue {
            policy: Policy::DropOldest,
            depth: 2,
            max_held: 6,
        },
    );
    let mut held = Vec::new();
    for number in 0..300 {
        let payload_bytes = [300, 5000, 70_000][number as usize % 3];
        Content::new(number, payload_bytes)
            .with_head(300)
            .send(&line.output, Wait::Never)
            .expect("memory");
        if number % 7 == 0 {
            held.extend(hold::<P>(&mut line.inbox, 1));
        }
        if held.len() > 4 {
            held.remove(number as usize % 4);
        }
        for sample in &held {
            Content::check(sample);
        }
    }
    assert!(held.iter().all(|sample| sample.head().len() == 300));
}
