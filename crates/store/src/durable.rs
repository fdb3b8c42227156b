//! The binding to redb: an embedded database in one file, with a transaction for each step.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use redb::{Database, ReadableTable, TableDefinition};

use crate::engine::{Content, Step};
use crate::shared::{Journal, Local};
use crate::{Entry, LeaseId, Revision, StoreError, SystemClock};

/// The cache of the database. It writes, and reads only when it is opened: what is read later is in memory.
const CACHE_BYTES: usize = 256 << 10;

/// Entries by key, as JSON.
const ENTRIES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("entries");
/// Lifetimes of leases, in nanoseconds.
const LEASES: TableDefinition<'_, u64, u64> = TableDefinition::new("leases");
/// Numbers by name.
const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");
const REVISION: &str = "revision";
const LAST_LEASE: &str = "last_lease";

/// Why a store cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("the store {} cannot be opened: {reason}", path.display())]
pub struct OpenError {
    /// Path of its file.
    pub path: PathBuf,
    /// The reason.
    pub reason: String,
}

/// Opens the store in a file, which is made if it does not exist, readable by its owner alone. Only
/// one process can have it open.
///
/// # Errors
/// [`OpenError`] if the file cannot be used, another process has it open, or it is damaged.
pub fn open(path: &Path) -> Result<Local, OpenError> {
    let failed = |reason: String| OpenError {
        path: path.to_owned(),
        reason,
    };
    let file = private_file(path).map_err(|error| failed(error.to_string()))?;
    let database = redb::Builder::new()
        .set_cache_size(CACHE_BYTES)
        .create_file(file)
        .map_err(|error| match error {
            redb::DatabaseError::DatabaseAlreadyOpen => {
                failed("another process has it open".to_owned())
            }
            error => failed(error.to_string()),
        })?;
    let content = load(&database).map_err(|error| failed(error.to_string()))?;
    Ok(Local::new(content, Redb(database), SystemClock))
}

fn private_file(path: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600);
    options.open(path)
}

struct Redb(Database);

impl Journal for Redb {
    fn write(&mut self, step: &Step) -> Result<(), StoreError> {
        write(&self.0, step).map_err(|error| StoreError::Unavailable(error.to_string()))
    }
}

fn write(database: &Database, step: &Step) -> Result<(), Box<dyn std::error::Error>> {
    let transaction = database.begin_write()?;
    {
        let mut entries = transaction.open_table(ENTRIES)?;
        let mut leases = transaction.open_table(LEASES)?;
        let mut numbers = transaction.open_table(NUMBERS)?;
        for change in &step.changes {
            match &change.entry {
                Some(entry) => {
                    entries.insert(change.key.as_str(), serde_json::to_vec(entry)?.as_slice())?
                }
                None => entries.remove(change.key.as_str())?,
            };
            numbers.insert(REVISION, change.revision.0)?;
        }
        for (lease, lifetime) in &step.leases_set {
            let nanos = u64::try_from(lifetime.as_nanos()).unwrap_or(u64::MAX);
            leases.insert(lease.0, nanos)?;
            let last = numbers.get(LAST_LEASE)?.map_or(0, |last| last.value());
            numbers.insert(LAST_LEASE, last.max(lease.0))?;
        }
        for lease in &step.leases_ended {
            leases.remove(lease.0)?;
        }
    }
    // Durable: redb calls fsync before it returns.
    transaction.commit()?;
    Ok(())
}

fn load(database: &Database) -> Result<Content, Box<dyn std::error::Error>> {
    // Makes the tables of a new file.
    write(database, &Step::default())?;
    let transaction = database.begin_read()?;
    let mut content = Content::default();
    for item in transaction.open_table(ENTRIES)?.iter()? {
        let (key, value) = item?;
        let entry: Entry = serde_json::from_slice(value.value())?;
        content.entries.insert(key.value().to_owned(), entry);
    }
    for item in transaction.open_table(LEASES)?.iter()? {
        let (lease, nanos) = item?;
        content
            .leases
            .insert(LeaseId(lease.value()), Duration::from_nanos(nanos.value()));
    }
    let numbers = transaction.open_table(NUMBERS)?;
    content.revision = Revision(numbers.get(REVISION)?.map_or(0, |number| number.value()));
    content.last_lease = numbers.get(LAST_LEASE)?.map_or(0, |number| number.value());
    Ok(content)
}
