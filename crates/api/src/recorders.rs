//! The recordings that a server has started.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde::Serialize;
use serde_json::Value;
use tokio::sync::watch;
use utoipa::ToSchema;

use crate::child::Handle;

/// Recordings that have ended and are still listed.
const MAX_ENDED: usize = 64;

/// A recording.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct Recording {
    /// Its process.
    pub recording: u32,
    pub dataflow: String,
    /// The requested topics; empty for all.
    pub topics: Vec<String>,
    /// The requested file.
    pub file: String,
    /// Whether it still records.
    pub is_running: bool,
    /// The JSON of `nervure record`, when it has ended: `files`, `samples`, `bytes`, `topics`, `reason`,
    /// or an error.
    #[schema(value_type = Option<Object>)]
    pub summary: Option<Value>,
}

/// The recordings that this server has started, by their processes.
#[derive(Debug, Default)]
pub struct Recordings(Mutex<BTreeMap<u32, Entry>>);

#[derive(Debug)]
pub struct Entry {
    pub recording: Recording,
    pub handle: Handle,
    /// Its summary, once it has ended.
    pub end: watch::Receiver<Option<Value>>,
}

impl Entry {
    pub fn shown(&self) -> Recording {
        let summary = self.end.borrow().clone();
        Recording {
            is_running: summary.is_none(),
            summary,
            ..self.recording.clone()
        }
    }

    pub fn is_running(&self) -> bool {
        self.end.borrow().is_none()
    }
}

impl Recordings {
    pub fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn running(&self) -> usize {
        self.lock()
            .values()
            .filter(|entry| entry.is_running())
            .count()
    }

    pub fn insert(&self, entry: Entry) {
        let mut entries = self.lock();
        let ended = entries.iter().filter(|(_, entry)| !entry.is_running());
        let ended: Vec<u32> = ended.map(|(id, _)| *id).collect();
        if ended.len() >= MAX_ENDED {
            entries.remove(&ended[0]);
        }
        entries.insert(entry.recording.recording, entry);
    }
}
