//! Rate control of a link, as a pure state machine.
//!
//! The caller reports each packet sent ([`Rate::on_sent`]) and the peer's feedback ([`Rate::on_feedback`]), and asks
//! [`Rate::permission`] before each packet. The module has no clock and no packets.
//!
//! On a bad wireless channel loss says nothing about congestion, so the rate follows three other signals:
//!
//! - **Delivery rate**: the rate at the bottleneck, by the receiver's clock, lost packets included (`delivery`).
//! - **Queue delay**: one-way delay above its smallest value, so that traffic in the reverse direction does not
//!   throttle this one (`delay`). The rate settles where the queue is at a target that shrinks with the square root
//!   of the rate, so that flows that share a queue come to equal rates (`control`).
//! - **Loss that is the channel's**: loss below the bottleneck's rate, with a short queue (`loss`). The rate is capped
//!   near the delivery rate, corrected for this loss. So where a queue overflows before its delay shows, growth ends
//!   there. Where the channel becomes worse, the rate falls, the remaining loss is attributed to the channel, and the
//!   rate returns. A stretch without arrivals is a fade, and says nothing about the packets after it.
//!
//! Beside a flow that fills the queue whatever we do, the delay says nothing either; then a share of the bottleneck is
//! claimed (`compete`). When nothing comes back, only probes are sent (`breaker`).

mod breaker;
mod compete;
mod config;
mod constants;
mod control;
mod delay;
mod delivery;
mod loss;
mod observed;
mod recent;
mod sent;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use breaker::Breaker;
use control::{Control, Round};
use delay::Delays;
use delivery::{Delivery, LONGEST_PATH, Length};
use loss::Losses;
use sent::{Sent, SentPackets};

pub use config::Config;
pub use constants::Constants;
pub use observed::Observed;

/// A report that cannot be true, and is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FalseReport {
    /// It names a packet that was not sent.
    #[error("feedback names packet {named}, but the last one sent is {last}")]
    NeverSent {
        /// The packet that it names.
        named: u64,
        /// The last one that was sent.
        last: u64,
    },
    /// It counts more than was sent, or less than was reported before.
    #[error("feedback counts {counted} {what} received, expected {least} to {most}")]
    Miscounted {
        /// Packets or bytes.
        what: &'static str,
        /// The number that it counts.
        counted: u64,
        /// The least possible number.
        least: u64,
        /// The largest possible number.
        most: u64,
    },
}

/// Whether a packet may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// One packet may go.
    Send,
    /// Nothing is heard of the peer, or of all packets in flight: one packet must go, an empty one if need be, so that
    /// the end of an outage is noticed at once.
    Probe,
    /// Ask again at this time, or after the next report.
    Wait(Instant),
}

/// Estimates of the path.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Status {
    /// Smoothed round-trip time, without the time for which reports were held back.
    pub rtt: Duration,
    /// Smallest round-trip time of the last ten seconds.
    pub base_rtt: Duration,
    /// One-way delay above its smallest value.
    pub queue_delay: Duration,
    /// Share of the packets that were lost, 0 to 1.
    pub loss: f64,
    /// The rate at which packets may be sent now, in bytes per second.
    pub bytes_per_second: f64,
    /// Bottleneck rate: throughput of the path, lost packets included, in bytes per second.
    pub bottleneck_bytes_per_second: f64,
    /// Bytes sent that the peer has not reported on.
    pub in_flight_bytes: u64,
    /// Only probes are sent.
    pub silent: bool,
    /// The rate is being found: it grows with every round trip.
    pub starting: bool,
    /// Another flow fills the queue.
    pub competing: bool,
    /// Reports that could not be true.
    pub false_reports: u64,
}

/// Window before the first report: ten packets and a few small ones. (RFC 6928.)
const INITIAL_WINDOW_BYTES: f64 = 16_000.0;

/// Largest window before a bottleneck rate is known: about the initial rate at a round-trip time of 200 ms. A longer
/// round trip is a queue more often than a path.
const FIRST_WINDOW_BYTES: f64 = 480_000.0;
/// Largest window at any time.
const MOST_WINDOW_BYTES: f64 = 256e6;

const REPORTS_IN_QUEUE: f64 = 4.0;
const LONGEST_REPORT_INTERVAL: f64 = 1.0;

/// Smallest window, however slow the path: with a smaller one, a few losses silence the link.
const LEAST_WINDOW_BYTES: f64 = 12_000.0;

