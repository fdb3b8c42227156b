//! The state of a fleet: a small store of keys behind five calls.
//!
//! Each change has a *revision*, one more than that of the change before. An entry carries the
//! revision of its last change, so that a writer can say which state it has seen
//! ([`Store::compare_and_set`]), and a reader from which state it continues ([`Store::watch`]).
//! A *lease* removes the keys that were written with it when it is not renewed in time.
//!
//! There are three bindings: in memory, in a file (redb), and in etcd (feature `etcd`). One
//! conformance suite, [`conformance`], holds for every binding.
//!
//! ```
//! use nervure_store::{Expected, Store, memory};
//!
//! let store = memory();
//! let written = store.compare_and_set("desired/robot", Expected::Absent, Some(b"two"), None)?;
//! assert_eq!(store.get("desired/robot")?.unwrap().revision, written);
//! let stale = store.compare_and_set("desired/robot", Expected::Absent, None, None);
//! assert!(stale.is_err(), "another writer was first");
//! # Ok::<(), nervure_store::StoreError>(())
//! ```

pub mod conformance;
mod durable;
mod engine;
#[cfg(feature = "etcd")]
mod etcd;
mod shared;

pub use durable::{OpenError, open};
#[cfg(feature = "etcd")]
pub use etcd::{Etcd, etcd};
pub use shared::{Backup, Local, memory, memory_at, memory_on};

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// The longest key, in bytes.
pub const MAX_KEY_BYTES: usize = 512;

/// The longest value, in bytes: etcd's default, less its overhead.
pub const MAX_VALUE_BYTES: usize = 1 << 20;

/// Number of changes that a watch can look back to, and bytes of their keys and values. A watch that
/// is further behind lists again.
pub const MAX_HISTORY: usize = 4096;
/// See [`MAX_HISTORY`].
pub const MAX_HISTORY_BYTES: usize = 64 << 20;

/// A state of the store: the number of changes so far. 0 is the empty store.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Revision(pub u64);

/// The time in which one process has a store open, or the life of an etcd cluster.
///
/// A store that was restored from a backup goes on at an earlier revision, with other changes. Its epoch
/// shows that: it is another one, and has begun below a revision that was read.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Epoch {
    /// Random; 0 from a coordinator of an earlier version, which has no epochs.
    pub id: u64,
    /// The revision that it has begun at.
    pub begin: Revision,
}

impl Epoch {
    /// Whether the store still has the state that was read at a revision in another epoch.
    pub fn continues(&self, known: Self, revision: Revision) -> bool {
        self.id == known.id || revision <= self.begin
    }
}

/// A lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LeaseId(pub u64);

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The value.
    pub value: Vec<u8>,
    /// The revision of its last change.
    pub revision: Revision,
    /// The lease that it ends with.
    pub lease: Option<LeaseId>,
}

/// The state that a writer expects a key to be in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Expected {
    /// It does not exist.
    Absent,
    /// Its last change has this revision.
    Revision(Revision),
}

/// Entries with a common prefix, at one revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing {
    /// The epoch of the store.
    #[serde(default)]
    pub epoch: Epoch,
    /// The revision of the store: a watch from here on misses nothing.
    pub revision: Revision,
    /// The entries, by key.
    pub entries: Vec<Entry>,
}

/// A change of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The key.
    pub key: String,
    /// The entry after it; `None` if the key was removed.
    pub entry: Option<Entry>,
    /// The revision of the change.
    pub revision: Revision,
}

/// Changes of keys with a common prefix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changes {
    /// The epoch of the store. After a change of the epoch a reader lists again.
    #[serde(default)]
    pub epoch: Epoch,
    /// The revision up to which they are complete: the next watch continues here.
    pub revision: Revision,
    /// The changes, oldest first. Empty after the timeout.
    pub changes: Vec<Change>,
}

/// Why a call failed.
#[derive(Debug, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum StoreError {
    /// The key is in another state than expected.
    #[error("key `{key}` has changed: expected {expected:?}, found {found:?}")]
    Conflict {
        /// The key.
        key: String,
        /// The state that the writer expected.
        expected: Expected,
        /// The present revision; `None` if the key does not exist.
        found: Option<Revision>,
    },
    /// The changes after this revision are no longer known. List, and watch from there.
    #[error("the changes after revision {} are no longer known; the oldest known is {}", .after.0, .oldest.0)]
    Compacted {
        /// The revision that was asked for.
        after: Revision,
        /// The oldest revision that can be watched from.
        oldest: Revision,
    },
    /// The lease has ended, or never existed.
    #[error("lease {} has ended", .0.0)]
    NoLease(LeaseId),
    /// The key or the value exceeds its limit.
    #[error("{what} has {bytes} bytes, expected 1 to {most}")]
    Size {
        /// The key or the value.
        what: Part,
        /// Its length.
        bytes: usize,
        /// The limit.
        most: usize,
    },
    /// The caller may not do this.
    #[error("{0}")]
    Refused(String),
    /// The store cannot be read or written.
    #[error("the store cannot be used: {0}")]
    Unavailable(String),
}

/// A part of an entry with a limited length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// The key.
    Key,
    /// The value.
    Value,
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Key => "the key",
            Self::Value => "the value",
        })
    }
}

/// The store. All methods may be called from any thread.
pub trait Store: Send + Sync {
    /// The entry of a key, if there is one.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    fn get(&self, key: &str) -> Result<Option<Entry>, StoreError>;

    /// Sets a key, or removes it (`None`), if it is in the expected state. Returns the revision of
    /// the change, which is durable then.
    ///
    /// # Errors
    /// [`StoreError::Conflict`], also for the removal of an absent key; [`StoreError::NoLease`],
    /// [`StoreError::Size`] and [`StoreError::Unavailable`]. Nothing has changed then.
    fn compare_and_set(
        &self,
        key: &str,
        expected: Expected,
        value: Option<&[u8]>,
        lease: Option<LeaseId>,
    ) -> Result<Revision, StoreError>;

    /// The entries whose keys begin with `prefix`.
    ///
    /// # Errors
    /// [`StoreError::Unavailable`].
    fn list(&self, prefix: &str) -> Result<Listing, StoreError>;

    /// The changes after a revision of keys that begin with `prefix`. Waits for one, at most for
    /// `timeout`.
    ///
    /// # Errors
    /// [`StoreError::Compacted`] and [`StoreError::Unavailable`].
    fn watch(
        &self,
        prefix: &str,
        after: Revision,
        timeout: Duration,
    ) -> Result<Changes, StoreError>;

    /// Begins a lease, or renews one. It ends when it is not renewed for `lifetime`; zero ends it
    /// at once. Its keys are removed then.
    ///
    /// # Errors
    /// [`StoreError::NoLease`] and [`StoreError::Unavailable`].
    fn lease(&self, lease: Option<LeaseId>, lifetime: Duration) -> Result<LeaseId, StoreError>;
}

/// The clock of a store.
pub trait Clock: Send + Sync {
    /// The present time.
    fn now(&self) -> Instant;
}

/// The clock of the system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        Instant::now()
    }
}
