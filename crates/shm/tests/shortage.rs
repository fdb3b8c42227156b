//! Descriptors or memory run out for a while: no sample is lost, and no peer counts as hostile.
//!
//! The limits apply to the whole process, so the tests here take turns.

pub mod support;

use nervure_message::Header;
use nervure_protocol::wiring::Policy;
use nervure_shm::{
    Arrival, ConsumerPair, CountersPage, Inbox, Misbehaviour, Output, PairStatus, Received,
    Seqpacket, Shortage, Wait,
};
use rustix::fd::AsFd;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use support::{TestNode, connect, queue};

const BLOCKS: u32 = 16;
/// Larger than a slab, so that each block has a segment of its own.
const SAMPLE_BYTES: usize = 1 << 20;

static TURN: Mutex<()> = Mutex::new(());

fn take_turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A lowered limit, which is restored when it is dropped.
struct Lowered {
    resource: Resource,
    before: Rlimit,
}

impl Lowered {
    fn new(resource: Resource, limit: u64) -> Self {
        let before = getrlimit(resource);
        setrlimit(
            resource,
            Rlimit {
                current: Some(limit),
                ..before
            },
        )
        .expect("a lower limit");
        Self { resource, before }
    }

    /// No descriptor can be opened from now on.
    fn descriptors() -> Self {
        Self::new(Resource::Nofile, 0)
    }

    /// No large mapping can be made from now on.
    fn memory() -> Self {
        let statm = std::fs::read_to_string("/proc/self/statm").expect("proc");
        let pages: u64 = statm
            .split(' ')
            .next()
            .and_then(|pages| pages.parse().ok())
            .expect("a number");
        Self::new(
            Resource::As,
            pages * nervure_shm::page_bytes() as u64 + SAMPLE_BYTES as u64 / 2,
        )
    }
}

impl Drop for Lowered {
    fn drop(&mut self) {
        setrlimit(self.resource, self.before).expect("the previous limit");
    }
}

/// A producer and a consumer with one edge, and the consumer's end of their socket, which its
/// control thread uses.
struct Edge {
    output: Output,
    producer_counters: Arc<CountersPage>,
    consumer_counters: Arc<CountersPage>,
    inbox: Inbox,
    consumer_pair: Arc<ConsumerPair>,
}

impl Edge {
    fn new(policy: Policy) -> Self {
        let (producer, consumer) = (TestNode::new(64 << 20), TestNode::new(0));
        let (output, inbox) = (producer.output(BLOCKS, 0), consumer.inbox());
        let pairs = connect(
            0,
            (&producer, &output, BLOCKS),
            (&consumer, &inbox),
            queue(policy, 4, 8),
        );
        // Receive packets sent before the first segment.
        let mut edge = Self {
            output,
            producer_counters: producer.producer.counters,
            consumer_counters: consumer.producer.counters,
            inbox,
            consumer_pair: pairs.consumer,
        };
        assert!(edge.next().is_none());
        assert_eq!(
            edge.receive(),
            PairStatus {
                is_open: true,
                shortage: None,
                is_relieved: false
            }
        );
        edge
    }

    fn send(&self, fill: u8) {
        let mut loan = self
            .output
            .loan(SAMPLE_BYTES, 0, Wait::Never)
            .expect("memory");
        loan.payload_mut().fill(fill);
        self.output
            .announce(fill.into(), b"a schema")
            .expect("it fits");
        let header = Header {
            schema_id: fill.into(),
            ..Header::default()
        };
        self.output
            .publish(&mut loan, header, b"", Wait::Never)
            .expect("room");
    }

    fn next(&mut self) -> Option<Arrival> {
        self.inbox.try_next().expect("not forked")
    }

    fn receive(&self) -> PairStatus {
        self.consumer_pair.receive().expect("an honest producer")
    }

    fn expect_sample(&mut self, fill: u8) -> nervure_shm::ReceivedSample {
        match self.next() {
            Some(Arrival::Sample { input: 0, sample }) => {
                assert!(
                    sample.payload().len() == SAMPLE_BYTES
                        && sample.payload().iter().all(|&b| b == fill)
                );
                assert_eq!(
                    sample.announcement(fill.into()).as_deref(),
                    Some(&b"a schema"[..])
                );
                sample
            }
            other => panic!("expected a sample, got {other:?}"),
        }
    }
}

/// Checks the view of both threads of a consumer during a shortage and after it.
fn assert_sample_survives(lower: fn() -> Lowered, is_expected: fn(Shortage) -> bool) {
    let _turn = take_turn();
    let mut edge = Edge::new(Policy::Block);
    edge.send(1);
    let lowered = lower();
    for _ in 0..3 {
        // The data thread finds it first; then the control thread keeps trying.
        edge.inbox.handle().check_all_inputs();
        let arrival = edge.next();
        assert!(arrival.is_none(), "the sample stays queued: {arrival:?}");
        let status = edge.receive();
        assert!(
            status.is_open && !status.is_relieved && status.shortage.is_some_and(is_expected),
            "{status:?}"
        );
    }
    drop(lowered);
    assert!(edge.next().is_none(), "the doorbell has not rung");
    assert_eq!(
        edge.receive(),
        PairStatus {
            is_open: true,
            shortage: None,
            is_relieved: true
        }
    );
    edge.inbox.handle().check_all_inputs();
    let first = edge.expect_sample(1);
    // The block of the first sample is still held: this one needs another.
    edge.send(2);
    edge.expect_sample(2);
    drop(first);
    let counted = edge.producer_counters.output(0);
    assert_eq!(
        (
            counted.sent,
            counted.lost(),
            edge.consumer_counters.input(0).received
        ),
        (2, 0, 2)
    );
}

