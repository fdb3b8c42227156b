//! The whole link on a simulated network: endpoints with their QUIC carrier, on a virtual clock. A
//! failure names its seed, and `NERVURE_SEED=<seed>` runs that one alone. `grid.rs` and
//! `population.rs` beside this file measure with the same machines.

mod cells;
mod ideal;
mod machine;
mod peer;
mod rfc;
mod runs;
#[expect(dead_code, reason = "the population prints more")]
mod score;
mod table;
#[expect(dead_code, reason = "the population prints more")]
mod trial;

use std::{collections::BTreeSet, time::Duration};

use nervure_link::qos::{Delivery, Qos, TrafficClass};
use nervure_link::session::SessionConfig;
use nervure_linkemu::network::{Draw, Network, for_each_seed};
use nervure_linkemu::population::{self, Channel};
use nervure_linkemu::{Air, Aqm, Bursts, Duplex, Outage, Queue, Schedule, Settings};

use cells::{Metric, cells};
use machine::{HEADER_BYTES, Machine, Stalls, key, link};
use peer::Load;
use runs::Run;

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A bad direction of a network.
fn settings(draw: &mut Draw) -> Settings {
    let mut settings = Settings {
        rate_bits_per_second: Some([3_000_000, 54_000_000, 300_000_000][draw.below(3) as usize]),
        queue: Queue::Time(millis([5, 100, 1000][draw.below(3) as usize])),
        loss: draw.share() * 0.5,
        delay: Duration::from_micros([100, 1000, 20_000, 100_000][draw.below(4) as usize]),
        mtu_bytes: Some([1280, 1420, 1500][draw.below(3) as usize]),
        ..Settings::default()
    };
    if draw.below(3) == 0 {
        settings.jitter = millis(draw.below(10));
    }
    if draw.below(3) == 0 {
        (settings.reorder, settings.reorder_delay) = (draw.share() * 0.2, millis(draw.below(10)));
    }
    if draw.below(4) == 0 {
        settings.bursts = Some(Bursts {
            good_mean: millis(200),
            bad_mean: millis(30),
            loss: 1.0,
        });
    }
    settings
}

fn loads(draw: &mut Draw) -> Vec<Load> {
    let load = |draw: &mut Draw| {
        let depth = 1 + draw.below(12) as u32;
        let delivery = match draw.below(4) {
            0 => Delivery::keep_last(depth),
            1 => Delivery::best_effort(depth),
            2 => Delivery::Latest,
            _ => Delivery::keep_all(depth),
        };
        let lifespan = (draw.below(4) == 0).then(|| millis(20 + draw.below(300)));
        let traffic_class = TrafficClass::ALL[draw.below(3) as usize];
        let sample_bytes = [0, 9, 1024, 30_000, 150_000][draw.below(5) as usize];
        Load {
            qos: Qos {
                delivery,
                traffic_class,
                deadline: None,
                lifespan,
            },
            sample_bytes,
            period: millis(1 + draw.below(40)),
            count: (300_000 / (sample_bytes as u64 + 1000)).clamp(3, 40),
            start: (draw.below(2) == 0).then(|| millis(draw.below(500))),
            pause: None,
        }
    };
    (0..1 + draw.below(3)).map(|_| load(draw)).collect()
}

/// Two hosts that send to each other over a network drawn from the seed.
fn drawn(seed: u64) -> Network<Machine> {
    let mut draw = Draw::new(seed);
    let mut directions = [settings(&mut draw), settings(&mut draw)].map(Schedule::from);
    let duplex = if draw.below(4) == 0 {
        Duplex::Half
    } else {
        Duplex::Full
    };
    if draw.below(4) == 0 {
        let (from, lasting) = (millis(draw.below(1000)), millis(draw.below(3000)));
        let kind = if draw.below(2) == 0 {
            Outage::Lose
        } else {
            Outage::Hold
        };
        directions = directions
            .map(|one| one.during(from, lasting, |settings| settings.outage = Some(kind)));
    }
    let stalls = draw.below(3) == 0;
    let machines = [0, 1].map(|host| {
        let stalls = stalls.then(|| Stalls::new(seed * 2 + host as u64, millis(100), millis(20)));
        Machine::new(host, vec![link(seed, host, 0, 1)]).with_stalls(stalls)
    });
    let mut network =
        Network::new(Air::new(duplex, seed, directions), machines).with_header_bytes(HEADER_BYTES);
    network
        .endpoint_mut(0)
        .peer_mut(0)
        .connect(Duration::ZERO, 1, 0, &loads(&mut draw));
    let connected = |network: &Network<Machine>| !network.endpoint(1).peer(0).connected.is_empty();
    assert!(
        network.run_until(Duration::from_secs(60), connected),
        "no peer is connected after a minute"
    );
    if draw.below(2) == 0 {
        let now = network.now();
        network
            .endpoint_mut(1)
            .peer_mut(0)
            .feed(now, key(0, 0).public(), &loads(&mut draw));
    }
    network
}

