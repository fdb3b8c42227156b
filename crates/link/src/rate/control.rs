//! From measurements to the rate.

use std::collections::VecDeque;

use super::Config;
use super::compete::Claim;
use super::delivery::DeliveryRates;
use super::loss::{LossCount, Losses};

/// The rate for which the configured target of queue delay holds, in bytes per second.
const REFERENCE_RATE: f64 = 54e6 / 8.0;
/// Bounds of the target of queue delay, in seconds.
const TARGET_BOUNDS: (f64, f64) = (0.0025, 0.040);
/// The bottleneck's rate is the largest of this many rounds.
const ROUNDS_REMEMBERED: usize = 10;
/// Sending never exceeds the largest delivery rate, corrected for the channel's loss, by more.
const CAP: f64 = 1.1;
/// The queue is let run empty after so many seconds, or so many round trips if they take longer.
const DRAIN_PERIOD: f64 = 1.0;
const DRAIN_PERIOD_ROUND_TRIPS: f64 = 20.0;
/// Now and then for a whole round trip, since who comes to a queue that stands takes it for the path: after so many
/// seconds, and soon after the start.
const DEEP_DRAIN_PERIOD: f64 = 10.0;
const FIRST_DEEP_DRAIN: f64 = 0.3;
/// The rate while it does, relative to the bottleneck's.
const DRAIN_GAIN: f64 = 0.25;
/// The same beside a flow that fills the queue, where a drain costs its share of the queue.
const COMPETING_DRAIN_PERIOD: f64 = 5.0;
/// Less delivered than this share of what is expected is a fade, or a channel that has become worse if it lasts.
const FADED: f64 = 0.9;
const FADED_WINDOWS: u32 = 4;
/// A queue so much above its target, for more rounds than it takes to bring it down, is looked into.
const ABOVE: f64 = 1.3;
const ABOVE_ROUNDS: u32 = 10;
/// So much more loss than before ends the start.
const START_EXCESS: f64 = 0.2;
/// A flow that takes loss as a sign to slow down does not let it come to this.
const NOT_LOSS_BASED: f64 = 0.05;
const NOT_LOSS_BASED_AFTER: f64 = 1.0;
/// A second drain follows soon, to confirm what the first one found.
const CONFIRM_AFTER: f64 = 0.25;
/// Rates, one after the other, at which it is found out whether loss is the channel's, relative to what passed. Where
/// many flows share a queue, loss falls only once most of them hold back.
const CHECK_GAINS: [f64; 7] = [0.85, 0.7, 0.5, 0.35, 0.2, 0.1, 0.05];
/// The last of them only where the round-trip time may be that of a full queue, in seconds; elsewhere so many do.
const FULL_QUEUE_RTT: f64 = 0.05;
const SHORT_CHECK: usize = 4;
/// Never less than so many bytes in a round trip: two packets.
const LEAST_WINDOW: f64 = 3000.0;
/// Loss is judged over at least this time, in seconds.
const LOSS_WINDOW: f64 = 0.05;

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
    /// Doubling every round trip while the path follows: the rate at which the packets were sent that are reported
    /// on next, and the rounds in a row in which the path did not follow.
    Startup { reported: f64, stalled: u32 },
    /// Holding the queue at its target.
    Hold,
    /// Letting the queue run empty, to see how low the delay gets and what the channel loses by itself.
    /// Little is sent until `restore`; what that did shows until `until`.
    Drain { began: f64, restore: f64, until: f64, from: f64, lowest: f64 },
    /// More was lost than expected: sending less, to see whether that changes.
    Check { began: f64, before: LossCount, passed: f64, queue: f64, step: usize, seen: LossCount },
}

/// A stretch over which loss is judged.
#[derive(Clone, Copy, Debug, Default)]
struct LossWindow {
    began: f64,
    count: LossCount,
    /// More was sent than had passed before, so what was lost may not be the channel's.
    pushing: bool,
    /// Sum of the rates at which packets arrived, and its rounds.
    arrived: f64,
    rounds: f64,
}

impl LossWindow {
    fn begin(time: f64) -> Self {
        Self { began: time, ..Self::default() }
    }

    fn is_full(&self, time: f64) -> bool {
        self.count.is_enough() && time - self.began >= LOSS_WINDOW
    }
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
    next_deep_drain: Option<f64>,
    /// Loss is judged over stretches like this one.
    window: LossWindow,
    /// Stretches in a row with loss in which less was delivered.
    faded: u32,
    /// The queue overflowed at this delay, at this time.
    shallow: Option<(f64, f64)>,
    largest_queue: (f64, f64),
    /// Rounds in a row in which the queue was above its target although we hold back.
    above: u32,
    standing_drains: u32,
    /// Of these, how many left the queue as it was.
    flat_drains: u32,
    /// The bottleneck's rate when the queue last ran empty in a drain.
    proved: Option<f64>,
    base_changed: bool,
    next_drain: f64,
    competing: Option<Claim>,
    competing_loss: LossWindow,
    rtt: f64,
    queue: f64,
    noise: f64,
}

