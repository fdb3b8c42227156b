//! The guarantees of the model, over random links and random traffic.

use std::collections::VecDeque;
use std::time::Duration;

use nervure_linkemu::cubic::CubicSender;
use nervure_linkemu::{
    Aggregation, Air, Aqm, Bursts, Counters, Duplex, Ecn, Header, LossPlace, Outage, Policer,
    Queue, Schedule, Settings, Verdict,
};
use proptest::prelude::*;

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);

/// A packet of the tests: the place in the order of its sender.
type Air64 = Air<u64>;

fn settings() -> impl Strategy<Value = Settings> {
    let millis = |range| prop::num::u64::ANY.prop_map(move |value| MILLI * (value % range) as u32);
    let queue = prop_oneof![
        (0_u64..200).prop_map(|millis| Queue::Time(MILLI * millis as u32)),
        (0_u64..200_000).prop_map(Queue::Bytes)
    ];
    let bursts = prop::option::of((0_u64..50, 0_u64..50, 0.0..1.0).prop_map(
        |(good, bad, loss)| Bursts {
            good_mean: MILLI * good as u32,
            bad_mean: MILLI * bad as u32,
            loss,
        },
    ));
    let rate = prop_oneof![
        Just(None),
        Just(Some(0)),
        (1_000_u64..1_000_000_000).prop_map(Some)
    ];
    let outage =
        prop_oneof![4 => Just(None), 1 => Just(Some(Outage::Lose)), 1 => Just(Some(Outage::Hold))];
    let place = prop_oneof![
        Just(LossPlace::AfterSerialiser),
        Just(LossPlace::BeforeSerialiser)
    ];
    (
        (rate, queue, 0.0..1.0, place),
        (millis(50), millis(5), 0.0..0.5, millis(20)),
        (bursts, outage, prop::option::of(200_u32..2000), 0_u32..100),
        (
            prop::option::of(aqm()),
            prop::option::of(policer()),
            prop::option::of(aggregation()),
        ),
    )
        .prop_map(
            |(
                (rate, queue, loss, place),
                (delay, jitter, reorder, held),
                (bursts, outage, mtu, overhead),
                (aqm, policer, aggregation),
            )| {
                Settings {
                    rate_bits_per_second: rate,
                    queue,
                    loss,
                    loss_place: place,
                    delay,
                    jitter,
                    reorder,
                    reorder_delay: held,
                    bursts,
                    outage,
                    mtu_bytes: mtu,
                    overhead_bytes: overhead,
                    aqm,
                    policer,
                    aggregation,
                }
            },
        )
}

fn aqm() -> impl Strategy<Value = Aqm> {
    (0_u32..20, 1_u32..200, any::<bool>(), any::<bool>()).prop_map(
        |(target, interval, fair, ecn)| Aqm {
            target: MILLI * target,
            interval: MILLI * interval,
            fair,
            ecn,
        },
    )
}

fn policer() -> impl Strategy<Value = Policer> {
    (1_u64..100_000_000, 0_u64..100_000).prop_map(|(rate, burst)| Policer {
        rate_bits_per_second: rate,
        burst_bytes: burst,
    })
}

fn aggregation() -> impl Strategy<Value = Aggregation> {
    (0_u64..1000, 0_u32..10, 0_u32..64).prop_map(|(access, longest, packets)| Aggregation {
        access: Duration::from_micros(access),
        longest: MILLI * longest,
        packets,
    })
}

/// Settings that change up to four times, perhaps for a while, perhaps over and over.
fn schedule() -> impl Strategy<Value = Schedule> {
    let change = (0_u64..1000, prop::option::of(0_u64..500), settings());
    (
        settings(),
        prop::collection::vec(change, 0..4),
        prop::option::of(1_u64..1500),
    )
        .prop_map(|(first, changes, period)| {
            let mut schedule = Schedule::from(first);
            for (at, lasting, settings) in changes {
                let at = MILLI * at as u32;
                schedule = match lasting {
                    Some(lasting) => schedule.during(at, MILLI * lasting as u32, move |current| {
                        *current = settings
                    }),
                    None => schedule.change(at, move |current| *current = settings),
                };
            }
            period.map_or(schedule.clone(), |millis| {
                schedule.repeat_every(MILLI * millis as u32)
            })
        })
}

/// Packets: microseconds since the one before, sender (of three), bytes.
fn traffic() -> impl Strategy<Value = Vec<(u64, usize, u32)>> {
    prop::collection::vec((0_u64..5000, 0_usize..3, 20_u32..2000), 0..400)
}

