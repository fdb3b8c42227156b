//! The result of the draws: a channel with its flows and its load.

use std::fmt;
use std::time::Duration;

use crate::capacity::{self, Direction};
use crate::{Duplex, Schedule};

/// The time at which the load may begin.
pub const START: Duration = Duration::from_secs(1);
/// The size of a packet that fills an Ethernet frame.
pub const PACKET_BYTES: u32 = 1500;

/// A channel between host 0, which sends the load, and host 1, with all its traffic.
#[derive(Clone, Debug, PartialEq)]
pub struct Channel {
    /// The seed of the draws and of the channel's [`Air`](crate::Air).
    pub seed: u64,
    /// Whether the directions share the air.
    pub duplex: Duplex,
    /// From host 0 to host 1.
    pub forward: Schedule,
    /// From host 1 to host 0.
    pub reverse: Schedule,
    /// The flows that compete.
    pub flows: Vec<Flow>,
    /// The load.
    pub load: Load,
    /// The length of the load, from its begin: 12 s.
    pub length: Duration,
    /// When the rate changed for good, or an interruption ended.
    pub changes: Vec<Duration>,
    /// One line.
    pub description: String,
}

/// A flow that competes with the load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Flow {
    /// The protocol.
    pub kind: FlowKind,
    /// Whether it sends from host 1 to host 0.
    pub is_reverse: bool,
    /// When it begins.
    pub starts: Duration,
    /// Its delay in addition to the channel's, in each direction.
    pub extra_delay: Duration,
    /// Begin and end of its pause, if it is of the protocol under test.
    pub pause: Option<(Duration, Duration)>,
}

impl Flow {
    /// A flow from host 0 to host 1 from the beginning on.
    pub fn new(kind: FlowKind) -> Self {
        Self {
            kind,
            is_reverse: false,
            starts: Duration::ZERO,
            extra_delay: Duration::ZERO,
            pause: None,
        }
    }
}

/// The protocol of a flow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FlowKind {
    /// TCP with Cubic, which always has data to send.
    Cubic,
    /// TCP with BBR, which always has data to send.
    Bbr,
    /// Transfers by TCP with Cubic, with pauses between them.
    Transfers,
    /// The protocol under test, with this load.
    Own(Load),
}

/// Samples of one size that are due at a fixed rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// The samples that wait when there are too many.
    pub history: History,
    /// The bytes of each sample.
    pub sample_bytes: usize,
    /// Samples a second.
    pub rate_hz: f64,
}

/// The samples that wait when there are too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum History {
    /// The last ones, at most this many.
    KeepLast(u32),
    /// All: the producer waits while there are this many.
    KeepAll(u32),
}

impl Channel {
    /// The bits that the forward direction delivers at most in each [`capacity::STEP`] until `end`.
    pub fn deliverable_bits(&self, end: Duration) -> Vec<f64> {
        let steps = end.div_duration_f64(capacity::STEP).ceil() as usize;
        let direction = Direction {
            duplex: self.duplex,
            seed: self.seed,
            host: 0,
        };
        capacity::deliverable_bits(&self.forward, direction, PACKET_BYTES, steps)
    }
}

impl Load {
    /// Bits a second, without headers.
    pub fn bits_per_second(&self) -> f64 {
        8.0 * self.sample_bytes as f64 * self.rate_hz
    }
}

impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.description)
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kilobytes, hertz) = (self.sample_bytes as f64 / 1e3, self.rate_hz);
        match self.history {
            History::KeepLast(depth) => write!(f, "keep last {depth}, ")?,
            History::KeepAll(depth) => write!(f, "keep all {depth}, ")?,
        }
        write!(f, "{kilobytes:.0} kB at {hertz:.1} Hz")
    }
}
