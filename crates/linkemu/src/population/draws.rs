//! The draws of the properties of a channel.

use std::fmt::Write;
use std::time::Duration;

use super::channel::{Channel, Flow, FlowKind, History, Load, PACKET_BYTES, START};
use crate::network::Draw;
use crate::{
    Aggregation, Aqm, Bursts, Duplex, Outage, Policer, Queue, Schedule, Settings, capacity,
};

/// The length of a load on slow channels.
pub(super) const LONGEST: Duration = Duration::from_secs(12);
pub(super) const SHORTEST: Duration = Duration::from_secs(5);
/// On fast channels about this many packets pass during the load, so that a run takes seconds of
/// computation.
const PACKETS: f64 = 1_000_000.0;
/// The most samples a second, so that a run does not consist of samples.
const MOST_SAMPLES_HZ: f64 = 2000.0;
/// A sample takes no longer than this at the capacity, so that a run has dozens of them.
const LONGEST_SAMPLE: f64 = 0.2;
/// The interval of random walks.
const WALK_STEP: Duration = Duration::from_millis(200);

/// A word of the description for each property.
#[cfg(test)]
pub(super) const WORDS: [&str; 22] = [
    "simple",
    "loss",
    "fades",
    "varying",
    "jitter",
    "reordered",
    "overhead",
    "frames",
    "held",
    "policed",
    "CoDel",
    "FQ-CoDel",
    "ECN",
    "step",
    "walk",
    "outage",
    "half-duplex",
    "Cubic",
    "BBR",
    "own",
    "back",
    "keep all",
];

/// The random numbers of a channel, and the draws so far.
pub(super) struct Draws {
    seed: u64,
    is_simple: bool,
    text: String,
    changes: Vec<Duration>,
}

/// Numbers the properties, each with its own random numbers.
#[derive(Clone, Copy)]
enum Property {
    Simple = 1,
    Path,
    Loss,
    Fades,
    LossWalk,
    Jitter,
    Reorder,
    WiFi,
    PowerSave,
    Policer,
    Aqm,
    RateStep,
    RateWalk,
    Outage,
    Reverse,
    Duplex,
    Flows,
    ReverseFlows,
    Load,
}

impl Draws {
    pub(super) fn new(seed: u64) -> Self {
        let is_simple = draw(seed, Property::Simple).chance(33);
        Self {
            seed,
            is_simple,
            text: String::new(),
            changes: Vec::new(),
        }
    }

    pub(super) fn channel(mut self) -> Channel {
        let path = self.path();
        let rate = path.rate_bits_per_second.expect("it was just drawn") as f64;
        let packets_a_second = rate / (8.0 * f64::from(PACKET_BYTES));
        let length = Duration::from_secs_f64(PACKETS / packets_a_second).clamp(SHORTEST, LONGEST);
        let mut forward = self.varied(path, length);
        let mut reverse = Schedule::from(self.reverse(path));
        if let Some((from, lasting)) = self.outage(length) {
            forward = forward.outage(from, lasting);
            reverse = reverse.outage(from, lasting);
        }
        let duplex = self.duplex();
        let mut channel = Channel {
            seed: self.seed,
            duplex,
            forward,
            reverse,
            flows: Vec::new(),
            load: Load {
                history: History::KeepLast(1),
                sample_bytes: 0,
                rate_hz: 0.0,
            },
            length,
            changes: std::mem::take(&mut self.changes),
            description: String::new(),
        };
        let bits = channel.deliverable_bits(START + length);
        let capacity =
            bits.iter().sum::<f64>() / (bits.len() as f64 * capacity::STEP.as_secs_f64());
        let rtt = 2.0 * path.delay.as_secs_f64();
        channel.load = load(&mut draw(self.seed, Property::Load), capacity, rtt);
        channel.flows = self.flows(length, capacity, rtt);
        let share = channel.load.bits_per_second() / capacity;
        let simple = if self.is_simple { "simple; " } else { "" };
        channel.description = format!("{simple}{}; {} ({:.1}x)", self.text, channel.load, share);
        channel
    }

