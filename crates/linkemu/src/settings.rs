//! The effect of a direction on its packets.

use std::time::Duration;

/// The settings of one direction. The default sends at once and loses nothing.
///
/// Probabilities lie in 0 to 1; values below are never, above are always.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// The rate of transmission in bits a second, one packet after the other. `None` sends without
    /// taking time; 0 sends nothing.
    pub rate_bits_per_second: Option<u64>,
    /// The limit of the queue. Packets beyond it are dropped.
    pub queue: Queue,
    /// Probability that a packet is lost, independently.
    pub loss: f64,
    /// Whether a packet lost to `loss` or `bursts` has cost airtime.
    pub loss_place: LossPlace,
    /// Time from the end of the transmission to the arrival.
    pub delay: Duration,
    /// Added to the delay: uniformly between 0 and this, but never so that a packet overtakes
    /// another.
    pub jitter: Duration,
    /// Probability that a packet is held back by `reorder_delay`, so that later ones overtake it.
    pub reorder: f64,
    /// Time for which a reordered packet is held back.
    pub reorder_delay: Duration,
    /// Times of heavy loss.
    pub bursts: Option<Bursts>,
    /// Whether the link is interrupted, and how.
    pub outage: Option<Outage>,
    /// Packets above this size are dropped silently, as on a path with a broken path MTU discovery.
    pub mtu_bytes: Option<u32>,
    /// Bytes that every packet costs on the air beside its own, such as link headers.
    pub overhead_bytes: u32,
    /// The active management of the queue, within its limit.
    pub aqm: Option<Aqm>,
    /// Drops packets above a rate before they enter the queue.
    pub policer: Option<Policer>,
    /// Several packets in one transmission.
    pub aggregation: Option<Aggregation>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            rate_bits_per_second: None,
            queue: Queue::Time(Duration::from_millis(100)),
            loss: 0.0,
            loss_place: LossPlace::AfterSerialiser,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            reorder: 0.0,
            reorder_delay: Duration::ZERO,
            bursts: None,
            outage: None,
            mtu_bytes: None,
            overhead_bytes: 0,
            aqm: None,
            policer: None,
            aggregation: None,
        }
    }
}

/// Active queue management: CoDel (RFC 8289), or with a queue for each flow FQ-CoDel (RFC 8290).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aqm {
    /// Queue delay that is accepted.
    pub target: Duration,
    /// For how long the delay may be above the target: about the longest round trip.
    pub interval: Duration,
    /// Whether each flow has its own queue, and the queues take turns.
    pub fair: bool,
    /// Whether packets that are ECN-capable are marked instead of dropped.
    pub ecn: bool,
}

impl Default for Aqm {
    /// The defaults of both RFCs: 5 ms, 100 ms; one queue, drops.
    fn default() -> Self {
        Self {
            target: Duration::from_millis(5),
            interval: Duration::from_millis(100),
            fair: false,
            ecn: false,
        }
    }
}

/// A token bucket: packets above its rate and burst are dropped at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policer {
    /// The rate at which the bucket fills, in bits a second.
    pub rate_bits_per_second: u64,
    /// The size of the bucket.
    pub burst_bytes: u64,
}

/// Frame aggregation, as in WiFi since 802.11n: a host that gets the air sends packets that wait in
/// one transmission. They arrive together, and share the cost of access to the air.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aggregation {
    /// Overhead of each transmission: contention, preamble, acknowledgement.
    pub access: Duration,
    /// The longest transmission, unless one packet takes longer. (802.11: 5.484 ms.)
    pub longest: Duration,
    /// The largest number of packets. (802.11n: 64.)
    pub packets: u32,
}

/// The limit of a sender's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// A packet is dropped when the packets ahead of it need longer than this at the current rate,
    /// the rest of the running transmission included.
    Time(Duration),
    /// A packet is dropped when the bytes waiting would exceed this with it. The packet being sent
    /// does not count.
    Bytes(u64),
}

/// The place of losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossPlace {
    /// On the air: a lost packet has waited in the queue and cost its airtime, so goodput ends at
    /// `(1 - loss) * rate`.
    AfterSerialiser,
    /// Before the queue: a lost packet costs nothing, so goodput ends at `rate`. A `netem loss`
    /// above a shaper does this, in Mininet for one.
    BeforeSerialiser,
}

/// Loss in bursts: the Gilbert-Elliott model, in time rather than in packets.
///
/// (E. N. Gilbert, "Capacity of a burst-noise channel", 1960; E. O. Elliott, 1963.) A chain that
/// steps once a packet would stand still when the sender slows down; a fade does not. The lengths
/// of good and bad times are exponential. The long-term loss is `loss * bad_mean / (good_mean +
/// bad_mean)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bursts {
    /// Mean length of the times between bursts.
    pub good_mean: Duration,
    /// Mean length of a burst.
    pub bad_mean: Duration,
    /// Probability of loss within a burst.
    pub loss: f64,
}

/// The effect of an interruption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outage {
    /// Packets are sent and lost.
    Lose,
    /// Nothing is sent; packets wait, up to the limit of the queue.
    Hold,
}
