//! Peers that overwrite the page on which an honest node sleeps. The node still notices everything,
//! and reports that its page was overwritten.

use crate::rig::{BLOCKS, DEPTH, HonestConsumer, HonestProducer, send};
use fastrand::Rng;
use nervure_message::Header;
use nervure_protocol::wiring::Policy;
use nervure_shm::{
    Arrival, CountersPage, EdgeRegion, OwnWakePage, SendError, Seqpacket, Wait, Waited, WakePage,
    eventfd, monotonic_nanos,
};
use rustix::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

/// Offsets of the words in use: the room futex, then the doorbell with one word of bits.
const FIELDS: [u64; 6] = [64, 72, 128, 136, 144, 152];
const PARKED: u64 = 128;

/// Time after which a test gives up: 60 seconds.
const TIMEOUT_NANOS: u64 = 60_000_000_000;

/// An honest consumer with an honest producer on input 1. Hostile peers have its wake page.
struct Victim {
    consumer: HonestConsumer,
    producer: HonestProducer,
}

impl Victim {
    fn new() -> Self {
        let (consumer, producer) = (HonestConsumer::new(), HonestProducer::new());
        let region = EdgeRegion::create(DEPTH, BLOCKS).expect("memory");
        let (a, b) = Seqpacket::pair().expect("a socket");
        consumer.attach(1, &region, &producer.wake, b);
        producer.attach(1, Policy::DropOldest, &region, &consumer.wake, a);
        let mut victim = Self { consumer, producer };
        assert!(victim.consumer.next().is_none(), "the edge is attached");
        victim
    }

    /// Waits for an arrival that `is_it`, without a deadline for the sleep.
    fn wait_for(&mut self, sleep: Sleep, what: &str, is_it: impl Fn(&Arrival) -> bool) {
        let give_up = monotonic_nanos() + TIMEOUT_NANOS;
        loop {
            while let Some(arrival) = self.consumer.next() {
                if is_it(&arrival) {
                    return;
                }
            }
            assert!(monotonic_nanos() < give_up, "the node slept through {what}");
            sleep.sleep(&self.consumer, None);
        }
    }

    /// Checks that the node notices everything that may happen while it sleeps.
    fn assert_notices_everything(&mut self, sleep: Sleep) {
        self.while_asleep(sleep, "a sample", is_sample, |node| {
            send(&node.output, &[7; 100]);
        });
        let handle = self.consumer.inbox.handle();
        self.while_asleep(sleep, "a notification", is_notification, |_| {
            handle.notify()
        });
        let due = monotonic_nanos() + 20_000_000;
        while sleep.sleep(&self.consumer, Some(due)) != Waited::TimedOut {
            self.consumer.next();
        }
        assert!(monotonic_nanos() >= due, "a timer's time");
    }

    fn while_asleep(
        &mut self,
        sleep: Sleep,
        what: &str,
        is_it: fn(&Arrival) -> bool,
        act: impl FnOnce(&HonestProducer) + Send,
    ) {
        while self.consumer.next().is_some() {}
        let producer = HonestProducer {
            output: self.producer.output.clone(),
            ..HonestProducer::new()
        };
        let counters = self.consumer.counters.clone();
        thread::scope(|scope| {
            scope.spawn(move || {
                while counters.sleeps_until().is_none() {
                    thread::yield_now();
                }
                act(&producer);
            });
            self.wait_for(sleep, what, is_it);
        });
    }
}

fn is_sample(arrival: &Arrival) -> bool {
    matches!(arrival, Arrival::Sample { input: 1, .. })
}

fn is_notification(arrival: &Arrival) -> bool {
    matches!(arrival, Arrival::Notified)
}

/// The ways to sleep.
#[derive(Clone, Copy, Debug)]
enum Sleep {
    OnFutex,
    InEventLoop,
}

impl Sleep {
    const ALL: [Self; 2] = [Self::OnFutex, Self::InEventLoop];

