//! Rate control on many kinds of path. Virtual time: a seed gives the same figures everywhere.

use nervure_linkemu::{Bursts, LossPlace, Queue, Settings};

use super::*;

/// `cargo test -p nervure-link print_the_tables -- --ignored --nocapture`
#[test]
#[ignore = "prints tables; the other tests check what they show"]
fn print_the_tables() {
    println!("| one greedy flow | goodput / limit | queue delay p50, p99 (ms) |\n|---|---|---|");
    for path in paths() {
        let worst = (1..=5)
            .map(|seed| path.measure(seed))
            .reduce(Measured::worse)
            .unwrap();
        let Measured {
            utilisation,
            median_millis,
            p99_millis,
        } = worst;
        println!(
            "| {} | {:.1} % | {median_millis:.1}, {p99_millis:.1} |",
            path.name,
            100.0 * utilisation
        );
    }
    println!("\n| several flows | Mbit/s |\n|---|---|");
    for seed in 1..=3 {
        println!(
            "| beside Cubic, which comes later, seed {seed} | {:.0?} |",
            beside_cubic(seed, 0.0, 2.0)
        );
        println!(
            "| beside Cubic, which begins with us, seed {seed} | {:.0?} |",
            beside_cubic(seed, 0.0, 0.0)
        );
        println!(
            "| beside Cubic, which was there first, seed {seed} | {:.0?} |",
            beside_cubic(seed, 5.0, 0.0)
        );
        println!(
            "| after Cubic has gone, seed {seed} | {:.0?} |",
            after_cubic(seed)
        );
        println!(
            "| two links, 300 Mbit/s, 20 %, seed {seed} | {:.0?} |",
            links(seed, 2, channel(300, 2.0, 100, 0.2))
        );
        println!(
            "| four links, 300 Mbit/s, seed {seed} | {:.0?} |",
            links(seed, 4, channel(300, 2.0, 100, 0.0))
        );
        let rates = robots(seed, 300, 0.1, 12.0);
        let total = rates.iter().sum::<f64>();
        println!(
            "| 30 robots on an air of 300 Mbit/s, 10 %, seed {seed} | {total:.0}, Jain {:.3} |",
            jain(&rates)
        );
        let rates = robots(seed, 54, 0.2, 60.0);
        let total = rates.iter().sum::<f64>();
        println!(
            "| 30 robots on an air of 54 Mbit/s, 20 %, after 30 s, seed {seed} | {total:.0}, Jain {:.3} |",
            jain(&rates)
        );
    }
    println!("\n| change | until 90 % of the limit (s) |\n|---|---|");
    for (name, seconds) in recoveries(1) {
        println!("| {name} | {seconds:.2} |");
    }
}

/// A path for one greedy flow, with the expected results.
struct Path {
    name: &'static str,
    duplex: Duplex,
    settings: Settings,
    seconds: f64,
    /// Share of the limit that must be reached.
    utilisation: f64,
    /// Largest 99th percentile of the queue delay.
    p99_millis: f64,
}

#[derive(Debug)]
struct Measured {
    utilisation: f64,
    median_millis: f64,
    p99_millis: f64,
}

impl Measured {
    fn worse(self, other: Self) -> Self {
        Self {
            utilisation: self.utilisation.min(other.utilisation),
            median_millis: self.median_millis.max(other.median_millis),
            p99_millis: self.p99_millis.max(other.p99_millis),
        }
    }
}

impl Path {
    fn new(name: &'static str, settings: Settings, utilisation: f64, p99_millis: f64) -> Self {
        let seconds = if settings.rate_bits_per_second >= Some(1_000_000_000) {
            2.0
        } else {
            5.0
        };
        Self {
            name,
            duplex: Duplex::Full,
            settings,
            seconds,
            utilisation,
            p99_millis,
        }
    }

    /// The most that can arrive, in Mbit/s.
    fn limit(&self) -> f64 {
        let Settings {
            rate_bits_per_second,
            loss,
            loss_place,
            bursts,
            ..
        } = self.settings;
        let fades = bursts.map_or(0.0, |bursts| {
            let bad = bursts.bad_mean.as_secs_f64();
            bursts.loss * bad / (bad + bursts.good_mean.as_secs_f64())
        });
        let passing = if loss_place == LossPlace::BeforeSerialiser {
            1.0
        } else {
            (1.0 - loss) * (1.0 - fades)
        };
        rate_bits_per_second.unwrap() as f64 * 1e-6 * passing
    }

