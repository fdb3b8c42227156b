//! The other machines of the fleet: their membership, and the addresses of their links. No I/O.
//!
//! The coordinator writes keys and roles; a machine writes only the address of its own link. So no machine
//! can make others connect to a key that is not paired.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use nervure_coordinator::{Address, Endpoint, Machine, Role, Standing};
use nervure_identity::PublicKey;
use serde::{Deserialize, Serialize};

/// The known machines and addresses of the fleet. They are kept on disk: a machine that boots without the
/// coordinator still reaches the others, and refuses revoked ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Known {
    /// By name.
    pub machines: BTreeMap<String, Machine>,
    /// Addresses of links, by name.
    pub links: BTreeMap<String, SocketAddr>,
    /// Addresses that coordinators have announced over their links, by key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub announced: BTreeMap<String, Vec<Address>>,
}

impl Known {
    /// Endpoints of the coordinators, in the order in which a machine asks them: the one that it has paired
    /// with, then the others by age. A revoked one is left out, unless no other is known.
    pub fn coordinators(&self, paired_with: &[Endpoint]) -> Vec<Endpoint> {
        let first = paired_with.first().and_then(|one| self.of_key(one.key));
        let is_revoked = first.is_some_and(|first| first.standing == Standing::Revoked);
        let mut all: Vec<Endpoint> = Vec::new();
        // The coordinator may have moved since the pairing.
        let announced = paired_with.first().map(|one| self.announced(one.key));
        let of_paired = announced
            .into_iter()
            .flatten()
            .chain(paired_with.iter().copied());
        let of_paired = of_paired.filter(|_| !is_revoked);
        let by_age = first.into_iter().chain(self.by_age());
        for endpoint in of_paired.chain(by_age.flat_map(|it| self.endpoints(it))) {
            if !all.contains(&endpoint) {
                all.push(endpoint);
            }
        }
        match all.is_empty() {
            true => paired_with.to_vec(),
            false => all,
        }
    }

    /// Names of coordinators, for the resolver of the system.
    pub fn names(&self) -> Vec<(Address, PublicKey)> {
        let others = self.machines.values().filter_map(|machine| {
            let key = machine.key.parse().ok()?;
            let coordinator = machine.coordinator.as_ref()?;
            Some(coordinator.others.iter().map(move |it| (it.clone(), key)))
        });
        others
            .flatten()
            .filter(|(it, _)| it.ip().is_none())
            .collect()
    }

    /// Endpoints of a coordinator at the addresses that it has announced.
    fn announced(&self, key: PublicKey) -> Vec<Endpoint> {
        let announced = self.announced.get(&key.to_string()).into_iter().flatten();
        let ips = announced.filter_map(Address::ip);
        ips.map(|address| Endpoint { address, key }).collect()
    }

    fn endpoints(&self, machine: &Machine) -> Vec<Endpoint> {
        let coordinator = machine.coordinator.as_ref();
        let coordinator = coordinator.filter(|_| machine.is_coordinator());
        let (Some(of), Ok(key)) = (coordinator, machine.key.parse()) else {
            return Vec::new();
        };
        let others = of.others.iter().filter_map(Address::ip);
        let ips = std::iter::once(of.address).chain(others);
        let ips = ips.map(|address| Endpoint { address, key });
        ips.chain(self.announced(key)).collect()
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
                machine.coordinator.as_ref().map(|it| it.since_utc_millis),
                &machine.key,
            )
        });
        all.into_iter()
    }
}

/// A machine to exchange samples with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its key.
    pub key: PublicKey,
    /// Its role, which limits its requests.
    pub role: Role,
    /// Address of its link; `None` before its first report.
    pub address: Option<SocketAddr>,
    /// Whether this end connects.
    pub dials: bool,
}

/// Name and new state of a peer; `None` for a machine that is no peer any more.
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
    /// Begins with the state on disk. `coordinator` is the one that this machine has paired with: its own,
    /// if it has one.
    pub fn new(own: PublicKey, coordinator: PublicKey, known: Known) -> Self {
        Self {
            own,
            coordinator,
            known,
        }
    }

    /// The state to keep on disk.
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
            // Its entry has not been read yet. A coordinator of this machine may be the newest.
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

    /// Handles a change of a machine's entry; `None` if it was removed. Returns the change of the peer, if
    /// there is one.
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

    /// Notes the addresses that a machine has announced. Returns false if it has no coordinator.
    pub fn announced(&mut self, key: PublicKey, addresses: Vec<Address>) -> bool {
        let is_coordinator = self.coordinators().contains(&key);
        if is_coordinator {
            self.known.announced.insert(key.to_string(), addresses);
        }
        is_coordinator
    }

    /// The addresses of the coordinator on this machine.
    pub fn own_addresses(&self) -> Vec<Address> {
        let own = self.known.of_key(self.own);
        let own = own.and_then(|own| own.coordinator.as_ref());
        let all = own.map(|own| {
            let others = own.others.iter().cloned();
            std::iter::once(own.address.into()).chain(others).collect()
        });
        all.unwrap_or_default()
    }

    /// The key of a machine.
    pub fn key_of(&self, name: &str) -> Option<PublicKey> {
        self.known.machines.get(name)?.key.parse().ok()
    }

    /// Handles a change of the address of a machine's link.
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

/// Whether this machine connects the link. A coordinator's machine does not, since robots may be behind a
/// network address translation; if both or none have one, the machine with the lower key does.
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
                others: Vec::new(),
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
        let asked = |peers: &Peers| peers.known().coordinators(&[at(2, 7700)]);
        assert_eq!(
            (asked(&peers), peers.coordinators()),
            (vec![at(2, 7700)], vec![key(2)])
        );
        peers.machine("c", Some(coordinator("c", 3, 7700, 30)));
        peers.machine("b", Some(coordinator("b", 2, 7700, 20)));
        peers.machine("a", Some(coordinator("a", 1, 7700, 40)));
        assert_eq!(asked(&peers), [at(2, 7700), at(3, 7700), at(1, 7700)]);
        assert_eq!(peers.coordinators(), [key(2), key(3), key(1)]);
        // Its entry has another address now.
        peers.machine("b", Some(coordinator("b", 2, 7701, 20)));
        assert_eq!(asked(&peers)[..2], [at(2, 7700), at(2, 7701)]);
        // It has moved, and announces so over its link; others announce nothing for it.
        let moved: Vec<Address> =
            vec!["10.9.0.2:7700".parse().unwrap(), "b.local".parse().unwrap()];
        assert!(peers.announced(key(2), moved.clone()));
        assert!(!peers.announced(key(9), moved));
        assert_eq!(asked(&peers)[0].address, "10.9.0.2:7700".parse().unwrap());
        assert_eq!(asked(&peers)[0].key, key(2));
        assert!(asked(&peers).contains(&at(2, 7700)), "it may return");
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
        // A machine without an entry is no peer, whatever it reports about its link.
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
