//! From measurements to the rate.

use std::collections::VecDeque;

use super::Config;
use super::compete::{BETA, Cubic};
use super::delivery::DeliveryRates;
use super::loss::{LossCount, Losses};

/// The rate for which the configured target of queue delay holds, in bytes per second.
const REFERENCE_RATE: f64 = 54e6 / 8.0;
/// Bounds of the target of queue delay, in seconds.
const TARGET_BOUNDS: (f64, f64) = (0.0025, 0.060);
/// The bottleneck's rate is the largest of this many rounds.
const ROUNDS_REMEMBERED: usize = 10;
/// Sending never exceeds the largest delivery rate, corrected for the channel's loss, by more.
const CAP: f64 = 1.1;
/// The queue is let run empty after so many seconds, or so many round trips if they take longer.
const DRAIN_PERIOD: f64 = 1.0;
const DRAIN_PERIOD_ROUND_TRIPS: f64 = 20.0;
/// The rate while it does, relative to the bottleneck's.
const DRAIN_GAIN: f64 = 0.25;
/// The same beside a flow that fills the queue, where a drain costs its share of the queue.
const COMPETING_DRAIN_PERIOD: f64 = 5.0;
/// A second drain follows soon, to confirm what the first one found.
const CONFIRM_AFTER: f64 = 0.25;
/// The rate while it is found out whether loss is the channel's, relative to what is delivered.
const CHECK_GAIN: f64 = 0.85;
/// How large a window counts in Cubic's packets, in bytes.
const PACKET_BYTES: f64 = 1500.0;

/// What one round measured. Times in seconds.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    pub time: f64,
    pub rtt: f64,
    pub queue: f64,
    pub noise: f64,
    pub delivery: DeliveryRates,
    pub loss: LossCount,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// Doubling while the path follows; rounds in a row in which it did not.
    Startup { stalled: u32 },
    /// Holding the queue at its target.
    Hold,
    /// Letting the queue run empty, to see how low the delay gets and what the channel loses by itself.
    Drain { began: f64, until: f64, lowest: f64 },
    /// More was lost than expected: sending less, to see whether that changes.
    Check { began: f64, before: LossCount, delivered: f64, queue: f64, seen: LossCount },
}

/// The law. See the module and [`super`].
#[derive(Debug)]
pub struct Control {
    config: Config,
    phase: Phase,
    rate: f64,
    /// What the bottleneck passed in recent rounds, lost packets included.
    passed: VecDeque<f64>,
    /// What was delivered in recent rounds.
    arrived: VecDeque<f64>,
    /// The largest bottleneck rate of the last while: (time, rate).
    history: VecDeque<(f64, f64)>,
    /// Rounds in a row with an empty queue in which more was passed than before.
    growing: u32,
    last_empty: f64,
    window: LossCount,
    /// The queue overflowed at this delay, at this time.
    shallow: Option<(f64, f64)>,
    largest_queue: (f64, f64),
    standing_drains: u32,
    next_drain: f64,
    competing: Option<Cubic>,
    rtt: f64,
    queue: f64,
    noise: f64,
}

impl Control {
    pub fn new(config: &Config) -> Self {
        Self {
            config: *config,
            phase: Phase::Startup { stalled: 0 },
            rate: config.initial_bytes_per_second,
            passed: VecDeque::new(),
            arrived: VecDeque::new(),
            history: VecDeque::new(),
            growing: 0,
            last_empty: 0.0,
            window: LossCount::default(),
            shallow: None,
            largest_queue: (0.0, 0.0),
            standing_drains: 0,
            next_drain: 0.0,
            competing: None,
            rtt: 0.0,
            queue: 0.0,
            noise: 0.0,
        }
    }

    pub fn bytes_per_second(&self) -> f64 {
        self.rate
    }

    pub fn bottleneck(&self) -> f64 {
        largest(&self.passed).unwrap_or(self.rate)
    }

    #[cfg(test)]
    pub fn phase_name(&self) -> char {
        match self.phase {
            Phase::Startup { .. } => 'S',
            Phase::Hold => 'H',
            Phase::Drain { .. } => 'D',
            Phase::Check { .. } => 'C',
        }
    }

    pub fn competing(&self) -> bool {
        self.competing.is_some()
    }

    /// The target of queue delay, in seconds: it falls with the square root of the rate, so that flows that see the
    /// same queue come to the same rate. (Swift, SIGCOMM 2020, section 3.5: flow-based scaling.)
    fn target(&self) -> f64 {
        let configured = self.config.target_queue_delay.as_secs_f64();
        let scaled = configured * (REFERENCE_RATE / self.bottleneck()).sqrt();
        let target = scaled.clamp(TARGET_BOUNDS.0, TARGET_BOUNDS.1) + 2.0 * self.noise;
        self.shallow.map_or(target, |(queue, _)| target.min(queue / 2.0))
    }

