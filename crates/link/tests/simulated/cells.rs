//! The targets of the link, as far as a simulation can check them: networks, loads and limits.

use std::time::Duration;

use nervure_link::qos::{Delivery, Qos};
use nervure_linkemu::{Bursts, Duplex, Queue, Schedule, Settings};

use crate::runs::{Figures, Run, START, measure_bad_wireless, measure_first_sample};

const KIB: usize = 1024;
const LARGE: usize = 512 * KIB;
const SECOND: Duration = Duration::from_secs(1);
const CONNECTIONS: u64 = 200;
const LIFESPAN: Duration = Duration::from_millis(250);

/// A measured figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Metric {
    Delivered,
    Mean,
    P99,
    Longest,
    OfLimit,
    OnAir,
    OfLimitAfterStep,
    FirstAfterOutage,
    OldestAfterOutage,
    LostOfAccepted,
    ShareOfLink,
    LeftToCubic,
    Apart,
    Jain,
    FirstSample,
}

impl Metric {
    /// Its name and unit where it has no column of its own.
    pub fn name(self) -> (&'static str, &'static str) {
        match self {
            Self::Delivered => ("delivered", " %"),
            Self::Mean => ("mean", " ms"),
            Self::P99 => ("p99", " ms"),
            Self::Longest => ("longest", " ms"),
            Self::OfLimit => ("of limit", " %"),
            Self::OnAir => ("on air", ""),
            Self::OfLimitAfterStep => ("of limit after the step down", " %"),
            Self::FirstAfterOutage => ("first after outage", " ms"),
            Self::OldestAfterOutage => ("oldest after outage", " ms"),
            Self::LostOfAccepted => ("lost of accepted", ""),
            Self::ShareOfLink => ("share of the link", " %"),
            Self::LeftToCubic => ("left to Cubic", " %"),
            Self::Apart => ("least below most by", " %"),
            Self::Jain => ("Jain", ""),
            Self::FirstSample => ("p95", " ms"),
        }
    }

    pub fn more_is_better(self) -> bool {
        use Metric::{Delivered, Jain, LeftToCubic, OfLimit, OfLimitAfterStep, ShareOfLink};
        matches!(
            self,
            Delivered | OfLimit | OfLimitAfterStep | ShareOfLink | LeftToCubic | Jain
        )
    }
}

/// A row of the table.
pub struct Cell {
    pub group: &'static str,
    pub name: String,
    pub targets: Vec<(Metric, f64)>,
    measure: Box<dyn Fn(u64, u64) -> Figures + Send + Sync>,
}

impl Cell {
    fn new(
        group: &'static str,
        name: impl Into<String>,
        targets: &[(Metric, f64)],
        measure: impl Fn(u64, u64) -> Figures + Send + Sync + 'static,
    ) -> Self {
        Self {
            group,
            name: name.into(),
            targets: targets.to_vec(),
            measure: Box::new(measure),
        }
    }

    fn of_run(
        group: &'static str,
        name: impl Into<String>,
        targets: &[(Metric, f64)],
        run: Run,
    ) -> Self {
        Self::new(group, name, targets, move |seed, samples| {
            Run {
                samples,
                ..run.clone()
            }
            .measure(seed)
        })
    }

    /// The figures of one seed; `samples` is the length of the schedule where samples are counted.
    pub fn measure(&self, seed: u64, samples: u64) -> Figures {
        (self.measure)(seed, samples)
    }
}

/// All cells.
pub fn cells() -> Vec<Cell> {
    let mut cells = large();
    cells.extend(mininet());
    cells.extend(small());
    cells.extend(cable());
    cells.extend(poster());
    cells.extend(paths());
    cells.extend(sharing());
    cells.extend(begin_and_change());
    cells
}

/// 300 Mbit/s, 20 %, RTT 2 ms, queue 100 ms.
pub fn channel(megabits: u64, loss: f64) -> Settings {
    Settings {
        rate_bits_per_second: Some(megabits * 1_000_000),
        queue: Queue::Time(Duration::from_millis(100)),
        delay: Duration::from_millis(1),
        loss,
        ..Settings::default()
    }
}

pub fn run(settings: Settings, sample_bytes: usize) -> Run {
    Run {
        duplex: Duplex::Full,
        schedule: Schedule::from(settings),
        qos: Qos::new(Delivery::keep_last(10)),
        sample_bytes,
        rate_hz: 30.0,
        samples: 0,
        stalls: false,
    }
}

fn percent(loss: f64) -> String {
    format!("{:.0} %", 100.0 * loss)
}

