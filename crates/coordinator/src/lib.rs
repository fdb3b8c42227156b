//! The coordinator of a fleet: serves its store to paired machines, and pairs machines.
//!
//! It never touches payloads. Machines talk to it over HTTPS with TLS 1.3, where both ends prove an
//! Ed25519 key: the client has pinned that of the coordinator, and the coordinator those of paired
//! machines. A machine pairs with an [`Invitation`]: it names the coordinator's key, and has a
//! secret that is valid once. [`Client`] is the store as a machine sees it.
//!
//! Several coordinators may serve one store, each with the key of its machine: no private key leaves a
//! machine. The entry of a machine says that it has a coordinator, and only coordinators write such
//! entries. Each grants the others its own permissions.

pub mod access;
mod address;
#[doc(hidden)]
pub mod api;
mod bundles;
mod call_error;
mod calls;
mod changes;
mod client;
mod connections;
mod dial;
mod endpoints;
mod ends;
mod invitation;
mod pairing;
mod requests;
mod server;
mod service;
mod socket;
mod transfers;

pub use access::{Ask, Role};
pub use address::{Address, PORT, ParseAddressError, own_addresses};
pub use call_error::CallError;
pub use client::Client;
pub use endpoints::Endpoint;
pub use invitation::{Invitation, ParseInvitationError, Terms};
pub use server::{Config, Coordinator, StartError};

use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// The protocol between coordinator and clients. Every incompatible change takes a new number.
const ALPN: &[u8] = b"nervure-coordinator/2";

/// Prefix of the entries of paired machines, which only the coordinator writes.
pub const MACHINES: &str = "machines/";

/// Prefix of the entries of invitations, by the digest of their secrets, which only the coordinator
/// reads and writes.
const INVITATIONS: &str = "invitations/";

/// Prefix of the addresses of links, which each machine writes for itself.
pub const LINKS: &str = "links/";

/// Prefix of the entries of machines that are reachable, which the daemons of coordinators' machines
/// write.
pub const ALIVE: &str = "alive/";

/// Prefix of bundles, in the table of permissions: they are not in the store.
const BUNDLES: &str = "bundles/";

/// Prefix of the entries that a machine writes about itself.
pub const ACTUAL: &str = "actual/";

/// Prefix of the desired states of machines.
pub const DESIRED: &str = "desired/";

/// Time limit for the other end: for a handshake, the next part of a request, and an answer that waits for no
/// change. It outlasts three retransmissions of TCP, with back-off from 1 s (RFC 6298).
const PEER_TIMEOUT: Duration = Duration::from_secs(10);

/// The largest bundle of programs, in bytes.
pub const MAX_BUNDLE_BYTES: usize = 256 << 20;

/// The longest name of a machine.
pub const MAX_NAME_BYTES: usize = 63;

/// A machine that was invited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Its name.
    pub name: String,
    /// Its public key.
    pub key: String,
    /// The address that its daemon connects from; before that, the address that it paired from.
    pub address: IpAddr,
    /// Its role, which decides its permissions.
    #[serde(default)]
    pub role: Role,
    /// Whether it belongs to the fleet.
    #[serde(default)]
    pub standing: Standing,
    /// Its coordinator, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coordinator: Option<CoordinatorOf>,
}

impl Machine {
    /// Whether its coordinator is one of the fleet.
    pub fn is_coordinator(&self) -> bool {
        self.standing == Standing::Paired && self.coordinator.is_some()
    }
}

/// The coordinator of a machine. It proves the machine's key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoordinatorOf {
    /// Its address.
    pub address: SocketAddr,
    /// Its other addresses and names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<Address>,
    /// Time of its first start, by its machine's clock. All machines refer to the clock of the oldest one.
    pub since_utc_millis: u64,
}

/// The state of a machine after it has joined.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Joining {
    /// It is paired, under this name.
    Paired(String),
    /// It waits for approval, under this name.
    Waiting(String),
}

/// Whether a machine belongs to the fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// It belongs to the fleet.
    #[default]
    Paired,
    /// It waits for the approval of an operator.
    Waiting,
    /// It was removed from the fleet.
    Revoked,
}

/// Checks the name of a machine: letters, digits, `-`, `_` and `.`, as in a host name.
///
/// # Errors
/// The rule that it breaks.
pub fn check_machine_name(name: &str) -> Result<(), String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let starts = name.starts_with(|first: char| first.is_ascii_alphanumeric());
    match starts && name.len() <= MAX_NAME_BYTES && name.chars().all(fits) {
        true => Ok(()),
        false => Err(format!(
            "{name:?} is no name for a machine: expected 1 to {MAX_NAME_BYTES} letters, digits, `-`, `_` and `.`"
        )),
    }
}

/// SHA-256 in hexadecimal: the name of a bundle.
pub fn digest(bytes: &[u8]) -> String {
    let mut digest = Digest::default();
    digest.update(bytes);
    digest.finish()
}

/// [`digest`] of bytes that come in pieces.
struct Digest(ring::digest::Context);

impl Default for Digest {
    fn default() -> Self {
        Self(ring::digest::Context::new(&ring::digest::SHA256))
    }
}

impl Digest {
    fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(self) -> String {
        hexadecimal(self.0.finish().as_ref())
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
