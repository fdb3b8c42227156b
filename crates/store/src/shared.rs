//! A store of this process: the engine behind a lock, and the journal that makes its steps durable.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::engine::{Content, Engine, Step};
use crate::{
    Changes, Clock, Entry, Expected, LeaseId, Listing, Revision, Store, StoreError, SystemClock,
};

/// Makes steps durable.
pub(crate) trait Journal: Send {
    /// Returns when the step is on disk as a whole. After an error it may be there or not, and nothing is
    /// written before [`Journal::recover`].
    fn write(&mut self, step: &Step) -> Result<(), StoreError>;

    /// Makes the next write possible. Returns the content on disk; `None` if it certainly lacks the failed
    /// step.
    fn recover(&mut self) -> Result<Option<Content>, StoreError> {
        Ok(None)
    }
}

/// The journal of a store that ends with its process.
struct Forgetful;

impl Journal for Forgetful {
    fn write(&mut self, _: &Step) -> Result<(), StoreError> {
        Ok(())
    }
}

/// A disk that may refuse to write.
struct Disk<F>(F);

impl<F: FnMut() -> Result<(), StoreError> + Send> Journal for Disk<F> {
    fn write(&mut self, _: &Step) -> Result<(), StoreError> {
        self.0()
    }
}

/// Pause before a failed write of a lease's end is repeated, and before an unusable disk is tried again.
const EXPIRY_PAUSE: Duration = Duration::from_millis(500);

/// A store in this process; clones are the same store.
#[derive(Clone)]
pub struct Local(Arc<Inner>);

/// The content of a store at one time.
#[derive(Clone, Debug)]
pub struct Backup(Content);

struct Inner {
    state: Mutex<State>,
    changed: Condvar,
    clock: Box<dyn Clock>,
}

struct State {
    engine: Engine,
    journal: Box<dyn Journal>,
    /// After a write that has failed: when the journal is to recover, and why it has failed.
    broken: Option<(Instant, String)>,
}

impl std::fmt::Debug for Local {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Local").finish_non_exhaustive()
    }
}

/// An empty store in memory, for tests.
pub fn memory() -> Local {
    memory_at(SystemClock)
}

/// As [`memory`], with a clock.
pub fn memory_at(clock: impl Clock + 'static) -> Local {
    Local::new(Content::default(), Forgetful, clock)
}

/// As [`memory_at`], on a disk that may be full: `write` is called before each change.
pub fn memory_on(
    write: impl FnMut() -> Result<(), StoreError> + Send + 'static,
    clock: impl Clock + 'static,
) -> Local {
    Local::new(Content::default(), Disk(write), clock)
}

impl Local {
    /// Its content, to go back to: for tests.
    pub fn backup(&self) -> Backup {
        Backup(self.lock().engine.content())
    }

    /// Goes on with this content, in a new epoch and without a history, as a store that is opened: for tests.
    pub fn reopen(&self, Backup(content): Backup) {
        self.lock().engine = Engine::new(content, self.0.clock.now());
    }

    pub(crate) fn new(
        content: Content,
        journal: impl Journal + 'static,
        clock: impl Clock + 'static,
    ) -> Self {
        let state = State {
            engine: Engine::new(content, clock.now()),
            journal: Box::new(journal),
            broken: None,
        };
        Self(Arc::new(Inner {
            state: Mutex::new(state),
            changed: Condvar::new(),
            clock: Box::new(clock),
        }))
    }

    /// The state, without leases that are over. A lease whose end cannot be written is not over yet, so
    /// that a store on a full disk can be read.
    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic between two statements leaves no step half applied that another thread could use.
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.0.clock.now();
        if state.broken.as_ref().is_some_and(|(at, _)| *at <= now) {
            self.recover(&mut state, now);
        }
        if let Some(step) = state.engine.prepare_expiry(now) {
            let _ = self.commit(&mut state, step);
        }
        state
    }

    fn recover(&self, state: &mut State, now: Instant) {
        match state.journal.recover() {
            Err(error) => state.broken = Some((now + EXPIRY_PAUSE, reason(error))),
            Ok(content) => {
                state.broken = None;
                // The step that has failed is on disk all the same: watches list again.
                if let Some(content) = content.filter(|content| !state.engine.has(content)) {
                    state.engine = Engine::new(content, now);
                    self.0.changed.notify_all();
                }
            }
        }
    }

    fn commit(&self, state: &mut State, step: Step) -> Result<(), StoreError> {
        if step != Step::default() {
            if let Some((_, why)) = &state.broken {
                return Err(StoreError::Unavailable(why.clone()));
            }
            if let Err(error) = state.journal.write(&step) {
                let why = reason(error);
                state.broken = Some((self.0.clock.now(), why.clone()));
                return Err(StoreError::Unavailable(why));
            }
        }
        state.engine.apply(step);
        self.0.changed.notify_all();
        Ok(())
    }
}

