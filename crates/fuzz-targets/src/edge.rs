//! A malicious peer on an edge, which writes anything to the ring, the leases and the socket. An
//! honest consumer or producer cuts the edge off or continues, and its other edges keep working.

#[path = "../../shm/tests/hostile/rig.rs"]
#[expect(dead_code, reason = "the tests of hostile peers use the rest")]
mod rig;

use arbitrary::Arbitrary;
use nervure_protocol::wiring::Policy;
use nervure_shm::{Arrival, EdgeRegion, SendError, Seqpacket, Wait, WakePage};
use rig::{BLOCKS, BesideHostile, DEPTH, HEAD, HonestConsumer, HonestProducer, RawEdge, TAIL};
use rustix::fd::AsFd;

/// An action of the malicious end, or a turn of the honest one.
#[derive(Arbitrary, Debug)]
enum Step {
    /// Writes a word anywhere in the region.
    Write { word: u16, value: u64 },
    /// Writes one of the ring's two counters.
    Count { tail: bool, value: u64 },
    /// Advances one of the counters.
    MoveOn { tail: bool, by: u8 },
    /// Writes a descriptor.
    Describe {
        slot: u8,
        block: u8,
        segment: u8,
        offset: u32,
        payload: u32,
        head: u16,
    },
    /// Sends a packet, with or without a segment.
    Packet {
        kind: u8,
        id: u8,
        value: u64,
        rest: Vec<u8>,
        with_segment: bool,
    },
    /// Receives a packet of the honest end.
    Read,
    /// Gives the honest end a turn: it receives, or sends `bytes`.
    Work { bytes: u32 },
}

const SEGMENT_BYTES: usize = 16384;

/// Runs the target.
pub fn run(bytes: &[u8]) {
    let Some(story) = crate::read::<(bool, u8, Vec<Step>)>(bytes) else {
        return;
    };
    let (consumer_is_hostile, policy, steps) = story;
    let policy = Policy::ALL[usize::from(policy) % Policy::ALL.len()];
    if consumer_is_hostile {
        hostile_consumer(policy, &steps)
    } else {
        hostile_producer(&steps)
    }
}

fn hostile_producer(steps: &[Step]) {
    let mut peers = BesideHostile::new();
    for step in steps {
        if let Step::Work { .. } = step {
            peers.consumer.ring();
            receive_all(&mut peers.consumer);
        } else {
            act(step, &peers.edge, &peers.socket);
        }
    }
    peers.consumer.ring();
    receive_all(&mut peers.consumer);
    peers.assert_others_work();
}

fn receive_all(consumer: &mut HonestConsumer) {
    // A ring that always claims to be full does not deliver endlessly: it holds at most `DEPTH`
    // samples, and its bell is rung for once.
    for _ in 0..4 * DEPTH {
        match consumer.next() {
            Some(Arrival::Sample { sample, .. }) => {
                let sum: u64 = sample
                    .payload()
                    .iter()
                    .chain(sample.head())
                    .map(|&byte| u64::from(byte))
                    .sum();
                let _ = (
                    std::hint::black_box(sum),
                    sample.layout().is_ok(),
                    sample.announcement(1),
                );
            }
            Some(_) => {}
            None => return,
        }
    }
}

fn hostile_consumer(policy: Policy, steps: &[Step]) {
    let (producer, mut consumer) = (HonestProducer::new(), HonestConsumer::new());
    let edge = RawEdge::new();
    let (_, bell) = WakePage::create(1).expect("memory");
    let (a, socket) = Seqpacket::pair().expect("a socket");
    producer.attach(0, policy, &edge.0, &bell, a);
    let region = EdgeRegion::create(DEPTH, BLOCKS).expect("memory");
    let (a, b) = Seqpacket::pair().expect("a socket");
    consumer.attach(1, &region, &producer.wake, b);
    producer.attach(1, Policy::DropOldest, &region, &consumer.wake, a);
    for step in steps {
        if let Step::Work { bytes } = step {
            send(&producer, *bytes as usize % 300_000);
            receive_all(&mut consumer);
        } else {
            act(step, &edge, &socket);
        }
    }
    // The other edge must still work without the malicious consumer.
    producer.output.detach(0, false);
    for bytes in [10, 70_000] {
        send(&producer, bytes);
        match consumer.next() {
            Some(Arrival::Sample { input: 1, sample }) => assert_eq!(sample.payload().len(), bytes),
            other => panic!("expected a sample, got {other:?}"),
        }
    }
}

fn send(producer: &HonestProducer, bytes: usize) {
    let sent = producer
        .output
        .loan(bytes, 0, Wait::Never)
        .and_then(|mut loan| {
            loan.payload_mut().fill(7);
            producer.output.publish(
                &mut loan,
                nervure_message::Header::default(),
                b"",
                Wait::Never,
            )
        });
    match sent {
        Ok(_) | Err(SendError::WouldBlock { .. } | SendError::OutOfMemory { .. }) => {}
        Err(error) => panic!("{error}"),
    }
}

fn act(step: &Step, edge: &RawEdge, socket: &Seqpacket) {
    match *step {
        Step::Write { word, value } => edge.write_word(u64::from(word) * 8 % edge.bytes(), value),
        Step::Count { tail, value } => edge.write_word(if tail { TAIL } else { HEAD }, value),
        Step::MoveOn { tail, by } => {
            let at = if tail { TAIL } else { HEAD };
            edge.write_word(at, edge.read_word(at).wrapping_add(u64::from(by)));
        }
        Step::Describe {
            slot,
            block,
            segment,
            offset,
            payload,
            head,
        } => {
            let block = if block == u8::MAX {
                rig::NO_BLOCK
            } else {
                u64::from(block)
            };
            let offset = u64::from(offset) * 256 % (2 * SEGMENT_BYTES as u64);
            let payload = u64::from(payload) % (2 * SEGMENT_BYTES as u64);
            edge.describe(
                u64::from(slot),
                block | u64::from(segment % 4) << 32,
                offset,
                payload,
                head.into(),
            );
        }
        Step::Packet {
            kind,
            id,
            value,
            ref rest,
            with_segment,
        } => {
            let mut packet = rig::packet(u64::from(kind % 8), u64::from(id % 4), value);
            packet.extend_from_slice(&rest[..rest.len().min(1000)]);
            let segment = with_segment.then(|| rig::segment(SEGMENT_BYTES));
            let segments: Vec<_> = segment.iter().map(AsFd::as_fd).collect();
            // A full socket is the malicious end's own problem.
            let _ = socket.send(&packet, &segments);
        }
        Step::Read => {
            let _ = socket.receive(&mut Vec::with_capacity(4096));
        }
        Step::Work { .. } => {}
    }
}