#[test]
fn every_sample_is_accounted_for_at_both_ends() {
    for_each_seed(0..80, |seed| {
        let mut network = drawn(seed);
        let idle = |network: &Network<Machine>| {
            (0..2).all(|host| {
                network
                    .endpoint(host)
                    .peer(0)
                    .session(1 - host, 0)
                    .sender()
                    .streams()
                    .is_idle()
            })
        };
        let sent_all = |network: &Network<Machine>| {
            (0..2).all(|host| network.endpoint(host).peer(0).has_offered_all())
        };
        let mut done = network.run_until(Duration::from_secs(300), sent_all);
        let now = network.now();
        (0..2).for_each(|host| network.endpoint_mut(host).peer_mut(0).close_streams(now));
        done &= network.run_until(now + Duration::from_secs(300), idle);
        let states = [0, 1].map(|host| {
            let peer = network.endpoint(host).peer(0);
            (peer.has_offered_all(), peer.session(1 - host, 0).status())
        });
        assert!(done, "stuck: {states:#?}");
        for (from, to) in [(0, 1), (1, 0)] {
            let (sender, receiver) = (network.endpoint(from).peer(0), network.endpoint(to).peer(0));
            let sent = sender.session(to, 0).status();
            let received = receiver.session(from, 0).status();
            assert!(
                sent.sent.is_balanced() && received.received.is_balanced(),
                "{sent:?} {received:?}"
            );
            assert_eq!(sent.sent.delivered, received.received.delivered);
            assert_eq!(
                sent.sent.refused + sent.sent.unconfirmed + sent.invalid_feedback,
                0,
                "{sent:?}"
            );
            let taken: usize = receiver
                .arrived
                .values()
                .map(|arrived| arrived.samples.len())
                .sum();
            assert_eq!(taken as u64, received.received.taken);
            assert_eq!(
                receiver.session(from, 0).receiver().sample_bytes(),
                0,
                "all memory is given back"
            );
            assert_eq!((sender.disconnected, sender.lost_with_state), (0, 0));
        }
    });
}

