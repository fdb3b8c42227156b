//! Attempts, changes and losses of the connections of a session.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn_proto::{ClientConfig, ConnectionError, VarInt};

use super::connection::{Connection, ConnectionHint};
use super::packet_size::{FIRST_PACKET_BYTES, Search};
use super::session::{ATTEMPT_DOUBLINGS, ATTEMPT_PERIOD, MAX_PATHS, QuicSession};
use super::{QuicCarrier, tls, transport};
use crate::carrier::{CarrierEvent, DisconnectReason, SessionId};

/// The most concurrent attempts of a session.
const MAX_ATTEMPTS: usize = 3;
/// The most connections of a session at the accepting end: the one in use, one that retires,
/// attempts, and one with an attempt on each other path.
const MAX_CONNECTIONS: usize = 2 + MAX_ATTEMPTS + 2 * (MAX_PATHS - 1);
/// The codes of QUIC with which a connection ends when the peer's key is forbidden, or the peer
/// broke the protocol; otherwise 0.
const FORBIDDEN: u32 = 1;
const VIOLATION: u32 = 2;
/// After a change to a new connection, packets in flight on the old one arrive within this time.
const RETIREMENT: Duration = Duration::from_secs(2);

impl QuicCarrier {
    pub(super) fn new_session(&mut self, session: QuicSession) -> SessionId {
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
        is_standby: bool,
    ) -> Option<usize> {
        let session = self.sessions.get(&id)?;
        let hint = ConnectionHint {
            packet_bytes,
            tag: session.tag,
            is_standby,
        };
        let mut config = ClientConfig::new(tls::client(
            &self.config.key,
            session.peer,
            self.config.protocol,
        ));
        let (transport, large) = transport::config(packet_bytes, rtt);
        config.transport_config(transport);
        let drawn = self.random.draw();
        config.initial_dst_cid_provider(Arc::new(move || hint.connection_id(drawn)));
        // The server name is a placeholder: keys are compared, and names are not sent.
        match self.endpoint.connect(now, config, to, "nervure") {
            Ok((handle, quic)) => {
                self.connections
                    .insert(handle.0, Connection::begun_here(now, quic, id, hint, large));
                Some(handle.0)
            }
            Err(error) => {
                if !is_standby {
                    self.end_session(now, id, DisconnectReason::Refused(error.to_string()));
                }
                None
            }
        }
    }

    pub(super) fn on_session_timeouts(&mut self, now: Instant) {
        for id in self.sessions.due(now) {
            let checks = self.sessions.get(&id).and_then(|session| {
                let initiator = session.initiator.as_ref()?;
                initiator.check_at.filter(|at| *at <= now)
            });
            if checks.is_some() {
                self.check_paths(now, id);
            }
            let Some(initiator) = self
                .sessions
                .get_asleep(&id)
                .and_then(|session| session.initiator.as_mut())
            else {
                continue;
            };
            if initiator.seeking {
                if initiator.next_attempt > now {
                    continue;
                }
                initiator.next_attempt =
                    now + ATTEMPT_PERIOD * (1 << initiator.attempts.min(ATTEMPT_DOUBLINGS));
                let (to, rtt) = (
                    initiator.to,
                    transport::rtt_after(initiator.attempts as usize),
                );
                initiator.attempts += 1;
                self.close_oldest_attempt(now, id);
                self.attempt(now, id, to, FIRST_PACKET_BYTES, rtt, false);
            } else {
                self.search_packet_size(now, id);
            }
        }
    }

    pub(super) fn close_oldest_attempt(&mut self, now: Instant, id: SessionId) {
        let mut attempts: Vec<_> = self
            .connections
            .iter()
            .filter(|(_, connection)| {
                connection.session == Some(id)
                    && !connection.established
                    && !connection.hint.is_standby
                    && !connection.quic.is_closed()
            })
            .map(|(handle, connection)| (connection.began, *handle))
            .collect();
        attempts.sort();
        if attempts.len() >= MAX_ATTEMPTS
            && let Some(oldest) = self.connections.get_mut(&attempts[0].1)
        {
            oldest.close(now);
        }
    }

