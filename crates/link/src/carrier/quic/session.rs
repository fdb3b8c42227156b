//! The state of a session, apart from its connections.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::packet_size::Search;
use crate::carrier::PublicKey;
use crate::timed::Timed;

/// The time until the second attempt to connect. The next ones follow after twice as long each, as
/// the path may be slow, or congested by the attempts of others.
pub(super) const ATTEMPT_PERIOD: Duration = Duration::from_millis(300);
pub(super) const ATTEMPT_DOUBLINGS: u32 = 3;

/// A session, begun here or by the peer.
pub struct QuicSession {
    pub peer: PublicKey,
    pub tag: [u8; 8],
    /// The connection that datagrams are sent on; `None` until the first is established.
    pub active: Option<usize>,
    /// What the end that began the session keeps.
    pub initiator: Option<Initiator>,
}

pub struct Initiator {
    pub to: SocketAddr,
    /// Since when the peer is expected there: connections that began before may lead to where it was.
    pub since: Instant,
    /// The peer's location is not known (any more): attempts continue.
    pub seeking: bool,
    pub next_attempt: Instant,
    pub attempts: u32,
    pub search: Search,
}

impl Initiator {
    fn new(now: Instant, to: SocketAddr) -> Self {
        Self {
            to,
            since: now,
            seeking: true,
            next_attempt: now + ATTEMPT_PERIOD,
            attempts: 1,
            search: Search::default(),
        }
    }
}

impl QuicSession {
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

    pub fn seeks(&self) -> bool {
        self.initiator
            .as_ref()
            .is_some_and(|initiator| initiator.seeking)
    }

    /// Notes that the peer may have moved. `None` for a session that the peer began.
    pub fn move_to(&mut self, now: Instant, to: SocketAddr) -> Option<()> {
        *self.initiator.as_mut()? = Initiator::new(now, to);
        Some(())
    }
}

impl Timed for QuicSession {
    fn timeout(&mut self) -> Option<Instant> {
        let initiator = self.initiator.as_ref()?;
        if initiator.seeking {
            Some(initiator.next_attempt)
        } else {
            initiator.search.timeout()
        }
    }
}
