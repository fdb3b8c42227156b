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
/// Drains that leave the queue above its target before a loss-based flow is assumed, however short the queue: a flow
/// that joins a full queue takes most of it for the path. Flows of our kind give way long before.
const CROWDED_DRAINS: u32 = 3;
/// A rate counts as tried when at least this fraction of it was sent.
const TRIED: f64 = 0.5;
const NOT_LOSS_BASED_AFTER: f64 = 1.0;
/// Time to a second drain, which confirms the first one, in seconds and in round trips; fewer round trips where nothing
/// is claimed yet and a drain costs little.
const CONFIRM_AFTER: f64 = 0.25;
const CONFIRM_ROUND_TRIPS: f64 = 10.0;
const SUSPECT_ROUND_TRIPS: f64 = 5.0;
/// The queue before and after a drain is the mean over packets sent within this many seconds of its start and end, and
/// within this fraction of the queue delay more.
const AROUND: f64 = 0.002;
const AROUND_OF_QUEUE: f64 = 0.1;
/// Least bytes in a round trip: two packets.
const LEAST_WINDOW: f64 = 3000.0;
/// Loss is judged over at least this many seconds.
const LOSS_WINDOW: f64 = 0.05;

/// Measurements of one round. Times in seconds.
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
    /// Raising the rate while the path follows. `stalled`: rounds in a row in which it did not. `crowded`: reports in a
    /// row of a long queue. Two make the running round the last: a single one may come from a receiver that was stopped
    /// while nothing arrived.
    Startup { stalled: u32, crowded: u32 },
    /// Holding the queue at its target.
    Hold,
    /// Letting the queue run empty, which shows the base delay and the channel's own loss.
    Drain(Drain),
}

/// A low rate until `restore`. Times in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Drain {
    /// The rate, the round-trip time and the queue before it.
    before: f64,
    rtt: f64,
    queue: f64,
    began: f64,
    restore: f64,
    /// Mean queue of packets sent around the start, ..
    from: Mean,
    /// .. the shortest, ..
    lowest: f64,
    /// .. and the mean around the end.
    left: Mean,
}

impl Drain {
    /// Time around the start and the end over which the queue is averaged.
    fn around(&self) -> f64 {
        AROUND + AROUND_OF_QUEUE * self.queue
    }

    /// `waiting` is the smoothed queue.
    fn on_report(&mut self, time: f64, queue: f64, waiting: f64) {
        if time - self.began > self.rtt {
            self.lowest = self.lowest.min(waiting);
        }
        // The reported packets took the path without the queue, and the present queue.
        let sent = time - (self.rtt - self.queue + queue);
        let around = self.around();
        for (instant, mean) in [(self.began, &mut self.from), (self.restore, &mut self.left)] {
            if (sent - instant).abs() < around {
                mean.add(queue);
            }
        }
    }

    /// Queue at the start. The sample of that moment alone may be due to a host that was stopped, as a drain begins
    /// with the first report after the stop.
    fn from(&self) -> f64 {
        self.from.value().unwrap_or(self.queue)
    }

    /// Queue at the end; the shortest one if no packet was sent around it.
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
/// A long queue is believed after this many reports in a row.
const CROWDED_REPORTS: u32 = 2;

/// A window over which loss is judged.
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

/// The control law; see [`super`].
#[derive(Debug)]
pub struct Control {
    config: Config,
    phase: Phase,
    rate: f64,
    /// Rates at the bottleneck, lost packets included.
    passed: Recent,
    /// Delivered rates.
    arrived: Recent,
    /// Some round was backlogged throughout, so that the bottleneck limited its rate.
    measured: bool,
    /// Largest rate of each second of the last minute: (time, rate).
    history: VecDeque<(f64, f64)>,
    /// Rate that passed in the last round, if it was below the sending rate and the queue stood.
    overloaded: Option<f64>,
    /// Rate at which startup ended, until a queue confirms it.
    doubted: Option<f64>,
    /// The rate before the last round, at which the packets of the next were sent.
    rate_before: f64,
    /// Rounds in a row with an empty queue in which more passed than before.
    growing: u32,
    last_empty: f64,
    next_deep_drain: Option<f64>,
    /// The running window of loss.
    window: LossWindow,
    /// Loss in the last window exceeded the channel's.
    excess: bool,
    /// Rounds in a row in which the queue was above its target although we hold back.
    above: u32,
    standing_drains: u32,
    /// Drains in a row that left the queue as it was.
    flat_drains: u32,
    /// Drains that left a queue above its target, most of it of other flows; each other drain lowers the count.
    crowded_drains: u32,
    /// Capacity of the bottleneck, as measured by drains since others share the queue.
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
    /// Smoothed queue: without the bursts of others, which last for a few reports.
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

