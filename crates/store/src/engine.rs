//! The state machine of a store: no clock, no I/O. A change is prepared, made durable by the
//! caller, and then applied.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use crate::{
    Change, Changes, Entry, Epoch, Expected, LeaseId, Listing, MAX_HISTORY, MAX_HISTORY_BYTES,
    MAX_KEY_BYTES, MAX_VALUE_BYTES, Part, Revision, StoreError,
};

/// The content of a store, apart from its history.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Content {
    pub revision: Revision,
    pub entries: BTreeMap<String, Entry>,
    /// Lifetime of each lease.
    pub leases: BTreeMap<LeaseId, Duration>,
    /// The number of leases so far.
    pub last_lease: u64,
}

/// A step from one content to the next: as a whole, or not at all.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Step {
    pub changes: Vec<Change>,
    pub leases_set: Vec<(LeaseId, Duration)>,
    pub leases_ended: Vec<LeaseId>,
}

#[derive(Debug)]
pub(crate) struct Engine {
    epoch: Epoch,
    content: Content,
    expiries: BTreeMap<LeaseId, Instant>,
    history: VecDeque<Change>,
    history_bytes: usize,
    /// The revision before the oldest change in `history`.
    oldest: Revision,
}

impl Engine {
    /// Leases begin again: they could not be renewed while the store was away.
    pub fn new(content: Content, now: Instant) -> Self {
        let expiries = content
            .leases
            .iter()
            .map(|(lease, life)| (*lease, now + *life));
        Self {
            epoch: Epoch {
                // The random keys of the standard library's hash.
                id: RandomState::new().hash_one(content.revision) | 1,
                begin: content.revision,
            },
            expiries: expiries.collect(),
            oldest: content.revision,
            history: VecDeque::new(),
            history_bytes: 0,
            content,
        }
    }

    pub fn content(&self) -> Content {
        self.content.clone()
    }

    /// Whether this is its content.
    pub fn has(&self, content: &Content) -> bool {
        self.content == *content
    }

    pub fn get(&self, key: &str) -> Option<Entry> {
        self.content.entries.get(key).cloned()
    }

    pub fn list(&self, prefix: &str) -> Listing {
        let entries = self.content.entries.range(prefix.to_owned()..);
        Listing {
            epoch: self.epoch,
            revision: self.content.revision,
            entries: entries
                .take_while(|(key, _)| key.starts_with(prefix))
                .map(|(_, entry)| entry.clone())
                .collect(),
        }
    }

    /// The changes after `after`, which may be none.
    pub fn changes(&self, prefix: &str, after: Revision) -> Result<Changes, StoreError> {
        // A revision of the future is of another store, whose content is unknown here.
        if after < self.oldest || after > self.content.revision {
            let oldest = self.oldest;
            return Err(StoreError::Compacted { after, oldest });
        }
        // By revision: most watches are a few changes behind.
        let first = self.history.partition_point(|it| it.revision <= after);
        let new = self.history.range(first..);
        let is_below = |change: &&Change| change.key.starts_with(prefix);
        Ok(Changes {
            epoch: self.epoch,
            revision: self.content.revision,
            changes: new.filter(is_below).cloned().collect(),
        })
    }

    pub fn prepare_set(
        &self,
        key: &str,
        expected: Expected,
        value: Option<&[u8]>,
        lease: Option<LeaseId>,
    ) -> Result<Step, StoreError> {
        check_sizes(key, value)?;
        let found = self.content.entries.get(key).map(|entry| entry.revision);
        let fits = match expected {
            Expected::Absent => found.is_none() && value.is_some(),
            Expected::Revision(revision) => found == Some(revision),
        };
        if !fits {
            let key = key.to_owned();
            return Err(StoreError::Conflict {
                key,
                expected,
                found,
            });
        }
        if let Some(lease) = lease.filter(|lease| !self.expiries.contains_key(lease)) {
            return Err(StoreError::NoLease(lease));
        }
        let revision = Revision(self.content.revision.0 + 1);
        let entry = value.map(|value| Entry {
            key: key.to_owned(),
            value: value.to_owned(),
            revision,
            lease,
        });
        Ok(Step {
            changes: vec![Change {
                key: key.to_owned(),
                entry,
                revision,
            }],
            ..Step::default()
        })
    }

