//! A run of a network, and the figures measured in it.

use std::path::Path;
use std::time::Duration;

use nervure_link::qos::Qos;
use nervure_linkemu::network::Network;
use nervure_linkemu::tcp::TcpSender;
use nervure_linkemu::{Air, Duplex, Scenario, Schedule, Settings};

use crate::cells::Metric;
use crate::machine::{Delays, HEADER_BYTES, Machine, Socket, Stalls, key, link};
use crate::peer::{Load, Peer};

/// The share of a packet of 1500 bytes that the headers of IP, UDP, QUIC and the link leave for a
/// sample.
const HEADER_ADJUSTED: f64 = 1408.0 / 1500.0;
/// When schedules begin.
pub const START: Duration = Duration::from_secs(1);
/// Grace period for samples in flight when a schedule ends.
const GRACE: Duration = Duration::from_secs(3);
/// A link that is still busy after this time is stuck.
const BUSY_LIMIT: Duration = Duration::from_secs(60);
/// The mean time between pauses of a processor that others use, too.
const STALLS_EVERY: Duration = Duration::from_millis(100);
const STALLS_UP_TO: Duration = Duration::from_millis(20);

pub type Figures = Vec<(Metric, f64)>;

/// A network and its load.
#[derive(Clone)]
pub struct Run {
    pub duplex: Duplex,
    /// The settings of both directions, over time.
    pub schedule: Schedule,
    pub qos: Qos,
    pub sample_bytes: usize,
    pub rate_hz: f64,
    pub samples: u64,
    /// Both hosts pause now and then.
    pub stalls: bool,
}

impl Run {
    pub fn load(&self) -> Load {
        Load {
            qos: self.qos,
            sample_bytes: self.sample_bytes,
            period: Duration::from_secs_f64(1.0 / self.rate_hz),
            count: self.samples,
            start: Some(START),
            pause: None,
        }
    }

    /// Host 0 sends to host 1.
    pub fn pair(&self, seed: u64) -> Network<Machine> {
        let air = Air::new(
            self.duplex,
            seed,
            [self.schedule.clone(), self.schedule.clone()],
        );
        let mut network = network(air, seed, self.stalls, |host| vec![link(seed, host, 0, 1)]);
        let load = self.load();
        network
            .endpoint_mut(0)
            .peer_mut(0)
            .connect(Duration::ZERO, 1, 0, &[load]);
        network
    }

    /// Delivery, latencies and efficiency.
    pub fn measure(&self, seed: u64) -> Figures {
        let mut network = self.pair(seed);
        let seconds = self.samples as f64 / self.rate_hz;
        network.run_to(START + Duration::from_secs_f64(seconds) + GRACE);
        check_possible(&network, 0, 1);
        let latencies = latencies(&network, 0, 1);
        // Samples that arrive after the schedule has ended count as delivered, but not towards
        // goodput.
        let end = network.endpoint(0).peer(0).begin(0).unwrap_or(START)
            + Duration::from_secs_f64(seconds);
        let in_time = latencies.iter().filter(|(at, _)| *at < end).count();
        let bits = |samples: usize| samples as f64 * self.sample_bytes as f64 * 8.0;
        let capacity = self
            .schedule
            .at(START)
            .rate_bits_per_second
            .map_or(f64::INFINITY, |rate| rate as f64);
        let limit = (capacity * kept(&network, 0) * HEADER_ADJUSTED)
            .min(self.sample_bytes as f64 * 8.0 * self.rate_hz);
        let mut figures = latency_figures(&latencies, self.samples);
        figures.push((Metric::OfLimit, 100.0 * bits(in_time) / seconds / limit));
        figures.push((
            Metric::OnAir,
            network.air().counters(0).offered.bytes as f64 / (bits(latencies.len()) / 8.0).max(1.0),
        ));
        figures
    }