fn large() -> Vec<Cell> {
    let mut cells = Vec::new();
    for megabits in [54, 300, 1000] {
        for loss in [0.0, 0.01, 0.1, 0.2, 0.4] {
            let mut run = run(channel(megabits, loss), LARGE);
            let targets = match (megabits, loss) {
                (54, _) => {
                    // Newer samples replace pending ones: the age of the delivered ones counts.
                    run.qos = Qos {
                        lifespan: Some(LIFESPAN),
                        ..Qos::new(Delivery::keep_last(1))
                    };
                    vec![(Metric::OfLimit, 95.0), (Metric::Longest, 250.0)]
                }
                (300, 0.2) | (1000, _) => vec![(Metric::Delivered, 99.5), (Metric::P99, 33.0)],
                (300, 0.4) => vec![(Metric::Delivered, 99.5), (Metric::P99, 60.0)],
                _ => vec![(Metric::Delivered, 99.5)],
            };
            let name = format!("{megabits} Mbit/s, {}", percent(loss));
            cells.push(Cell::of_run("512 KB at 30 Hz", name, &targets, run));
        }
    }
    cells
}

/// The 30 configurations of 2020. One link here has the loss of their two hops.
fn mininet() -> Vec<Cell> {
    let mut cells = Vec::new();
    for (kind, bytes) in [("Array1k", KIB), ("PointCloud512k", LARGE)] {
        for megabits in [54, 300, 1000] {
            for hop_loss in [0.0, 0.1, 0.2, 0.3, 0.4_f64] {
                let loss = 1.0 - (1.0 - hop_loss).powi(2);
                let targets = match bytes {
                    KIB => [(Metric::Delivered, 99.5)],
                    _ => [(Metric::OfLimit, 95.0)],
                };
                let name = format!("{kind}, {megabits} Mbit/s, {} a hop", percent(hop_loss));
                let group =
                    "The grid of 2020: reliable, keep last 10, 30 Hz, loss on each of two hops";
                cells.push(Cell::of_run(
                    group,
                    name,
                    &targets,
                    run(channel(megabits, loss), bytes),
                ));
            }
        }
    }
    cells
}

fn small() -> Vec<Cell> {
    let cell = |loss| {
        let targets = [(Metric::Delivered, 99.5), (Metric::P99, 25.0)];
        let name = format!("300 Mbit/s, {}", percent(loss));
        Cell::of_run(
            "1 KB at 30 Hz",
            name,
            &targets,
            run(channel(300, loss), KIB),
        )
    };
    [0.0, 0.01, 0.1, 0.2, 0.4].map(cell).into()
}

/// Samples that take a small part of the channel: how fast it is must be learned from them.
fn cable() -> Vec<Cell> {
    let cable = Settings {
        delay: Duration::from_micros(100),
        ..channel(1000, 0.0)
    };
    let cell = |kib: usize, mean| {
        let targets = [(Metric::Delivered, 100.0), (Metric::Mean, mean)];
        let name = format!("{kib} KB, 1000 Mbit/s, RTT 0.2 ms");
        Cell::of_run("A cable, 30 Hz", name, &targets, run(cable, kib * KIB))
    };
    // One way and twice the time that they take at the whole rate, and half a millisecond.
    vec![cell(1, 0.7), cell(32, 1.2), cell(128, 2.9), cell(512, 9.6)]
}

fn poster() -> Vec<Cell> {
    const GROUP: &str = "Large data over lossy wireless: keep all, 30 Hz, 300 Mbit/s";
    let mut cells = Vec::new();
    for kib in [32, 64, 128, 256, 512] {
        for loss in [0.0, 0.01, 0.2] {
            let all = Qos::new(Delivery::keep_all(10));
            let run = Run {
                qos: all,
                ..run(channel(300, loss), kib * KIB)
            };
            let name = format!("{kib} KB, {}", percent(loss));
            cells.push(Cell::of_run(GROUP, name, &[(Metric::Delivered, 99.9)], run));
        }
    }
    let outage = |name, qos, targets: &[_]| {
        let base = run(
            Settings {
                ..channel(100, 0.01)
            },
            128 * KIB,
        );
        Cell::new(GROUP, name, targets, move |seed, samples| {
            // At least enough that the schedule outlasts the interruption.
            let samples = samples.max(30 * 35);
            Run {
                qos,
                samples,
                ..base.clone()
            }
            .measure_outage(seed, START + 10 * SECOND, 20 * SECOND)
        })
    };
    let fresh = Qos {
        lifespan: Some(LIFESPAN),
        ..Qos::new(Delivery::keep_last(10))
    };
    cells.push(outage(
        "128 KB, 100 Mbit/s, 20 s outage, lifespan 250 ms",
        fresh,
        &[
            (Metric::FirstAfterOutage, 100.0),
            (Metric::OldestAfterOutage, 250.0),
        ],
    ));
    let all = Qos::new(Delivery::keep_all(32));
    cells.push(outage(
        "128 KB, 100 Mbit/s, 20 s outage, keep all",
        all,
        &[
            (Metric::FirstAfterOutage, 100.0),
            (Metric::LostOfAccepted, 0.0),
        ],
    ));
    cells
}

