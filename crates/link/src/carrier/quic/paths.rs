//! Connections on several paths of a session: one in use, the others ready.
//!
//! The initiator knows several addresses of the peer, the preferred one first. It keeps a connection
//! established to each, so that a change of the path needs no handshake. Either end may change: it
//! sends on another connection, and the other end follows. The initiator returns to a preferred path
//! that has worked for a while.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::connection::Connection;
use super::packet_size::{FIRST_PACKET_BYTES, Search};
use super::session::ATTEMPT_PERIOD;
use super::{QuicCarrier, transport};
use crate::carrier::{Addresses, CarrierEvent, SessionId};

/// Interval at which the paths of a session are checked.
const CHECK_PERIOD: Duration = Duration::from_millis(500);
/// Attempts on a path that does not answer become rarer up to this: [`ATTEMPT_PERIOD`] times two to
/// the power of it, 9.6 s.
const ATTEMPT_DOUBLINGS: u32 = 5;
/// A preferred path is returned to when packets have arrived on it for this time.
const RETURN_AFTER: Duration = Duration::from_secs(5);
/// After a change, packets that the peer sent before it knew of the change arrive within two round
/// trips. The end that decided on the change waits this much longer before it follows the peer
/// elsewhere, since its own packets may be lost.
const DECIDED: Duration = Duration::from_millis(100);

impl QuicCarrier {
    /// Keeps a connection on each path of a session that was begun here, and returns to a preferred
    /// one that works again.
    pub(super) fn check_paths(&mut self, now: Instant, id: SessionId) {
        let in_use = self.active_path(id).map(|path| path.remote);
        let Some(session) = self.sessions.get_asleep(&id) else {
            return;
        };
        let Some(initiator) = session.initiator.as_mut() else {
            return;
        };
        initiator.check_at = Some(now + CHECK_PERIOD);
        let sought = initiator.seeking.then_some(initiator.to);
        let (mut missing, mut silent, mut preferred) = (Vec::new(), Vec::new(), None);
        let may_return = session.holds_until.is_none_or(|until| until <= now);
        let mut is_preferred = true;
        for path in &mut initiator.paths {
            if Some(path.address) == in_use {
                is_preferred = false;
                continue;
            }
            if Some(path.address) == sought {
                // Attempts to connect there go on.
                continue;
            }
            let own = |c: &&mut Connection| c.session == Some(id) && c.address() == path.address;
            let connection = path
                .handle
                .and_then(|handle| self.connections.get_asleep(&handle))
                .filter(own);
            let is_ready = connection.is_some_and(|connection| {
                let is_ready = connection.is_usable() && connection.is_confirmed();
                let returns = connection.works(now)
                    && connection.works_since + RETURN_AFTER <= now
                    && is_preferred
                    && may_return;
                if is_ready && returns {
                    preferred = preferred.or(path.handle);
                }
                is_ready
            });
            if is_ready {
                path.attempts = 0;
                silent.extend(path.handle.filter(|handle| {
                    let connection = self.connections.get(handle);
                    connection.is_some_and(|connection| !connection.works(now))
                }));
            } else if path.next_attempt <= now {
                // Large packets at first, which saves a search; a handshake proves the size.
                let packet_bytes = if path.attempts.is_multiple_of(2) {
                    self.config.largest_packet_bytes.max(FIRST_PACKET_BYTES)
                } else {
                    FIRST_PACKET_BYTES
                };
                path.next_attempt =
                    now + ATTEMPT_PERIOD * (1 << path.attempts.min(ATTEMPT_DOUBLINGS));
                path.attempts += 1;
                missing.push((
                    path.address,
                    path.handle.take(),
                    packet_bytes,
                    path.attempts,
                ));
            }
        }
        for handle in silent {
            // QUIC's own probes become ever rarer.
            if let Some(connection) = self.connections.get_mut(&handle) {
                connection.quic.ping();
            }
        }
        for (address, late, packet_bytes, attempts) in missing {
            let late = late.and_then(|handle| self.connections.get_mut(&handle));
            if let Some(late) = late.filter(|c| c.session == Some(id) && c.address() == address) {
                late.close(now);
            }
            let rtt = transport::rtt_after(attempts as usize / 2);
            let handle = self.attempt(now, id, address, packet_bytes, rtt, true);
            self.note_path(id, address, handle);
        }
        if let Some(handle) = preferred {
            self.change_path(now, id, handle);
        }
    }

    /// Notes the newest connection on a path of a session.
    pub(super) fn note_path(&mut self, id: SessionId, address: SocketAddr, handle: Option<usize>) {
        let session = self.sessions.get_asleep(&id);
        let paths = session.and_then(|session| session.initiator.as_mut());
        let path = paths.and_then(|initiator| {
            let paths = &mut initiator.paths;
            paths.iter_mut().find(|path| path.address == address)
        });
        if let Some(path) = path {
            path.handle = handle;
        }
    }