    /// The link is heard again after an outage: what it carries now is unknown, so begin at half.
    pub fn on_resumed(&mut self) {
        self.set_rate(self.bottleneck() / 2.0);
        self.phase = Phase::Startup { stalled: 0 };
        self.window = LossCount::default();
        self.competing = None;
        self.standing_drains = 0;
    }

    /// What cannot wait for the end of a round: the end of startup and of a drain.
    pub fn on_report(&mut self, time: f64, queue: f64, noise: f64) {
        self.queue = queue;
        self.noise = noise;
        if queue < 0.2 * self.target() {
            self.last_empty = time;
        }
        match self.phase {
            Phase::Drain { began, until, mut lowest } => {
                let answered = time - began > self.rtt;
                if answered {
                    lowest = lowest.min(queue);
                    self.phase = Phase::Drain { began, until, lowest };
                }
                if time >= until || (answered && lowest < 0.001 + noise) {
                    self.end_drain(time, lowest);
                }
            }
            Phase::Startup { .. } if queue > 0.5 * self.target() + 2.0 * noise && !self.passed.is_empty() => {
                self.set_rate(self.bottleneck() * 0.8);
                self.phase = Phase::Hold;
            }
            _ => {}
        }
    }

    pub fn on_round(&mut self, round: &Round, losses: &mut Losses) {
        self.rtt = round.rtt;
        self.noise = round.noise;
        self.remember(round);
        match self.phase {
            Phase::Startup { stalled } => self.startup(round, stalled, losses),
            Phase::Drain { .. } => losses.learn_channel(round.loss),
            Phase::Check { .. } => self.check(round, losses),
            Phase::Hold => self.hold(round, losses),
        }
        self.limit(losses);
    }

    fn remember(&mut self, round: &Round) {
        let DeliveryRates { sent, passed, arrived, backlogged } = round.delivery;
        if round.queue > self.largest_queue.1 || round.time - self.largest_queue.0 > 30.0 {
            self.largest_queue = (round.time, round.queue);
        }
        self.shallow = self.shallow.filter(|(_, at)| round.time - at < 10.0);
        if matches!(self.phase, Phase::Drain { .. } | Phase::Check { .. }) {
            return;
        }
        let sample = passed.min(sent);
        let overloaded = sent > 1.02 * passed && round.queue > 0.5 * self.target();
        if overloaded {
            // The queue was never empty, so what passed is what can pass, now.
            let known = self.bottleneck().min(2.0 * passed);
            self.passed.clear();
            self.passed.push_back(known + 0.5 * (passed - known));
            self.arrived.clear();
            self.arrived.push_back(arrived);
        } else if backlogged || sample > self.bottleneck() || self.passed.is_empty() {
            push(&mut self.passed, sample);
            push(&mut self.arrived, arrived);
        }
        match self.history.back_mut() {
            Some((at, rate)) if round.time - *at < 1.0 => *rate = rate.max(sample),
            _ => self.history.push_back((round.time, sample)),
        }
        self.history.retain(|(at, _)| round.time - at < 20.0);
    }

    fn startup(&mut self, round: &Round, stalled: u32, losses: &mut Losses) {
        let before = self.rate / 2.0;
        let grew = round.delivery.arrived > 1.2 * before * (1.0 - losses.smoothed());
        let stalled = if !round.delivery.backlogged || grew { 0 } else { stalled + 1 };
        if stalled >= 3 {
            let delivered = largest(&self.arrived).unwrap_or(round.delivery.arrived);
            self.begin_check(round, delivered, LossCount { sent: 1.0, lost: losses.smoothed() });
            return;
        }
        self.phase = Phase::Startup { stalled };
        self.set_rate(2.0 * self.bottleneck());
    }

    fn hold(&mut self, round: &Round, losses: &mut Losses) {
        self.window.add(round.loss);
        if self.competing.is_some() {
            self.compete(round, losses);
        } else if self.window.is_enough() && losses.channel_is_known() && losses.is_excess(self.window) {
            let delivered = round.delivery.arrived;
            self.begin_check(round, delivered, self.window);
            return;
        } else {
            self.follow_queue(round);
        }
        if self.window.is_enough() {
            if self.rate < self.bottleneck() || self.window.share() < losses.channel() {
                losses.learn_channel(self.window);
            }
            self.window = LossCount::default();
        }
        let period = match self.competing {
            Some(_) => COMPETING_DRAIN_PERIOD,
            None => DRAIN_PERIOD,
        };
        let due = self.last_empty + period.max(DRAIN_PERIOD_ROUND_TRIPS * round.rtt);
        if round.time > due.max(self.next_drain) {
            self.begin_drain(round.time);
        }
    }

