//! QUIC (RFC 9000, RFC 9221) as carrier, on quinn-proto.
//!
//! A session consists of a sequence of QUIC connections: the attempt that succeeds, one with larger
//! packets once the path is known to take them, one to the peer's new address. Connections of the
//! same session share a random tag, which travels in the first packet together with the packet
//! size; both count only once the peer has proved its key.
//!
//! `transport` turns off features of quinn-proto that the link replaces or that would hinder it on
//! a lossy path; `hedge` sends the packets of a handshake several times.

mod connection;
mod hedge;
mod packet_size;
mod paths;
mod session;
mod sessions;
mod tls;
mod transport;

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use quinn_proto::{
    ConnectionHandle, DatagramEvent, EcnCodepoint, Endpoint, EndpointConfig,
    HashedConnectionIdGenerator, Incoming, ServerConfig,
};

use super::{
    Addresses, Carrier, CarrierCounters, CarrierEvent, ConnectError, DisconnectReason, Ecn,
    KeyPair, NextDatagram, PublicKey, SessionId, Transmit,
};
use crate::random::RandomBytes;
use crate::timed::TimedMap;
use connection::{Connection, ConnectionHint};
use hedge::Hedge;
pub use packet_size::FIRST_PACKET_BYTES;
pub use session::MAX_PATHS;
use session::{Path, QuicSession};
pub use tls::ALPN as PROTOCOL;

/// The most handshakes begun from addresses that are not validated. Anyone can forge them, so the
/// limit per host does not count them. Further peers are answered by a Retry packet, without state,
/// and their addresses are validated when they return its token (RFC 9000, section 8.1.2).
pub const MAX_UNVALIDATED: usize = 8;
/// The most handshakes from one validated host.
const MAX_HALF_OPEN_PER_HOST: usize = 8;
/// The shortest time between two reported refusals.
const REFUSED_PERIOD: Duration = Duration::from_secs(1);
/// The most replies that wait to be sent.
const MAX_REPLIES: usize = 64;

/// The configuration of a [`QuicCarrier`].
#[derive(Debug)]
pub struct QuicConfig {
    /// The identity of this end.
    pub key: KeyPair,
    /// Whether peers may begin sessions.
    pub accepts: bool,
    /// The largest packet (UDP payload) that is tried on a path, in bytes. 1472 fills an Ethernet
    /// frame with IPv4.
    pub largest_packet_bytes: u16,
    /// The most sessions, begun here and accepted together.
    pub max_sessions: usize,
    /// The most handshakes begun by peers and not yet complete: more than [`MAX_UNVALIDATED`].
    pub max_handshakes: usize,
    /// The name of the protocol and its version, which both ends must share: [`PROTOCOL`], but for
    /// tests.
    pub protocol: &'static [u8],
    /// The seed of a simulation that is to repeat: packet sizes and timing depend on it, keys never
    /// do. `None` draws random numbers from the system.
    pub simulation_seed: Option<u64>,
}

impl QuicConfig {
    /// The usual values, with this key.
    pub fn new(key: KeyPair) -> Self {
        Self {
            key,
            accepts: false,
            largest_packet_bytes: 1472,
            max_sessions: 256,
            max_handshakes: 64,
            protocol: PROTOCOL,
            simulation_seed: None,
        }
    }
}

/// A carrier over QUIC on one UDP socket. See the module.
pub struct QuicCarrier {
    config: QuicConfig,
    random: RandomBytes,
    endpoint: Endpoint,
    allowed_peers: Arc<tls::AllowedPeers>,
    server: Option<ServerConfig>,
    connections: TimedMap<usize, Connection>,
    sessions: TimedMap<SessionId, QuicSession>,
    next_session: u64,
    /// The connection that sends next.
    turn: usize,
    replies: VecDeque<(quinn_proto::Transmit, Vec<u8>)>,
    /// Buffer for a packet of QUIC: quinn-proto writes only to the start of a buffer.
    quic_packet: Vec<u8>,
    hedge: Hedge,
    events: VecDeque<CarrierEvent>,
    refusals: Refusals,
    counters: CarrierCounters,
}

#[derive(Default)]
struct Refusals {
    reported: Option<Instant>,
    more: u64,
}