/// Rate control of one direction of a link.
///
/// ```
/// use std::time::{Duration, Instant};
/// use nervure_link::rate::{Config, Observed, Permission, Rate};
///
/// let start = Instant::now();
/// let mut rate = Rate::new(Config::default(), start);
/// assert_eq!(rate.permission(start), Permission::Send);
/// rate.on_sent(start, 1, 1200);
/// let report = Observed {
///     highest_packet_number: 1,
///     packets_received: 1,
///     bytes_received: 1200,
///     congestion_marks: 0,
///     arrived: Duration::from_secs(77),
///     held: Duration::from_millis(1),
/// };
/// rate.on_feedback(start + Duration::from_millis(6), &report).unwrap();
/// assert_eq!(rate.status().rtt, Duration::from_millis(5));
/// ```
#[derive(Debug)]
pub struct Rate {
    start: Instant,
    sent: SentPackets,
    delays: Delays,
    delivery: Delivery,
    losses: Losses,
    control: Control,
    breaker: Breaker,
    next_send: Instant,
    /// When a report last made room in a window that was full.
    window_opened: Instant,
    /// The application had nothing to send since the last packet.
    had_nothing: bool,
    reported: Reported,
    /// The first packet on the path in use.
    path_from: u64,
    /// Marks of congestion that the running round reported.
    marks: u64,
    false_reports: u64,
}

/// The newest report that was believed.
#[derive(Clone, Copy, Debug, Default)]
struct Reported {
    highest: Option<u64>,
    packets: u64,
    bytes: u64,
    marks: u64,
}

impl Rate {
    /// Rate control of a link without any measurement.
    pub fn new(config: Config, now: Instant) -> Self {
        let most = config.max_bytes_per_second;
        let config = Config {
            initial_bytes_per_second: config.initial_bytes_per_second.min(most),
            ..config
        };
        Self {
            start: now,
            sent: SentPackets::default(),
            delays: Delays::default(),
            delivery: Delivery::default(),
            losses: Losses::default(),
            control: Control::new(&config),
            breaker: Breaker::new(config.probe_interval, now),
            next_send: now,
            window_opened: now,
            had_nothing: false,
            reported: Reported::default(),
            path_from: 0,
            marks: 0,
            false_reports: 0,
        }
    }

    /// Sets the largest rate from now on, in bytes per second; at least
    /// [`Config::min_bytes_per_second`].
    pub fn set_max_bytes_per_second(&mut self, most: f64) {
        self.control.set_max_bytes_per_second(most);
    }

    /// A packet of this many bytes was sent. Packet numbers increase; bytes are counted alike at both ends.
    pub fn on_sent(&mut self, now: Instant, packet_number: u64, bytes: usize) {
        let in_flight = self.in_flight_bytes() as f64;
        let late = now.saturating_duration_since(self.next_send.max(self.window_opened));
        let had_nothing = std::mem::take(&mut self.had_nothing);
        let idle = had_nothing && late > pacing::SLACK && in_flight < 0.9 * self.window_bytes();
        let spacing = Duration::from_secs_f64(bytes as f64 / self.control.bytes_per_second());
        let burst = self.catches_up();
        let lost = if had_nothing {
            Duration::ZERO
        } else {
            late.saturating_sub(burst)
        };
        let time = now.duration_since(self.start).as_secs_f64();
        self.sent
            .push(packet_number, time, bytes, idle, lost.as_secs_f64());
        self.breaker.on_sent(now, in_flight == 0.0);
        let from = self.next_send.max(now.checked_sub(burst).unwrap_or(now));
        // Probes go earlier than the rate allows, and must not delay later packets.
        self.next_send = from.min(now) + spacing;
    }

    /// Packets travel on another path from now on, with about this round-trip time: earlier measurements do not hold
    /// for it. (RFC 9000, section 9.4.)
    pub fn on_path_changed(&mut self, rtt: Duration) {
        self.delays.on_path_changed(rtt.as_secs_f64());
        self.control.on_resumed();
        let last_sent = self.sent.last_number();
        self.delivery.begin_after(last_sent);
        self.path_from = last_sent + 1;
    }

    /// Nothing is left to send: the rates around such a pause are limited by the application, not by the path. A sender
    /// that merely comes late, as its processor was stopped, is not limited by it.
    pub fn on_nothing_to_send(&mut self) {
        self.had_nothing = true;
    }

