//! The calls of machines, as JSON: each has its path, its request and its answer in one place.

use std::fmt::Debug;
use std::net::IpAddr;
use std::time::Duration;

use nervure_store::{Changes, Entry, Expected, LeaseId, Listing, Revision, StoreError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::access::Method;
use crate::{Joining, Machine, PEER_TIMEOUT, Terms};

/// The largest call and answer of a paired machine, in bytes. A value is a list of numbers in JSON,
/// so it takes up to four times its size.
pub const MAX_BODY_BYTES: usize = 6 << 20;

/// The largest call of a machine that is not paired, in bytes.
const MAX_STRANGER_BODY_BYTES: usize = 4096;

/// The longest time that a watch waits for a change.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// The path of a bundle: `HEAD`, `GET` and `PUT`.
pub(crate) const BUNDLE: &str = "/bundles/{digest}";

/// The path of the bundle with a digest.
pub(crate) fn bundle_path(digest: &str) -> String {
    BUNDLE.replace("{digest}", digest)
}

/// The header of requests with the number of a daemon.
pub(crate) const DAEMON: &str = "nervure-daemon";

/// A call: a POST to its path. The body of the answer is a `Result<Self::Answer, Refusal>`.
pub trait Call: Debug + Serialize + DeserializeOwned + Send + 'static {
    /// Its answer.
    type Answer: Debug + Serialize + DeserializeOwned + Send + 'static;

    /// Its path.
    const PATH: &'static str;

    /// Whether it changes nothing, so that it may be repeated.
    const IS_READ: bool = false;

    /// Its largest size, in bytes.
    const MAX_BYTES: usize = MAX_BODY_BYTES;

    /// Time limit for its answer.
    fn patience(&self) -> Duration {
        PEER_TIMEOUT
    }
}

/// Why a call has no result.
#[derive(Debug, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The store cannot, or the machine may not.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The machine does not belong to the fleet.
    #[error("{0}")]
    NotPaired(String),
    /// An older daemon with the same key lives.
    #[error(
        "another daemon with the key of `{name}` was there before, and connects from {older}: the state folder of one was copied; remove that of the copy, and let it join with a new invitation"
    )]
    Copied {
        /// The machine.
        name: String,
        /// The address of the older daemon.
        older: IpAddr,
    },
}

/// Pairs the machine, or asks whether it is paired.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Join {
    pub secret: String,
    pub name: String,
}

impl Call for Join {
    type Answer = Joining;
    const PATH: &'static str = "/join";
    const MAX_BYTES: usize = MAX_STRANGER_BODY_BYTES;
}

/// Makes an invitation, and returns its secret.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Invite {
    pub terms: Terms,
}

impl Call for Invite {
    type Answer = String;
    const PATH: &'static str = "/invite";
}

/// Pairs a machine that waits for approval.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Approve {
    pub name: String,
}

impl Call for Approve {
    type Answer = Machine;
    const PATH: &'static str = "/approve";
}

/// Removes a machine from the fleet.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Revoke {
    pub name: String,
}

impl Call for Revoke {
    type Answer = Machine;
    const PATH: &'static str = "/revoke";
}

/// See [`nervure_store::Store::get`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Get {
    pub key: String,
}

impl Call for Get {
    type Answer = Option<Entry>;
    const PATH: &'static str = "/get";
    const IS_READ: bool = true;
}

/// See [`nervure_store::Store::compare_and_set`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Set {
    pub key: String,
    pub expected: Expected,
    pub value: Option<Vec<u8>>,
    pub lease: Option<LeaseId>,
}

impl Set {
    /// The permission that it needs.
    pub(crate) fn method(&self) -> Method {
        match self.lease {
            None => Method::Set,
            Some(_) => Method::Lease,
        }
    }
}

impl Call for Set {
    type Answer = Revision;
    const PATH: &'static str = "/set";
}

/// See [`nervure_store::Store::list`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct List {
    pub prefix: String,
}

impl Call for List {
    type Answer = Listing;
    const PATH: &'static str = "/list";
    const IS_READ: bool = true;
}

/// See [`nervure_store::Store::watch`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Watch {
    pub prefix: String,
    pub after: Revision,
    pub wait_millis: u64,
}

impl Watch {
    /// The longest wait for a change, within the limit.
    pub(crate) fn wait(&self) -> Duration {
        Duration::from_millis(self.wait_millis).min(MAX_WAIT)
    }
}

impl Call for Watch {
    type Answer = Changes;
    const PATH: &'static str = "/watch";
    const IS_READ: bool = true;

    fn patience(&self) -> Duration {
        PEER_TIMEOUT + self.wait()
    }
}

/// See [`nervure_store::Store::lease`].
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lease {
    pub lease: Option<LeaseId>,
    pub lifetime_nanos: u64,
}

impl Lease {
    pub(crate) fn lifetime(&self) -> Duration {
        Duration::from_nanos(self.lifetime_nanos)
    }
}

impl Call for Lease {
    type Answer = LeaseId;
    const PATH: &'static str = "/lease";
}