impl QuicCarrier {
    /// A carrier without sessions.
    pub fn new(config: QuicConfig) -> Self {
        let allowed_peers = Arc::new(tls::AllowedPeers::default());
        let server = config.accepts.then(|| {
            let mut server = ServerConfig::with_crypto(tls::server(
                &config.key,
                Arc::clone(&allowed_peers),
                config.protocol,
            ));
            server
                .max_incoming(config.max_handshakes)
                .incoming_buffer_size(64 * 1024)
                .incoming_buffer_size_total(1024 * 1024);
            server
        });
        // Connections of a peer to an earlier process of this end shall end at once: this process
        // recognises the connection ids as its own, and the resets that it answers with are valid.
        let identity = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, config.key.seed());
        let reset_key = ring::hmac::sign(&identity, b"nervure stateless reset");
        let reset_key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, reset_key.as_ref());
        let id_key = ring::hmac::sign(&identity, b"nervure connection ids");
        let id_key = u64::from_le_bytes(*id_key.as_ref().first_chunk().expect("32 bytes"));
        let mut endpoint = EndpointConfig::new(Arc::new(reset_key));
        endpoint
            .cid_generator(move || Box::new(HashedConnectionIdGenerator::from_key(id_key)))
            .max_udp_payload_size(config.largest_packet_bytes.max(FIRST_PACKET_BYTES))
            .expect("at least 1200");
        let mut random = RandomBytes::new(config.simulation_seed);
        let quic_seed = config.simulation_seed.is_some().then(|| random.draw());
        let endpoint = Endpoint::new(
            Arc::new(endpoint),
            server.clone().map(Arc::new),
            true,
            quic_seed,
        );
        Self {
            config,
            random,
            endpoint,
            allowed_peers,
            server,
            connections: TimedMap::new(),
            sessions: TimedMap::new(),
            next_session: 1,
            turn: 0,
            replies: VecDeque::new(),
            quic_packet: Vec::new(),
            hedge: Hedge::default(),
            events: VecDeque::new(),
            refusals: Refusals::default(),
            counters: CarrierCounters::default(),
        }
    }

    /// Lets a peer begin sessions.
    pub fn allow(&mut self, peer: PublicKey) {
        self.allowed_peers.allow(peer);
    }

    /// Number of connections and sessions that were looked at so far.
    #[cfg(test)]
    pub(crate) fn looked_at(&self) -> u64 {
        self.connections.looked_at() + self.sessions.looked_at()
    }

    /// The public key of this end.
    pub fn public_key(&self) -> PublicKey {
        self.config.key.public()
    }

    /// Number of handshakes begun by peers and not yet complete, which is bounded.
    pub fn half_open_connections(&self) -> usize {
        self.half_open().count()
    }

    fn half_open(&self) -> impl Iterator<Item = &Connection> {
        self.connections
            .values()
            .filter(|connection| !connection.is_ours && !connection.established)
    }

    fn admit(&mut self, now: Instant, incoming: Incoming) {
        let address = incoming.remote_address();
        let is_validated = incoming.remote_address_validated();
        let alike = |c: &&Connection| c.address_validated == is_validated;
        let count = self.half_open().filter(alike).count();
        if !is_validated && count >= MAX_UNVALIDATED {
            let mut reply = Vec::new();
            return match self.endpoint.retry(incoming, &mut reply) {
                Ok(transmit) => self.reply(transmit, reply),
                Err(error) => self.endpoint.ignore(error.into_incoming()),
            };
        }
        let same_host = |c: &&Connection| same_host(c.address().ip(), address.ip());
        let from_there = self.half_open().filter(alike).filter(same_host).count();
        if count >= self.config.max_handshakes.saturating_sub(MAX_UNVALIDATED)
            || is_validated && from_there >= MAX_HALF_OPEN_PER_HOST
        {
            self.endpoint.ignore(incoming);
            let why = "too many attempts to connect at once";
            return self.refuse(now, None, address, why.into());
        }
        self.accept(now, incoming, address);
    }

    fn accept(&mut self, now: Instant, incoming: Incoming, address: SocketAddr) {
        let Some(mut server) = self.server.clone() else {
            return self.endpoint.ignore(incoming);
        };
        let address_validated = incoming.remote_address_validated();
        let hint = ConnectionHint::read(incoming.orig_dst_cid(), self.config.largest_packet_bytes);
        // Earlier attempts of the same session that did not complete suggest a slow path. Others
        // from that address may be forged, or of a process that ended.
        let attempts = self.half_open().filter(|c| c.hint.tag == hint.tag).count();
        let (transport, large) =
            transport::config(hint.packet_bytes, transport::rtt_after(attempts));
        server.transport_config(transport);
        let mut reply = Vec::new();
        match self
            .endpoint
            .accept(incoming, now, &mut reply, Some(Arc::new(server)))
        {
            Ok((handle, connection)) => {
                let mut connection = Connection::accepted(now, connection, hint, large);
                connection.address_validated = address_validated;
                self.connections.insert(handle.0, connection);
                self.process_events(now, handle.0);
            }
            Err(error) => {
                // Without a response it was no attempt to connect: a late copy of a packet of a
                // connection that is closed, or garbage.
                let Some(transmit) = error.response else {
                    self.counters.packets_ignored += 1;
                    return;
                };
                self.reply(transmit, reply);
                let why = self.why_refused(&error.cause);
                self.refuse(now, None, address, why);
            }
        }
    }

    fn reply(&mut self, transmit: quinn_proto::Transmit, packet: Vec<u8>) {
        // Under a flood, replies to unknown peers are the first to be left out.
        if self.replies.len() < MAX_REPLIES {
            self.replies.push_back((transmit, packet));
        }
    }

    fn refuse(&mut self, now: Instant, peer: Option<PublicKey>, address: SocketAddr, why: String) {
        self.counters.refused += 1;
        if self
            .refusals
            .reported
            .is_some_and(|reported| now < reported + REFUSED_PERIOD)
        {
            self.refusals.more += 1;
            return;
        }
        self.refusals.reported = Some(now);
        let more = std::mem::take(&mut self.refusals.more);
        self.events.push_back(CarrierEvent::Refused {
            peer,
            address,
            why,
            more,
        });
    }

    /// Processes the events of a connection.
    fn process_events(&mut self, now: Instant, handle: usize) {
        self.process_events_of_packet(now, handle, None);
    }

    /// The same, after the arrival of a packet with this mark.
    fn process_events_of_packet(&mut self, now: Instant, handle: usize, ecn: Option<Ecn>) {
        let mut drained = false;
        loop {
            let Some(connection) = self.connections.get_asleep(&handle) else {
                return;
            };
            if let Some(event) = connection.quic.poll_endpoint_events() {
                drained |= event.is_drained();
                if let Some(event) = self.endpoint.handle_event(ConnectionHandle(handle), event) {
                    connection.quic.handle_event(event);
                }
                self.connections.wake(&handle);
                continue;
            }
            let event = connection.quic.poll();
            if event.is_some() {
                self.connections.wake(&handle);
            }
            match event {
                Some(quinn_proto::Event::Connected) => self.on_established(now, handle),
                Some(quinn_proto::Event::ConnectionLost { reason }) => {
                    self.on_connection_lost(now, handle, &reason)
                }
                Some(quinn_proto::Event::DatagramReceived) => {
                    while let Some(connection) = self.connections.get_asleep(&handle)
                        && let Some(datagram) = connection.quic.datagrams().recv()
                    {
                        if let Some(session) = connection.session {
                            self.counters.datagrams_received += 1;
                            self.events.push_back(CarrierEvent::Datagram {
                                session,
                                ecn,
                                datagram,
                            });
                        }
                    }
                    self.follow_peer(now, handle);
                }
                Some(_) => {}
                None if drained => return self.on_drained(now, handle),
                None => return self.take_over_if_confirmed(now, handle),
            }
        }
    }

    /// Lets a connection write its next packet, with a datagram if its session sends on it.
    fn transmit_on(
        &mut self,
        now: Instant,
        handle: usize,
        next_datagram: &mut NextDatagram<'_>,
        packet: &mut Vec<u8>,
    ) -> Option<Transmit> {
        let connection = self.connections.get_asleep(&handle)?;
        let sends = |session: &SessionId| {
            self.sessions
                .get(session)
                .is_some_and(|session| session.active == Some(handle))
        };
        if let Some(session) = connection.session.filter(sends)
            && let Some(bytes) = connection.ask_for_datagram(session, next_datagram)
        {
            self.counters.datagrams_sent += 1;
            self.counters.bytes_copied_out += bytes as u64;
        }
        self.quic_packet.clear();
        let transmit = connection.quic.poll_transmit(now, 1, &mut self.quic_packet);
        if let Some(transmit) = &transmit {
            let to = Addresses {
                remote: transmit.destination,
                local: transmit.src_ip,
            };
            self.hedge.on_packet(now, connection, to, &self.quic_packet);
            packet.extend_from_slice(&self.quic_packet);
        }
        self.process_events(now, handle);
        transmit.map(|transmit| from_quinn(&transmit))
    }
}

