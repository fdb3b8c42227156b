//! From measurements to the rate.

use std::collections::VecDeque;

use super::compete::{Capacity, Claim};
use super::config::Config;
use super::delivery::DeliveryRates;
use super::loss::{LossCount, Losses};
use super::recent::Recent;

/// The rate for which the configured target of queue delay holds, in bytes per second.
const REFERENCE_RATE: f64 = 54e6 / 8.0;
const ABOVE_ROUNDS: u32 = 10;
/// This many drains that leave the queue above its target show such a flow, however low it seems to stand: a flow that
/// joins a full queue takes most of it for the path. Flows of our kind give way long before.
const CROWDED_DRAINS: u32 = 3;
/// A rate was tried of which this part was sent.
const TRIED: f64 = 0.5;
const NOT_LOSS_BASED_AFTER: f64 = 1.0;
/// A second drain follows soon, to confirm what the first one found: after this many seconds and round trips, or, where
/// nothing is claimed yet and each costs little, after fewer round trips.
const CONFIRM_AFTER: f64 = 0.25;
const CONFIRM_ROUND_TRIPS: f64 = 10.0;
const SUSPECT_ROUND_TRIPS: f64 = 5.0;
/// What a drain finds of the queue, and what it leaves, is averaged over what was sent around its beginning and its end: so
/// many seconds before and after, and more where the queue is longer.
const AROUND: f64 = 0.002;
const AROUND_OF_QUEUE: f64 = 0.1;
/// At least this many bytes in a round trip: two packets.
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
    /// Packets that the path marked for congestion.
    pub marks: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// Raising the rate as soon as the path is seen to follow the last time: the rounds in a row in which it did not.
    /// `crowded`: the reports in a row that found the queue long. Two make the running round the last: one may be a
    /// receiver that was stopped while nothing arrived.
    Startup { stalled: u32, crowded: u32 },
    /// Holding the queue at its target.
    Hold,
    /// Letting the queue run empty, to see how low the delay gets and what the channel loses by itself.
    Drain(Drain),
}

/// Little is sent until `restore`. Times in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Drain {
    /// The rate, the round-trip time and the queue before it.
    before: f64,
    rtt: f64,
    queue: f64,
    began: f64,
    restore: f64,
    /// The queue that was sent into at the beginning, ..
    from: Mean,
    /// .. the shortest, ..
    lowest: f64,
    /// .. and what was left of it at the end.
    left: Mean,
}

impl Drain {
    /// For how long around its beginning and its end the queue is averaged.
    fn around(&self) -> f64 {
        AROUND + AROUND_OF_QUEUE * self.queue
    }

    /// `waiting` is the queue without what comes and goes.
    fn on_report(&mut self, time: f64, queue: f64, waiting: f64) {
        if time - self.began > self.rtt {
            self.lowest = self.lowest.min(waiting);
        }
        // What the report is on took the path as it was without the queue, and the queue as it is now.
        let sent = time - (self.rtt - self.queue + queue);
        let around = self.around();
        for (instant, mean) in [(self.began, &mut self.from), (self.restore, &mut self.left)] {
            if (sent - instant).abs() < around {
                mean.add(queue);
            }
        }
    }

    /// The queue that was there when it began. What is seen at that moment may have waited for a host that was stopped,
    /// as a drain begins with the first report after it.
    fn from(&self) -> f64 {
        self.from.value().unwrap_or(self.queue)
    }

