//! Copies of handshake packets.
//!
//! A lost packet of a handshake costs a retransmission timeout, each one twice as long as the last:
//! at 40 % loss, connecting takes seconds. A handshake has only a few packets, so two copies follow
//! each, a little later, since losses come in bursts. The receiver drops duplicates (RFC 9000,
//! section 12.3).

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::connection::Connection;
use crate::carrier::Addresses;

/// The delays of the copies.
const COPIES_AFTER: [Duration; 2] = [Duration::from_millis(4), Duration::from_millis(12)];
/// A handshake that takes longer than this gets no more copies: the path may be congested, perhaps
/// by the attempts of others.
const COPIES_FOR: Duration = Duration::from_millis(100);
/// The most copies that wait to be sent, for all connections.
const MAX_WAITING: usize = 128;
/// RFC 9000, section 8.1: how many times the bytes received from an unvalidated address may be sent
/// to it.
const AMPLIFICATION: u64 = 3;
/// This bit is set in packets of a handshake (RFC 9000, section 17.2).
const LONG_HEADER: u8 = 0x80;

/// Copies that wait to be sent, ordered by time.
#[derive(Default)]
pub struct Hedge {
    waiting: VecDeque<(Instant, Addresses, Vec<u8>)>,
}

impl Hedge {
    /// Notes that a packet is sent; queues its copies if it belongs to a handshake.
    pub fn on_packet(
        &mut self,
        now: Instant,
        connection: &mut Connection,
        to: Addresses,
        packet: &[u8],
    ) {
        let size = packet.len() as u64;
        if !connection.established {
            connection.bytes_sent += size;
        }
        let is_handshake = packet.first().is_some_and(|first| first & LONG_HEADER != 0);
        if !is_handshake || now.saturating_duration_since(connection.began) > COPIES_FOR {
            return;
        }
        for after in COPIES_AFTER {
            let allowed = connection.is_ours
                || connection.established
                || connection.bytes_sent + size <= AMPLIFICATION * connection.bytes_received;
            if !allowed || self.waiting.len() >= MAX_WAITING {
                return;
            }
            connection.bytes_sent += size;
            let at = now + after;
            let place = self.waiting.partition_point(|(other, ..)| *other <= at);
            self.waiting.insert(place, (at, to, packet.to_vec()));
        }
    }

    /// Writes a copy that is due, and returns its addresses.
    pub fn pop_due(&mut self, now: Instant, packet: &mut Vec<u8>) -> Option<Addresses> {
        if self.timeout()? > now {
            return None;
        }
        let (_, to, copy) = self.waiting.pop_front()?;
        packet.extend_from_slice(&copy);
        Some(to)
    }

    pub fn timeout(&self) -> Option<Instant> {
        self.waiting.front().map(|(at, ..)| *at)
    }
}
