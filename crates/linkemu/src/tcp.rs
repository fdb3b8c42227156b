//! TCP flows that compete with the protocol under test.

use std::time::Duration;

use crate::bbr::BbrSender;
use crate::cubic::CubicSender;

/// A TCP sender that always has data to send, reduced to its congestion control.
#[derive(Debug)]
pub enum TcpSender {
    /// Cubic.
    Cubic(Box<CubicSender>),
    /// BBR.
    Bbr(Box<BbrSender>),
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

    /// Returns the number of the packet to send now, if one may go.
    pub fn next(&mut self, now: Duration) -> Option<u64> {
        match self {
            Self::Cubic(sender) => sender.next(now),
            Self::Bbr(sender) => sender.next(now),
        }
    }

    /// The latest time at which to call [`TcpSender::next`].
    pub fn timeout(&self) -> Option<Duration> {
        match self {
            Self::Cubic(sender) => sender.timeout(),
            Self::Bbr(sender) => sender.timeout(),
        }
    }

    /// Processes the acknowledgement of a packet.
    pub fn on_ack(&mut self, now: Duration, number: u64) {
        match self {
            Self::Cubic(sender) => sender.on_ack(now, number),
            Self::Bbr(sender) => sender.on_ack(now, number),
        }
    }
}
