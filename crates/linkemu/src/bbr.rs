//! A TCP sender with BBR, version 1, reduced to congestion control as [`crate::cubic`] is.
//!
//! N. Cardwell, Y. Cheng, C. S. Gunn, S. H. Yeganeh, V. Jacobson, "BBR: Congestion-Based Congestion
//! Control", ACM Queue 14(5), 2016; constants and state machine as in
//! draft-cardwell-iccrg-bbr-congestion-control-00, delivery rates as in
//! draft-cheng-iccrg-delivery-rate-estimation-00. All amounts are packets.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// 2 / ln 2: the least gain that doubles the delivery rate in each round.
const HIGH_GAIN: f64 = 2.885;
const WINDOW_GAIN: f64 = 2.0;
const CYCLE_GAINS: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// Rounds over which the largest delivery rate counts.
const BANDWIDTH_ROUNDS: u64 = 10;
const MIN_RTT_WINDOW: Duration = Duration::from_secs(10);
const PROBE_RTT_TIME: Duration = Duration::from_millis(200);
const LEAST_WINDOW: f64 = 4.0;
const INITIAL_WINDOW: f64 = 10.0;
/// The round-trip time on which the first pacing rate is based.
const INITIAL_RTT: f64 = 0.001;
const FIRST_TIMEOUT: Duration = Duration::from_secs(1);
/// RFC 6675: a packet is lost when a packet this much later was acknowledged.
const REORDERING: u64 = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Startup,
    Drain,
    ProbeBandwidth,
    ProbeRtt,
}

/// A packet in flight, with the state of delivery when it was sent.
#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Duration,
    /// The send time of the packet whose acknowledgement was the newest.
    first_at: Duration,
    delivered: u64,
    delivered_at: Duration,
}

/// The time from a loss until a round trip without one. In the first round trip packets are
/// conserved.
#[derive(Clone, Copy, Debug)]
struct Recovery {
    conserves: bool,
    /// There were losses in this round trip.
    loses: bool,
    /// The round trip ends with the acknowledgement of a packet from this number on.
    ends_at: u64,
}

impl Recovery {
    fn begin(next: u64) -> Self {
        Self {
            conserves: true,
            loses: true,
            ends_at: next,
        }
    }
}

/// A BBR sender that always has data to send.
#[derive(Debug)]
pub struct BbrSender {
    state: State,
    window: f64,
    /// The window before it was reduced for a loss or for `State::ProbeRtt`.
    prior_window: f64,
    pacing_gain: f64,
    window_gain: f64,
    next_send: Duration,
    next: u64,
    in_flight: BTreeMap<u64, Sent>,
    delivered: u64,
    delivered_at: Duration,
    first_at: Duration,
    round: u64,
    round_ends_at: u64,
    /// Delivery rates, in packets a second, that no later one exceeds, with their rounds.
    bandwidths: VecDeque<(u64, f64)>,
    min_rtt: Option<Duration>,
    min_rtt_at: Duration,
    srtt: Option<f64>,
    full_bandwidth: f64,
    full_rounds: u32,
    cycle: usize,
    cycle_since: Duration,
    lost_in_cycle: bool,
    probe_rtt_until: Option<Duration>,
    probe_rtt_round: u64,
    recovery: Option<Recovery>,
    last_ack: Duration,
    backoff: u32,
}

impl BbrSender {
    /// The seed decides in which phase the probing for bandwidth begins.
    pub fn new(seed: u64) -> Self {
        Self {
            state: State::Startup,
            window: INITIAL_WINDOW,
            prior_window: 0.0,
            pacing_gain: HIGH_GAIN,
            window_gain: HIGH_GAIN,
            next_send: Duration::ZERO,
            next: 0,
            in_flight: BTreeMap::new(),
            delivered: 0,
            delivered_at: Duration::ZERO,
            first_at: Duration::ZERO,
            round: 0,
            round_ends_at: 0,
            bandwidths: VecDeque::new(),
            min_rtt: None,
            min_rtt_at: Duration::ZERO,
            srtt: None,
            full_bandwidth: 0.0,
            full_rounds: 0,
            // Any phase except 1, which drains.
            cycle: [0, 2, 3, 4, 5, 6, 7][seed as usize % 7],
            cycle_since: Duration::ZERO,
            lost_in_cycle: false,
            probe_rtt_until: None,
            probe_rtt_round: 0,
            recovery: None,
            last_ack: Duration::ZERO,
            backoff: 0,
        }
    }

