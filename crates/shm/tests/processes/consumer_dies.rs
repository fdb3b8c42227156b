//! The consumer is killed at any moment, while it holds samples.

use crate::rig::{
    BLOCKS, ConsumerPages, Spawned, attach, bytes_of, deadline, fill, open_counts, producer, queue,
    run_alone, serve,
};
use nervure_message::Header;
use nervure_protocol::wiring::{Policy, Queue};
use nervure_shm::{CountersPage, EdgeRegion, Output, Producer, Seqpacket, Wait, WakePage};
use rustix::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;

struct Parent {
    output: Output,
    process: Producer,
    wake: OwnedFd,
}

impl Parent {
    fn new() -> Self {
        let (_, wake) = WakePage::create(0).expect("memory");
        let process = producer(&wake, &CountersPage::create(1, 0).expect("memory"));
        Self {
            output: Output::new("output".to_owned(), BLOCKS, 0, process.clone()),
            process,
            wake,
        }
    }

    fn publish(&self, number: u64, wait: Wait) {
        let mut loan = self.output.loan(bytes_of(number), 0, wait).expect("memory");
        fill(loan.payload_mut(), number);
        self.output
            .publish(&mut loan, Header::default(), b"", wait)
            .expect("room");
    }

    /// Starts a consumer on a region. The producer attaches the edge before the consumer looks into
    /// it, or after (`producer_last`).
    fn start(&self, region: &OwnedFd, queue: Queue, peer: u32, producer_last: bool) -> Consumer {
        let pages = ConsumerPages::new();
        let (a, b) = Seqpacket::pair().expect("a socket");
        let process = Spawned::new(&format!("consume {}", queue.depth));
        let attach_producer = |a| {
            let pair = attach(
                &self.output,
                queue,
                region,
                (&pages.wake, &pages.eventfd),
                a,
                peer,
            );
            serve(self.output.clone(), pair, peer)
        };
        let socket = OwnedFd::from(b);
        let fds = [
            &pages.wake,
            &pages.eventfd,
            &pages.counters,
            region,
            &self.wake,
            &socket,
        ]
        .map(AsFd::as_fd);
        let control = if producer_last {
            process.give(&fds);
            drop(socket);
            attach_producer(a)
        } else {
            let control = attach_producer(a);
            process.give(&fds);
            drop(socket);
            control
        };
        Consumer { process, control }
    }
}

struct Consumer {
    process: Spawned,
    control: thread::JoinHandle<()>,
}

impl Consumer {
    /// Kills the consumer, waits until its producer notices, and returns the consumer's reports.
    fn kill(mut self) -> Vec<u64> {
        self.process.kill();
        self.control.join().expect("the socket hangs up");
        std::iter::from_fn(|| self.process.report()).collect()
    }
}

/// The producer reuses its blocks, and a waiting producer continues.
#[test]
fn its_blocks_are_free_at_once() {
    let _alone = run_alone();
    let mut before = None;
    for round in 0..8 {
        let policy = if round % 2 == 0 {
            Policy::Block
        } else {
            Policy::DropOldest
        };
        let parent = Parent::new();
        let region = EdgeRegion::create(4, BLOCKS).expect("memory");
        let consumer = parent.start(&region, queue(policy, 4), 0, false);
        let (is_over, published) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            scope.spawn(|| {
                let deadline = Wait::Until(deadline());
                while !is_over.load(SeqCst) {
                    parent.publish(published.fetch_add(1, SeqCst), deadline);
                }
            });
            while consumer.process.report().expect("it reports") < 20 + round * 31 {}
            consumer.kill();
            parent.output.detach(0, false);
            let used = parent.process.budget.used();
            // The producer may have been blocked. Now no edge blocks it, and it needs no more
            // memory.
            let goal = published.load(SeqCst) + 200;
            while published.load(SeqCst) < goal {
                thread::yield_now();
            }
            is_over.store(true, SeqCst);
            assert!(
                parent.process.budget.used() <= used,
                "new memory after a death"
            );
        });
        drop((parent, region));
        assert!(
            round < 2 || Some(open_counts()) == before,
            "descriptors and mappings: {:?}, {before:?}",
            open_counts()
        );
        before = Some(open_counts());
    }
}

/// No queued sample is lost over many deaths at any moment; none arrives twice or out of order.
#[test]
fn its_next_incarnations_continue_where_it_stopped() {
    let _alone = run_alone();
    let parent = Parent::new();
    let region = EdgeRegion::create(6, BLOCKS).expect("memory");
    let queue = queue(Policy::Block, 6);
    let is_over = AtomicBool::new(false);
    let published = AtomicU64::new(0);
    let mut reported = Vec::new();
    let mut deaths = 0;
    // A sample that is published before the edge exists reaches no consumer.
    let mut first = Some(parent.start(&region, queue, 0, false));
    thread::scope(|scope| {
        scope.spawn(|| {
            let deadline = Wait::Until(deadline());
            while !is_over.load(SeqCst) {
                parent.publish(published.load(SeqCst), deadline);
                published.fetch_add(1, SeqCst);
            }
        });
        for round in 0..12_u32 {
            let consumer = first
                .take()
                .unwrap_or_else(|| parent.start(&region, queue, round, round % 2 == 0));
            for _ in 0..(round * 53 % 90) {
                reported.push(consumer.process.report().expect("it reports"));
            }
            reported.extend(consumer.kill());
            deaths += 1;
            if round == 11 {
                is_over.store(true, SeqCst);
            }
            parent.output.detach(0, round < 11);
        }
    });
    assert!(reported.is_sorted_by(|a, b| a < b), "{reported:?}");
    let counters = parent.process.counters.output(0);
    // The very last sample may have been published when the edge was gone.
    let published = published.into_inner();
    assert!(
        (published - 1..=published).contains(&counters.sent),
        "{published}: {counters:?}"
    );
    assert_eq!(counters.lost(), counters.lost_in_crash, "{counters:?}");
    // Only samples taken and not yet reported may be missing: one per death.
    let unreported = counters.sent - counters.undelivered - reported.len() as u64;
    assert!(
        unreported <= deaths,
        "{unreported} samples were lost in {deaths} deaths"
    );
    assert!(counters.lost_in_crash > 0, "it held samples when it died");
}
