//! Reports that lie, and silence.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;

const MILLI: Duration = Duration::from_millis(1);

fn report(highest: u64, packets: u64, bytes: u64) -> Observed {
    Observed {
        highest_packet_number: highest,
        packets_received: packets,
        bytes_received: bytes,
        congestion_marks: 0,
        arrived: Duration::from_secs(5) + MILLI * highest as u32,
        held: Duration::ZERO,
    }
}

#[test]
fn reports_that_cannot_be_true_are_counted_and_not_used() {
    let start = Instant::now();
    let mut rate = Rate::new(Config::default(), start);
    (1..=10).for_each(|number| rate.on_sent(start + MILLI * number, u64::from(number), 1000));
    let now = start + MILLI * 20;
    assert_eq!(
        rate.on_feedback(now, &report(11, 1, 1000)),
        Err(FalseReport::NeverSent {
            named: 11,
            last: 10
        })
    );
    rate.on_feedback(now, &report(5, 4, 4000)).unwrap();
    for lie in [
        report(10, 11, 4000),
        report(10, 3, 4000),
        report(10, 5, 10_001),
        report(10, 5, 3999),
    ] {
        assert!(
            matches!(
                rate.on_feedback(now, &lie),
                Err(FalseReport::Miscounted { .. })
            ),
            "{lie:?}"
        );
    }
    let before = rate.status();
    assert_eq!((before.false_reports, before.in_flight_bytes), (5, 5000));
    // An old report is not false, and has no effect.
    rate.on_feedback(now, &report(3, 3, 3000)).unwrap();
    assert_eq!(rate.status(), before);
}

#[test]
fn a_silent_peer_is_probed_and_nothing_else() {
    let start = Instant::now();
    let mut rate = Rate::new(Config::default(), start);
    rate.on_sent(start, 1, 1000);
    rate.on_feedback(start + MILLI, &report(1, 1, 1000))
        .unwrap();
    let (sent, now, number) = silence(&mut rate, start + MILLI, 1);
    let late: Vec<_> = sent
        .iter()
        .filter(|(at, _)| *at > start + Duration::from_millis(200))
        .collect();
    assert!(
        late.iter()
            .all(|(_, permission)| *permission == Permission::Probe)
    );
    assert!(
        late.windows(2)
            .all(|pair| pair[1].0 - pair[0].0 == 20 * MILLI),
        "{late:?}"
    );
    assert!(rate.status().silent);
    // The first report ends it.
    rate.on_feedback(now, &report(number, 2, 2000)).unwrap();
    assert_eq!(rate.permission(now + 10 * MILLI), Permission::Send);
    assert!(!rate.status().silent);
}

/// A packet that goes although the rate holds it back, as a tail loss probe does, delays later packets no longer than
/// any other packet.
#[test]
fn probes_run_up_no_debt() {
    let start = Instant::now();
    let config = Config {
        max_bytes_per_second: 12_000.0,
        ..Config::default()
    };
    let mut rate = Rate::new(config, start);
    (0..100).for_each(|number| rate.on_sent(start + MILLI * 5 * number, u64::from(number), 1200));
    let now = start + MILLI * 500;
    rate.on_feedback(now, &report(99, 100, 120_000)).unwrap();
    match rate.permission(now) {
        Permission::Send => {}
        Permission::Wait(at) => assert!(at <= now + MILLI * 100, "{:?}", at - now),
        Permission::Probe => panic!("all is reported"),
    }
}

/// Thirty unanswered senders would fill an air with fifty probes a second each.
#[test]
fn a_peer_that_was_never_heard_is_probed_ever_more_rarely() {
    let start = Instant::now();
    let (sent, ..) = silence(&mut Rate::new(Config::default(), start), start, 0);
    let probes = |from: u64, to: u64| {
        let within = start + MILLI * from as u32..start + MILLI * to as u32;
        sent.iter().filter(|(at, _)| within.contains(at)).count()
    };
    assert!(
        probes(200, 400) >= 5 && (4..=8).contains(&probes(1000, 2000)),
        "{sent:?}"
    );
}

