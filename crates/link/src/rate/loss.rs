//! Loss: the channel's own, and the excess caused by too high a rate.

/// Loss is judged over at least this many packets.
const MIN_PACKETS: f64 = 100.0;
/// Packets of the channel's estimate; older ones fade out.
const MEMORY_PACKETS: f64 = 500.0;
/// Packets over which the lost share is smoothed.
const SMOOTHED_PACKETS: f64 = 200.0;
/// Packets that count as received beforehand, so that one loss among the first packets is not a high share.
const PRIOR_PACKETS: f64 = 20.0;
/// Packets of startup that suffice to estimate a channel's loss.
const START_PACKETS: f64 = 50.0;
/// A fade: of at least this many packets between two reports, less than this part of the usual share arrived. (With 64 % lost
/// by chance, once in ten thousand reports.)
const FADE_PACKETS: u64 = 50;
const FADED: f64 = 0.3;

/// Packets sent and lost of some stretch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LossCount {
    pub sent: f64,
    pub lost: f64,
}

impl LossCount {
    pub fn share(&self) -> f64 {
        if self.sent > 0.0 {
            (self.lost / self.sent).clamp(0.0, 1.0)
        } else {
            0.0
        }
    }

    pub fn add(&mut self, other: LossCount) {
        self.sent += other.sent;
        self.lost += other.lost;
    }

    pub fn is_enough(&self) -> bool {
        self.sent >= MIN_PACKETS
    }
}

/// Loss as reported, and the channel's own share of it.
#[derive(Debug, Default)]
pub struct Losses {
    sent: u64,
    received: u64,
    round_sent: u64,
    round_received: u64,
    smoothed: f64,
    /// The number of packets in `smoothed`.
    smoothed_packets: f64,
    /// Loss below the bottleneck's rate: the channel's own.
    channel: Option<f64>,
    /// Packets behind that estimate.
    channel_packets: f64,
    /// The estimate was made after startup.
    known: bool,
    at_start: LossCount,
    pending: [LossCount; 2],
}

impl Losses {
    /// Of the first `sent` packets, `received` have arrived. (Reordered ones still come; then the next count is lower.)
    ///
    /// While the queue is short, a stretch in which almost nothing arrived is a fade: it says nothing about the packets
    /// before and after it, so it is no part of the lost share.
    pub fn on_report(&mut self, sent: u64, received: u64, short_queue: bool) {
        let (sent_since, received_since) =
            (sent - self.sent, received.saturating_sub(self.received));
        let expected = FADED * (1.0 - self.smoothed.min(0.95)) * sent_since as f64;
        if short_queue && sent_since >= FADE_PACKETS && (received_since as f64) < expected {
            self.round_sent += sent_since;
            self.round_received += received_since;
        }
        self.sent = sent;
        self.received = received;
    }

    pub fn finish_round(&mut self) -> LossCount {
        let sent = self.sent.saturating_sub(self.round_sent) as f64;
        let lost = sent - self.received as f64 + self.round_received as f64;
        self.round_sent = self.sent;
        self.round_received = self.received;
        let count = LossCount { sent, lost };
        self.smoothed +=
            (count.share() - self.smoothed) * sent / (sent + PRIOR_PACKETS + self.smoothed_packets);
        self.smoothed_packets = (self.smoothed_packets + sent).min(SMOOTHED_PACKETS);
        count
    }

    pub fn smoothed(&self) -> f64 {
        self.smoothed
    }

    /// Loss of the channel itself, as far as known; at most 0.95, as rates are divided by the rest.
    pub fn channel(&self) -> f64 {
        self.channel.unwrap_or(self.smoothed).min(0.95)
    }

    pub fn channel_is_known(&self) -> bool {
        self.channel.is_some()
    }

    /// Whether the estimate of the channel suffices to notice excess loss.
    pub fn start_is_known(&self) -> bool {
        self.known || self.at_start.sent >= START_PACKETS
    }

    /// Learns from a round of startup. The last two may have overflowed the queue, so they count later, if at all.
    pub fn learn_at_start(&mut self, round: LossCount) {
        if self.known {
            return;
        }
        self.at_start.add(self.pending[0]);
        self.pending = [self.pending[1], round];
        self.channel = (self.at_start.sent > 0.0).then(|| self.at_start.share());
        self.channel_packets = self.at_start.sent.min(MEMORY_PACKETS);
    }

    /// Learns from packets sent below the bottleneck's rate.
    pub fn learn_channel(&mut self, count: LossCount) {
        self.known = true;
        self.channel_packets += count.sent;
        let known = self.channel.get_or_insert(count.share());
        *known += (count.share() - *known) * count.sent / self.channel_packets.max(1.0);
        self.channel_packets = self.channel_packets.min(MEMORY_PACKETS);
    }

    /// Whether loss exceeds the channel's by `more`, beyond four standard deviations of the difference of two binomial
    /// counts: the channel's estimate, too, may come from a few packets.
    pub fn exceeds(&self, count: LossCount, more: f64) -> bool {
        let known = self.channel_packets.max(1.0);
        let likely = ((self.channel() * known + 1.0) / (known + 2.0)).max(0.01);
        let variance = likely * (1.0 - likely) * (1.0 / count.sent.max(1.0) + 1.0 / known);
        count.share() > self.channel() + 4.0 * variance.sqrt() + more
    }

    /// Whether loss exceeds the channel's.
    pub fn is_excess(&self, count: LossCount) -> bool {
        self.exceeds(count, 0.02)
    }

    /// Whether loss is below the channel's, beyond chance: two standard deviations.
    pub fn is_less(&self, count: LossCount) -> bool {
        let channel = self.channel();
        let deviation = (channel * (1.0 - channel) / count.sent.max(1.0)).sqrt();
        self.channel_is_known() && count.share() < channel - 2.0 * deviation
    }
}