fn paths() -> Vec<Cell> {
    const GROUP: &str = "Other paths, 512 KB at 30 Hz";
    let lossy = channel(300, 0.2);
    let rtt = |millis: u64| Settings {
        delay: Duration::from_micros(500 * millis),
        ..lossy
    };
    let bursts = Bursts {
        good_mean: Duration::from_millis(270),
        bad_mean: Duration::from_millis(30),
        loss: 1.0,
    };
    let delivered = |least| vec![(Metric::Delivered, least)];
    let cell =
        |name, targets: Vec<_>, settings| Cell::of_run(GROUP, name, &targets, run(settings, LARGE));
    let jitter = Settings {
        jitter: Duration::from_millis(5),
        ..lossy
    };
    let shallow = Settings {
        queue: Queue::Time(Duration::from_millis(5)),
        ..channel(54, 0.1)
    };
    let deep = Settings {
        queue: Queue::Time(SECOND),
        ..lossy
    };
    let reordered = Settings {
        reorder: 0.05,
        reorder_delay: Duration::from_millis(3),
        ..lossy
    };
    let half = Run {
        duplex: Duplex::Half,
        ..run(lossy, LARGE)
    };
    let stalls = Run {
        stalls: true,
        ..run(lossy, LARGE)
    };
    vec![
        cell(
            "RTT 40 ms, 20 %",
            vec![(Metric::Delivered, 99.0), (Metric::P99, 150.0)],
            rtt(40),
        ),
        cell("RTT 200 ms, 20 %", delivered(99.0), rtt(200)),
        cell(
            "RTT 0.2 ms, 20 %",
            delivered(99.0),
            Settings {
                delay: Duration::from_micros(100),
                ..lossy
            },
        ),
        cell(
            "fades of 30 ms (270 ms good), 10 %",
            delivered(98.0),
            Settings {
                bursts: Some(bursts),
                ..channel(300, 0.1)
            },
        ),
        cell("jitter 5 ms, 20 %", delivered(99.0), jitter),
        cell("5 % reordered by 3 ms, 20 %", delivered(99.0), reordered),
        Cell::of_run(GROUP, "half-duplex air, 20 %", &delivered(99.0), half),
        cell(
            "54 Mbit/s, 10 %, queue 5 ms",
            vec![(Metric::OfLimit, 85.0)],
            shallow,
        ),
        cell("queue 1 s, 20 %", delivered(99.5), deep),
        Cell::of_run(
            GROUP,
            "20 %, both hosts stop for up to 20 ms ten times a second",
            &delivered(99.0),
            stalls,
        ),
        Cell::of_run(
            GROUP,
            "RTT 200 ms, 20 %, both hosts stop for up to 20 ms ten times a second",
            &delivered(98.0),
            Run {
                stalls: true,
                ..run(rtt(200), LARGE)
            },
        ),
        Cell::of_run(
            "4 MB at 20 Hz",
            "1000 Mbit/s, no loss",
            // 1.15 times 8 * 4 MiB / 1 Gbit/s.
            &[(Metric::Delivered, 100.0), (Metric::Mean, 38.6)],
            Run {
                rate_hz: 20.0,
                ..run(channel(1000, 0.0), 4 << 20)
            },
        ),
    ]
}

