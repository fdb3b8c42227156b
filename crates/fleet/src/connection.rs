//! The connection of a command to the coordinator: with the key of this machine.

use nervure_coordinator::{Address, Client, Endpoint, Role};
use nervure_daemon::{
    PAIRING, PEERS,
    folder::{Folder, Pairing},
    peers::Known,
};
use nervure_identity::{KeyPair, PublicKey};
use nervure_inspect::Error as InspectError;

use crate::Error;

/// The fleet that this machine belongs to.
#[derive(Debug)]
pub struct Fleet {
    /// The client of its coordinator.
    pub client: Client,
}

impl Fleet {
    /// Connects to the fleet of this machine.
    pub fn connect() -> Result<Self, Error> {
        Self::connect_if_paired()?.ok_or(Error::NoFleet)
    }

    /// Connects, unless this machine belongs to no fleet.
    pub fn connect_if_paired() -> Result<Option<Self>, Error> {
        let folder = folder()?;
        let pairing: Option<Pairing> = folder.read(PAIRING).map_err(InspectError::Folder)?;
        let Some(pairing) = pairing else {
            return Ok(None);
        };
        let key = KeyPair::load(&folder.key()).map_err(InspectError::Key)?;
        let coordinator = pairing.coordinator_key().map_err(InspectError::Folder)?;
        let paired_with = pairing.endpoints().map_err(InspectError::Folder)?;
        let client = client(&paired_with, coordinator, &key)?;
        // The daemon has learned of the others.
        let known: Option<Known> = folder.read(PEERS).map_err(InspectError::Folder)?;
        client.set_coordinators(&known.unwrap_or_default().coordinators(&paired_with));
        Ok(Some(Self { client }))
    }

    /// As [`Fleet::connect_if_paired`], for orders to other machines: a robot gives none.
    pub fn of_orders() -> Result<Option<Self>, Error> {
        match role() {
            Some(Role::Robot) => Ok(None),
            _ => Self::connect_if_paired(),
        }
    }
}

/// A client of the coordinator at these addresses, at least one.
pub fn client(at: &[Endpoint], coordinator: PublicKey, own: &KeyPair) -> Result<Client, Error> {
    let client = Client::new(at[0].address, coordinator, own).map_err(Error::Client)?;
    client.set_coordinators(at);
    Ok(client)
}

/// The coordinator at each of the given addresses, by the resolver of the system.
pub fn resolved(addresses: &[Address], key: PublicKey) -> Result<Vec<Endpoint>, Error> {
    let mut endpoints = Vec::new();
    let mut failure = None;
    for named in addresses {
        match named.resolve() {
            Ok(found) => {
                endpoints.extend(found.into_iter().map(|address| Endpoint { address, key }))
            }
            Err(source) => {
                let address = named.to_string();
                failure = Some(Error::Address { address, source });
            }
        }
    }
    match failure.filter(|_| endpoints.is_empty()) {
        Some(failure) => Err(failure),
        None => Ok(endpoints),
    }
}

/// The role of this machine, as its daemon has stored it; `None` without a stored one.
pub fn role() -> Option<Role> {
    let folder = Folder::existing().ok()??;
    let pairing: Pairing = folder.read(PAIRING).ok()??;
    let known: Known = folder.read(PEERS).ok()??;
    known.machines.get(&pairing.name).map(|own| own.role)
}

/// The state of this machine on disk.
pub fn folder() -> Result<Folder, Error> {
    Ok(Folder::of_user().map_err(InspectError::Folder)?)
}