    /// Returns the number of the packet to send now, if pacing and window allow one.
    pub fn next(&mut self, now: Duration) -> Option<u64> {
        if !self.in_flight.is_empty() && now >= self.expires_at() {
            self.in_flight.clear();
            self.prior_window = self.prior_window.max(self.window);
            self.window = LEAST_WINDOW;
            self.recovery = Some(Recovery::begin(self.next));
            self.last_ack = now;
            self.backoff += 1;
        }
        if now < self.next_send || self.in_flight.len() as f64 >= self.window {
            return None;
        }
        if self.in_flight.is_empty() {
            (self.first_at, self.delivered_at) = (now, now);
            self.last_ack = self.last_ack.max(now);
        }
        let sent = Sent {
            at: now,
            first_at: self.first_at,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
        };
        self.in_flight.insert(self.next, sent);
        self.next += 1;
        self.next_send =
            self.next_send.max(now) + Duration::from_secs_f64(1.0 / self.pacing_rate());
        Some(self.next - 1)
    }

    /// The latest time at which to call [`BbrSender::next`].
    pub fn timeout(&self) -> Option<Duration> {
        let expires = (!self.in_flight.is_empty()).then(|| self.expires_at());
        let paced = ((self.in_flight.len() as f64) < self.window).then_some(self.next_send);
        expires.into_iter().chain(paced).min()
    }

    /// Processes the acknowledgement of a packet.
    pub fn on_ack(&mut self, now: Duration, number: u64) {
        let Some(sent) = self.in_flight.remove(&number) else {
            return;
        };
        (self.last_ack, self.backoff) = (now, 0);
        self.delivered += 1;
        self.delivered_at = now;
        self.first_at = sent.at;
        let rtt = now - sent.at;
        let smoothed = self.srtt.unwrap_or(rtt.as_secs_f64());
        self.srtt = Some(smoothed + (rtt.as_secs_f64() - smoothed) / 8.0);
        let starts_round = sent.delivered >= self.round_ends_at;
        if starts_round {
            self.round += 1;
            self.round_ends_at = self.delivered;
        }
        let lost = self.remove_lost(number);
        self.update_bandwidth(&sent, now);
        self.update_cycle(now, lost);
        if starts_round {
            self.check_full_pipe();
        }
        self.check_drain(now);
        self.update_min_rtt(now, rtt);
        self.update_window(number, lost);
    }

    fn expires_at(&self) -> Duration {
        let rtt = Duration::from_secs_f64(2.0 * self.srtt.unwrap_or(0.0));
        self.last_ack + FIRST_TIMEOUT.max(rtt) * 2_u32.pow(self.backoff.min(6))
    }

    fn remove_lost(&mut self, number: u64) -> u64 {
        let mut lost = 0;
        while let Some(entry) = self.in_flight.first_entry()
            && *entry.key() + REORDERING < number
        {
            entry.remove();
            lost += 1;
        }
        lost
    }

    /// Packets a second.
    fn bandwidth(&self) -> f64 {
        self.bandwidths.front().map_or(0.0, |(_, rate)| *rate)
    }

    fn pacing_rate(&self) -> f64 {
        match self.bandwidth() {
            0.0 => HIGH_GAIN * INITIAL_WINDOW / self.srtt.unwrap_or(INITIAL_RTT),
            bandwidth => self.pacing_gain * bandwidth,
        }
    }

    fn in_flight_at(&self, gain: f64) -> f64 {
        let bdp = |rtt: Duration| gain * self.bandwidth() * rtt.as_secs_f64();
        self.min_rtt.map_or(INITIAL_WINDOW, bdp)
    }

    fn update_bandwidth(&mut self, sent: &Sent, now: Duration) {
        // The slower of sending and acknowledging, so that compressed acknowledgements do not count.
        let elapsed = (sent.at - sent.first_at).max(now - sent.delivered_at);
        if elapsed.is_zero() || self.min_rtt.is_some_and(|rtt| elapsed < rtt) {
            return;
        }
        let rate = (self.delivered - sent.delivered) as f64 / elapsed.as_secs_f64();
        while self.bandwidths.back().is_some_and(|(_, of)| *of <= rate) {
            self.bandwidths.pop_back();
        }
        self.bandwidths.push_back((self.round, rate));
        while self.bandwidths[0].0 + BANDWIDTH_ROUNDS < self.round {
            self.bandwidths.pop_front();
        }
    }

