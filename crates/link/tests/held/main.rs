//! The state that greedy and hostile peers make an end keep: the charge is compared with the count
//! of the allocator, and an honest peer beside them gets its samples. A single test, as the heap of
//! the whole process is counted.

use std::{
    ops::Range,
    time::{Duration, Instant},
};

use nervure_link::{
    budget::Budget,
    coding::geometry::Geometry,
    qos::{Delivery, Qos},
    receiver::{ReceiverConfig, ReceiverEvent, check_charges},
    session::{Session, SessionConfig, SessionEvent},
    wire::{
        control::Control,
        data::{Header, Symbol},
    },
};
use peak_alloc::PeakAlloc;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

const BUDGET_BYTES: u64 = 64 << 20;
const PEERS: usize = 4;

fn config() -> SessionConfig {
    SessionConfig {
        receiver: ReceiverConfig {
            budget_bytes: BUDGET_BYTES,
            shares: PEERS,
            ..ReceiverConfig::default()
        },
        ..SessionConfig::default()
    }
}

/// A peer that writes its packets by hand.
#[derive(Default)]
struct Hostile {
    packet: u32,
    id: u64,
    message: u64,
}

impl Hostile {
    /// Sends a packet with one symbol.
    fn send(&mut self, now: Instant, to: &mut Session, symbol: Symbol) {
        self.packet += 1;
        let mut out = Vec::with_capacity(1500);
        Header {
            session: 9,
            packet_number: self.packet,
            report_interval: Default::default(),
        }
        .write(&mut out);
        symbol.write(&mut out);
        let bytes = symbol.geometry.block(symbol.block.into()).shard_bytes();
        out.resize(out.len() + bytes, 7);
        to.on_datagram(now, None, &out);
    }

    /// Sends the first symbol of samples of a stream, each of `bytes` in shards of `limit` bytes.
    fn send_samples(
        &mut self,
        now: Instant,
        to: &mut Session,
        sequences: Range<u64>,
        (bytes, limit): (usize, usize),
    ) {
        for sequence in sequences {
            let symbol = self.symbol(1, sequence, bytes, limit);
            self.send(now, to, symbol);
        }
    }

    fn symbol(&mut self, stream: u32, sequence: u64, bytes: usize, limit: usize) -> Symbol {
        self.id += 1;
        Symbol {
            transmit_id: self.id,
            stream,
            sequence,
            geometry: Geometry::new(bytes, limit).expect("within the limits"),
            block: 0,
            index: 0,
            age_millis: 0,
        }
    }

    fn control(&mut self, now: Instant, to: &mut Session, message: &Control) {
        let payload = message.encode();
        let symbol = self.symbol(0, self.message, payload.len(), 1200);
        self.message += 1;
        self.packet += 1;
        let mut out = Vec::new();
        Header {
            session: 9,
            packet_number: self.packet,
            report_interval: Default::default(),
        }
        .write(&mut out);
        symbol.write(&mut out);
        let end = out.len() + symbol.geometry.block(0).shard_bytes();
        out.extend_from_slice(&payload);
        out.resize(end, 0);
        to.on_datagram(now, None, &out);
    }

    fn open(&mut self, now: Instant, to: &mut Session, stream: u32, delivery: Delivery) {
        let open = Control::Open {
            stream,
            qos: Qos::new(delivery),
            first_sequence: 0,
            name: format!("stream {stream}"),
        };
        self.control(now, to, &open);
        let bytes = 1 << 40;
        self.control(now, to, &Control::Want { stream, bytes });
        while to.poll_event().is_some() {}
    }
}

/// The ways to make a receiver keep something.
type Attack = fn(&mut Hostile, Instant, &mut Session);

