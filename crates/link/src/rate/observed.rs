//! The peer's report.

use std::time::Duration;

/// Packets that the peer reports as received.
///
/// Every value is cumulative, so a lost report costs nothing. The receiver's clock is its own: only differences count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The highest packet number that arrived.
    pub highest_packet_number: u64,
    /// Packets that arrived since the start.
    pub packets_received: u64,
    /// Bytes that arrived since the start, counted as in [`super::Rate::on_sent`].
    pub bytes_received: u64,
    /// Packets of these that the path had marked for congestion (RFC 3168).
    pub congestion_marks: u64,
    /// When the highest packet arrived, by the receiver's clock.
    pub arrived: Duration,
    /// Time for which the report was held back after that packet had arrived.
    pub held: Duration,
}