fn sharing() -> Vec<Cell> {
    const GROUP: &str = "Sharing";
    let greedy = Run {
        rate_hz: 60.0,
        qos: Qos::new(Delivery::keep_last(1)),
        ..run(channel(300, 0.0), LARGE)
    };
    let beside_cubic = |name, cubic_from: Duration| {
        let greedy = greedy.clone();
        let targets = [(Metric::ShareOfLink, 40.0), (Metric::LeftToCubic, 30.0)];
        Cell::new(GROUP, name, &targets, move |seed, samples| {
            Run {
                samples: 2 * samples.max(600),
                ..greedy.clone()
            }
            .measure_beside_cubic(seed, cubic_from)
        })
    };
    let links = |name: &str, links: usize, loss: f64, one_after: Duration, targets: &[_]| {
        let qos = Qos::new(Delivery::keep_last(1));
        let bytes = if links > 10 { 64 * KIB } else { LARGE };
        let run = Run {
            qos,
            rate_hz: 60.0,
            ..run(channel(300, loss), bytes)
        };
        Cell::new(GROUP, name, targets, move |seed, samples| {
            Run {
                samples: 2 * samples.max(600),
                ..run.clone()
            }
            .measure_links(seed, links, one_after)
        })
    };
    let fair = [(Metric::Jain, 0.9), (Metric::OfLimit, 85.0)];
    let robots = |loss: f64, when: &str, start: Option<Duration>| {
        let qos = Qos::new(Delivery::keep_last(1));
        // 30 times this is three times 54 Mbit/s.
        let run = Run {
            qos,
            duplex: Duplex::Half,
            ..run(channel(54, loss), 22_500)
        };
        let name = format!(
            "30 robots, half-duplex air of 54 Mbit/s, {}, 3 times over-asked{when}",
            percent(loss)
        );
        Cell::new(GROUP, name, &fair, move |seed, samples| {
            Run {
                samples: samples.max(600),
                ..run.clone()
            }
            .measure_robots(seed, 30, start)
        })
    };
    let even = [(Metric::Apart, 10.0)];
    vec![
        beside_cubic("beside Cubic, which comes later; 300 Mbit/s", 5 * SECOND),
        beside_cubic(
            "joining Cubic, which fills the queue; 300 Mbit/s",
            Duration::ZERO,
        ),
        links("two links, 300 Mbit/s", 2, 0.0, SECOND, &even),
        links("two links, 300 Mbit/s, 20 %", 2, 0.2, SECOND, &even),
        links(
            "30 links in one queue that begin together, 300 Mbit/s",
            30,
            0.0,
            Duration::ZERO,
            &fair,
        ),
        robots(0.0, "", Some(START)),
        robots(0.1, "", Some(START)),
        robots(0.0, ", each connects while others send", None),
    ]
}

fn begin_and_change() -> Vec<Cell> {
    const GROUP: &str = "Beginnings and changes";
    let first = |name: String, settings: Settings, target| {
        Cell::new(
            GROUP,
            name,
            &[(Metric::FirstSample, target)],
            move |seed, _| measure_first_sample(seed, settings, CONNECTIONS),
        )
    };
    let bad_wireless = |name, stalls| {
        let targets = [
            (Metric::OfLimit, 90.0),
            (Metric::OfLimitAfterStep, 90.0),
            (Metric::FirstAfterOutage, 100.0),
        ];
        Cell::new(GROUP, name, &targets, move |seed, _| {
            measure_bad_wireless(seed, stalls)
        })
    };
    let steps = {
        let lossy = channel(300, 0.2);
        let slow = |settings: &mut Settings| settings.rate_bits_per_second = Some(30_000_000);
        let schedule = Schedule::from(lossy)
            .during(4 * SECOND, 4 * SECOND, slow)
            .repeat_every(8 * SECOND);
        Run {
            schedule,
            qos: Qos::new(Delivery::keep_last(1)),
            ..run(lossy, 64 * KIB)
        }
    };
    let rtt_steps = {
        let lossy = channel(300, 0.2);
        let long = |settings: &mut Settings| settings.delay = Duration::from_millis(20);
        let schedule = Schedule::from(lossy)
            .during(4 * SECOND, 4 * SECOND, long)
            .repeat_every(8 * SECOND);
        Run {
            schedule,
            ..run(lossy, LARGE)
        }
    };
    let fast = |millis: f64, loss| Settings {
        delay: Duration::from_secs_f64(millis * 0.5e-3),
        ..channel(300, loss)
    };
    vec![
        first(
            "first sample, RTT 2 ms, no loss".into(),
            fast(2.0, 0.0),
            3.0 * 2.0 + 20.0,
        ),
        first(
            "first sample, RTT 40 ms, no loss".into(),
            fast(40.0, 0.0),
            3.0 * 40.0 + 20.0,
        ),
        first("first sample, RTT 2 ms, 40 %".into(), fast(2.0, 0.4), 500.0),
        bad_wireless("examples/bad-wireless", false),
        bad_wireless(
            "examples/bad-wireless, both hosts stop for up to 20 ms",
            true,
        ),
        Cell::of_run(
            GROUP,
            "300 to 30 to 300 Mbit/s every 4 s, 20 %, 64 KB at 30 Hz",
            &[(Metric::Delivered, 99.0)],
            steps,
        ),
        Cell::of_run(
            GROUP,
            "RTT 2 to 40 to 2 ms every 4 s, 20 %, 512 KB at 30 Hz",
            &[(Metric::Delivered, 99.0)],
            rtt_steps,
        ),
    ]
}