    /// Rate, delay, queue and other properties that do not change with time.
    fn path(&mut self) -> Settings {
        let mut of = draw(self.seed, Property::Path);
        let rate = log_uniform(&mut of, 1e6, 1e9);
        let rtt = log_uniform(&mut of, 0.001, 0.3);
        // Four packets at least.
        let queue =
            log_uniform(&mut of, 0.002, 1.0).max(4.0 * 8.0 * f64::from(PACKET_BYTES) / rate);
        let bytes = of.chance(50) && !self.is_simple;
        let mut settings = Settings {
            rate_bits_per_second: Some(rate as u64),
            delay: Duration::from_secs_f64(rtt / 2.0),
            queue: match bytes {
                true => Queue::Bytes((queue * rate / 8.0) as u64),
                false => Queue::Time(Duration::from_secs_f64(queue)),
            },
            ..Settings::default()
        };
        let unit = if bytes { "ms (bytes)" } else { "ms" };
        let (rate, rtt, queue) = (rate / 1e6, rtt * 1e3, queue * 1e3);
        let _ = write!(
            self.text,
            "{rate:.1} Mbit/s, RTT {rtt:.1} ms, queue {queue:.0} {unit}"
        );
        self.loss(&mut settings);
        self.disorder(&mut settings);
        self.wifi(&mut settings);
        self.policer(&mut settings);
        self.aqm(&mut settings);
        settings
    }

    fn loss(&mut self, settings: &mut Settings) {
        let mut of = draw(self.seed, Property::Loss);
        if !of.chance(67) {
            return;
        }
        settings.loss = log_uniform(&mut of, 0.005, 0.5);
        let _ = write!(self.text, ", loss {:.1} %", 100.0 * settings.loss);
        let Some(mut of) = self.has(Property::Fades, 25) else {
            return;
        };
        // The same long-term loss, half of it in fades.
        let loss = 0.3 + 0.7 * of.share();
        let share = (settings.loss / 2.0 / loss).min(0.8);
        let bad = log_uniform(&mut of, 0.005, 0.2);
        settings.loss /= 2.0;
        settings.bursts = Some(Bursts {
            good_mean: Duration::from_secs_f64(bad * (1.0 - share) / share),
            bad_mean: Duration::from_secs_f64(bad),
            loss,
        });
        let _ = write!(self.text, " half in fades of {:.0} ms", 1e3 * bad);
    }

    fn disorder(&mut self, settings: &mut Settings) {
        if let Some(mut of) = self.has(Property::Jitter, 25) {
            let jitter = log_uniform(&mut of, 0.0002, 0.03);
            settings.jitter = Duration::from_secs_f64(jitter);
            let _ = write!(self.text, ", jitter {:.1} ms", 1e3 * jitter);
        }
        if let Some(mut of) = self.has(Property::Reorder, 15) {
            settings.reorder = log_uniform(&mut of, 0.001, 0.1);
            let delay = log_uniform(&mut of, 0.0005, 0.02);
            settings.reorder_delay = Duration::from_secs_f64(delay);
            let (share, delay) = (100.0 * settings.reorder, 1e3 * delay);
            let _ = write!(self.text, ", {share:.1} % reordered by {delay:.1} ms");
        }
    }

    fn wifi(&mut self, settings: &mut Settings) {
        let Some(mut of) = self.has(Property::WiFi, 25) else {
            return;
        };
        settings.overhead_bytes = 20 + of.below(60) as u32;
        let _ = write!(self.text, ", overhead {} B", settings.overhead_bytes);
        if of.chance(70) {
            let frame = Aggregation {
                access: Duration::from_micros(50 + of.below(250)),
                longest: Duration::from_micros(1000 + of.below(4484)),
                packets: 8 << of.below(4),
            };
            settings.aggregation = Some(frame);
            let (access, longest) = (frame.access.as_micros(), frame.longest.as_micros());
            let _ = write!(
                self.text,
                ", frames of {} or {longest} us, access {access} us",
                frame.packets
            );
        }
    }

    fn policer(&mut self, settings: &mut Settings) {
        let Some(mut of) = self.has(Property::Policer, 8) else {
            return;
        };
        let rate = settings
            .rate_bits_per_second
            .expect("a rate is drawn first") as f64;
        let policed = rate * (0.3 + 0.6 * of.share());
        let burst = log_uniform(&mut of, 0.005, 0.2) * policed / 8.0;
        settings.policer = Some(Policer {
            rate_bits_per_second: policed as u64,
            burst_bytes: burst.max(20_000.0) as u64,
        });
        let (megabits, kilobytes) = (policed / 1e6, burst.max(20_000.0) / 1e3);
        let _ = write!(
            self.text,
            ", policed to {megabits:.1} Mbit/s and {kilobytes:.0} kB"
        );
    }

