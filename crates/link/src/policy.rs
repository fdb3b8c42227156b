//! The application's decision on each stream, before it is opened.
//!
//! A [`StreamPolicy`] is asked about each stream that a peer opens, before any memory is granted, and
//! about each stream that this end opens to a peer. Without one, every stream is accepted.
//! [`StreamRules`] are a policy by lists of names, one for each peer and direction:
//!
//! ```
//! use nervure_link::{carrier::KeyPair, policy::{Direction, StreamPolicy, StreamRules}};
//!
//! let robot = KeyPair::from_seed([1; 32]).public();
//! let mut rules = StreamRules::default();
//! rules.allow(robot, Direction::Incoming, "camera/*");
//! rules.allow(robot, Direction::Outgoing, "cmd_vel");
//! let policy = StreamPolicy::from(rules);
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use thiserror::Error;

use crate::{carrier::PublicKey, qos::Qos};

/// The longest reason of a refusal, in bytes.
pub const REASON_BYTES_MAX: usize = 128;

/// Why a receiver does not accept a stream, or does not any more.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// It has no memory for the stream.
    #[error("the peer has no memory for it")]
    NoMemory,
    /// The limit on open streams is reached.
    #[error("as many streams are open as the peer allows")]
    TooManyStreams,
    /// The message that opens the stream is not valid.
    #[error("the message that opens it is not valid")]
    Invalid,
    /// The policy does not allow a stream of this name.
    #[error("a stream of this name is not allowed")]
    NotAllowed,
    /// The application's own reason. It may come from the peer: it is escaped when displayed.
    #[error("{}", .0.escape_debug())]
    Application(Box<str>),
}

impl Refusal {
    /// The application's reason, cut to [`REASON_BYTES_MAX`].
    pub fn because(reason: &str) -> Self {
        let mut end = reason.len().min(REASON_BYTES_MAX);
        while !reason.is_char_boundary(end) {
            end -= 1;
        }
        Self::Application(reason[..end].into())
    }
}

/// The end that opens a stream, and so sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// The peer.
    Incoming,
    /// This end.
    Outgoing,
}

/// A stream that is about to be opened.
#[derive(Clone, Copy, Debug)]
pub struct StreamRequest<'a> {
    /// The key of the peer.
    pub peer: PublicKey,
    /// The end that opens the stream.
    pub direction: Direction,
    /// The name of the stream.
    pub name: &'a str,
    /// Its quality of service.
    pub qos: Qos,
}

/// The decision on a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The stream is opened.
    Accept,
    /// The application decides later. Until then the stream has no memory for samples. For an
    /// outgoing stream, this is the same as `Accept`.
    Ask,
    /// The stream is not opened.
    Refuse(Refusal),
}

type Decide = dyn FnMut(&StreamRequest<'_>) -> Decision + Send;

/// A function that decides on streams. The link's thread calls it, and waits for its result; it must
/// not call the link.
pub struct StreamPolicy(Box<Decide>);

impl StreamPolicy {
    /// A policy that calls this function.
    pub fn new(decide: impl FnMut(&StreamRequest<'_>) -> Decision + Send + 'static) -> Self {
        Self(Box::new(decide))
    }

    /// A policy that accepts all streams.
    pub fn accept_all() -> Self {
        Self::new(|_| Decision::Accept)
    }
}

impl Default for StreamPolicy {
    fn default() -> Self {
        Self::accept_all()
    }
}

impl From<StreamRules> for StreamPolicy {
    fn from(rules: StreamRules) -> Self {
        Self::new(move |request| rules.decide(request))
    }
}

impl std::fmt::Debug for StreamPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StreamPolicy")
    }
}

/// The names of streams that each peer may open, and that may be opened to it. All others are
/// refused.
#[derive(Clone, Debug, Default)]
pub struct StreamRules {
    allowed: BTreeMap<(PublicKey, Direction), Names>,
}

#[derive(Clone, Debug, Default)]
struct Names {
    exact: BTreeSet<String>,
    prefixes: Vec<String>,
}

impl StreamRules {
    /// Allows streams of this name; of all names that begin with the part before a `*` at its end.
    pub fn allow(&mut self, peer: PublicKey, direction: Direction, pattern: &str) {
        let names = self.allowed.entry((peer, direction)).or_default();
        match pattern.strip_suffix('*') {
            Some(prefix) => names.prefixes.push(prefix.into()),
            None => drop(names.exact.insert(pattern.into())),
        }
    }

    /// The decision on a stream.
    pub fn decide(&self, request: &StreamRequest<'_>) -> Decision {
        let names = self.allowed.get(&(request.peer, request.direction));
        let is_allowed = names.is_some_and(|names| {
            names.exact.contains(request.name)
                || names
                    .prefixes
                    .iter()
                    .any(|prefix| request.name.starts_with(prefix))
        });
        match is_allowed {
            true => Decision::Accept,
            false => Decision::Refuse(Refusal::NotAllowed),
        }
    }
}

/// The policy of an endpoint. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct SharedPolicy(Arc<Mutex<StreamPolicy>>);

impl SharedPolicy {
    /// Replaces the policy.
    pub fn set(&self, policy: StreamPolicy) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = policy;
    }

    fn decide(&self, request: &StreamRequest<'_>) -> Decision {
        let mut policy = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (policy.0)(request)
    }
}

/// The policy towards one peer; `None` accepts all streams.
#[derive(Clone, Debug, Default)]
pub struct PeerPolicy(Option<(PublicKey, SharedPolicy)>);

impl PeerPolicy {
    /// The part of a policy that concerns this peer.
    pub fn new(peer: PublicKey, policy: &SharedPolicy) -> Self {
        Self(Some((peer, policy.clone())))
    }

    pub(crate) fn decide(&self, direction: Direction, name: &str, qos: Qos) -> Decision {
        self.0.as_ref().map_or(Decision::Accept, |(peer, policy)| {
            policy.decide(&StreamRequest {
                peer: *peer,
                direction,
                name,
                qos,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qos::Delivery;

    #[test]
    fn rules_allow_names_of_one_peer_in_one_direction() {
        let [robot, other] = [1, 2].map(|seed| PublicKey([seed; 32]));
        let mut rules = StreamRules::default();
        rules.allow(robot, Direction::Incoming, "camera/*");
        rules.allow(robot, Direction::Outgoing, "cmd_vel");
        let accepts = |peer, direction, name| {
            rules.decide(&StreamRequest {
                peer,
                direction,
                name,
                qos: Qos::new(Delivery::Latest),
            }) == Decision::Accept
        };
        assert!(accepts(robot, Direction::Incoming, "camera/front"));
        assert!(accepts(robot, Direction::Outgoing, "cmd_vel"));
        for (peer, direction, name) in [
            (robot, Direction::Incoming, "camera"),
            (robot, Direction::Incoming, "cmd_vel"),
            (robot, Direction::Outgoing, "camera/front"),
            (robot, Direction::Outgoing, "cmd_vel/"),
            (other, Direction::Incoming, "camera/front"),
        ] {
            assert!(!accepts(peer, direction, name), "{direction:?} {name}");
        }
    }

    #[test]
    fn a_reason_is_cut_between_characters() {
        let Refusal::Application(reason) = Refusal::because(&"ä".repeat(100)) else {
            panic!("it is the application's");
        };
        assert_eq!(reason.len(), 128);
        let Refusal::Application(reason) = Refusal::because(&format!("a{}", "ä".repeat(100)))
        else {
            panic!("it is the application's");
        };
        assert_eq!(reason.len(), 127);
    }
}
