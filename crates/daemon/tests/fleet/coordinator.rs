//! The coordinator: the store as it is, on a disk that may be full or slow, and calls that wait.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nervure_coordinator::Role;
use nervure_coordinator::access::{self, Method};
use nervure_daemon::lease::Grants;
use nervure_store::{Backup, Clock, Local, Revision, Store, StoreError};

use crate::client::{Answer, Call, Thread};

#[derive(Clone)]
pub struct Virtual(pub Arc<Mutex<Instant>>);

impl Clock for Virtual {
    fn now(&self) -> Instant {
        *self.0.lock().unwrap()
    }
}

/// A call of a machine, or of the operator.
#[derive(Clone, Debug)]
pub struct Caller {
    /// `None` for the operator's command.
    pub machine: Option<usize>,
    pub name: String,
    pub role: Role,
    /// The process of that machine.
    pub process: u32,
    pub thread: Thread,
    pub number: u64,
}

impl Caller {
    fn may(&self, method: Method, key: &str) -> bool {
        access::check(&self.name, self.role, method, key).is_ok()
    }
}

/// An answer, and when it is sent.
pub struct Reply {
    pub to: Caller,
    pub answer: Answer,
    pub at: Duration,
}

struct Waiting {
    caller: Caller,
    prefix: String,
    after: Revision,
}

pub struct Coordinator {
    pub store: Local,
    pub is_up: bool,
    pub grants: Grants,
    pub is_disk_full: Arc<Mutex<bool>>,
    /// Duration of a write.
    pub write: Duration,
    pub busy_until: Duration,
    /// By the key or the prefix that they wait for.
    waiting: BTreeMap<String, BTreeMap<u64, Waiting>>,
    next: u64,
}

impl Coordinator {
    pub fn new(clock: Virtual) -> Self {
        let is_disk_full = Arc::new(Mutex::new(false));
        let of_store = Arc::clone(&is_disk_full);
        let write = move || match *of_store.lock().unwrap() {
            true => Err(StoreError::Unavailable("no space left".to_owned())),
            false => Ok(()),
        };
        Self {
            store: nervure_store::memory_on(write, clock),
            is_up: true,
            grants: Grants::default(),
            is_disk_full,
            write: Duration::from_millis(2),
            busy_until: Duration::ZERO,
            waiting: BTreeMap::new(),
            next: 0,
        }
    }

    /// Handles a call. Returns the answers that are due, and the number of a watch that now waits.
    pub fn call(
        &mut self,
        caller: Caller,
        call: Call,
        now: Duration,
    ) -> (Vec<Reply>, Option<(String, u64)>) {
        match call {
            Call::List(prefix) => {
                if !caller.may(Method::List, &prefix) {
                    return (reply(caller, Answer::Refused, now), None);
                }
                let listing = self.store.list(&prefix).unwrap();
                let mut entries = listing.entries;
                entries.retain(|entry| caller.may(Method::Get, &entry.key));
                (
                    reply(
                        caller,
                        Answer::Listing((listing.epoch, listing.revision), entries),
                        now,
                    ),
                    None,
                )
            }
            Call::Watch(prefix, after) => match self.changes(&caller, &prefix, after) {
                Some(answer) => (reply(caller, answer, now), None),
                None => {
                    self.next += 1;
                    let place = prefix.clone();
                    let waiting = Waiting {
                        caller,
                        prefix,
                        after,
                    };
                    let of_place = self.waiting.entry(place.clone()).or_default();
                    of_place.insert(self.next, waiting);
                    (Vec::new(), Some((place, self.next)))
                }
            },
            Call::Get(key) => {
                assert!(caller.may(Method::Get, &key), "{key}");
                let entry = self.store.get(&key).unwrap();
                (reply(caller, Answer::Entry(entry), now), None)
            }
            Call::Set(key, expected, value) => {
                assert!(caller.may(Method::Set, &key), "{key}");
                let done = self
                    .store
                    .compare_and_set(&key, expected, Some(&value), None);
                let answer = match done {
                    Ok(revision) => Answer::Set(revision),
                    Err(StoreError::Conflict { .. }) => Answer::Conflict,
                    Err(_) => return (reply(caller, Answer::Unavailable, now), None),
                };
                // The store is locked while it writes.
                self.busy_until = now + self.write;
                let mut replies = reply(caller, answer, self.busy_until);
                replies.extend(self.notify(&key, self.busy_until));
                (replies, None)
            }
        }
    }

    /// The watches that a change of a key ends.
    pub fn notify(&mut self, key: &str, at: Duration) -> Vec<Reply> {
        let folder = key.split_inclusive('/').next().unwrap_or_default();
        let mut replies = Vec::new();
        for place in [key, folder] {
            for (number, waiting) in self.waiting.remove(place).unwrap_or_default() {
                match self.changes(&waiting.caller, &waiting.prefix, waiting.after) {
                    Some(answer) => replies.extend(reply(waiting.caller, answer, at)),
                    None => {
                        let of_place = self.waiting.entry(place.to_owned()).or_default();
                        of_place.insert(number, waiting);
                    }
                }
            }
        }
        replies
    }

    /// Ends a watch that has waited for its longest time.
    pub fn end_watch(&mut self, place: &str, number: u64, now: Duration) -> Vec<Reply> {
        let waiting = self
            .waiting
            .get_mut(place)
            .and_then(|it| it.remove(&number));
        let Some(waiting) = waiting else {
            return Vec::new();
        };
        let changes = self
            .store
            .watch(&waiting.prefix, waiting.after, Duration::ZERO);
        let answer = changes.map_or(Answer::Compacted, |changes| {
            Answer::Changes((changes.epoch, changes.revision), Vec::new())
        });
        reply(waiting.caller, answer, now)
    }

    /// Ends the process. Returns the callers that wait, whose connections end.
    pub fn stop(&mut self) -> Vec<Caller> {
        self.is_up = false;
        let waiting = std::mem::take(&mut self.waiting).into_values();
        waiting
            .flat_map(BTreeMap::into_values)
            .map(|it| it.caller)
            .collect()
    }

    pub fn start(&mut self, now: Duration) {
        self.start_with(self.store.backup(), now);
    }

    /// Starts with a store that comes back from a backup.
    pub fn start_with(&mut self, content: Backup, now: Duration) {
        self.is_up = true;
        self.busy_until = now;
        self.store.reopen(content);
    }

    /// The changes that a watch reports now; `None` if it waits.
    fn changes(&self, caller: &Caller, prefix: &str, after: Revision) -> Option<Answer> {
        match self.store.watch(prefix, after, Duration::ZERO) {
            Ok(mut changes) => {
                changes
                    .changes
                    .retain(|change| caller.may(Method::Get, &change.key));
                let is_empty = changes.changes.is_empty();
                let state = (changes.epoch, changes.revision);
                (!is_empty).then_some(Answer::Changes(state, changes.changes))
            }
            Err(StoreError::Compacted { .. }) => Some(Answer::Compacted),
            Err(_) => Some(Answer::Unavailable),
        }
    }
}

fn reply(to: Caller, answer: Answer, at: Duration) -> Vec<Reply> {
    vec![Reply { to, answer, at }]
}