    /// The queue that is left when all is held back.
    fn left(&self) -> f64 {
        self.left.value().unwrap_or(self.lowest)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Mean {
    sum: f64,
    count: f64,
}

impl Mean {
    fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1.0;
    }

    fn value(&self) -> Option<f64> {
        (self.count > 0.0).then(|| self.sum / self.count)
    }
}

const STARTUP: Phase = Phase::Startup {
    stalled: 0,
    crowded: 0,
};
/// Reports in a row of a long queue that are believed.
const CROWDED_REPORTS: u32 = 2;

/// A stretch over which loss is judged.
#[derive(Clone, Copy, Debug, Default)]
struct LossWindow {
    began: f64,
    count: LossCount,
}

impl LossWindow {
    fn begin(time: f64) -> Self {
        Self {
            began: time,
            ..Self::default()
        }
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
    /// What the bottleneck passed, lost packets included.
    passed: Recent,
    /// What was delivered.
    arrived: Recent,
    /// There was a round in which there was always something to send: what passed is what can pass.
    measured: bool,
    /// The largest bottleneck rate of the last while: (time, rate).
    history: VecDeque<(f64, f64)>,
    /// What passed in the last round, if it was less than was sent and the queue stood.
    overloaded: Option<f64>,
    /// What the start found to pass, until a queue confirms it.
    doubted: Option<f64>,
    /// The rate before the last round, at which the packets of the next were sent.
    rate_before: f64,
    /// Rounds in a row with an empty queue in which more was passed than before.
    growing: u32,
    last_empty: f64,
    next_deep_drain: Option<f64>,
    /// Loss is judged over stretches like this one.
    window: LossWindow,
    /// In the last of them more was lost than the channel loses.
    excess: bool,
    /// Rounds in a row in which the queue was above its target although we hold back.
    above: u32,
    standing_drains: u32,
    /// Of these, how many left the queue as it was.
    flat_drains: u32,
    /// Drains after which the queue, most of which is not ours, was above its target; those after which it was not count
    /// against them.
    crowded_drains: u32,
    /// The capacity, as drains measured it since the queue is not ours alone.
    capacity: Capacity,
    /// The bottleneck's rate when the queue last ran empty in a drain.
    proved: Option<f64>,
    base_changed: bool,
    next_drain: f64,
    competing: Option<Claim>,
    /// When a mark was last heeded.
    marked: f64,
    /// When a drain last found a queue standing.
    contested: f64,
    competing_loss: LossWindow,
    rtt: f64,
    queue: f64,
    /// The queue without what comes and goes within some reports: bursts of others.
    waiting: f64,
    noise: f64,
}

impl Control {
    pub fn new(config: &Config) -> Self {
        Self {
            config: *config,
            phase: STARTUP,
            rate: config.initial_bytes_per_second,
            passed: Recent::default(),
            arrived: Recent::default(),
            measured: false,
            history: VecDeque::new(),
            overloaded: None,
            doubted: None,
            rate_before: config.initial_bytes_per_second,
            growing: 0,
            last_empty: 0.0,
            next_deep_drain: None,
            window: LossWindow::default(),
            excess: false,
            above: 0,
            standing_drains: 0,
            flat_drains: 0,
            crowded_drains: 0,
            capacity: Capacity::default(),
            proved: None,
            base_changed: false,
            next_drain: 0.0,
            competing: None,
            marked: f64::NEG_INFINITY,
            contested: f64::NEG_INFINITY,
            competing_loss: LossWindow::default(),
            rtt: 0.0,
            queue: 0.0,
            waiting: 0.0,
            noise: 0.0,
        }
    }

    pub fn bytes_per_second(&self) -> f64 {
        self.rate
    }

    /// The rate for which what is under way suffices: a drain holds back three quarters of it, no more, as what it shows is
    /// judged by that.
    pub fn window_bytes_per_second(&self) -> f64 {
        match self.phase {
            Phase::Drain(drain) => drain.before.max(self.rate),
            _ => self.rate,
        }
    }

    pub fn is_starting(&self) -> bool {
        matches!(self.phase, Phase::Startup { .. })
    }

    /// Whether the start ends with the running round.
    pub fn is_last_of_start(&self) -> bool {
        matches!(
            self.phase,
            Phase::Startup {
                crowded: CROWDED_REPORTS,
                ..
            }
        )
    }

    /// Whether any rate was seen to pass.
    pub fn knows_bottleneck(&self) -> bool {
        self.passed.largest().is_some()
    }

    pub fn bottleneck(&self) -> f64 {
        self.passed.largest().unwrap_or(self.rate)
    }

    pub fn competing(&self) -> bool {
        self.competing.is_some()
    }

    /// The longest time between two drains of the queue, in seconds.
    pub fn drain_period(&self) -> f64 {
        let period = if self.competing() {
            self.config.constants.competing_drain_period
        } else {
            self.config.constants.drain_period
        };
        period.max(self.config.constants.drain_period_round_trips * self.rtt)
    }