fn reason(error: StoreError) -> String {
    match error {
        StoreError::Unavailable(why) => why,
        error => error.to_string(),
    }
}

impl Store for Local {
    fn get(&self, key: &str) -> Result<Option<Entry>, StoreError> {
        Ok(self.lock().engine.get(key))
    }

    fn compare_and_set(
        &self,
        key: &str,
        expected: Expected,
        value: Option<&[u8]>,
        lease: Option<LeaseId>,
    ) -> Result<Revision, StoreError> {
        let mut state = self.lock();
        let step = state.engine.prepare_set(key, expected, value, lease)?;
        let revision = step.changes[0].revision;
        self.commit(&mut state, step)?;
        Ok(revision)
    }

    fn list(&self, prefix: &str) -> Result<Listing, StoreError> {
        Ok(self.lock().engine.list(prefix))
    }

    fn watch(
        &self,
        prefix: &str,
        after: Revision,
        timeout: Duration,
    ) -> Result<Changes, StoreError> {
        let deadline = Instant::now() + timeout;
        loop {
            let state = self.lock();
            let changes = state.engine.changes(prefix, after)?;
            let left = deadline.saturating_duration_since(Instant::now());
            if !changes.changes.is_empty() || left.is_zero() {
                return Ok(changes);
            }
            // A lease that ends is a change as well.
            let now = self.0.clock.now();
            let expiry = state.engine.next_expiry().map(|at| match at > now {
                true => at - now,
                false => EXPIRY_PAUSE,
            });
            let wait = expiry.map_or(left, |expiry| left.min(expiry));
            drop(self.0.changed.wait_timeout(state, wait));
        }
    }

    fn lease(&self, lease: Option<LeaseId>, lifetime: Duration) -> Result<LeaseId, StoreError> {
        let mut state = self.lock();
        let (id, step) = state.engine.prepare_lease(lease, lifetime)?;
        self.commit(&mut state, step)?;
        if !lifetime.is_zero() {
            state.engine.renew(id, self.0.clock.now() + lifetime);
        }
        Ok(id)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[derive(Clone)]
    struct Set(Arc<Mutex<Instant>>);

    impl Clock for Set {
        fn now(&self) -> Instant {
            *self.0.lock().unwrap()
        }
    }

    #[test]
    fn a_store_on_a_full_disk_can_be_read_and_ends_its_leases_later() {
        let is_full = Arc::new(AtomicBool::new(false));
        let of_disk = Arc::clone(&is_full);
        let clock = Set(Arc::new(Mutex::new(Instant::now())));
        let store = memory_on(
            move || match of_disk.load(Ordering::Relaxed) {
                true => Err(StoreError::Unavailable("no space left".to_owned())),
                false => Ok(()),
            },
            clock.clone(),
        );
        let life = Duration::from_secs(1);
        let lease = store.lease(None, life).unwrap();
        let set = |key, lease| store.compare_and_set(key, Expected::Absent, Some(b"1"), lease);
        set("alive/robot", Some(lease)).unwrap();
        let before = set("desired/robot", None).unwrap();

        is_full.store(true, Ordering::Relaxed);
        *clock.0.lock().unwrap() += 2 * life;
        assert!(store.get("desired/robot").unwrap().is_some());
        assert_eq!(store.list("").unwrap().entries.len(), 2);
        let changes = store.watch("", before, Duration::ZERO).unwrap();
        assert_eq!((changes.revision, changes.changes.len()), (before, 0));
        assert!(set("desired/other", None).is_err());

        is_full.store(false, Ordering::Relaxed);
        assert!(store.get("alive/robot").unwrap().is_none());
        let changes = store.watch("", before, Duration::ZERO).unwrap();
        assert_eq!(changes.changes.len(), 1);
    }
}
