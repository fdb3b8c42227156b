//! Calls and answers, as JSON.

use std::net::IpAddr;

use nervure_store::{Changes, Entry, Expected, LeaseId, Listing, Part, Revision, StoreError};
use serde::{Deserialize, Serialize};

use crate::{Machine, Terms};

/// The largest call and answer of a paired machine, in bytes. A value is a list of numbers in JSON,
/// so it takes up to four times its size.
pub const MAX_BODY_BYTES: usize = 6 << 20;

/// The largest call of a machine that is not paired, in bytes.
pub const MAX_STRANGER_BODY_BYTES: usize = 4096;

/// The longest time that a watch waits for a change.
pub const MAX_WAIT_MILLIS: u64 = 60_000;

/// A call of a machine.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "snake_case", deny_unknown_fields)]
pub enum Call {
    Join {
        secret: String,
        name: String,
    },
    Invite(Terms),
    Approve {
        name: String,
    },
    Revoke {
        name: String,
    },
    Get {
        key: String,
    },
    Set {
        key: String,
        expected: Expected,
        value: Option<Vec<u8>>,
        lease: Option<LeaseId>,
    },
    List {
        prefix: String,
    },
    Watch {
        prefix: String,
        after: Revision,
        wait_millis: u64,
    },
    Lease {
        lease: Option<LeaseId>,
        lifetime_nanos: u64,
    },
}

/// The answer to a call.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Joined {
        name: String,
    },
    Waiting {
        name: String,
    },
    Invited(String),
    Managed(Machine),
    Entry(Option<Entry>),
    Set(Revision),
    Listing(Listing),
    Changes(Changes),
    Lease(LeaseId),
    Refused(String),
    /// An older daemon with the same key lives.
    Copied {
        name: String,
        older: IpAddr,
    },
    Conflict {
        key: String,
        expected: Expected,
        found: Option<Revision>,
    },
    Compacted {
        after: Revision,
        oldest: Revision,
    },
    NoLease(LeaseId),
    KeySize {
        bytes: usize,
        most: usize,
    },
    ValueSize {
        bytes: usize,
        most: usize,
    },
    Unavailable(String),
}

/// The refusal of a copy of a machine.
pub(crate) fn copied_text(name: &str, older: IpAddr) -> String {
    format!(
        "another daemon with the key of `{name}` was there before, and connects from {older}: the state folder of one was copied; remove that of the copy, and let it join with a new invitation"
    )
}

impl From<StoreError> for Answer {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Conflict {
                key,
                expected,
                found,
            } => Self::Conflict {
                key,
                expected,
                found,
            },
            StoreError::Compacted { after, oldest } => Self::Compacted { after, oldest },
            StoreError::NoLease(lease) => Self::NoLease(lease),
            StoreError::Size {
                what: Part::Key,
                bytes,
                most,
            } => Self::KeySize { bytes, most },
            StoreError::Size { bytes, most, .. } => Self::ValueSize { bytes, most },
            StoreError::Refused(why) => Self::Refused(why),
            StoreError::Unavailable(why) => Self::Unavailable(why),
        }
    }
}

impl Answer {
    /// The error that the answer is; `None` for a result.
    pub fn error(self) -> Result<Self, StoreError> {
        Err(match self {
            Self::Conflict {
                key,
                expected,
                found,
            } => StoreError::Conflict {
                key,
                expected,
                found,
            },
            Self::Compacted { after, oldest } => StoreError::Compacted { after, oldest },
            Self::NoLease(lease) => StoreError::NoLease(lease),
            Self::KeySize { bytes, most } => StoreError::Size {
                what: Part::Key,
                bytes,
                most,
            },
            Self::ValueSize { bytes, most } => StoreError::Size {
                what: Part::Value,
                bytes,
                most,
            },
            Self::Unavailable(why) => StoreError::Unavailable(why),
            Self::Refused(why) => StoreError::Refused(why),
            Self::Copied { name, older } => StoreError::Refused(copied_text(&name, older)),
            result => return Ok(result),
        })
    }
}
