//! The peer's report.

use std::time::Duration;

/// Packets that the peer reports as received.
///
/// Every value is cumulative, so a lost report costs nothing. The receiver's clock is its own: only differences count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The highest packet number that arrived.
    pub highest_packet_number: u64,
    /// How many packets arrived since the start.
    pub packets_received: u64,
    /// How many bytes arrived since the start, counted as in [`super::Rate::on_sent`].
    pub bytes_received: u64,
    /// Of these packets, how many the path had marked for congestion (RFC 3168).
    pub congestion_marks: u64,
    /// When the highest packet arrived, by the receiver's clock.
    pub arrived: Duration,
    /// How long the report was held back after that packet had arrived.
    pub held: Duration,
}
