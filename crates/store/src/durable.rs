//! The binding to redb: an embedded database in one file, with a transaction for each step.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redb::{Database, ReadableTable, TableDefinition};

use crate::engine::{Content, Step};
use crate::shared::{Journal, Local};
use crate::{Entry, LeaseId, Revision, StoreError, SystemClock};

/// The cache of the database, which is read only when it is opened: later reads are answered from memory.
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
pub enum OpenError {
    /// Another process has it open.
    #[error("the store {} is open in another process", path.display())]
    InUse {
        /// Path of its file.
        path: PathBuf,
    },
    /// Its file holds no store, or a part of one.
    #[error("the store {} is damaged: {reason}", path.display())]
    Damaged {
        /// Path of its file.
        path: PathBuf,
        /// The damage found.
        reason: String,
    },
    /// Its file cannot be read or written.
    #[error("the store {} cannot be opened: {error}", path.display())]
    File {
        /// Path of its file.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
}

/// Opens the store in a file, which is made if it does not exist, readable by its owner alone. Only
/// one process can have it open. After a write that fails, as on a full disk, it is opened again.
///
/// # Errors
/// [`OpenError`].
pub fn open(path: &Path) -> Result<Local, OpenError> {
    let (database, content) = open_file(path, true)?;
    let journal = Redb {
        path: path.to_owned(),
        database: Some(database),
    };
    Ok(Local::new(content, journal, SystemClock))
}

fn open_file(path: &Path, is_new: bool) -> Result<(Database, Content), OpenError> {
    let path = path.to_owned();
    let file = match private_file(&path, is_new) {
        Ok(file) => file,
        Err(error) => return Err(OpenError::File { path, error }),
    };
    // The database panics on a file that was cut.
    let opened = quietly(move || {
        let database = redb::Builder::new()
            .set_cache_size(CACHE_BYTES)
            .create_file(file)
            .map_err(Failure::from)?;
        let content = load(&database)?;
        Ok::<_, Failure>((database, content))
    });
    match opened {
        Ok(Ok(opened)) => Ok(opened),
        Ok(Err(Failure::InUse)) => Err(OpenError::InUse { path }),
        Ok(Err(Failure::File(error))) => Err(OpenError::File { path, error }),
        Ok(Err(Failure::Damaged(reason))) | Err(reason) => Err(OpenError::Damaged { path, reason }),
    }
}

/// Runs work that may panic. The error is the message of the panic, which is not printed.
fn quietly<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Mutex<()> = Mutex::new(());
    let _alone = HOOK.lock().unwrap_or_else(PoisonError::into_inner);
    let thread = std::thread::current().id();
    let hook = Arc::new(std::panic::take_hook());
    let others = Arc::clone(&hook);
    std::panic::set_hook(Box::new(move |info| {
        if std::thread::current().id() != thread {
            others(info);
        }
    }));
    let done = catch_unwind(AssertUnwindSafe(work));
    drop(std::panic::take_hook());
    if let Ok(hook) = Arc::try_unwrap(hook) {
        std::panic::set_hook(hook);
    }
    done.map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        text.unwrap_or("its content contradicts itself").to_owned()
    })
}

fn private_file(path: &Path, is_new: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(is_new)
        .truncate(false)
        .mode(0o600);
    options.open(path)
}

struct Redb {
    path: PathBuf,
    /// `None` after it could not be opened again.
    database: Option<Database>,
}

impl Redb {
    /// Closes the database. It tidies up then, and panics at that if the file is damaged; all that was written
    /// is on the disk by then.
    fn close(&mut self) {
        let database = self.database.take();
        // A thread that panics can catch no other panic.
        if !std::thread::panicking() {
            let _ = quietly(move || drop(database));
        }
    }
}

impl Drop for Redb {
    fn drop(&mut self) {
        self.close();
    }
}

impl Journal for Redb {
    fn write(&mut self, step: &Step) -> Result<(), StoreError> {
        let database = self.database.as_ref();
        let database = database.ok_or_else(|| StoreError::Unavailable("it is not open".to_owned()));
        write(database?, step).map_err(|error| StoreError::Unavailable(error.to_string()))
    }

    /// The database refuses everything after an error of the disk, until it is opened again.
    fn recover(&mut self) -> Result<Option<Content>, StoreError> {
        // The old handle has a lock on the file.
        self.close();
        let opened = open_file(&self.path, false);
        let (database, content) =
            opened.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        self.database = Some(database);
        Ok(Some(content))
    }
}

/// Why a database cannot be read or written.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("it is open in another process")]
    InUse,
    #[error(transparent)]
    File(io::Error),
    #[error("{0}")]
    Damaged(String),
}

impl<E: Into<redb::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        match error.into() {
            redb::Error::DatabaseAlreadyOpen => Self::InUse,
            // Damage is a file that was cut, and one that does not begin as a database does.
            redb::Error::Io(error)
                if !matches!(
                    error.kind(),
                    io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData
                ) =>
            {
                Self::File(error)
            }
            error => Self::Damaged(error.to_string()),
        }
    }
}

fn write(database: &Database, step: &Step) -> Result<(), Failure> {
    let transaction = database.begin_write()?;
    {
        let mut entries = transaction.open_table(ENTRIES)?;
        let mut leases = transaction.open_table(LEASES)?;
        let mut numbers = transaction.open_table(NUMBERS)?;
        for change in &step.changes {
            match &change.entry {
                Some(entry) => entries.insert(change.key.as_str(), json(entry).as_slice())?,
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

fn json(entry: &Entry) -> Vec<u8> {
    serde_json::to_vec(entry).expect("an entry can be written as JSON")
}

fn load(database: &Database) -> Result<Content, Failure> {
    if database.begin_read()?.list_tables()?.next().is_none() {
        // A new file: makes its tables. Others are not written, so that one on a full disk can be read.
        write(database, &Step::default())?;
    }
    let transaction = database.begin_read()?;
    let mut content = Content::default();
    for item in transaction.open_table(ENTRIES)?.iter()? {
        let (key, value) = item?;
        let entry: Entry = serde_json::from_slice(value.value()).map_err(|error| {
            Failure::Damaged(format!("the entry of `{}`: {error}", key.value()))
        })?;
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
