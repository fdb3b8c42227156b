//! The test cases of RFC 8867 (interactive real-time media) and RFC 8869 (the same over wireless) as
//! channels: capacities, delays and times as there, in place of video samples at 30 Hz that ask
//! for 1.2 times the largest capacity, the newest only.
//!
//! Not there: several bottlenecks (an air is one hop), priorities, and the traffic models of video
//! encoders. The air of the wireless cases is that of the emulator, not of a simulator of 802.11
//! or LTE.

use std::time::Duration;

use nervure_linkemu::network::Draw;
use nervure_linkemu::population::{Channel, Flow, FlowKind, History, Load, START};
use nervure_linkemu::{Aggregation, Duplex, Outage, Queue, Schedule, Settings};

const HERTZ: f64 = 30.0;

/// All cases.
pub fn cases() -> Vec<Channel> {
    let mut cases = vec![
        variable_capacity(1, 50, "8867 5.1 variable capacity"),
        variable_capacity(1, 100, "8867 5.1 variable capacity, delay 100 ms"),
        several_flows(),
        congested_feedback(),
        same_law(),
        round_trip_times(),
        long_tcp(300),
        long_tcp(1000),
        long_tcp(20),
        short_tcp(),
        pause_and_resume(),
    ];
    cases.extend(wifi());
    cases.extend([cellular(false), cellular(true)]);
    cases
}