    fn update_cycle(&mut self, now: Duration, lost: u64) {
        self.lost_in_cycle |= lost > 0;
        let Some(rtt) = self.min_rtt.filter(|_| self.state == State::ProbeBandwidth) else {
            return;
        };
        let in_flight = self.in_flight.len() as f64;
        let over = now - self.cycle_since > rtt;
        let ends = match self.pacing_gain {
            gain if gain > 1.0 => {
                over && (self.lost_in_cycle || in_flight >= self.in_flight_at(gain))
            }
            gain if gain < 1.0 => over || in_flight <= self.in_flight_at(1.0),
            _ => over,
        };
        if ends {
            self.begin_cycle(now, self.cycle + 1);
        }
    }

    fn begin_cycle(&mut self, now: Duration, cycle: usize) {
        self.state = State::ProbeBandwidth;
        self.cycle = cycle % CYCLE_GAINS.len();
        (self.cycle_since, self.lost_in_cycle) = (now, false);
        (self.pacing_gain, self.window_gain) = (CYCLE_GAINS[self.cycle], WINDOW_GAIN);
    }

    /// Three rounds in which the rate grew by less than a quarter: the pipe is full. The draft counts
    /// rounds that conserve packets, too; then a few losses from the first windows end the startup
    /// at a hundredth of a long fat path, and a competitor is none.
    fn check_full_pipe(&mut self) {
        let conserves = self.recovery.is_some_and(|recovery| recovery.conserves);
        if self.is_pipe_full() || conserves {
            return;
        }
        if self.bandwidth() >= 1.25 * self.full_bandwidth {
            (self.full_bandwidth, self.full_rounds) = (self.bandwidth(), 0);
        } else {
            self.full_rounds += 1;
        }
    }

    fn is_pipe_full(&self) -> bool {
        self.full_rounds >= 3
    }

    fn check_drain(&mut self, now: Duration) {
        if self.state == State::Startup && self.is_pipe_full() {
            self.state = State::Drain;
            (self.pacing_gain, self.window_gain) = (1.0 / HIGH_GAIN, HIGH_GAIN);
        }
        if self.state == State::Drain && self.in_flight.len() as f64 <= self.in_flight_at(1.0) {
            self.begin_cycle(now, self.cycle);
        }
    }

    fn update_min_rtt(&mut self, now: Duration, rtt: Duration) {
        let expired = now > self.min_rtt_at + MIN_RTT_WINDOW;
        if expired || self.min_rtt.is_none_or(|least| rtt <= least) {
            (self.min_rtt, self.min_rtt_at) = (Some(rtt), now);
        }
        if expired && self.state != State::ProbeRtt {
            self.state = State::ProbeRtt;
            (self.pacing_gain, self.window_gain) = (1.0, 1.0);
            self.prior_window = self.prior_window.max(self.window);
            self.probe_rtt_until = None;
        }
        if self.state != State::ProbeRtt {
            return;
        }
        match self.probe_rtt_until {
            None if self.in_flight.len() as f64 <= LEAST_WINDOW => {
                self.probe_rtt_until = Some(now + PROBE_RTT_TIME);
                self.probe_rtt_round = self.round;
            }
            Some(until) if now > until && self.round > self.probe_rtt_round => {
                self.min_rtt_at = now;
                self.window = self.window.max(std::mem::take(&mut self.prior_window));
                if self.is_pipe_full() {
                    self.begin_cycle(now, 2 + self.cycle % 6);
                } else {
                    self.state = State::Startup;
                    (self.pacing_gain, self.window_gain) = (HIGH_GAIN, HIGH_GAIN);
                }
            }
            _ => {}
        }
    }

