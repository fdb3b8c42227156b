//! The contract of a carrier of datagrams between two ends: identity, encryption, path MTU, address
//! changes.
//!
//! A [`Carrier`] is sans-IO: it takes packets and the time, and returns packets and events. It
//! delivers datagrams at most once and in any order, and retransmits nothing: reliability, order
//! and rate belong to the link. So it asks for each datagram when it writes the packet for it
//! ([`NextDatagram`]): no datagram waits in the carrier and grows stale.
//!
//! Two carriers fulfil the contract: [`quic::QuicCarrier`] for use, and a plain one for tests,
//! without keys and encryption, on which a simulated run repeats byte by byte.
//!
//! # Copies
//!
//! The link writes a datagram once, into the packet that is sent, where it is encrypted. A received
//! datagram is decrypted in place. [`CarrierCounters`] counts the bytes copied beyond that: the few
//! datagrams that travel in packets of QUIC, see [`quic`].

#[cfg(test)]
pub mod plain;
pub mod quic;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use bytes::Bytes;

pub use nervure_identity::{IdentityError, KeyPair, ParsePublicKeyError, PublicKey};

/// A connection to a peer, from the first attempt to its end, across changes of address and packet
/// size. A carrier never uses a number twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub u64);

/// Provides the next datagram of a session: appends at most the given number of bytes to the buffer
/// and returns true, or returns false when there is nothing to send now.
pub type NextDatagram<'a> = dyn FnMut(SessionId, usize, &mut Vec<u8>) -> bool + 'a;

/// The congestion mark of a packet (RFC 3168).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ecn {
    /// The path may mark the packet; ECT(0).
    Ect0,
    /// The path may mark the packet; ECT(1).
    Ect1,
    /// The path has marked the packet.
    CongestionExperienced,
}

/// The two addresses of a packet, as this end sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The address of the other end.
    pub remote: SocketAddr,
    /// The address of this end, where the socket has several; `None` when the socket has one, or
    /// leaves the choice to the system.
    pub local: Option<IpAddr>,
}

impl From<SocketAddr> for Addresses {
    fn from(remote: SocketAddr) -> Self {
        Self {
            remote,
            local: None,
        }
    }
}

/// Destination and size of a packet that [`Carrier::poll_transmit`] wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Address of the receiver.
    pub destination: SocketAddr,
    /// The address to send from; `None` leaves the choice to the system.
    pub source: Option<IpAddr>,
    /// Length of the packet, in bytes.
    pub size: usize,
    /// The mark to send it with.
    pub ecn: Option<Ecn>,
}

/// An event of a carrier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CarrierEvent {
    /// The peer has proved its identity; datagrams may be sent.
    Connected {
        /// The session, as named in all further events.
        session: SessionId,
        /// The key that the peer has proved.
        peer: PublicKey,
        /// The address of the peer.
        address: SocketAddr,
    },
    /// A datagram arrived that [`Carrier::handle_packet`] did not return.
    Datagram {
        /// The session that it belongs to.
        session: SessionId,
        /// The mark that its packet arrived with.
        ecn: Option<Ecn>,
        /// The datagram, a view of the received packet.
        datagram: Bytes,
    },
    /// The largest datagram changed; see [`Carrier::max_datagram_bytes`].
    MaxDatagramChanged {
        /// The session concerned.
        session: SessionId,
        /// The new maximum, in bytes.
        bytes: usize,
    },
    /// Datagrams are sent on another path from now on, as either end has decided. Those in flight may
    /// be lost.
    PathChanged {
        /// The session concerned.
        session: SessionId,
        /// The address of the peer on this path.
        address: SocketAddr,
        /// Its round-trip time, as far as the carrier knows it.
        rtt: Duration,
    },
    /// Another path of the session became ready, or none is any more.
    Standby {
        /// The session concerned.
        session: SessionId,
        /// Whether another path is ready.
        ready: bool,
    },
    /// The session is over.
    Lost {
        /// The session that ended.
        session: SessionId,
        /// The reason.
        why: DisconnectReason,
    },
    /// A peer was refused. At most one event a second; `more` counts the others.
    Refused {
        /// The key of the peer, if it sent one.
        peer: Option<PublicKey>,
        /// The source address of the attempt.
        address: SocketAddr,
        /// The reason.
        why: String,
        /// Number of other refusals since the last such event.
        more: u64,
    },
}

/// Why a session ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DisconnectReason {
    /// No packet came for the idle timeout.
    #[error("no packet for {0} s")]
    TimedOut(u64),
    /// The peer closed it.
    #[error("closed by the peer")]
    ClosedByPeer,
    /// [`Carrier::forbid`] was called.
    #[error("its key was forbidden here")]
    Forbidden,
    /// The application closed it.
    #[error("closed here")]
    ClosedHere,
    /// The peer lost its state of the session: it restarted.
    #[error("the peer restarted")]
    Restarted,
    /// The same peer made a new session, which replaces this one.
    #[error("replaced by a newer session of the same peer")]
    Replaced,
    /// The peer refuses our key, or has another key than expected.
    #[error("{0}")]
    Refused(String),
    /// The peer broke the protocol.
    #[error("protocol violated: {0}")]
    Protocol(String),
}