fn duplex() -> impl Strategy<Value = Duplex> {
    prop_oneof![Just(Duplex::Full), Just(Duplex::Half)]
}

/// All arrivals: sender, place in its order, time.
type Arrivals = Vec<(usize, u64, Duration)>;

fn run(air: &mut Air64, traffic: &[(u64, usize, u32)]) -> Arrivals {
    let mut arrivals = Vec::new();
    let mut now = Duration::ZERO;
    let mut numbers = [0_u64; 3];
    for &(gap_micros, host, bytes) in traffic {
        now += Duration::from_micros(gap_micros);
        drain(air, now, &mut arrivals);
        let header = Header {
            bytes,
            flow: numbers[host] % 3,
            ecn: Ecn::from_bits(numbers[host] as u8),
        };
        air.offer(now, host, header, numbers[host]);
        numbers[host] += 1;
    }
    while let Some(next) = air.next_event().filter(|&next| next < 1000 * SECOND) {
        drain(air, next, &mut arrivals);
    }
    arrivals
}

/// Steps from event to event, so that every arrival is taken at its time.
fn drain(air: &mut Air64, now: Duration, arrivals: &mut Arrivals) {
    while let Some(next) = air.next_event().filter(|&next| next <= now) {
        while let Some(arrived) = air.deliver(next) {
            assert_eq!(arrived.at, next, "an arrival is announced by next_event");
            arrivals.push((arrived.from, arrived.packet, arrived.at));
        }
    }
}

