//! What the path passes on, by the receiver's clock.

use super::Observed;
use super::sent::Sent;

/// A round is no shorter than this, in seconds: reports come about once a millisecond.
const MIN_ROUND: f64 = 0.004;
/// A round has at least this many packets, or lasts this long, in seconds.
const MIN_ROUND_PACKETS: u64 = 10;
const LONG_ROUND: f64 = 0.2;

/// Rates of one round, in bytes per second.
///
/// (Cheng, Cardwell, Yeganeh, Jacobson, "Delivery Rate Estimation", IETF draft: the same quantity, with the arrival
/// time measured where packets arrive instead of where acknowledgements do.)
#[derive(Clone, Copy, Debug)]
pub struct DeliveryRates {
    /// What was sent, by the sender's clock.
    pub sent: f64,
    /// The same bytes by the receiver's clock, lost ones included: what the bottleneck passed, if loss comes after it.
    pub passed: f64,
    /// What arrived.
    pub arrived: f64,
    /// There was always something to send.
    pub backlogged: bool,
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
    /// The round lasts until a report names a packet that was sent after the round's first report.
    ends_after: u64,
    last_idle: u64,
}

impl Delivery {
    pub fn on_report(&mut self, packet: &Sent, observed: &Observed, last_idle: u64) {
        let arrived_at = observed.arrived.as_secs_f64();
        self.newest = Some(Mark { packet: *packet, arrived_at, bytes_received: observed.bytes_received });
        self.last_idle = last_idle;
    }

    /// The rates of the round that the newest report ends, if it does.
    pub fn finish_round(&mut self, packet: &Sent, last_sent: u64) -> Option<DeliveryRates> {
        let end = self.newest?;
        let Some(begin) = self.begin else {
            self.begin = Some(end);
            self.ends_after = last_sent;
            return None;
        };
        let enough = packet.number > self.ends_after
            && packet.time - begin.packet.time >= MIN_ROUND
            && (packet.count - begin.packet.count >= MIN_ROUND_PACKETS
                || packet.time - begin.packet.time >= LONG_ROUND);
        if !enough {
            return None;
        }
        self.begin = Some(end);
        self.ends_after = last_sent;
        let sent_bytes = (end.packet.bytes - begin.packet.bytes) as f64;
        let sent_time = end.packet.time - begin.packet.time;
        // A receiver's clock that stands still or runs backwards measures nothing; then ours counts.
        let arrival_time = match end.arrived_at - begin.arrived_at {
            time if time > 1e-6 => time,
            _ => sent_time,
        };
        Some(DeliveryRates {
            sent: sent_bytes / sent_time,
            passed: sent_bytes / arrival_time,
            arrived: (end.bytes_received - begin.bytes_received) as f64 / arrival_time,
            backlogged: self.last_idle <= begin.packet.number,
        })
    }
}