impl Carrier for QuicCarrier {
    fn connect(
        &mut self,
        now: Instant,
        to: SocketAddr,
        peer: PublicKey,
    ) -> Result<SessionId, ConnectError> {
        if self.sessions.len() >= self.config.max_sessions {
            return Err(ConnectError::TooMany(self.sessions.len()));
        }
        let to = canonical(to);
        if to.port() == 0 || to.ip().is_unspecified() {
            return Err(ConnectError::Address(to));
        }
        let tag = self.random.draw();
        let id = self.new_session(QuicSession::begun_here(now, peer, to, tag));
        let rtt = transport::FIRST_RTT;
        self.attempt(now, id, to, FIRST_PACKET_BYTES, rtt, false);
        Ok(id)
    }

    fn reconnect(
        &mut self,
        now: Instant,
        session: SessionId,
        to: SocketAddr,
    ) -> Result<(), ConnectError> {
        let to = canonical(to);
        if to.port() == 0 || to.ip().is_unspecified() {
            return Err(ConnectError::Address(to));
        }
        let ours = self
            .sessions
            .get_asleep(&session)
            .and_then(|session| session.move_to(now, to));
        let () = ours.ok_or(ConnectError::NoSession(session.0))?;
        self.close_oldest_attempt(now, session);
        let rtt = transport::FIRST_RTT;
        self.attempt(now, session, to, FIRST_PACKET_BYTES, rtt, false);
        Ok(())
    }

