//! A malicious peer on a link, after decryption. Packets of any content are processed completely or
//! refused, and memory stays within its limits.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use arbitrary::Arbitrary;
use nervure_link::{
    carrier::PublicKey,
    policy::{Decision, PeerPolicy, Refusal, SharedPolicy, StreamPolicy},
    qos::{Delivery, Qos},
    receiver::ReceiverEvent,
    session::{Session, SessionEvent},
};

use crate::peer::{self, Peer, Pool, Saying};

#[derive(Arbitrary, Debug)]
enum Step {
    /// The peer sends something.
    Say(Saying),
    /// Time passes, and the victim sends its pending packets.
    Wait { millis: u8 },
    /// The victim's application sends a sample.
    Send { stream: u8, bytes: u16 },
    /// The victim's application changes the quality of service of a stream.
    Change {
        stream: u8,
        keeps_all: bool,
        depth: u8,
    },
    /// The victim's application receives samples.
    Take { count: u8 },
    /// The victim's application accepts a requested stream.
    Accept { stream: u8 },
    /// The victim's application refuses or closes a stream of the peer.
    Refuse { stream: u8 },
}

/// Runs the target.
pub fn run(bytes: &[u8]) {
    let Some(story) = crate::read::<Vec<Step>>(bytes) else {
        return;
    };
    let mut now = Instant::now();
    let mut victim = Session::new(peer::victim_config(), 1, now);
    let given = Arc::new(AtomicU64::new(0));
    victim.set_memory(Box::new(Pool::new(&given)));
    let policy = SharedPolicy::default();
    policy.set(StreamPolicy::new(|request| match request.name.len() % 4 {
        0 => Decision::Ask,
        1 => Decision::Refuse(Refusal::NotAllowed),
        _ => Decision::Accept,
    }));
    victim.set_policy(PeerPolicy::new(PublicKey([1; 32]), &policy));
    let streams = [
        Delivery::keep_last(2),
        Delivery::keep_all(4),
        Delivery::best_effort(2),
        Delivery::Latest,
    ]
    .map(|delivery| {
        victim
            .open(now, "stream", Qos::new(delivery))
            .expect("the name is short")
    });
    let mut peer = Peer::new();
    let mut readable = Vec::new();
    for step in story {
        match step {
            Step::Say(saying) => {
                for datagram in peer.say(&saying, &victim) {
                    peer::check_reading(&datagram);
                    victim.on_datagram(now, None, &datagram);
                    note_readable(&mut victim, &mut readable);
                }
            }
            Step::Wait { millis } => {
                now += Duration::from_millis(millis.into());
                victim.handle_timeout(now);
                let mut packet = Vec::new();
                for _ in 0..100 {
                    packet.clear();
                    if !victim.next_datagram(now, 1200, &mut packet) {
                        break;
                    }
                    assert!(!packet.is_empty() && packet.len() <= 1200);
                }
            }
            Step::Send { stream, bytes } => {
                // A stream that is full or was refused accepts no samples.
                let stream = streams[usize::from(stream) % streams.len()];
                let _ = victim.send(now, stream, vec![1; bytes.into()].into());
            }
            Step::Change {
                stream,
                keeps_all,
                depth,
            } => {
                let stream = streams[usize::from(stream) % streams.len()];
                let delivery = match keeps_all {
                    true => Delivery::keep_all(depth.into()),
                    false => Delivery::keep_last(depth.into()),
                };
                // It may be refused, or being changed.
                let _ = victim.set_qos(now, stream, Qos::new(delivery));
            }
            Step::Take { count } => {
                let from = readable.len().saturating_sub(count.into());
                readable
                    .drain(from..)
                    .for_each(|stream| drop(victim.take(now, stream)));
            }
            Step::Accept { stream } => {
                victim.accept_stream(now, stream.into());
            }
            Step::Refuse { stream } => {
                victim.refuse_stream(now, stream.into(), Refusal::because("closed"));
                let still_there = |of: (u32, &str, Qos)| of.0 == u32::from(stream);
                assert!(!victim.receiver().streams().any(still_there));
            }
        }
        note_readable(&mut victim, &mut readable);
        peer::check(&victim);
    }
    drop(victim);
    assert_eq!(given.load(Ordering::Relaxed), 0, "all memory must be freed");
}

fn note_readable(victim: &mut Session, readable: &mut Vec<u32>) {
    while let Some(event) = victim.poll_event() {
        if let SessionEvent::Receiver(ReceiverEvent::Readable(stream)) = event {
            readable.push(stream);
        }
    }
}
