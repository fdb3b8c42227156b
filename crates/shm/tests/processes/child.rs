//! The roles of child processes.

use crate::rig::{
    BLOCKS, ROLE, attach, bytes_of, fill, number_of, producer, queue, receive, serve,
};
use nervure_message::Header;
use nervure_protocol::wiring::Policy;
use nervure_shm::{
    Arrival, ConsumerPair, CountersPage, EdgeRegion, Inbox, InputEdge, Output, OwnWakePage,
    Seqpacket, Wait, WakePage,
};
use rustix::fd::{AsFd, OwnedFd};
use std::collections::VecDeque;
use std::sync::Arc;

/// Samples that a consumer holds.
const HELD: usize = 3;

/// The entry point of a child. In the parent it does nothing.
#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let control = Seqpacket::from(
        std::io::stdin()
            .as_fd()
            .try_clone_to_owned()
            .expect("its control socket"),
    );
    let fds = receive(&control).expect("descriptors").0;
    let (role, number) = role.split_once(' ').expect("a role and its number");
    let number = number.parse().expect("a number");
    match role {
        "produce" => produce(fds, u64::MAX),
        "produce-then-sleep" => produce(fds, number),
        "consume" => consume(&control, fds, number as u32),
        other => panic!("no role: {other}"),
    }
}

/// Publishes `count` samples to a `block` edge, then sleeps.
fn produce(fds: Vec<OwnedFd>, count: u64) {
    let [own_wake, counters, region, bell, eventfd, socket] =
        <[OwnedFd; 6]>::try_from(fds).expect("six");
    let process = producer(&own_wake, &counters);
    let output = Output::new("output".to_owned(), BLOCKS, 0, process);
    let queue = queue(Policy::Block, 4);
    let pair = attach(
        &output,
        queue,
        &region,
        (&bell, &eventfd),
        Seqpacket::from(socket),
        0,
    );
    serve(output.clone(), pair, 0);
    for number in 0..count {
        let mut loan = output
            .loan(bytes_of(number), 0, Wait::Forever)
            .expect("memory");
        fill(loan.payload_mut(), number);
        output
            .publish(&mut loan, Header::default(), b"", Wait::Forever)
            .expect("room");
    }
    loop {
        std::thread::park();
    }
}

/// Reports the number of every sample on a queue of this depth, and holds the last [`HELD`] of them.
fn consume(control: &Seqpacket, fds: Vec<OwnedFd>, depth: u32) {
    let [wake, eventfd, counters, region, producer_wake, socket] =
        <[OwnedFd; 6]>::try_from(fds).expect("six");
    let counters = Arc::new(CountersPage::map(&counters, true).expect("counters"));
    let page = OwnWakePage::map(&wake, 1, counters.clone()).expect("a wake page");
    let mut inbox = Inbox::new(Arc::new(page), Arc::new(eventfd));
    inbox.handle().attach(InputEdge {
        id: 0,
        input: 0,
        policy: Policy::Block,
        region: EdgeRegion::map(&region, depth, BLOCKS).expect("a region"),
        pair: Arc::new(ConsumerPair::new(Seqpacket::from(socket))),
        producer_wake: Arc::new(WakePage::map(&producer_wake).expect("a wake page")),
        counters,
    });
    let mut held = VecDeque::new();
    loop {
        match inbox.try_next().expect("not forked") {
            Some(Arrival::Sample { sample, .. }) => {
                let report = number_of(&sample).to_ne_bytes();
                while control.send(&report, &[]).is_err() {
                    std::thread::yield_now();
                }
                held.push_back(sample);
                if held.len() > HELD {
                    held.pop_front();
                }
            }
            Some(other) => panic!("unexpected: {other:?}"),
            None => drop(inbox.wait(None)),
        }
    }
}
