//! Samples that stay in their queue until they are confirmed, and samples that come again.

pub mod support;

use nervure_message::{Header, Origin};
use nervure_protocol::wiring::Policy;
use nervure_shm::{Arrival, EdgeRegion, Inbox, Output, ReceivedSample, SendError, Wait};
use support::{TestNode, connect, connect_over, queue, try_send};

const BLOCKS: u32 = 64;

fn received(inbox: &mut Inbox) -> Vec<ReceivedSample> {
    let arrivals = std::iter::from_fn(|| inbox.try_next().expect("not forked"));
    let sample = |arrival| match arrival {
        Arrival::Sample { sample, .. } => Some(sample),
        _ => None,
    };
    arrivals.filter_map(sample).collect()
}

fn sequences(samples: &[ReceivedSample]) -> Vec<u64> {
    let sequence = |sample: &ReceivedSample| sample.header().sequence;
    samples.iter().map(sequence).collect()
}

/// Sends a sample whose bytes are all its number.
fn send(
    output: &Output,
    number: u8,
    bytes: usize,
    origin: Option<Origin>,
) -> Result<(), SendError> {
    let mut loan = output.loan(bytes, 0, Wait::Never)?;
    loan.payload_mut().fill(number);
    loan.set_origin(origin);
    let published = output.publish(&mut loan, Header::default(), b"", Wait::Never);
    published.map(drop)
}

fn what_is_not_confirmed_is_for_the_next_process(bytes: usize) {
    let producer = TestNode::new(1 << 24);
    let output = producer.output(BLOCKS, 0);
    let counters = &producer.producer.counters;
    let queue = queue(Policy::Block, 3, 16);
    let region = EdgeRegion::create(queue.depth, BLOCKS).expect("memory");
    let of_producer = (&producer, &output);

    let first = TestNode::new(0);
    let mut inbox = first.inbox();
    inbox.keep(0);
    connect_over((&region, BLOCKS), 0, of_producer, (&first, &inbox), queue);
    for number in 0..3 {
        send(&output, number, bytes, None).expect("there is room");
    }
    let mut samples = received(&mut inbox);
    assert_eq!(sequences(&samples), [0, 1, 2]);
    assert!(
        matches!(
            send(&output, 3, bytes, None),
            Err(SendError::WouldBlock { .. })
        ),
        "those that are taken are still queued"
    );
    let confirmed = samples.remove(0);
    confirmed.confirm();
    drop(confirmed);
    send(&output, 3, bytes, None).expect("there is room");
    assert_eq!(first.producer.counters.input(0).received, 1);

    // A process that is killed drops nothing.
    samples.into_iter().for_each(std::mem::forget);
    output.detach(0, true);
    assert_eq!(counters.output(0).lost(), 0);
    let second = TestNode::new(0);
    let mut inbox = second.inbox();
    inbox.keep(0);
    connect_over((&region, BLOCKS), 0, of_producer, (&second, &inbox), queue);
    let samples = received(&mut inbox);
    assert_eq!(sequences(&samples), [1, 2, 3]);
    for (sample, number) in samples.iter().zip(1..) {
        assert!(sample.payload().iter().all(|&byte| byte == number));
    }
    // The last one stands for those before it.
    samples[2].confirm();
    drop(samples);
    for number in 4..7 {
        send(&output, number, bytes, None).expect("there is room");
    }
    assert_eq!(sequences(&received(&mut inbox)), [4, 5, 6]);
}

#[test]
fn what_is_not_confirmed_is_for_the_next_process_in_slots() {
    what_is_not_confirmed_is_for_the_next_process(8);
}

#[test]
fn what_is_not_confirmed_is_for_the_next_process_in_blocks() {
    what_is_not_confirmed_is_for_the_next_process(100_000);
}

#[test]
fn a_sample_of_another_machine_that_comes_again_is_dropped() {
    let consumer = TestNode::new(0);
    let mut inbox = consumer.inbox();
    let origin = |boot, published| Some(Origin { boot, published });
    // Each stand-in of the other machine sends the samples of the last one again.
    let stand_in = |edge, inbox: &Inbox, origins: &[Option<Origin>]| {
        let producer = TestNode::new(1 << 20);
        let output = producer.output(BLOCKS, 0);
        let of_producer = (&producer, &output, BLOCKS);
        let queue = queue(Policy::Block, 8, 16);
        connect(edge, of_producer, (&consumer, inbox), queue);
        for &origin in origins {
            send(&output, 0, 8, origin).expect("there is room");
        }
        inbox.handle().close(edge, false);
        (producer, output)
    };
    let origins = |samples: Vec<ReceivedSample>| sequences(&samples);
    let _first = stand_in(0, &inbox, &[origin(1, 5), origin(1, 6), origin(1, 9)]);
    assert_eq!(origins(received(&mut inbox)), [0, 1, 2]);
    let _second = stand_in(1, &inbox, &[origin(1, 6), origin(1, 9), origin(1, 10)]);
    assert_eq!(origins(received(&mut inbox)), [2]);
    // The clock of the other machine begins again when it boots.
    let _third = stand_in(0, &inbox, &[origin(2, 3), origin(2, 3), origin(2, 4)]);
    assert_eq!(origins(received(&mut inbox)), [0, 2]);
    let _fourth = stand_in(1, &inbox, &[origin(2, 4), origin(2, 4)]);
    assert!(inbox.take_newest(0).expect("not forked").is_none());
    // Samples of this machine have no origin.
    let local = TestNode::new(1 << 20);
    let output = local.output(BLOCKS, 0);
    let depth = queue(Policy::Block, 8, 16);
    connect(0, (&local, &output, BLOCKS), (&consumer, &inbox), depth);
    try_send(&output, 8).expect("there is room");
    assert_eq!(origins(received(&mut inbox)), [0]);
}

#[test]
fn a_held_input_leaves_its_samples_to_their_queue() {
    let (producer, consumer) = (TestNode::new(1 << 20), TestNode::new(0));
    let (output, mut inbox) = (producer.output(BLOCKS, 0), consumer.inbox());
    let newest = queue(Policy::DropOldest, 2, 16);
    connect(0, (&producer, &output, BLOCKS), (&consumer, &inbox), newest);
    try_send(&output, 8).expect("it drops the oldest");
    assert_eq!(sequences(&received(&mut inbox)), [0]);

    inbox.set_held(0, true);
    assert!(inbox.holds_any());
    for _ in 1..6 {
        try_send(&output, 8).expect("it drops the oldest");
        assert!(received(&mut inbox).is_empty());
    }
    inbox.handle().close(0, true);
    inbox.handle().notify();
    let next = |inbox: &mut Inbox| inbox.try_next().expect("not forked");
    assert!(matches!(next(&mut inbox), Some(Arrival::Notified)));
    assert!(
        next(&mut inbox).is_none(),
        "the end comes behind the samples"
    );

    inbox.set_held(0, false);
    assert!(!inbox.holds_any());
    let arrivals: Vec<_> = std::iter::from_fn(|| next(&mut inbox)).collect();
    let [
        Arrival::Sample { sample: first, .. },
        Arrival::Sample { sample: second, .. },
        Arrival::Ended { input: 0 },
        Arrival::Closed { input: 0 },
    ] = &arrivals[..]
    else {
        panic!("{arrivals:?}")
    };
    let numbers = [first, second].map(|sample| sample.header().sequence);
    assert_eq!(numbers, [4, 5]);
    assert_eq!(producer.producer.counters.output(0).lost(), 3);
}