    /// An interruption: the first sample after it, its age, and the number of accepted samples
    /// lost.
    pub fn measure_outage(&self, seed: u64, from: Duration, lasting: Duration) -> Figures {
        let interrupted = Run {
            schedule: self.schedule.clone().outage(from, lasting),
            ..self.clone()
        };
        let mut network = interrupted.pair(seed);
        let over = from + lasting;
        network.run_to(START + Duration::from_secs_f64(self.samples as f64 / self.rate_hz) + GRACE);
        let sent_all = |network: &Network<Machine>| network.endpoint(0).peer(0).has_offered_all();
        network.run_until(network.now() + BUSY_LIMIT, sent_all);
        let now = network.now();
        network.endpoint_mut(0).peer_mut(0).close_streams(now);
        network.run_until(now + BUSY_LIMIT, |network| {
            network
                .endpoint(0)
                .peer(0)
                .session(1, 0)
                .sender()
                .streams()
                .is_idle()
        });
        check_possible(&network, 0, 1);
        let latencies = latencies(&network, 0, 1);
        let after: Vec<_> = latencies.iter().filter(|(at, _)| *at >= over).collect();
        let first = after
            .first()
            .map_or(f64::INFINITY, |(at, _)| (*at - over).as_secs_f64() * 1e3);
        let oldest = after
            .iter()
            .map(|(_, latency)| latency.as_secs_f64() * 1e3)
            .fold(0.0, f64::max);
        let accepted = network.endpoint(0).peer(0).accepted(0).len() as u64;
        vec![
            (Metric::FirstAfterOutage, first),
            (Metric::OldestAfterOutage, oldest),
            (
                Metric::LostOfAccepted,
                (accepted - latencies.len() as u64) as f64,
            ),
        ]
    }

    /// Beside a Cubic flow in the same queue: shares of the link, counted in IP bytes.
    pub fn measure_beside_cubic(&self, seed: u64, cubic_from: Duration) -> Figures {
        let air = Air::new(
            self.duplex,
            seed,
            [self.schedule.clone(), self.schedule.clone()],
        );
        let mut network = network(air, seed, self.stalls, |host| {
            let cubic = match host {
                0 => Socket::Tcp {
                    to: 1,
                    from: cubic_from,
                    sender: TcpSender::cubic(),
                },
                _ => Socket::TcpSink(Delays::default()),
            };
            vec![link(seed, host, 0, 1), cubic]
        });
        // The flow that joins begins five seconds after the other.
        let start = if cubic_from.is_zero() {
            Duration::from_secs(5)
        } else {
            Duration::ZERO
        };
        network.run_to(start);
        let load = Load {
            start: None,
            ..self.load()
        };
        network
            .endpoint_mut(0)
            .peer_mut(0)
            .connect(start, 1, 0, &[load]);
        let from = start.max(cubic_from) + Duration::from_secs(10);
        network.run_to(from);
        let before = network.endpoint(1).received_bytes.clone();
        let to = start + Duration::from_secs_f64(self.samples as f64 / self.rate_hz);
        assert!(
            to > from,
            "more samples are needed to see how the flows share the link"
        );
        network.run_to(to);
        let share = |socket: usize| {
            let bytes = network.endpoint(1).received_bytes[socket] - before[socket];
            let capacity = self
                .schedule
                .at(from)
                .rate_bits_per_second
                .expect("a rate is set") as f64;
            100.0 * bytes as f64 * 8.0 / (to - from).as_secs_f64() / capacity
        };
        vec![
            (Metric::ShareOfLink, share(0)),
            (Metric::LeftToCubic, share(1)),
        ]
    }

