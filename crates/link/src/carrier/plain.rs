//! A carrier without keys and encryption, for tests: a run repeats byte by byte.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::{
    Addresses, Carrier, CarrierCounters, CarrierEvent, ConnectError, DisconnectReason, Ecn,
    NextDatagram, PublicKey, SessionId, Transmit,
};

const PACKET_BYTES: usize = 1472;
const HEADER_BYTES: usize = 9;
const ATTEMPT_PERIOD: Duration = Duration::from_millis(20);

const HELLO: u8 = 1;
const WELCOME: u8 = 2;
const DATAGRAM: u8 = 3;
const GOODBYE: u8 = 4;

/// A packet is a kind, the initiator's number of the session, and the bytes of a datagram.
pub struct PlainCarrier {
    own: PublicKey,
    sessions: BTreeMap<SessionId, PlainSession>,
    next_session: u64,
    turn: u64,
    forbidden: BTreeSet<PublicKey>,
    control: VecDeque<(SocketAddr, Vec<u8>)>,
    events: VecDeque<CarrierEvent>,
    counters: CarrierCounters,
}

struct PlainSession {
    address: SocketAddr,
    /// The initiator's number of the session.
    number: u64,
    peer: PublicKey,
    ours: bool,
    connected: bool,
    next_attempt: Option<Instant>,
}

impl PlainCarrier {
    /// A carrier that claims this key.
    pub fn new(own: PublicKey) -> Self {
        Self {
            own,
            sessions: BTreeMap::new(),
            next_session: 1,
            turn: 0,
            forbidden: BTreeSet::new(),
            control: VecDeque::new(),
            events: VecDeque::new(),
            counters: CarrierCounters::default(),
        }
    }

    fn send_control(&mut self, to: SocketAddr, kind: u8, number: u64, content: &[u8]) {
        let mut packet = vec![kind];
        packet.extend_from_slice(&number.to_le_bytes());
        packet.extend_from_slice(content);
        self.control.push_back((to, packet));
    }

    fn find(&self, ours: bool, number: u64, from: SocketAddr) -> Option<SessionId> {
        let same = |session: &PlainSession| {
            session.ours == ours
                && session.number == number
                && (ours || session.address.ip() == from.ip())
        };
        self.sessions
            .iter()
            .find(|(_, session)| same(session))
            .map(|(id, _)| *id)
    }

    fn add(&mut self, session: PlainSession) -> SessionId {
        let id = SessionId(self.next_session);
        self.next_session += 1;
        self.sessions.insert(id, session);
        id
    }

    fn end(&mut self, session: SessionId, why: DisconnectReason) {
        if let Some(found) = self.sessions.remove(&session) {
            let content = [u8::from(found.ours)];
            self.send_control(found.address, GOODBYE, found.number, &content);
            self.events.push_back(CarrierEvent::Lost { session, why });
        }
    }

    fn on_hello(&mut self, from: SocketAddr, number: u64, peer: PublicKey) {
        if self.forbidden.contains(&peer) {
            return;
        }
        self.send_control(from, WELCOME, number, &self.own.0.clone());
        if let Some(id) = self.find(false, number, from) {
            self.sessions.get_mut(&id).expect("just found").address = from;
            return;
        }
        let session = PlainSession {
            address: from,
            number,
            peer,
            ours: false,
            connected: true,
            next_attempt: None,
        };
        let session = self.add(session);
        self.events.push_back(CarrierEvent::Connected {
            session,
            peer,
            address: from,
        });
    }
}

impl Carrier for PlainCarrier {
    fn connect(
        &mut self,
        now: Instant,
        to: SocketAddr,
        peer: PublicKey,
    ) -> Result<SessionId, ConnectError> {
        if to.port() == 0 {
            return Err(ConnectError::Address(to));
        }
        let number = self.next_session;
        Ok(self.add(PlainSession {
            address: to,
            number,
            peer,
            ours: true,
            connected: false,
            next_attempt: Some(now),
        }))
    }

    fn reconnect(
        &mut self,
        now: Instant,
        session: SessionId,
        to: SocketAddr,
    ) -> Result<(), ConnectError> {
        let found = self
            .sessions
            .get_mut(&session)
            .filter(|session| session.ours);
        let found = found.ok_or(ConnectError::NoSession(session.0))?;
        found.address = to;
        found.next_attempt = Some(now);
        Ok(())
    }

    fn local_address_changed(&mut self, _now: Instant) {}

    fn close(&mut self, _now: Instant, session: SessionId, why: DisconnectReason) {
        self.end(session, why);
    }

    fn forbid(&mut self, _now: Instant, peer: PublicKey) {
        self.forbidden.insert(peer);
        let ended: Vec<_> = self
            .sessions
            .iter()
            .filter(|(_, session)| session.peer == peer)
            .map(|(id, _)| *id)
            .collect();
        ended
            .into_iter()
            .for_each(|id| self.end(id, DisconnectReason::Forbidden));
    }

