//! The other machines of the fleet: who belongs to it, and where their links are. No I/O.
//!
//! Keys and roles are those that the coordinator has written; a machine writes only the address of
//! its own link. So no machine can make others connect to a key that is not paired.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use nervure_coordinator::{Machine, Role, Standing};
use nervure_identity::PublicKey;
use serde::{Deserialize, Serialize};

/// What is known of the other machines. It is kept on disk: a machine that boots without the
/// coordinator still reaches the others, and refuses those that were revoked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// By name.
    pub machines: BTreeMap<String, Machine>,
    /// Addresses of links, by name.
    pub links: BTreeMap<String, SocketAddr>,
}

/// A machine to exchange samples with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its key.
    pub key: PublicKey,
    /// What it may ask.
    pub role: Role,
    /// Where its link is; `None` before it has reported.
    pub address: Option<SocketAddr>,
    /// Whether this end connects.
    pub dials: bool,
}

/// A change of a peer: its name, and what it is now. `None` for a machine that is none any more.
pub type PeerChange = (String, Option<Peer>);

/// Follows the machines of a fleet.
#[derive(Clone, Debug)]
pub struct Peers {
    own: PublicKey,
    coordinator: PublicKey,
    known: Known,
}

impl Peers {
    /// Begins with what is on disk.
    pub fn new(own: PublicKey, coordinator: PublicKey, known: Known) -> Self {
        Self {
            own,
            coordinator,
            known,
        }
    }

    /// What is to be kept on disk.
    pub fn known(&self) -> &Known {
        &self.known
    }

    /// All machines that are known now.
    pub fn all(&self) -> Vec<PeerChange> {
        let names = self.known.machines.keys();
        names
            .filter(|name| !self.is_own(name))
            .map(|name| (name.clone(), self.peer(name)))
            .collect()
    }

    /// The entry of a machine has changed; `None` if it was removed. Returns the change, if there
    /// is one.
    pub fn machine(&mut self, name: &str, machine: Option<Machine>) -> Option<PeerChange> {
        let machine = machine.filter(|machine| machine.name == name);
        if self.known.machines.get(name) == machine.as_ref() {
            return None;
        }
        match machine {
            Some(machine) => self.known.machines.insert(name.to_owned(), machine),
            None => self.known.machines.remove(name),
        };
        (!self.is_own(name)).then(|| (name.to_owned(), self.peer(name)))
    }

    /// The address of a machine's link has changed.
    pub fn link(&mut self, name: &str, address: SocketAddr) -> Option<PeerChange> {
        let known = self.known.links.insert(name.to_owned(), address);
        if known == Some(address) || self.is_own(name) {
            return None;
        }
        let peer = self.peer(name)?;
        Some((name.to_owned(), Some(peer)))
    }

    fn is_own(&self, name: &str) -> bool {
        let machine = self.known.machines.get(name);
        machine.is_some_and(|machine| machine.key == self.own.to_string())
    }

    fn peer(&self, name: &str) -> Option<Peer> {
        let machine = self.known.machines.get(name)?;
        if machine.standing != Standing::Paired {
            return None;
        }
        let key = machine.key.parse().ok()?;
        Some(Peer {
            key,
            role: machine.role,
            address: self.known.links.get(name).copied(),
            dials: dials(self.own, key, self.coordinator),
        })
    }
}

/// Which of two machines connects the link: not the coordinator's, since robots may be behind a
/// network address translation; between others the one with the lower key.
fn dials(own: PublicKey, peer: PublicKey, coordinator: PublicKey) -> bool {
    if own == coordinator || peer == coordinator {
        return own != coordinator;
    }
    own < peer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(first: u8) -> PublicKey {
        PublicKey([first; 32])
    }

    fn machine(name: &str, of: u8, standing: Standing) -> Machine {
        Machine {
            name: name.to_owned(),
            key: key(of).to_string(),
            address: [127, 0, 0, 1].into(),
            role: Role::Robot,
            standing,
        }
    }

    #[test]
    fn only_paired_machines_are_peers_with_the_key_of_the_coordinator() {
        let mut peers = Peers::new(key(5), key(1), Known::default());
        let address: SocketAddr = "10.0.0.2:7700".parse().unwrap();
        // A machine that is not known has no peer, whatever it says about its link.
        assert_eq!(peers.link("edge", address), None);
        assert_eq!(
            peers.machine("own", Some(machine("own", 5, Standing::Paired))),
            None
        );
        let edge = |dials| Peer {
            key: key(9),
            role: Role::Robot,
            address: Some(address),
            dials,
        };
        let change = peers.machine("edge", Some(machine("edge", 9, Standing::Paired)));
        assert_eq!(change, Some(("edge".to_owned(), Some(edge(true)))));
        assert_eq!(
            peers.machine("edge", Some(machine("edge", 9, Standing::Paired))),
            None
        );
        let revoked = peers.machine("edge", Some(machine("edge", 9, Standing::Revoked)));
        assert_eq!(revoked, Some(("edge".to_owned(), None)));
        // Its address changes nothing then, and neither does a restart of this daemon.
        assert_eq!(peers.link("edge", "10.0.0.3:1".parse().unwrap()), None);
        let again = Peers::new(key(5), key(1), peers.known().clone());
        assert_eq!(again.all(), [("edge".to_owned(), None)]);
        // An entry under another name is none.
        assert_eq!(
            peers.machine("x", Some(machine("edge", 9, Standing::Paired))),
            None
        );
        assert_eq!(peers.machine("edge", None), Some(("edge".to_owned(), None)));
    }

    #[test]
    fn exactly_one_of_two_machines_dials() {
        for (one, other, coordinator) in [(1, 2, 3), (2, 1, 3), (1, 2, 1), (2, 1, 1), (1, 2, 2)] {
            let (one, other, coordinator) = (key(one), key(other), key(coordinator));
            assert_ne!(
                dials(one, other, coordinator),
                dials(other, one, coordinator)
            );
            assert!(!dials(coordinator, one, coordinator) || coordinator == one);
        }
    }
}
