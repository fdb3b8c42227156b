//! A session over the connections it is made of.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn_proto::{ClientConfig, ConnectionError, ConnectionId};

use super::connection::Connection;
use super::packet_size::Search;
use super::{Event, FIRST_PACKET_BYTES, Lost, PublicKey, QuicCarrier, SessionId, tls, transport};

/// A further attempt to connect follows after so long; the next ones after twice as long each, as the way may be long, or
/// clogged by what others attempt.
const ATTEMPT_PERIOD: Duration = Duration::from_millis(300);
const ATTEMPT_DOUBLINGS: u32 = 3;
/// Attempts at a time.
const MAX_ATTEMPTS: usize = 3;
/// Connections of a session at a time, at the accepting end: the one in use, one that retires, and attempts.
const MAX_CONNECTIONS: usize = 2 + MAX_ATTEMPTS;
/// What is under way on the old connection arrives within this time of the change to a new one.
const RETIREMENT: Duration = Duration::from_secs(2);
/// Bytes of a connection id: packet size, session tag, randomness.
const CONNECTION_ID_BYTES: usize = 20;

/// What the first packet of a connection tells: the initiator chooses the connection id that it is sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hint {
    /// Size of the packets, in both directions.
    pub packet_bytes: u16,
    /// The same for all connections of a session.
    pub tag: [u8; 8],
}

impl Hint {
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

    fn connection_id(self, mut bytes: [u8; CONNECTION_ID_BYTES]) -> ConnectionId {
        bytes[..2].copy_from_slice(&self.packet_bytes.to_be_bytes());
        bytes[2..10].copy_from_slice(&self.tag);
        ConnectionId::new(&bytes)
    }
}

/// See the module.
pub struct Session {
    pub peer: PublicKey,
    tag: [u8; 8],
    /// The connection that datagrams are sent on. `None` until the first is established.
    pub active: Option<usize>,
    /// What the side that began it keeps.
    initiator: Option<Initiator>,
}

struct Initiator {
    to: SocketAddr,
    /// Where the peer is, is not known (any more): attempts go on.
    seeking: bool,
    next_attempt: Instant,
    attempts: u32,
    search: Search,
}

impl Initiator {
    fn new(now: Instant, to: SocketAddr) -> Self {
        Self {
            to,
            seeking: true,
            next_attempt: now + ATTEMPT_PERIOD,
            attempts: 1,
            search: Search::default(),
        }
    }
}

impl Session {
    pub fn begun_here(now: Instant, peer: PublicKey, to: SocketAddr, tag: [u8; 8]) -> Self {
        Self {
            peer,
            tag,
            active: None,
            initiator: Some(Initiator::new(now, to)),
        }
    }

    pub fn is_ours(&self) -> bool {
        self.initiator.is_some()
    }

    fn seeks(&self) -> bool {
        self.initiator
            .as_ref()
            .is_some_and(|initiator| initiator.seeking)
    }

    /// The peer may be elsewhere now. `None` for a session that the peer began.
    pub fn move_to(&mut self, now: Instant, to: SocketAddr) -> Option<()> {
        *self.initiator.as_mut()? = Initiator::new(now, to);
        Some(())
    }

    pub fn timeout(&self) -> Option<Instant> {
        let initiator = self.initiator.as_ref()?;
        if initiator.seeking {
            Some(initiator.next_attempt)
        } else {
            initiator.search.timeout()
        }
    }
}

impl QuicCarrier {
    pub(super) fn new_session(&mut self, session: Session) -> SessionId {
        let id = SessionId(self.next_session);
        self.next_session += 1;
        self.sessions.insert(id, session);
        id
    }

    /// Begins another connection of a session that was begun here.
    pub(super) fn attempt(
        &mut self,
        now: Instant,
        id: SessionId,
        to: SocketAddr,
        packet_bytes: u16,
        rtt: Duration,
    ) -> Option<usize> {
        let session = self.sessions.get(&id)?;
        let hint = Hint {
            packet_bytes,
            tag: session.tag,
        };
        let mut config = ClientConfig::new(tls::client(&self.config.key, session.peer));
        let (transport, large) = transport::config(packet_bytes, rtt);
        config.transport_config(transport);
        let drawn = self.random.draw();
        config.initial_dst_cid_provider(Arc::new(move || hint.connection_id(drawn)));
        // The name means nothing: keys are compared, and names are not sent.
        match self.endpoint.connect(now, config, to, "nervure") {
            Ok((handle, quic)) => {
                self.connections
                    .insert(handle.0, Connection::begun_here(now, quic, id, hint, large));
                Some(handle.0)
            }
            Err(error) => {
                self.end_session(now, id, Lost::Refused(error.to_string()));
                None
            }
        }
    }

