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
    }

    /// Takes part of a count that was made while less was sent than passes.
    pub fn learn_channel(&mut self, count: LossCount) {
        let weight = count.sent / (count.sent + 5.0 * MIN_PACKETS);
        let known = self.channel.get_or_insert(count.share());
        *known += (count.share() - *known) * weight;
    }

    /// More is lost than the channel loses by itself: three standard deviations of a binomial count, and a percent.
    pub fn is_excess(&self, count: LossCount) -> bool {
        let channel = self.channel();
        let deviation = (channel.max(0.01) * (1.0 - channel) / count.sent.max(1.0)).sqrt();
        count.share() > channel + 3.0 * deviation + 0.01
    }
}