/// On a shared air, reports come later and later, whatever this sender does. A window that grew with them would delay
/// them further.
#[test]
fn reports_that_come_seconds_late_do_not_open_the_window() {
    let start = Instant::now();
    let mut rate = Rate::new(Config::default(), start);
    // A megabyte passes each second; a report that is due at `t` comes at `1.5 t`.
    let (mut now, mut number, mut reports) = (start, 0, VecDeque::new());
    let mut most = 0;
    while now < start + Duration::from_secs(12) {
        now += MILLI;
        while rate.permission(now) == Permission::Send {
            number += 1;
            rate.on_sent(now, number, 1000);
            let passed = now.max(start + MILLI * number as u32) + MILLI;
            reports.push_back((start + (passed - start).mul_f64(1.5), passed, number));
        }
        while reports.front().is_some_and(|(at, ..)| *at <= now) {
            let (_, passed, highest) = reports.pop_front().expect("one is due");
            let observed = Observed {
                arrived: passed - start,
                ..report(highest, highest, 1000 * highest)
            };
            rate.on_feedback(now, &observed).unwrap();
        }
        if now > start + Duration::from_secs(4) {
            most = most.max(rate.status().in_flight_bytes);
        }
    }
    assert!(
        rate.status().rtt > Duration::from_secs(2),
        "{:?}",
        rate.status()
    );
    assert!(
        most < 800_000,
        "{most} bytes under way, {:?}",
        rate.status()
    );
}

/// A sender whose processor has other work sends less than its rate. Taken for the bottleneck's rate, this would lower
/// the rate, and then again.
#[test]
fn a_sender_that_comes_late_does_not_forget_what_passes() {
    let LateSender { known, status, .. } = LateSender::run(100 * MILLI, 6 * MILLI);
    let passes = status.bottleneck_bytes_per_second;
    assert!((18e6..22e6).contains(&known), "{known}");
    assert!(passes > 0.8 * known, "{passes} of {known}, {status:?}");
}

/// On a long path it takes long to show a higher rate than the one sent. (Drains take the rest.)
#[test]
fn a_sender_that_comes_late_on_a_long_path_catches_up() {
    let LateSender { known, sent, .. } = LateSender::run(200 * MILLI, 3 * MILLI);
    assert!(sent > 0.9 * known, "{sent} of {known}");
}

/// A sender with something to send at all times, on a path that passes twenty megabytes each second.
struct LateSender {
    /// Bottleneck rate while the sender was never late, in bytes per second.
    known: f64,
    /// Rate sent in the last two seconds, while it was late, in bytes per second.
    sent: f64,
    status: Status,
}

impl LateSender {
    /// It is never late for 6 s; then it comes once in `late`.
    fn run(round_trip: Duration, late: Duration) -> Self {
        let start = Instant::now();
        let mut rate = Rate::new(Config::default(), start);
        let (mut now, mut number, mut departs, mut known, mut sent) = (start, 0, start, 0.0, 0.0);
        let mut reports = VecDeque::<(Instant, Duration, u64)>::new();
        while now < start + Duration::from_secs(14) {
            if now < start + Duration::from_secs(6) {
                known = rate.status().bottleneck_bytes_per_second;
                now += MILLI / 4;
            } else {
                now += late;
            }
            while reports.front().is_some_and(|(at, ..)| *at <= now) {
                let (_, arrived, highest) = reports.pop_front().expect("one is due");
                let observed = Observed {
                    arrived,
                    ..report(highest, highest, 1000 * highest)
                };
                rate.on_feedback(now, &observed).unwrap();
            }
            while rate.permission(now) == Permission::Send {
                number += 1;
                rate.on_sent(now, number, 1000);
                departs = departs.max(now) + Duration::from_micros(50);
                reports.push_back((
                    departs + round_trip,
                    departs + round_trip / 2 - start,
                    number,
                ));
                sent += if now > start + Duration::from_secs(12) {
                    1000.0 / 2.0
                } else {
                    0.0
                };
            }
        }
        Self {
            known,
            sent,
            status: rate.status(),
        }
    }
}

/// Until the first report the window is closed. A rate that earlier packets raise was hardly tried in that round trip.
#[test]
fn the_first_rate_is_raised_when_it_was_tried() {
    let start = Instant::now();
    let mut rate = Rate::new(Config::default(), start);
    let (mut now, mut number) = (start, 0);
    let mut reports = VecDeque::<(Instant, Duration, u64)>::new();
    let mut rates = vec![rate.status().bytes_per_second];
    while now < start + 300 * MILLI {
        while reports.front().is_some_and(|(at, ..)| *at <= now) {
            let (_, arrived, highest) = reports.pop_front().expect("one is due");
            let observed = Observed {
                arrived,
                ..report(highest, highest, 1000 * highest)
            };
            rate.on_feedback(now, &observed).unwrap();
        }
        let current = rate.status().bytes_per_second;
        if rates.last() != Some(&current) {
            rates.push(current);
        }
        while match rate.permission(now) {
            Permission::Send => number == 0 || now > start + 75 * MILLI,
            Permission::Probe => now > start + 75 * MILLI,
            Permission::Wait(_) => false,
        } {
            number += 1;
            rate.on_sent(now, number, 1000);
            reports.push_back((now + 100 * MILLI, now + 50 * MILLI - start, number));
        }
        now += MILLI / 4;
    }
    // On a path of 100 ms the first is half as large again, and each trebles.
    assert_eq!(rates, [1.5e6, 2.25e6, 6.75e6]);
}