    pub(super) fn on_session_timeouts(&mut self, now: Instant) {
        let due: Vec<_> = self
            .sessions
            .iter()
            .filter(|(_, s)| s.timeout().is_some_and(|at| at <= now))
            .map(|(id, _)| *id)
            .collect();
        for id in due {
            let Some(initiator) = self
                .sessions
                .get_mut(&id)
                .and_then(|session| session.initiator.as_mut())
            else {
                continue;
            };
            if initiator.seeking {
                initiator.next_attempt =
                    now + ATTEMPT_PERIOD * (1 << initiator.attempts.min(ATTEMPT_DOUBLINGS));
                let (to, rtt) = (
                    initiator.to,
                    transport::rtt_after(initiator.attempts as usize),
                );
                initiator.attempts += 1;
                self.close_oldest_attempt(now, id);
                self.attempt(now, id, to, FIRST_PACKET_BYTES, rtt);
            } else {
                self.search_packet_size(now, id);
            }
        }
    }

    fn close_oldest_attempt(&mut self, now: Instant, id: SessionId) {
        let attempts = self.connections.values_mut().filter(|connection| {
            connection.session == Some(id)
                && !connection.established
                && !connection.quic.is_closed()
        });
        let mut attempts: Vec<_> = attempts.collect();
        attempts.sort_by_key(|connection| connection.began);
        if attempts.len() >= MAX_ATTEMPTS {
            attempts[0].close(now);
        }
    }

    /// Tries the next packet size on the path of a session, or ends the trial that has taken too long.
    fn search_packet_size(&mut self, now: Instant, id: SessionId) {
        let Some(session) = self.sessions.get_mut(&id) else {
            return;
        };
        let (Some(initiator), Some(active)) = (session.initiator.as_mut(), session.active) else {
            return;
        };
        let Some(connection) = self.connections.get(&active) else {
            return;
        };
        let (known, to, rtt) = (
            connection.hint.packet_bytes,
            connection.address(),
            connection.quic.rtt(),
        );
        let is_established = |handle| {
            let trial = self.connections.get(&handle);
            trial.is_some_and(|connection| connection.established && !connection.quic.is_closed())
        };
        let failed = initiator.search.take_failed(now, is_established);
        if initiator.search.is_trying() {
            return;
        }
        let next = initiator
            .search
            .next(now, known, self.config.largest_packet_bytes, to, rtt);
        if let Some(failed) = failed.and_then(|handle| self.connections.get_mut(&handle)) {
            failed.close(now);
        }
        if let Some(packet_bytes) = next {
            let handle = self.attempt(now, id, to, packet_bytes, rtt.max(transport::FIRST_RTT));
            if let Some(initiator) = self
                .sessions
                .get_mut(&id)
                .and_then(|session| session.initiator.as_mut())
            {
                initiator.search.began(handle);
            }
        }
    }

    /// A packet arrived on a connection; perhaps it tells that the path takes only smaller ones now.
    pub(super) fn notice_smaller_path(&mut self, now: Instant, handle: usize) {
        let Some(connection) = self.connections.get_mut(&handle) else {
            return;
        };
        let Some(id) = connection.session.filter(|_| connection.established) else {
            return;
        };
        let address = connection.address();
        let Some(session) = self
            .sessions
            .get_mut(&id)
            .filter(|session| session.active == Some(handle))
        else {
            return;
        };
        let Some(bytes) = connection.notice_smaller_path(now) else {
            return;
        };
        self.events
            .push_back(Event::MaxDatagramChanged { session: id, bytes });
        if let Some(initiator) = session.initiator.as_mut() {
            initiator.search = Search::default();
            self.attempt(now, id, address, FIRST_PACKET_BYTES, transport::FIRST_RTT);
        }
    }