    fn sleep(self, consumer: &HonestConsumer, deadline: Option<u64>) -> Waited {
        match self {
            Self::OnFutex => consumer.inbox.wait(deadline),
            Self::InEventLoop => {
                let other = eventfd().expect("a descriptor");
                consumer.inbox.handle().wait_beside(other.as_fd(), deadline)
            }
        }
    }
}

fn overwrite(page: &OwnedFd, offset: u64, value: u64) {
    rustix::io::pwrite(page, &value.to_ne_bytes(), offset).expect("a shared page");
}

/// A peer overwrites it once, while the node sleeps.
#[test]
fn a_word_that_was_overwritten_once_does_no_lasting_harm() {
    thread::scope(|scope| {
        for sleep in Sleep::ALL {
            for offset in FIELDS {
                for value in [0, u64::MAX, 0x5555_5555_5555_5555] {
                    scope.spawn(move || {
                        let mut victim = Victim::new();
                        let page = victim.consumer.wake.try_clone().expect("a descriptor");
                        victim.while_asleep(sleep, "a sample", is_sample, |node| {
                            overwrite(&page, offset, value);
                            send(&node.output, &[7; 100]);
                        });
                        victim.assert_notices_everything(sleep);
                    });
                }
            }
        }
    });
}

/// A peer overwrites it as long as it lives.
#[test]
fn a_page_that_is_overwritten_all_the_time_hides_nothing_from_its_node() {
    let zeros: fn(&mut Rng) -> u64 = |_| 0;
    let any: fn(&mut Rng) -> u64 = |random| random.u64(..);
    let ones: fn(&mut Rng) -> u64 = |_| u64::MAX;
    thread::scope(|scope| {
        for sleep in Sleep::ALL {
            for value in [zeros, ones, any] {
                scope.spawn(move || notices_everything_while_overwritten(sleep, value));
            }
        }
    });
}

fn notices_everything_while_overwritten(sleep: Sleep, value: fn(&mut Rng) -> u64) {
    let mut victim = Victim::new();
    let page = victim.consumer.wake.try_clone().expect("a descriptor");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = Rng::with_seed(1);
            while !is_over.load(SeqCst) {
                FIELDS
                    .iter()
                    .for_each(|&offset| overwrite(&page, offset, value(&mut random)));
                thread::yield_now();
            }
        });
        victim.assert_notices_everything(sleep);
        let handle = victim.consumer.inbox.handle();
        victim.while_asleep(
            sleep,
            "a death",
            |arrival| matches!(arrival, Arrival::Closed { input: 1 }),
            |_| handle.close(1, true),
        );
        is_over.store(true, SeqCst);
    });
}

/// The keeper rings for a dead peer, even if that peer marked the node as awake.
#[test]
fn a_node_that_seems_awake_is_woken_for_the_end_of_a_peer() {
    let mut victim = Victim::new();
    let (wake, eventfd) = (
        victim.consumer.wake.try_clone().expect("a descriptor"),
        victim.consumer.eventfd.clone(),
    );
    let keeper_page = WakePage::map(&wake).expect("a wake page");
    let counters = victim.consumer.counters.clone();
    thread::scope(|scope| {
        scope.spawn(|| {
            while counters.sleeps_until().is_none() {
                thread::yield_now();
            }
            overwrite(&wake, PARKED, 0);
            keeper_page.ring_all(eventfd.as_fd());
        });
        // A wait that ends by the ring, not by the node's own check: that would be `TimedOut`.
        let deadline = monotonic_nanos() + nervure_shm::MAX_SLEEP_NANOS / 2;
        let mut waited = victim.consumer.inbox.wait(Some(deadline));
        while waited == Waited::TimedOut {
            let deadline = monotonic_nanos() + nervure_shm::MAX_SLEEP_NANOS / 2;
            assert!(victim.consumer.next().is_none());
            waited = victim.consumer.inbox.wait(Some(deadline));
        }
    });
}

