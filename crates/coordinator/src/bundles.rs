//! The bundles on disk.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nervure_store::{Store, StoreError};

use crate::DESIRED;

/// How long a bundle stays that nothing refers to: from when it was sent or asked for until the
/// desired state that names it is written.
const UNUSED: Duration = Duration::from_secs(3600);

/// A folder of bundles, each in a file with its digest as its name.
#[derive(Debug)]
pub(crate) struct Bundles {
    folder: PathBuf,
}

impl Bundles {
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Whether there is one. It stays for a while then, although nothing may refer to it yet.
    pub fn has(&self, digest: &str) -> bool {
        let opened = fs::OpenOptions::new().write(true).open(self.path(digest));
        opened.is_ok_and(|file| {
            // Fails on a disk that is full or read-only; what is there counts.
            let _ = file.set_modified(SystemTime::now());
            file.metadata().is_ok_and(|metadata| metadata.is_file())
        })
    }

    pub fn read(&self, digest: &str) -> io::Result<Vec<u8>> {
        fs::read(self.path(digest))
    }

    /// Writes one, as a whole or not at all.
    pub fn write(&self, digest: &str, bytes: &[u8]) -> io::Result<()> {
        let path = self.path(digest);
        let temporary = path.with_extension(format!("{:?}", std::thread::current().id()));
        let created = fs::OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&temporary);
        created
            .and_then(|mut file| file.write_all(bytes))
            .and_then(|()| fs::rename(&temporary, &path))
            .inspect_err(|_| drop(fs::remove_file(&temporary)))
    }

    /// Removes those that no desired state refers to, and what a coordinator that was killed has
    /// left of one. Returns their number.
    pub fn remove_unused(&self, store: &dyn Store, now: SystemTime) -> Result<usize, StoreError> {
        let old = self.older_than(now);
        if old.is_empty() {
            return Ok(0);
        }
        // Read after the files: one that is named meanwhile is seen. Whatever a state is, it has the
        // digest as text.
        let desired = store.list(DESIRED)?.entries;
        let is_named = |digest: &str| {
            let contains = |value: &[u8]| {
                let mut parts = value.windows(digest.len());
                parts.any(|part| part == digest.as_bytes())
            };
            desired.iter().any(|entry| contains(&entry.value))
        };
        // Without those that were asked for meanwhile.
        let old = self.older_than(now);
        let unused = old.iter().filter(|name| !is_named(name));
        Ok(unused
            .filter(|name| fs::remove_file(self.path(name)).is_ok())
            .count())
    }

    /// Names of files that were not written or asked for lately.
    fn older_than(&self, now: SystemTime) -> Vec<String> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let is_old = |entry: &fs::DirEntry| {
            let modified = entry.metadata().and_then(|metadata| metadata.modified());
            modified.is_ok_and(|at| now.duration_since(at).is_ok_and(|age| age >= UNUSED))
        };
        let old = entries.filter(is_old);
        old.filter_map(|entry| entry.file_name().into_string().ok())
            .collect()
    }

    fn path(&self, digest: &str) -> PathBuf {
        Path::join(&self.folder, digest)
    }
}

#[cfg(test)]
mod tests {
    use nervure_store::Expected;

    use super::*;
    use crate::digest;

    #[test]
    fn a_bundle_that_no_machine_is_to_run_is_removed_after_an_hour() {
        let folder = tempfile::tempdir().unwrap();
        let bundles = Bundles::new(folder.path().to_owned());
        let store = nervure_store::memory();
        let (used, unused) = (digest(b"used"), digest(b"unused"));
        bundles.write(&used, b"used").unwrap();
        bundles.write(&unused, b"unused").unwrap();
        fs::write(folder.path().join(format!("{used}.ThreadId(3)")), b"us").unwrap();
        let state = format!(r#"{{"runs":{{"x":{{"bundle":"{used}"}}}}}}"#);
        let key = format!("{DESIRED}robot");
        let state = Some(state.as_bytes());
        store
            .compare_and_set(&key, Expected::Absent, state, None)
            .unwrap();
        let now = SystemTime::now();
        assert_eq!(bundles.remove_unused(&store, now).unwrap(), 0);
        let later = now + UNUSED + Duration::from_secs(1);
        assert_eq!(bundles.remove_unused(&store, later).unwrap(), 2);
        assert!(bundles.has(&used) && !bundles.has(&unused));
        assert_eq!(bundles.read(&used).unwrap(), b"used");
        // A clock that was set back removes nothing.
        let before = now - 2 * UNUSED;
        assert_eq!(bundles.remove_unused(&store, before).unwrap(), 0);
    }
}
