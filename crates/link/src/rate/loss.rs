//! Loss: how much of it is the channel's, and how much comes from sending too much.

/// Loss is judged over at least this many packets.
const MIN_PACKETS: f64 = 100.0;

/// Packets sent and lost of some stretch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LossCount {
    pub sent: f64,
    pub lost: f64,
}

impl LossCount {
    pub fn share(&self) -> f64 {
        if self.sent > 0.0 { (self.lost / self.sent).clamp(0.0, 1.0) } else { 0.0 }
    }

    pub fn add(&mut self, other: LossCount) {
        self.sent += other.sent;
        self.lost += other.lost;
    }

    pub fn is_enough(&self) -> bool {
        self.sent >= MIN_PACKETS
    }

    /// Whether the loss is higher than another count's, beyond chance: more than three standard deviations of the
    /// difference of two binomial shares, and a percent.
    pub fn exceeds(&self, other: LossCount) -> bool {
        let pooled = (self.lost + other.lost) / (self.sent + other.sent);
        let variance = pooled * (1.0 - pooled) * (1.0 / self.sent + 1.0 / other.sent);
        self.share() - other.share() > 3.0 * variance.max(0.0).sqrt() + 0.01
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
    /// Loss when less was sent than passes: the channel's own.
    channel: Option<f64>,
    /// It was measured after the start.
    known: bool,
    at_start: LossCount,
    pending: [LossCount; 2],
}

impl Losses {
    /// Of the first `sent` packets, `received` have arrived. (Reordered ones still come; then the next count is lower.)
    pub fn on_report(&mut self, sent: u64, received: u64) {
        self.sent = sent;
        self.received = received;
    }

    pub fn finish_round(&mut self) -> LossCount {
        let sent = (self.sent - self.round_sent) as f64;
        let lost = sent - (self.received - self.round_received) as f64;
        self.round_sent = self.sent;
        self.round_received = self.received;
        let count = LossCount { sent, lost };
        self.smoothed += (count.share() - self.smoothed) * sent / (sent + 2.0 * MIN_PACKETS);
        count
    }

    pub fn smoothed(&self) -> f64 {
        self.smoothed
    }

    /// Loss of the channel itself, as far as known; never so high that dividing by what is left means nothing.
    pub fn channel(&self) -> f64 {
        self.channel.unwrap_or(self.smoothed).min(0.95)
    }

    pub fn channel_is_known(&self) -> bool {
        self.channel.is_some()
    }

    pub fn set_channel(&mut self, share: f64) {
        self.channel = Some(share);
        self.known = true;
    }

    /// Takes a round in which the rate grew. The last two may have overflowed the queue, so they count later, if at all.
    pub fn learn_at_start(&mut self, round: LossCount) {
        if self.known {
            return;
        }
        self.at_start.add(self.pending[0]);
        self.pending = [self.pending[1], round];
        self.channel = Some(self.at_start.share());
    }

    /// Takes part of a count that was made while less was sent than passes.
    pub fn learn_channel(&mut self, count: LossCount) {
        self.known = true;
        let weight = count.sent / (count.sent + 5.0 * MIN_PACKETS);
        let known = self.channel.get_or_insert(count.share());
        *known += (count.share() - *known) * weight;
    }

    /// More is lost than the channel loses by itself: four standard deviations of a binomial count, and two percent.
    pub fn is_excess(&self, count: LossCount) -> bool {
        let channel = self.channel();
        let deviation = (channel.max(0.01) * (1.0 - channel) / count.sent.max(1.0)).sqrt();
        count.share() > channel + 4.0 * deviation + 0.02
    }
}