    /// The rate that the window must carry. During a drain it is still the rate before it: the drain is judged by
    /// pacing alone, which holds back three quarters.
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

    /// Least queue that, while we hold back, is attributed to a flow of a kind that fills queues: our own kind keeps it
    /// near the target of flows with their share of the capacity.
    fn standing_queue(&self) -> f64 {
        (self.config.constants.standing * self.target()).clamp(0.006, 0.080)
    }

    /// The first report gives the round-trip time: the longer it is, the later the second rate is known.
    pub fn on_first_report(&mut self, rtt: f64) {
        self.set_rate(
            (1.0 + self.config.constants.first_rate_growth
                * (rtt / self.config.constants.long_rtt).min(1.0))
                * self.config.initial_bytes_per_second,
        );
    }

    /// After an outage or on another path the capacity is unknown: start at half.
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

    /// Ends startup and drains, which cannot wait for the end of a round. `measuring`: packets of the running round
    /// have been reported on.
    pub fn on_report(&mut self, time: f64, queue: f64, noise: f64, measuring: bool) {
        // An empty queue needs no smoothing.
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
                    // Beside others, the fall of the queue is judged against the rate before the drain.
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
                // While no packet of this round is reported, the one before has measured the bottleneck.
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

    /// A mark signals congestion as loss does to others, and counts once a round trip (RFC 3168, section 6.1.2). The
    /// bottleneck's rate is then taken to be lower, by the factor of RFC 8511, so the rate grows back by the steps of
    /// the law.
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

    /// Learns the channel's own loss. True at the end of a loss window, whose result is `excess`.
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
        // Packets that a full queue dropped have not passed.
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
            // The queue was never empty, so the bottleneck limited the round. A single one may be due to a late
            // processor.
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
            // The queue was never empty, so the bottleneck limited this round.
            let passed = round.delivery.passed.min(round.delivery.sent);
            self.passed.set(round.time, passed);
            self.arrived.set(round.time, round.delivery.arrived);
            return self.end_startup();
        }
        let delivered = round.delivery.arrived / (1.0 - losses.channel());
        // Loss counts only once the channel's own is known.
        let lost = losses.start_is_known()
            && delivered < self.config.constants.followed * round.delivery.sent;
        let followed =
            !lost && round.delivery.passed > self.config.constants.followed * round.delivery.sent;
        stalled = if followed { 0 } else { stalled + 1 };
        let overflows = round.loss.sent >= 20.0
            && losses.exceeds(round.loss, self.config.constants.start_excess);
        if stalled >= 3 || (stalled > 0 && overflows) {
            // The rate exceeds the bottleneck's, and the queue is too short to show it.
            self.phase = Phase::Hold;
            self.passed.set(round.time, delivered);
            self.set_rate(self.config.constants.below * delivered);
            return;
        }
        self.phase = Phase::Startup { stalled, crowded };
        // A rate that was not used, as the window was closed, has shown nothing.
        let tried = round.delivery.backlogged && round.delivery.sent > TRIED * self.rate;
        if stalled == 0 && tried {
            let growth = self.config.constants.startup_growth
                + (round.rtt / self.config.constants.long_rtt).min(1.0);
            self.set_rate(
                (growth * self.rate).min(growth / self.config.constants.followed * delivered),
            );
        }
    }