    fn aqm(&mut self, settings: &mut Settings) {
        let Some(mut of) = self.has(Property::Aqm, 25) else {
            return;
        };
        let (fair, ecn) = (of.chance(50), of.chance(50));
        // RFC 8289, section 4.4: a target of at least one packet's time.
        let rate = settings
            .rate_bits_per_second
            .expect("a rate is drawn first") as f64;
        let packet = Duration::from_secs_f64(8.0 * f64::from(PACKET_BYTES) / rate);
        let default = Aqm::default();
        settings.aqm = Some(Aqm {
            target: default.target.max(packet),
            fair,
            ecn,
            ..default
        });
        let name = if fair { "FQ-CoDel" } else { "CoDel" };
        let _ = write!(self.text, ", {name}{}", if ecn { " with ECN" } else { "" });
    }

    /// The forward direction over time.
    fn varied(&mut self, path: Settings, length: Duration) -> Schedule {
        let mut schedule = Schedule::from(path);
        let end = START + length + START;
        if path.loss > 0.0
            && let Some(mut of) = self.has(Property::LossWalk, 25)
        {
            let mut share = 1.0;
            for at in times(end, WALK_STEP) {
                share = (share + 0.5 * (of.share() - 0.5)).clamp(0.0, 2.0);
                let loss = (path.loss * share).min(0.6);
                schedule = schedule.change(at, |settings| settings.loss = loss);
            }
            self.text.push_str(", loss varying");
        }
        if let Some(mut of) = self.has(Property::RateWalk, 15) {
            let mut share: f64 = 1.0;
            for at in times(end, WALK_STEP) {
                share = (share * (of.share() - 0.5).exp()).clamp(0.3, 1.0);
                schedule = schedule.change(at, |settings| scale_rate(settings, share, path));
            }
            self.text.push_str(", rate walk");
        }
        if let Some(mut of) = self.has(Property::RateStep, 20) {
            let (first, second) = match of.chance(50) {
                true => (1.0, log_uniform(&mut of, 0.1, 0.7)),
                false => (log_uniform(&mut of, 0.1, 0.7), 1.0),
            };
            let at = START + length.mul_f64(0.3 + 0.2 * of.share());
            schedule = schedule
                .during(Duration::ZERO, at, |settings| {
                    multiply_rate(settings, first)
                })
                .change(at, |settings| multiply_rate(settings, second));
            self.changes.push(at);
            let _ = write!(
                self.text,
                ", step from {first:.2} to {second:.2} of the rate"
            );
        }
        if let Some(mut of) = self.has(Property::PowerSave, 10) {
            let period = Duration::from_secs_f64(log_uniform(&mut of, 0.05, 0.5));
            let held = period
                .mul_f64(0.05 + 0.35 * of.share())
                .min(Duration::from_millis(60));
            for at in times(end, period) {
                schedule =
                    schedule.during(at, held, |settings| settings.outage = Some(Outage::Hold));
            }
            let (held, period) = (held.as_secs_f64() * 1e3, period.as_secs_f64() * 1e3);
            let _ = write!(self.text, ", held {held:.0} ms every {period:.0} ms");
        }
        schedule
    }

    fn outage(&mut self, length: Duration) -> Option<(Duration, Duration)> {
        let mut of = self.has(Property::Outage, 12)?;
        let from = START + length.mul_f64(0.3 + 0.2 * of.share());
        let lasting = Duration::from_secs_f64(log_uniform(&mut of, 0.1, 1.5));
        self.changes.push(from + lasting);
        let _ = write!(
            self.text,
            ", outage of {:.0} ms",
            lasting.as_secs_f64() * 1e3
        );
        Some((from, lasting))
    }

    fn reverse(&mut self, path: Settings) -> Settings {
        let mut settings = Settings {
            policer: None,
            ..path
        };
        let Some(mut of) = self.has(Property::Reverse, 40) else {
            return settings;
        };
        let rate = path.rate_bits_per_second.expect("a rate is drawn first") as f64;
        let ratio = log_uniform(&mut of, 0.1, 1.0);
        let reverse = (rate * ratio).max(500_000.0).min(rate);
        settings.rate_bits_per_second = Some(reverse as u64);
        settings.loss = match of.chance(50) {
            true => 0.0,
            false => log_uniform(&mut of, 0.005, 0.5),
        };
        if let Queue::Bytes(_) = settings.queue {
            settings.queue = Queue::Bytes((0.1 * reverse / 8.0).max(6000.0) as u64);
        }
        let (megabits, loss) = (reverse / 1e6, 100.0 * settings.loss);
        let _ = write!(
            self.text,
            ", way back {megabits:.1} Mbit/s with {loss:.1} % loss"
        );
        settings
    }

