//! Nodes that live in the process of the test, and edges between them.

#![expect(missing_docs, reason = "the names suffice")]

use nervure_message::Header;
use nervure_protocol::wiring::{Policy, Queue};
use nervure_shm::{
    Budget, ConsumerPair, CountersPage, EdgeRegion, Inbox, InputEdge, Output, OutputEdge,
    OwnWakePage, Producer, ProducerPair, Receipt, SendError, Seqpacket, Wait, WakePage, eventfd,
};
use rustix::fd::OwnedFd;
use std::sync::Arc;

/// A node with one input, and rows in its counters for two edges of outputs.
pub struct TestNode {
    pub producer: Producer,
    pub wake: OwnedFd,
    eventfd: Arc<OwnedFd>,
}

impl TestNode {
    pub fn new(budget_bytes: u64) -> Self {
        let counters = CountersPage::create(2, 1).expect("memory");
        let counters = Arc::new(CountersPage::map(&counters, true).expect("counters"));
        let (_, wake) = WakePage::create(1).expect("memory");
        let page = OwnWakePage::map(&wake, 1, counters.clone()).expect("a wake page");
        let producer = Producer {
            budget: Budget::new(budget_bytes),
            wake: Arc::new(page),
            counters,
            incarnation: 0,
            stopping: Arc::default(),
            held: Arc::default(),
            cut_short: Arc::default(),
            on_misbehaviour: Arc::new(|edge, what| panic!("edge {edge}: {what}")),
        };
        Self {
            producer,
            wake,
            eventfd: Arc::new(eventfd().expect("a descriptor")),
        }
    }

    pub fn output(&self, blocks: u32, history: u32) -> Output {
        Output::new("output".to_owned(), blocks, history, self.producer.clone())
    }

    pub fn inbox(&self) -> Inbox {
        Inbox::new(self.producer.wake.clone(), self.eventfd.clone())
    }

    /// The producer's end of an edge to this node. Its id is also its row in the producer's
    /// counters.
    pub fn output_edge(
        &self,
        edge: u32,
        queue: Queue,
        (region, blocks): (&OwnedFd, u32),
        pair: Arc<ProducerPair>,
    ) -> OutputEdge {
        OutputEdge {
            id: edge,
            consumer: format!("consumer{edge}/input"),
            input: 0,
            queue,
            counters_row: edge,
            region: EdgeRegion::map(region, queue.depth, blocks).expect("a region"),
            bell: Arc::new(WakePage::map(&self.wake).expect("a wake page")),
            eventfd: self.eventfd.clone(),
            pair,
        }
    }
}

/// The sockets' ends of an edge, as the control threads of its nodes have them.
pub struct Pairs {
    pub producer: Arc<ProducerPair>,
    pub consumer: Arc<ConsumerPair>,
}

/// Connects an output of at most `blocks` blocks to the input of `consumer`.
pub fn connect(
    edge: u32,
    (producer, output, blocks): (&TestNode, &Output, u32),
    consumer: (&TestNode, &Inbox),
    queue: Queue,
) -> Pairs {
    let region = EdgeRegion::create(queue.depth, blocks).expect("memory");
    connect_over((&region, blocks), edge, (producer, output), consumer, queue)
}

/// As [`connect`], over a region that may have samples for the consumer.
pub fn connect_over(
    (region, blocks): (&OwnedFd, u32),
    edge: u32,
    (producer, output): (&TestNode, &Output),
    (consumer, inbox): (&TestNode, &Inbox),
    queue: Queue,
) -> Pairs {
    let (a, b) = Seqpacket::pair().expect("a socket");
    let pairs = Pairs {
        producer: Arc::new(ProducerPair::new(a, edge)),
        consumer: Arc::new(ConsumerPair::new(b)),
    };
    inbox.handle().attach(InputEdge {
        id: edge,
        input: 0,
        policy: queue.policy,
        region: EdgeRegion::map(region, queue.depth, blocks).expect("a region"),
        pair: pairs.consumer.clone(),
        producer_wake: Arc::new(WakePage::map(&producer.wake).expect("a wake page")),
        counters: consumer.producer.counters.clone(),
    });
    let attached = consumer.output_edge(edge, queue, (region, blocks), pairs.producer.clone());
    output.attach(attached).expect("it fits");
    pairs
}

pub fn queue(policy: Policy, depth: u32, max_held: u32) -> Queue {
    Queue {
        policy,
        depth,
        max_held,
    }
}

/// Publishes a payload of `bytes` bytes, without waiting.
pub fn try_send(output: &Output, bytes: usize) -> Result<Receipt, SendError> {
    let mut loan = output.loan(bytes, 0, Wait::Never)?;
    output.publish(&mut loan, Header::default(), b"", Wait::Never)
}