fn packets(counters: &Counters) -> [u64; 9] {
    [
        counters.offered.packets,
        counters.delivered.packets,
        counters.lost_random.packets,
        counters.lost_burst.packets,
        counters.lost_outage.packets,
        counters.dropped_queue.packets,
        counters.dropped_too_big.packets,
        counters.dropped_aqm.packets,
        counters.dropped_policer.packets,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_packet_is_accounted_for(
        duplex in duplex(), seed: u64, hosts in prop::collection::vec(schedule(), 3), traffic in traffic()
    ) {
        let mut air = Air64::new(duplex, seed, hosts);
        let arrivals = run(&mut air, &traffic);
        let mut in_flight = 0;
        for host in 0..3 {
            let [offered, delivered, lost @ ..] = packets(air.counters(host));
            prop_assert_eq!(offered, traffic.iter().filter(|packet| packet.1 == host).count() as u64);
            prop_assert_eq!(delivered, arrivals.iter().filter(|packet| packet.0 == host).count() as u64);
            let waiting = offered - delivered - lost.iter().sum::<u64>();
            prop_assert_eq!(waiting, air.counters(host).in_flight().packets);
            in_flight += waiting;
        }
        prop_assert_eq!(in_flight, ((0..3).map(|host| air.queued(host)).sum::<usize>() + air.travelling()) as u64);
    }

    #[test]
    fn the_same_seed_gives_the_same_run(
        duplex in duplex(), seed: u64, hosts in prop::collection::vec(schedule(), 3), traffic in traffic()
    ) {
        let mut first = Air64::new(duplex, seed, hosts.clone());
        let mut second = Air64::new(duplex, seed, hosts);
        prop_assert_eq!(run(&mut first, &traffic), run(&mut second, &traffic));
    }

    #[test]
    fn order_is_kept_unless_reordering_is_asked_for(
        duplex in duplex(), seed: u64, hosts in prop::collection::vec(schedule(), 3), traffic in traffic()
    ) {
        let never = |schedule: Schedule| schedule.change(Duration::ZERO, |settings| {
            settings.reorder = 0.0;
            // Flows overtake each other.
            settings.aqm = settings.aqm.map(|aqm| Aqm { fair: false, ..aqm });
        });
        let mut air = Air64::new(duplex, seed, hosts.into_iter().map(never));
        let arrivals = run(&mut air, &traffic);
        prop_assert!(arrivals.windows(2).all(|pair| pair[0].2 <= pair[1].2));
        for host in 0..3 {
            let numbers: Vec<_> = arrivals.iter().filter(|arrival| arrival.0 == host).map(|arrival| arrival.1).collect();
            prop_assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]));
        }
    }

    #[test]
    fn a_saturated_link_carries_its_rate(
        seed: u64, rate in 1_000_000_u64..2_000_000_000, bytes in 20_u32..9000, before: bool, loss in 0.0..0.9
    ) {
        let settings = Settings {
            rate_bits_per_second: Some(rate),
            queue: Queue::Bytes(u64::MAX),
            loss,
            loss_place: if before { LossPlace::BeforeSerialiser } else { LossPlace::AfterSerialiser },
            ..Settings::default()
        };
        let mut air = Air64::new(Duplex::Full, seed, [settings]);
        for number in 0..2000 {
            air.offer(Duration::ZERO, 0, bytes, number);
        }
        air.deliver(1000 * SECOND);
        let counters = air.counters(0);
        let sent = counters.offered.bytes - if before { counters.lost_random.bytes } else { 0 };
        // To the nanosecond: the transmissions together take as long as one of all the bytes.
        prop_assert_eq!(counters.airtime.as_nanos(), (u128::from(sent) * 8_000_000_000).div_ceil(u128::from(rate)));
    }

    #[test]
    fn a_lone_packet_takes_its_transmission_and_the_delay(
        rate in 1_u64..2_000_000_000, bytes in 1_u32..65_536, delay_nanos in 0_u64..1_000_000_000, overhead in 0_u32..100
    ) {
        let delay = Duration::from_nanos(delay_nanos);
        let settings =
            Settings { rate_bits_per_second: Some(rate), delay, overhead_bytes: overhead, ..Settings::default() };
        let mut air = Air64::new(Duplex::Full, 1, [settings]);
        air.offer(SECOND, 0, bytes, 0);
        let nanos = (u64::from(bytes + overhead) * 8_000_000_000).div_ceil(rate);
        let at = SECOND + Duration::from_nanos(nanos) + delay;
        prop_assert_eq!(air.deliver(1_000_000 * SECOND).map(|arrived| arrived.at), Some(at));
    }

    #[test]
    fn losses_are_binomial(seed: u64, loss in 0.01..0.99) {
        let mut air = Air64::new(Duplex::Full, seed, [Settings { loss, ..Settings::default() }]);
        let count = 20_000;
        for number in 0..count {
            air.offer(MILLI * number as u32, 0, 1500, number);
        }
        let lost = air.counters(0).lost_random.packets as f64;
        let deviation = (count as f64 * loss * (1.0 - loss)).sqrt();
        // Six deviations: one run in 5e8 would fail by chance.
        prop_assert!((lost - count as f64 * loss).abs() < 6.0 * deviation, "{} of {}", lost, count);
    }

    #[test]
    fn the_same_packets_are_lost_whatever_the_timing(seed: u64, gaps in prop::collection::vec(0_u64..10_000, 200)) {
        let settings = Settings { rate_bits_per_second: Some(20_000_000), loss: 0.3, ..Settings::default() };
        let arrived = |gaps: &[u64]| {
            let mut air = Air64::new(Duplex::Full, seed, [Schedule::from(settings)]);
            let traffic: Vec<_> = gaps.iter().map(|&gap| (gap, 0, 100)).collect();
            run(&mut air, &traffic).iter().map(|arrival| arrival.1).collect::<Vec<_>>()
        };
        prop_assert_eq!(arrived(&gaps), arrived(&vec![1000; gaps.len()]));
    }
}

#[test]
fn a_change_of_rate_takes_effect_within_a_packet() {
    // 1500 bytes: half of them at 12 Mbit/s, half at 1.2 Mbit/s.
    let schedule = Schedule::from(Settings {
        rate_bits_per_second: Some(12_000_000),
        ..Settings::default()
    })
    .change(MILLI / 2, |settings| {
        settings.rate_bits_per_second = Some(1_200_000)
    });
    let mut air = Air64::new(Duplex::Full, 1, [schedule]);
    air.offer(Duration::ZERO, 0, 1500, 0);
    assert_eq!(
        air.deliver(SECOND).map(|arrived| arrived.at),
        Some(MILLI / 2 + 5 * MILLI)
    );
}

#[test]
fn a_queue_holds_its_time_and_no_more() {
    // A packet a millisecond; one is sent, ten wait, the last of them for 10 ms.
    let settings = Settings {
        rate_bits_per_second: Some(12_000_000),
        queue: Queue::Time(10 * MILLI),
        ..Settings::default()
    };
    let mut air = Air64::new(Duplex::Full, 1, [settings]);
    for number in 0..20 {
        air.offer(Duration::ZERO, 0, 1500, number);
    }
    air.deliver(SECOND);
    assert_eq!(air.counters(0).dropped_queue.packets, 9);
    assert_eq!(air.counters(0).longest_wait, 10 * MILLI);
}

