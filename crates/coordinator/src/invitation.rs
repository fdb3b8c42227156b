//! The text that pairs a machine: `ADDRESS,..#KEY.SECRET`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use nervure_identity::PublicKey;
use serde::{Deserialize, Serialize};

use crate::{Address, Role};

/// The terms of an invitation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// The role of the machine that it pairs.
    pub role: Role,
    /// False for one machine, which is paired at once. True for any number of machines, each of
    /// which waits until an operator approves it.
    pub needs_approval: bool,
    /// How long it is valid.
    pub lifetime: Duration,
}

impl Terms {
    /// Those for one machine.
    pub fn once(role: Role, lifetime: Duration) -> Self {
        Self {
            role,
            needs_approval: false,
            lifetime,
        }
    }
}

/// The data with which a machine pairs: addresses of the coordinator, its key, and a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Invitation {
    /// The addresses of the coordinator, of which one is enough.
    pub addresses: Vec<Address>,
    /// Its key.
    pub coordinator: PublicKey,
    /// 128 random bits in hexadecimal.
    pub secret: String,
}

/// A text that is not an invitation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this is no invitation: expected `HOST:PORT#` and 64 hexadecimal digits, `.` and 32 hexadecimal digits, as `nervure up` prints it"
)]
pub struct ParseInvitationError;

impl fmt::Display for Invitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.coordinator.to_string();
        let digits = key.split_once(':').map_or("", |(_, digits)| digits);
        let addresses: Vec<String> = self.addresses.iter().map(Address::to_string).collect();
        write!(f, "{}#{digits}.{}", addresses.join(","), self.secret)
    }
}

/// Leaves the secret out.
impl fmt::Debug for Invitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Invitation")
            .field("addresses", &self.addresses)
            .finish_non_exhaustive()
    }
}

impl FromStr for Invitation {
    type Err = ParseInvitationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (addresses, rest) = text.trim().split_once('#').ok_or(ParseInvitationError)?;
        let (key, secret) = rest.split_once('.').ok_or(ParseInvitationError)?;
        let is_secret = secret.len() == 32 && secret.bytes().all(|digit| digit.is_ascii_hexdigit());
        Ok(Self {
            addresses: addresses
                .split(',')
                .map(|address| address.parse().map_err(|_| ParseInvitationError))
                .collect::<Result<_, _>>()?,
            coordinator: format!("ed25519:{key}")
                .parse()
                .map_err(|_| ParseInvitationError)?,
            secret: is_secret
                .then(|| secret.to_owned())
                .ok_or(ParseInvitationError)?,
        })
    }
}
