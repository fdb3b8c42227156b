//! The cost of streams and floods at an end of a link: bytes of the heap, wake-ups, processor time.
//! Two ends in one process, on a virtual clock; the carrier's cost per packet counts only for
//! floods.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use nervure_link::{
    carrier::{
        Carrier, KeyPair,
        quic::{QuicCarrier, QuicConfig},
    },
    qos::{Delivery, Qos},
    receiver::ReceiverEvent,
    session::{Session, SessionConfig, SessionEvent},
};
use nervure_linkemu::network::Draw;
use peak_alloc::PeakAlloc;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

const STEP: Duration = Duration::from_millis(1);

/// The cost of open streams.
#[derive(Debug)]
pub struct StreamCost {
    /// Bytes of the sender's heap for each stream.
    pub sender_bytes: usize,
    /// Bytes of the receiver's heap for each stream.
    pub receiver_bytes: usize,
    /// Times that either end asked to be woken, in ten seconds in which nothing was sent.
    pub idle_wake_ups: u64,
    /// Samples that were sent, one a second of each stream, and delivered.
    pub sent: u64,
    /// See [`sent`](Self::sent).
    pub delivered: u64,
    /// Processor time of both ends for each of these samples, without the carrier's.
    pub time_per_sample: Duration,
    /// Peak growth of the heap while they were sent, for each stream.
    pub sending_bytes: usize,
}

/// Opens `count` streams, lets them rest, and then sends 200 bytes a second on each.
pub fn streams(count: usize, seconds: usize) -> StreamCost {
    let mut ends = Ends::new();
    let mut streams = Vec::with_capacity(count);
    for number in 0..count {
        let name = format!("dataflow:node/output{number}");
        streams.push(
            ends.sender
                .open(ends.now, name, Qos::new(Delivery::keep_last(1)))
                .expect("the name is short"),
        );
    }
    ends.settle();
    let idle_wake_ups = ends.rest(Duration::from_secs(10));

    let heap_at_rest = HEAP.current_usage();
    HEAP.reset_peak_usage();
    let began = processor_time();
    let (mut sent, mut delivered) = (0, 0);
    for step in 0..1000 * seconds {
        ends.now += STEP;
        for stream in streams.iter().skip(step % 1000).step_by(1000) {
            ends.sender
                .send(ends.now, *stream, vec![7; 200].into())
                .expect("the newest sample has room");
            sent += 1;
        }
        delivered += ends.exchange();
    }
    delivered += ends.settle();
    let time_per_sample = (processor_time() - began) / sent as u32;
    let sending_bytes = (HEAP.peak_usage() - heap_at_rest) / count;

    let Ends {
        sender, receiver, ..
    } = ends;
    let both = HEAP.current_usage();
    drop(sender);
    let one = HEAP.current_usage();
    drop(receiver);
    StreamCost {
        sender_bytes: (both - one) / count,
        receiver_bytes: (one - HEAP.current_usage()) / count,
        idle_wake_ups,
        sent,
        delivered,
        time_per_sample,
        sending_bytes,
    }
}

struct Ends {
    now: Instant,
    sender: Session,
    receiver: Session,
}

impl Ends {
    fn new() -> Self {
        let now = Instant::now();
        let [sender, receiver] =
            [1, 2].map(|seed| Session::new(SessionConfig::default(), seed, now));
        Self {
            now,
            sender,
            receiver,
        }
    }

    /// Exchanges all packets; returns the number of samples delivered.
    fn exchange(&mut self) -> u64 {
        let (mut delivered, mut packet) = (0, Vec::new());
        for _ in 0..4 {
            for turn in 0..2 {
                let (from, to) = match turn {
                    0 => (&mut self.sender, &mut self.receiver),
                    _ => (&mut self.receiver, &mut self.sender),
                };
                from.handle_timeout(self.now);
                packet.clear();
                while from.next_datagram(self.now, 1400, &mut packet) {
                    to.on_datagram(self.now, None, &packet);
                    packet.clear();
                }
            }
            while self.sender.poll_event().is_some() {}
            while let Some(event) = self.receiver.poll_event() {
                if let SessionEvent::Receiver(ReceiverEvent::Readable(stream)) = event {
                    delivered += u64::from(self.receiver.take(self.now, stream).is_some());
                }
            }
        }
        delivered
    }

    /// Runs for five seconds, after which everything is confirmed, and unused credit returned.
    fn settle(&mut self) -> u64 {
        let mut delivered = 0;
        for _ in 0..5000 {
            self.now += STEP;
            delivered += self.exchange();
        }
        delivered
    }

