//! Many seeds, many networks: no sample is altered, duplicated, out of order or unaccounted for.

use std::time::Duration;

use nervure_linkemu::{
    Air, Bursts, Duplex, Outage, Queue, Schedule, Settings,
    network::{Draw, Network, for_each_seed},
};

use super::app::{Host, HostPair, Load};
use crate::{
    qos::{Delivery, Qos, TrafficClass},
    sender::SendCounters,
};

pub fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A bad direction of a network.
pub fn settings(draw: &mut Draw) -> Settings {
    let mut settings = Settings {
        rate_bits_per_second: Some(
            [1_000_000, 10_000_000, 54_000_000, 300_000_000][draw.below(4) as usize],
        ),
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
        settings.bursts = Some(Bursts {
            good_mean: millis(200),
            bad_mean: millis(30),
            loss: 0.9,
        });
    }
    settings
}

pub fn loads(draw: &mut Draw) -> Vec<Load> {
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
            Load {
                qos,
                sample_bytes,
                period: millis(1 + draw.below(40)),
                count,
                start,
            }
        })
        .collect()
}

/// Runs until every accepted sample has come to an end, and checks the counters of both ends.
fn run(
    seed: u64,
    air: Air<nervure_linkemu::network::Packet>,
    hosts: [Host; 2],
) -> Network<HostPair> {
    let [a, b] = hosts;
    let mut network = Network::new(air, [HostPair(1, a), HostPair(0, b)]);
    let sent_all =
        |network: &Network<HostPair>| (0..2).all(|host| network.endpoint(host).1.has_sent_all());
    assert!(
        network.run_until(Duration::from_secs(600), sent_all),
        "seed {seed}: producers are stuck: {:#?}",
        network.endpoint(0).1.session
    );
    let now = network.now();
    (0..2).for_each(|host| network.endpoint_mut(host).1.close_all(now));
    let idle = |network: &Network<HostPair>| {
        (0..2).all(|host| {
            network
                .endpoint(host)
                .1
                .session
                .sender()
                .streams()
                .is_idle()
        })
    };
    assert!(
        network.run_until(now + Duration::from_secs(600), idle),
        "seed {seed}: stuck: {:#?}",
        network.endpoint(0).1.session
    );
    for (from, to) in [(0, 1), (1, 0)] {
        let (sender, receiver) = (&network.endpoint(from).1, &network.endpoint(to).1);
        let (sent, received) = (
            sender.session.status().sent,
            receiver.session.status().received,
        );
        assert!(sent.is_balanced() && sent.held == 0, "{sent:?}");
        assert!(received.is_balanced(), "{received:?}");
        assert_eq!(sent.delivered, received.delivered, "{sent:?} {received:?}");
        assert_eq!(sent.refused + sent.unconfirmed, 0, "{sent:?}");
        let taken: u64 = receiver
            .arrived
            .values()
            .map(|arrived| arrived.samples)
            .sum();
        assert_eq!(taken, received.taken);
        assert_eq!(sender.session.status().invalid_feedback, 0);
        let link = receiver.session.status().link;
        assert_eq!((link.invalid_packets, link.invalid_messages), (0, 0));
        let open: Vec<_> = receiver.session.receiver().streams().collect();
        assert_eq!(
            receiver.session.receiver().sample_bytes(),
            0,
            "all memory is given back: {open:?} {:?}",
            receiver.session.receiver()
        );
    }
    network
}

#[test]
fn nothing_is_altered_repeated_out_of_order_or_unaccounted_for() {
    for_each_seed(0..600, |seed| {
        let mut draw = Draw::new(seed);
        let mut directions = [settings(&mut draw), settings(&mut draw)].map(Schedule::from);
        let duplex = if draw.chance(25) {
            Duplex::Half
        } else {
            Duplex::Full
        };
        if draw.chance(25) {
            let (from, lasting) = (millis(draw.below(500)), millis(draw.below(2000)));
            let kind = if draw.chance(50) {
                Outage::Lose
            } else {
                Outage::Hold
            };
            directions = directions.map(|schedule| {
                schedule.during(from, lasting, |settings| settings.outage = Some(kind))
            });
        }
        let air = Air::new(duplex, seed, directions);
        let hosts = [0, 1].map(|host| {
            let loads = if host == 1 && draw.chance(50) {
                Vec::new()
            } else {
                loads(&mut draw)
            };
            Host::new(seed, host, &loads)
        });
        run(seed, air, hosts);
    });
}

/// A queue full of samples that expire in transit carries nothing: samples that would arrive too
/// late make room.
#[test]
fn a_link_that_cannot_carry_all_carries_what_arrives_in_time() {
    let lifespan = millis(250);
    for_each_seed(0..4, |seed| {
        let mut cell = Cell::new("54 20", 54, 0.2, 1, 512 << 10);
        cell.load.qos = Qos {
            lifespan: Some(lifespan),
            ..Qos::new(Delivery::keep_last(10))
        };
        let [a, b] = [Host::new(seed, 0, &[cell.load]), Host::new(seed, 1, &[])];
        let air = Air::new(cell.duplex, seed, [cell.settings, cell.settings]);
        let mut network = Network::new(air, [HostPair(1, a), HostPair(0, b)]);
        let seconds = 5;
        network.run_to(Duration::from_secs(seconds));
        let arrived = &network.endpoint(1).1.arrived["stream 0"];
        let bits = arrived.samples as f64 * cell.load.sample_bytes as f64 * 8.0 / seconds as f64;
        assert!(bits > 0.75 * 0.8 * 54e6, "{:.1} Mbit/s", bits * 1e-6);
        // The transit time of a packet adds to the age that the sender knows.
        let oldest = arrived.percentile(1.0);
        assert!(
            oldest < lifespan + cell.settings.delay + millis(100),
            "{oldest:?}"
        );
    });
}

