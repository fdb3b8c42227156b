//! A QUIC connection: the one in use by a session, or an attempt.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use quinn_proto::{ConnectionId, VarInt};

use super::packet_size::FIRST_PACKET_BYTES;
use super::transport::LargePackets;
use crate::carrier::{Addresses, NextDatagram, SessionId};
use crate::timed::Timed;

/// A handshake that takes longer fails.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of a connection id: packet size, session tag, flags, randomness.
const CONNECTION_ID_BYTES: usize = 20;
/// The place of the flags in a connection id.
const FLAGS: usize = 10;
/// Flag: [`ConnectionHint::is_standby`].
const STANDBY: u8 = 1;
/// A standby connection works if a packet arrived within this time: both ends send keep-alives every
/// second, so that several of them must have been lost.
const WORKS: Duration = Duration::from_millis(3500);

/// Information in the connection id of the first packet, which the initiator chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionHint {
    /// Size of the packets (UDP payload, in bytes), in both directions.
    pub packet_bytes: u16,
    /// A random tag that all connections of a session share.
    pub tag: [u8; 8],
    /// The connection is kept ready on another path, and does not replace the one in use.
    pub is_standby: bool,
}

impl ConnectionHint {
    /// Reads the hint of a first packet. A forged hint affects its own connection only.
    pub fn read(id: &ConnectionId, largest: u16) -> Self {
        let mut hint = Self {
            packet_bytes: FIRST_PACKET_BYTES,
            tag: [0; 8],
            is_standby: false,
        };
        if let Ok(bytes) = <[u8; CONNECTION_ID_BYTES]>::try_from(&id[..]) {
            let packet_bytes = u16::from_be_bytes([bytes[0], bytes[1]]);
            hint.packet_bytes =
                packet_bytes.clamp(FIRST_PACKET_BYTES, largest.max(FIRST_PACKET_BYTES));
            hint.tag.copy_from_slice(&bytes[2..FLAGS]);
            hint.is_standby = bytes[FLAGS] & STANDBY != 0;
        }
        hint
    }

    pub fn connection_id(self, mut bytes: [u8; CONNECTION_ID_BYTES]) -> ConnectionId {
        bytes[..2].copy_from_slice(&self.packet_bytes.to_be_bytes());
        bytes[2..FLAGS].copy_from_slice(&self.tag);
        bytes[FLAGS] = bytes[FLAGS] & !STANDBY | if self.is_standby { STANDBY } else { 0 };
        ConnectionId::new(&bytes)
    }
}

/// A QUIC connection with the state of its path.
pub struct Connection {
    pub quic: quinn_proto::Connection,
    /// The session; an accepted connection has one once the peer has proved its key.
    pub session: Option<SessionId>,
    pub hint: ConnectionHint,
    pub is_ours: bool,
    pub established: bool,
    /// The acceptor knew when the connection began that the peer receives at its address.
    pub address_validated: bool,
    /// It takes over once the peer is known to have finished the handshake.
    pub awaits_peer: bool,
    pub began: Instant,
    /// When the last authentic packet arrived.
    pub last_packet: Instant,
    frames_received: u64,
    /// Since when packets have arrived without a long pause.
    pub works_since: Instant,
    /// Bytes received before the peer's address was validated (RFC 9000, section 8.1).
    pub bytes_received: u64,
    /// Bytes sent before that, copies included.
    pub bytes_sent: u64,
    /// Set when another connection takes over: until then this one still accepts packets in flight.
    pub retires_at: Option<Instant>,
    pub max_datagram_bytes: Option<usize>,
    /// The peer is known to have finished the handshake.
    confirmed: bool,
    large: Arc<LargePackets>,
    large_before: LargeBefore,
}

/// The large packets at the start of an interval in which none has been acknowledged.
struct LargeBefore {
    since: Instant,
    /// Counts at that time.
    sent: u64,
    acknowledged: u64,
    /// The end of the interval, once it is long enough.
    until: Option<Instant>,
}

/// Shortest interval over which large packets are evaluated.
const LARGE_PERIOD: Duration = Duration::from_secs(1);
/// If this number of large packets is sent in an interval, none of them acknowledged, and a later
/// packet acknowledged, the path no longer takes large ones. (At 64 % loss one false alarm in ten
/// thousand; then the size is found again.)
const LARGE_LOST: u64 = 20;
/// Bytes left for QUIC's own acknowledgements beside a datagram, in a packet that must not be
/// large.
const ACKNOWLEDGEMENT_BYTES: usize = 64;

impl Connection {
    pub fn begun_here(
        now: Instant,
        quic: quinn_proto::Connection,
        session: SessionId,
        hint: ConnectionHint,
        large: Arc<LargePackets>,
    ) -> Self {
        Self {
            session: Some(session),
            is_ours: true,
            ..Self::accepted(now, quic, hint, large)
        }
    }

