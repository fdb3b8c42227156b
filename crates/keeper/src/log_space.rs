//! The disk space of the logs of all runs: `<root>/<dataflow>/<start>-<pid>/`, a folder for each
//! run.
//!
//! A run holds a lock on its folder (flock(2)), which the kernel releases with the last process of
//! the run. Process ids do not identify runs in containers, where every run may have the same.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::SystemTime,
};

use rustix::{fs::FlockOperation, io::Errno};
use serde::{Deserialize, Serialize};

/// Number of runs of a dataflow whose logs are kept.
const KEPT_RUNS: usize = 20;

/// Highest size in bytes at which a log file is rotated.
const MAX_FILE_BYTES: u64 = 64_000_000;

/// Lowest size in bytes at which a log file is rotated, even where it exceeds the limit.
const MIN_FILE_BYTES: u64 = 64_000;

/// The disk space of the logs of all runs together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLimit {
    /// The folder of all logs.
    pub root: PathBuf,
    /// The limit in bytes. Runs that are active at the same time may exceed it together.
    pub bytes: u64,
}

impl LogLimit {
    /// The size in bytes at which a log file is rotated: the current files of `logs` nodes share
    /// half of the limit.
    pub fn max_file_bytes(&self, logs: usize) -> u64 {
        (self.bytes / 2 / logs.max(1) as u64).clamp(MIN_FILE_BYTES, MAX_FILE_BYTES)
    }

    /// Removes the logs of the oldest runs that have ended: of each dataflow all but the last 20,
    /// and more until the limit is met. If that does not suffice, it removes the oldest rotated
    /// files of the run in `own`.
    ///
    /// # Errors
    /// When a folder cannot be read or removed.
    pub fn enforce(&self, own: &Path) -> io::Result<()> {
        let mut runs = Vec::new();
        for dataflow in folders(&self.root)? {
            let mut of_dataflow: Vec<_> = folders(&dataflow)?
                .into_iter()
                .filter(|path| is_run(path))
                .collect();
            of_dataflow.sort_unstable();
            let old = of_dataflow.len().saturating_sub(KEPT_RUNS);
            for folder in of_dataflow.drain(..old) {
                remove_unless_locked(&folder)?;
            }
            runs.extend(of_dataflow);
        }
        let sizes = runs
            .iter()
            .map(|folder| Ok(files(folder)?.iter().map(|file| file.bytes).sum()));
        let sizes: Vec<u64> = sizes.collect::<io::Result<_>>()?;
        let mut total: u64 = sizes.iter().sum();
        let mut oldest: Vec<_> = runs.iter().zip(&sizes).collect();
        // A run is named after its start time.
        oldest.sort_by_key(|(folder, _)| folder.file_name().map(ToOwned::to_owned));
        for (folder, bytes) in oldest {
            if total <= self.bytes {
                return Ok(());
            }
            if folder != own && remove_unless_locked(folder)? {
                total -= bytes;
            }
        }
        let mut rotated: Vec<_> = files(own)?
            .into_iter()
            .filter(LogPart::is_rotated)
            .collect();
        rotated.sort_by_key(|file| file.modified);
        for file in rotated {
            if total <= self.bytes {
                break;
            }
            ignore_missing(fs::remove_file(&file.path))?;
            total -= file.bytes;
        }
        Ok(())
    }
}

/// Enforces a limit as logs grow.
#[derive(Debug)]
pub struct LogSpace {
    limit: LogLimit,
    own: PathBuf,
    unchecked_bytes: u64,
}

impl LogSpace {
    /// For a run whose logs are in `own`.
    pub fn new(limit: LogLimit, own: &Path) -> Self {
        Self {
            limit,
            own: own.to_owned(),
            unchecked_bytes: 0,
        }
    }

    /// The folder of the run.
    pub fn own(&self) -> &Path {
        &self.own
    }

    /// Counts bytes that were added to the logs, and enforces the limit from time to time.
    ///
    /// # Errors
    /// As [`LogLimit::enforce`].
    pub fn written(&mut self, bytes: u64) -> io::Result<()> {
        const CHECKS_PER_LIMIT: u64 = 32;
        self.unchecked_bytes += bytes;
        if self.unchecked_bytes < self.limit.bytes / CHECKS_PER_LIMIT {
            return Ok(());
        }
        self.unchecked_bytes = 0;
        self.limit.enforce(&self.own)
    }
}