    /// The distance from the target of queue delay gives the rate relative to what the bottleneck passes: a queue
    /// integrates the difference of rates, so this is of first order and does not swing.
    fn follow_queue(&mut self, round: &Round) {
        let target = self.target();
        let distance = ((target - round.queue) / target).clamp(-1.0, 1.0);
        let grew = round.delivery.backlogged && round.delivery.sent > 0.95 * self.rate;
        self.growing = if distance > 0.6 && grew { self.growing + 1 } else { 0 };
        // As long as the queue stays empty and the path follows, steps get larger. (Copa's velocity.)
        let up = match self.growing {
            0..=3 => 0.1,
            4..=6 => 0.25,
            7..=9 => 0.5,
            _ => 1.0,
        };
        let gain = if distance > 0.0 { 1.0 + up * distance } else { 1.0 + 0.5 * distance };
        self.set_rate(gain * self.bottleneck());
    }

    fn compete(&mut self, round: &Round, losses: &mut Losses) {
        let Some(mut cubic) = self.competing else { return };
        let window = self.bottleneck() * round.rtt / PACKET_BYTES;
        let full = round.queue > 0.8 * self.largest_queue.1;
        let expected = losses.channel() * round.loss.sent;
        if full && round.loss.lost > expected + 2.0 * (expected * (1.0 - losses.channel())).sqrt() {
            cubic.on_overflow(round.time, window);
        }
        self.competing = Some(cubic);
        let wanted = cubic.window(round.time, round.rtt) * PACKET_BYTES / round.rtt.max(1e-3);
        self.set_rate(wanted.clamp(BETA * self.bottleneck(), CAP * self.bottleneck()));
    }

    fn begin_drain(&mut self, time: f64) {
        let until = time + 1.5 * self.queue + 1.5 * self.rtt + 0.005;
        self.phase = Phase::Drain { began: time, until, lowest: f64::INFINITY };
        self.set_rate(DRAIN_GAIN * self.bottleneck());
    }

    /// A queue that stands although we held back is another flow's.
    fn end_drain(&mut self, time: f64, lowest: f64) {
        self.phase = Phase::Hold;
        self.last_empty = time;
        self.window = LossCount::default();
        self.set_rate(self.bottleneck());
        if lowest <= 2.0 * self.target() {
            self.standing_drains = 0;
            self.competing = None;
            return;
        }
        self.standing_drains += 1;
        if self.standing_drains == 1 {
            self.next_drain = time + CONFIRM_AFTER;
            self.last_empty = time - DRAIN_PERIOD;
        } else if self.competing.is_none() {
            let most = self.history.iter().map(|(_, rate)| *rate).fold(self.bottleneck(), f64::max);
            let fair = (most / 2.0).max(self.bottleneck()) * self.rtt / PACKET_BYTES;
            self.competing = Some(Cubic::new(time, fair));
        }
    }

    fn begin_check(&mut self, round: &Round, delivered: f64, before: LossCount) {
        self.phase = Phase::Check {
            began: round.time,
            before,
            delivered,
            queue: round.queue,
            seen: LossCount::default(),
        };
        self.window = LossCount::default();
        // A fade delivers nothing for a moment; that is no reason to begin from nothing.
        self.set_rate((CHECK_GAIN * delivered).max(0.5 * self.bottleneck()));
    }

    fn check(&mut self, round: &Round, losses: &mut Losses) {
        let Phase::Check { began, before, delivered, queue, mut seen } = self.phase else { return };
        // What is reported in the first round trip was sent before.
        if round.time - began > 1.2 * round.rtt {
            seen.add(round.loss);
        }
        if !seen.is_enough() {
            self.phase = Phase::Check { began, before, delivered, queue, seen };
            return;
        }
        let fell = before.share() - seen.share() > 0.02 + 0.2 * before.share();
        losses.set_channel(seen.share());
        if fell {
            self.shallow = Some((queue.max(0.001), round.time));
            self.passed.clear();
            self.passed.push_back(delivered / (1.0 - losses.channel()));
        }
        self.phase = Phase::Hold;
        self.window = LossCount::default();
        self.set_rate(self.bottleneck());
    }

    /// Never much more than what is delivered, corrected for the channel's own loss, outside startup.
    fn limit(&mut self, losses: &Losses) {
        let startup = matches!(self.phase, Phase::Startup { .. });
        if let Some(arrived) = largest(&self.arrived)
            && !startup
            && losses.channel_is_known()
        {
            let gain = if self.growing > 3 { 2.0 } else { CAP };
            self.set_rate(self.rate.min(gain * arrived / (1.0 - losses.channel())));
        }
    }

    fn set_rate(&mut self, rate: f64) {
        self.rate = rate.clamp(self.config.min_bytes_per_second, self.config.max_bytes_per_second);
    }
}

fn largest(values: &VecDeque<f64>) -> Option<f64> {
    values.iter().copied().reduce(f64::max)
}

fn push(values: &mut VecDeque<f64>, value: f64) {
    if values.len() == ROUNDS_REMEMBERED {
        values.pop_front();
    }
    values.push_back(value);
}