    /// Whether a connection of a session that was begun here is kept ready while it uses another.
    pub(super) fn stands_by(&self, id: SessionId, connection: &Connection) -> bool {
        let session = self.sessions.get(&id);
        let initiator = session.and_then(|session| session.initiator.as_ref());
        let address = connection.address();
        let is_path = initiator
            .is_some_and(|initiator| initiator.paths.iter().any(|path| path.address == address));
        let is_other = self.active_path(id) != Some(connection.path());
        is_path && is_other && (connection.established || connection.hint.is_standby)
    }

    /// Sends from now on over another connection that works. Returns false if there is none.
    pub(super) fn change_to_working_path(&mut self, now: Instant, id: SessionId) -> bool {
        let Some(in_use) = self.active_path(id) else {
            return false;
        };
        let mut others = self.other_paths(id, in_use);
        others.retain(|handle| {
            let connection = self.connections.get_asleep(handle);
            connection.is_some_and(|c| c.works(now) && c.is_confirmed())
        });
        let session = self.sessions.get(&id);
        let initiator = session.and_then(|session| session.initiator.as_ref());
        let best = others.into_iter().min_by_key(|handle| {
            let connection = self.connections.get(handle).expect("it was just seen");
            let preference = initiator.and_then(|initiator| {
                let mut paths = initiator.paths.iter();
                paths.position(|path| path.address == connection.address())
            });
            (preference, now.duration_since(connection.last_packet))
        });
        best.inspect(|handle| self.change_path(now, id, *handle))
            .is_some()
    }

    fn change_path(&mut self, now: Instant, id: SessionId, handle: usize) {
        self.switch_to(now, id, handle);
        let Some(address) = self.connections.get(&handle).map(Connection::address) else {
            return;
        };
        let Some(session) = self.sessions.get_asleep(&id) else {
            return;
        };
        session.holds_until = session.holds_until.map(|until| until + DECIDED);
        let Some(initiator) = session.initiator.as_mut() else {
            return;
        };
        (initiator.to, initiator.seeking) = (address, false);
        let is_attempt = |c: &Connection| {
            c.session == Some(id) && c.is_ours && !c.established && !c.hint.is_standby
        };
        for attempt in self.connections.keys_where(is_attempt) {
            if let Some(attempt) = self.connections.get_mut(&attempt) {
                attempt.close(now);
            }
        }
    }

    /// Notes that the session now sends over this connection instead of one on `before`: searches the
    /// packet size of another path.
    pub(super) fn on_switched(
        &mut self,
        now: Instant,
        id: SessionId,
        handle: usize,
        before: Option<(usize, Addresses)>,
    ) {
        let Some(connection) = self.connections.get(&handle) else {
            return;
        };
        let (path, rtt_now) = (connection.path(), connection.quic.rtt());
        let bytes = connection.max_datagram_bytes.unwrap_or(0);
        let Some((handle_before, path_before)) = before.filter(|(_, before)| *before != path)
        else {
            self.events
                .push_back(CarrierEvent::MaxDatagramChanged { session: id, bytes });
            return;
        };
        let before = self.connections.get(&handle_before);
        let rtt = before.map_or(rtt_now, |before| before.quic.rtt().max(rtt_now));
        self.note_path(id, path_before.remote, Some(handle_before));
        self.note_path(id, path.remote, Some(handle));
        if let Some(session) = self.sessions.get_asleep(&id) {
            session.holds_until = Some(now + rtt * 2);
            if let Some(initiator) = session.initiator.as_mut() {
                initiator.search = Search::default();
                initiator.search.succeeded(now, handle);
            }
        }
        self.events.push_back(CarrierEvent::PathChanged {
            session: id,
            address: path.remote,
            rtt: rtt_now,
        });
    }

    /// Reports whether a session has another path, if that has changed.
    pub(super) fn update_standby(&mut self, id: SessionId) {
        let path = self.active_path(id);
        let ready = path.is_some_and(|path| !self.other_paths(id, path).is_empty());
        if let Some(session) = self.sessions.get_asleep(&id)
            && std::mem::replace(&mut session.has_standby, ready) != ready
        {
            self.events
                .push_back(CarrierEvent::Standby { session: id, ready });
        }
    }

    /// The path in use.
    pub(super) fn active_path(&self, id: SessionId) -> Option<Addresses> {
        let active = self.sessions.get(&id)?.active?;
        self.connections.get(&active).map(Connection::path)
    }

    /// The usable connections of a session on other paths than this.
    fn other_paths(&self, id: SessionId, path: Addresses) -> Vec<usize> {
        self.connections
            .keys_where(|c| c.session == Some(id) && c.is_usable() && c.path() != path)
    }
}