#[test]
fn the_first_packets_show_what_the_channel_loses() {
    let mut losses = Losses::default();
    let mut smoothed = Vec::new();
    for packets in [2, 40, 200, 1000] {
        losses.on_report(packets, packets * 4 / 5, true);
        losses.finish_round();
        smoothed.push(losses.smoothed());
    }
    assert!(smoothed[0] < 0.1 && smoothed[1] > 0.1, "{smoothed:?}");
    assert!(
        smoothed[2..].iter().all(|loss| (0.17..0.21).contains(loss)),
        "{smoothed:?}"
    );
}

/// Sends all that may go for two seconds in which nothing is heard; returns that, when the last went, and its number.
fn silence(
    rate: &mut Rate,
    start: Instant,
    before: u64,
) -> (Vec<(Instant, Permission)>, Instant, u64) {
    let (mut now, mut number, mut sent) = (start, before, Vec::new());
    while now < start + Duration::from_secs(2) {
        match rate.permission(now) {
            Permission::Wait(at) => now = at,
            permission => {
                number += 1;
                rate.on_sent(now, number, 1000);
                sent.push((now, permission));
            }
        }
    }
    (sent, now, number)
}

/// Where most packets are lost, most reports are, too, and missing ones say little.
#[test]
fn silence_that_chance_brings_about_is_none() {
    for (arrive, silent) in [(800, true), (360, false)] {
        let start = Instant::now();
        let mut rate = Rate::new(Config::default(), start);
        let (mut now, mut number) = (start, 0);
        while now < start + Duration::from_secs(3) {
            now += MILLI;
            number += 1;
            rate.on_sent(now, number, 1000);
            let received = number * arrive / 1000;
            rate.on_feedback(now, &report(number, received, 1000 * received))
                .unwrap();
        }
        rate.on_sent(now, number + 1, 1000);
        let _ = rate.permission(now + 300 * MILLI);
        assert_eq!(rate.status().silent, silent, "{:?}", rate.status());
        let _ = rate.permission(now + 1001 * MILLI);
        assert!(rate.status().silent, "{:?}", rate.status());
    }
}

#[test]
fn what_delivers_next_to_nothing_is_probed_only() {
    let start = Instant::now();
    let mut rate = Rate::new(Config::default(), start);
    let (mut now, mut number) = (start, 0);
    while now < start + Duration::from_secs(3) {
        now += MILLI;
        while rate.permission(now) == Permission::Send {
            number += 1;
            rate.on_sent(now, number, 1000);
        }
        // One packet of twenty arrives.
        if number > 20 && number % 20 < 3 {
            rate.on_feedback(now, &report(number, number / 20, 50 * number))
                .unwrap();
        }
    }
    assert!(rate.status().silent, "{:?}", rate.status());
}

proptest! {
    /// Whatever a peer reports, the rate stays within its bounds, and asking never panics or demands the past.
    #[test]
    fn no_report_breaks_the_rate(
        reports in prop::collection::vec(
            (0..400_u64, any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>(), any::<bool>()), 0..200,
        ),
    ) {
        let start = Instant::now();
        let config = Config::default();
        let mut rate = Rate::new(config, start);
        let (mut now, mut number) = (start, 0);
        for (ahead, packets, bytes, arrived, held, sane) in reports {
            now += MILLI;
            for _ in 0..50 {
                match rate.permission(now) {
                    Permission::Wait(at) => {
                        prop_assert!(at > now);
                        break;
                    }
                    _ => {
                        number += 1;
                        rate.on_sent(now, number, 1200);
                    }
                }
            }
            let highest = number.saturating_sub(ahead % 50);
            let received = if sane { highest } else { packets };
            let observed = Observed {
                highest_packet_number: if sane { highest } else { ahead },
                packets_received: received,
                bytes_received: if sane { received * 1200 } else { bytes },
                congestion_marks: 0,
                arrived: Duration::from_micros(arrived),
                held: Duration::from_micros(held),
            };
            let _ = rate.on_feedback(now, &observed);
            let status = rate.status();
            prop_assert!(status.bytes_per_second >= config.min_bytes_per_second);
            prop_assert!(status.bytes_per_second <= config.max_bytes_per_second);
            prop_assert!((0.0..=1.0).contains(&status.loss), "{status:?}");
        }
    }
}
