//! One consumer, many inputs.

use super::{block, next_sample, numbers, queue, small};
use crate::content::Content;
use crate::plane::{Arrival, Limits, Plane, PlaneInbox, PlaneSample, Wait};
use nervure_protocol::wiring::Policy;
use std::sync::mpsc;
use std::thread;

/// Wires one output to each input.
fn wired<P: Plane>(plane: &P, inputs: u32, depth: u32) -> (Vec<P::Output>, P::Consumer, P::Inbox) {
    let (consumer, inbox) = plane.consumer(inputs);
    let outputs = (0..inputs).map(|input| {
        let output = plane.producer(Limits::default());
        plane.connect(&output, &consumer, input, queue(Policy::DropOldest, depth));
        output
    });
    (outputs.collect(), consumer, inbox)
}

fn origin<S: PlaneSample>(arrival: Arrival<S>) -> u32 {
    match arrival {
        Arrival::Sample(input, _) => input,
        Arrival::Closed(input) => panic!("input {input} closed"),
    }
}

/// As long as every input has samples, each delivers once before any delivers twice.
pub fn inputs_with_news_take_turns<P: Plane>(plane: &P) {
    for inputs in [3, 63, 64, 65, 130] {
        let (outputs, _consumer, mut inbox) = wired(plane, inputs, 5);
        for number in 0..5 {
            for output in outputs.iter().rev() {
                small(number).send(output, Wait::Never).expect("room");
            }
        }
        for _ in 0..5 {
            let mut round: Vec<u32> = (0..inputs)
                .map(|_| origin(inbox.try_next().expect("five of each")))
                .collect();
            round.sort_unstable();
            assert_eq!(round, (0..inputs).collect::<Vec<_>>());
        }
        assert!(inbox.try_next().is_none());
    }
}

/// Not even the end of another input is delayed, however slow the consumer is.
pub fn a_flooded_input_starves_no_other<P: Plane>(plane: &P) {
    let (outputs, _consumer, mut inbox) = wired(plane, 3, 4);
    // Each sample taken from input 1 is replaced by a new one.
    small(0).send(&outputs[1], Wait::Never).expect("room");
    let flood = |inbox: &mut P::Inbox| {
        small(1).send(&outputs[1], Wait::Never).expect("room");
        inbox.try_next().expect("the flood")
    };
    for _ in 0..10 {
        assert_eq!(origin(flood(&mut inbox)), 1);
    }
    for quiet in [0, 2] {
        small(7).send(&outputs[quiet], Wait::Never).expect("room");
        let found = (0..200).any(|_| origin(flood(&mut inbox)) == quiet as u32);
        assert!(found, "input {quiet} is starved by a flooded one");
    }
    plane.producer_gone(&outputs[0], true);
    let closes = (0..200).any(|_| matches!(flood(&mut inbox), Arrival::Closed(0)));
    assert!(closes, "the end of input 0 is starved by a flooded input");
}

/// The inputs wake the consumer from sleep, one at a time.
pub fn a_hundred_and_thirty_inputs_all_wake<P: Plane>(plane: &P) {
    let (outputs, _consumer, mut inbox) = wired(plane, 130, 2);
    let (turn, turns) = mpsc::channel::<u32>();
    let (heard, answers) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            for input in turns {
                let sample = next_sample(&mut inbox, input);
                heard
                    .send(sample.header().correlation_id)
                    .expect("the test listens");
            }
        });
        for input in (0..130).rev() {
            turn.send(input).expect("the consumer listens");
            small(u64::from(input))
                .send(&outputs[input as usize], Wait::Never)
                .expect("room");
            assert_eq!(answers.recv().expect("an answer"), u64::from(input));
        }
        drop(turn);
    });
}

/// Holds for any set of inputs that were pending before.
pub fn a_wake_for_everything_delivers_nothing_twice<P: Plane>(plane: &P) {
    for inputs in [1, 63, 64, 130] {
        let (outputs, consumer, mut inbox) = wired(plane, inputs, 4);
        plane.wake(&consumer);
        assert!(inbox.try_next().is_none());
        small(1).send(&outputs[0], Wait::Never).expect("room");
        plane.wake(&consumer);
        assert_eq!(numbers(&[next_sample(&mut inbox, 0)]), [1]);
        plane.wake(&consumer);
        assert!(inbox.try_next().is_none());
        let last = inputs - 1;
        small(2)
            .send(&outputs[last as usize], Wait::Never)
            .expect("room");
        assert_eq!(numbers(&[next_sample(&mut inbox, last)]), [2]);
        assert!(inbox.try_next().is_none());
    }
}

/// Many producers ring one sleeping consumer, and no wake-up is lost.
pub fn a_sleeping_consumer_is_woken_by_each_of_its_inputs<P: Plane>(plane: &P) {
    const EACH: u64 = 300;
    let (consumer, mut inbox) = plane.consumer(4);
    let outputs: Vec<_> = (0..4)
        .map(|input| {
            let output = plane.producer(Limits::default());
            plane.connect(&output, &consumer, input, queue(Policy::Block, 1));
            output
        })
        .collect();
    thread::scope(|scope| {
        for (origin, output) in outputs.iter().enumerate() {
            scope.spawn(move || {
                for number in 0..EACH {
                    Content::new(number, 10 + 300 * origin)
                        .send(output, Wait::Forever)
                        .expect("room");
                }
                plane.producer_gone(output, true);
            });
        }
        let mut next = [0; 4];
        let mut open = 4;
        while open > 0 {
            match inbox.next() {
                Arrival::Sample(input, sample) => {
                    let expected = &mut next[input as usize];
                    assert_eq!(Content::check(&sample).number, *expected);
                    *expected += 1;
                }
                Arrival::Closed(input) => {
                    assert_eq!(next[input as usize], EACH);
                    open -= 1;
                }
            }
        }
    });
}

/// The samples before it are counted as received, and their blocks become free.
pub fn the_newest_sample_passes_over_those_before_it<P: Plane>(plane: &P) {
    let (outputs, consumer, mut inbox) = wired(plane, 2, 5);
    assert!(inbox.take_newest(0).is_none());
    for number in 0..4 {
        block(number).send(&outputs[0], Wait::Never).expect("room");
        small(number).send(&outputs[1], Wait::Never).expect("room");
    }
    let newest = inbox.take_newest(0).expect("a sample");
    assert_eq!(Content::check(&newest).number, 3);
    let received = plane.received(&consumer, 0);
    assert_eq!((received.received, received.held), (4, 1));
    assert!(inbox.take_newest(0).is_none());
    for number in 0..4 {
        assert_eq!(numbers(&[next_sample(&mut inbox, 1)]), [number]);
    }
    assert!(inbox.try_next().is_none());
}