const ATTACKS: [(&str, Attack); 6] = [
    ("empty samples in a queue", |peer, now, victim| {
        peer.open(now, victim, 1, Delivery::keep_last(u32::MAX));
        peer.send_samples(now, victim, 0..400_000, (0, 1000));
    }),
    ("samples of one byte behind a gap", |peer, now, victim| {
        peer.open(now, victim, 1, Delivery::keep_all(u32::MAX));
        peer.send_samples(now, victim, 1..200_000, (1, 1000));
    }),
    (
        "repair of a held sample in another cut",
        |peer, now, victim| {
            peer.open(now, victim, 1, Delivery::keep_all(4));
            let held = peer.symbol(1, 1, 1, 1000);
            peer.send(now, victim, held);
            for block in 0..u16::MAX {
                let geometry = Geometry::new(1 << 30, 64).expect("within the limits");
                let blocks = geometry.blocks() as u16;
                let symbol = Symbol {
                    geometry,
                    block: block % blocks,
                    ..held
                };
                peer.send(now, victim, symbol);
            }
        },
    ),
    ("samples of two shards", |peer, now, victim| {
        peer.open(now, victim, 1, Delivery::keep_all(u32::MAX));
        peer.send_samples(now, victim, 0..200_000, (65, 64));
    }),
    ("repair shards", |peer, now, victim| {
        peer.open(now, victim, 1, Delivery::keep_all(u32::MAX));
        for sequence in 0..100 {
            let first = peer.symbol(1, sequence, 600_000, 1000);
            let shards = first.geometry.block(0).source_shards() as u16;
            for index in shards..2 * shards - 1 {
                peer.send(now, victim, Symbol { index, ..first });
            }
        }
    }),
    (
        "streams, and transmissions that are closed",
        |peer, now, victim| {
            for stream in 1..5000 {
                peer.open(now, victim, stream, Delivery::keep_last(1));
                // Every other id is used, so no two ranges merge.
                peer.id += 1;
                let symbol = peer.symbol(stream, 1, 1, 1000);
                peer.send(now, victim, symbol);
                peer.id += 1;
                let old = peer.symbol(stream, 0, 1, 1000);
                peer.send(now, victim, old);
            }
        },
    ),
];

#[test]
fn what_peers_make_an_end_keep_is_charged_and_leaves_room_for_others() {
    let now = Instant::now();
    for (name, attack) in ATTACKS {
        let budget = Budget::new(BUDGET_BYTES, PEERS);
        let before = HEAP.current_usage();
        let mut victim = Session::with_budget(config(), &budget, 1, now);
        attack(&mut Hostile::default(), now, &mut victim);
        let heap = HEAP.current_usage() - before;
        check_charges(victim.receiver()).unwrap_or_else(|error| panic!("{name}: {error}"));
        let link = victim.status().link;
        println!(
            "{name}: {heap} bytes of heap, {} charged, {} in use",
            link.budget_held_bytes, link.budget_used_bytes
        );
        // The sending end is not the peer's, and messages to it are charged as if in flight.
        let most = link.budget_held_bytes as f64 * 1.25 + (256 << 10) as f64;
        assert!(
            (heap as f64) < most,
            "{name}: {heap} bytes of heap, {link:?}"
        );
        let least = link.budget_held_bytes as f64 * 0.75 - (640 << 10) as f64;
        assert!(
            (heap as f64) > least,
            "{name}: {heap} bytes of heap, {link:?}"
        );
        assert!(link.budget_used_bytes <= BUDGET_BYTES, "{name}: {link:?}");
        let latency = honest_latency(now, &budget, &mut victim);
        assert!(latency < Duration::from_millis(20), "{name}: {latency:?}");
    }
    honest_streams_do_not_lock_each_other_out(now);
    ended_streams_leave_nothing(now);
}

/// An honest peer beside the one that attacked, with samples of 1 KB and of 2 MiB. Returns the
/// longest time, on the virtual clock, that a small one took.
fn honest_latency(now: Instant, budget: &Budget, victim: &mut Session) -> Duration {
    let mut ends = Ends {
        now,
        sender: Session::new(config(), 2, now),
        receiver: Session::with_budget(config(), budget, 3, now),
        delivered: Vec::new(),
    };
    let small = ends.open("cmd_vel", Delivery::keep_last(1));
    let large = ends.open("image", Delivery::keep_all(2));
    let mut latency = Duration::ZERO;
    let mut sent = [0; 2];
    for step in 0..400 {
        // The session under attack goes on as well.
        victim.handle_timeout(ends.now);
        if step % 20 == 0 {
            let began = ends.now;
            ends.send(small, 1000);
            sent[0] += 1;
            let expected = ends.count(small) + 1;
            while ends.count(small) < expected && ends.now < began + Duration::from_secs(1) {
                ends.step();
            }
            latency = latency.max(ends.now - began);
        }
        if step % 100 == 0 {
            ends.send(large, 1 << 20);
            sent[1] += 1;
        }
        ends.step();
    }
    (0..2000).for_each(|_| ends.step());
    assert_eq!([ends.count(small), ends.count(large)], sent);
    latency
}