#[test]
fn a_queue_in_bytes_holds_them_beside_the_packet_on_the_air() {
    let settings = Settings {
        rate_bits_per_second: Some(12_000_000),
        queue: Queue::Bytes(4500),
        ..Settings::default()
    };
    let mut air = Air64::new(Duplex::Full, 1, [settings]);
    let verdicts: Vec<_> = (0..6)
        .map(|number| air.offer(Duration::ZERO, 0, 1500, number))
        .collect();
    assert_eq!(
        verdicts
            .iter()
            .filter(|&&verdict| verdict == Verdict::Queued)
            .count(),
        4
    );
}

#[test]
fn interruptions_lose_or_hold() {
    // Packet n is sent from n to n + 1 ms.
    for (outage, delivered, lost, last) in [(Outage::Lose, 5, 5, 10), (Outage::Hold, 10, 0, 15)] {
        let schedule = Schedule::from(Settings {
            rate_bits_per_second: Some(12_000_000),
            ..Settings::default()
        })
        .during(3 * MILLI, 5 * MILLI, |settings| {
            settings.outage = Some(outage)
        });
        let mut air = Air64::new(Duplex::Full, 1, [schedule]);
        for number in 0..10 {
            air.offer(Duration::ZERO, 0, 1500, number);
        }
        let arrivals: Vec<_> = std::iter::from_fn(|| air.deliver(SECOND))
            .map(|arrived| arrived.at)
            .collect();
        assert_eq!(arrivals.len(), delivered, "{outage:?}");
        assert_eq!(air.counters(0).lost_outage.packets, lost, "{outage:?}");
        assert_eq!(arrivals.last(), Some(&(last * MILLI)), "{outage:?}");
    }
}

#[test]
fn bursts_lose_their_share_of_time_whatever_the_packet_rate() {
    let bursts = Bursts {
        good_mean: 90 * MILLI,
        bad_mean: 30 * MILLI,
        loss: 1.0,
    };
    for gap in [MILLI / 10, MILLI * 20] {
        let mut air = Air64::new(
            Duplex::Full,
            7,
            [Settings {
                bursts: Some(bursts),
                ..Settings::default()
            }],
        );
        let count = 500 * SECOND.as_micros() / gap.as_micros();
        for number in 0..count as u32 {
            air.offer(gap * number, 0, 100, 0);
        }
        let ratio = air.counters(0).lost_burst.packets as f64 / count as f64;
        // About 4,000 bursts: the share has a deviation of about 0.005.
        assert!(
            (ratio - 0.25).abs() < 0.03,
            "{ratio} of the time at a packet every {gap:?}"
        );
    }
}

#[test]
fn a_shared_air_is_divided_by_turns() {
    // The first host asks for ten times as much as the two others, each of which asks for a third
    // of the air.
    let settings = Settings {
        rate_bits_per_second: Some(12_000_000),
        ..Settings::default()
    };
    let mut air = Air64::new(Duplex::Half, 1, [settings; 3]);
    let mut number = 0;
    for tick in 0..3000 {
        let now = MILLI * tick;
        for _ in 0..3 {
            air.offer(now, 0, 1500, number);
            number += 1;
        }
        if tick % 3 == 0 {
            air.offer(now, 1, 1500, number);
            air.offer(now, 2, 1500, number);
        }
        while air.deliver(now).is_some() {}
    }
    let delivered = [0, 1, 2].map(|host| air.counters(host).delivered.packets);
    assert!(delivered[0] >= 990 && delivered[0] <= 1010, "{delivered:?}");
    assert!(delivered[1] >= 990 && delivered[2] >= 990, "{delivered:?}");
    assert_eq!(air.counters(1).dropped_queue.packets, 0);
    let airtime: Duration = (0..3).map(|host| air.counters(host).airtime).sum();
    assert!(airtime <= 3001 * MILLI, "one at a time: {airtime:?} in 3 s");
}

#[test]
fn reordering_lets_later_packets_overtake() {
    let settings = Settings {
        reorder: 0.1,
        reorder_delay: 5 * MILLI,
        ..Settings::default()
    };
    let mut air = Air64::new(Duplex::Full, 3, [settings]);
    let traffic: Vec<_> = (0..1000).map(|_| (1000, 0, 100)).collect();
    let arrivals = run(&mut air, &traffic);
    let late = arrivals
        .iter()
        .filter(|&&(_, number, at)| at == MILLI * (number as u32 + 1) + 5 * MILLI)
        .count();
    let overtaken = arrivals
        .windows(2)
        .filter(|pair| pair[0].1 > pair[1].1)
        .count();
    assert_eq!(arrivals.len(), 1000);
    assert!((60..140).contains(&late), "{late} of 1000 held back");
    assert!(overtaken > 50, "{overtaken}");
}