    /// Several links in one queue that begin one after the other: the shares from five seconds
    /// after the last.
    pub fn measure_links(&self, seed: u64, links: usize, one_after: Duration) -> Figures {
        let air = Air::new(
            self.duplex,
            seed,
            [self.schedule.clone(), self.schedule.clone()],
        );
        let mut network = network(air, seed, self.stalls, |host| {
            (0..links)
                .map(|socket| link(seed, host, socket, 1))
                .collect()
        });
        for number in 0..links {
            let at = one_after * number as u32;
            network.run_to(at);
            network
                .endpoint_mut(0)
                .peer_mut(number)
                .connect(at, 1, number, &[self.load()]);
        }
        let from = START + one_after * links as u32 + Duration::from_secs(5);
        let to = START + Duration::from_secs_f64(self.samples as f64 / self.rate_hz);
        assert!(
            to > from,
            "more samples are needed to see how the links share"
        );
        let delivered = |network: &Network<Machine>| -> Vec<f64> {
            let peers = (0..links).map(|number| network.endpoint(1).peer(number));
            peers
                .map(|peer| {
                    peer.arrived
                        .values()
                        .map(|arrived| arrived.bytes as f64)
                        .sum()
                })
                .collect()
        };
        network.run_to(from);
        let before = delivered(&network);
        network.run_to(to);
        let rates: Vec<f64> = delivered(&network)
            .iter()
            .zip(before)
            .map(|(after, before)| after - before)
            .collect();
        let seconds = (to - from).as_secs_f64();
        self.shares(&network, &rates, seconds, kept(&network, 0))
    }

    /// Robots that send to one station. Robot n is host n + 1.
    pub fn measure_robots(&self, seed: u64, robots: usize, start: Option<Duration>) -> Figures {
        let schedules = (0..=robots).map(|_| self.schedule.clone());
        let air = Air::new(self.duplex, seed, schedules);
        let mut network = network(air, seed, self.stalls, |host| match host {
            0 => {
                let allowed: Vec<_> = (1..=robots).map(|robot| key(robot, 0).public()).collect();
                vec![Socket::Link(Box::new(Peer::new(seed, 0, 0, &allowed)))]
            }
            _ => vec![Socket::Link(Box::new(Peer::new(seed, host, 0, &[])))],
        });
        for robot in 1..=robots {
            let at = Duration::from_millis(20) * robot as u32;
            network.run_to(at);
            network.endpoint_mut(robot).peer_mut(0).connect(
                at,
                0,
                0,
                &[Load {
                    start,
                    ..self.load()
                }],
            );
        }
        let from = START + Duration::from_secs(5);
        let to = START + Duration::from_secs_f64(self.samples as f64 / self.rate_hz);
        assert!(
            to > from,
            "more samples are needed to see how the robots share"
        );
        let delivered = |network: &Network<Machine>| -> Vec<f64> {
            let arrived = &network.endpoint(0).peer(0).arrived;
            let of = |robot| {
                arrived
                    .get(&(key(robot, 0).public(), "stream 0".to_owned()))
                    .map_or(0.0, |one| one.bytes as f64)
            };
            (1..=robots).map(of).collect()
        };
        let offered = |network: &Network<Machine>| -> u64 {
            (0..=robots)
                .map(|host| network.air().counters(host).offered.bytes)
                .sum()
        };
        network.run_to(from);
        let (before, offered_before) = (delivered(&network), offered(&network));
        network.run_to(to);
        let rates: Vec<f64> = delivered(&network)
            .iter()
            .zip(before)
            .map(|(after, before)| after - before)
            .collect();
        let seconds = (to - from).as_secs_f64();
        let mut figures = self.shares(&network, &rates, seconds, kept(&network, 1));
        let on_air =
            (offered(&network) - offered_before) as f64 / rates.iter().sum::<f64>().max(1.0);
        figures.push((Metric::OnAir, on_air));
        figures
    }

