//! Settings of quinn-proto: turns off features that the link has itself.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::packet_size::FIRST_PACKET_BYTES;
use parking_lot::Mutex;
use quinn_proto::congestion::{Controller, ControllerFactory};
use quinn_proto::{AckFrequencyConfig, IdleTimeout, RttEstimator, TransportConfig, VarInt};

/// A session ends after this time without a packet from the peer; outages of a minute end none.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(120);

/// The round-trip time that is assumed at first. A handshake is first retransmitted after three
/// times this. On a path with a longer round trip that costs a few packets.
pub const FIRST_RTT: Duration = Duration::from_millis(15);

/// The round-trip time that is assumed after this number of failed attempts: the path may be slow,
/// or congested by the attempts of others.
pub fn rtt_after(attempts: usize) -> Duration {
    const TIMES: u32 = 4;
    const MOST_ATTEMPTS: usize = 3;
    FIRST_RTT * TIMES.pow(attempts.min(MOST_ATTEMPTS) as u32)
}

/// Settings of a connection with packets of at most this size (UDP payload, in bytes) over a path
/// with this round-trip time, and the counters of its large packets.
pub fn config(packet_bytes: u16, rtt: Duration) -> (Arc<TransportConfig>, Arc<LargePackets>) {
    let large = Arc::new(LargePackets::default());
    let mut acks = AckFrequencyConfig::default();
    // The link has its own feedback; QUIC's only keeps QUIC's memory small. Each acknowledgement
    // costs airtime, which thirty robots on one channel cannot spare: at one every 100 ms they take
    // a tenth of it. Loss is normal, so a gap is no reason for another one.
    acks.ack_eliciting_threshold(VarInt::from_u32(1024))
        .max_ack_delay(Some(Duration::from_millis(400)))
        .reordering_threshold(VarInt::from_u32(0));
    let mut config = TransportConfig::default();
    config
        // With the smallest size equal to the largest, the black-hole detector has nothing to
        // suspect (under loss it fires falsely). Handshake packets are padded, so that a handshake
        // proves the size in both directions.
        .initial_mtu(packet_bytes)
        .min_mtu(packet_bytes)
        .mtu_discovery_config(None)
        .congestion_controller_factory(Arc::new(Unlimited(Arc::clone(&large))))
        .persistent_congestion_threshold(1_000_000)
        .initial_rtt(rtt)
        .max_idle_timeout(Some(
            IdleTimeout::try_from(IDLE_TIMEOUT).expect("two minutes fit"),
        ))
        .keep_alive_interval(Some(Duration::from_secs(1)))
        .ack_frequency_config(Some(acks))
        // Datagrams are requested one at a time, and taken out after each packet.
        .datagram_send_buffer_size(128 * 1024)
        .datagram_receive_buffer_size(Some(256 * 1024))
        .max_concurrent_bidi_streams(VarInt::from_u32(0))
        .max_concurrent_uni_streams(VarInt::from_u32(0))
        .crypto_buffer_size(8 * 1024)
        .enable_segmentation_offload(false)
        .allow_spin(false);
    (Arc::new(config), large)
}

/// Counts packets above [`FIRST_PACKET_BYTES`], sent and acknowledged.
#[derive(Debug, Default)]
pub struct LargePackets {
    sent: AtomicU64,
    acknowledged: AtomicU64,
    /// When the latest packet of any size that is acknowledged was sent.
    acknowledged_until: Mutex<Option<Instant>>,
}

impl LargePackets {
    /// Packets sent, and packets acknowledged.
    pub fn counts(&self) -> (u64, u64) {
        (
            self.sent.load(Ordering::Relaxed),
            self.acknowledged.load(Ordering::Relaxed),
        )
    }

    /// Whether a packet is acknowledged, of any size, that was sent after this time.
    pub fn is_acknowledged_after(&self, time: Instant) -> bool {
        self.acknowledged_until
            .lock()
            .is_some_and(|until| until > time)
    }
}

/// A controller that leaves the rate to the link, and counts. (quinn-proto does not pace windows
/// above `u32::MAX` bytes.)
#[derive(Clone, Debug)]
struct Unlimited(Arc<LargePackets>);

const WINDOW: u64 = 1 << 40;

impl ControllerFactory for Unlimited {
    fn build(self: Arc<Self>, _now: Instant, _current_mtu: u16) -> Box<dyn Controller> {
        Box::new(Self(Arc::clone(&self.0)))
    }
}

impl Controller for Unlimited {
    fn on_sent(&mut self, _now: Instant, bytes: u64, _last_packet_number: u64) {
        if bytes > u64::from(FIRST_PACKET_BYTES) {
            self.0.sent.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn on_ack(
        &mut self,
        _now: Instant,
        sent: Instant,
        bytes: u64,
        _app_limited: bool,
        _rtt: &RttEstimator,
    ) {
        let mut until = self.0.acknowledged_until.lock();
        *until = (*until).max(Some(sent));
        if bytes > u64::from(FIRST_PACKET_BYTES) {
            self.0.acknowledged.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn on_congestion_event(
        &mut self,
        _now: Instant,
        _sent: Instant,
        _persistent: bool,
        _lost: u64,
    ) {
    }

    fn on_mtu_update(&mut self, _new_mtu: u16) {}

    fn window(&self) -> u64 {
        WINDOW
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        WINDOW
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