    fn update_window(&mut self, number: u64, lost: u64) {
        let in_flight = self.in_flight.len() as f64;
        match self.recovery {
            None if lost > 0 => {
                self.prior_window = self.prior_window.max(self.window);
                self.window = (in_flight + 1.0).max(LEAST_WINDOW);
                self.recovery = Some(Recovery::begin(self.next));
            }
            Some(ref mut recovery) if number < recovery.ends_at => recovery.loses |= lost > 0,
            Some(recovery) => {
                self.recovery = recovery.loses.then_some(Recovery {
                    conserves: false,
                    loses: false,
                    ends_at: self.next,
                });
                if self.recovery.is_none() && self.state != State::ProbeRtt {
                    self.window = self.window.max(std::mem::take(&mut self.prior_window));
                }
            }
            None => {}
        }
        let target = (self.in_flight_at(self.window_gain) + 3.0).max(LEAST_WINDOW);
        if self.recovery.is_some_and(|recovery| recovery.conserves) {
            self.window = (self.window - lost as f64).max(in_flight + 1.0);
        } else if self.is_pipe_full() {
            self.window = (self.window + 1.0).min(target);
        } else if self.window < target || (self.delivered as f64) < INITIAL_WINDOW {
            self.window += 1.0;
        }
        self.window = self.window.max(LEAST_WINDOW);
        if self.state == State::ProbeRtt {
            self.window = self.window.min(LEAST_WINDOW);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Air, Duplex, Queue, Settings};

    const BDP_MILLIS: u64 = 20;
    const MEGABITS: u64 = 100;

    /// Flows that share a bottleneck: for each the bits a second over the second half, and the mean
    /// queue delay of all in milliseconds.
    fn run(starts: &[Duration], end: Duration, loss: f64) -> (Vec<f64>, f64) {
        let settings = Settings {
            rate_bits_per_second: Some(MEGABITS * 1_000_000),
            queue: Queue::Time(Duration::from_millis(200)),
            delay: Duration::from_millis(BDP_MILLIS / 2),
            loss,
            ..Settings::default()
        };
        let mut air = Air::new(Duplex::Full, 1, [settings, settings]);
        let mut flows: Vec<_> = (0..starts.len())
            .map(|seed| BbrSender::new(seed as u64))
            .collect();
        let (mut bits, mut queue, mut packets) = (vec![0.0; flows.len()], 0.0, 0.0);
        let mut now = Duration::ZERO;
        while now < end {
            for (flow, sender) in flows.iter_mut().enumerate() {
                while now >= starts[flow]
                    && let Some(number) = sender.next(now)
                {
                    air.offer(now, 0, 1500, (flow, number));
                }
            }
            let timeouts = flows.iter().zip(starts).filter_map(|(flow, start)| {
                if now < *start {
                    Some(*start)
                } else {
                    flow.timeout()
                }
            });
            let next = timeouts.chain(air.next_event()).min().unwrap();
            now = now.max(next);
            while let Some(delivery) = air.deliver(now) {
                let (flow, number) = delivery.packet;
                if delivery.from == 1 {
                    flows[flow].on_ack(now, number);
                    continue;
                }
                air.offer(now, 1, 52, (flow, number));
                if now > end / 2 {
                    bits[flow] += 12_000.0;
                    packets += 1.0;
                    queue += (now - delivery.offered_at).as_secs_f64() * 1e3;
                }
            }
        }
        let seconds = end.as_secs_f64() / 2.0;
        let queue = queue / packets - BDP_MILLIS as f64 / 2.0;
        (bits.iter().map(|bits| bits / seconds).collect(), queue)
    }

    #[test]
    fn a_flow_alone_fills_the_link_without_much_of_a_queue() {
        let (rates, queue) = run(&[Duration::ZERO], Duration::from_secs(20), 0.0);
        assert!(rates[0] > 0.93 * MEGABITS as f64 * 1e6, "{rates:?}");
        assert!(queue < BDP_MILLIS as f64, "{queue} ms");
    }

    #[test]
    fn random_loss_is_no_sign_of_congestion() {
        let (rates, _) = run(&[Duration::ZERO], Duration::from_secs(20), 0.05);
        assert!(rates[0] > 0.8 * MEGABITS as f64 * 1e6, "{rates:?}");
    }

    #[test]
    fn two_flows_share_within_two_to_one() {
        let starts = [Duration::ZERO, Duration::from_secs(5)];
        let (rates, queue) = run(&starts, Duration::from_secs(60), 0.0);
        let (less, more) = (rates[0].min(rates[1]), rates[0].max(rates[1]));
        assert!(more < 2.0 * less, "{rates:?}");
        assert!(less + more > 0.93 * MEGABITS as f64 * 1e6, "{rates:?}");
        // Each keeps up to two estimates of the BDP in flight.
        assert!(queue < 1.5 * BDP_MILLIS as f64, "{queue} ms");
    }
}