    fn shares(
        &self,
        network: &Network<Machine>,
        bytes: &[f64],
        seconds: f64,
        kept: f64,
    ) -> Figures {
        let capacity = self
            .schedule
            .at(network.now())
            .rate_bits_per_second
            .expect("a rate is set") as f64;
        let asked = bytes.len() as f64 * self.sample_bytes as f64 * 8.0 * self.rate_hz;
        let limit = (capacity * kept * HEADER_ADJUSTED).min(asked);
        let (sum, squares) = bytes.iter().fold((0.0, 0.0), |(sum, squares), one| {
            (sum + one, squares + one * one)
        });
        let (least, most) = bytes.iter().fold((f64::MAX, 0.0_f64), |(l, m), one| {
            (l.min(*one), m.max(*one))
        });
        vec![
            (Metric::OfLimit, 100.0 * sum * 8.0 / seconds / limit),
            // Jain, Chiu, Hawe, DEC-TR-301, 1984.
            (
                Metric::Jain,
                sum * sum / (bytes.len() as f64 * squares).max(1.0),
            ),
            (Metric::Apart, 100.0 * (1.0 - least / most.max(1.0))),
        ]
    }
}

/// The example `bad-wireless`: goodput of each part of the drive relative to its capacity; and the
/// end of the outage.
pub fn measure_bad_wireless(seed: u64, stalls: bool) -> Figures {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/bad-wireless/scenario.toml");
    let mut scenario = Scenario::from_file(&file).expect("the example's scenario is good");
    scenario.seed = seed;
    let lifespan = Some(Duration::from_millis(400));
    let run = Run {
        duplex: scenario.duplex,
        schedule: scenario.hosts[1].schedule.clone(),
        qos: Qos {
            lifespan,
            ..Qos::new(nervure_link::qos::Delivery::keep_last(1))
        },
        sample_bytes: 960 * 540 * 3 / 2,
        rate_hz: 25.0,
        samples: 28 * 25,
        stalls,
    };
    let mut network = run.pair(seed);
    network.run_to(Duration::from_secs(30));
    check_possible(&network, 0, 1);
    let arrived: Vec<f64> = latencies(&network, 0, 1)
        .iter()
        .map(|(at, _)| at.as_secs_f64())
        .collect();
    let within =
        |from: f64, to: f64| arrived.iter().filter(|at| (from..to).contains(*at)).count() as f64;
    let of_limit = |from: f64, to: f64| {
        let settings = run.schedule.at(Duration::from_secs_f64(from));
        let bits = settings.rate_bits_per_second.expect("a rate is set") as f64;
        let limit =
            bits * (1.0 - settings.loss) * HEADER_ADJUSTED / (run.sample_bytes as f64 * 8.0);
        100.0 * within(from, to) / (to - from) / limit.min(run.rate_hz)
    };
    let first = arrived
        .iter()
        .find(|at| **at >= 17.0)
        .map_or(f64::INFINITY, |at| (at - 17.0) * 1e3);
    vec![
        (
            Metric::OfLimit,
            of_limit(1.5, 8.0)
                .min(of_limit(8.5, 14.0))
                .min(of_limit(17.5, 22.0)),
        ),
        (Metric::OfLimitAfterStep, of_limit(22.5, 28.0)),
        (Metric::FirstAfterOutage, first),
    ]
}

/// The time from the first attempt to connect to the first sample's arrival: the 95th percentile of
/// `count` runs.
pub fn measure_first_sample(seed: u64, settings: Settings, connections: u64) -> Figures {
    let load = Load {
        qos: Qos::new(nervure_link::qos::Delivery::keep_last(1)),
        sample_bytes: 1024,
        period: Duration::from_secs(1),
        count: 1,
        start: None,
        pause: None,
    };
    let mut times: Vec<f64> = (0..connections)
        .map(|number| {
            let seed = seed * connections + number;
            let air = Air::new(Duplex::Full, seed, [settings, settings]);
            let mut network = network(air, seed, false, |host| vec![link(seed, host, 0, 1)]);
            network
                .endpoint_mut(0)
                .peer_mut(0)
                .connect(Duration::ZERO, 1, 0, &[load]);
            let done = |network: &Network<Machine>| {
                network
                    .endpoint(1)
                    .peer(0)
                    .arrived
                    .values()
                    .any(|arrived| !arrived.samples.is_empty())
            };
            match network.run_until(Duration::from_secs(20), done) {
                true => network.now().as_secs_f64() * 1e3,
                false => f64::INFINITY,
            }
        })
        .collect();
    times.sort_by(f64::total_cmp);
    vec![(Metric::FirstSample, times[(times.len() - 1) * 95 / 100])]
}