    /// A handshake is through.
    pub(super) fn on_established(&mut self, now: Instant, handle: usize) {
        let Some(connection) = self.connections.get_mut(&handle) else {
            return;
        };
        connection.on_established();
        self.by_key_id.extend(
            connection
                .opening
                .as_ref()
                .map(|opening| (opening.key_id(), handle)),
        );
        let (hint, address) = (connection.hint, connection.address());
        if let Some(id) = connection.session {
            // While the present connection works, nothing is risked: what is sent before the peer is through is lost.
            let works = self
                .sessions
                .get(&id)
                .is_some_and(|session| session.active.is_some() && !session.seeks());
            connection.waits = works;
            if !works {
                self.take_over(now, id, handle);
            }
            return;
        }
        let Some(peer) = tls::peer_key(connection.quic.crypto_session()) else {
            connection.close(now);
            return;
        };
        let known = self
            .sessions
            .iter()
            .find(|(_, s)| s.peer == peer && !s.is_ours())
            .map(|(id, s)| (*id, s.tag));
        let id = match known {
            Some((id, tag)) if tag == hint.tag => id,
            Some((id, _)) => {
                self.end_session(now, id, Lost::Replaced);
                self.new_session(Session {
                    peer,
                    tag: hint.tag,
                    active: None,
                    initiator: None,
                })
            }
            None if self.sessions.len() >= self.config.max_sessions => {
                connection.close(now);
                self.refuse(
                    now,
                    Some(peer),
                    address,
                    "too many sessions are open".into(),
                );
                return;
            }
            None => self.new_session(Session {
                peer,
                tag: hint.tag,
                active: None,
                initiator: None,
            }),
        };
        if let Some(connection) = self.connections.get_mut(&handle) {
            connection.session = Some(id);
        }
        self.take_over(now, id, handle);
    }

    /// Lets a connection take over that has waited for the peer's end of the handshake.
    pub(super) fn promote(&mut self, now: Instant, handle: usize) {
        let Some(connection) = self.connections.get_mut(&handle) else {
            return;
        };
        if let Some(id) = connection
            .session
            .filter(|_| connection.waits && connection.is_confirmed())
        {
            connection.waits = false;
            self.take_over(now, id, handle);
        }
    }

    /// From now on the session sends on this connection.
    fn take_over(&mut self, now: Instant, id: SessionId, handle: usize) {
        let Some(session) = self.sessions.get_mut(&id) else {
            if let Some(connection) = self.connections.get_mut(&handle) {
                connection.close(now);
            }
            return;
        };
        let before = session.active.replace(handle);
        let (peer, ours) = (session.peer, session.is_ours());
        if let Some(initiator) = session.initiator.as_mut() {
            initiator.seeking = false;
            initiator.search.succeeded(now, handle);
        }
        for (other, connection) in &mut self.connections {
            if connection.session != Some(id) || *other == handle {
                continue;
            }
            if !ours {
                // The peer may not know yet that the new one is through, or may give it up: it decides what ends.
            } else if connection.established && !connection.waits {
                connection.retires_at.get_or_insert(now + RETIREMENT);
            } else {
                // An attempt that is not needed any more.
                connection.close(now);
            }
        }
        if !ours {
            self.close_surplus(now, id);
        }
        let Some(connection) = self.connections.get(&handle) else {
            return;
        };
        let (address, bytes) = (
            connection.address(),
            connection.max_datagram_bytes.unwrap_or(0),
        );
        self.events.push_back(match before {
            None => Event::Connected {
                session: id,
                peer,
                address,
            },
            Some(_) => Event::MaxDatagramChanged { session: id, bytes },
        });
    }

    /// A datagram came on a connection. The initiator decides which connection of a session is used, and has perhaps given up
    /// the one that was established last: its word of that may be lost.
    pub(super) fn follow(&mut self, handle: usize) {
        let Some(connection) = self
            .connections
            .get(&handle)
            .filter(|c| !c.is_ours && c.established)
        else {
            return;
        };
        let Some(id) = connection.session else { return };
        let active = self.sessions.get(&id).and_then(|session| session.active);
        if active.is_some_and(|active| active != handle) && !connection.quic.is_closed() {
            self.inherit(id, handle);
        }
    }

    /// Closes the connections of a session that were quiet for longest, beyond what an honest initiator has.
    fn close_surplus(&mut self, now: Instant, id: SessionId) {
        let mut open: Vec<_> = self
            .connections
            .values_mut()
            .filter(|connection| connection.session == Some(id) && !connection.quic.is_closed())
            .collect();
        open.sort_by_key(|connection| std::cmp::Reverse(connection.last_packet));
        for surplus in open.into_iter().skip(MAX_CONNECTIONS) {
            surplus.close(now);
        }
    }

