//! A consumer that sleeps in its own event loop, on the eventfd.

pub mod support;

use nervure_protocol::wiring::Policy;
use nervure_shm::{Arrival, Inbox, Output, Waited, eventfd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd};
use std::thread;
use support::{TestNode, connect, queue, try_send};

fn wired() -> (Output, Inbox) {
    let (producer, consumer) = (TestNode::new(1 << 30), TestNode::new(0));
    let (output, inbox) = (producer.output(16, 0), consumer.inbox());
    connect(
        0,
        (&producer, &output, 16),
        (&consumer, &inbox),
        queue(Policy::DropOldest, 2, 4),
    );
    (output, inbox)
}

fn send(output: &Output) {
    try_send(output, 8).expect("room");
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
fn the_eventfd_reports_news_only_while_armed() {
    let (output, mut inbox) = wired();
    drain(&mut inbox);
    send(&output);
    assert!(!is_readable(inbox.eventfd(), 0), "not armed");
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
        "a notification is news, too"
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
    assert_eq!(
        wait(&inbox, None),
        Waited::LookAgain,
        "a sample from before the wait"
    );
    assert_eq!(drain(&mut inbox), Some(0));
    thread::scope(|scope| {
        scope.spawn(|| send(&output));
        while drain(&mut inbox).is_none() {
            assert_eq!(
                wait(&inbox, None),
                Waited::LookAgain,
                "a sample during the wait"
            );
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
