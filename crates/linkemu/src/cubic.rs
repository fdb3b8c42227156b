//! A TCP sender with Cubic (RFC 9438), reduced to congestion control: selective acknowledgement of
//! every packet, one reduction per window, no data to retransmit. It competes in a simulated
//! network with the protocol under test.

use std::collections::BTreeMap;
use std::time::Duration;

const C: f64 = 0.4;
const BETA: f64 = 0.7;
/// RFC 6298: the first timeout, and the least; it doubles with each that passes in vain.
const FIRST_TIMEOUT: Duration = Duration::from_secs(1);
/// RFC 6675: a packet is lost when a packet this much later was acknowledged.
const REORDERING: u64 = 3;

/// A Cubic sender that always has data to send.
#[derive(Debug)]
pub struct CubicSender {
    window: f64,
    slow_start: bool,
    max: f64,
    epoch: Option<Duration>,
    reno: f64,
    next: u64,
    in_flight: BTreeMap<u64, Duration>,
    /// Losses of packets below this number belong to an earlier reduction.
    recovered: u64,
    rtt: Option<f64>,
    last_ack: Duration,
    backoff: u32,
    stopped: bool,
}

impl Default for CubicSender {
    fn default() -> Self {
        Self {
            window: 10.0,
            slow_start: true,
            max: 0.0,
            epoch: None,
            reno: 0.0,
            next: 0,
            in_flight: BTreeMap::new(),
            recovered: 0,
            rtt: None,
            last_ack: Duration::ZERO,
            backoff: 0,
            stopped: false,
        }
    }
}

impl CubicSender {
    /// Stops sending.
    pub fn stop(&mut self) {
        self.stopped = true;
        self.in_flight.clear();
    }

    /// Returns the number of the packet to send now, if the window has room.
    pub fn next(&mut self, now: Duration) -> Option<u64> {
        if self.stopped {
            return None;
        }
        self.expire(now);
        if self.in_flight.len() as f64 >= self.window {
            return None;
        }
        if self.in_flight.is_empty() {
            self.last_ack = now;
        }
        self.in_flight.insert(self.next, now);
        self.next += 1;
        Some(self.next - 1)
    }

    /// Gives up all packets in flight if the timeout has passed.
    pub(crate) fn expire(&mut self, now: Duration) {
        if !self.in_flight.is_empty() && now >= self.expires_at() {
            self.in_flight.clear();
            (self.window, self.slow_start, self.epoch) = (1.0, true, None);
            self.last_ack = now;
            self.backoff += 1;
        }
    }

    /// Packets in flight.
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight.len() as u64
    }

    /// Packets sent.
    pub(crate) fn sent(&self) -> u64 {
        self.next
    }

    /// The latest time at which to call [`CubicSender::next`].
    pub fn timeout(&self) -> Option<Duration> {
        (!self.in_flight.is_empty()).then(|| self.expires_at())
    }

    /// Processes the acknowledgement of a packet.
    pub fn on_ack(&mut self, now: Duration, number: u64) {
        let Some(sent) = self.in_flight.remove(&number) else {
            return;
        };
        (self.last_ack, self.backoff) = (now, 0);
        let sample = (now - sent).as_secs_f64();
        let rtt = self.rtt.map_or(sample, |rtt| rtt + (sample - rtt) / 8.0);
        self.rtt = Some(rtt);
        let lost: Vec<u64> = self
            .in_flight
            .range(..number.saturating_sub(REORDERING))
            .map(|(n, _)| *n)
            .collect();
        for packet in &lost {
            self.in_flight.remove(packet);
        }
        if lost.iter().any(|packet| *packet >= self.recovered) {
            self.reduce();
        } else if self.slow_start {
            self.window += 1.0;
        } else {
            self.grow(now, rtt);
        }
    }

    fn expires_at(&self) -> Duration {
        let rtt = Duration::from_secs_f64(2.0 * self.rtt.unwrap_or(0.0));
        self.last_ack + FIRST_TIMEOUT.max(rtt) * 2_u32.pow(self.backoff.min(6))
    }

    fn reduce(&mut self) {
        self.max = if self.window < self.max {
            self.window * (1.0 + BETA) / 2.0
        } else {
            self.window
        };
        self.window = (self.window * BETA).max(2.0);
        self.reno = self.window;
        self.slow_start = false;
        self.epoch = None;
        self.recovered = self.next;
    }

    fn grow(&mut self, now: Duration, rtt: f64) {
        let epoch = *self.epoch.get_or_insert(now);
        let inflection = ((self.max - self.max * BETA).max(0.0) / C).cbrt();
        let elapsed = (now - epoch).as_secs_f64() + rtt;
        let target = C * (elapsed - inflection).powi(3) + self.max;
        self.reno += 3.0 * (1.0 - BETA) / (1.0 + BETA) / self.window;
        if target > self.window {
            self.window += ((target - self.window) / self.window).min(0.5);
        }
        self.window = self.window.max(self.reno);
    }
}
