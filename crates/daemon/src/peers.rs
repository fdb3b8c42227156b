//! The other machines of the fleet: who belongs to it, and where their links are. No I/O.
//!
//! Keys and roles are those that the coordinator has written; a machine writes only the address of
//! its own link. So no machine can make others connect to a key that is not paired.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use nervure_coordinator::{Endpoint, Machine, Role, Standing};
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

impl Known {
    /// The coordinators, in the order in which a machine asks them: the one that it has paired with, and
    /// then the others by their age. One that was revoked is none, unless no other is known.
    pub fn coordinators(&self, paired_with: Endpoint) -> Vec<Endpoint> {
        let first = self.of_key(paired_with.key);
        let is_revoked = first.is_some_and(|first| first.standing == Standing::Revoked);
        let mut all: Vec<Endpoint> = Vec::new();
        all.extend((!is_revoked).then_some(paired_with));
        // It may have moved since.
        let by_age = first.into_iter().chain(self.by_age());
        for endpoint in by_age.filter_map(endpoint) {
            if !all.contains(&endpoint) {
                all.push(endpoint);
            }
        }
        if all.is_empty() {
            all.push(paired_with);
        }
        all
    }

    fn of_key(&self, key: PublicKey) -> Option<&Machine> {
        let key = key.to_string();
        self.machines.values().find(|machine| machine.key == key)
    }

    /// The machines with a coordinator, the oldest first.
    fn by_age(&self) -> impl Iterator<Item = &Machine> {
        let machines = self.machines.values();
        let mut all: Vec<_> = machines
            .filter(|machine| machine.is_coordinator())
            .collect();
        all.sort_by_key(|machine| {
            (
                machine.coordinator.map(|it| it.since_utc_millis),
                &machine.key,
            )
        });
        all.into_iter()
    }
}

fn endpoint(machine: &Machine) -> Option<Endpoint> {
    Some(Endpoint {
        address: machine
            .coordinator
            .filter(|_| machine.is_coordinator())?
            .address,
        key: machine.key.parse().ok()?,
    })
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
    /// The coordinator that this machine has paired with.
    coordinator: PublicKey,
    known: Known,
}

impl Peers {
    /// Begins with what is on disk. `coordinator` is that which this machine has paired with, which is
    /// its own if it has one.
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

    /// The keys of machines with a coordinator, the oldest first.
    pub fn coordinators(&self) -> Vec<PublicKey> {
        let mut keys: Vec<PublicKey> = self
            .known
            .by_age()
            .filter_map(|machine| machine.key.parse().ok())
            .collect();
        let first = self.known.of_key(self.coordinator);
        let is_revoked = first.is_some_and(|first| first.standing == Standing::Revoked);
        if !keys.contains(&self.coordinator) && !is_revoked {
            // Its entry has not been read yet. That of this machine may be new.
            let is_own = self.coordinator == self.own;
            keys.insert(if is_own { keys.len() } else { 0 }, self.coordinator);
        }
        keys
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
            dials: dials(self.own, key, &self.coordinators()),
        })
    }
}

/// Which of two machines connects the link: not that of a coordinator, since robots may be behind a
/// network address translation; if both or none are, the one with the lower key.
fn dials(own: PublicKey, peer: PublicKey, coordinators: &[PublicKey]) -> bool {
    match (coordinators.contains(&own), coordinators.contains(&peer)) {
        (true, false) => false,
        (false, true) => true,
        _ => own < peer,
    }
}

#[cfg(test)]
mod tests {
    use nervure_coordinator::CoordinatorOf;

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
            coordinator: None,
        }
    }

    fn coordinator(name: &str, of: u8, port: u16, since_utc_millis: u64) -> Machine {
        let address = SocketAddr::from(([10, 0, 0, of], port));
        Machine {
            coordinator: Some(CoordinatorOf {
                address,
                since_utc_millis,
            }),
            ..machine(name, of, Standing::Paired)
        }
    }

    #[test]
    fn coordinators_are_learned_and_those_that_were_revoked_are_not_asked() {
        let at = |of: u8, port| Endpoint {
            address: SocketAddr::from(([10, 0, 0, of], port)),
            key: key(of),
        };
        let mut peers = Peers::new(key(5), key(2), Known::default());
        let asked = |peers: &Peers| peers.known().coordinators(at(2, 7700));
        assert_eq!(
            (asked(&peers), peers.coordinators()),
            (vec![at(2, 7700)], vec![key(2)])
        );
        peers.machine("c", Some(coordinator("c", 3, 7700, 30)));
        peers.machine("b", Some(coordinator("b", 2, 7700, 20)));
        peers.machine("a", Some(coordinator("a", 1, 7700, 40)));
        assert_eq!(asked(&peers), [at(2, 7700), at(3, 7700), at(1, 7700)]);
        assert_eq!(peers.coordinators(), [key(2), key(3), key(1)]);
        // It listens elsewhere now, which another one has told.
        peers.machine("b", Some(coordinator("b", 2, 7701, 20)));
        assert_eq!(asked(&peers)[..2], [at(2, 7700), at(2, 7701)]);
        peers.machine("b", Some(machine("b", 2, Standing::Revoked)));
        assert_eq!(asked(&peers), [at(3, 7700), at(1, 7700)]);
        assert_eq!(peers.coordinators(), [key(3), key(1)]);
        // Machines dial it no more than others.
        peers.link("c", "10.0.0.3:7700".parse().unwrap());
        assert!(peers.peer("c").unwrap().dials);
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
        let all: [&[u8]; 5] = [&[], &[1], &[2], &[3], &[1, 2]];
        for coordinators in all {
            let coordinators: Vec<_> = coordinators.iter().map(|of| key(*of)).collect();
            for (one, other) in [(1, 2), (1, 3), (2, 3)] {
                let (one, other) = (key(one), key(other));
                let does = dials(one, other, &coordinators);
                assert_ne!(does, dials(other, one, &coordinators));
                let is_one = coordinators.contains(&one);
                assert!(is_one == coordinators.contains(&other) || does != is_one);
            }
        }
    }
}
