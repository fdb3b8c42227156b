//! The processor time that both ends of a link spend on samples: `cargo run --release -p
//! nervure-link --example transfer_cost`. Two ends in one process, over QUIC, on a virtual clock and
//! without sockets: all of an end but its system calls, and nothing else.
//!
//! With arguments it runs one case, for a profiler: `transfer_cost LOSS-PERCENT SAMPLES`.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    time::{Duration, Instant},
};

use bytes::Bytes;
use nervure_link::{
    carrier::{
        Carrier, KeyPair,
        quic::{QuicCarrier, QuicConfig},
    },
    coding,
    endpoint::{Endpoint, EndpointEvent},
    qos::{Delivery, Qos},
    rate,
    receiver::ReceiverEvent,
    session::{SessionConfig, SessionEvent},
};
use nervure_linkemu::network::Draw;

const SAMPLE_BYTES: usize = 512 << 10;
/// The rate is fixed, so that the cost does not depend on the law of the rate.
const BYTES_PER_SECOND: f64 = 25e6;
const ONE_WAY: Duration = Duration::from_millis(2);
/// Packets that arrive within this time are received together, as from a socket.
const STEP: Duration = Duration::from_micros(200);
/// Until then the path has been found to take the largest packets.
const SETTLING: Duration = Duration::from_secs(2);

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if let [loss, samples] = &arguments[..] {
        let number = |text: &str| text.parse().expect("a number");
        let cost = transfer(number(loss), number(samples));
        return println!("{cost:?}");
    }
    println!(
        "| loss | sender, s/Gbit | receiver, s/Gbit | packets a sample | copied a byte: out, in |"
    );
    println!("| ---: | ---: | ---: | ---: | ---: |");
    for loss in [0, 5, 20] {
        // Runs are short: the fastest of several is the least disturbed.
        let costs = (0..5).map(|_| transfer(loss, 60));
        let cost = costs
            .min_by_key(|cost| cost.sender + cost.receiver)
            .expect("several runs");
        let per_gbit = |time: Duration| time.as_secs_f64() / (cost.sample_bytes as f64 * 8.0 / 1e9);
        println!(
            "| {loss} % | {:.3} | {:.3} | {:.0} | {:.2}, {:.2} |",
            per_gbit(cost.sender),
            per_gbit(cost.receiver),
            cost.packets as f64 * SAMPLE_BYTES as f64 / cost.sample_bytes as f64,
            cost.copied_out as f64 / cost.sample_bytes as f64,
            cost.copied_in as f64 / cost.sample_bytes as f64,
        );
    }
}

/// Cost of a transfer of samples.
#[derive(Debug)]
struct Cost {
    /// Processor time of each end.
    sender: Duration,
    receiver: Duration,
    sample_bytes: u64,
    /// Packets from the sender.
    packets: u64,
    /// Bytes copied at each end, beside encryption in place.
    copied_out: u64,
    copied_in: u64,
}

struct End {
    endpoint: Endpoint<QuicCarrier>,
    address: SocketAddr,
    time: Duration,
    /// Packets in flight to this end.
    arriving: VecDeque<(Instant, Vec<u8>)>,
    packets_sent: u64,
}

impl End {
    fn new(number: u8) -> Self {
        let mut carrier = QuicCarrier::new(QuicConfig {
            accepts: number == 2,
            simulation_seed: Some(number.into()),
            ..QuicConfig::new(key(number))
        });
        carrier.allow(key(1).public());
        let config = SessionConfig {
            rate: rate::Config {
                initial_bytes_per_second: BYTES_PER_SECOND,
                min_bytes_per_second: BYTES_PER_SECOND,
                max_bytes_per_second: BYTES_PER_SECOND,
                ..rate::Config::default()
            },
            ..SessionConfig::default()
        };
        Self {
            endpoint: Endpoint::new(carrier, config, number.into()),
            address: ([10, 0, 0, number], 4000).into(),
            time: Duration::ZERO,
            arriving: VecDeque::new(),
            packets_sent: 0,
        }
    }

