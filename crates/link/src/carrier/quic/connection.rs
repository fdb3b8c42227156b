//! One QUIC connection of a session, or one that may become so.

use std::net::SocketAddr;
use std::time::Instant;

use bytes::Bytes;
use quinn_proto::VarInt;

use super::session::Hint;
use super::{HANDSHAKE_TIMEOUT, NextDatagram, SessionId};

/// See the module.
pub struct Connection {
    pub quic: quinn_proto::Connection,
    /// The session; an accepted connection has one once the peer has proved its key.
    pub session: Option<SessionId>,
    pub hint: Hint,
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
}

impl Connection {
    pub fn begun_here(now: Instant, quic: quinn_proto::Connection, session: SessionId, hint: Hint) -> Self {
        Self { session: Some(session), is_ours: true, ..Self::accepted(now, quic, hint) }
    }

    pub fn accepted(now: Instant, quic: quinn_proto::Connection, hint: Hint) -> Self {
        Self {
            quic,
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
        self.max_datagram_bytes = self.quic.datagrams().max_size();
    }

    /// Whether the peer is known to have finished the handshake, too.
    pub fn is_confirmed(&self) -> bool {
        self.established && (!self.is_ours || self.quic.stats().frame_rx.handshake_done > 0)
    }

    /// Has the link fill the next packet, unless one waits already. Returns the bytes of the datagram.
    pub fn ask_for_datagram(&mut self, session: SessionId, next: &mut NextDatagram<'_>) -> Option<usize> {
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
        debug_assert!(datagram.len() <= most, "a datagram of {} bytes, at most {most}", datagram.len());
        let bytes = datagram.len();
        datagrams.send(Bytes::from(datagram), true).ok().map(|()| bytes)
    }

    pub fn close(&mut self, now: Instant) {
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