impl Control {
    pub fn new(config: &Config) -> Self {
        Self {
            config: *config,
            phase: Phase::Startup { reported: 0.0, stalled: 0 },
            rate: config.initial_bytes_per_second,
            passed: VecDeque::new(),
            arrived: VecDeque::new(),
            history: VecDeque::new(),
            growing: 0,
            last_empty: 0.0,
            next_deep_drain: None,
            window: LossWindow::default(),
            faded: 0,
            shallow: None,
            largest_queue: (0.0, 0.0),
            above: 0,
            standing_drains: 0,
            flat_drains: 0,
            proved: None,
            base_changed: false,
            next_drain: 0.0,
            competing: None,
            competing_loss: LossWindow::default(),
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

    pub fn competing(&self) -> bool {
        self.competing.is_some()
    }

    /// The target of queue delay, in seconds: it falls with the square root of the rate, so that flows that see the
    /// same queue come to the same rate. (Swift, SIGCOMM 2020, section 3.5: flow-based scaling.)
    fn target(&self) -> f64 {
        let target = self.target_at(self.bottleneck());
        self.shallow.map_or(target, |(queue, _)| target.min(0.6 * queue))
    }

    fn target_at(&self, rate: f64) -> f64 {
        let configured = self.config.target_queue_delay.as_secs_f64();
        let scaled = configured * (REFERENCE_RATE / rate).sqrt();
        scaled.clamp(TARGET_BOUNDS.0, TARGET_BOUNDS.1) + 2.0 * self.noise
    }

    /// A queue above this that stands while we hold back is another flow's, of a kind that fills queues: our own kind
    /// keeps it near the target of flows with their share of the capacity.
    fn standing_queue(&self) -> f64 {
        let target = self.target_at(self.capacity().min(4.0 * self.bottleneck()));
        (1.5 * target).clamp(0.015, 0.050)
    }

    /// The link is heard again after an outage: what it carries now is unknown, so begin at half.
    pub fn on_resumed(&mut self) {
        self.set_rate(self.bottleneck() / 2.0);
        self.phase = Phase::Startup { reported: 0.0, stalled: 0 };
        self.window = LossWindow::default();
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
            Phase::Drain { began, restore, until, from, mut lowest } => {
                if time >= restore {
                    self.set_rate(self.bottleneck());
                }
                if time - began > self.rtt {
                    lowest = lowest.min(queue);
                }
                self.phase = Phase::Drain { began, restore, until, from, lowest };
                if time >= until {
                    self.end_drain(time, from, lowest);
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
        if matches!(self.phase, Phase::Startup { .. }) {
            losses.learn_at_start(round.loss);
        }
        self.remember(round, losses);
        match self.phase {
            Phase::Startup { .. } => self.startup(round, losses),
            Phase::Drain { .. } => losses.learn_channel(round.loss),
            Phase::Check { .. } => self.check(round, losses),
            Phase::Hold => self.hold(round, losses),
        }
        self.limit(losses);
    }

    fn remember(&mut self, round: &Round, losses: &Losses) {
        let DeliveryRates { sent, mut passed, arrived, backlogged } = round.delivery;
        if losses.is_excess(round.loss) || matches!(self.phase, Phase::Startup { .. }) {
            // What a full queue dropped has not passed.
            passed = passed.min(arrived / (1.0 - losses.channel()));
        }
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
        self.history.retain(|(at, _)| round.time - at < 60.0);
    }

    fn startup(&mut self, round: &Round, losses: &Losses) {
        let Phase::Startup { reported, mut stalled } = self.phase else { return };
        let followed = round.delivery.arrived > 0.7 * reported * (1.0 - losses.channel());
        stalled = if followed || !round.delivery.backlogged { 0 } else { stalled + 1 };
        let overflows = round.loss.sent >= 20.0 && round.loss.share() > losses.channel() + START_EXCESS;
        if stalled >= 3 || (stalled > 0 && overflows) {
            self.begin_check(round, round.delivery.arrived, round.loss, losses);
            return;
        }
        self.phase = Phase::Startup { reported: self.rate, stalled };
        if stalled == 0 && round.delivery.backlogged {
            // What is reported on was sent two doublings ago, if the window did not keep it back.
            let delivered = round.delivery.arrived / (1.0 - losses.channel());
            self.set_rate((2.0 * self.rate).min(4.5 * delivered));
        }
    }

    fn hold(&mut self, round: &Round, losses: &mut Losses) {
        self.window.count.add(round.loss);
        self.window.pushing |= self.rate > 1.02 * self.bottleneck();
        self.window.arrived += round.delivery.arrived;
        self.window.rounds += 1.0;
        let full = self.window.is_full(round.time);
        if self.competing.is_some() {
            self.compete(round, losses);
        } else if full
            && round.queue < 2.0 * self.target()
            && losses.channel_is_known()
            && self.loss_asks_for_check(losses)
        {
            // The queue does not show it, so it may be the channel's, or that of a short queue.
            self.begin_check(round, round.delivery.arrived, self.window.count, losses);
            return;
        } else {
            self.follow_queue(round);
        }
        if full {
            if self.faded == 0 && (!self.window.pushing || !losses.channel_is_known()) {
                losses.learn_channel(self.window.count);
            }
            self.window = LossWindow::begin(round.time);
        }
        let period = match self.competing {
            Some(claim) if claim.is_measured() => COMPETING_DRAIN_PERIOD,
            Some(_) => COMPETING_DRAIN_PERIOD / 2.0,
            None => DRAIN_PERIOD,
        };
        if !round.delivery.backlogged {
            // There were pauses, in which the queue could run empty.
            self.next_deep_drain = Some(round.time + DEEP_DRAIN_PERIOD);
        }
        let deep = *self.next_deep_drain.get_or_insert(round.time + FIRST_DEEP_DRAIN);
        let due = self.last_empty + period.max(DRAIN_PERIOD_ROUND_TRIPS * round.rtt);
        self.above = if round.queue > ABOVE * self.target() { self.above + 1 } else { 0 };
        let urgent = self.competing.is_none() && self.above > ABOVE_ROUNDS && round.time > self.next_drain;
        if urgent || round.time > due.max(self.next_drain).min(deep) {
            self.above = 0;
            self.begin_drain(round.time, round.time > deep);
        }
    }

    /// Whether more is lost than expected, and not by a fade: a queue that overflows passes on as much as before, so
    /// loss with less delivered is the channel's at first, and looked into only if it stays.
    fn loss_asks_for_check(&mut self, losses: &Losses) -> bool {
        if !losses.is_excess(self.window.count) {
            self.faded = 0;
            return false;
        }
        let expected = self.bottleneck() * (1.0 - losses.channel());
        let faded = self.window.arrived < FADED * self.window.rounds * expected;
        self.faded = if faded { self.faded + 1 } else { 0 };
        !faded || self.faded >= FADED_WINDOWS
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
        // A rate above the bottleneck's by a share s makes the queue s longer every second; the error in the queue is
        // to be gone after a round trip and a half, the time for which the effect of a change is not seen.
        let correction = (target - round.queue) / (1.5 * round.rtt + 0.004);
        let gain = 1.0 + correction.clamp(-0.5, up * distance.max(0.0));
        self.set_rate(gain * self.bottleneck());
    }

    /// The claimed rate, approached by the steps that the cap allows.
    fn compete(&mut self, round: &Round, losses: &Losses) {
        let Some(mut claim) = self.competing else { return };
        if self.window.is_full(round.time) && losses.is_excess(self.window.count) {
            claim.on_excess_loss(round.time);
        }
        self.competing_loss.count.add(round.loss);
        if round.time - self.competing_loss.began > NOT_LOSS_BASED_AFTER {
            let loss = std::mem::replace(&mut self.competing_loss, LossWindow::begin(round.time));
            if loss.count.share() > losses.channel() + NOT_LOSS_BASED {
                self.competing = None;
                self.set_rate(0.5 * self.bottleneck());
                return;
            }
        }
        let wanted = claim.rate(round.time);
        self.competing = Some(claim);
        let known = self.bottleneck();
        self.growing = if wanted > 1.3 * known { self.growing + 1 } else { 0 };
        let step = if self.growing > 3 { 1.25 } else { CAP };
        self.set_rate(wanted.clamp(0.7 * known, step * known));
    }

    /// The most that passed in the last minute.
    fn capacity(&self) -> f64 {
        self.history.iter().map(|(_, rate)| *rate).fold(self.bottleneck(), f64::max)
    }

    fn begin_drain(&mut self, time: f64, deep: bool) {
        // What is waiting now leaves the queue in `queue`; the rest keeps it from filling up again meanwhile.
        let mut lasting = 1.5 * self.queue / (1.0 - DRAIN_GAIN) + 0.002;
        if deep {
            lasting = lasting.max(self.rtt);
            self.next_deep_drain = Some(time + DEEP_DRAIN_PERIOD);
        }
        let restore = time + lasting;
        let until = restore + self.rtt + 0.002;
        self.phase = Phase::Drain { began: time, restore, until, from: self.queue, lowest: f64::INFINITY };
        self.set_rate(DRAIN_GAIN * self.bottleneck());
    }

    /// A queue that stands although we held back is another flow's.
    fn end_drain(&mut self, time: f64, from: f64, lowest: f64) {
        self.phase = Phase::Hold;
        self.last_empty = time;
        self.next_drain = time + CONFIRM_AFTER;
        self.window = LossWindow::begin(time);
        self.set_rate(self.bottleneck());
        let flat = lowest > ABOVE * self.target() && self.is_flat(from, lowest);
        self.flat_drains = if flat { self.flat_drains + 1 } else { 0 };
        if !flat && lowest <= self.standing_queue() {
            (self.standing_drains, self.flat_drains) = (0, 0);
            self.proved = Some(self.bottleneck());
            self.competing = None;
            return;
        }
        self.standing_drains += 1;
        if self.flat_drains >= 2 {
            self.base_changed = true;
            self.standing_drains = 0;
            self.competing = None;
        } else if self.standing_drains == 1 || self.flat_drains == 1 {
            // A second one is to confirm it.
            self.last_empty = f64::NEG_INFINITY;
        } else {
            let begun = Claim::new(time, self.config.competing_share, self.capacity());
            let mut claim = self.competing.unwrap_or(begun);
            claim.on_drain(self.bottleneck(), from, lowest);
            if self.competing.replace(claim).is_none() {
                self.competing_loss = LossWindow::begin(time);
            }
        }
    }

    /// What stands is no queue, but the path has become longer: nothing left it while we held back, though much of the
    /// traffic is ours.
    fn is_flat(&self, from: f64, lowest: f64) -> bool {
        self.proved.is_some_and(|rate| self.bottleneck() > 0.25 * rate) && from - lowest < 0.001 + self.noise
    }

    /// True once when the smallest delay that was seen is that of the path no more.
    pub fn take_base_changed(&mut self) -> bool {
        std::mem::take(&mut self.base_changed)
    }

    fn begin_check(&mut self, round: &Round, delivered: f64, before: LossCount, losses: &Losses) {
        // A fade delivers nothing for a moment; that is no reason to begin from nothing.
        let passed = (delivered / (1.0 - losses.channel())).max(0.6 * self.bottleneck());
        let (began, queue, seen) = (round.time, round.queue, LossCount::default());
        self.phase = Phase::Check { began, before, passed, queue, step: 0, seen };
        self.set_rate(CHECK_GAINS[0] * passed);
    }

    fn check(&mut self, round: &Round, losses: &mut Losses) {
        let Phase::Check { began, before, passed, queue, step, mut seen } = self.phase else { return };
        // What is reported in the first round trip was sent before.
        if round.time - began > 1.2 * round.rtt {
            seen.add(round.loss);
        }
        if !seen.is_enough() || round.time - began < 1.2 * round.rtt + LOSS_WINDOW {
            self.phase = Phase::Check { began, before, passed, queue, step, seen };
            return;
        }
        if before.exceeds(seen) {
            // Congestion. Go on from here; the queue's delay comes too late to tell, so aim below it.
            losses.set_channel(losses.channel().min(seen.share()));
            if queue < self.target() {
                self.shallow = Some((queue.max(0.001), round.time));
            }
            self.passed.clear();
            self.passed.push_back(CHECK_GAINS[step] * passed);
        } else if step + 1 < self.check_steps(round.rtt, losses) {
            let (began, step, seen) = (round.time, step + 1, LossCount::default());
            self.phase = Phase::Check { began, before, passed, queue, step, seen };
            self.set_rate(CHECK_GAINS[step] * passed);
            return;
        } else {
            losses.set_channel(seen.share());
        }
        self.phase = Phase::Hold;
        self.window = LossWindow::begin(round.time);
        self.set_rate(self.bottleneck());
    }

    /// Who has met this loss before knows it for the channel's.
    fn check_steps(&self, rtt: f64, losses: &Losses) -> usize {
        let known = losses.channel_is_known() && losses.channel() > 0.05;
        if known || rtt < FULL_QUEUE_RTT { SHORT_CHECK } else { CHECK_GAINS.len() }
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
        // So much that there is always something to measure by; as the queue grows, it gets less. (RFC 8085, section
        // 3.1.1, would have one packet a round trip of those that measure nothing.)
        let least = LEAST_WINDOW / self.rtt.max(0.02);
        let least = least.clamp(self.config.min_bytes_per_second, self.config.max_bytes_per_second);
        self.rate = rate.clamp(least, self.config.max_bytes_per_second);
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
