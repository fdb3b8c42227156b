//! TCP flows that compete with the protocol under test.

use std::time::Duration;

use crate::bbr::BbrSender;
use crate::cubic::CubicSender;
use crate::network::Draw;

/// A TCP sender, reduced to its congestion control.
#[derive(Debug)]
pub enum TcpSender {
    /// Cubic, with data to send at all times.
    Cubic(Box<CubicSender>),
    /// BBR, with data to send at all times.
    Bbr(Box<BbrSender>),
    /// Cubic, one transfer after the other.
    Transfers(Box<Transfers>),
}

/// The packets of the shortest and the longest transfer: 100 kB to 1 MB. (RFC 8867, section 5.7.)
const TRANSFER_PACKETS: (u64, u64) = (69, 690);
/// The mean of the exponential time between transfers. (RFC 8867, section 5.7.)
const MEAN_PAUSE: Duration = Duration::from_secs(10);

/// Transfers by Cubic with pauses between them, like a user's page loads. Each is a connection of
/// its own.
#[derive(Debug)]
pub struct Transfers {
    draw: Draw,
    sender: CubicSender,
    /// The number of the first packet of the running transfer.
    first: u64,
    /// Packets of the running transfer that are still to be acknowledged.
    left: u64,
    begins: Duration,
}

impl Transfers {
    fn new(seed: u64) -> Self {
        let mut transfers = Self {
            draw: Draw::new(seed),
            sender: CubicSender::default(),
            first: 0,
            left: 0,
            begins: Duration::ZERO,
        };
        transfers.begin_after(Duration::ZERO, 0);
        transfers
    }

    fn begin_after(&mut self, now: Duration, first: u64) {
        let pause = MEAN_PAUSE.mul_f64(-(1.0 - self.draw.share()).ln());
        let (least, most) = TRANSFER_PACKETS;
        self.left = least + self.draw.below(most - least + 1);
        self.sender = CubicSender::default();
        (self.begins, self.first) = (now + pause, first);
    }

    fn next(&mut self, now: Duration) -> Option<u64> {
        self.sender.expire(now);
        if now < self.begins || self.sender.in_flight() >= self.left {
            return None;
        }
        Some(self.first + self.sender.next(now)?)
    }

    fn on_ack(&mut self, now: Duration, number: u64) {
        let Some(number) = number.checked_sub(self.first) else {
            return;
        };
        self.sender.on_ack(now, number);
        self.left -= 1;
        if self.left == 0 {
            let first = self.first + self.sender.sent();
            self.begin_after(now, first);
        }
    }

    fn timeout(&self) -> Option<Duration> {
        self.sender.timeout().or(Some(self.begins))
    }
}

impl TcpSender {
    /// A sender with Cubic.
    pub fn cubic() -> Self {
        Self::Cubic(Box::default())
    }

    /// A sender with BBR.
    pub fn bbr(seed: u64) -> Self {
        Self::Bbr(Box::new(BbrSender::new(seed)))
    }

    /// Transfers with Cubic, with pauses between them.
    pub fn transfers(seed: u64) -> Self {
        Self::Transfers(Box::new(Transfers::new(seed)))
    }

    /// Returns the number of the packet to send now, if one may go.
    pub fn next(&mut self, now: Duration) -> Option<u64> {
        match self {
            Self::Cubic(sender) => sender.next(now),
            Self::Bbr(sender) => sender.next(now),
            Self::Transfers(sender) => sender.next(now),
        }
    }

    /// The latest time at which to call [`TcpSender::next`].
    pub fn timeout(&self) -> Option<Duration> {
        match self {
            Self::Cubic(sender) => sender.timeout(),
            Self::Bbr(sender) => sender.timeout(),
            Self::Transfers(sender) => sender.timeout(),
        }
    }

    /// Processes the acknowledgement of a packet.
    pub fn on_ack(&mut self, now: Duration, number: u64) {
        match self {
            Self::Cubic(sender) => sender.on_ack(now, number),
            Self::Bbr(sender) => sender.on_ack(now, number),
            Self::Transfers(sender) => sender.on_ack(now, number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Acknowledges each packet after 10 ms, but for one in eleven.
    #[test]
    fn transfers_follow_each_other_with_pauses() {
        let mut sender = TcpSender::transfers(1);
        let mut in_flight = std::collections::VecDeque::new();
        let (mut now, mut busy, mut acknowledged) = (Duration::ZERO, 0, 0);
        let step = Duration::from_millis(1);
        while now < Duration::from_secs(600) {
            while let Some(number) = sender.next(now) {
                in_flight.push_back((now + 10 * step, number));
            }
            busy += u64::from(!in_flight.is_empty());
            while let Some((_, number)) = in_flight.pop_front_if(|(at, _)| *at <= now) {
                if number % 11 != 0 {
                    sender.on_ack(now, number);
                    acknowledged += 1;
                }
            }
            now += step;
        }
        // About sixty transfers of 380 packets.
        assert!((15_000..35_000).contains(&acknowledged), "{acknowledged}");
        assert!((1000..300_000).contains(&busy), "busy for {busy} ms");
    }
}