fn network(
    air: Air<nervure_linkemu::network::Packet>,
    seed: u64,
    stalls: bool,
    sockets: impl Fn(usize) -> Vec<Socket>,
) -> Network<Machine> {
    let machines: Vec<_> = (0..air.hosts())
        .map(|host| {
            let stalls =
                stalls.then(|| Stalls::new(seed * 64 + host as u64, STALLS_EVERY, STALLS_UP_TO));
            Machine::new(host, sockets(host)).with_stalls(stalls)
        })
        .collect();
    Network::new(air, machines).with_header_bytes(HEADER_BYTES)
}

/// (arrival, latency) of each sample of the first stream between two hosts. A sample is as old as
/// it was due, not as it was accepted.
pub fn latencies(network: &Network<Machine>, from: usize, to: usize) -> Vec<(Duration, Duration)> {
    let sender = network.endpoint(from).peer(0);
    let Some(begin) = sender.begin(0) else {
        return Vec::new();
    };
    let receiver = network.endpoint(to).peer(0);
    let stream = (key(from, 0).public(), "stream 0".to_owned());
    let Some(arrived) = receiver.arrived.get(&stream) else {
        return Vec::new();
    };
    let period = sender.period(0);
    let of = |(number, at): &(u64, Duration)| (*at, *at - (begin + period.mul_f64(*number as f64)));
    arrived.samples.iter().map(of).collect()
}

fn latency_figures(latencies: &[(Duration, Duration)], scheduled: u64) -> Figures {
    let mut millis: Vec<f64> = latencies
        .iter()
        .map(|(_, latency)| latency.as_secs_f64() * 1e3)
        .collect();
    millis.sort_by(f64::total_cmp);
    let delivered = (
        Metric::Delivered,
        100.0 * millis.len() as f64 / scheduled as f64,
    );
    if millis.is_empty() {
        return vec![delivered];
    }
    let percentile = |share: f64| millis[((millis.len() - 1) as f64 * share).round() as usize];
    vec![
        delivered,
        (
            Metric::Mean,
            millis.iter().sum::<f64>() / millis.len() as f64,
        ),
        (Metric::P99, percentile(0.99)),
        (Metric::Longest, percentile(1.0)),
    ]
}

/// The share of sent packets that were not lost.
fn kept(network: &Network<Machine>, host: usize) -> f64 {
    let counters = network.air().counters(host);
    let lost =
        counters.lost_random.packets + counters.lost_burst.packets + counters.lost_outage.packets;
    let arrived = counters.delivered.packets;
    if arrived + lost == 0 {
        1.0
    } else {
        arrived as f64 / (arrived + lost) as f64
    }
}

/// Checks that the link delivered no more than the network carried.
///
/// # Panics
/// When it did.
fn check_possible(network: &Network<Machine>, from: usize, to: usize) {
    let counters = network.air().counters(from);
    let payload: u64 = network
        .endpoint(to)
        .peer(0)
        .arrived
        .values()
        .map(|arrived| arrived.bytes)
        .sum();
    assert!(
        payload <= counters.delivered.bytes,
        "{payload} bytes delivered, {:?}",
        counters.delivered
    );
    let (airtime, elapsed) = (counters.airtime, network.now());
    assert!(
        airtime <= elapsed + elapsed / 10_000,
        "{airtime:?} on the air in {elapsed:?}"
    );
}
