//! Samples for a consumer whose process is gone: each is counted once, whether it returns or not.

pub mod support;

use nervure_protocol::wiring::{Policy, Return};
use nervure_shm::{
    Arrival, ConsumerPair, CountersPage, EdgeRegion, Inbox, InputEdge, Output, OutputCounters,
    ProducerPair, SendError, Seqpacket, Wait, WakePage,
};
use proptest::prelude::*;
use std::sync::Arc;
use support::{TestNode, queue, try_send};

const BLOCKS: u32 = 64;
const BUDGET: u64 = 1 << 20;
const DEPTH: u32 = 4;
/// The row of every edge of the consumer, whichever process it has.
const ROW: u32 = 0;

/// A producer, and a consumer that dies and returns.
struct Line {
    producer: TestNode,
    output: Output,
    policy: Policy,
    consumer: Option<Consumer>,
    received: Vec<u64>,
    /// Edges so far.
    edges: u32,
}

struct Consumer {
    inbox: Inbox,
    edge: u32,
}

impl Line {
    fn new(policy: Policy, history: u32) -> Self {
        let producer = TestNode::new(BUDGET);
        let output = producer.output(BLOCKS, history);
        let mut line = Self {
            producer,
            output,
            policy,
            consumer: None,
            received: Vec::new(),
            edges: 0,
        };
        line.connect();
        line
    }

    fn connect(&mut self) {
        let consumer = TestNode::new(0);
        let inbox = consumer.inbox();
        let queue = queue(self.policy, DEPTH, DEPTH + 8);
        let region = EdgeRegion::create(queue.depth, BLOCKS).expect("memory");
        let (a, b) = Seqpacket::pair().expect("a socket");
        let edge = self.edges;
        self.edges += 1;
        inbox.handle().attach(InputEdge {
            id: edge,
            input: 0,
            policy: queue.policy,
            region: EdgeRegion::map(&region, DEPTH, BLOCKS).expect("a region"),
            pair: Arc::new(ConsumerPair::new(b)),
            producer_wake: Arc::new(WakePage::map(&self.producer.wake).expect("a wake page")),
            counters: consumer.producer.counters.clone(),
        });
        let pair = Arc::new(ProducerPair::new(a, edge));
        let mut attached = consumer.output_edge(edge, queue, (&region, BLOCKS), pair);
        attached.counters_row = ROW;
        self.output.attach(attached).expect("it fits");
        self.consumer = Some(Consumer { inbox, edge });
    }

    fn send(&self) {
        // Without readers a node sends nothing at all.
        if self.output.has_readers() {
            try_send(&self.output, 8).expect("a small sample");
        }
    }

    /// Sends a sample while another takes all memory.
    fn send_without_memory(&self) {
        let _all = self.output.loan(BUDGET as usize, 0, Wait::Never);
        if self.output.has_readers() {
            let refused = try_send(&self.output, 64 << 10).expect_err("no memory");
            let edges = u32::from(self.consumer.is_some());
            assert!(matches!(refused, SendError::OutOfMemory { missed, .. } if missed == edges));
        }
    }

    fn take(&mut self, most: usize) {
        let Some(consumer) = &mut self.consumer else {
            return;
        };
        for _ in 0..most {
            match consumer.inbox.try_next().expect("not forked") {
                Some(Arrival::Sample { sample, .. }) => {
                    self.received.push(sample.header().sequence)
                }
                Some(_) => {}
                None => return,
            }
        }
    }

    /// The consumer's process is gone.
    fn die(&mut self, returns: Return) {
        if let Some(consumer) = self.consumer.take() {
            if returns != Return::Never {
                self.output.await_consumer(ROW, returns);
            }
            self.output.detach(consumer.edge, false);
        }
    }

    fn counters(&self) -> OutputCounters {
        let page: &CountersPage = &self.producer.producer.counters;
        page.output(ROW)
    }

    /// Samples that were published and are neither received nor lost.
    fn not_taken(&self) -> u64 {
        let counters = self.counters();
        counters.published() - counters.lost() - self.received.len() as u64
    }
}