#[test]
fn a_repeated_schedule_that_sends_little_or_nothing_ends() {
    for (rate, arrival) in [(0, None), (8, Some(1500 * SECOND * 1000))] {
        // A millisecond of each second.
        let schedule = Schedule::from(Settings {
            rate_bits_per_second: Some(0),
            ..Settings::default()
        })
        .during(SECOND - MILLI, MILLI, |settings| {
            settings.rate_bits_per_second = Some(rate)
        })
        .repeat_every(SECOND);
        let mut air = Air64::new(Duplex::Full, 1, [schedule]);
        air.offer(Duration::ZERO, 0, 1500, 0);
        assert_eq!(air.next_event(), arrival);
        assert_eq!(
            air.deliver(10_000_000 * SECOND).map(|arrived| arrived.at),
            arrival
        );
    }
}

/// The figures of a Cubic flow over 50 Mbit/s with 20 ms there and back, in 10 s.
struct CubicRun {
    goodput_mbit: f64,
    median_wait: Duration,
    counters: Counters,
}

fn cubic(aqm: Option<Aqm>) -> CubicRun {
    const BYTES: u32 = 1500;
    let settings = Settings {
        rate_bits_per_second: Some(50_000_000),
        queue: Queue::Time(SECOND),
        delay: 10 * MILLI,
        aqm,
        ..Settings::default()
    };
    let mut air = Air64::new(Duplex::Full, 1, [settings]);
    let (mut sender, mut acknowledgements) = (CubicSender::default(), VecDeque::new());
    let mut waits = Vec::new();
    let mut now = Duration::ZERO;
    while now < 10 * SECOND {
        while let Some(number) = sender.next(now) {
            air.offer(now, 0, BYTES, number);
        }
        let acknowledged = acknowledgements.front().map(|(at, _)| *at);
        let events = [air.next_event(), acknowledged, sender.timeout()];
        now = events.into_iter().flatten().min().unwrap();
        while let Some(arrived) = air.deliver(now) {
            acknowledgements.push_back((arrived.at + 10 * MILLI, arrived.packet));
            waits.push(arrived.at - arrived.offered_at - 10 * MILLI);
        }
        while acknowledgements.front().is_some_and(|(at, _)| *at <= now) {
            let (_, number) = acknowledgements.pop_front().unwrap();
            sender.on_ack(now, number);
        }
    }
    let goodput_mbit = waits.len() as f64 * 8.0 * f64::from(BYTES) / 1e7;
    waits.sort_unstable();
    CubicRun {
        goodput_mbit,
        median_wait: waits[waits.len() / 2],
        counters: *air.counters(0),
    }
}

#[test]
fn codel_keeps_the_queue_of_cubic_short_and_the_link_busy() {
    let tail_drop = cubic(None);
    assert!(
        tail_drop.median_wait > 100 * MILLI,
        "{:?}",
        tail_drop.median_wait
    );
    for fair in [false, true] {
        let codel = cubic(Some(Aqm {
            fair,
            ..Aqm::default()
        }));
        assert!(codel.median_wait < 10 * MILLI, "{:?}", codel.median_wait);
        assert!(codel.goodput_mbit > 45.0, "{} Mbit/s", codel.goodput_mbit);
        assert!(codel.counters.dropped_aqm.packets > 0);
        assert_eq!(codel.counters.dropped_queue.packets, 0);
    }
}

#[test]
fn marks_take_the_place_of_drops_where_packets_allow_them() {
    let settings = Settings {
        rate_bits_per_second: Some(12_000_000),
        queue: Queue::Time(SECOND),
        aqm: Some(Aqm {
            ecn: true,
            ..Aqm::default()
        }),
        ..Settings::default()
    };
    let mut air = Air64::new(Duplex::Full, 1, [settings]);
    let mut marked = 0;
    // 1.1 times the rate: a packet takes 1 ms.
    for number in 0..1100 {
        let now = Duration::from_micros(909) * number;
        let ecn = [Ecn::NotCapable, Ecn::Capable][number as usize % 2];
        let header = Header {
            bytes: 1500,
            flow: 0,
            ecn,
        };
        air.offer(now, 0, header, u64::from(number));
        while let Some(arrived) = air.deliver(now) {
            let is_marked = arrived.ecn == Ecn::CongestionExperienced;
            assert!(
                !is_marked || arrived.packet % 2 == 1,
                "not capable, but marked"
            );
            marked += u64::from(is_marked);
        }
    }
    let counters = air.counters(0);
    assert!(marked > 0 && counters.marked.packets >= marked);
    assert!(counters.dropped_aqm.packets > 0);
}