/// Eight streams of large samples, and then a small one.
fn honest_streams_do_not_lock_each_other_out(now: Instant) {
    let default = SessionConfig::default();
    let mut ends = Ends {
        now,
        sender: Session::new(default, 2, now),
        receiver: Session::new(default, 3, now),
        delivered: Vec::new(),
    };
    let large: Vec<u32> = (0..24)
        .map(|number| ends.open(&format!("image {number}"), Delivery::keep_all(2)))
        .collect();
    for stream in &large {
        ends.send(*stream, 4 << 20);
        ends.send(*stream, 4 << 20);
    }
    (0..200).for_each(|_| ends.step());
    let small = ends.open("cmd_vel", Delivery::keep_last(1));
    ends.send(small, 1000);
    (0..50).for_each(|_| ends.step());
    assert_eq!(ends.count(small), 1);
    (0..5000).for_each(|_| ends.step());
    for stream in large {
        assert_eq!(ends.count(stream), 2, "stream {stream}");
    }
    // Grants that are not used return.
    (0..6000).for_each(|_| ends.step());
    let used = ends.receiver.status().link.budget_used_bytes;
    assert!(used < 2 << 20, "{used} bytes are in use at rest");
}

fn ended_streams_leave_nothing(now: Instant) {
    let mut ends = Ends {
        now,
        sender: Session::new(config(), 2, now),
        receiver: Session::new(config(), 3, now),
        delivered: Vec::new(),
    };
    let mut most = 0;
    for round in 0..1000 {
        for _ in 0..100 {
            let stream = ends.open("stream", Delivery::keep_all(1));
            ends.send(stream, 10);
            ends.sender.close(ends.now, stream);
        }
        while !ends.sender.sender().streams().is_idle() {
            ends.step();
        }
        assert_eq!(ends.delivered.len(), 100);
        ends.delivered = Vec::new();
        if round % 100 == 99 {
            let heap = HEAP.current_usage();
            println!("{} streams ended: {heap} bytes of heap", (round + 1) * 100);
            most = most.max(heap);
        }
    }
    assert_eq!(ends.receiver.receiver().streams().count(), 0);
    // Less than 6 bytes a stream: the history of packets and of the path at both ends.
    assert!(most < 512 << 10, "{most} bytes");
}

/// Two honest sessions.
struct Ends {
    now: Instant,
    sender: Session,
    receiver: Session,
    /// The stream of each sample that arrived.
    delivered: Vec<u32>,
}

impl Ends {
    fn open(&mut self, name: &str, delivery: Delivery) -> u32 {
        self.sender
            .open(self.now, name, Qos::new(delivery))
            .expect("the name is short")
    }

    fn send(&mut self, stream: u32, bytes: usize) {
        self.sender
            .send(self.now, stream, vec![7; bytes].into())
            .expect("there is room");
    }

    fn count(&self, stream: u32) -> usize {
        self.delivered.iter().filter(|of| **of == stream).count()
    }

    /// Exchanges the packets of a millisecond.
    fn step(&mut self) {
        self.now += Duration::from_millis(1);
        let mut packet = Vec::new();
        for turn in 0..2 {
            let (from, to) = match turn {
                0 => (&mut self.sender, &mut self.receiver),
                _ => (&mut self.receiver, &mut self.sender),
            };
            from.handle_timeout(self.now);
            while from.next_datagram(self.now, 1400, &mut packet) {
                to.on_datagram(self.now, None, &packet);
                packet.clear();
            }
        }
        while self.sender.poll_event().is_some() {}
        while let Some(event) = self.receiver.poll_event() {
            if let SessionEvent::Receiver(ReceiverEvent::Readable(stream)) = event
                && self.receiver.take(self.now, stream).is_some()
            {
                self.delivered.push(stream);
            }
        }
    }
}