/// Processes are killed and replaced by others with the same keys. Samples that were not in flight
/// then are delivered, those in flight are counted.
#[test]
fn restarted_processes_are_found_and_get_the_rest() {
    for_each_seed(0..80, |seed| {
        let mut draw = Draw::new(seed);
        let settings = Settings {
            rate_bits_per_second: Some(
                [20_000_000, 300_000_000, 1_000_000_000][draw.below(3) as usize],
            ),
            queue: Queue::Time(millis(100)),
            loss: if draw.below(2) == 0 {
                0.0
            } else {
                draw.share() * 0.3
            },
            delay: Duration::from_micros([30, 1000, 20_000][draw.below(3) as usize]),
            ..Settings::default()
        };
        let load = Load {
            qos: Qos::new(Delivery::keep_all(1 + draw.below(16) as u32)),
            sample_bytes: [9, 1024, 20_000, 150_000][draw.below(4) as usize],
            period: millis(1 + draw.below(10)),
            count: 60,
            start: (draw.below(2) == 0).then_some(Duration::ZERO),
            pause: None,
        };
        let machine = |seed: u64, host: usize| Machine::new(host, vec![link(seed, host, 0, 1)]);
        let mut network = Network::new(
            Air::new(Duplex::Full, seed, [settings, settings]),
            [0, 1].map(|host| machine(seed, host)),
        )
        .with_header_bytes(HEADER_BYTES);
        let both_send = draw.below(2) == 0;
        let begin = |network: &mut Network<Machine>, host: usize| {
            let now = network.now();
            if host == 0 {
                network
                    .endpoint_mut(0)
                    .peer_mut(0)
                    .connect(now, 1, 0, &[load]);
            }
            let connected =
                |network: &Network<Machine>| !network.endpoint(1).peer(0).connected.is_empty();
            assert!(
                network.run_until(now + Duration::from_secs(60), connected),
                "no peer is connected"
            );
            if host == 1 && both_send {
                let now = network.now();
                network
                    .endpoint_mut(1)
                    .peer_mut(0)
                    .feed(now, key(0, 0).public(), &[load]);
            }
        };
        (0..2).for_each(|host| begin(&mut network, host));
        let (mut killed, mut arrived) = ([false; 2], [const { BTreeSet::new() }; 2]);
        for life in 1..2 + draw.below(3) {
            network.run_to(network.now() + draw_life(&mut draw));
            let host = draw.below(2) as usize;
            let old = std::mem::replace(network.endpoint_mut(host), Machine::new(host, Vec::new()));
            arrived[host].append(&mut taken(&old));
            killed[host] = true;
            network.run_to(network.now() + millis([0, 1, 20, 300, 5000][draw.below(5) as usize]));
            *network.endpoint_mut(host) = machine(seed + life * 1_000_000, host);
            network.endpoint_mut(host).peer_mut(0).is_restarted = true;
            begin(&mut network, host);
        }

        let done = |network: &Network<Machine>| {
            (0..2)
                .map(|host| (network.endpoint(host).peer(0), 1 - host))
                .all(|(peer, other)| {
                    peer.has_offered_all() && peer.session(other, 0).sender().streams().is_idle()
                })
        };
        let done = network.run_until(network.now() + Duration::from_secs(60), done);
        for (host, other) in [(0, 1), (1, 0)]
            .into_iter()
            .filter(|(host, _)| *host == 0 || both_send)
        {
            let sender = network.endpoint(host).peer(0);
            let sent = sender.session(other, 0).status().sent;
            assert!(done, "host {host} is stuck: {sent:?}");
            assert!(
                sent.is_balanced() && sent.delivered + sent.unconfirmed == load.count,
                "{sent:?}"
            );
            assert_eq!(sender.unconfirmed.iter().sum::<u64>(), sent.unconfirmed);
            arrived[other].append(&mut taken(network.endpoint(other)));
            let all = killed[host] || arrived[other].len() as u64 >= sent.delivered;
            assert!(all, "{} of {sent:?} arrived", arrived[other].len());
        }
    });
}

/// The numbers of the samples that arrived at a machine.
fn taken(machine: &Machine) -> BTreeSet<u64> {
    let arrived = machine
        .peer(0)
        .arrived
        .values()
        .flat_map(|arrived| &arrived.samples);
    arrived.map(|(number, _)| *number).collect()
}

/// The life time of a process after it was connected: often hardly any.
fn draw_life(draw: &mut Draw) -> Duration {
    Duration::from_micros(match draw.below(3) {
        0 => draw.below(1000),
        1 => draw.below(20_000),
        _ => draw.below(600_000),
    })
}

#[test]
fn a_seed_gives_the_same_run_again() {
    for_each_seed(0..4, |seed| {
        let run = || {
            let mut network = drawn(seed);
            network.run_to(network.now() + Duration::from_secs(3));
            let arrived = network.endpoint(1).peer(0).arrived.clone();
            (
                arrived,
                *network.air().counters(0),
                *network.air().counters(1),
            )
        };
        assert_eq!(run(), run());
    });
}

/// The grid takes long; a regression of these cells must not go unnoticed.
#[test]
fn cells_of_the_grid_meet_their_targets() {
    for name in [
        "1000 Mbit/s, 1 %",
        "32 KB, 20 %",
        "32 KB, 1000 Mbit/s, RTT 0.2 ms",
        "128 KB, 100 Mbit/s, 20 s outage, keep all",
    ] {
        let cells = cells();
        let cell = cells
            .iter()
            .find(|cell| cell.name == name)
            .expect("the cell is in the grid");
        for_each_seed(1..3, |seed| {
            let figures = cell.measure(seed, 150);
            assert!(
                table::missed(cell, &figures).is_empty(),
                "{}",
                table::row(cell, &figures)
            );
        });
    }
}