/// Why a connection cannot be attempted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// The address cannot be sent to.
    #[error("cannot connect to {0}: expected an address with a host and a port other than 0")]
    Address(SocketAddr),
    /// No address was given.
    #[error("no address was given to connect to")]
    NoAddress,
    /// There is no such session, or the peer began it.
    #[error("no session of this side has the number {0}")]
    NoSession(u64),
    /// The limit on open sessions is reached.
    #[error("{0} sessions are open, which is the maximum")]
    TooMany(usize),
}

/// Totals of a carrier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CarrierCounters {
    /// Bytes copied from datagrams into packets.
    pub bytes_copied_out: u64,
    /// Bytes copied from packets before they became [`CarrierEvent::Datagram`]s.
    pub bytes_copied_in: u64,
    /// Datagrams sent.
    pub datagrams_sent: u64,
    /// Datagrams received.
    pub datagrams_received: u64,
    /// Packets sent, with and without datagrams.
    pub packets_sent: u64,
    /// Packets received that belonged to a session.
    pub packets_received: u64,
    /// Packets received that belonged to no session.
    pub packets_ignored: u64,
    /// Peers refused.
    pub refused: u64,
}

/// Carries datagrams over one UDP socket, for any number of sessions, begun here or accepted. See
/// the module.
pub trait Carrier {
    /// Begins a session with the peer that has this key. Attempts continue until one succeeds or
    /// the session is [closed](Self::close).
    ///
    /// # Errors
    ///
    /// When the address cannot be sent to, or too many sessions are open.
    fn connect(
        &mut self,
        now: Instant,
        to: SocketAddr,
        peer: PublicKey,
    ) -> Result<SessionId, ConnectError>;

    /// Continues a session begun here with a peer that may have moved to this address. It uses
    /// whichever address answers, a round trip later.
    ///
    /// # Errors
    ///
    /// As of [`connect`](Self::connect), or when the session was accepted or is over.
    fn reconnect(
        &mut self,
        now: Instant,
        session: SessionId,
        to: SocketAddr,
    ) -> Result<(), ConnectError>;

    /// Keeps a connection to each of these addresses of the peer ready, the preferred one first, beside
    /// the one that a session begun here uses. A carrier may ignore this.
    fn keep_ready(&mut self, _now: Instant, _session: SessionId, _addresses: &[SocketAddr]) {}

    /// Sends from now on over another connection that is ready and works;
    /// [`CarrierEvent::PathChanged`] follows. Returns false if there is none.
    fn fail_over(&mut self, _now: Instant, _session: SessionId) -> bool {
        false
    }

    /// Continues the sessions begun here from a new local address.
    fn local_address_changed(&mut self, now: Instant);

    /// Ends a session for this reason. [`CarrierEvent::Lost`] follows.
    fn close(&mut self, now: Instant, session: SessionId, why: DisconnectReason);

    /// Ends all sessions with a peer at once, and lets it begin no other.
    /// [`CarrierEvent::Lost`] follows.
    fn forbid(&mut self, now: Instant, peer: PublicKey);

    /// Processes a received packet, which may be anything from any source. Returns its datagram, as
    /// a view, if there is exactly one and its session is connected; further datagrams follow as
    /// [`CarrierEvent::Datagram`].
    fn handle_packet<'p>(
        &mut self,
        now: Instant,
        from: impl Into<Addresses>,
        ecn: Option<Ecn>,
        packet: &'p mut [u8],
    ) -> Option<(SessionId, &'p [u8])>;

    /// Notes that a session may have a datagram. After [`NextDatagram`] had none, it is called for
    /// this session again only after this, a packet from the peer or a timeout.
    fn wake(&mut self, session: SessionId);

    /// Appends the next packet to the buffer. Call it until it returns `None`: after each packet
    /// and timeout, and whenever there is something to send.
    fn poll_transmit(
        &mut self,
        now: Instant,
        next_datagram: &mut NextDatagram<'_>,
        packet: &mut Vec<u8>,
    ) -> Option<Transmit>;

    /// Returns the oldest event. Call it until it returns `None`, after each packet and timeout.
    fn poll_event(&mut self) -> Option<CarrierEvent>;

    /// The address of the peer. `None` while the session is not connected.
    fn address(&self, session: SessionId) -> Option<SocketAddr>;

    /// The largest datagram that fits into one packet on the path. `None` while the session is not
    /// connected.
    fn max_datagram_bytes(&self, session: SessionId) -> Option<usize>;

    /// The latest time at which to call [`handle_timeout`](Self::handle_timeout).
    fn poll_timeout(&mut self) -> Option<Instant>;

    /// Processes all timeouts that are due.
    fn handle_timeout(&mut self, now: Instant);

    /// The totals so far.
    fn counters(&self) -> CarrierCounters;
}