    fn keep_ready(&mut self, now: Instant, session: SessionId, addresses: &[SocketAddr]) {
        let addresses: Vec<_> = addresses
            .iter()
            .map(|address| canonical(*address))
            .collect();
        let session = self.sessions.get_asleep(&session);
        if let Some(initiator) = session.and_then(|session| session.initiator.as_mut()) {
            initiator.paths = Path::list(now, &addresses);
            initiator.check_at = (addresses.len() > 1).then_some(now);
        }
    }

    fn fail_over(&mut self, now: Instant, session: SessionId) -> bool {
        self.change_to_working_path(now, session)
    }

    fn local_address_changed(&mut self, now: Instant) {
        for handle in self.connections.keys() {
            if let Some(connection) = self
                .connections
                .get_mut(&handle)
                .filter(|c| c.is_ours && c.established)
            {
                connection.quic.local_address_changed();
            }
            self.process_events(now, handle);
        }
    }

    fn close(&mut self, now: Instant, session: SessionId, why: DisconnectReason) {
        self.end_session(now, session, why);
    }

    fn forbid(&mut self, now: Instant, peer: PublicKey) {
        self.allowed_peers.forbid(peer);
        for session in self.sessions.keys_where(|session| session.peer == peer) {
            self.end_session(now, session, DisconnectReason::Forbidden);
        }
    }