    pub(super) fn on_connection_lost(
        &mut self,
        now: Instant,
        handle: usize,
        reason: &ConnectionError,
    ) {
        let Some(connection) = self.connections.get(&handle) else {
            return;
        };
        let (address, established) = (connection.address(), connection.established);
        let Some(id) = connection.session else {
            let peer = self.guests.take_refused();
            let why = match peer {
                Some(_) => "its key is not among those allowed".into(),
                None => reason.to_string(),
            };
            self.refuse(now, peer, address, why);
            return;
        };
        let Some(session) = self.sessions.get(&id) else {
            return;
        };
        if session.active == Some(handle) {
            self.on_active_lost(now, id, handle, why_lost(reason));
        } else if !established && session.active.is_none() && is_refusal(reason) {
            self.end_session(now, id, why_lost(reason));
        }
    }

    /// Nothing comes of a connection any more. QUIC does not tell of one that was closed here.
    pub(super) fn on_drained(&mut self, now: Instant, handle: usize) {
        let Some(connection) = self.connections.remove(&handle) else {
            return;
        };
        connection
            .opening
            .map(|opening| self.by_key_id.remove(&opening.key_id()));
        let Some(id) = connection.session else { return };
        if self
            .sessions
            .get(&id)
            .is_some_and(|session| session.active == Some(handle))
        {
            self.on_active_lost(
                now,
                id,
                handle,
                Lost::Protocol("its connection had to be closed".into()),
            );
        }
    }

    /// An older connection carries on, if there is one.
    fn on_active_lost(&mut self, now: Instant, id: SessionId, handle: usize, why: Lost) {
        let heir = self
            .connections
            .iter()
            .filter(|(other, c)| {
                **other != handle && c.session == Some(id) && c.established && !c.quic.is_closed()
            })
            .max_by_key(|(_, connection)| connection.last_packet)
            .map(|(other, _)| *other);
        match heir {
            Some(heir) => self.inherit(id, heir),
            None => self.end_session(now, id, why),
        }
    }

    /// A connection that is there already is used from now on.
    fn inherit(&mut self, id: SessionId, heir: usize) {
        let Some(connection) = self.connections.get_mut(&heir) else {
            return;
        };
        connection.retires_at = None;
        let bytes = connection.max_datagram_bytes.unwrap_or(0);
        if let Some(session) = self.sessions.get_mut(&id) {
            session.active = Some(heir);
        }
        self.events
            .push_back(Event::MaxDatagramChanged { session: id, bytes });
    }

    pub(super) fn end_session(&mut self, now: Instant, id: SessionId, why: Lost) {
        if self.sessions.remove(&id).is_none() {
            return;
        }
        for connection in self
            .connections
            .values_mut()
            .filter(|connection| connection.session == Some(id))
        {
            connection.close(now);
        }
        self.events.push_back(Event::Lost { session: id, why });
    }
}

/// Whether the peer, or we, turned the other away: trying again would change nothing.
fn is_refusal(reason: &ConnectionError) -> bool {
    match reason {
        ConnectionError::TransportError(_) | ConnectionError::VersionMismatch => true,
        ConnectionError::ConnectionClosed(close) => {
            (0x100..0x200).contains(&u64::from(close.error_code))
        }
        _ => false,
    }
}

fn why_lost(reason: &ConnectionError) -> Lost {
    match reason {
        ConnectionError::TimedOut => Lost::TimedOut(transport::IDLE_TIMEOUT.as_secs()),
        ConnectionError::Reset => Lost::Restarted,
        ConnectionError::ApplicationClosed(_) => Lost::ClosedByPeer,
        ConnectionError::LocallyClosed => Lost::ClosedHere,
        ConnectionError::ConnectionClosed(_) if is_refusal(reason) => Lost::Refused(
            "the peer does not take our key\nhint: tell the peer our public key".into(),
        ),
        ConnectionError::TransportError(error)
            if (0x100..0x200).contains(&u64::from(error.code)) =>
        {
            Lost::Refused(
                "the peer has another key than expected\nhint: compare the peer's public key"
                    .into(),
            )
        }
        other => Lost::Protocol(other.to_string()),
    }
}