/// The quality of service decides how many samples survive an outage: the depth of the history.
#[test]
fn an_outage_leaves_as_many_samples_as_the_history_has() {
    for (depth, seed) in [(1, 0), (1, 1), (4, 2), (10, 3)] {
        let settings = Settings {
            rate_bits_per_second: Some(100_000_000),
            queue: Queue::Time(millis(100)),
            loss: 0.01,
            delay: millis(1),
            ..Settings::default()
        };
        let run = Run {
            duplex: Duplex::Full,
            schedule: settings.into(),
            qos: Qos::new(Delivery::keep_last(depth)),
            sample_bytes: 128 << 10,
            rate_hz: 30.0,
            samples: 30 * 10,
            stalls: false,
        };
        let figures = run.measure_outage(seed, millis(3000), millis(4000));
        let of = |metric| {
            let found = figures.iter().find(|(of, _)| *of == metric);
            found.expect("it is measured").1
        };
        let (oldest, history) = (of(Metric::OldestAfterOutage), 1e3 / 30.0 * f64::from(depth));
        assert!(of(Metric::FirstAfterOutage) < 100.0, "{figures:?}");
        assert!(
            (history - 50.0..history + 70.0).contains(&oldest),
            "history {depth}: {figures:?}"
        );
    }
}

/// Large samples do not wait for credit, and the rate is found in a few round trips: otherwise most
/// of these would be overwritten before they are sent. Pauses of a host are not mistaken for a lack
/// of samples.
#[test]
fn a_long_path_carries_large_samples_from_the_first_on() {
    for (stalls, least) in [(false, 65.0), (true, 50.0)] {
        for_each_seed(1..7, |seed| {
            let path = Settings {
                delay: millis(100),
                ..cells::channel(300, 0.2)
            };
            let figures = Run {
                samples: 60,
                stalls,
                ..cells::run(path, 512 << 10)
            }
            .measure(seed);
            let (_, delivered) = figures[0];
            assert!(
                delivered > least,
                "stalls: {stalls}, {delivered} % delivered"
            );
        });
    }
}

/// A queue that marks packets instead of dropping them: the sender learns the number of marks, from
/// packets beside QUIC and from those of QUIC.
#[test]
fn marks_for_congestion_are_reported_to_the_sender() {
    for_each_seed(0..4, |seed| {
        let aqm = Aqm {
            target: millis(1),
            interval: millis(20),
            fair: false,
            ecn: true,
        };
        let settings = Settings {
            rate_bits_per_second: Some(10_000_000),
            delay: millis(5),
            aqm: Some(aqm),
            ..Settings::default()
        };
        let run = Run {
            qos: Qos::new(Delivery::keep_last(1)),
            samples: 90,
            ..cells::run(settings, 100_000)
        };
        let mut network = run.pair(seed);
        network.run_to(Duration::from_secs(8));
        let marked = network.air().counters(0).marked.packets;
        let reported = network.endpoint(0).peer(0).session(1, 0).status();
        // Packets without data can be marked, too.
        let expected = marked - marked / 10..=marked;
        assert!(
            marked > 0 && expected.contains(&reported.congestion_marks),
            "{marked} packets marked, {} reported",
            reported.congestion_marks
        );
        assert_eq!(reported.invalid_feedback, 0);
    });
}