    /// The second half of a run.
    fn measure(&self, seed: u64) -> Measured {
        let mut simulation = Simulation::new(self.duplex, seed, [self.settings; 2]);
        let flow = simulation.link(0, 1, Duration::ZERO, Demand::Greedy);
        simulation.run_until(secs(self.seconds));
        let (from, to) = (self.seconds / 2.0, self.seconds);
        let path_millis = self.settings.delay.as_secs_f64() * 1e3;
        Measured {
            utilisation: simulation.megabits(flow, from, to) / self.limit(),
            median_millis: simulation.delay_millis(flow, from, to, 50.0) - path_millis,
            p99_millis: simulation.delay_millis(flow, from, to, 99.0) - path_millis,
        }
    }
}

fn paths() -> Vec<Path> {
    let jitter = |settings: Settings| Settings {
        jitter: secs(0.005),
        ..settings
    };
    let reorder = |settings: Settings| Settings {
        reorder: 0.05,
        reorder_delay: secs(0.003),
        ..settings
    };
    let before = |settings: Settings| Settings {
        loss_place: LossPlace::BeforeSerialiser,
        ..settings
    };
    let fades = |settings: Settings| {
        let bursts = Bursts {
            good_mean: secs(0.5),
            bad_mean: secs(0.03),
            loss: 1.0,
        };
        Settings {
            bursts: Some(bursts),
            ..settings
        }
    };
    let half = |name, settings| Path {
        duplex: Duplex::Half,
        ..Path::new(name, settings, 0.95, 12.0)
    };
    vec![
        Path::new("54 Mbit/s", channel(54, 2.0, 100, 0.0), 0.97, 12.0),
        Path::new("54 Mbit/s, 1 %", channel(54, 2.0, 100, 0.01), 0.97, 12.0),
        Path::new("54 Mbit/s, 10 %", channel(54, 2.0, 100, 0.1), 0.97, 12.0),
        Path::new("54 Mbit/s, 20 %", channel(54, 2.0, 100, 0.2), 0.97, 12.0),
        Path::new("54 Mbit/s, 40 %", channel(54, 2.0, 100, 0.4), 0.95, 12.0),
        Path::new("54 Mbit/s, 64 %", channel(54, 2.0, 100, 0.64), 0.8, 25.0),
        Path::new("300 Mbit/s", channel(300, 2.0, 100, 0.0), 0.98, 6.0),
        Path::new("300 Mbit/s, 1 %", channel(300, 2.0, 100, 0.01), 0.98, 6.0),
        Path::new("300 Mbit/s, 10 %", channel(300, 2.0, 100, 0.1), 0.98, 6.0),
        Path::new("300 Mbit/s, 20 %", channel(300, 2.0, 100, 0.2), 0.98, 6.0),
        Path::new("300 Mbit/s, 40 %", channel(300, 2.0, 100, 0.4), 0.97, 6.0),
        Path::new("1000 Mbit/s", channel(1000, 2.0, 100, 0.0), 0.97, 6.0),
        Path::new("1000 Mbit/s, 20 %", channel(1000, 2.0, 100, 0.2), 0.97, 6.0),
        Path::new("1000 Mbit/s, 40 %", channel(1000, 2.0, 100, 0.4), 0.97, 6.0),
        Path::new(
            "300 Mbit/s, RTT 0.2 ms",
            channel(300, 0.2, 100, 0.0),
            0.97,
            6.0,
        ),
        Path::new(
            "300 Mbit/s, 20 %, RTT 40 ms",
            channel(300, 40.0, 100, 0.2),
            0.95,
            12.0,
        ),
        Path::new(
            "300 Mbit/s, 20 %, RTT 200 ms",
            channel(300, 200.0, 100, 0.2),
            0.8,
            80.0,
        ),
        Path::new(
            "300 Mbit/s, 20 %, jitter 5 ms",
            jitter(channel(300, 2.0, 100, 0.2)),
            0.92,
            15.0,
        ),
        Path::new(
            "300 Mbit/s, 20 %, 5 % reordered",
            reorder(channel(300, 2.0, 100, 0.2)),
            0.95,
            10.0,
        ),
        Path::new(
            "300 Mbit/s, 20 %, lost before the queue",
            before(channel(300, 2.0, 100, 0.2)),
            0.95,
            6.0,
        ),
        Path::new(
            "300 Mbit/s, 5 %, fades of 30 ms",
            fades(channel(300, 2.0, 100, 0.05)),
            0.8,
            20.0,
        ),
        Path::new(
            "54 Mbit/s, 10 %, queue 5 ms",
            channel(54, 2.0, 5, 0.1),
            0.9,
            6.0,
        ),
        Path::new(
            "300 Mbit/s, 10 %, queue 5 ms",
            channel(300, 2.0, 5, 0.1),
            0.9,
            6.0,
        ),
        Path::new(
            "54 Mbit/s, 10 %, queue 1 s",
            channel(54, 2.0, 1000, 0.1),
            0.97,
            12.0,
        ),
        half("300 Mbit/s, 20 %, half-duplex", channel(300, 2.0, 100, 0.2)),
        half("54 Mbit/s, half-duplex", channel(54, 2.0, 100, 0.0)),
    ]
}

