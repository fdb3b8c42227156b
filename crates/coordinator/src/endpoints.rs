//! The coordinators that a client knows.

use std::collections::HashSet;
use std::net::SocketAddr;

use nervure_identity::{PublicKey, tls};
use tokio::sync::watch;

/// Address and key of a coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Its address.
    pub address: SocketAddr,
    /// Its key.
    pub key: PublicKey,
}

/// The coordinators of the fleet, which is never empty. The first one is asked.
#[derive(Debug)]
pub(crate) struct Coordinators(watch::Sender<Vec<Endpoint>>);

impl Coordinators {
    pub fn new(first: Endpoint) -> Self {
        Self(watch::Sender::new(vec![first]))
    }

    pub fn asked(&self) -> Endpoint {
        self.0.borrow()[0]
    }

    /// Turns to the next coordinator, unless another thread has done so. Further addresses of the same one
    /// are skipped.
    pub fn leave(&self, asked: Endpoint) {
        self.0.send_if_modified(|all| {
            let next = all.iter().position(|one| one.key != asked.key);
            let next = next.filter(|_| all[0] == asked);
            all.rotate_left(next.unwrap_or(0));
            next.is_some()
        });
    }

    /// Ends the calls to a coordinator that does not answer, and turns to its next address, or to the next
    /// coordinator.
    pub fn avoid(&self, key: PublicKey) {
        self.0.send_if_modified(|all| {
            let is_asked = all[0].key == key && all.len() > 1;
            all.rotate_left(usize::from(is_asked));
            is_asked
        });
    }

    /// Uses this address from now on, to which there is a connection.
    pub fn prefer(&self, connected: Endpoint) {
        self.0.send_if_modified(|all| {
            let is_asked = all[0].key == connected.key && all[0] != connected;
            let at = all.iter().position(|one| *one == connected);
            let at = at.filter(|_| is_asked);
            if let Some(at) = at {
                all[..=at].rotate_right(1);
            }
            at.is_some()
        });
    }

    /// The addresses of a coordinator, beginning with one.
    pub fn addresses(&self, first: Endpoint) -> Vec<Endpoint> {
        let all = self.0.borrow();
        let others = all
            .iter()
            .filter(|one| one.key == first.key && **one != first);
        std::iter::once(first).chain(others.copied()).collect()
    }

    /// Sets the coordinators. The present one stays first if it is among them. An empty list is ignored.
    pub fn set(&self, all: &[Endpoint]) {
        if all.is_empty() {
            return;
        }
        self.0.send_if_modified(|known| {
            let mut all = all.to_vec();
            let asked = all.iter().position(|one| *one == known[0]);
            let asked = asked.or_else(|| all.iter().position(|one| one.key == known[0].key));
            all.rotate_left(asked.unwrap_or(0));
            let has_changed = *known != all;
            *known = all;
            has_changed
        });
    }

    /// Whether there is one address only.
    pub fn is_alone(&self) -> bool {
        self.0.borrow().len() == 1
    }

    /// The coordinators, each with its first address.
    pub fn all(&self) -> Vec<Endpoint> {
        let mut all = self.0.borrow().clone();
        let mut keys = HashSet::new();
        all.retain(|one| keys.insert(one.key));
        all
    }

    /// Waits until another coordinator is asked instead of this one.
    pub async fn left(&self, asked: Endpoint) {
        let mut coordinators = self.0.subscribe();
        let was_asked = coordinators.borrow_and_update()[0] == asked;
        let is_left = |all: &Vec<Endpoint>| was_asked && all[0] != asked;
        // The sender lives as long as this.
        drop(coordinators.wait_for(is_left).await);
    }
}

/// Accepts the key of any coordinator. The peer's identity is known after the handshake.
impl tls::Accept for Coordinators {
    fn accepts(&self, peer: PublicKey) -> bool {
        self.0.borrow().iter().any(|known| known.key == peer)
    }
}
