//! What carries datagrams between two ends: identity, encryption, path MTU, address changes.
//!
//! A [`Carrier`] is sans-IO: it takes packets and the time, and returns packets and events. It delivers what arrives, at
//! most once and in any order, and repeats nothing: reliability, order and rate are the link's. So it asks for each
//! datagram at the moment at which the packet for it is made ([`NextDatagram`]): nothing waits in it and grows stale.
//!
//! Two bindings, one contract: [`quic::QuicCarrier`] for use, and a plain one for tests, with neither keys nor
//! encryption, on which a simulated run repeats byte by byte.
//!
//! # Copies
//!
//! On the way out the link writes a datagram once, into the packet that is sent, where it is encrypted; on the way in it
//! is decrypted where it was received. [`Counters`] tells the bytes of what is copied beyond that: the few datagrams that
//! go in packets of QUIC, see [`quic`].

mod identity;
#[cfg(test)]
pub mod plain;
pub mod quic;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::time::Instant;

use bytes::Bytes;

pub use identity::{IdentityError, KeyPair, ParsePublicKeyError, PublicKey};

/// A connection to a peer, from the first attempt to its end, whatever addresses and packet sizes it goes through.
/// A number is never used twice by one carrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId(pub u64);

/// Gives the next datagram for a session: appends at most so many bytes to the buffer and returns true, or returns false
/// when there is nothing to send now.
pub type NextDatagram<'a> = dyn FnMut(SessionId, usize, &mut Vec<u8>) -> bool + 'a;

/// What the network said of congestion on a packet's way (RFC 3168).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ecn {
    /// Can be marked.
    Ect0,
    /// Can be marked, too.
    Ect1,
    /// Was marked.
    CongestionExperienced,
}

/// Where the packet goes that [`Carrier::poll_transmit`] wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// The receiver.
    pub destination: SocketAddr,
    /// Bytes of the packet.
    pub size: usize,
    /// How to mark the packet.
    pub ecn: Option<Ecn>,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CarrierEvent {
    /// The peer has proved who it is; datagrams may go.
    Connected {
        /// The session that the other events speak of.
        session: SessionId,
        /// Who it is.
        peer: PublicKey,
        /// Where it is.
        address: SocketAddr,
    },
    /// A datagram arrived that [`Carrier::handle_packet`] did not return.
    Datagram {
        /// From whom.
        session: SessionId,
        /// What it said: a view of the received packet.
        datagram: Bytes,
    },
    /// The largest datagram changed; see [`Carrier::max_datagram_bytes`].
    MaxDatagramChanged {
        /// Of which session.
        session: SessionId,
        /// The new maximum, in bytes.
        bytes: usize,
    },
    /// The session is over.
    Lost {
        /// Which.
        session: SessionId,
        /// Why.
        why: DisconnectReason,
    },
    /// Someone was turned away. At most one a second; `more` counts those in between.
    Refused {
        /// Who, if it told a key.
        peer: Option<PublicKey>,
        /// From where.
        address: SocketAddr,
        /// Why.
        why: String,
        /// How many others were refused since the last such event.
        more: u64,
    },
}

/// Why a session ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DisconnectReason {
    /// Nothing was heard for the idle timeout.
    #[error("nothing heard for {0} s")]
    TimedOut(u64),
    /// The peer closed it.
    #[error("closed by the peer")]
    ClosedByPeer,
    /// [`Carrier::close`] was called.
    #[error("closed here")]
    ClosedHere,
    /// The peer lost its memory of the session: it was started anew.
    #[error("the peer was started anew")]
    Restarted,
    /// The same peer made a new session, which replaces this one.
    #[error("replaced by a newer session of the same peer")]
    Replaced,
    /// The peer does not take us, or is not who it should be.
    #[error("{0}")]
    Refused(String),
    /// The peer broke the protocol.
    #[error("protocol violated: {0}")]
    Protocol(String),
}

/// A connection that cannot even be tried.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// Nothing can be sent there.
    #[error("cannot connect to {0}: expected an address with a host and a port other than 0")]
    Address(SocketAddr),
    /// There is no such session, or it was not begun from here.
    #[error("no session of this side has the number {0}")]
    NoSession(u64),
    /// More would not be bounded.
    #[error("{0} sessions are open, which is the maximum")]
    TooMany(usize),
}

/// What a carrier did, in total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CarrierCounters {
    /// Bytes that were copied from datagrams into packets.
    pub bytes_copied_out: u64,
    /// Bytes that were copied from packets before they became [`Event::Datagram`]s.
    pub bytes_copied_in: u64,
    /// Datagrams sent.
    pub datagrams_sent: u64,
    /// Datagrams received.
    pub datagrams_received: u64,
    /// Packets sent, with and without datagrams.
    pub packets_sent: u64,
    /// Packets received that belonged to a session.
    pub packets_received: u64,
    /// Packets received that belonged to nothing.
    pub packets_ignored: u64,
    /// Peers turned away.
    pub refused: u64,
}

/// See the module. One carrier serves one UDP socket: one session or several, begun here or accepted.
pub trait Carrier {
    /// Begins a session with the peer that has this key. It is tried until it succeeds or is [closed](Self::close).
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

    /// The peer of a session begun here may have moved to this address. The session goes on, from whichever address
    /// answers, a round trip later.
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

    /// This side's address changed. Sessions begun here go on from the new one.
    fn local_address_changed(&mut self, now: Instant);

    /// Ends a session. [`Event::Lost`] follows.
    fn close(&mut self, now: Instant, session: SessionId);

    /// A packet arrived. It may be anything, from anyone. Returns the datagram that it holds, as a view of it, if there is
    /// just one and its session is connected; others follow as [`Event::Datagram`].
    fn handle_packet<'p>(
        &mut self,
        now: Instant,
        from: SocketAddr,
        ecn: Option<Ecn>,
        packet: &'p mut [u8],
    ) -> Option<(SessionId, &'p [u8])>;

    /// Appends the next packet to the buffer. Call it until it returns `None`: after each packet and timeout, and whenever
    /// there is something to send.
    fn poll_transmit(
        &mut self,
        now: Instant,
        next_datagram: &mut NextDatagram<'_>,
        packet: &mut Vec<u8>,
    ) -> Option<Transmit>;

    /// What happened. Call it until it returns `None`, after each packet and timeout.
    fn poll_event(&mut self) -> Option<CarrierEvent>;

    /// The largest datagram that fits into one packet on the path. `None` while the session is not connected.
    fn max_datagram_bytes(&self, session: SessionId) -> Option<usize>;

    /// When to call [`handle_timeout`](Self::handle_timeout), at the latest.
    fn poll_timeout(&mut self) -> Option<Instant>;

    /// Time has passed.
    fn handle_timeout(&mut self, now: Instant);

    /// What was done so far.
    fn counters(&self) -> CarrierCounters;
}
