//! Delivery rates of the path, by the receiver's clock.

use super::observed::Observed;
use super::sent::Sent;

/// Longest round trip, in seconds, that is attributed to the path: a longer one is more likely a
/// queue of reports. A sender that joins such a queue cannot see the path's own round trip. So each
/// sender limits its reports in the queue, the window allows for at most this time above the
/// smallest round trip (with less in flight, the air has room for the reports), and a round lasts
/// no longer.
pub(super) const LONGEST_PATH: f64 = 0.25;

/// Shortest round, in seconds: reports come about once a millisecond.
const MIN_ROUND: f64 = 0.004;
/// A round has at least this many packets, or lasts this long, in seconds.
const MIN_ROUND_PACKETS: u64 = 10;
const LONG_ROUND: f64 = 0.2;
/// At the start a round lasts this part of a round trip: long enough for a queue to show, and no longer.
const START_ROUND_TRIPS: f64 = 0.125;
/// Shortest round of startup after a pause, in seconds: the packets of one sample must show whether a higher rate
/// passes, or samples with pauses between them would keep the first rate. (A sender is not limited by its application
/// while pacing alone holds packets back: RFC 9002, section 7.8.) A receiver takes packets of 0.2 ms together, so a
/// shorter round could not distinguish rates.
const MIN_SAMPLE_ROUND: f64 = 0.001;

/// A sender is late if it was for this part of a round.
const LATE: f64 = 0.1;

/// Length that a round needs for its measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Length {
    /// A round trip: its packets were sent after the last decision. It ends after [`LONGEST_PATH`] at the latest.
    RoundTrip,
    /// Part of a round trip of this many seconds: its packets have one rate, so a few suffice.
    Start(f64),
    /// As short as can be.
    Shortest,
}

/// Rates of one round, in bytes per second.
///
/// (Cheng, Cardwell, Yeganeh, Jacobson, "Delivery Rate Estimation", IETF draft: the same quantity, with the arrival
/// time measured where packets arrive instead of where acknowledgements do.)
#[derive(Clone, Copy, Debug)]
pub struct DeliveryRates {
    /// Rate of the sent bytes, by the sender's clock.
    pub sent: f64,
    /// Rate of the same bytes by the receiver's clock, lost ones included: the bottleneck's, if loss comes after it.
    pub passed: f64,
    /// Rate of the bytes that arrived.
    pub arrived: f64,
    /// There was always something to send.
    pub backlogged: bool,
    /// The sender was late so often, as its processor had other work, that the path did not limit the rate.
    pub late: bool,
}

/// One end of a round.
#[derive(Clone, Copy, Debug)]
struct Mark {
    packet: Sent,
    arrived_at: f64,
    bytes_received: u64,
}

/// Measures round after round.
#[derive(Debug, Default)]
pub struct Delivery {
    begin: Option<Mark>,
    newest: Option<Mark>,
    /// The round begins with a packet sent after this one.
    begins_after: u64,
    /// A round of a round trip lasts until a report names a packet that was sent after the round's first report.
    ends_after: u64,
    last_idle: u64,
    /// The first report on packets sent since the last pause.
    since_pause: Option<Mark>,
}

impl Delivery {
    pub fn on_report(&mut self, packet: &Sent, observed: &Observed, last_idle: u64) {
        let arrived_at = observed.arrived.as_secs_f64();
        let mark = Mark {
            packet: *packet,
            arrived_at,
            bytes_received: observed.bytes_received,
        };
        self.newest = Some(mark);
        self.last_idle = last_idle;
        if packet.number >= last_idle && self.since_pause().is_none() {
            self.since_pause = Some(mark);
        }
    }

    /// Begins the next round after this packet, as the earlier ones have another rate.
    pub fn begin_after(&mut self, packet: u64) {
        self.begin = None;
        self.begins_after = packet;
    }

    /// Whether a packet of the running round was reported.
    pub fn has_begun(&self) -> bool {
        self.begin.is_some()
    }

    /// The rates of the round, if the newest report ends it.
    pub fn finish_round(
        &mut self,
        packet: &Sent,
        last_sent: u64,
        length: Length,
    ) -> Option<DeliveryRates> {
        let end = self.newest?;
        let Some(begin) = self.begin else {
            if packet.number > self.begins_after {
                self.begin = Some(end);
                self.ends_after = last_sent;
            }
            return None;
        };
        let after_pause = self
            .since_pause()
            .is_some_and(|mark| mark.packet.number == begin.packet.number);
        let shortest = if after_pause {
            MIN_SAMPLE_ROUND
        } else {
            MIN_ROUND
        };
        let (from, least, packets) = match length {
            Length::RoundTrip => (self.ends_after, MIN_ROUND, MIN_ROUND_PACKETS),
            Length::Start(rtt) => (0, shortest.max(START_ROUND_TRIPS * rtt), MIN_ROUND_PACKETS),
            Length::Shortest => (0, MIN_ROUND, 1),
        };
        let enough = (packet.number > from || packet.time - begin.packet.time >= LONGEST_PATH)
            && packet.time - begin.packet.time >= least
            && (packet.count - begin.packet.count >= packets
                || packet.time - begin.packet.time >= LONG_ROUND);
        if !enough {
            return None;
        }
        let backlogged = self.last_idle <= begin.packet.number;
        // After a pause the next round begins with it: a single sample may be sent before the next pause.
        let next = self.since_pause().filter(|_| !backlogged);
        self.begin = Some(next.unwrap_or(end));
        self.ends_after = last_sent;
        let sent_bytes = (end.packet.bytes - begin.packet.bytes) as f64;
        let sent_time = end.packet.time - begin.packet.time;
        // A receiver's clock that stands still or runs backwards measures nothing: fall back to ours.
        let arrival_time = match end.arrived_at - begin.arrived_at {
            time if time > 1e-6 => time,
            _ => sent_time,
        };
        Some(DeliveryRates {
            sent: sent_bytes / sent_time,
            passed: sent_bytes / arrival_time,
            arrived: (end.bytes_received - begin.bytes_received) as f64 / arrival_time,
            backlogged,
            late: end.packet.late - begin.packet.late > LATE * sent_time,
        })
    }

    fn since_pause(&self) -> Option<Mark> {
        self.since_pause
            .filter(|mark| mark.packet.number >= self.last_idle)
    }
}