    /// A longer queue shows that the bottleneck's rate was reached.
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
            // Pauses let the queue run empty.
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
            // An unsettled claim is a guess. By `next_drain` its rate may be reached, so that a drain shows more.
            Some(claim) => self.standing_drains > 0 && !claim.is_settled(),
            None => self.above > ABOVE_ROUNDS,
        } && round.time > self.next_drain;
        if urgent || round.time > due.max(self.next_drain).min(deep) {
            self.above = 0;
            self.begin_drain(round.time, round.time > deep);
        }
    }

    /// Probes above the rate that startup found, as long as the path is long and that rate makes no queue. False where
    /// there is nothing to try.
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

    /// Sets the rate relative to the bottleneck's by the distance from the target of queue delay: a queue integrates
    /// the difference of rates, so this control is of first order and does not oscillate.
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
        // While the queue stays empty and the path follows, steps get larger. (Copa's velocity.)
        let step: f64 = match self.growing {
            0..=3 => 0.1,
            4..=6 => 0.25,
            7..=9 => 0.5,
            _ => 1.0,
        };
        let up = step.min(self.config.constants.unseen_queue / round.rtt);
        // A rate above the bottleneck's by a share s makes the queue s longer every second. The error in the queue
        // should be gone after a round trip and a half, the feedback delay.
        let correction = (target - round.queue) / (1.5 * round.rtt + 0.004);
        let gain = 1.0
            + if self.growing > 3 {
                up * distance
            } else {
                correction.clamp(-0.5, up * distance.max(0.0))
            };
        self.set_rate(gain * self.bottleneck());
    }

    /// Approaches the claimed rate by the steps that the cap allows.
    fn compete(&mut self, round: &Round, judged: bool, losses: &Losses) {
        let Some(mut claim) = self.competing else {
            return;
        };
        if judged && self.excess {
            claim.on_excess_loss(round.time);
        }
        self.competing_loss.count.add(round.loss);
        // TCP reacts to loss a round trip after it, and a long queue may be part of that.
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
            // The other flow has slowed down or ended: take the free capacity, and keep the claim.
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

    /// The largest rate that passed in the last minute.
    fn most_passed(&self) -> f64 {
        self.history
            .iter()
            .map(|(_, rate)| *rate)
            .fold(self.bottleneck(), f64::max)
    }

    fn begin_drain(&mut self, time: f64, deep: bool) {
        // A queue of ours alone is empty after two thirds of this time; the rest keeps it from filling up again.
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

    /// A queue that stands during a drain is another flow's. A queue of ours alone would have become shorter by the
    /// time that the bytes held back take; the shortfall gives the others' share of the traffic.
    ///
    /// A flow with a window `W` that fills the queue `q` beside our rate `r`, behind a bottleneck `C`, has `W = q (C -
    /// r)` in flight. After a round trip, the queue at our lower rate `l` has fallen by `q (r - l) / (C - l)`; before
    /// that, it falls by `(r - l) / C` a second.
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
        // After a round trip the others have taken the freed capacity.
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
            // A queue that ran empty gives only an upper bound of the capacity.
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
            // A second drain is to confirm it.
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

    /// Whether the path has become longer, rather than the queue: no packets left the queue while we held back, though
    /// much of the traffic is ours.
    fn is_flat(&self, from: f64, lowest: f64) -> bool {
        self.proved
            .is_some_and(|rate| self.bottleneck() > 0.25 * rate)
            && from - lowest < 0.001 + self.noise
    }

    /// True once when the smallest delay seen is no longer the path's.
    pub fn take_base_changed(&mut self) -> bool {
        std::mem::take(&mut self.base_changed)
    }

    /// Caps the rate near the delivered rate, corrected for the channel's own loss, outside startup. When loss rises,
    /// the cap lowers the rate. If the queue was overflowing, the loss ends; if the channel has become worse, the loss
    /// stays at the lower rate, so it is learned to be the channel's, and the rate returns.
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
        // Two packets a round trip give something to measure; the longer the queue, the lower this bound. (RFC 8085,
        // section 3.1.1, would have one packet a round trip from a sender that measures nothing.)
        let least = LEAST_WINDOW / self.rtt.max(0.02);
        let least = least.clamp(
            self.config.min_bytes_per_second,
            self.config.max_bytes_per_second,
        );
        self.rate = rate.clamp(least, self.config.max_bytes_per_second);
    }
}