    /// Begins or renews a lease; a renewal with the same lifetime changes nothing durable.
    pub fn prepare_lease(
        &self,
        lease: Option<LeaseId>,
        lifetime: Duration,
    ) -> Result<(LeaseId, Step), StoreError> {
        let id = lease.unwrap_or(LeaseId(self.content.last_lease + 1));
        if lease.is_some() && !self.expiries.contains_key(&id) {
            return Err(StoreError::NoLease(id));
        }
        if lifetime.is_zero() {
            return Ok((id, self.ending(vec![id])));
        }
        let leases_set = match self.content.leases.get(&id) {
            Some(known) if *known == lifetime => Vec::new(),
            _ => vec![(id, lifetime)],
        };
        Ok((
            id,
            Step {
                leases_set,
                ..Step::default()
            },
        ))
    }

    /// Ends the leases that were not renewed in time.
    pub fn prepare_expiry(&self, now: Instant) -> Option<Step> {
        let over = self.expiries.iter().filter(|(_, at)| **at <= now);
        let over: Vec<LeaseId> = over.map(|(lease, _)| *lease).collect();
        (!over.is_empty()).then(|| self.ending(over))
    }

    pub fn next_expiry(&self) -> Option<Instant> {
        self.expiries.values().min().copied()
    }

    pub fn renew(&mut self, lease: LeaseId, until: Instant) {
        self.expiries.insert(lease, until);
    }

    pub fn apply(&mut self, step: Step) {
        for change in &step.changes {
            self.content.revision = change.revision;
            match &change.entry {
                Some(entry) => self
                    .content
                    .entries
                    .insert(change.key.clone(), entry.clone()),
                None => self.content.entries.remove(&change.key),
            };
        }
        for (lease, lifetime) in step.leases_set {
            self.content.leases.insert(lease, lifetime);
            self.content.last_lease = self.content.last_lease.max(lease.0);
        }
        for lease in step.leases_ended {
            self.content.leases.remove(&lease);
            self.expiries.remove(&lease);
        }
        self.history_bytes += step.changes.iter().map(bytes_of).sum::<usize>();
        self.history.extend(step.changes);
        while self.history.len() > MAX_HISTORY || self.history_bytes > MAX_HISTORY_BYTES {
            let Some(change) = self.history.pop_front() else {
                return;
            };
            self.history_bytes -= bytes_of(&change);
            self.oldest = change.revision;
        }
    }

    fn ending(&self, leases: Vec<LeaseId>) -> Step {
        let mut revision = self.content.revision;
        let ends = |entry: &&Entry| entry.lease.is_some_and(|lease| leases.contains(&lease));
        let changes = self.content.entries.values().filter(ends).map(|entry| {
            revision.0 += 1;
            Change {
                key: entry.key.clone(),
                entry: None,
                revision,
            }
        });
        Step {
            changes: changes.collect(),
            leases_set: Vec::new(),
            leases_ended: leases.clone(),
        }
    }
}

/// Bytes that a change keeps in memory, without its fixed part.
fn bytes_of(change: &Change) -> usize {
    let entry = change.entry.as_ref();
    change.key.len() + entry.map_or(0, |entry| entry.key.len() + entry.value.len())
}

/// Checks the lengths of a key and its value.
pub(crate) fn check_sizes(key: &str, value: Option<&[u8]>) -> Result<(), StoreError> {
    let value_bytes = value.map_or(0, <[u8]>::len);
    let (what, bytes, most) = match key.len() {
        1..=MAX_KEY_BYTES if value_bytes <= MAX_VALUE_BYTES => return Ok(()),
        1..=MAX_KEY_BYTES => (Part::Value, value_bytes, MAX_VALUE_BYTES),
        bytes => (Part::Key, bytes, MAX_KEY_BYTES),
    };
    Err(StoreError::Size { what, bytes, most })
}