    fn duplex(&mut self) -> Duplex {
        match self.has(Property::Duplex, 20) {
            Some(_) => {
                self.text.push_str(", half-duplex");
                Duplex::Half
            }
            None => Duplex::Full,
        }
    }

    fn flows(&mut self, length: Duration, capacity: f64, rtt: f64) -> Vec<Flow> {
        let mut flows = Vec::new();
        if let Some(mut of) = self.has(Property::Flows, 50) {
            for _ in 0..=of.below(4) {
                let kind = match of.below(3) {
                    0 => FlowKind::Cubic,
                    1 => FlowKind::Bbr,
                    _ => FlowKind::Own(load(&mut of, capacity, rtt)),
                };
                let later = START + length.mul_f64(0.1 + 0.4 * of.share());
                let starts = if of.chance(50) { Duration::ZERO } else { later };
                flows.push(Flow {
                    starts,
                    ..Flow::new(kind)
                });
            }
        }
        if let Some(mut of) = self.has(Property::ReverseFlows, 20) {
            for _ in 0..=of.below(2) {
                let kind = if of.chance(67) {
                    FlowKind::Cubic
                } else {
                    FlowKind::Bbr
                };
                flows.push(Flow {
                    is_reverse: true,
                    ..Flow::new(kind)
                });
            }
        }
        for flow in &flows {
            let back = if flow.is_reverse { " back" } else { "" };
            let _ = match flow.kind {
                FlowKind::Cubic => write!(self.text, ", Cubic{back}"),
                FlowKind::Bbr => write!(self.text, ", BBR{back}"),
                FlowKind::Transfers => write!(self.text, ", transfers{back}"),
                FlowKind::Own(load) => {
                    let share = load.bits_per_second() / capacity;
                    write!(self.text, ", own flow of {share:.1}x")
                }
            };
            if !flow.starts.is_zero() {
                let _ = write!(self.text, " from {:.1} s", flow.starts.as_secs_f64());
            }
        }
        flows
    }

    /// The random numbers of a property, if this channel has it.
    fn has(&self, property: Property, percent: u64) -> Option<Draw> {
        let mut of = draw(self.seed, property);
        (of.chance(percent) && !self.is_simple).then_some(of)
    }
}

/// A load of a tenth to three times the capacity.
fn load(of: &mut Draw, capacity: f64, rtt: f64) -> Load {
    let history = of.below(3);
    let bytes_per_second = capacity / 8.0 * log_uniform(of, 0.1, 3.0);
    let least = (bytes_per_second / MOST_SAMPLES_HZ).max(1000.0);
    let most = (capacity / 8.0 * LONGEST_SAMPLE).min(f64::from(4_u32 << 20));
    let sample_bytes = log_uniform(of, least, most.max(least)) as usize;
    let rate_hz = bytes_per_second / sample_bytes as f64;
    let history = match history {
        0 => History::KeepLast(1),
        1 => History::KeepLast(10),
        // Samples count until they are acknowledged.
        _ => History::KeepAll(10 + (2.0 * rtt * rate_hz) as u32),
    };
    Load {
        history,
        sample_bytes,
        rate_hz,
    }
}

fn draw(seed: u64, property: Property) -> Draw {
    let mut draw = Draw::new(seed.wrapping_mul(1_000_003).wrapping_add(property as u64));
    // Neighbouring seeds differ in a few bits at first.
    for _ in 0..8 {
        draw.below(2);
    }
    draw
}

fn log_uniform(of: &mut Draw, from: f64, to: f64) -> f64 {
    from * (to / from).powf(of.share())
}

fn times(end: Duration, step: Duration) -> impl Iterator<Item = Duration> {
    (0..)
        .map(move |number| step * number)
        .take_while(move |at| *at < end)
}

fn scale_rate(settings: &mut Settings, share: f64, path: Settings) {
    let rate = path.rate_bits_per_second.expect("a rate is drawn first") as f64 * share;
    settings.rate_bits_per_second = Some(rate.max(300_000.0) as u64);
}

fn multiply_rate(settings: &mut Settings, factor: f64) {
    let rate = settings
        .rate_bits_per_second
        .expect("a rate is drawn first") as f64
        * factor;
    settings.rate_bits_per_second = Some(rate.max(300_000.0) as u64);
}
