//! The bundles on disk.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use nervure_store::{Store, StoreError};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::{DESIRED, Digest};

/// Lifetime of a bundle without a reference: from its upload or last request until the desired state that
/// names it is written.
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

    /// Whether there is one. It then stays for a while, even without a reference.
    pub fn has(&self, digest: &str) -> bool {
        let opened = fs::OpenOptions::new().write(true).open(self.path(digest));
        opened.is_ok_and(|file| {
            // Fails on a full or read-only disk, which has the bundle nevertheless.
            let _ = file.set_modified(SystemTime::now());
            file.metadata().is_ok_and(|metadata| metadata.is_file())
        })
    }

    /// Opens one, to be read in pieces.
    pub fn download(&self, digest: &str) -> io::Result<Download> {
        let file = File::open(self.path(digest))?;
        let length = file.metadata()?.len();
        Ok(Download {
            file: Arc::new(file),
            at: 0,
            length,
            reading: None,
        })
    }

    /// Begins to write one.
    pub fn upload(&self, digest: &str) -> io::Result<Upload> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let path = self.path(digest);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let temporary = path.with_extension(format!("part{number}"));
        let file = fs::OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&temporary)?;
        Ok(Upload {
            file,
            temporary,
            path,
            digest: Digest::default(),
        })
    }

    /// Removes bundles without a reference in a desired state, and partial uploads of a killed coordinator.
    /// Returns their number.
    pub fn remove_unused(&self, store: &dyn Store, now: SystemTime) -> Result<usize, StoreError> {
        let old = self.older_than(now);
        if old.is_empty() {
            return Ok(0);
        }
        // Listed after the files, so that a bundle named meanwhile is found. A state of any form has the
        // digest as text.
        let desired = store.list(DESIRED)?.entries;
        let is_named = |digest: &str| {
            let contains = |value: &[u8]| {
                let mut parts = value.windows(digest.len());
                parts.any(|part| part == digest.as_bytes())
            };
            desired.iter().any(|entry| contains(&entry.value))
        };
        // Without those requested meanwhile.
        let old = self.older_than(now);
        let unused = old.iter().filter(|name| !is_named(name));
        Ok(unused
            .filter(|name| fs::remove_file(self.path(name)).is_ok())
            .count())
    }

    /// Names of files that were not written or requested lately.
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

/// The longest piece of a bundle in memory, in bytes.
const PIECE_BYTES: u64 = 64 << 10;

/// A bundle on its way to a machine. Only one piece is in memory, even for a slow machine.
#[derive(Debug)]
pub(crate) struct Download {
    file: Arc<File>,
    at: u64,
    length: u64,
    reading: Option<JoinHandle<io::Result<Bytes>>>,
}

impl Body for Download {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        let bytes = (this.length - this.at).min(PIECE_BYTES);
        if bytes == 0 {
            return Poll::Ready(None);
        }
        let (file, at) = (&this.file, this.at);
        let reading = this.reading.get_or_insert_with(|| {
            let file = Arc::clone(file);
            spawn_blocking(move || {
                let mut piece = vec![0; usize::try_from(bytes).expect("a piece is small")];
                file.read_exact_at(&mut piece, at)?;
                Ok(piece.into())
            })
        });
        let read = ready!(Pin::new(reading).poll(context));
        this.reading = None;
        this.at += bytes;
        let piece = read.unwrap_or_else(|panicked| Err(io::Error::other(panicked)));
        Poll::Ready(Some(piece.map(Frame::data)))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.length - self.at)
    }
}

/// A bundle on its way from a machine. It is there as a whole or not at all.
pub(crate) struct Upload {
    file: File,
    temporary: PathBuf,
    path: PathBuf,
    digest: Digest,
}

impl Upload {
    pub fn write(&mut self, piece: &[u8]) -> io::Result<()> {
        self.digest.update(piece);
        self.file.write_all(piece)
    }

    /// Completes it. Returns whether it has the digest of its name; otherwise it is removed.
    pub fn finish(mut self) -> io::Result<bool> {
        let digest = std::mem::take(&mut self.digest).finish();
        let is_named = self.path.file_name().is_some_and(|name| *name == *digest);
        if is_named {
            fs::rename(&self.temporary, &self.path)?;
        }
        Ok(is_named)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        // It fails after the file was renamed.
        let _ = fs::remove_file(&self.temporary);
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
        for (digest, content) in [(&used, "used"), (&unused, "unused"), (&used, "other")] {
            let mut upload = bundles.upload(digest).unwrap();
            for piece in content.as_bytes().chunks(3) {
                upload.write(piece).unwrap();
            }
            assert_eq!(upload.finish().unwrap(), content != "other");
        }
        // The partial upload of a machine that is gone is removed.
        bundles.upload(&used).unwrap().write(b"us").unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
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
        assert_eq!(bundles.download(&used).unwrap().length, 4);
        // A clock that was set back removes nothing.
        let before = now - 2 * UNUSED;
        assert_eq!(bundles.remove_unused(&store, before).unwrap(), 0);
    }
}
