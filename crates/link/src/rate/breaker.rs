//! When nothing or next to nothing arrives, only probes are sent.
//!
//! A circuit breaker as RFC 8084 asks for: it opens after three intervals without reports (later where loss is so
//! high that reports can be missing by chance), or with less than a tenth delivered. On a path that was ever heard of it never
//! backs off, so that the end of an outage is noticed within one probe interval (one small packet per interval is below what
//! RFC 8085, section 3.1.1, allows without congestion control for any round-trip time above the interval, and next to nothing
//! below).

use std::time::{Duration, Instant};

/// An interval is no shorter than this.
const MIN_INTERVAL: Duration = Duration::from_millis(50);
/// Bad intervals in a row that open the breaker.
const INTERVALS: u32 = 3;
/// Less than this share delivered is as good as nothing.
const LEAST_DELIVERED: f64 = 0.1;
/// An interval with fewer packets says nothing about the share that is delivered.
const MIN_PACKETS: u64 = 20;
/// Of this many probes, more than [`LEAST_DELIVERED`] must arrive before anything else is sent.
const TRIAL_PROBES: u64 = 10;
/// Silence that chance alone may bring about is none: it is as improbable as this.
const CHANCE: f64 = 1e-4;
/// While a sample is repaired, a packet that asks for a report goes about this often.
const ASKS_EVERY: f64 = 0.008;
/// However much is lost, so long a silence opens the breaker.
const MOST_PATIENCE: Duration = Duration::from_secs(1);
/// However long a round trip takes, probes go so often.
const MOST_SPACING: Duration = Duration::from_millis(200);

/// See the module.
#[derive(Debug)]
pub struct Breaker {
    probe_interval: Duration,
    interval_length: Duration,
    patience: Duration,
    last_report: Instant,
    last_sent: Instant,
    /// Start of the running interval, and what was sent and received by then.
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
    /// Next to nothing is delivered; ends when probes are. (sent, received) when it began.
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

    /// By the round-trip time, and by the share of packets that are lost: reports are taken to be lost as often.
    pub fn set_patience(&mut self, rtt_seconds: f64, loss: f64) {
        let rtt = Duration::try_from_secs_f64(rtt_seconds).unwrap_or(MIN_INTERVAL);
        self.rtt = Some(rtt);
        let unanswered = 1.0 - (1.0 - loss).powi(2);
        let by_chance = CHANCE.ln() / unanswered.ln() * ASKS_EVERY;
        let by_chance = Duration::try_from_secs_f64(by_chance)
            .unwrap_or(MOST_PATIENCE)
            .min(MOST_PATIENCE);
        self.interval_length = rtt.max(MIN_INTERVAL);
        self.patience = by_chance.max(self.interval_length * INTERVALS);
    }

    /// A packet leaves. When all before it were reported on, or are so old that they never will be, silence begins to
    /// count now.
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

    /// When a packet last went or a report came.
    pub fn last_event(&self) -> Instant {
        self.last_sent.max(self.last_report)
    }

    /// How often the peer should answer, at most: more rarely the longer nothing has come, as answers may queue on their
    /// way back, and yet each probe, as one may be lost.
    pub fn answer_interval(&self, now: Instant) -> Duration {
        let silence = now.saturating_duration_since(self.last_report);
        if self.was_open() {
            (silence / 20).min(self.spacing(now))
        } else {
            Duration::ZERO
        }
    }

    /// When silence opens the breaker, unless a report comes.
    pub fn silent_at(&self) -> Instant {
        self.last_report + self.patience
    }

    pub fn next_probe(&self) -> Instant {
        self.last_sent + self.spacing(self.last_sent)
    }

    /// The time between probes: the configured one, and longer where answers are long under way, or none ever came. That may be
    /// a queue, on an air that many share, and probes would only add to it.
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
