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

/// The most paths of a session.
pub const MAX_PATHS: usize = 4;
/// The other paths are tried this long after the first one (RFC 8305, section 5).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

/// A path to the peer, at the initiator.
pub struct Path {
    pub address: SocketAddr,
    /// The newest connection on it.
    pub(super) handle: Option<usize>,
    pub(super) next_attempt: Instant,
    pub(super) attempts: u32,
}

impl Path {
    /// The paths to these addresses, the preferred one first.
    pub fn list(now: Instant, addresses: &[SocketAddr]) -> Vec<Self> {
        let path = |address: &SocketAddr| Self {
            address: *address,
            handle: None,
            next_attempt: now + ATTEMPT_DELAY,
            attempts: 0,
        };
        addresses.iter().take(MAX_PATHS).map(path).collect()
    }
}

/// A session, begun here or by the peer.
pub struct QuicSession {
    pub peer: PublicKey,
    pub tag: [u8; 8],
    /// The connection that datagrams are sent on; `None` until the first is established.
    pub active: Option<usize>,
    /// After a change of the path: time until which packets on the old path say nothing about the
    /// peer's choice.
    pub holds_until: Option<Instant>,
    /// Another path is ready, as was reported.
    pub has_standby: bool,
    /// State of the end that began the session.
    pub initiator: Option<Initiator>,
}

pub struct Initiator {
    pub to: SocketAddr,
    /// When the peer was first expected there: older connections may lead to its former address.
    pub since: Instant,
    /// The peer's address is not known, or no longer: attempts continue.
    pub seeking: bool,
    pub next_attempt: Instant,
    pub attempts: u32,
    pub search: Search,
    /// All paths to the peer, if there are several, the preferred one first.
    pub paths: Vec<Path>,
    /// When to check them.
    pub check_at: Option<Instant>,
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
            paths: Vec::new(),
            check_at: None,
        }
    }
}

impl QuicSession {
    pub fn begun_here(now: Instant, peer: PublicKey, to: SocketAddr, tag: [u8; 8]) -> Self {
        Self {
            initiator: Some(Initiator::new(now, to)),
            ..Self::accepted(peer, tag)
        }
    }

    pub fn accepted(peer: PublicKey, tag: [u8; 8]) -> Self {
        Self {
            peer,
            tag,
            active: None,
            holds_until: None,
            has_standby: false,
            initiator: None,
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
        let initiator = self.initiator.as_mut()?;
        *initiator = Initiator {
            paths: std::mem::take(&mut initiator.paths),
            check_at: initiator.check_at,
            ..Initiator::new(now, to)
        };
        Some(())
    }
}

impl Timed for QuicSession {
    fn timeout(&mut self) -> Option<Instant> {
        let initiator = self.initiator.as_ref()?;
        let own = if initiator.seeking {
            Some(initiator.next_attempt)
        } else {
            initiator.search.timeout()
        };
        [own, initiator.check_at].into_iter().flatten().min()
    }
}