fn seconds(seconds: u64) -> Duration {
    START + Duration::from_secs(seconds)
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A bottleneck with a queue of 300 ms and a delay of 50 ms each way.
fn bottleneck(kilobits: u64) -> Settings {
    Settings {
        rate_bits_per_second: Some(kilobits * 1000),
        queue: Queue::Time(millis(300)),
        delay: millis(50),
        ..Settings::default()
    }
}

fn load(most_kilobits: u64) -> Load {
    Load {
        history: History::KeepLast(1),
        sample_bytes: (1.2 * most_kilobits as f64 * 1000.0 / 8.0 / HERTZ) as usize,
        rate_hz: HERTZ,
    }
}

fn own(most_kilobits: u64) -> Flow {
    Flow::new(FlowKind::Own(load(most_kilobits)))
}

fn case(name: &str, settings: Settings, kilobits: u64, length: u64) -> Channel {
    Channel {
        seed: 1,
        duplex: Duplex::Full,
        forward: settings.into(),
        reverse: settings.into(),
        flows: Vec::new(),
        load: load(kilobits),
        length: Duration::from_secs(length),
        changes: Vec::new(),
        description: name.to_owned(),
    }
}

/// Rates in kbit/s from these seconds on.
fn rates(schedule: Schedule, rates: &[(u64, u64)]) -> Schedule {
    rates.iter().fold(schedule, |schedule, (from, kilobits)| {
        schedule.change(seconds(*from), |settings| {
            settings.rate_bits_per_second = Some(kilobits * 1000);
        })
    })
}

fn variable_capacity(megabits: u64, delay: u64, name: &str) -> Channel {
    let settings = Settings {
        delay: millis(delay),
        ..bottleneck(1000 * megabits)
    };
    let steps = [(40, 2500), (60, 600), (80, 1000)];
    let case = case(name, settings, 2500, 100);
    Channel {
        forward: rates(case.forward, &steps),
        changes: steps.map(|(from, _)| seconds(from)).into(),
        ..case
    }
}

fn several_flows() -> Channel {
    let steps = [(25, 2000), (50, 3500), (75, 1000), (100, 2000)];
    let case = case(
        "8867 5.2 variable capacity, two flows",
        bottleneck(4000),
        4000,
        125,
    );
    Channel {
        forward: rates(case.forward, &steps),
        changes: steps.map(|(from, _)| seconds(from)).into(),
        flows: vec![own(4000)],
        ..case
    }
}

fn congested_feedback() -> Channel {
    let (steps, back) = ([(20, 1000), (40, 500), (60, 2000)], [(35, 800), (70, 2000)]);
    let case = case(
        "8867 5.3 congested feedback, flows both ways",
        bottleneck(2000),
        2000,
        100,
    );
    Channel {
        forward: rates(case.forward, &steps),
        reverse: rates(case.reverse, &back),
        changes: steps.map(|(from, _)| seconds(from)).into(),
        flows: vec![Flow {
            is_reverse: true,
            ..own(2000)
        }],
        ..case
    }
}

fn same_law() -> Channel {
    let later = [20, 40].map(|from| Flow {
        starts: seconds(from),
        ..own(3500)
    });
    Channel {
        flows: later.into(),
        ..case(
            "8867 5.4 three flows of the same law",
            bottleneck(3500),
            3500,
            119,
        )
    }
}

fn round_trip_times() -> Channel {
    let delays = [(10, 15), (20, 40), (30, 90), (40, 140)];
    let later = delays.map(|(from, more)| Flow {
        starts: seconds(from),
        extra_delay: millis(more),
        ..own(4000)
    });
    let settings = Settings {
        delay: millis(10),
        ..bottleneck(4000)
    };
    Channel {
        flows: later.into(),
        ..case(
            "8867 5.5 delays of 10, 25, 50, 100, 150 ms",
            settings,
            4000,
            299,
        )
    }
}

fn long_tcp(queue: u64) -> Channel {
    let settings = Settings {
        queue: Queue::Time(millis(queue)),
        ..bottleneck(2000)
    };
    Channel {
        flows: vec![Flow::new(FlowKind::Cubic)],
        ..case(
            &format!("8867 5.6 beside a long TCP flow, queue {queue} ms"),
            settings,
            2000,
            119,
        )
    }
}

fn short_tcp() -> Channel {
    let flows = std::iter::repeat_n(Flow::new(FlowKind::Transfers), 10).chain([own(2000)]);
    Channel {
        flows: flows.collect(),
        ..case(
            "8867 5.7 two flows beside short TCP flows",
            bottleneck(2000),
            2000,
            299,
        )
    }
}

fn pause_and_resume() -> Channel {
    let paused = Flow {
        pause: Some((seconds(40), seconds(60))),
        ..own(3500)
    };
    Channel {
        flows: vec![paused, own(3500)],
        ..case(
            "8867 5.8 three flows, one pauses from 40 to 60 s",
            bottleneck(3500),
            3500,
            119,
        )
    }
}

/// RFC 8869, section 4: the wireless hop is the bottleneck.
fn wifi() -> Vec<Channel> {
    let settings = Settings {
        queue: Queue::Time(millis(300)),
        delay: millis(10),
        overhead_bytes: 60,
        loss: 0.01,
        aggregation: Some(Aggregation {
            access: Duration::from_micros(150),
            longest: Duration::from_micros(4000),
            packets: 32,
        }),
        ..bottleneck(26_000)
    };
    let half = |name, flows| Channel {
        duplex: Duplex::Half,
        flows,
        ..case(name, settings, 26_000, 60)
    };
    let back = Flow {
        is_reverse: true,
        ..own(26_000)
    };
    let tcp = Flow::new(FlowKind::Cubic);
    let reverse_tcp = Flow {
        is_reverse: true,
        ..tcp
    };
    vec![
        half("8869 4 WiFi, one flow", Vec::new()),
        half("8869 4 WiFi, four flows one way", vec![own(26_000); 3]),
        half(
            "8869 4 WiFi, two flows each way",
            vec![own(26_000), back, back],
        ),
        half("8869 4 WiFi, beside TCP one way", vec![tcp]),
        half("8869 4 WiFi, beside TCP the other way", vec![reverse_tcp]),
    ]
}

/// RFC 8869, section 3: the rate of a cell varies with the channel and the other users, the base
/// station's queue is long and loses nothing, and handovers hold all packets.
fn cellular(moves: bool) -> Channel {
    let settings = Settings {
        queue: Queue::Bytes(1_500_000),
        delay: millis(30),
        ..bottleneck(8000)
    };
    let name = if moves {
        "8869 3 cellular, mobile"
    } else {
        "8869 3 cellular, stationary"
    };
    let mut case = case(name, settings, 8000, 90);
    let mut draw = Draw::new(1);
    let (spread, step) = if moves { (1.2, 200) } else { (0.4, 500) };
    let mut share: f64 = 0.5;
    for number in 0..1000 {
        share = (share * (spread * (draw.share() - 0.5)).exp()).clamp(0.05, 1.0);
        let rate = (8e6 * share) as u64;
        let at = millis(step) * number;
        case.forward = case.forward.change(at, |settings| {
            settings.rate_bits_per_second = Some(rate);
        });
    }
    if moves {
        for handover in 1..5 {
            let (from, lasting) = (seconds(18 * handover), millis(150));
            let hold = |settings: &mut Settings| settings.outage = Some(Outage::Hold);
            case.forward = case.forward.during(from, lasting, hold);
            case.reverse = case.reverse.during(from, lasting, hold);
            case.changes.push(from + lasting);
        }
    }
    case
}