    /// The target of queue delay, in seconds: it falls with the square root of the rate, so that flows that see the
    /// same queue come to the same rate. (Swift, SIGCOMM 2020, section 3.5: flow-based scaling.)
    pub fn target(&self) -> f64 {
        self.target_at(self.bottleneck())
    }

    fn target_at(&self, rate: f64) -> f64 {
        let configured = self.config.target_queue_delay.as_secs_f64();
        let scaled = configured * (REFERENCE_RATE / rate).sqrt();
        scaled.clamp(
            self.config.constants.target_least,
            self.config.constants.target_most,
        ) + 2.0 * self.noise
    }

    /// A queue above this that stands while we hold back is another flow's, of a kind that fills queues: our own kind
    /// keeps it near the target of flows with their share of the capacity.
    fn standing_queue(&self) -> f64 {
        (self.config.constants.standing * self.target()).clamp(0.006, 0.080)
    }

    /// The first report shows how long the path is, and so when the second rate will be known.
    pub fn on_first_report(&mut self, rtt: f64) {
        self.set_rate(
            (1.0 + self.config.constants.first_rate_growth
                * (rtt / self.config.constants.long_rtt).min(1.0))
                * self.config.initial_bytes_per_second,
        );
    }

    /// The link is heard again after an outage: what it carries now is unknown, so begin at half.
    pub fn on_resumed(&mut self) {
        if self.measured {
            self.set_rate(self.bottleneck() / 2.0);
        }
        self.passed.clear();
        self.arrived.clear();
        self.phase = STARTUP;
        self.window = LossWindow::default();
        self.competing = None;
        self.standing_drains = 0;
    }

    /// What cannot wait for the end of a round: the end of startup and of a drain. `measuring`: packets of the running round
    /// have been reported on.
    pub fn on_report(&mut self, time: f64, queue: f64, noise: f64, measuring: bool) {
        // An empty one is known at once.
        self.waiting = if queue > 0.0 {
            self.waiting + (queue - self.waiting) / 8.0
        } else {
            0.0
        };
        self.queue = queue;
        self.noise = noise;
        if queue < self.config.constants.empty * self.target() {
            self.last_empty = time;
        }
        match self.phase {
            Phase::Drain(mut drain) => {
                if time >= drain.restore {
                    // Beside others, by how much the queue falls is judged by what was sent before.
                    self.set_rate(if self.competing() {
                        drain.before
                    } else {
                        self.bottleneck()
                    });
                }
                drain.on_report(time, queue, self.waiting);
                self.phase = Phase::Drain(drain);
                if time >= drain.restore + drain.rtt + drain.around() {
                    self.end_drain(time, &drain);
                }
            }
            Phase::Startup { stalled, crowded } if crowded < CROWDED_REPORTS => {
                let queued = self.queue > 0.5 * self.target() + 2.0 * noise;
                self.phase = Phase::Startup {
                    stalled,
                    crowded: if queued { crowded + 1 } else { 0 },
                };
                // The round that shows what passes is under way, and ends soon; or the one before was it.
                if self.is_last_of_start() && !measuring && self.knows_bottleneck() {
                    self.end_startup();
                }
            }
            _ => {}
        }
    }

    pub fn on_round(&mut self, round: &Round, losses: &mut Losses) {
        self.rtt = round.rtt;
        self.noise = round.noise;
        let judged = self.judge_loss(round, losses);
        self.remember(round, losses);
        let before = self.rate;
        match self.phase {
            Phase::Startup { .. } => self.startup(round, losses),
            Phase::Drain(_) => {}
            Phase::Hold => self.hold(round, judged, losses),
        }
        if round.marks > 0 && !self.is_starting() {
            self.heed_marks(round);
        }
        self.limit(losses);
        self.rate_before = before;
    }

    /// A mark is a sign of congestion as a lost packet is to others, and heeded at most once a round trip (RFC 3168, section
    /// 6.1.2). What passes is then taken to be less, by the factor of RFC 8511, so the rate grows back by the steps of the law.
    fn heed_marks(&mut self, round: &Round) {
        if round.time - self.marked < round.rtt {
            return;
        }
        self.marked = round.time;
        let passing = self.bottleneck().min(round.delivery.sent.max(self.rate));
        self.passed
            .set(round.time, self.config.constants.marked * passing);
        self.growing = 0;
        self.doubted = None;
        self.set_rate(self.config.constants.marked * self.rate);
    }