    /// Tries the next packet size on the path of a session, or ends a trial that took too long.
    fn search_packet_size(&mut self, now: Instant, id: SessionId) {
        let Some(session) = self.sessions.get_asleep(&id) else {
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
            let rtt = rtt.max(transport::FIRST_RTT);
            let handle = self.attempt(now, id, to, packet_bytes, rtt, false);
            if let Some(initiator) = self
                .sessions
                .get_asleep(&id)
                .and_then(|session| session.initiator.as_mut())
            {
                initiator.search.began(handle);
            }
        }
    }

    /// Reacts to a path that now takes only smaller packets, which an arriving packet may show.
    pub(super) fn notice_smaller_path(&mut self, now: Instant, handle: usize) {
        let Some(connection) = self.connections.get_asleep(&handle) else {
            return;
        };
        let Some(id) = connection.session.filter(|_| connection.established) else {
            return;
        };
        let address = connection.address();
        let Some(session) = self
            .sessions
            .get_asleep(&id)
            .filter(|session| session.active == Some(handle))
        else {
            return;
        };
        let Some(bytes) = connection.notice_smaller_path(now) else {
            return;
        };
        self.events
            .push_back(CarrierEvent::MaxDatagramChanged { session: id, bytes });
        if let Some(initiator) = session.initiator.as_mut() {
            initiator.search = Search::default();
            let rtt = transport::FIRST_RTT;
            self.attempt(now, id, address, FIRST_PACKET_BYTES, rtt, false);
        }
    }

    /// Assigns a connection with a complete handshake to its session.
    pub(super) fn on_established(&mut self, now: Instant, handle: usize) {
        let Some(connection) = self.connections.get_mut(&handle) else {
            return;
        };
        connection.on_established();
        let (hint, address) = (connection.hint, connection.address());
        let session = connection.session;
        if let Some(id) = session {
            if hint.is_standby
                && let Some(in_use) = self.active_path(id)
            {
                let redundant = self.connections.get_mut(&handle);
                if let Some(redundant) = redundant.filter(|_| in_use.remote == address) {
                    redundant.close(now);
                }
                return self.update_standby(id);
            }
            // While the present connection works, the new one waits: packets sent before the peer
            // has finished the handshake are lost.
            let works = self
                .sessions
                .get(&id)
                .is_some_and(|session| session.active.is_some() && !session.seeks());
            let Some(connection) = self.connections.get_mut(&handle) else {
                return;
            };
            connection.awaits_peer = works;
            if !works {
                self.take_over(now, id, handle);
            }
            return;
        }
        let Some(connection) = self.connections.get_mut(&handle) else {
            return;
        };
        let peer = tls::peer_key(connection.quic.crypto_session());
        // The key may have been forbidden after the handshake had checked it.
        let Some(peer) = peer.filter(|peer| self.allowed_peers.is_allowed(*peer)) else {
            connection.close_with(now, FORBIDDEN);
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
                self.end_session(now, id, DisconnectReason::Replaced);
                self.new_session(QuicSession::accepted(peer, hint.tag))
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
            None => self.new_session(QuicSession::accepted(peer, hint.tag)),
        };
        if let Some(connection) = self.connections.get_mut(&handle) {
            connection.session = Some(id);
        }
        if hint.is_standby && self.active_path(id).is_some() {
            self.close_surplus(now, id);
            return self.update_standby(id);
        }
        self.take_over(now, id, handle);
    }

    /// Lets a connection take over that waited for the peer to finish the handshake.
    pub(super) fn take_over_if_confirmed(&mut self, now: Instant, handle: usize) {
        let Some(connection) = self.connections.get_asleep(&handle) else {
            return;
        };
        if let Some(id) = connection
            .session
            .filter(|_| connection.awaits_peer && connection.is_confirmed())
        {
            connection.awaits_peer = false;
            self.take_over(now, id, handle);
        }
    }

