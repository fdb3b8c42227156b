//! Many seeds, many networks: nothing is altered, repeated, out of order or unaccounted for.

use std::time::Duration;

use nervure_linkemu::{
    Air, Bursts, Duplex, Outage, Queue, Schedule, Settings,
    network::{Network, for_each_seed},
};

use super::app::{Between, Host, Load};
use crate::qos::{Delivery, Qos, TrafficClass};

/// Numbers drawn from a seed.
pub struct Draw(u64);

impl Draw {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }

    pub fn share(&mut self) -> f64 {
        self.below(1 << 20) as f64 / (1 << 20) as f64
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

pub fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A bad direction of a network.
fn settings(draw: &mut Draw) -> Settings {
    let mut settings = Settings {
        rate_bits_per_second: Some([1_000_000, 10_000_000, 54_000_000, 300_000_000][draw.below(4) as usize]),
        queue: Queue::Time(millis([5, 100, 1000][draw.below(3) as usize])),
        loss: draw.share() * 0.64,
        delay: Duration::from_micros([100, 1000, 20_000, 100_000][draw.below(4) as usize]),
        ..Settings::default()
    };
    if draw.chance(30) {
        settings.jitter = millis(draw.below(10));
    }
    if draw.chance(30) {
        settings.reorder = draw.share() * 0.2;
        settings.reorder_delay = millis(draw.below(10));
    }
    if draw.chance(20) {
        settings.bursts = Some(Bursts { good_mean: millis(200), bad_mean: millis(30), loss: 0.9 });
    }
    settings
}

fn loads(draw: &mut Draw) -> Vec<Load> {
    let count = 1 + draw.below(4) as usize;
    (0..count)
        .map(|_| {
            let depth = 1 + draw.below(12) as u32;
            let delivery = match draw.below(4) {
                0 => Delivery::keep_last(depth),
                1 => Delivery::best_effort(depth),
                2 => Delivery::Latest,
                _ => Delivery::keep_all(depth),
            };
            let qos = Qos {
                delivery,
                traffic_class: TrafficClass::ALL[draw.below(3) as usize],
                deadline: draw.chance(20).then(|| millis(50)),
                lifespan: draw.chance(30).then(|| millis(20 + draw.below(300))),
            };
            let sample_bytes = [0, 1, 9, 100, 1024, 4000, 30_000, 150_000][draw.below(8) as usize];
            let count = (400_000 / (sample_bytes as u64 + 1000)).clamp(3, 60);
            let start = millis(draw.below(100));
            Load { qos, sample_bytes, period: millis(1 + draw.below(40)), count, start }
        })
        .collect()
}

/// Runs until everything that was accepted has come to an end, and checks the accounts of both ends.
fn run(seed: u64, air: Air<nervure_linkemu::network::Packet>, hosts: [Host; 2]) -> Network<Between> {
    let [a, b] = hosts;
    let mut network = Network::new(air, [Between(1, a), Between(0, b)]);
    let sent_all = |network: &Network<Between>| (0..2).all(|host| network.endpoint(host).1.has_sent_all());
    assert!(
        network.run_until(Duration::from_secs(600), sent_all),
        "seed {seed}: producers are stuck: {:#?}",
        network.endpoint(0).1.session
    );
    let now = network.now();
    (0..2).for_each(|host| network.endpoint_mut(host).1.close_all(now));
    let idle =
        |network: &Network<Between>| (0..2).all(|host| network.endpoint(host).1.session.sender().is_idle());
    assert!(
        network.run_until(now + Duration::from_secs(600), idle),
        "seed {seed}: stuck: {:#?}",
        network.endpoint(0).1.session
    );
    for (from, to) in [(0, 1), (1, 0)] {
        let (sender, receiver) = (&network.endpoint(from).1, &network.endpoint(to).1);
        let (sent, received) = (sender.session.status().sent, receiver.session.status().received);
        assert!(sent.is_balanced() && sent.held == 0, "{sent:?}");
        assert!(received.is_balanced(), "{received:?}");
        assert_eq!(sent.delivered, received.delivered, "{sent:?} {received:?}");
        assert_eq!(sent.refused + sent.unconfirmed, 0, "{sent:?}");
        let taken: u64 = receiver.arrived.values().map(|arrived| arrived.samples).sum();
        assert_eq!(taken, received.taken);
        assert_eq!(sender.session.status().invalid_feedback, 0);
        let link = receiver.session.status().link;
        assert_eq!((link.invalid_packets, link.invalid_messages), (0, 0));
        let open: Vec<_> = receiver.session.receiver().streams().collect();
        assert_eq!(
            link.budget_used_bytes,
            0,
            "all memory is given back: {open:?} {:?}",
            receiver.session.receiver()
        );
    }
    network
}

#[test]
fn nothing_is_altered_repeated_out_of_order_or_unaccounted_for() {
    for_each_seed(0..1000, |seed| {
        let mut draw = Draw::new(seed);
        let mut directions = [settings(&mut draw), settings(&mut draw)].map(Schedule::from);
        let duplex = if draw.chance(25) { Duplex::Half } else { Duplex::Full };
        if draw.chance(25) {
            let (from, lasting) = (millis(draw.below(500)), millis(draw.below(2000)));
            let kind = if draw.chance(50) { Outage::Lose } else { Outage::Hold };
            directions = directions
                .map(|schedule| schedule.during(from, lasting, |settings| settings.outage = Some(kind)));
        }
        let air = Air::new(duplex, seed, directions);
        let hosts = [0, 1].map(|host| {
            let loads = if host == 1 && draw.chance(50) { Vec::new() } else { loads(&mut draw) };
            Host::new(seed, host, &loads)
        });
        run(seed, air, hosts);
    });
}

/// A large stream over a clean rate: what it delivers and how fast.
fn figures(
    seed: u64,
    rate_bits_per_second: u64,
    loss: f64,
    delay: Duration,
    load: Load,
    seconds: u64,
) -> Host {
    let settings =
        Settings { rate_bits_per_second: Some(rate_bits_per_second), loss, delay, ..Settings::default() };
    let hosts = [Host::new(seed, 0, &[load]), Host::new(seed, 1, &[])];
    let [a, b] = hosts;
    let air = Air::new(Duplex::Full, seed, [settings, settings]);
    let mut network = Network::new(air, [Between(1, a), Between(0, b)]);
    network.run_to(Duration::from_secs(seconds));
    let status = network.endpoint(0).1.session.status();
    println!("{:?}", status.sent);
    println!("{:?}", status.path);
    let mut network = network;
    let host = std::mem::replace(&mut network.endpoint_mut(1).1, Host::new(seed, 1, &[]));
    let arrived = &host.arrived["stream 0"];
    println!(
        "{} Mbit/s {loss}: {} of {} delivered, p50 {:?} p99 {:?}",
        rate_bits_per_second / 1_000_000,
        arrived.samples,
        status.sent.accepted,
        arrived.percentile(0.5),
        arrived.percentile(0.99)
    );
    host
}

#[test]
#[ignore = "prints figures; run it with --release"]
fn print_figures() {
    for (rate, loss) in [(300, 0.0), (300, 0.2), (300, 0.4), (1000, 0.2), (54, 0.2)] {
        let load = Load {
            qos: Qos::new(Delivery::keep_last(1)),
            sample_bytes: 512 << 10,
            period: Duration::from_micros(33_333),
            count: u64::MAX,
            start: Duration::ZERO,
        };
        figures(1, rate * 1_000_000, loss, millis(1), load, 10);
    }
}