    /// Learns what the channel loses by itself; true when a stretch ends, and `excess` says of it.
    fn judge_loss(&mut self, round: &Round, losses: &mut Losses) -> bool {
        match self.phase {
            Phase::Startup { .. } => losses.learn_at_start(round.loss),
            Phase::Drain(_) => losses.learn_channel(round.loss),
            Phase::Hold => {
                let below = round.delivery.sent < self.config.constants.below * self.bottleneck();
                if below && round.queue < 0.5 * self.target() {
                    losses.learn_channel(round.loss);
                }
                self.window.count.add(round.loss);
            }
        }
        if !self.window.is_full(round.time) {
            return false;
        }
        let LossWindow { count, .. } =
            std::mem::replace(&mut self.window, LossWindow::begin(round.time));
        self.excess = losses.is_excess(count);
        if losses.is_less(count) {
            losses.learn_channel(count);
        }
        true
    }

    fn remember(&mut self, round: &Round, losses: &Losses) {
        let DeliveryRates {
            sent,
            mut passed,
            arrived,
            backlogged,
            late,
        } = round.delivery;
        // What a full queue dropped has not passed.
        if losses.is_excess(round.loss) || matches!(self.phase, Phase::Startup { .. }) {
            passed = passed.min(arrived / (1.0 - losses.channel()));
        } else if losses.channel_is_known() {
            passed = passed.min(self.config.constants.cap * arrived / (1.0 - losses.channel()));
        }
        if matches!(self.phase, Phase::Drain(_)) {
            return;
        }
        let sample = passed.min(sent);
        self.measured |= backlogged;
        let before = self.overloaded.take();
        if sent > 1.02 * passed && round.queue > self.config.constants.overloaded * self.target() {
            // The queue was never empty, so what passed is what can pass, now. Once may be a processor that was late.
            self.overloaded = Some(passed);
            if let Some(before) = before {
                let known = self.bottleneck().min(2.0 * passed);
                self.passed
                    .set(round.time, known + 0.5 * (passed.max(before) - known));
                self.arrived.set(round.time, arrived);
            }
        } else if (backlogged && !late) || sample > self.bottleneck() || !self.knows_bottleneck() {
            self.passed.push(round.time, sample);
            self.arrived.push(round.time, arrived);
        }
        match self.history.back_mut() {
            Some((at, rate)) if round.time - *at < 1.0 => *rate = rate.max(sample),
            _ => self.history.push_back((round.time, sample)),
        }
        self.history.retain(|(at, _)| round.time - at < 60.0);
    }

    fn startup(&mut self, round: &Round, losses: &Losses) {
        let Phase::Startup {
            mut stalled,
            crowded,
        } = self.phase
        else {
            return;
        };
        if crowded == CROWDED_REPORTS {
            // The queue was never empty, so what passed is what can pass.
            let passed = round.delivery.passed.min(round.delivery.sent);
            self.passed.set(round.time, passed);
            self.arrived.set(round.time, round.delivery.arrived);
            return self.end_startup();
        }
        let delivered = round.delivery.arrived / (1.0 - losses.channel());
        // What the channel loses by itself is first to be known.
        let lost = losses.start_is_known()
            && delivered < self.config.constants.followed * round.delivery.sent;
        let followed =
            !lost && round.delivery.passed > self.config.constants.followed * round.delivery.sent;
        stalled = if followed { 0 } else { stalled + 1 };
        let overflows = round.loss.sent >= 20.0
            && losses.exceeds(round.loss, self.config.constants.start_excess);
        if stalled >= 3 || (stalled > 0 && overflows) {
            // More is sent than passes, and the queue is too short to show it.
            self.phase = Phase::Hold;
            self.passed.set(round.time, delivered);
            self.set_rate(self.config.constants.below * delivered);
            return;
        }
        self.phase = Phase::Startup { stalled, crowded };
        // Of a rate that was not sent at, as the window was still closed, nothing is known.
        let tried = round.delivery.backlogged && round.delivery.sent > TRIED * self.rate;
        if stalled == 0 && tried {
            let growth = self.config.constants.startup_growth
                + (round.rtt / self.config.constants.long_rtt).min(1.0);
            self.set_rate(
                (growth * self.rate).min(growth / self.config.constants.followed * delivered),
            );
        }
    }