    fn handle_packet<'p>(
        &mut self,
        now: Instant,
        from: impl Into<Addresses>,
        ecn: Option<Ecn>,
        packet: &'p mut [u8],
    ) -> Option<(SessionId, &'p [u8])> {
        let Addresses { remote, local } = from.into();
        let from = canonical(remote);
        let mut reply = Vec::new();
        let bytes = packet.len();
        let packet = BytesMut::from(&*packet);
        self.counters.bytes_copied_in += bytes as u64;
        match self
            .endpoint
            .handle(now, from, local, ecn.map(to_quinn), packet, &mut reply)
        {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some(connection) = self.connections.get_mut(&handle.0) {
                    connection.quic.handle_event(event);
                    connection.on_packet(now, bytes);
                    self.counters.packets_received += 1;
                }
                self.process_events_of_packet(now, handle.0, ecn);
                self.notice_smaller_path(now, handle.0);
            }
            Some(DatagramEvent::NewConnection(incoming)) => self.admit(now, incoming),
            Some(DatagramEvent::Response(transmit)) => {
                self.counters.packets_ignored += 1;
                self.reply(transmit, reply);
            }
            None => self.counters.packets_ignored += 1,
        }
        None
    }

    fn wake(&mut self, session: SessionId) {
        let active = self.sessions.get(&session).and_then(|known| known.active);
        active
            .iter()
            .for_each(|handle| self.connections.wake(handle));
    }

    fn poll_transmit(
        &mut self,
        now: Instant,
        next_datagram: &mut NextDatagram<'_>,
        packet: &mut Vec<u8>,
    ) -> Option<Transmit> {
        if let Some((transmit, reply)) = self.replies.pop_front() {
            packet.extend_from_slice(&reply);
            self.counters.packets_sent += 1;
            return Some(from_quinn(&transmit));
        }
        let start = packet.len();
        if let Some(to) = self.hedge.pop_due(now, packet) {
            self.counters.packets_sent += 1;
            return Some(Transmit {
                destination: to.remote,
                source: to.local,
                size: packet.len() - start,
                ecn: None,
            });
        }
        // Connections that may have something to send take turns.
        while let Some(handle) = self.connections.next_awake(&self.turn) {
            self.turn = handle + 1;
            let wakes = self.connections.wakes();
            if let Some(transmit) = self.transmit_on(now, handle, next_datagram, packet) {
                self.counters.packets_sent += 1;
                return Some(transmit);
            }
            if self.connections.wakes() == wakes {
                self.connections.rest(&handle);
            }
        }
        None
    }

    fn poll_event(&mut self) -> Option<CarrierEvent> {
        self.events.pop_front()
    }

    fn address(&self, session: SessionId) -> Option<SocketAddr> {
        let active = self.sessions.get(&session)?.active?;
        self.connections.get(&active).map(Connection::address)
    }

    fn max_datagram_bytes(&self, session: SessionId) -> Option<usize> {
        let active = self.sessions.get(&session)?.active?;
        self.connections.get(&active)?.max_datagram_bytes
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        let timeouts = [
            self.connections.first_timeout(),
            self.sessions.first_timeout(),
            self.hedge.timeout(),
        ];
        timeouts.into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now: Instant) {
        for handle in self.connections.due(now) {
            if let Some(connection) = self.connections.get_mut(&handle) {
                connection.on_timeout(now);
            }
            self.process_events(now, handle);
        }
        self.on_session_timeouts(now);
    }

    fn counters(&self) -> CarrierCounters {
        self.counters
    }
}

/// The address with an IPv4-mapped one as IPv4: a socket that receives both kinds reports an IPv4
/// peer so (RFC 4291, section 2.5.5.2).
fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(_) => address,
        IpAddr::V6(ip) => ip
            .to_ipv4_mapped()
            .map_or(address, |ip| SocketAddr::new(ip.into(), address.port())),
    }
}

/// Whether two addresses belong to one host. IPv6 hosts are compared by network prefix (64 bits),
/// since one host may have any number of addresses in it.
fn same_host(one: IpAddr, other: IpAddr) -> bool {
    match (one, other) {
        (IpAddr::V6(one), IpAddr::V6(other)) => one.octets()[..8] == other.octets()[..8],
        (one, other) => one == other,
    }
}

fn from_quinn(transmit: &quinn_proto::Transmit) -> Transmit {
    Transmit {
        destination: transmit.destination,
        source: transmit.src_ip,
        size: transmit.size,
        ecn: transmit.ecn.map(from_quinn_ecn),
    }
}

fn from_quinn_ecn(ecn: EcnCodepoint) -> Ecn {
    match ecn {
        EcnCodepoint::Ect0 => Ecn::Ect0,
        EcnCodepoint::Ect1 => Ecn::Ect1,
        EcnCodepoint::Ce => Ecn::CongestionExperienced,
    }
}

fn to_quinn(ecn: Ecn) -> EcnCodepoint {
    match ecn {
        Ecn::Ect0 => EcnCodepoint::Ect0,
        Ecn::Ect1 => EcnCodepoint::Ect1,
        Ecn::CongestionExperienced => EcnCodepoint::Ce,
    }
}
