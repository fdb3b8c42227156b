//! When almost nothing arrives, only probes are sent.
//!
//! A circuit breaker (RFC 8084): it opens after three intervals without reports, or with less than a tenth delivered.
//! With high loss it waits longer, as reports can be missing by chance. On a path that has answered before, probes do
//! not back off, so that the end of an outage is noticed within one probe interval. One small packet per interval is
//! below the limit of RFC 8085, section 3.1.1, for round-trip times above the interval, and negligible for shorter
//! ones.

use std::time::{Duration, Instant};

/// Shortest interval.
const MIN_INTERVAL: Duration = Duration::from_millis(50);
/// Bad intervals in a row that open the breaker.
const INTERVALS: u32 = 3;
/// An interval with a smaller delivered share is bad.
const LEAST_DELIVERED: f64 = 0.1;
/// Packets that an interval needs for an estimate of the delivered share.
const MIN_PACKETS: u64 = 20;
/// Probes of a trial: more than [`LEAST_DELIVERED`] of them must arrive before anything else is sent.
const TRIAL_PROBES: u64 = 10;
/// Silence opens the breaker when random loss explains it with less than this probability.
const CHANCE: f64 = 1e-4;
/// Seconds between packets that ask for a report while a sample is repaired.
const ASKS_EVERY: f64 = 0.008;
/// Longest silence that random loss may explain.
const LONGEST_RANDOM_SILENCE: Duration = Duration::from_secs(1);
/// Longest time between probes, unless configured longer.
const MOST_SPACING: Duration = Duration::from_millis(200);

/// See the module.
#[derive(Debug)]
pub struct Breaker {
    probe_interval: Duration,
    interval_length: Duration,
    patience: Duration,
    last_report: Instant,
    last_sent: Instant,
    /// Start of the running interval, and packets sent and received before it.
    interval: (Instant, u64, u64),
    bad_intervals: u32,
    state: State,
    resumed: bool,
    rtt: Option<Duration>,
    /// When it was made.
    began: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Closed,
    /// Nothing comes back; any report ends this.
    Silent,
    /// Almost nothing is delivered; ends when probes are. (sent, received) when it began.
    Trial(u64, u64),
}

impl Breaker {
    pub fn new(probe_interval: Duration, now: Instant) -> Self {
        Self {
            probe_interval,
            interval_length: MIN_INTERVAL,
            patience: MIN_INTERVAL * INTERVALS,
            last_report: now,
            last_sent: now,
            interval: (now, 0, 0),
            bad_intervals: 0,
            state: State::Closed,
            resumed: false,
            rtt: None,
            began: now,
        }
    }

    /// Adapts to the round-trip time and the loss, which is assumed for reports, too.
    pub fn set_patience(&mut self, rtt_seconds: f64, loss: f64) {
        let rtt = Duration::try_from_secs_f64(rtt_seconds).unwrap_or(MIN_INTERVAL);
        self.rtt = Some(rtt);
        let unanswered = 1.0 - (1.0 - loss).powi(2);
        let by_chance = CHANCE.ln() / unanswered.ln() * ASKS_EVERY;
        let by_chance = Duration::try_from_secs_f64(by_chance)
            .unwrap_or(LONGEST_RANDOM_SILENCE)
            .min(LONGEST_RANDOM_SILENCE);
        self.interval_length = rtt.max(MIN_INTERVAL);
        self.patience = by_chance.max(self.interval_length * INTERVALS);
    }

    /// A packet was sent. Silence counts from now if no older packet can still be reported on.
    pub fn on_sent(&mut self, now: Instant, all_reported: bool) {
        let after_a_pause = now.saturating_duration_since(self.last_sent) > self.interval_length;
        if (all_reported || after_a_pause) && self.state == State::Closed {
            self.last_report = self.last_report.max(now);
        }
        self.last_sent = now;
    }

    /// Of `sent` packets, `received` arrived.
    pub fn on_report(&mut self, now: Instant, sent: u64, received: u64) {
        self.last_report = now;
        match self.state {
            State::Closed => self.judge_interval(now, sent, received),
            State::Silent => self.close(now, sent, received),
            State::Trial(sent_before, received_before) => {
                let (sent_since, received_since) =
                    (sent - sent_before, received.saturating_sub(received_before));
                if sent_since >= TRIAL_PROBES {
                    match received_since as f64 > LEAST_DELIVERED * sent_since as f64 {
                        true => self.close(now, sent, received),
                        false => self.state = State::Trial(sent, received),
                    }
                }
            }
        }
    }

    fn judge_interval(&mut self, now: Instant, sent: u64, received: u64) {
        let (began, sent_before, received_before) = self.interval;
        let sent_since = sent - sent_before;
        if now.duration_since(began) < self.interval_length || sent_since < MIN_PACKETS {
            return;
        }
        let delivered = received.saturating_sub(received_before) as f64 / sent_since as f64;
        self.bad_intervals = if delivered < LEAST_DELIVERED {
            self.bad_intervals + 1
        } else {
            0
        };
        self.interval = (now, sent, received);
        if self.bad_intervals >= INTERVALS {
            self.state = State::Trial(sent, received);
        }
    }

    fn close(&mut self, now: Instant, sent: u64, received: u64) {
        self.state = State::Closed;
        self.bad_intervals = 0;
        self.interval = (now, sent, received);
        self.resumed = true;
    }

    /// Whether only probes may go.
    pub fn is_open(&mut self, now: Instant) -> bool {
        if self.state == State::Closed && now >= self.silent_at() {
            self.state = State::Silent;
        }
        self.state != State::Closed
    }

    /// As of the last call of [`is_open`](Self::is_open).
    pub fn was_open(&self) -> bool {
        self.state != State::Closed
    }

    /// Time of the last packet or report.
    pub fn last_event(&self) -> Instant {
        self.last_sent.max(self.last_report)
    }

    /// Least time between two answers of the peer. It grows with the silence, as answers may queue on their way back,
    /// up to the interval of probes, as any of them may be lost.
    pub fn answer_interval(&self, now: Instant) -> Duration {
        let silence = now.saturating_duration_since(self.last_report);
        if self.was_open() {
            (silence / 20).min(self.spacing(now))
        } else {
            Duration::ZERO
        }
    }

    /// Time at which silence opens the breaker, unless a report comes.
    pub fn silent_at(&self) -> Instant {
        self.last_report + self.patience
    }

    pub fn next_probe(&self) -> Instant {
        self.last_sent + self.spacing(self.last_sent)
    }

    /// Time between probes: the configured one, and longer where round trips are long, or no answer ever came. The
    /// cause may be a queue on a shared air, and probes would only add to it.
    fn spacing(&self, now: Instant) -> Duration {
        let rtt = self
            .rtt
            .unwrap_or(now.saturating_duration_since(self.began));
        (rtt / 8).clamp(self.probe_interval, MOST_SPACING.max(self.probe_interval))
    }

    /// True once after the breaker closed.
    pub fn take_resumed(&mut self) -> bool {
        std::mem::take(&mut self.resumed)
    }
}
