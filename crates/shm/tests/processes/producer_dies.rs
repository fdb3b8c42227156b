//! The producer is killed at any moment.

use crate::rig::{BLOCKS, ConsumerPages, Spawned, deadline, number_of, open_counts, run_alone};
use nervure_protocol::wiring::Policy;
use nervure_shm::{
    Arrival, ConsumerPair, CountersPage, EdgeRegion, Inbox, InputEdge, OwnWakePage, Seqpacket,
    WakePage, monotonic_nanos,
};
use rustix::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;

/// Spawns a producer, kills it once `kill_after` samples were received, and returns how many were
/// received in total.
fn run(role: &str, kill_after: u64) -> u64 {
    let pages = ConsumerPages::new();
    let region = EdgeRegion::create(4, BLOCKS).expect("memory");
    let (_, producer_wake) = WakePage::create(0).expect("memory");
    let producer_counters = CountersPage::create(1, 0).expect("memory");
    let (a, b) = Seqpacket::pair().expect("a socket");
    let mut producer = Spawned::new(role);
    let socket = OwnedFd::from(a);
    producer.give(
        &[
            &producer_wake,
            &producer_counters,
            &region,
            &pages.wake,
            &pages.eventfd,
            &socket,
        ]
        .map(AsFd::as_fd),
    );
    drop(socket);
    let keepers_page = WakePage::map(&pages.wake).expect("a wake page");
    let eventfd = Arc::new(pages.eventfd);
    let counters = Arc::new(CountersPage::map(&pages.counters, true).expect("counters"));
    let page = OwnWakePage::map(&pages.wake, 1, counters.clone()).expect("a wake page");
    let mut inbox = Inbox::new(Arc::new(page), eventfd.clone());
    inbox.handle().attach(InputEdge {
        id: 0,
        input: 0,
        policy: Policy::Block,
        region: EdgeRegion::map(&region, 4, BLOCKS).expect("a region"),
        pair: Arc::new(ConsumerPair::new(b)),
        producer_wake: Arc::new(WakePage::map(&producer_wake).expect("a wake page")),
        counters,
    });
    let (received, handle) = (AtomicU64::new(0), inbox.handle());
    thread::scope(|scope| {
        let consumer = scope.spawn(|| {
            let deadline = deadline();
            loop {
                match inbox.try_next().expect("not forked") {
                    Some(Arrival::Sample { sample, .. }) => {
                        // In order, none twice, none missing, none torn.
                        assert_eq!(number_of(&sample), received.fetch_add(1, SeqCst));
                    }
                    Some(Arrival::Ended { .. }) => {}
                    Some(Arrival::Closed { .. }) => break,
                    Some(other) => panic!("unexpected: {other:?}"),
                    None => {
                        inbox.wait(Some(deadline));
                        assert!(monotonic_nanos() < deadline, "the consumer was not woken");
                    }
                }
            }
        });
        while received.load(SeqCst) < kill_after {
            assert!(!consumer.is_finished());
            thread::yield_now();
        }
        producer.kill();
        handle.close(0, true);
        keepers_page.ring_all(eventfd.as_fd());
    });
    received.into_inner()
}

/// The kill comes between any two instructions of the producer.
#[test]
fn its_queued_samples_are_delivered_and_the_input_closes() {
    let _alone = run_alone();
    run("produce 0", 1);
    let before = open_counts();
    for round in 0..20 {
        let kill_after = round * 37 % 500;
        assert!(run("produce 0", kill_after) >= kill_after);
    }
    assert_eq!(open_counts(), before, "descriptors and mappings");
}

/// Without the keeper's ring the consumer would sleep forever.
#[test]
fn a_sleeping_consumer_is_woken_for_the_end() {
    let _alone = run_alone();
    for count in [0, 1, 5] {
        assert_eq!(run(&format!("produce-then-sleep {count}"), count), count);
    }
}