#[test]
fn a_small_flow_does_not_wait_behind_a_large_one_where_queues_are_fair() {
    let wait = |aqm| {
        let settings = Settings {
            rate_bits_per_second: Some(12_000_000),
            queue: Queue::Time(100 * MILLI),
            aqm,
            ..Settings::default()
        };
        let mut air = Air64::new(Duplex::Full, 1, [settings]);
        let mut longest = Duration::ZERO;
        for step in 0..2000_u64 {
            // Twice the rate, and a small packet of another flow every 50 ms.
            let now = Duration::from_micros(500) * step as u32;
            let offer = |air: &mut Air64, flow, bytes| {
                let ecn = Ecn::NotCapable;
                air.offer(now, 0, Header { bytes, flow, ecn }, flow)
            };
            offer(&mut air, 1, 1500);
            if step % 100 == 99 {
                assert_eq!(offer(&mut air, 2, 100), Verdict::Queued);
            }
            while let Some(arrived) = air.deliver(now) {
                if arrived.packet == 2 {
                    longest = longest.max(arrived.at - arrived.offered_at);
                }
            }
        }
        longest
    };
    let fair = Aqm {
        fair: true,
        ..Aqm::default()
    };
    // The packet in transmission, and the small one itself.
    assert!(wait(Some(fair)) < 2 * MILLI);
}

#[test]
fn an_aggregate_shares_the_access_and_arrives_at_once() {
    let settings = Settings {
        rate_bits_per_second: Some(120_000_000),
        aggregation: Some(Aggregation {
            access: MILLI,
            longest: 5 * MILLI,
            packets: 4,
        }),
        ..Settings::default()
    };
    let mut air = Air64::new(Duplex::Full, 1, [settings]);
    for number in 0..9 {
        air.offer(Duration::ZERO, 0, 1500, number);
    }
    let mut arrivals = Vec::new();
    drain(&mut air, SECOND, &mut arrivals);
    let micros: Vec<u128> = arrivals
        .iter()
        .map(|arrival| arrival.2.as_micros())
        .collect();
    // 100 us for each packet, 1 ms for each transmission: one at once, then four, and four.
    assert_eq!(
        micros,
        [1100, 2500, 2500, 2500, 2500, 3900, 3900, 3900, 3900]
    );
    assert_eq!(air.counters(0).airtime, Duration::from_micros(3900));
}

#[test]
fn an_aggregate_is_not_longer_than_allowed() {
    let settings = Settings {
        rate_bits_per_second: Some(12_000_000),
        aggregation: Some(Aggregation {
            access: Duration::ZERO,
            longest: 3 * MILLI,
            packets: 64,
        }),
        ..Settings::default()
    };
    let mut air = Air64::new(Duplex::Full, 1, [settings]);
    for number in 0..7 {
        air.offer(Duration::ZERO, 0, 1500, number);
    }
    let mut arrivals = Vec::new();
    drain(&mut air, SECOND, &mut arrivals);
    let millis: Vec<u128> = arrivals
        .iter()
        .map(|arrival| arrival.2.as_millis())
        .collect();
    assert_eq!(millis, [1, 4, 4, 4, 7, 7, 7]);
}

#[test]
fn a_policer_passes_its_rate_and_queues_nothing() {
    let settings = Settings {
        policer: Some(Policer {
            rate_bits_per_second: 12_000_000,
            burst_bytes: 15_000,
        }),
        ..Settings::default()
    };
    let mut air = Air64::new(Duplex::Full, 1, [settings]);
    // Three times the rate for a second.
    for number in 0..3000_u32 {
        air.offer(MILLI * number / 3, 0, 1500, u64::from(number));
    }
    while air.deliver(2 * SECOND).is_some() {}
    let counters = air.counters(0);
    assert_eq!(counters.longest_wait, Duration::ZERO);
    assert!(
        (1005..=1011).contains(&counters.delivered.packets),
        "{counters:?}"
    );
    assert_eq!(
        counters.dropped_policer.packets,
        3000 - counters.delivered.packets
    );
}
