//! Edges of observers: when memory is short, their queued samples are dropped.

pub mod support;

use nervure_protocol::wiring::Policy;
use nervure_shm::{Arrival, Inbox, Output};
use support::{TestNode, connect, queue, try_send};

const BLOCKS: u32 = 64;
const SAMPLE_BYTES: usize = 1 << 20;
const BUDGET_BYTES: u64 = 4 * SAMPLE_BYTES as u64;

fn attach(producer: &TestNode, output: &Output, edge: u32) -> Inbox {
    let consumer = TestNode::new(0);
    let inbox = consumer.inbox();
    connect(
        edge,
        (producer, output, BLOCKS),
        (&consumer, &inbox),
        queue(Policy::DropOldest, 16, 16),
    );
    inbox
}

fn received(inbox: &mut Inbox) -> Vec<u64> {
    let arrivals = std::iter::from_fn(|| inbox.try_next().expect("not forked"));
    let sequence = |arrival| match arrival {
        Arrival::Sample { sample, .. } => Some(sample.header().sequence),
        _ => None,
    };
    arrivals.filter_map(sequence).collect()
}

#[test]
fn an_observer_that_takes_nothing_costs_the_others_no_sample() {
    let producer = TestNode::new(BUDGET_BYTES);
    let (output, counters) = (producer.output(BLOCKS, 0), &producer.producer.counters);
    let mut robot = attach(&producer, &output, 0);
    let mut observer = attach(&producer, &output, 1);
    output.mark_as_observer(1);
    for number in 0..20 {
        try_send(&output, SAMPLE_BYTES).expect("memory of the observer's queue");
        assert_eq!(received(&mut robot), [number]);
    }
    let (own, observers) = (counters.output(0), counters.output(1));
    assert_eq!((own.sent, own.lost()), (20, 0));
    let left = received(&mut observer);
    assert_eq!(
        observers.dropped_oldest,
        20 - left.len() as u64,
        "counted on its own edge alone"
    );
    assert_eq!(
        left,
        (20 - left.len() as u64..20).collect::<Vec<_>>(),
        "the newest remain"
    );
    assert!(!left.is_empty());
}

#[test]
fn an_edge_of_the_dataflow_keeps_its_queue() {
    let producer = TestNode::new(BUDGET_BYTES);
    let output = producer.output(BLOCKS, 0);
    let _idle = attach(&producer, &output, 0);
    let sent = (0..20).take_while(|_| try_send(&output, SAMPLE_BYTES).is_ok());
    assert!(
        sent.count() < 20,
        "samples queued for a node of the dataflow stay"
    );
    assert_eq!(producer.producer.counters.output(0).dropped_oldest, 0);
}
