//! One QUIC connection of a session, or one that may become so.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use quinn_proto::{ConnectionId, VarInt};

use super::packet_size::FIRST_PACKET_BYTES;
use super::sealed::{self, Opener, Sealer};
use super::transport::LargePackets;
use crate::carrier::{NextDatagram, SessionId};

/// A handshake that takes longer has failed.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of a connection id: packet size, session tag, randomness.
const CONNECTION_ID_BYTES: usize = 20;

/// What the first packet of a connection tells: the initiator chooses the connection id that it is sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionHint {
    /// Size of the packets, in both directions.
    pub packet_bytes: u16,
    /// The same for all connections of a session.
    pub tag: [u8; 8],
}

impl ConnectionHint {
    /// Whatever a stranger writes there, it concerns its own connection alone.
    pub fn read(id: &ConnectionId, largest: u16) -> Self {
        let mut hint = Self {
            packet_bytes: FIRST_PACKET_BYTES,
            tag: [0; 8],
        };
        if let Ok(bytes) = <[u8; CONNECTION_ID_BYTES]>::try_from(&id[..]) {
            let told = u16::from_be_bytes([bytes[0], bytes[1]]);
            hint.packet_bytes = told.clamp(FIRST_PACKET_BYTES, largest.max(FIRST_PACKET_BYTES));
            hint.tag.copy_from_slice(&bytes[2..10]);
        }
        hint
    }

    pub fn connection_id(self, mut bytes: [u8; CONNECTION_ID_BYTES]) -> ConnectionId {
        bytes[..2].copy_from_slice(&self.packet_bytes.to_be_bytes());
        bytes[2..10].copy_from_slice(&self.tag);
        ConnectionId::new(&bytes)
    }
}

/// See the module.
pub struct Connection {
    pub quic: quinn_proto::Connection,
    /// The session; an accepted connection has one once the peer has proved its key.
    pub session: Option<SessionId>,
    pub hint: ConnectionHint,
    pub is_ours: bool,
    pub established: bool,
    /// It takes over once the peer is known to be through with the handshake, too.
    pub waits: bool,
    pub began: Instant,
    pub last_packet: Instant,
    /// Bytes received before the peer's address was known to be its own (RFC 9000, section 8.1).
    pub bytes_received: u64,
    /// Bytes sent in that time, copies included.
    pub bytes_sent: u64,
    /// Another connection has taken over; this one still takes what is under way until then.
    pub retires_at: Option<Instant>,
    pub max_datagram_bytes: Option<usize>,
    sealing: Option<Sealer>,
    pub opening: Option<Opener>,
    /// The peer is known to have finished the handshake, too.
    confirmed: bool,
    /// When the last datagram went in a packet of QUIC.
    quic_datagram_at: Option<Instant>,
    /// How many acknowledgements of QUIC had come, and when that changed.
    acknowledged: (u64, Instant),
    /// Where the peer was last, and until when that is not certain.
    last_address: SocketAddr,
    last_rtt: Duration,
    moving_until: Option<Instant>,
    large: Arc<LargePackets>,
    /// When the large packets were last looked at, and what was counted: sent, acknowledged.
    large_before: (Instant, u64, u64),
}

/// Large packets of this time are looked at together.
const LARGE_PERIOD: Duration = Duration::from_secs(1);
/// With so many of them sent and none acknowledged while others arrive, the path takes them no more. (At 64 % loss one
/// time in ten thousand; then the size is found again.)
const LARGE_LOST: u64 = 20;
/// So often a datagram goes in a packet of QUIC: by these QUIC notices that an address has changed, that the peer was started
/// anew, and that the path takes only smaller packets.
const QUIC_EVERY: Duration = Duration::from_millis(20);
/// And so often while the peer answers, as each of its acknowledgements takes a turn on an air that many share.
const QUIC_SELDOM: Duration = Duration::from_millis(500);
/// The peer answers: something came within two round trips and this time, and QUIC acknowledged something lately.
const ANSWERS: Duration = Duration::from_millis(50);
const ACKNOWLEDGES: Duration = Duration::from_millis(1200);
/// QUIC has validated a new address of the peer long before this time and so many round trips, or gone back to the old one: it
/// gives up after three probe timeouts (RFC 9000, section 8.2.4). Until then it limits what is sent there.
const MOVING: Duration = Duration::from_secs(5);
const MOVING_ROUND_TRIPS: u32 = 15;
/// Room for QUIC's own acknowledgements beside a datagram, in a packet that must not be large.
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
            waits: false,
            began: now,
            last_packet: now,
            bytes_received: u64::from(hint.packet_bytes),
            bytes_sent: 0,
            retires_at: None,
            max_datagram_bytes: None,
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

    pub fn on_packet(&mut self, now: Instant, bytes: usize) {
        self.last_packet = now;
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

    /// A packet arrived on it. Notices when the path takes large packets no more, and then sends none: returns the new
    /// size of datagrams. Handshakes of large packets got through before, so quinn-proto's own detector is off.
    pub fn notice_smaller_path(&mut self, now: Instant) -> Option<usize> {
        let (since, sent_before, acknowledged_before) = self.large_before;
        if now < since + LARGE_PERIOD {
            return None;
        }
        let (sent, acknowledged) = self.large.counts();
        if acknowledged == acknowledged_before && sent - sent_before < LARGE_LOST {
            // Too few to tell; go on counting.
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

    /// Whether the peer is known to have finished the handshake, too.
    pub fn is_confirmed(&mut self) -> bool {
        self.confirmed |=
            self.established && (!self.is_ours || self.quic.stats().frame_rx.handshake_done > 0);
        self.confirmed
    }

    /// Appends a packet with the link's next datagram, if it may go beside QUIC and there is one.
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

    /// Whether the peer is where it was, and alive.
    fn answers(&self, now: Instant) -> bool {
        now < self.last_packet + ANSWERS + self.last_rtt * 2
            && now < self.acknowledged.1 + ACKNOWLEDGES
    }

    /// Whether the peer's address changed lately, so that only QUIC may send there.
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

    /// Has the link fill the next packet of QUIC, unless one waits already. Returns the bytes of the datagram.
    pub fn ask_for_datagram(
        &mut self,
        now: Instant,
        session: SessionId,
        next: &mut NextDatagram<'_>,
    ) -> Option<usize> {
        let most = self.max_datagram_bytes?;
        // What waits was held back by the limit on what unproven addresses are sent.
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
        // What the peer sent before it hears of this may still confirm the handshake.
        self.waits = false;
        self.quic.close(now, VarInt::from_u32(0), Bytes::new());
    }

    pub fn timeout(&mut self) -> Option<Instant> {
        let own = match (self.retires_at, self.established) {
            _ if self.quic.is_closed() => None,
            (Some(at), _) => Some(at),
            (None, false) => Some(self.began + HANDSHAKE_TIMEOUT),
            (None, true) => None,
        };
        [self.quic.poll_timeout(), own].into_iter().flatten().min()
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