#[test]
fn an_overwritten_page_is_reported_once_and_an_intact_one_never() {
    let mut victim = Victim::new();
    let overwritten = victim.consumer.overwritten.clone();
    victim.assert_notices_everything(Sleep::OnFutex);
    victim.assert_notices_everything(Sleep::InEventLoop);
    assert_eq!(overwritten.load(SeqCst), 0, "all peers keep the protocol");
    let page = victim.consumer.wake.try_clone().expect("a descriptor");
    for sleep in Sleep::ALL {
        let handle = victim.consumer.inbox.handle();
        // A write before the node sleeps on the futex may be too early to be detected.
        let seen = overwritten.clone();
        while seen.load(SeqCst) == 0 {
            victim.while_asleep(sleep, "a notification", is_notification, |_| {
                overwrite(&page, PARKED, 0);
                handle.notify();
            });
        }
    }
    assert_eq!(overwritten.load(SeqCst), 1);
}

/// A peer may have the node's page before the node has mapped it.
#[test]
fn a_page_that_was_overwritten_before_its_node_maps_it_still_works() {
    let (_, wake) = WakePage::create(2).expect("memory");
    let mut random = Rng::with_seed(1);
    for offset in (0..4096).step_by(8) {
        overwrite(&wake, offset, random.u64(..));
    }
    let counters = CountersPage::create(0, 2).expect("memory");
    let counters = Arc::new(CountersPage::map(&counters, true).expect("counters"));
    OwnWakePage::map(&wake, 2, counters.clone()).expect("its own page");
    WakePage::map(&wake).expect("a peer's page");
    let consumer = HonestConsumer::with_page(wake, counters);
    let producer = HonestProducer::new();
    let region = EdgeRegion::create(DEPTH, BLOCKS).expect("memory");
    let (a, b) = Seqpacket::pair().expect("a socket");
    consumer.attach(1, &region, &producer.wake, b);
    producer.attach(1, Policy::DropOldest, &region, &consumer.wake, a);
    Victim { consumer, producer }.assert_notices_everything(Sleep::OnFutex);
}

/// The hostile consumer of a `block` edge marks the producer as not waiting.
#[test]
fn a_blocked_producer_notices_room_and_stop_whatever_its_page_holds() {
    for field in [64, 72] {
        let (consumer, producer) = (HonestConsumer::new(), HonestProducer::new());
        let region = EdgeRegion::create(DEPTH, BLOCKS).expect("memory");
        let (a, b) = Seqpacket::pair().expect("a socket");
        consumer.attach(1, &region, &producer.wake, b);
        producer.attach(1, Policy::Block, &region, &consumer.wake, a);
        let mut victim = Victim { consumer, producer };
        for _ in 0..DEPTH {
            send(&victim.producer.output, b"x");
        }
        let page = victim.producer.wake.try_clone().expect("a descriptor");
        let (output, process) = (
            victim.producer.output.clone(),
            victim.producer.process.clone(),
        );
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(SeqCst) {
                    overwrite(&page, field, 0);
                }
            });
            let blocked = || {
                let mut loan = output.loan(1, 0, Wait::Forever).expect("memory");
                output.publish(&mut loan, Header::default(), b"", Wait::Forever)
            };
            let until_blocked = || {
                while process.counters.waiting() == 0 {
                    thread::yield_now();
                }
            };
            let sender = scope.spawn(blocked);
            until_blocked();
            assert!(
                victim
                    .consumer
                    .next()
                    .is_some_and(|arrival| is_sample(&arrival)),
                "the consumer makes room"
            );
            sender.join().expect("no panic").expect("there is room");
            let sender = scope.spawn(blocked);
            until_blocked();
            process.stop();
            assert!(matches!(
                sender.join().expect("no panic"),
                Err(SendError::Stopped)
            ));
            is_over.store(true, SeqCst);
        });
        assert_eq!(process.counters.waiting(), 0);
    }
}