    /// Processes arrived packets and timeouts; returns the packets sent and the events.
    fn turn(&mut self, now: Instant, from: SocketAddr) -> (Vec<Vec<u8>>, Vec<EndpointEvent>) {
        let mut arrived = Vec::new();
        while let Some((at, _)) = self.arriving.front()
            && *at <= now
        {
            arrived.extend(self.arriving.pop_front().map(|(_, packet)| packet));
        }
        let mut sent = Vec::with_capacity(256);
        let began = processor_time();
        for packet in &mut arrived {
            self.endpoint.handle_packet(now, from, None, packet);
        }
        self.endpoint.handle_timeout(now);
        let mut buffer = Vec::with_capacity(1 << 17);
        while let Some(transmit) = self.endpoint.poll_transmit(now, &mut buffer) {
            sent.push(transmit.size);
        }
        let events = std::iter::from_fn(|| self.endpoint.poll_event()).collect();
        self.time += processor_time() - began;
        let mut rest = &buffer[..];
        let packets = sent.into_iter().map(|size| {
            let (packet, after) = rest.split_at(size);
            rest = after;
            packet.to_vec()
        });
        let packets: Vec<_> = packets.collect();
        self.packets_sent += packets.len() as u64;
        (packets, events)
    }
}

/// Sends samples over a path that loses this share of the packets.
fn transfer(loss_percent: u64, samples: u64) -> Cost {
    coding::make_tables();
    let mut now = Instant::now();
    let [mut sender, mut receiver] = [1, 2].map(End::new);
    let mut draw = Draw::new(1);
    let (to, peer) = (receiver.address, key(2).public());
    sender
        .endpoint
        .connect(now, to, peer)
        .expect("the address is good");
    let session = sender.endpoint.session_mut(&peer).expect("it is begun");
    let stream = session
        .open(now, "samples", Qos::new(Delivery::keep_all(2)))
        .expect("the name is short");
    let sample = Bytes::from_iter((0..SAMPLE_BYTES).map(|byte| (byte % 251) as u8));
    let starts_at = now + SETTLING;
    let (mut offered, mut delivered, mut packets_before) = (0, 0, 0);
    while delivered < samples {
        now += STEP;
        let loss_percent = if now < starts_at { 0 } else { loss_percent };
        let (packets, _) = sender.turn(now, receiver.address);
        let passed = packets
            .into_iter()
            .filter(|_| !draw.chance(loss_percent))
            .map(|packet| (now + ONE_WAY, packet));
        receiver.arriving.extend(passed);
        let (packets, events) = receiver.turn(now, sender.address);
        let passed = packets.into_iter().map(|packet| (now + ONE_WAY, packet));
        sender.arriving.extend(passed);
        for event in events {
            if let EndpointEvent::Session { peer, event } = event
                && let SessionEvent::Receiver(ReceiverEvent::Readable(stream)) = event
            {
                let began = processor_time();
                let session = receiver.endpoint.session_mut(&peer).expect("it is open");
                let taken = session.take(now, stream);
                receiver.time += processor_time() - began;
                let taken = taken.expect("it is readable");
                assert!(taken.payload[..] == sample[..], "a sample has changed");
                delivered += 1;
            }
        }
        if now < starts_at {
            packets_before = sender.packets_sent;
            (sender.time, receiver.time) = (Duration::ZERO, Duration::ZERO);
        } else if offered < samples {
            let began = processor_time();
            let session = sender.endpoint.session_mut(&peer).expect("it is open");
            if session.sender().streams().has_room(stream) {
                session
                    .send(now, stream, sample.clone())
                    .expect("it has room");
                offered += 1;
            }
            sender.time += processor_time() - began;
        }
    }
    let session = |end: &End, peer| end.endpoint.session(&peer).expect("it is open").status();
    let (carrier_out, carrier_in) = (
        sender.endpoint.carrier().counters(),
        receiver.endpoint.carrier().counters(),
    );
    Cost {
        sender: sender.time,
        receiver: receiver.time,
        sample_bytes: samples * SAMPLE_BYTES as u64,
        packets: sender.packets_sent - packets_before,
        copied_out: session(&sender, peer).bytes_copied_out + carrier_out.bytes_copied_out,
        copied_in: session(&receiver, key(1).public()).link.bytes_copied
            + carrier_in.bytes_copied_in,
    }
}

fn key(number: u8) -> KeyPair {
    KeyPair::from_seed([number; 32])
}

fn processor_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
