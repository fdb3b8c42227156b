//! A consumer that sleeps in an event loop of its own, on the eventfd.

use nervure_protocol::wiring::{Policy, Queue};
use nervure_shm::{
    Arrival, Budget, ConsumerPair, CountersPage, EdgeRegion, Inbox, InputEdge, Output, OutputEdge,
    OwnWakePage, Producer, ProducerPair, Seqpacket, Wait, Waited, WakePage, eventfd,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::thread;

fn wired() -> (Output, Inbox) {
    let (_, wake) = WakePage::create(1).expect("memory");
    let counters = CountersPage::create(1, 1).expect("memory");
    let counters = Arc::new(CountersPage::map(&counters, true).expect("counters"));
    let producer = Producer {
        budget: Budget::new(1 << 30),
        wake: Arc::new(
            OwnWakePage::map(&WakePage::create(0).expect("memory").1, 0, counters.clone())
                .expect("a wake page"),
        ),
        counters: counters.clone(),
        incarnation: 0,
        stopping: Arc::default(),
        on_misbehaviour: Arc::new(|edge, what| panic!("edge {edge}: {what}")),
    };
    let output = Output::new("output".to_owned(), 16, 0, producer);
    let eventfd = Arc::new(eventfd().expect("a descriptor"));
    let inbox = Inbox::new(
        Arc::new(OwnWakePage::map(&wake, 1, counters.clone()).expect("a wake page")),
        eventfd.clone(),
    );
    let region = EdgeRegion::create(2, 16).expect("memory");
    let (a, b) = Seqpacket::pair().expect("a socket");
    inbox.handle().attach(InputEdge {
        id: 0,
        input: 0,
        policy: Policy::DropOldest,
        region: EdgeRegion::map(&region).expect("a region"),
        pair: Arc::new(ConsumerPair::new(b)),
        producer_wake: Arc::new(WakePage::create(0).expect("memory").0),
        counters,
    });
    let attached = output.attach(OutputEdge {
        id: 0,
        consumer: "consumer/input".to_owned(),
        input: 0,
        queue: Queue {
            policy: Policy::DropOldest,
            depth: 2,
            max_held: 4,
        },
        counters_row: 0,
        region: EdgeRegion::map(&region).expect("a region"),
        bell: Arc::new(WakePage::map(&wake).expect("a wake page")),
        eventfd,
        pair: Arc::new(ProducerPair::new(a, 0)),
    });
    attached.expect("it fits");
    (output, inbox)
}

fn send(output: &Output) {
    let mut loan = output.loan(8, 0, Wait::Never).expect("memory");
    output
        .publish(
            &mut loan,
            nervure_message::Header::default(),
            b"",
            Wait::Never,
        )
        .expect("room");
}

fn is_readable(fd: BorrowedFd<'_>, timeout_seconds: i64) -> bool {
    let timeout = Timespec {
        tv_sec: timeout_seconds,
        tv_nsec: 0,
    };
    poll(
        &mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)],
        Some(&timeout),
    )
    .expect("poll")
        > 0
}

fn drain(inbox: &mut Inbox) -> Option<u64> {
    let mut last = None;
    while let Some(arrival) = inbox.try_next().expect("not forked") {
        if let Arrival::Sample { sample, .. } = arrival {
            last = Some(sample.header().sequence);
        }
    }
    last
}

#[test]
fn the_eventfd_tells_of_news_once_armed_and_only_then() {
    let (output, mut inbox) = wired();
    drain(&mut inbox);
    send(&output);
    assert!(!is_readable(inbox.eventfd(), 0), "nobody asked");
    assert!(!inbox.arm(), "there is news already");
    drain(&mut inbox);
    assert!(inbox.arm());
    assert!(!is_readable(inbox.eventfd(), 0));
    send(&output);
    send(&output);
    assert!(is_readable(inbox.eventfd(), 0));
    inbox.disarm();
    assert!(!is_readable(inbox.eventfd(), 0), "disarmed");
    assert_eq!(drain(&mut inbox), Some(2));
    assert!(inbox.arm());
    inbox.handle().notify();
    assert!(
        is_readable(inbox.eventfd(), 0),
        "the control thread is news, too"
    );
    inbox.disarm();
}

#[test]
fn a_wait_beside_another_descriptor_ends_for_either() {
    let (output, mut inbox) = wired();
    let other = eventfd().expect("a descriptor");
    let wait = |inbox: &Inbox, deadline| inbox.handle().wait_beside(other.as_fd(), deadline);
    drain(&mut inbox);
    assert_eq!(wait(&inbox, Some(1)), Waited::TimedOut);
    rustix::io::write(&other, &1u64.to_ne_bytes()).expect("room");
    assert_eq!(wait(&inbox, None), Waited::Interrupted);
    rustix::io::read(&other, &mut [0; 8]).expect("what was written");
    send(&output);
    assert_eq!(wait(&inbox, None), Waited::LookAgain, "what came before");
    assert_eq!(drain(&mut inbox), Some(0));
    thread::scope(|scope| {
        scope.spawn(|| send(&output));
        while drain(&mut inbox).is_none() {
            assert_eq!(wait(&inbox, None), Waited::LookAgain, "what comes");
        }
    });
}

#[test]
fn no_news_is_lost_between_looking_and_sleeping() {
    const COUNT: u64 = 20_000;
    let (output, mut inbox) = wired();
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..COUNT {
                send(&output);
                if number % 7 == 0 {
                    thread::yield_now();
                }
            }
        });
        let mut last = None;
        while last < Some(COUNT - 1) {
            if inbox.arm() {
                assert!(is_readable(inbox.eventfd(), 60), "asleep after {last:?}");
                inbox.disarm();
            }
            last = drain(&mut inbox).or(last);
        }
    });
}