    /// The queue has become longer: what passed is what can pass.
    fn end_startup(&mut self) {
        self.doubted = Some(self.bottleneck());
        self.set_rate(self.bottleneck() * 0.8);
        self.phase = Phase::Hold;
    }

    fn hold(&mut self, round: &Round, judged: bool, losses: &Losses) {
        if self.doubt(round) {
            return;
        }
        match self.competing {
            Some(_) => self.compete(round, judged, losses),
            None => self.follow_queue(round),
        }
        if !round.delivery.backlogged {
            // There were pauses, in which the queue could run empty.
            self.next_deep_drain = Some(round.time + self.config.constants.deep_drain_period);
        }
        let deep = *self
            .next_deep_drain
            .get_or_insert(round.time + self.config.constants.first_deep_drain);
        let due = self.last_empty + self.drain_period();
        self.above = if round.queue > self.config.constants.above * self.target() {
            self.above + 1
        } else {
            0
        };
        let urgent = match self.competing {
            // Until it is settled, a claim is a guess. By `next_drain` its rate may be reached, so that a drain shows more.
            Some(claim) => self.standing_drains > 0 && !claim.is_settled(),
            None => self.above > ABOVE_ROUNDS,
        } && round.time > self.next_drain;
        if urgent || round.time > due.max(self.next_drain).min(deep) {
            self.above = 0;
            self.begin_drain(round.time, round.time > deep);
        }
    }

    /// Tries more than the start found, if that may be too little: the path is long, and what was sent of it since made no
    /// queue. False where there is nothing to try.
    fn doubt(&mut self, round: &Round) -> bool {
        let Some(found) = self.doubted else {
            return false;
        };
        let DeliveryRates {
            sent,
            passed,
            backlogged,
            ..
        } = round.delivery;
        let queued = round.queue > self.config.constants.empty * self.target();
        if round.rtt < self.config.constants.long_rtt
            || (queued && sent > self.config.constants.below * found)
        {
            self.doubted = None;
            return false;
        }
        if queued || !backlogged || self.excess {
            return false;
        }
        if passed.min(sent) > self.config.constants.refuted * found {
            self.phase = STARTUP;
            self.set_rate(self.bottleneck());
        } else {
            self.set_rate(self.config.constants.doubt * self.bottleneck());
        }
        true
    }

    /// The distance from the target of queue delay gives the rate relative to what the bottleneck passes: a queue
    /// integrates the difference of rates, so this is of first order and does not swing.
    fn follow_queue(&mut self, round: &Round) {
        let target = self.target();
        let distance = ((target - round.queue) / target).clamp(-1.0, 1.0);
        let tried = round.delivery.sent > 0.8 * self.rate.min(self.rate_before);
        let grew = round.delivery.backlogged && tried;
        self.growing = if distance > 0.6 && grew && !self.excess {
            self.growing + 1
        } else {
            0
        };
        // As long as the queue stays empty and the path follows, steps get larger. (Copa's velocity.)
        let step: f64 = match self.growing {
            0..=3 => 0.1,
            4..=6 => 0.25,
            7..=9 => 0.5,
            _ => 1.0,
        };
        let up = step.min(self.config.constants.unseen_queue / round.rtt);
        // A rate above the bottleneck's by a share s makes the queue s longer every second; the error in the queue is
        // to be gone after a round trip and a half, the time for which the effect of a change is not seen.
        let correction = (target - round.queue) / (1.5 * round.rtt + 0.004);
        let gain = 1.0
            + if self.growing > 3 {
                up * distance
            } else {
                correction.clamp(-0.5, up * distance.max(0.0))
            };
        self.set_rate(gain * self.bottleneck());
    }