#[test]
fn a_segment_waits_while_descriptors_are_short() {
    assert_sample_survives(Lowered::descriptors, |shortage| {
        shortage == Shortage::Descriptors { limit: 0 }
    });
}

#[test]
fn a_segment_waits_while_mappings_are_short() {
    assert_sample_survives(Lowered::memory, |shortage| shortage == Shortage::Memory);
}

/// Only the data thread meets the shortage; it is over before the control thread looks.
#[test]
fn a_shortage_that_only_the_data_thread_found_ends_too() {
    let _turn = take_turn();
    let mut edge = Edge::new(Policy::DropOldest);
    edge.send(1);
    let lowered = Lowered::descriptors();
    assert!(edge.next().is_none());
    drop(lowered);
    assert!(
        edge.next().is_none(),
        "its bit was cleared: without a ring it would sleep forever"
    );
    assert!(edge.receive().is_relieved);
    edge.inbox.handle().check_all_inputs();
    edge.expect_sample(1);
}

/// The producer ends while its last sample cannot be mapped.
#[test]
fn an_edge_ends_after_the_sample_that_waits_for_descriptors() {
    let _turn = take_turn();
    let mut edge = Edge::new(Policy::DropOldest);
    edge.send(1);
    let lowered = Lowered::descriptors();
    edge.inbox.handle().close(0, true);
    assert!(edge.next().is_none());
    assert!(edge.inbox.take_newest(0).expect("not forked").is_none());
    assert!(edge.next().is_none());
    drop(lowered);
    assert!(edge.receive().is_relieved);
    edge.inbox.handle().check_all_inputs();
    edge.expect_sample(1);
    assert!(matches!(edge.next(), Some(Arrival::Ended { input: 0 })));
    assert!(matches!(edge.next(), Some(Arrival::Closed { input: 0 })));
}

#[test]
fn a_request_for_a_schema_waits_for_the_segment_before_it() {
    let _turn = take_turn();
    let mut edge = Edge::new(Policy::DropOldest);
    edge.send(1);
    let sample = edge.expect_sample(1);
    edge.send(2);
    let lowered = Lowered::descriptors();
    assert!(edge.receive().shortage.is_some());
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| sample.announcement(2));
        drop(lowered);
        assert!(edge.receive().is_relieved);
        assert_eq!(
            asking.join().expect("no panic").as_deref(),
            Some(&b"a schema"[..])
        );
    });
}

#[test]
fn a_packet_is_not_lost_with_its_descriptors() {
    let _turn = take_turn();
    let (a, b) = Seqpacket::pair().expect("a socket");
    let fds = [a.as_fd(), a.as_fd(), a.as_fd()];
    a.send(b"with descriptors", &fds).expect("room");
    a.send(b"behind it", &[]).expect("room");
    let mut buffer = Vec::with_capacity(64);
    let lowered = Lowered::descriptors();
    for _ in 0..2 {
        let error = b.receive(&mut buffer).expect_err("no descriptors");
        assert_eq!(
            Shortage::of(&error),
            Some(Shortage::Descriptors { limit: 0 })
        );
        assert_eq!(buffer, b"with descriptors", "its bytes arrive");
    }
    drop(lowered);
    let Received::Packet(fds) = b.receive(&mut buffer).expect("a packet") else {
        panic!("it is open")
    };
    assert_eq!(
        (buffer.as_slice(), fds.len()),
        (&b"with descriptors"[..], 3)
    );
    let lowered = Lowered::descriptors();
    assert!(matches!(b.receive(&mut buffer), Ok(Received::Packet(fds)) if fds.is_empty()));
    assert_eq!(buffer, b"behind it");
    // A packet that is consumed takes its descriptors with it.
    a.send(b"given up", &[a.as_fd()]).expect("room");
    assert!(b.peek(&mut buffer).is_err());
    b.consume();
    drop(lowered);
    assert_eq!(
        b.receive(&mut buffer).expect_err("nothing").kind(),
        std::io::ErrorKind::WouldBlock
    );
}

/// More descriptors than a producer ever sends are no shortage of its consumer.
#[test]
fn too_many_descriptors_are_misbehaviour() {
    let _turn = take_turn();
    let (a, b) = Seqpacket::pair().expect("a socket");
    let pair = ConsumerPair::new(b);
    let segment_packet = [1_u64, 0, 4096].map(u64::to_ne_bytes).concat();
    a.send(&segment_packet, &[a.as_fd(); 100]).expect("room");
    for _ in 0..2 {
        assert!(
            matches!(pair.receive(), Err(Misbehaviour::Message(_))),
            "at each call"
        );
    }
}