#[test]
fn what_is_sent_while_a_consumer_restarts_is_lost() {
    let mut line = Line::new(Policy::DropOldest, 0);
    for _ in 0..3 {
        line.send();
    }
    line.take(1);
    line.die(Return::Certain);
    for _ in 0..5 {
        line.send();
    }
    let counters = line.counters();
    assert_eq!((counters.dropped_away, counters.missed_away), (2, 5));
    line.connect();
    line.send();
    line.take(9);
    assert_eq!(line.received, [0, 8]);
    let counters = line.counters();
    assert_eq!((counters.published(), counters.lost()), (9, 7));
}

#[test]
fn how_a_process_that_has_left_ends_decides() {
    for returns in [Return::Never, Return::Certain] {
        let mut line = Line::new(Policy::DropNewest, 0);
        line.send();
        line.die(Return::Undecided);
        line.send();
        assert_eq!(line.counters().lost(), 0);
        line.output.await_consumer(ROW, returns);
        line.send();
        let counters = line.counters();
        let counted = (counters.published(), counters.lost(), counters.undelivered);
        match returns {
            // Samples sent without an edge were for no consumer.
            Return::Never => assert_eq!(counted, (1, 0, 1)),
            _ => assert_eq!(counted, (3, 3, 0)),
        }
    }
}

#[test]
fn samples_of_the_history_are_not_lost() {
    let mut line = Line::new(Policy::DropOldest, 2);
    line.die(Return::Certain);
    for _ in 0..5 {
        line.send();
    }
    line.connect();
    line.take(9);
    assert_eq!(line.received, [3, 4]);
    let counters = line.counters();
    assert_eq!((counters.published(), counters.missed_away), (5, 3));
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Send(u8),
    /// Samples for which there is no memory.
    Starve(u8),
    Take(u8),
    Die(Return),
    Decide(Return),
    Connect,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let returns = || prop::sample::select(vec![Return::Never, Return::Undecided, Return::Certain]);
    let step = prop_oneof![
        4 => (1..8_u8).prop_map(Step::Send),
        1 => (1..4_u8).prop_map(Step::Starve),
        3 => (1..8_u8).prop_map(Step::Take),
        2 => returns().prop_map(Step::Die),
        1 => returns().prop_map(Step::Decide),
        2 => Just(Step::Connect),
    ];
    prop::collection::vec(step, 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Every sample that was sent while the consumer had an edge, or was awaited and returned, is
    /// received, lost, or was in a queue at the end of a process.
    #[test]
    fn each_sample_is_counted_once(
        steps in steps(),
        policy in prop::sample::select(vec![Policy::DropOldest, Policy::DropNewest]),
    ) {
        let mut line = Line::new(policy, 0);
        let mut returns = Return::Never;
        // Samples for it, and those since it has left that its end decides on.
        let (mut published, mut undecided) = (0_u64, 0);
        for step in steps.into_iter().chain([Step::Take(u8::MAX), Step::Die(Return::Never)]) {
            match step {
                Step::Send(samples) | Step::Starve(samples) => for _ in 0..samples {
                    match (line.consumer.is_some(), returns) {
                        (true, _) | (false, Return::Certain) => published += 1,
                        (false, Return::Undecided) => undecided += 1,
                        (false, Return::Never) => {}
                    }
                    match step {
                        Step::Starve(_) => line.send_without_memory(),
                        _ => line.send(),
                    }
                },
                Step::Take(samples) => line.take(samples.into()),
                Step::Die(then) if line.consumer.is_some() => {
                    line.die(then);
                    returns = then;
                }
                // As the keeper notifies: a process that has left returns or does not.
                Step::Decide(then) if line.consumer.is_none() && returns != Return::Never && then != Return::Undecided => {
                    published += if then == Return::Certain { undecided } else { 0 };
                    undecided = 0;
                    returns = then;
                    line.output.await_consumer(ROW, then);
                }
                Step::Connect if line.consumer.is_none() => {
                    published += std::mem::take(&mut undecided);
                    returns = Return::Never;
                    line.connect();
                }
                _ => {}
            }
            let counters = line.counters();
            prop_assert_eq!(counters.published(), published, "{:?}", counters);
            let in_queues = u64::from(DEPTH) + counters.undelivered;
            prop_assert!(line.not_taken() <= in_queues, "{:?}", counters);
        }
        prop_assert!(line.received.is_sorted_by(|one, next| one < next));
        let counters = line.counters();
        let left = if returns == Return::Never { counters.undelivered } else { line.not_taken() };
        prop_assert_eq!(line.not_taken(), left);
    }
}