    /// Processes feedback of the peer.
    ///
    /// # Errors
    ///
    /// A report that cannot be true is counted and ignored.
    pub fn on_feedback(&mut self, now: Instant, observed: &Observed) -> Result<(), FalseReport> {
        if self
            .reported
            .highest
            .is_some_and(|highest| observed.highest_packet_number < highest)
        {
            return Ok(());
        }
        let packet = self
            .check(observed)
            .inspect_err(|_| self.false_reports += 1)?;
        let fresh = self.reported.highest != Some(observed.highest_packet_number);
        let time = now.duration_since(self.start).as_secs_f64();
        if self.in_flight_bytes() as f64 >= self.window_bytes() {
            self.window_opened = now;
        }
        let marks = observed.congestion_marks.max(self.reported.marks);
        self.marks += marks - self.reported.marks;
        self.reported = Reported {
            highest: Some(observed.highest_packet_number),
            packets: observed.packets_received,
            bytes: observed.bytes_received,
            marks,
        };
        self.breaker
            .on_report(now, packet.count, observed.packets_received);
        if !fresh {
            return Ok(());
        }
        let rtt = (time - packet.time - observed.held.as_secs_f64()).max(0.0);
        if !self.delays.known() {
            self.control.on_first_report(rtt);
        }
        if packet.number >= self.path_from {
            self.delays
                .on_sample(time, rtt, observed.arrived.as_secs_f64() - packet.time);
        }
        let short_queue = self.delays.queue() < self.control.target();
        self.losses
            .on_report(packet.count, observed.packets_received, short_queue);
        self.delivery
            .on_report(&packet, observed, self.sent.last_idle());
        self.sent.forget_before(observed.highest_packet_number);
        let rtt = self.delays.rtt() + self.wanted_report_interval();
        self.breaker.set_patience(rtt, self.losses.smoothed());
        self.end_round(time, &packet);
        Ok(())
    }

    /// Whether a packet may go now.
    pub fn permission(&mut self, now: Instant) -> Permission {
        let in_flight = self.in_flight_bytes();
        if in_flight > 0 && self.breaker.is_open(now) {
            return match self.breaker.next_probe() {
                at if at <= now => Permission::Probe,
                at => Permission::Wait(at),
            };
        }
        if in_flight as f64 >= self.window_bytes() {
            // All packets in flight may be lost. (A tail loss probe, RFC 8985, section 7.)
            let patience = seconds(2.0 * self.delays.rtt()).max(pacing::TAIL);
            return match self.breaker.last_event() + patience {
                at if at <= now => Permission::Probe,
                at => Permission::Wait(
                    at.min(self.breaker.silent_at())
                        .max(now + Duration::from_micros(100)),
                ),
            };
        }
        if self.next_send > now {
            Permission::Wait(self.next_send)
        } else {
            Permission::Send
        }
    }

    /// Least time between two reports of the peer, carried by each packet: longer when reports queue on their way back,
    /// or do not come at all. A report that is due goes at once, so a long interval does not delay the answer to the
    /// first packet after a pause.
    pub fn report_interval(&self, now: Instant) -> Duration {
        self.breaker
            .answer_interval(now)
            .max(seconds(self.wanted_report_interval()))
    }

    /// Current estimates of the path.
    pub fn status(&self) -> Status {
        Status {
            rtt: seconds(self.delays.rtt()),
            base_rtt: seconds(self.delays.base_rtt()),
            queue_delay: seconds(self.delays.queue()),
            loss: self.losses.smoothed(),
            bytes_per_second: self.control.bytes_per_second(),
            bottleneck_bytes_per_second: self.control.bottleneck(),
            in_flight_bytes: self.in_flight_bytes(),
            silent: self.breaker.was_open(),
            starting: self.control.is_starting(),
            competing: self.control.competing(),
            false_reports: self.false_reports,
        }
    }

    fn check(&self, observed: &Observed) -> Result<Sent, FalseReport> {
        let named = observed.highest_packet_number;
        let Some(packet) = self.sent.find(named) else {
            return Err(FalseReport::NeverSent {
                named,
                last: self.sent.last_number(),
            });
        };
        let within = |what, counted, least, most| match (least..=most).contains(&counted) {
            true => Ok(()),
            false => Err(FalseReport::Miscounted {
                what,
                counted,
                least,
                most,
            }),
        };
        within(
            "packets",
            observed.packets_received,
            self.reported.packets,
            packet.count,
        )?;
        within(
            "bytes",
            observed.bytes_received,
            self.reported.bytes,
            packet.bytes,
        )?;
        Ok(packet)
    }