    fn handle_packet<'p>(
        &mut self,
        _now: Instant,
        from: impl Into<Addresses>,
        _ecn: Option<Ecn>,
        packet: &'p mut [u8],
    ) -> Option<(SessionId, &'p [u8])> {
        let from = from.into().remote;
        let Some((header, content)) = packet.split_first_chunk::<HEADER_BYTES>() else {
            self.counters.packets_ignored += 1;
            return None;
        };
        let number = u64::from_le_bytes(header[1..].try_into().expect("8 bytes"));
        let key = <[u8; 32]>::try_from(content).map(PublicKey);
        self.counters.packets_received += 1;
        match (header[0], key) {
            (HELLO, Ok(peer)) => self.on_hello(from, number, peer),
            (WELCOME, Ok(peer)) => {
                let id = self.find(true, number, from)?;
                let session = self.sessions.get_mut(&id).expect("just found");
                session.next_attempt = None;
                if session.peer == peer && !std::mem::replace(&mut session.connected, true) {
                    self.events.push_back(CarrierEvent::Connected {
                        session: id,
                        peer,
                        address: from,
                    });
                }
            }
            // The top bit of the kind is set in packets from the initiator.
            (kind, _) if kind & 0x7f == DATAGRAM => {
                let id = self.find(kind == DATAGRAM, number, from)?;
                let session = self.sessions.get_mut(&id).expect("just found");
                if !session.ours {
                    session.address = from;
                }
                self.counters.datagrams_received += 1;
                return Some((id, content));
            }
            (GOODBYE, _) => {
                let id = self.find(content.first() == Some(&0), number, from)?;
                self.sessions.remove(&id);
                self.events.push_back(CarrierEvent::Lost {
                    session: id,
                    why: DisconnectReason::ClosedByPeer,
                });
            }
            _ => self.counters.packets_ignored += 1,
        }
        None
    }

    /// All sessions are asked each time.
    fn wake(&mut self, _session: SessionId) {}

    fn poll_transmit(
        &mut self,
        now: Instant,
        next_datagram: &mut NextDatagram<'_>,
        packet: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let start = packet.len();
        self.handle_timeout(now);
        if let Some((destination, control)) = self.control.pop_front() {
            packet.extend_from_slice(&control);
            self.counters.packets_sent += 1;
            return Some(Transmit {
                destination,
                source: None,
                size: control.len(),
                ecn: None,
            });
        }
        let turn = SessionId(self.turn);
        let order: Vec<_> = self
            .sessions
            .range(turn..)
            .chain(self.sessions.range(..turn))
            .map(|(id, _)| *id)
            .collect();
        for id in order {
            let session = &self.sessions[&id];
            if !session.connected {
                continue;
            }
            packet.push(if session.ours {
                DATAGRAM | 0x80
            } else {
                DATAGRAM
            });
            packet.extend_from_slice(&session.number.to_le_bytes());
            if next_datagram(id, PACKET_BYTES - HEADER_BYTES, packet) {
                self.turn = id.0 + 1;
                self.counters.datagrams_sent += 1;
                self.counters.packets_sent += 1;
                let size = packet.len() - start;
                return Some(Transmit {
                    destination: session.address,
                    source: None,
                    size,
                    ecn: Some(Ecn::Ect0),
                });
            }
            packet.truncate(start);
        }
        None
    }

    fn poll_event(&mut self) -> Option<CarrierEvent> {
        self.events.pop_front()
    }

    fn address(&self, session: SessionId) -> Option<SocketAddr> {
        let session = self.sessions.get(&session);
        session
            .filter(|session| session.connected)
            .map(|session| session.address)
    }

    fn max_datagram_bytes(&self, session: SessionId) -> Option<usize> {
        self.sessions
            .get(&session)
            .filter(|session| session.connected)
            .map(|_| PACKET_BYTES - HEADER_BYTES)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.sessions
            .values()
            .filter_map(|session| session.next_attempt)
            .min()
    }

    fn handle_timeout(&mut self, now: Instant) {
        let due = |session: &PlainSession| session.next_attempt.is_some_and(|at| at <= now);
        let due: Vec<_> = self
            .sessions
            .iter()
            .filter(|(_, session)| due(session))
            .map(|(id, _)| *id)
            .collect();
        for id in due {
            let session = self.sessions.get_mut(&id).expect("just found");
            session.next_attempt = Some(now + ATTEMPT_PERIOD);
            let (to, number) = (session.address, session.number);
            self.send_control(to, HELLO, number, &self.own.0.clone());
        }
    }

    fn counters(&self) -> CarrierCounters {
        self.counters
    }
}