    pub fn accepted(
        now: Instant,
        quic: quinn_proto::Connection,
        hint: ConnectionHint,
        large: Arc<LargePackets>,
    ) -> Self {
        Self {
            session: None,
            hint,
            is_ours: false,
            established: false,
            address_validated: false,
            awaits_peer: false,
            began: now,
            last_packet: now,
            frames_received: 0,
            works_since: now,
            bytes_received: u64::from(hint.packet_bytes),
            bytes_sent: 0,
            retires_at: None,
            max_datagram_bytes: None,
            confirmed: false,
            large,
            large_before: LargeBefore {
                since: now,
                sent: 0,
                acknowledged: 0,
                until: None,
            },
            quic,
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.quic.remote_address()
    }

    /// The addresses of both ends: connections with the same addresses share a path.
    pub fn path(&self) -> Addresses {
        Addresses {
            remote: self.address(),
            local: self.quic.local_ip(),
        }
    }

    /// Whether it is established, and neither closed nor about to be.
    pub fn is_usable(&self) -> bool {
        self.established && !self.quic.is_closed() && self.retires_at.is_none()
    }

    /// Whether its path works, as far as is known.
    pub fn works(&self, now: Instant) -> bool {
        now < self.last_packet + WORKS
    }

    /// Notes that QUIC has processed a packet with a connection id of this connection, which any
    /// host can send that has seen one.
    pub fn on_packet(&mut self, now: Instant, bytes: usize) {
        let frames = self.quic.stats().frame_rx;
        let frames = frames.acks + frames.datagram + frames.ping + frames.crypto;
        // Only authentic packets add to the count of frames.
        if std::mem::replace(&mut self.frames_received, frames) != frames {
            if !self.works(now) {
                self.works_since = now;
            }
            self.last_packet = now;
        }
        if !self.established {
            self.bytes_received += bytes as u64;
        }
    }

    pub fn on_established(&mut self) {
        self.established = true;
        self.max_datagram_bytes = self.quic.datagrams().max_size();
    }

    /// Detects, at the arrival of a packet, that the path no longer takes large packets, and then
    /// sends none: returns the new size of datagrams. quinn-proto's own detector is off, since
    /// handshakes of large packets succeeded before.
    pub fn notice_smaller_path(&mut self, now: Instant) -> Option<usize> {
        let (sent, acknowledged) = self.large.counts();
        let before = &mut self.large_before;
        let is_one_acknowledged = acknowledged > before.acknowledged;
        if !is_one_acknowledged {
            if now < before.since + LARGE_PERIOD || sent - before.sent < LARGE_LOST {
                return None;
            }
            // QUIC acknowledges rarely, and its acknowledgements may be lost: only one for a later
            // packet shows that these packets did not arrive.
            let until = *before.until.get_or_insert(now);
            if !self.large.is_acknowledged_after(until) {
                return None;
            }
        }
        *before = LargeBefore {
            since: now,
            sent,
            acknowledged,
            until: None,
        };
        if is_one_acknowledged {
            return None;
        }
        let overhead =
            usize::from(self.hint.packet_bytes).checked_sub(self.quic.datagrams().max_size()?)?;
        let most = usize::from(FIRST_PACKET_BYTES) - overhead - ACKNOWLEDGEMENT_BYTES;
        let smaller = self.max_datagram_bytes? > most;
        self.max_datagram_bytes = Some(most);
        smaller.then_some(most)
    }

    /// Whether the peer is known to have finished the handshake. An acceptor sends datagrams only then;
    /// HANDSHAKE_DONE by itself may be lost for long, as it is repeated only when acknowledgements
    /// show its loss.
    pub fn is_confirmed(&mut self) -> bool {
        let received = self.quic.stats().frame_rx;
        self.confirmed |= self.established
            && (!self.is_ours || received.handshake_done > 0 || received.datagram > 0);
        self.confirmed
    }

    /// Lets the link fill the next packet, unless a datagram waits already. Returns the bytes of the
    /// datagram.
    pub fn ask_for_datagram(
        &mut self,
        session: SessionId,
        next: &mut NextDatagram<'_>,
    ) -> Option<usize> {
        let most = self.max_datagram_bytes?;
        // A waiting datagram was held back by the limit on data to unvalidated addresses.
        let mut datagrams = self.quic.datagrams();
        if datagrams.send_buffer_space() < 64 * 1024 {
            return None;
        }
        let mut datagram = Vec::with_capacity(most);
        if !next(session, most, &mut datagram) || datagram.is_empty() {
            return None;
        }
        debug_assert!(
            datagram.len() <= most,
            "a datagram of {} bytes, at most {most}",
            datagram.len()
        );
        let bytes = datagram.len();
        datagrams.send(Bytes::from(datagram), true).ok()?;
        Some(bytes)
    }

    pub fn close(&mut self, now: Instant) {
        self.close_with(now, 0);
    }

    /// Closes it with a code that the peer receives.
    pub fn close_with(&mut self, now: Instant, code: u32) {
        // Packets that the peer sent before it learns of this may still confirm the handshake.
        self.awaits_peer = false;
        self.quic.close(now, VarInt::from_u32(code), Bytes::new());
    }

    pub fn on_timeout(&mut self, now: Instant) {
        if self.quic.poll_timeout().is_some_and(|at| at <= now) {
            self.quic.handle_timeout(now);
        }
        let late = !self.established && now >= self.began + HANDSHAKE_TIMEOUT;
        let retired = self.retires_at.is_some_and(|at| at <= now);
        if (late || retired) && !self.quic.is_closed() {
            self.close(now);
        }
    }
}

impl Timed for Connection {
    fn timeout(&mut self) -> Option<Instant> {
        let own = match (self.retires_at, self.established) {
            _ if self.quic.is_closed() => None,
            (Some(at), _) => Some(at),
            (None, false) => Some(self.began + HANDSHAKE_TIMEOUT),
            (None, true) => None,
        };
        [self.quic.poll_timeout(), own].into_iter().flatten().min()
    }
}