/// Makes a folder for logs, and those above it. Only this user can enter the new ones.
///
/// # Errors
/// If it cannot be made.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Opens a log file at its end, or makes one that only this user can read.
///
/// # Errors
/// If it cannot be opened.
pub fn open_file(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
}

/// A file in the folder of a run until its processes have ended.
const RUNNING_FILE: &str = "running";

/// Marks the run of a folder as active.
///
/// # Errors
/// When the folder cannot be written.
pub fn begin(folder: &Path) -> io::Result<()> {
    open_file(&folder.join(RUNNING_FILE)).map(drop)
}

/// Marks the run of a folder as ended, with all its processes. If that fails, the next run looks
/// for processes of it.
pub fn end(folder: &Path) {
    let _ = fs::remove_file(folder.join(RUNNING_FILE));
}

/// Returns true if a run is marked as active and is not: its keeper and `run` were killed. Marks
/// such runs as ended.
///
/// # Errors
/// When a folder cannot be read.
pub fn take_killed_runs(root: &Path) -> io::Result<bool> {
    let mut found = false;
    for dataflow in folders(root)? {
        for run in folders(&dataflow)?.iter().filter(|path| is_run(path)) {
            if run.join(RUNNING_FILE).exists()
                && rustix::fs::flock(File::open(run)?, FlockOperation::NonBlockingLockExclusive)
                    .is_ok()
            {
                found = true;
                end(run);
            }
        }
    }
    Ok(found)
}

/// Locks the folder of a run. The lock lasts while the returned file, or a copy of it, is open in
/// any process.
///
/// # Errors
/// When it cannot be opened. A file system without locks is not an error: logs are never removed
/// there.
pub fn lock(folder: &Path) -> io::Result<File> {
    let file = File::open(folder)?;
    match rustix::fs::flock(&file, FlockOperation::LockShared) {
        Ok(()) | Err(Errno::NOTSUP | Errno::NOLCK | Errno::NOSYS) => Ok(file),
        Err(error) => Err(error.into()),
    }
}

/// Removes a folder unless its run is active. Returns true if it was removed.
fn remove_unless_locked(folder: &Path) -> io::Result<bool> {
    let file = match File::open(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        other => other?,
    };
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {}
        // Also where the file system has no locks: it may be in use.
        Err(Errno::WOULDBLOCK | Errno::NOTSUP | Errno::NOLCK | Errno::NOSYS) => return Ok(false),
        Err(error) => return Err(error.into()),
    }
    ignore_missing(fs::remove_dir_all(folder))?;
    Ok(true)
}

/// Another run may remove the same logs at the same time.
fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn folders(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    // No symbolic links: a run never creates them.
    let is_folder = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    Ok(entries
        .filter_map(Result::ok)
        .filter(is_folder)
        .map(|entry| entry.path())
        .collect())
}

/// A file in the folder of a run.
struct LogPart {
    path: PathBuf,
    bytes: u64,
    modified: Option<SystemTime>,
}

impl LogPart {
    /// `camera~1.jsonl`
    fn is_rotated(&self) -> bool {
        self.path
            .file_name()
            .and_then(|name| name.to_str())
            .is_some_and(|name| name.contains('~'))
    }
}

fn files(folder: &Path) -> io::Result<Vec<LogPart>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let part = |entry: fs::DirEntry| {
        let metadata = entry.metadata().ok().filter(fs::Metadata::is_file)?;
        Some(LogPart {
            path: entry.path(),
            bytes: metadata.len(),
            modified: metadata.modified().ok(),
        })
    };
    Ok(entries.filter_map(Result::ok).filter_map(part).collect())
}