#[test]
fn a_flow_fills_every_path_and_keeps_its_queue_short() {
    let mut failures = Vec::new();
    for (seed, path) in (1..).zip(paths()) {
        let measured = path.measure(seed);
        // The draws of loss differ from their mean by some thousandths; those of a few fades by more.
        let most = if path.settings.bursts.is_some() {
            1.06
        } else {
            1.015
        };
        let holds = (path.utilisation..=most).contains(&measured.utilisation)
            && measured.p99_millis <= path.p99_millis;
        if !holds {
            failures.push(format!("{}, seed {seed}: {measured:?}", path.name));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

/// Rates of a link and a Cubic flow on 300 Mbit/s, from 5 s after the later one began.
fn beside_cubic(seed: u64, link_starts: f64, cubic_starts: f64) -> [f64; 2] {
    let mut simulation = Simulation::new(Duplex::Full, seed, [channel(300, 2.0, 100, 0.0); 2]);
    let link = simulation.link(0, 1, secs(link_starts), Demand::Greedy);
    let cubic = simulation.cubic(0, 1, secs(cubic_starts));
    let from = link_starts.max(cubic_starts) + 5.0;
    let to = from + 20.0;
    simulation.run_until(secs(to));
    [link, cubic].map(|flow| simulation.megabits(flow, from, to))
}

#[test]
fn a_link_beside_cubic_takes_its_share_and_leaves_the_rest() {
    for (link_starts, cubic_starts) in [(0.0, 2.0), (0.0, 0.0), (5.0, 0.0)] {
        let [link, cubic] = beside_cubic(1, link_starts, cubic_starts);
        let shares = format!(
            "from {link_starts} s: {link:.0}, Cubic from {cubic_starts} s: {cubic:.0} Mbit/s"
        );
        assert!(link >= 0.4 * 300.0 && cubic >= 0.3 * 300.0, "{shares}");
    }
}

/// The rate of a link, and its queue delay in milliseconds, ten seconds after a Cubic flow left it.
fn after_cubic(seed: u64) -> [f64; 2] {
    let mut simulation = Simulation::new(Duplex::Full, seed, [channel(300, 2.0, 100, 0.0); 2]);
    let link = simulation.link(0, 1, Duration::ZERO, Demand::Greedy);
    let cubic = simulation.cubic(0, 1, secs(2.0));
    simulation.run_until(secs(12.0));
    simulation.stop(cubic);
    simulation.run_until(secs(25.0));
    [
        simulation.megabits(link, 22.0, 25.0),
        simulation.delay_millis(link, 22.0, 25.0, 99.0) - 1.0,
    ]
}

#[test]
fn the_queue_is_short_again_once_cubic_has_gone() {
    let [megabits, millis] = after_cubic(1);
    assert!(
        megabits > 0.95 * 300.0 && millis < 12.0,
        "{megabits} Mbit/s, {millis} ms"
    );
}

/// Rates of links that share a queue and began one second after the other, from 5 s after the last.
fn links(seed: u64, count: usize, settings: Settings) -> Vec<f64> {
    let mut simulation = Simulation::new(Duplex::Full, seed, [settings; 2]);
    for link in 0..count {
        simulation.link(0, 1, secs(link as f64), Demand::Greedy);
    }
    let from = count as f64 + 4.0;
    simulation.run_until(secs(from + 5.0));
    (0..count)
        .map(|link| simulation.megabits(link, from, from + 5.0))
        .collect()
}

#[test]
fn links_that_share_a_queue_come_to_equal_rates() {
    for (seed, count, loss) in [(1, 2, 0.0), (2, 2, 0.4), (3, 4, 0.2)] {
        let rates = links(seed, count, channel(300, 2.0, 100, loss));
        let (least, most) = rates
            .iter()
            .fold((f64::MAX, 0.0_f64), |(l, m), r| (l.min(*r), m.max(*r)));
        let total = rates.iter().sum::<f64>();
        assert!(
            least > 0.9 * most && total > 0.95 * 300.0 * (1.0 - loss),
            "seed {seed}, {loss}: {rates:?}"
        );
    }
}

/// Rates of 30 robots that send to one station over one half-duplex air, in the second half.
fn robots(seed: u64, megabits: u64, loss: f64, seconds: f64) -> Vec<f64> {
    let mut simulation =
        Simulation::new(Duplex::Half, seed, [channel(megabits, 2.0, 100, loss); 31]);
    for robot in 0..30 {
        simulation.link(robot + 1, 0, secs(robot as f64 * 0.1), Demand::Greedy);
    }
    simulation.run_until(secs(seconds));
    (0..30)
        .map(|robot| simulation.megabits(robot, seconds / 2.0, seconds))
        .collect()
}

#[test]
fn robots_on_one_air_come_to_equal_rates() {
    let rates = robots(1, 300, 0.1, 12.0);
    let total = rates.iter().sum::<f64>();
    assert!(
        jain(&rates) > 0.9 && total > 0.85 * 300.0 * 0.9,
        "{total} Mbit/s, {rates:.1?}"
    );
}

/// Seconds after a change until nine tenths of the limit arrive again.
fn recoveries(seed: u64) -> Vec<(&'static str, f64)> {
    let lossy = channel(300, 2.0, 100, 0.2);
    let rate = |megabits: u64| {
        move |settings: &mut Settings| settings.rate_bits_per_second = Some(megabits * 1_000_000)
    };
    let rtt = |millis: f64| move |settings: &mut Settings| settings.delay = secs(millis * 0.5e-3);
    let full = 0.9 * 0.8 * 300.0;
    let changes = [
        (
            "outage of 0.5 s",
            Schedule::from(lossy).outage(secs(3.0), secs(0.5)),
            3.5,
            full,
        ),
        (
            "outage of 20 s",
            Schedule::from(lossy).outage(secs(3.0), secs(20.0)),
            23.0,
            full,
        ),
        (
            "300 to 30 Mbit/s",
            Schedule::from(lossy).change(secs(3.0), rate(30)),
            3.0,
            full / 10.0,
        ),
        (
            "30 to 300 Mbit/s",
            Schedule::from(lossy).during(Duration::ZERO, secs(3.0), rate(30)),
            3.0,
            full,
        ),
        (
            "RTT 2 to 20 ms",
            Schedule::from(lossy).change(secs(3.0), rtt(20.0)),
            3.2,
            full,
        ),
        (
            "RTT 2 to 60 ms",
            Schedule::from(lossy).change(secs(3.0), rtt(60.0)),
            3.2,
            full,
        ),
        (
            "RTT 60 to 2 ms",
            Schedule::from(lossy).during(Duration::ZERO, secs(3.0), rtt(60.0)),
            3.1,
            full,
        ),
        ("start", Schedule::from(lossy), 0.0, full),
        (
            "start, RTT 200 ms",
            Schedule::from(channel(300, 200.0, 100, 0.2)),
            0.0,
            full,
        ),
    ];
    let measure = |(name, schedule, from, megabits): (_, Schedule, f64, f64)| {
        let mut simulation = Simulation::new(Duplex::Full, seed, [schedule.clone(), schedule]);
        let flow = simulation.link(0, 1, Duration::ZERO, Demand::Greedy);
        simulation.run_until(secs(from + 8.0));
        (name, simulation.time_to_reach(flow, megabits, from))
    };
    changes.into_iter().map(measure).collect()
}

#[test]
fn the_rate_recovers_from_every_change() {
    for (name, seconds) in recoveries(1) {
        let limit = match name {
            "RTT 2 to 60 ms" | "start, RTT 200 ms" => 4.0,
            "RTT 2 to 20 ms" => 2.5,
            _ => 0.4,
        };
        assert!(seconds <= limit, "{name}: {seconds} s");
    }
}

/// A first stretch without losses, by chance, is not taken for the channel.
#[test]
fn a_long_path_that_loses_packets_is_filled_after_a_few_round_trips() {
    for (rtt_millis, least_seconds) in [(40.0, 0.5), (200.0, 1.6)] {
        for seed in 1..=10 {
            let path = channel(300, rtt_millis, 100, 0.2);
            let mut simulation = Simulation::new(Duplex::Full, seed, [path; 2]);
            let flow = simulation.link(0, 1, Duration::ZERO, Demand::Greedy);
            simulation.run_until(secs(2.0));
            let seconds = simulation.time_to_reach(flow, 0.8 * 0.8 * 300.0, 0.0);
            assert!(
                seconds < least_seconds,
                "{seconds} s, RTT {rtt_millis} ms, seed {seed}"
            );
        }
    }
}

/// A host that is stopped for 80 ms adds a delay that looks like a queue.
#[test]
fn a_start_that_a_stop_ended_goes_on() {
    let path = channel(300, 200.0, 100, 0.2);
    let stopped = |settings: &mut Settings| settings.delay += secs(0.08);
    for tenths in 1..=9 {
        let stop = f64::from(tenths) * 0.1;
        let schedule = Schedule::from(path).during(secs(stop), secs(stop + 0.08), stopped);
        let mut simulation = Simulation::new(Duplex::Full, 1, [schedule, path.into()]);
        let flow = simulation.link(0, 1, Duration::ZERO, Demand::Greedy);
        simulation.run_until(secs(3.0));
        let seconds = simulation.time_to_reach(flow, 0.8 * 0.8 * 300.0, 0.0);
        assert!(seconds < 2.6, "{seconds} s, stopped at {stop} s");
    }
}

#[test]
fn traffic_in_the_other_direction_slows_nothing_down() {
    let mut simulation = Simulation::new(Duplex::Full, 1, [channel(300, 2.0, 100, 0.1); 2]);
    let there = simulation.link(0, 1, Duration::ZERO, Demand::Greedy);
    let back = simulation.link(1, 0, secs(1.0), Demand::Greedy);
    simulation.cubic(1, 0, secs(2.0));
    simulation.run_until(secs(8.0));
    assert!(
        simulation.megabits(there, 4.0, 8.0) > 0.93 * 270.0,
        "{}",
        simulation.megabits(there, 4.0, 8.0)
    );
    assert!(simulation.megabits(back, 4.0, 8.0) > 0.0);
}

#[test]
fn samples_go_at_the_rate_of_the_path_from_the_first_on() {
    let mut simulation = Simulation::new(Duplex::Full, 1, [channel(300, 2.0, 100, 0.1); 2]);
    let demand = Demand::Samples {
        packets: 440,
        period: secs(1.0 / 30.0),
    };
    let flow = simulation.link(0, 1, Duration::ZERO, demand);
    simulation.run_until(secs(4.0));
    // 440 packets of 1500 bytes, 30 times a second, a tenth of them lost.
    let megabits = simulation.megabits(flow, 1.0, 4.0);
    assert!((megabits - 142.6).abs() < 3.0, "{megabits}");
    assert!(simulation.delay_millis(flow, 1.0, 4.0, 99.0) < 6.0);
    assert!(simulation.rate(flow).status().bytes_per_second * 8e-6 > 270.0);
}

fn channel(megabits: u64, rtt_millis: f64, queue_millis: u64, loss: f64) -> Settings {
    Settings {
        rate_bits_per_second: Some(megabits * 1_000_000),
        queue: Queue::Time(Duration::from_millis(queue_millis)),
        delay: secs(rtt_millis * 0.5e-3),
        loss,
        ..Settings::default()
    }
}

fn secs(value: f64) -> Duration {
    Duration::from_secs_f64(value)
}
