//! Waiting for room in streams that keep all.

use std::{
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    task::{Context, Poll, Wake, Waker},
};

use super::*;
use crate::shell::IncomingStream;

const DEPTH: u32 = 2;
/// Samples that a stream takes whose consumer takes none: its depth at each end.
const ROOM: u8 = 2 * DEPTH as u8;

/// A task that notes its wake-ups.
struct Task(Sender<()>);

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        // The test may have ended.
        let _ = self.0.send(());
    }
}

/// A task, and its wake-ups.
fn task() -> (Waker, Receiver<()>) {
    let (sender, woken) = channel();
    (Waker::from(Arc::new(Task(sender))), woken)
}

fn open(receiving: &Link, peer: &Peer, name: &str) -> (OutgoingStream, IncomingStream) {
    let stream = peer
        .open(name, Qos::new(Delivery::keep_all(DEPTH)))
        .expect("the name is short");
    let (opened, incoming) = next_opened(receiving);
    assert_eq!(opened, name);
    (stream, incoming)
}

/// Fills a stream, and has the task woken when it has room.
fn fill(stream: &OutgoingStream, waker: &Waker) {
    for number in 0..ROOM {
        stream.send([number].to_vec()).expect("there is room soon");
    }
    assert!(offer(stream, waker).is_pending());
}

fn offer(stream: &OutgoingStream, waker: &Waker) -> Poll<Result<(), StreamError>> {
    stream.poll_send(&Context::from_waker(waker), vec![ROOM])
}

fn await_notice(woken: &Receiver<()>) {
    woken.recv_timeout(TIMEOUT).expect("the task is woken");
}

#[test]
fn a_full_stream_wakes_its_sender_once_when_it_has_room() {
    let (receiving, _sending, peer) = connected();
    let (stream, incoming) = open(&receiving, &peer, "stream");
    let (other, of_other) = open(&receiving, &peer, "other");
    let (waker, woken) = task();
    fill(&stream, &waker);
    assert!(offer(&stream, &waker).is_pending(), "asked twice");
    // Room in other streams, and their events, are of no use to it.
    for number in 0..4 * ROOM {
        other.send(vec![number]).expect("there is room soon");
        of_other.receive(TIMEOUT).expect("it was sent");
    }
    assert!(other.flush(TIMEOUT));
    assert_eq!(woken.try_iter().count(), 0);

    let take = || incoming.receive(TIMEOUT).expect("it was sent").payload[0];
    assert_eq!(take(), 0);
    await_notice(&woken);
    let rest: Vec<u8> = (1..ROOM).map(|_| take()).collect();
    assert_eq!(rest, (1..ROOM).collect::<Vec<_>>());
    assert!(stream.flush(TIMEOUT));
    assert_eq!(woken.try_iter().count(), 0, "one notice");
    assert!(matches!(offer(&stream, &waker), Poll::Ready(Ok(()))));
    assert_eq!(take(), ROOM);
}

#[test]
fn a_session_that_is_lost_and_opened_again_gives_room_once() {
    let (receiving, sending, peer) = connected();
    let (stream, incoming) = open(&receiving, &peer, "stream");
    let (waker, woken) = task();
    fill(&stream, &waker);
    let address = receiving.local_address();
    drop((incoming, receiving));
    let is_lost = |event| matches!(event, LinkEvent::Disconnected { .. });
    while !is_lost(sending.next_event(TIMEOUT).expect("the connection is lost")) {}
    assert_eq!(woken.try_iter().count(), 0, "accepted samples are kept");
    assert!(offer(&stream, &waker).is_pending());

    // Without the state of the last one.
    let receiving = Link::bind(LinkConfig {
        allow: vec![sending.public_key()],
        ..LinkConfig::new(address, KeyPair::from_seed([1; 32]))
    })
    .expect("the address is free");
    await_notice(&woken);
    assert!(matches!(offer(&stream, &waker), Poll::Ready(Ok(()))));
    let incoming = loop {
        if let LinkEvent::Opened { stream, .. } =
            receiving.next_event(TIMEOUT).expect("it is opened")
        {
            break stream;
        }
    };
    let last = std::iter::from_fn(|| incoming.receive(TIMEOUT)).find(|it| it.payload[0] == ROOM);
    assert!(last.is_some());
    assert!(stream.flush(TIMEOUT));
    assert_eq!(woken.try_iter().count(), 0, "one notice");
    let counters = stream.counters().expect("it is open");
    assert!(counters.is_balanced() && counters.held == 0, "{counters:?}");
}

#[test]
fn the_end_of_a_full_stream_wakes_its_sender() {
    type End = fn(&mut Option<Link>, Peer, IncomingStream);
    let ends: [(&str, End); 4] = [
        ("it is refused", |_, _, incoming| {
            incoming.close(Refusal::because("enough"));
        }),
        ("the state of the peer is dropped", |_, peer, _| {
            peer.close()
        }),
        ("the peer is forbidden", |sending, peer, _| {
            let sending = sending.as_ref().expect("it is there");
            sending.forbid(peer.key());
        }),
        ("the link is dropped", |sending, _, _| *sending = None),
    ];
    for (why, end) in ends {
        let (receiving, sending, peer) = connected();
        let (stream, incoming) = open(&receiving, &peer, "stream");
        let (waker, woken) = task();
        fill(&stream, &waker);
        let mut sending = Some(sending);
        end(&mut sending, peer, incoming);
        // A consumer that refuses the rest has dropped some before.
        loop {
            await_notice(&woken);
            match offer(&stream, &waker) {
                Poll::Ready(Err(_)) => break,
                Poll::Ready(Ok(())) | Poll::Pending => assert_eq!(why, "it is refused"),
            }
        }
    }
}

/// One thread serves many streams, and sleeps until one of them has room: a lost notice would end it.
#[test]
fn a_stream_without_room_holds_up_no_other_of_its_thread() {
    const SAMPLES: u16 = 2000;
    const STREAMS: usize = 4;
    let (receiving, sending, peer) = connected();
    let (full, _not_taken) = open(&receiving, &peer, "full");
    let (waker, woken) = task();
    fill(&full, &waker);
    let (streams, incoming): (Vec<_>, Vec<_>) = (0..STREAMS)
        .map(|number| open(&receiving, &peer, &format!("stream {number}")))
        .unzip();
    let consumers = incoming.into_iter().map(|incoming| {
        std::thread::spawn(move || {
            for number in 0..SAMPLES {
                let sample = incoming.receive(TIMEOUT).expect("it was sent");
                assert_eq!(sample.payload[..], number.to_le_bytes());
            }
        })
    });
    let consumers: Vec<_> = consumers.collect();
    let mut sent = [0; STREAMS];
    while sent != [SAMPLES; STREAMS] {
        for (stream, next) in streams.iter().zip(&mut sent) {
            while *next < SAMPLES {
                let context = Context::from_waker(&waker);
                match stream.poll_send(&context, next.to_le_bytes().to_vec()) {
                    Poll::Ready(sent) => sent.expect("the stream is open"),
                    Poll::Pending => break,
                }
                *next += 1;
            }
        }
        if sent != [SAMPLES; STREAMS] {
            let noticed = woken.recv_timeout(TIMEOUT);
            noticed.unwrap_or_else(|_| panic!("no notice after {sent:?}: {:#?}", sending.peers()));
        }
    }
    for consumer in consumers {
        consumer.join().expect("all samples arrive in their order");
    }
    assert!(offer(&full, &waker).is_pending());
}