/// True if a folder has the name of a run: `20260131T235959Z-4711`.
fn is_run(folder: &Path) -> bool {
    let Some((time, pid)) = folder
        .file_name()
        .and_then(|name| name.to_str()?.split_once('-'))
    else {
        return false;
    };
    let is_time = time.len() == 16
        && time.bytes().enumerate().all(|(at, byte)| match at {
            8 => byte == b'T',
            15 => byte == b'Z',
            _ => byte.is_ascii_digit(),
        });
    is_time
        && !pid.is_empty()
        && pid
            .bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run's folder with files of these sizes.
    fn run(root: &Path, dataflow: &str, day: usize, files: &[(&str, usize)]) -> PathBuf {
        let folder = root
            .join(dataflow)
            .join(format!("202601{day:02}T000000Z-1"));
        fs::create_dir_all(&folder).unwrap();
        for (name, bytes) in files {
            fs::write(folder.join(name), vec![b'x'; *bytes]).unwrap();
        }
        folder
    }

    #[test]
    fn only_old_runs_that_are_not_active_are_removed() {
        let root = tempfile::tempdir().unwrap();
        let runs: Vec<_> = (1..=25)
            .map(|day| run(root.path(), "drive", day, &[]))
            .collect();
        let dataflow = root.path().join("drive");
        for name in ["precious", "20260101-5", "20260101T000000Z-x"] {
            fs::create_dir(dataflow.join(name)).unwrap();
        }
        let locked = lock(&runs[0]).unwrap();
        let limit = LogLimit {
            root: root.path().to_owned(),
            bytes: 1000,
        };
        limit.enforce(&runs[24]).unwrap();
        let left = || runs.iter().filter(|folder| folder.exists()).count();
        assert!(runs[0].exists(), "it is in use");
        assert_eq!(left(), KEPT_RUNS + 1);
        drop(locked);
        limit.enforce(&runs[24]).unwrap();
        assert_eq!(left(), KEPT_RUNS);
        assert!(
            ["precious", "20260101-5", "20260101T000000Z-x"]
                .iter()
                .all(|name| dataflow.join(name).exists())
        );
    }

    #[test]
    fn the_oldest_runs_of_all_dataflows_are_removed_first() {
        let root = tempfile::tempdir().unwrap();
        let first = run(root.path(), "arm", 1, &[("a.jsonl", 400)]);
        let second = run(root.path(), "drive", 2, &[("a.jsonl", 400)]);
        let third = run(root.path(), "arm", 3, &[("a.jsonl", 400)]);
        let own = run(
            root.path(),
            "drive",
            4,
            &[("a.jsonl", 100), ("a~1.jsonl", 100)],
        );
        let _lock = lock(&own).unwrap();
        LogLimit {
            root: root.path().to_owned(),
            bytes: 1000,
        }
        .enforce(&own)
        .unwrap();
        assert!(!first.exists() && second.exists() && third.exists());
        let in_use = lock(&second).unwrap();
        LogLimit {
            root: root.path().to_owned(),
            bytes: 550,
        }
        .enforce(&own)
        .unwrap();
        assert!(second.exists() && !third.exists());
        let parts = ["a.jsonl", "a~1.jsonl"].map(|name| own.join(name).exists());
        assert_eq!(
            parts,
            [true, false],
            "only rotated files when all else is in use"
        );
        drop(in_use);
    }

    #[test]
    fn a_run_that_was_killed_is_reported_once() {
        let root = tempfile::tempdir().unwrap();
        let own = run(root.path(), "drive", 1, &[]);
        let take = || take_killed_runs(root.path()).unwrap();
        assert!(!take());
        begin(&own).unwrap();
        let locked = lock(&own).unwrap();
        assert!(!take(), "it is active");
        drop(locked);
        assert!(take());
        assert!(!take());
        begin(&own).unwrap();
        end(&own);
        assert!(!take(), "it has ended in order");
    }

    #[test]
    fn the_limit_holds_while_logs_grow() {
        let root = tempfile::tempdir().unwrap();
        let old = run(root.path(), "drive", 1, &[("a.jsonl", 900)]);
        let own = run(root.path(), "drive", 2, &[("a.jsonl", 200)]);
        let limit = LogLimit {
            root: root.path().to_owned(),
            bytes: 1000,
        };
        let mut space = LogSpace::new(limit, &own);
        space.written(1).unwrap();
        assert!(old.exists(), "not checked after every line");
        space.written(200).unwrap();
        assert!(!old.exists());
    }

    #[test]
    fn the_current_files_of_all_nodes_share_half_of_the_limit() {
        let limit = |bytes| LogLimit {
            root: PathBuf::new(),
            bytes,
        };
        assert_eq!(limit(2_000_000_000).max_file_bytes(4), 64_000_000);
        assert_eq!(limit(100_000_000).max_file_bytes(50), 1_000_000);
        assert_eq!(limit(1).max_file_bytes(50), 64_000);
    }
}