    /// Decides again after a round trip with enough packets to measure.
    fn end_round(&mut self, time: f64, packet: &Sent) {
        if self.breaker.take_resumed() {
            self.control.on_resumed();
            self.delivery.begin_after(self.sent.last_number());
        }
        self.control.on_report(
            time,
            self.delays.queue(),
            self.delays.noise(),
            self.delivery.has_begun(),
        );
        if self.control.take_base_changed() {
            self.delays.forget_base();
        }
        let length = match (self.control.is_starting(), self.control.is_last_of_start()) {
            (false, _) => Length::RoundTrip,
            (true, false) => Length::Start(self.delays.rtt()),
            (true, true) => Length::Shortest,
        };
        let last_sent = self.sent.last_number();
        let Some(delivery) = self.delivery.finish_round(packet, last_sent, length) else {
            return;
        };
        let before = self.control.bytes_per_second();
        let round = Round {
            time,
            rtt: self.delays.rtt(),
            queue: self.delays.take_round_queue(),
            noise: self.delays.noise(),
            delivery,
            loss: self.losses.finish_round(),
            marks: std::mem::take(&mut self.marks),
        };
        self.control.on_round(&round, &mut self.losses);
        if self.control.is_starting() && self.control.bytes_per_second() != before {
            self.delivery.begin_after(last_sent);
        }
        self.delays.relax_report_interval();
        self.delays
            .set_base_window(self.control.competing(), self.control.drain_period());
    }

    /// Interval of reports, in seconds: as their own path allows, and never so short that reports queue on it.
    fn wanted_report_interval(&self) -> f64 {
        let queue = self.delays.rtt() - LONGEST_PATH;
        self.delays
            .report_interval()
            .max((queue / REPORTS_IN_QUEUE).min(LONGEST_REPORT_INTERVAL))
    }

    /// Time that a late sender may catch up.
    fn catches_up(&self) -> Duration {
        let of_path = self.delays.base_rtt().min(LONGEST_PATH) / pacing::BURSTS_IN_ROUND_TRIP;
        let of_few_bytes = pacing::BURST_BYTES / self.control.bytes_per_second();
        pacing::BURST.max(seconds(of_path.max(of_few_bytes)))
    }

    fn in_flight_bytes(&self) -> u64 {
        self.sent.bytes_after(self.reported.highest)
    }

    /// Largest number of bytes in flight: 1.5 times the path's content at the present rate, and the bytes sent while a
    /// report is held back.
    fn window_bytes(&self) -> f64 {
        if !self.delays.known() {
            return INITIAL_WINDOW_BYTES;
        }
        // At the start the queue of this direction must not widen the window.
        let rtt = if self.control.is_starting() {
            self.delays.path_rtt()
        } else {
            self.delays.rtt()
        };
        // Neither must a queue of reports, as a wider window would make it longer. Only beside a flow that fills the
        // queue is all of the round trip ours to fill.
        let longest = if self.control.competing() {
            f64::MAX
        } else {
            self.delays.base_rtt() + LONGEST_PATH
        };
        let rtt = rtt.min(longest);
        let window = self.control.window_bytes_per_second() * (1.5 * rtt + 0.010);
        let most = if self.control.knows_bottleneck() {
            MOST_WINDOW_BYTES
        } else {
            FIRST_WINDOW_BYTES
        };
        window.clamp(LEAST_WINDOW_BYTES, most)
    }
}

/// Sending in even steps.
mod pacing {
    use std::time::Duration;

    /// A late sender may catch up by this much.
    pub const BURST: Duration = Duration::from_micros(500);
    /// Or by this part of a round trip: a long path needs a long time to show a higher rate.
    pub const BURSTS_IN_ROUND_TRIP: f64 = 50.0;
    /// Or by this many bytes: where little is sent, a small sample goes at once, whatever the rate. (TCP's burst after
    /// a pause, RFC 6928.)
    pub const BURST_BYTES: f64 = 12_000.0;
    /// Silence, or two round trips of it if longer, after which a full window is probed.
    pub const TAIL: Duration = Duration::from_millis(10);
    /// A shorter time with nothing to send is no pause.
    pub const SLACK: Duration = Duration::from_millis(2);
}

fn seconds(value: f64) -> Duration {
    Duration::try_from_secs_f64(value.max(0.0)).unwrap_or(Duration::ZERO)
}