/// A cell of the table of figures.
struct Cell {
    name: &'static str,
    settings: Settings,
    duplex: Duplex,
    load: Load,
}

impl Cell {
    fn new(
        name: &'static str,
        rate_mbit: u64,
        loss: f64,
        delay_millis: u64,
        sample_bytes: usize,
    ) -> Self {
        let load = Load {
            qos: Qos::new(Delivery::keep_last(1)),
            sample_bytes,
            period: Duration::from_micros(33_333),
            count: u64::MAX,
            start: Duration::ZERO,
        };
        let settings = Settings {
            rate_bits_per_second: Some(rate_mbit * 1_000_000),
            loss,
            delay: millis(delay_millis),
            ..Settings::default()
        };
        Self {
            name,
            settings,
            duplex: Duplex::Full,
            load,
        }
    }

    fn print(&self, seed: u64, seconds: u64) {
        let [a, b] = [Host::new(seed, 0, &[self.load]), Host::new(seed, 1, &[])];
        let air = Air::new(self.duplex, seed, [self.settings, self.settings]);
        let mut network = Network::new(air, [HostPair(1, a), HostPair(0, b)]);
        if std::env::var_os("NERVURE_TRACE").is_some() {
            let mut last = SendCounters::default();
            for step in 1..seconds * 100 {
                network.run_to(millis(10 * step));
                let status = network.endpoint(0).1.session.status();
                let lost = |counters: &SendCounters| counters.overwritten + counters.superseded;
                println!(
                    "{:5} ms: delivered {} lost {} symbols {} repair {} loss {:.2} rate {:.0} queue {:?} rtt {:?} silent {}",
                    10 * step,
                    status.sent.delivered,
                    lost(&status.sent) - lost(&last),
                    status.sent.symbols - last.symbols,
                    status.sent.repair_symbols - last.repair_symbols,
                    status.path.loss,
                    status.path.bytes_per_second * 8e-6,
                    status.path.queue_delay,
                    status.path.rtt,
                    status.path.silent,
                );
                last = status.sent;
            }
        }
        network.run_to(Duration::from_secs(seconds));
        let status = network.endpoint(0).1.session.status();
        let sent = status.sent;
        let arrived = &network.endpoint(1).1.arrived["stream 0"];
        let millis = |share| arrived.percentile(share).as_secs_f64() * 1e3;
        println!(
            "{:>24} seed {seed}: {:5.1} % of {} delivered, p50 {:5.1} p99 {:5.1} max {:5.1} ms, {:5.1} Mbit/s, repair {:4.1} %, \
             overwritten {} superseded {} rate {:.0}",
            self.name,
            100.0 * arrived.samples as f64 / sent.accepted as f64,
            sent.accepted,
            millis(0.5),
            millis(0.99),
            millis(1.0),
            sent.delivered_bytes as f64 * 8e-6 / seconds as f64,
            100.0 * sent.repair_symbols as f64 / sent.symbols as f64,
            sent.overwritten,
            sent.superseded,
            status.path.bytes_per_second * 8e-6,
        );
    }
}

#[test]
#[ignore = "prints figures"]
fn print_figures() {
    const LARGE: usize = 512 << 10;
    let mut cells = vec![
        Cell::new("300 0", 300, 0.0, 1, LARGE),
        Cell::new("300 20", 300, 0.2, 1, LARGE),
        Cell::new("300 40", 300, 0.4, 1, LARGE),
        Cell::new("1000 20", 1000, 0.2, 1, LARGE),
        Cell::new("1000 40", 1000, 0.4, 1, LARGE),
        Cell::new("54 0", 54, 0.0, 1, LARGE),
        Cell::new("54 20", 54, 0.2, 1, LARGE),
        Cell::new("54 40", 54, 0.4, 1, LARGE),
        Cell::new("1 KB 54 20", 54, 0.2, 1, 1024),
        Cell::new("1 KB 54 40", 54, 0.4, 1, 1024),
        Cell::new("1 KB 54 64", 54, 0.64, 1, 1024),
        Cell::new("300 20 RTT 40", 300, 0.2, 20, LARGE),
        Cell::new("300 20 RTT 200", 300, 0.2, 100, LARGE),
        Cell::new("300 20 jitter", 300, 0.2, 1, LARGE),
        Cell::new("300 20 half duplex", 300, 0.2, 1, LARGE),
        Cell::new("300 10 fades", 300, 0.1, 1, LARGE),
        Cell::new("54 10 queue 5 ms", 54, 0.1, 1, LARGE),
    ];
    cells[13].settings.jitter = millis(5);
    cells[14].duplex = Duplex::Half;
    cells[15].settings.bursts = Some(Bursts {
        good_mean: millis(970),
        bad_mean: millis(30),
        loss: 1.0,
    });
    cells[16].settings.queue = Queue::Time(millis(5));
    let only = std::env::var("NERVURE_CELL").unwrap_or_default();
    for cell in cells.iter().filter(|cell| cell.name.contains(&only)) {
        cell.print(1, 10);
    }
}