    /// Sends nothing; returns the number of wake-ups of both ends.
    fn rest(&mut self, time: Duration) -> u64 {
        let end = self.now + time;
        let mut wake_ups = 0;
        while let Some(at) = [&self.sender, &self.receiver]
            .into_iter()
            .filter_map(Session::poll_timeout)
            .min()
            && at < end
        {
            self.now = at.max(self.now + Duration::from_micros(1));
            wake_ups += 1;
            self.exchange();
        }
        self.now = end;
        wake_ups
    }
}

/// The effect of a flood on an end that accepts connections.
#[derive(Debug)]
pub struct FloodCost {
    /// Packets that arrived.
    pub packets: u64,
    /// Peak growth of the heap, in bytes.
    pub peak_bytes: usize,
    /// Bytes that the end sent in reply, per byte received.
    pub answered: f64,
    /// Attempts to connect that it keeps at the end.
    pub half_open: usize,
    /// Processor time for each packet.
    pub time_per_packet: Duration,
}

/// First packets of handshakes, each from its own address, by a peer with an unknown key.
pub fn spoofed_handshakes(count: usize) -> FloodCost {
    let now = Instant::now();
    flood(count, now, |number| {
        (stranger(number), first_packet(now, 66))
    })
}

/// The first packet of one handshake, again and again.
pub fn replayed_handshake(count: usize) -> FloodCost {
    let now = Instant::now();
    let packet = first_packet(now, 1);
    flood(count, now, |_| (stranger(0), packet.clone()))
}

/// Random bytes, half of them without the fixed bit of QUIC.
pub fn garbage(count: usize) -> FloodCost {
    let mut draw = Draw::new(1);
    flood(count, Instant::now(), |number| {
        let mut packet: Vec<u8> = (0..1200).map(|_| draw.below(256) as u8).collect();
        packet[0] = if number % 2 == 0 {
            0x10
        } else {
            packet[0] | 0x40
        };
        (stranger(number), packet)
    })
}

fn flood(
    count: usize,
    now: Instant,
    mut next: impl FnMut(usize) -> (SocketAddr, Vec<u8>),
) -> FloodCost {
    let mut carrier = QuicCarrier::new(QuicConfig {
        accepts: true,
        ..QuicConfig::new(key(2))
    });
    carrier.allow(key(1).public());
    let (mut received, mut sent, mut peak_bytes, mut time) = (0, 0, 0, Duration::ZERO);
    let mut out = Vec::with_capacity(2048);
    let before = HEAP.current_usage();
    for number in 0..count {
        let (from, mut packet) = next(number);
        received += packet.len();
        let packet_bytes = packet.capacity();
        HEAP.reset_peak_usage();
        let began = processor_time();
        carrier.handle_packet(now, from, None, &mut packet);
        out.clear();
        while let Some(transmit) = carrier.poll_transmit(now, &mut |_, _, _| false, &mut out) {
            sent += transmit.size;
            out.clear();
        }
        while carrier.poll_event().is_some() {}
        time += processor_time() - began;
        peak_bytes = peak_bytes.max(HEAP.peak_usage().saturating_sub(before + packet_bytes));
    }
    FloodCost {
        packets: count as u64,
        peak_bytes,
        answered: sent as f64 / received as f64,
        half_open: carrier.half_open_connections(),
        time_per_packet: time / count as u32,
    }
}

/// A key for each number.
pub fn key_of(number: usize) -> KeyPair {
    let mut seed = [9; 32];
    seed[..8].copy_from_slice(&(number as u64).to_le_bytes());
    KeyPair::from_seed(seed)
}

fn key(number: u8) -> KeyPair {
    KeyPair::from_seed([number; 32])
}

/// An address for each number.
pub fn stranger(number: usize) -> SocketAddr {
    let [_, a, b, c] = (number as u32).to_be_bytes();
    ([10, a, b, c], 4000).into()
}

/// The first packet of an attempt to connect, which any source can send.
fn first_packet(now: Instant, who: u8) -> Vec<u8> {
    let mut initiator = QuicCarrier::new(QuicConfig::new(key(who)));
    let target = ([10, 200, 0, 1], 4000).into();
    initiator
        .connect(now, target, key(2).public())
        .expect("the address is good");
    let mut packet = Vec::new();
    initiator
        .poll_transmit(now, &mut |_, _, _| false, &mut packet)
        .expect("it begins at once");
    packet
}

/// Processor time of this thread.
pub fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
