//! One watch of the store for all machines that wait for changes: none holds a thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use nervure_store::{Changes, Revision, Store, StoreError};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

/// Changes that a waiting machine may lag behind; beyond that it asks the store.
const BACKLOG: usize = 256;

/// The longest wait of the one watch before a check whether the coordinator has ended.
const LOOK: Duration = Duration::from_secs(1);

/// Pause before an unusable store is watched again.
const RETRY: Duration = Duration::from_millis(500);

/// Notice to waiting machines: the keys that have changed, or `None` if they are not known.
type Changed = Option<Arc<[String]>>;

/// The watch of the store. It ends with the last handle.
#[derive(Debug)]
pub(crate) struct Watcher {
    changed: broadcast::Sender<Changed>,
    has_ended: AtomicBool,
}

impl Watcher {
    /// Begins to watch, in one thread.
    pub fn start(store: Arc<dyn Store>) -> std::io::Result<Arc<Self>> {
        let watcher = Arc::new(Self {
            changed: broadcast::channel(BACKLOG).0,
            has_ended: AtomicBool::new(false),
        });
        let weak = Arc::downgrade(&watcher);
        std::thread::Builder::new()
            .name("nervure-watch".to_owned())
            .spawn(move || follow(&*store, &weak))?;
        Ok(watcher)
    }

    /// Ends the thread within a second.
    pub fn end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }

    /// As [`Store::watch`], without a thread that waits.
    pub async fn watch(
        &self,
        store: &Arc<dyn Store>,
        prefix: &str,
        after: Revision,
        timeout: Duration,
        is_of_interest: impl Fn(&Changes) -> bool,
    ) -> Result<Changes, StoreError> {
        let deadline = Instant::now() + timeout;
        // Before the first look: a change in between is received.
        let mut changed = self.changed.subscribe();
        let mut after = after;
        loop {
            let (of_store, of_prefix) = (Arc::clone(store), prefix.to_owned());
            let looked =
                spawn_blocking(move || of_store.watch(&of_prefix, after, Duration::ZERO)).await;
            let changes = looked
                .unwrap_or_else(|_| Err(StoreError::Unavailable("the call panicked".to_owned())))?;
            if is_of_interest(&changes) {
                return Ok(changes);
            }
            after = changes.revision;
            loop {
                match tokio::time::timeout_at(deadline, changed.recv()).await {
                    Err(_) => return Ok(changes),
                    Ok(Ok(Some(keys))) if !keys.iter().any(|key| key.starts_with(prefix)) => {}
                    Ok(Ok(_) | Err(RecvError::Lagged(_))) => break,
                    Ok(Err(RecvError::Closed)) => {
                        return Err(StoreError::Unavailable("the coordinator ends".to_owned()));
                    }
                }
            }
        }
    }
}

fn follow(store: &dyn Store, watcher: &Weak<Watcher>) {
    let mut from = None;
    while let Some(handle) = watcher.upgrade() {
        if handle.has_ended.load(Ordering::Relaxed) {
            return;
        }
        let step = match from {
            // An empty part of the store: its revision is that of all.
            None => store.list("\u{0}").map(|listing| (listing.revision, None)),
            Some(after) => store.watch("", after, LOOK).map(|changes| {
                let keys: Arc<[String]> = changes.changes.into_iter().map(|it| it.key).collect();
                (changes.revision, Some(keys))
            }),
        };
        match step {
            Ok((revision, changed)) => {
                from = Some(revision);
                if changed.as_ref().is_none_or(|keys| !keys.is_empty()) {
                    // Fails if no machine waits.
                    let _ = handle.changed.send(changed);
                }
            }
            Err(StoreError::Compacted { .. }) => from = None,
            Err(_) => {
                // Machines that wait get the error of the store themselves.
                let _ = handle.changed.send(None);
                std::thread::sleep(RETRY);
            }
        }
    }
}