    /// Makes this the connection that the session sends on.
    fn take_over(&mut self, now: Instant, id: SessionId, handle: usize) {
        let Some(session) = self.sessions.get_asleep(&id) else {
            if let Some(connection) = self.connections.get_mut(&handle) {
                connection.close(now);
            }
            return;
        };
        let before = session.active.replace(handle);
        let (peer, ours) = (session.peer, session.is_ours());
        if let Some(initiator) = session.initiator.as_mut() {
            let began = self
                .connections
                .get(&handle)
                .map(|connection| connection.began);
            if began.is_some_and(|began| began >= initiator.since) {
                initiator.seeking = false;
            }
            initiator.search.succeeded(now, handle);
        }
        let path_before =
            before.and_then(|before| Some((before, self.connections.get(&before)?.path())));
        let seeks = session.seeks();
        self.connections.wake(&handle);
        for other in self
            .connections
            .keys_where(|c| c.session == Some(id) && !self.stands_by(id, c))
        {
            let Some(connection) = self.connections.get_mut(&other) else {
                continue;
            };
            if other == handle {
                continue;
            }
            if !ours {
                // The peer decides which connection ends: it may not know yet that the new one is
                // established, or may give it up.
            } else if connection.established && !connection.awaits_peer {
                connection.retires_at.get_or_insert(now + RETIREMENT);
            } else if !seeks {
                // The attempt is not needed any more.
                connection.close(now);
            }
        }
        if !ours {
            self.close_surplus(now, id);
        }
        let Some(address) = self.connections.get(&handle).map(Connection::address) else {
            return;
        };
        if before.is_some() {
            self.on_switched(now, id, handle, path_before);
        } else {
            self.note_path(id, address, Some(handle));
            self.events.push_back(CarrierEvent::Connected {
                session: id,
                peer,
                address,
            });
        }
        self.update_standby(id);
    }

    /// Follows the peer to the connection that it sends datagrams on. The initiator decides which
    /// connection of a path is used; it may have given up the one that was established last, and its
    /// notice may be lost. Either end decides on the path.
    pub(super) fn follow_peer(&mut self, now: Instant, handle: usize) {
        let Some(connection) = self.connections.get(&handle) else {
            return;
        };
        let Some((id, session)) = connection
            .session
            .and_then(|id| Some((id, self.sessions.get(&id)?)))
        else {
            return;
        };
        if session.active.is_none_or(|active| active == handle) || !connection.is_usable() {
            return;
        }
        let other_path = self.active_path(id) != Some(connection.path());
        let holds = session.holds_until.is_some_and(|until| now < until);
        if if other_path {
            !holds
        } else {
            !connection.is_ours
        } {
            self.switch_to(now, id, handle);
        }
    }

    /// Closes the connections of a session that were quiet longest, beyond the number that an
    /// honest initiator has.
    fn close_surplus(&mut self, now: Instant, id: SessionId) {
        let is_open = |c: &Connection| c.session == Some(id) && !c.quic.is_closed();
        let mut open = self.connections.keys_where(is_open);
        open.sort_by_key(|handle| {
            let connection = self.connections.get(handle);
            std::cmp::Reverse(connection.map(|connection| connection.last_packet))
        });
        for surplus in open.into_iter().skip(MAX_CONNECTIONS) {
            if let Some(surplus) = self.connections.get_mut(&surplus) {
                surplus.close(now);
            }
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
            let peer = self.allowed_peers.take_refused();
            let why = match peer {
                Some(_) => "its key is not among those allowed".into(),
                None => self.why_refused(reason),
            };
            self.refuse(now, peer, address, why);
            return;
        };
        let Some(session) = self.sessions.get(&id) else {
            return;
        };
        let why = if is_other_version(reason) {
            DisconnectReason::Refused(self.why_refused(reason))
        } else {
            why_lost(reason)
        };
        if session.active == Some(handle) {
            self.on_active_lost(now, id, handle, why);
        } else if !established && is_refusal(reason) {
            if connection.hint.is_standby {
                let peer = Some(session.peer);
                self.refuse(now, peer, address, why.to_string());
            } else if session.active.is_none() {
                self.end_session(now, id, why);
            }
        }
    }

    /// Why a connection without a session has ended.
    pub(super) fn why_refused(&self, reason: &ConnectionError) -> String {
        if is_other_version(reason) {
            format!(
                "the two ends have no version of the link in common: this end speaks {}\n\
                 hint: use releases of Nervure with the same version of the link on both hosts",
                String::from_utf8_lossy(self.config.protocol)
            )
        } else {
            reason.to_string()
        }
    }