    /// The claimed rate, approached by the steps that the cap allows.
    fn compete(&mut self, round: &Round, judged: bool, losses: &Losses) {
        let Some(mut claim) = self.competing else {
            return;
        };
        if judged && self.excess {
            claim.on_excess_loss(round.time);
        }
        self.competing_loss.count.add(round.loss);
        // TCP heeds loss a round trip after it, and that round trip may be a long queue.
        let judged_over = self.config.constants.drain_period_round_trips * round.rtt;
        if round.time - self.competing_loss.began > NOT_LOSS_BASED_AFTER.max(judged_over) {
            let loss = std::mem::replace(&mut self.competing_loss, LossWindow::begin(round.time));
            if loss.count.share() > losses.channel() + self.config.constants.not_loss_based {
                self.competing = None;
                self.set_rate(0.5 * self.bottleneck());
                return;
            }
        }
        let wanted = claim.rate(round.time);
        self.competing = Some(claim);
        let known = self.bottleneck();
        if self.standing_drains == 0 {
            // It has slowed down, or is gone: what it leaves is taken, and what is claimed is kept.
            self.follow_queue(round);
            self.set_rate(self.rate.max(wanted.min(self.config.constants.cap * known)));
            return;
        }
        self.growing = if wanted > 1.3 * known {
            self.growing + 1
        } else {
            0
        };
        let step = if self.growing > 3 {
            1.25
        } else {
            self.config.constants.cap
        };
        self.set_rate(wanted.clamp(0.7 * known, step * known));
    }

    /// The most that passed in the last minute.
    fn most_passed(&self) -> f64 {
        self.history
            .iter()
            .map(|(_, rate)| *rate)
            .fold(self.bottleneck(), f64::max)
    }

    fn begin_drain(&mut self, time: f64, deep: bool) {
        // What is waiting now leaves the queue in `queue`; the rest keeps it from filling up again meanwhile.
        let mut lasting = 1.5 * self.queue / (1.0 - self.config.constants.drain_gain) + 0.002;
        if deep {
            lasting = lasting.max(self.rtt);
            self.next_deep_drain = Some(time + self.config.constants.deep_drain_period);
        }
        self.phase = Phase::Drain(Drain {
            before: self.rate,
            rtt: self.rtt,
            queue: self.waiting,
            began: time,
            restore: time + lasting,
            from: Mean::default(),
            lowest: f64::INFINITY,
            left: Mean::default(),
        });
        self.set_rate(self.config.constants.drain_gain * self.bottleneck());
    }