/// A limit holds from when it is set, across a restart of the rate, and ends when it is lifted.
#[test]
fn a_limit_on_the_rate_holds_while_it_is_set() {
    for_each_seed(0..4, |seed| {
        let settings = Settings {
            rate_bits_per_second: Some(50_000_000),
            delay: millis(5),
            ..Settings::default()
        };
        let run = Run {
            qos: Qos::new(Delivery::keep_last(1)),
            rate_hz: 100.0,
            samples: 800,
            ..cells::run(settings, 100_000)
        };
        let mut network = run.pair(seed);
        network.run_to(Duration::from_secs(3));
        let mut carried = |most: u64| {
            let now = network.now();
            let endpoint = &mut network.endpoint_mut(0).peer_mut(0).endpoint;
            assert!(endpoint.set_max_rate(&key(1, 0).public(), most));
            // Let the packets in flight arrive.
            network.run_to(now + millis(200));
            let before = network.air().counters(0).delivered.bytes;
            network.run_to(now + millis(1200));
            network.air().counters(0).delivered.bytes - before
        };
        let (limited, free) = (carried(500_000), carried(u64::MAX));
        // Headers and packets of QUIC come on top.
        assert!(
            (350_000..600_000).contains(&limited),
            "{limited} bytes in a second"
        );
        assert!(free > 3_000_000, "{free} bytes in a second");
    });
}

#[test]
fn robots_that_join_while_others_send_share_the_air() {
    let run = Run {
        duplex: Duplex::Half,
        qos: Qos::new(Delivery::keep_last(10)),
        samples: 30 * 12,
        ..cells::run(cells::channel(54, 0.0), 22_500)
    };
    for_each_seed(1..2, |seed| {
        let figures = run.measure_robots(seed, 30, None);
        let of = |wanted| {
            figures
                .iter()
                .find(|(metric, _)| *metric == wanted)
                .expect("it is measured")
                .1
        };
        assert!(
            of(Metric::OfLimit) > 85.0 && of(Metric::Jain) > 0.85,
            "{figures:?}"
        );
    });
}

#[test]
fn the_table_shows_the_worst_seed_and_what_was_missed() {
    let cells = cells();
    let cell = cells
        .iter()
        .find(|cell| cell.targets == [(Metric::Delivered, 99.5)])
        .expect("there are such");
    let seeds = [
        vec![(Metric::Delivered, 99.9)],
        vec![(Metric::Delivered, 99.123)],
    ];
    let text = table::render(&[(cell, table::worst(&seeds))]);
    assert!(
        text.contains("| **99.12** (≥ 99.50) |") && text.ends_with("| **missed** |\n"),
        "{text}"
    );
}

#[test]
fn every_cell_of_the_grid_has_a_name_and_a_target() {
    let cells = cells();
    for (number, cell) in cells.iter().enumerate() {
        let same = |other: &cells::Cell| (other.group, &other.name) == (cell.group, &cell.name);
        assert!(
            !cell.targets.is_empty() && !cells[..number].iter().any(same),
            "{}: {}",
            cell.group,
            cell.name
        );
    }
}

/// A few channels of the population, for a short time. The runs check that accounts balance.
#[test]
fn no_channel_delivers_more_than_is_possible() {
    for seed in population::development(12) {
        let mut channel = Channel::draw(seed);
        channel.length = Duration::from_secs(3);
        let score = score::score(&channel, channel.length, SessionConfig::default());
        assert!(
            score.trial.begin.is_some(),
            "not connected: seed {seed}, {channel}"
        );
        assert!(
            score.of_capacity > 0.0 && score.of_capacity <= 1.02,
            "{} of the possible, seed {seed}, {channel}",
            score.of_capacity
        );
        let value = score.value();
        assert!(value > 0.0 && value <= 1.0, "score {value}, seed {seed}");
    }
}

/// Channels whose score the rate law has to keep, with room for changes: a score far below the one of the reference page says
/// that the law broke, not that it became a little worse.
#[test]
fn slow_channels_and_cases_of_rfc_8867_keep_their_scores() {
    let drawn = [(18, 0.3), (46, 0.6), (128, 0.5), (144, 0.6), (228, 0.7)]
        .map(|(seed, least)| (Channel::draw(seed), least));
    let cases = rfc::cases().into_iter().filter_map(|case| {
        let least = match case.description.split([' ', ',']).nth(1) {
            Some("5.1") => 0.55,
            Some("5.4") => 0.5,
            Some("5.6") if case.description.ends_with("1000 ms") => 0.55,
            Some("5.8") => 0.5,
            _ => return None,
        };
        Some((case, least))
    });
    for (channel, least) in drawn.into_iter().chain(cases) {
        let score = score::score(&channel, channel.length, SessionConfig::default());
        let value = score.value();
        assert!(value > least, "{value} of at least {least}: {channel}");
    }
}
