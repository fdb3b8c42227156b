//! A store of this process: the engine behind a lock, and what makes its steps durable.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::engine::{Content, Engine, Step};
use crate::{
    Changes, Clock, Entry, Expected, LeaseId, Listing, Revision, Store, StoreError, SystemClock,
};

/// Makes steps durable.
pub(crate) trait Journal: Send {
    /// Returns when the step is on disk as a whole, or an error, and then it is not.
    fn write(&mut self, step: &Step) -> Result<(), StoreError>;
}

/// The journal of a store that ends with its process.
struct Forgetful;

impl Journal for Forgetful {
    fn write(&mut self, _: &Step) -> Result<(), StoreError> {
        Ok(())
    }
}

/// A store in this process; clones are the same store.
#[derive(Clone)]
pub struct Local(Arc<Inner>);

struct Inner {
    state: Mutex<State>,
    changed: Condvar,
    clock: Box<dyn Clock>,
}

struct State {
    engine: Engine,
    journal: Box<dyn Journal>,
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

impl Local {
    pub(crate) fn new(
        content: Content,
        journal: impl Journal + 'static,
        clock: impl Clock + 'static,
    ) -> Self {
        let state = State {
            engine: Engine::new(content, clock.now()),
            journal: Box::new(journal),
        };
        Self(Arc::new(Inner {
            state: Mutex::new(state),
            changed: Condvar::new(),
            clock: Box::new(clock),
        }))
    }

    /// The state, without leases that are over.
    fn lock(&self) -> Result<MutexGuard<'_, State>, StoreError> {
        // A panic between two statements leaves no step half applied that another thread could use.
        let mut state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(step) = state.engine.prepare_expiry(self.0.clock.now()) {
            self.commit(&mut state, step)?;
        }
        Ok(state)
    }

    fn commit(&self, state: &mut State, step: Step) -> Result<(), StoreError> {
        if step != Step::default() {
            state.journal.write(&step)?;
        }
        state.engine.apply(step);
        self.0.changed.notify_all();
        Ok(())
    }
}

impl Store for Local {
    fn get(&self, key: &str) -> Result<Option<Entry>, StoreError> {
        Ok(self.lock()?.engine.get(key))
    }

    fn compare_and_set(
        &self,
        key: &str,
        expected: Expected,
        value: Option<&[u8]>,
        lease: Option<LeaseId>,
    ) -> Result<Revision, StoreError> {
        let mut state = self.lock()?;
        let step = state.engine.prepare_set(key, expected, value, lease)?;
        let revision = step.changes[0].revision;
        self.commit(&mut state, step)?;
        Ok(revision)
    }

    fn list(&self, prefix: &str) -> Result<Listing, StoreError> {
        Ok(self.lock()?.engine.list(prefix))
    }

    fn watch(
        &self,
        prefix: &str,
        after: Revision,
        timeout: Duration,
    ) -> Result<Changes, StoreError> {
        let deadline = Instant::now() + timeout;
        loop {
            let state = self.lock()?;
            let changes = state.engine.changes(prefix, after)?;
            let left = deadline.saturating_duration_since(Instant::now());
            if !changes.changes.is_empty() || left.is_zero() {
                return Ok(changes);
            }
            // A lease that ends is a change as well.
            let now = self.0.clock.now();
            let expiry = state
                .engine
                .next_expiry()
                .map(|at| at.saturating_duration_since(now));
            let wait = expiry.map_or(left, |expiry| left.min(expiry));
            drop(self.0.changed.wait_timeout(state, wait));
        }
    }

    fn lease(&self, lease: Option<LeaseId>, lifetime: Duration) -> Result<LeaseId, StoreError> {
        let mut state = self.lock()?;
        let (id, step) = state.engine.prepare_lease(lease, lifetime)?;
        self.commit(&mut state, step)?;
        if !lifetime.is_zero() {
            state.engine.renew(id, self.0.clock.now() + lifetime);
        }
        Ok(id)
    }
}
