//! A QUIC connection: the one in use by a session, or an attempt.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use quinn_proto::{ConnectionId, VarInt};

use super::packet_size::FIRST_PACKET_BYTES;
use super::sealed::{self, Opener, Sealer};
use super::transport::LargePackets;
use crate::carrier::{Addresses, Ecn, NextDatagram, SessionId};
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

/// What the first packet of a connection reveals: the initiator chooses the connection id that it
/// is sent to.
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

/// A QUIC connection with its sealing keys and what is known of its path.
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
    /// The mark of QUIC's last packet: ECT(0) until QUIC finds that the path changes or clears it
    /// (RFC 9000, section 13.4.2). Sealed packets have the same.
    pub ecn: Option<Ecn>,
    sealing: Option<Sealer>,
    pub opening: Option<Opener>,
    /// The peer is known to have finished the handshake.
    confirmed: bool,
    /// When a packet of QUIC last carried a datagram.
    quic_datagram_at: Option<Instant>,
    /// Number of acknowledgements that QUIC has received, and when it last changed.
    acknowledged: (u64, Instant),
    /// The peer's last address, and until when a change of it is being validated.
    last_address: SocketAddr,
    last_rtt: Duration,
    moving_until: Option<Instant>,
    large: Arc<LargePackets>,
    /// When the large packets were last evaluated, and their counts then: sent, acknowledged.
    large_before: (Instant, u64, u64),
}

/// Interval at which large packets are evaluated.
const LARGE_PERIOD: Duration = Duration::from_secs(1);
/// If this number of large packets is sent and none acknowledged while others arrive, the path no
/// longer takes them. (At 64 % loss one false alarm in ten thousand; then the size is found again.)
const LARGE_LOST: u64 = 20;
/// The interval at which a datagram travels in a packet of QUIC. These let QUIC notice that an
/// address has changed, that the peer restarted, and that the path takes only smaller packets.
const QUIC_EVERY: Duration = Duration::from_millis(20);
/// The same while the peer answers: each acknowledgement takes a turn on a channel that many share.
const QUIC_SELDOM: Duration = Duration::from_millis(500);
/// The peer answers if a packet came within two round trips plus this time, and an acknowledgement
/// of QUIC within [`ACKNOWLEDGES`].
const ANSWERS: Duration = Duration::from_millis(50);
const ACKNOWLEDGES: Duration = Duration::from_millis(1200);
/// By this time plus [`MOVING_ROUND_TRIPS`], QUIC has long validated a new address of the peer or
/// returned to the old one: it gives up after three probe timeouts (RFC 9000, section 8.2.4). Until
/// then it limits what is sent there.
const MOVING: Duration = Duration::from_secs(5);
const MOVING_ROUND_TRIPS: u32 = 15;
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
            ecn: None,
            sealing: None,
            opening: None,
            confirmed: false,
            quic_datagram_at: None,
            acknowledged: (0, now),
            last_address: quic.remote_address(),
            last_rtt: quic.rtt(),
            moving_until: None,
            large,
            large_before: (now, 0, 0),
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

    /// An authentic packet of it has arrived.
    pub fn on_arrival(&mut self, now: Instant) {
        if !self.works(now) {
            self.works_since = now;
        }
        self.last_packet = now;
    }

    /// Notes that QUIC has processed a packet with a connection id of this connection, which any
    /// host can send that has seen one.
    pub fn on_packet(&mut self, now: Instant, bytes: usize) {
        let frames = self.quic.stats().frame_rx;
        let frames = frames.acks + frames.datagram + frames.ping + frames.crypto;
        // Frames are those of packets that are authentic.
        if std::mem::replace(&mut self.frames_received, frames) != frames {
            self.on_arrival(now);
        }
        if !self.established {
            self.bytes_received += bytes as u64;
        }
    }

    pub fn on_established(&mut self) {
        self.established = true;
        self.last_address = self.quic.remote_address();
        self.max_datagram_bytes = self.quic.datagrams().max_size();
        if let Some((sealing, opening)) = sealed::keys(self.quic.crypto_session(), self.is_ours) {
            (self.sealing, self.opening) = (Some(sealing), Some(opening));
        }
    }

    /// Detects, at the arrival of a packet, that the path no longer takes large packets, and then
    /// sends none: returns the new size of datagrams. quinn-proto's own detector is off, since
    /// handshakes of large packets succeeded before.
    pub fn notice_smaller_path(&mut self, now: Instant) -> Option<usize> {
        let (since, sent_before, acknowledged_before) = self.large_before;
        if now < since + LARGE_PERIOD {
            return None;
        }
        let (sent, acknowledged) = self.large.counts();
        if acknowledged == acknowledged_before && sent - sent_before < LARGE_LOST {
            // Too few to decide; go on counting.
            return None;
        }
        self.large_before = (now, sent, acknowledged);
        if acknowledged > acknowledged_before {
            return None;
        }
        let overhead =
            usize::from(self.hint.packet_bytes).checked_sub(self.quic.datagrams().max_size()?)?;
        let most = usize::from(FIRST_PACKET_BYTES) - overhead - ACKNOWLEDGEMENT_BYTES;
        let smaller = self.max_datagram_bytes? > most;
        self.max_datagram_bytes = Some(most);
        smaller.then_some(most)
    }

    /// Whether the peer is known to have finished the handshake.
    pub fn is_confirmed(&mut self) -> bool {
        self.confirmed |=
            self.established && (!self.is_ours || self.quic.stats().frame_rx.handshake_done > 0);
        self.confirmed
    }

    /// Appends a sealed packet with the link's next datagram, if there is one and it need not
    /// travel in QUIC.
    pub fn seal_datagram(
        &mut self,
        now: Instant,
        session: SessionId,
        next: &mut NextDatagram<'_>,
        packet: &mut Vec<u8>,
    ) -> bool {
        let every = if self.answers(now) {
            QUIC_SELDOM
        } else {
            QUIC_EVERY
        };
        let quic_has_its_share = self.quic_datagram_at.is_some_and(|last| now < last + every);
        if !quic_has_its_share
            || !self.is_confirmed()
            || self.is_moving(now)
            || self.quic.is_closed()
        {
            return false;
        }
        let (Some(sealing), Some(most)) = (&mut self.sealing, self.max_datagram_bytes) else {
            return false;
        };
        sealing.seal(packet, |out| next(session, most, out))
    }

    /// Whether the peer has answered recently; see [`ANSWERS`].
    fn answers(&self, now: Instant) -> bool {
        now < self.last_packet + ANSWERS + self.last_rtt * 2
            && now < self.acknowledged.1 + ACKNOWLEDGES
    }

    /// Whether the peer's address changed recently, so that only QUIC may send there.
    fn is_moving(&mut self, now: Instant) -> bool {
        let (address, rtt) = (self.quic.remote_address(), self.quic.rtt());
        if address != self.last_address {
            self.last_address = address;
            self.moving_until = Some(now + MOVING + rtt.max(self.last_rtt) * MOVING_ROUND_TRIPS);
        }
        self.last_rtt = rtt;
        self.moving_until = self.moving_until.filter(|until| *until > now);
        self.moving_until.is_some()
    }

    /// Lets the link fill the next packet of QUIC, unless a datagram waits already. Returns the
    /// bytes of the datagram.
    pub fn ask_for_datagram(
        &mut self,
        now: Instant,
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
        self.quic_datagram_at = Some(now);
        let acknowledged = self.quic.stats().frame_rx.acks;
        if acknowledged > self.acknowledged.0 {
            self.acknowledged = (acknowledged, now);
        }
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