    /// A queue that stands although we held back is another flow's. What we held back would have made a queue of ours
    /// alone shorter by the same time; by how much less it fell is the others' part of the traffic.
    ///
    /// A flow with a window `W` that fills the queue `q` beside our rate `r`, behind a bottleneck `C`, has `W = q (C - r)`
    /// under way. Once what waits was exchanged, the queue of our lower rate `l` has fallen by `q (r - l) / (C - l)`;
    /// before, by `(r - l) / C` a second.
    fn end_drain(&mut self, time: f64, drain: &Drain) {
        let Drain {
            before,
            rtt,
            lowest,
            ..
        } = *drain;
        let from = drain.from();
        let lasting = drain.restore - drain.began;
        self.phase = Phase::Hold;
        self.last_empty = time;
        self.next_drain = time + CONFIRM_AFTER.max(CONFIRM_ROUND_TRIPS * self.rtt);
        self.window = LossWindow::begin(time);
        self.set_rate(self.bottleneck());
        // After a round trip the others have taken what we left.
        let left = self.config.constants.drain_gain * self.bottleneck();
        let held_back = (before - left) * lasting.min(rtt.max(from));
        let exchanged = if lasting > rtt { left } else { 0.0 };
        let shorter = from - drain.left();
        let capacity = exchanged + held_back / shorter.max(1e-6);
        if self.competing.is_none() && self.standing_drains == 0 && self.crowded_drains == 0 {
            self.capacity = Capacity::default();
        }
        if lowest.is_finite()
            && (lowest > self.config.constants.empty * self.target()
                || capacity < self.capacity.rate())
        {
            // Of a queue that ran empty is known only how much there is at most.
            self.capacity.add(held_back + exchanged * shorter, shorter);
        }
        let part = (before / capacity.max(before)).clamp(0.0, 1.0);
        let flat =
            lowest > self.config.constants.above * self.target() && self.is_flat(from, lowest);
        self.flat_drains = if flat { self.flat_drains + 1 } else { 0 };
        let crowded = lowest > self.config.constants.above * self.target()
            && part < self.config.constants.ours;
        self.crowded_drains = match crowded {
            true => (self.crowded_drains + 1).min(CROWDED_DRAINS),
            false if part > self.config.constants.ours => 0,
            false => self.crowded_drains.saturating_sub(1),
        };
        if crowded && self.competing.is_none() {
            self.next_drain = time + CONFIRM_AFTER.max(SUSPECT_ROUND_TRIPS * self.rtt);
            self.last_empty = f64::NEG_INFINITY;
        }
        let standing = self.standing_queue();
        // A flow that has just slowed down will fill the queue again.
        let calm = if self.competing.is_some() {
            from <= standing
        } else {
            lowest <= standing || part > self.config.constants.ours
        };
        if !flat && calm && self.crowded_drains < CROWDED_DRAINS {
            (self.standing_drains, self.flat_drains) = (0, 0);
            if part > self.config.constants.ours {
                self.proved = Some(self.bottleneck());
            }
            self.competing = self
                .competing
                .filter(|_| time - self.contested < self.config.constants.back_after);
            return;
        }
        self.contested = time;
        self.standing_drains += 1;
        if self.flat_drains >= 2 {
            self.base_changed = true;
            self.standing_drains = 0;
            self.competing = None;
        } else if self.standing_drains == 1 || self.flat_drains == 1 {
            // A second one is to confirm it.
            self.last_empty = f64::NEG_INFINITY;
        } else {
            let begun = Claim::new(time, self.config.competing_share, self.most_passed());
            let mut claim = self.competing.unwrap_or(begun);
            claim.on_drain(before, self.capacity.rate(), self.most_passed());
            if self.competing.replace(claim).is_none() {
                self.competing_loss = LossWindow::begin(time);
            }
        }
    }

    /// What stands is no queue, but the path has become longer: nothing left it while we held back, though much of the
    /// traffic is ours.
    fn is_flat(&self, from: f64, lowest: f64) -> bool {
        self.proved
            .is_some_and(|rate| self.bottleneck() > 0.25 * rate)
            && from - lowest < 0.001 + self.noise
    }

    /// True once when the smallest delay that was seen is that of the path no more.
    pub fn take_base_changed(&mut self) -> bool {
        std::mem::take(&mut self.base_changed)
    }

    /// Never much more than what is delivered, corrected for the channel's own loss, outside startup. When loss rises,
    /// this lowers the rate. If the queue was overflowing, the loss goes; if the channel has become worse, it stays while
    /// less is sent, so it is learned to be the channel's, and the rate returns.
    fn limit(&mut self, losses: &Losses) {
        let startup = matches!(self.phase, Phase::Startup { .. });
        if let Some(arrived) = self.arrived.largest()
            && !startup
            && losses.channel_is_known()
        {
            let growing = self.growing > 3 || self.doubted.is_some();
            let gain = match (growing, self.excess) {
                (true, _) => self.config.constants.cap_growing,
                (false, false) => self.config.constants.cap,
                (false, true) => self.config.constants.cap_at_excess,
            };
            self.set_rate(self.rate.min(gain * arrived / (1.0 - losses.channel())));
        }
    }

    /// Sets the largest rate from now on.
    pub fn set_max_bytes_per_second(&mut self, most: f64) {
        self.config.max_bytes_per_second = most.max(self.config.min_bytes_per_second);
        self.set_rate(self.rate);
    }

    fn set_rate(&mut self, rate: f64) {
        // So much that there is always something to measure by; as the queue grows, it gets less. (RFC 8085, section
        // 3.1.1, would have one packet a round trip of those that measure nothing.)
        let least = LEAST_WINDOW / self.rtt.max(0.02);
        let least = least.clamp(
            self.config.min_bytes_per_second,
            self.config.max_bytes_per_second,
        );
        self.rate = rate.clamp(least, self.config.max_bytes_per_second);
    }
}