    /// Removes a drained connection. QUIC emits no event for a connection that was closed at this
    /// end.
    pub(super) fn on_drained(&mut self, now: Instant, handle: usize) {
        let Some(connection) = self.connections.remove(&handle) else {
            return;
        };
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
                DisconnectReason::Protocol("its connection had to be closed".into()),
            );
        }
        self.update_standby(id);
    }

    /// Continues a session on its most recently used other connection, or ends it.
    fn on_active_lost(
        &mut self,
        now: Instant,
        id: SessionId,
        handle: usize,
        why: DisconnectReason,
    ) {
        let successor = self
            .connections
            .iter()
            .filter(|(other, c)| {
                **other != handle && c.session == Some(id) && c.established && !c.quic.is_closed()
            })
            .max_by_key(|(_, connection)| connection.last_packet)
            .map(|(other, _)| *other);
        match successor {
            Some(successor) => self.switch_to(now, id, successor),
            None => self.end_session(now, id, why),
        }
    }

    /// Makes an established connection the one in use again.
    pub(super) fn switch_to(&mut self, now: Instant, id: SessionId, successor: usize) {
        let Some(connection) = self.connections.get_mut(&successor) else {
            return;
        };
        connection.retires_at = None;
        let Some(session) = self.sessions.get_asleep(&id) else {
            return;
        };
        let before = session.active.replace(successor);
        let before =
            before.and_then(|before| Some((before, self.connections.get(&before)?.path())));
        self.on_switched(now, id, successor, before);
    }

    pub(super) fn end_session(&mut self, now: Instant, id: SessionId, why: DisconnectReason) {
        if self.sessions.remove(&id).is_none() {
            return;
        }
        for handle in self.connections.keys_where(|c| c.session == Some(id)) {
            let Some(connection) = self.connections.get_mut(&handle) else {
                continue;
            };
            match why {
                DisconnectReason::Forbidden => connection.close_with(now, FORBIDDEN),
                DisconnectReason::Protocol(_) => connection.close_with(now, VIOLATION),
                _ => connection.close(now),
            }
        }
        self.events
            .push_back(CarrierEvent::Lost { session: id, why });
    }
}

/// Whether either end refused the other: another attempt would fail again.
fn is_refusal(reason: &ConnectionError) -> bool {
    match reason {
        ConnectionError::TransportError(_) | ConnectionError::VersionMismatch => true,
        ConnectionError::ConnectionClosed(close) => {
            (0x100..0x200).contains(&u64::from(close.error_code))
        }
        _ => false,
    }
}

/// Whether the ends have no version of the protocol in common (RFC 9001, section 8.1).
fn is_other_version(reason: &ConnectionError) -> bool {
    /// The alert `no_application_protocol` as an error of QUIC.
    const NO_PROTOCOL: u64 = 0x178;
    let code = match reason {
        ConnectionError::TransportError(error) => u64::from(error.code),
        ConnectionError::ConnectionClosed(close) => u64::from(close.error_code),
        _ => return false,
    };
    code == NO_PROTOCOL
}

fn why_lost(reason: &ConnectionError) -> DisconnectReason {
    match reason {
        ConnectionError::TimedOut => DisconnectReason::TimedOut(transport::IDLE_TIMEOUT.as_secs()),
        ConnectionError::Reset => DisconnectReason::Restarted,
        ConnectionError::ApplicationClosed(close)
            if close.error_code == VarInt::from_u32(FORBIDDEN) =>
        {
            DisconnectReason::Refused("the peer does not accept our key any more".into())
        }
        ConnectionError::ApplicationClosed(close)
            if close.error_code == VarInt::from_u32(VIOLATION) =>
        {
            DisconnectReason::Protocol("the peer reports a violation by this end".into())
        }
        ConnectionError::ApplicationClosed(_) => DisconnectReason::ClosedByPeer,
        ConnectionError::LocallyClosed => DisconnectReason::ClosedHere,
        ConnectionError::ConnectionClosed(_) if is_refusal(reason) => DisconnectReason::Refused(
            "the peer does not accept our key\nhint: give the peer our public key".into(),
        ),
        ConnectionError::TransportError(error)
            if (0x100..0x200).contains(&u64::from(error.code)) =>
        {
            DisconnectReason::Refused(
                "the peer has another key than expected\nhint: compare the peer's public key"
                    .into(),
            )
        }
        other => DisconnectReason::Protocol(other.to_string()),
    }
}
