//! The connection of a command to the coordinator: with the key of this machine.

use nervure_coordinator::{Address, CallError, Client, Endpoint, Role};
use nervure_daemon::{
    PAIRING, PEERS,
    folder::{Folder, Pairing},
    peers::Known,
};
use nervure_identity::{KeyPair, PublicKey};
use nervure_store::StoreError;

use crate::failure::Failure;

/// The fleet that this machine belongs to.
#[derive(Debug)]
pub struct Fleet {
    pub client: Client,
}

impl Fleet {
    /// Connects.
    pub fn connect() -> Result<Self, Failure> {
        Self::connect_if_paired()?.ok_or_else(|| {
            Failure::invalid("this machine belongs to no fleet")
                .hint("`nervure up` makes one, and prints the `nervure join ..` for other machines")
        })
    }

    /// Connects, unless this machine belongs to no fleet.
    pub fn connect_if_paired() -> Result<Option<Self>, Failure> {
        let folder = folder()?;
        let pairing: Option<Pairing> = folder.read(PAIRING).map_err(folder_failure)?;
        let Some(pairing) = pairing else {
            return Ok(None);
        };
        let key =
            KeyPair::load(&folder.key()).map_err(|error| Failure::internal(error.to_string()))?;
        let coordinator = pairing.coordinator_key().map_err(folder_failure)?;
        let paired_with = pairing.endpoints().map_err(folder_failure)?;
        let client = client(&paired_with, coordinator, &key)?;
        // The daemon has learned of the others.
        let known: Option<Known> = folder.read(PEERS).map_err(folder_failure)?;
        client.set_coordinators(&known.unwrap_or_default().coordinators(&paired_with));
        Ok(Some(Self { client }))
    }

    /// As [`Fleet::connect_if_paired`], for orders to other machines: a robot gives none.
    pub fn of_orders() -> Result<Option<Self>, Failure> {
        match role() {
            Some(Role::Robot) => Ok(None),
            _ => Self::connect_if_paired(),
        }
    }
}

/// A client of the coordinator at these addresses, at least one.
pub fn client(at: &[Endpoint], coordinator: PublicKey, own: &KeyPair) -> Result<Client, Failure> {
    let client = Client::new(at[0].address, coordinator, own)
        .map_err(|error| Failure::internal("cannot start a client").because(error))?;
    client.set_coordinators(at);
    Ok(client)
}

/// The coordinator at each of the given addresses, by the resolver of the system.
pub fn resolved(addresses: &[Address], key: PublicKey) -> Result<Vec<Endpoint>, Failure> {
    let mut endpoints = Vec::new();
    let mut failure = None;
    for named in addresses {
        match named.resolve() {
            Ok(found) => {
                endpoints.extend(found.into_iter().map(|address| Endpoint { address, key }))
            }
            Err(error) => {
                let text = format!("the address {named} cannot be found");
                failure = Some(Failure::internal(text).because(error));
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
pub fn folder() -> Result<Folder, Failure> {
    Folder::of_user().map_err(folder_failure)
}

/// The failure to use the state of this machine on disk.
pub fn folder_failure(error: std::io::Error) -> Failure {
    nervure_inspect::Error::Folder(error).into()
}

/// Hint for an operation that the role of this machine does not allow.
const REFUSED: &str = "`nervure machine list` on an operator's machine shows the role of each; \
                       `nervure machine invite --role ROLE` there makes an invitation";

pub fn store_failure(error: StoreError) -> Failure {
    let failure = |error: StoreError| Failure::internal(error.to_string());
    match error {
        StoreError::Refused(_) => Failure::invalid(error.to_string()).hint(REFUSED),
        _ => failure(error).hint("does `nervure up` run?"),
    }
}

pub fn call_failure(error: CallError) -> Failure {
    match error {
        CallError::Refused { .. } => Failure::invalid(error.to_string()).hint(REFUSED),
        CallError::Unreachable { .. } => Failure::internal(error.to_string())
            .hint("does `nervure up` run, and can this machine reach it?"),
        CallError::Unexpected { .. } => Failure::internal(error.to_string()),
    }
}
