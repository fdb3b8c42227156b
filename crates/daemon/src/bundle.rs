//! The bundle of a dataflow: the files of its folder in a tar archive, named by its digest.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use ignore::WalkBuilder;
use nervure_coordinator::MAX_BUNDLE_BYTES;

/// Folders that are never part of a bundle: made by tools, for this machine.
const LEFT_OUT: &[&str] = &[
    ".git",
    ".venv",
    "__pycache__",
    "node_modules",
    ".mypy_cache",
    ".pytest_cache",
];

/// A bundle.
#[derive(Clone, Debug)]
pub struct Bundle {
    /// The archive.
    pub bytes: Vec<u8>,
    /// Its digest.
    pub digest: String,
    /// Number of its files.
    pub files: usize,
    /// Symbolic links and special files, which are not part of it.
    pub left_out: Vec<PathBuf>,
}

/// Why a bundle cannot be made or unpacked.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// The folder has too many bytes.
    #[error("the files in {} have more than {most} bytes", folder.display())]
    TooLarge {
        /// The folder.
        folder: PathBuf,
        /// The limit.
        most: usize,
    },
    /// A file cannot be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// Its path.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// The archive has an entry that no bundle has.
    #[error("the bundle has the entry {path:?}, which is no file below its folder")]
    Entry {
        /// Its path.
        path: PathBuf,
    },
    /// The archive is damaged.
    #[error("the bundle is damaged: {0}")]
    Damaged(io::Error),
}

/// Makes the bundle of a folder: its files, without those that `.gitignore`, `.ignore` or
/// `.nervureignore` leave out, and folders that tools make for one machine, such as `.venv`. The
/// same files make the same bundle.
///
/// # Errors
/// [`BundleError`].
pub fn pack(folder: &Path) -> Result<Bundle, BundleError> {
    let mut paths = Vec::new();
    let mut left_out = Vec::new();
    let walk = WalkBuilder::new(folder)
        .hidden(false)
        .parents(false)
        .require_git(false)
        .git_global(false)
        .git_exclude(false)
        .add_custom_ignore_filename(".nervureignore")
        .filter_entry(|entry| !LEFT_OUT.iter().any(|name| entry.file_name() == *name))
        .build();
    for entry in walk {
        let entry = entry.map_err(|error| BundleError::File {
            path: folder.to_owned(),
            error: io::Error::other(error),
        })?;
        match entry.file_type() {
            Some(kind) if kind.is_file() => paths.push(entry.into_path()),
            Some(kind) if kind.is_dir() => {}
            _ => left_out.push(entry.into_path()),
        }
    }
    paths.sort();
    let mut archive = tar::Builder::new(Vec::new());
    let mut total = 0;
    for path in &paths {
        let failed = |error| BundleError::File {
            path: path.clone(),
            error,
        };
        let metadata = fs::metadata(path).map_err(failed)?;
        total += metadata.len();
        if total > MAX_BUNDLE_BYTES as u64 / 2 {
            return Err(BundleError::TooLarge {
                folder: folder.to_owned(),
                most: MAX_BUNDLE_BYTES / 2,
            });
        }
        let content = fs::read(path).map_err(failed)?;
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(match metadata.permissions().mode() & 0o111 {
            0 => 0o644,
            _ => 0o755,
        });
        let name = path.strip_prefix(folder).unwrap_or(path);
        archive
            .append_data(&mut header, name, content.as_slice())
            .map_err(failed)?;
    }
    let bytes = archive.into_inner().map_err(BundleError::Damaged)?;
    Ok(Bundle {
        digest: nervure_coordinator::digest(&bytes),
        files: paths.len(),
        bytes,
        left_out,
    })
}

/// Unpacks a bundle into a new folder. A forged archive writes nothing outside of it.
///
/// # Errors
/// [`BundleError`].
pub fn unpack(bytes: &[u8], folder: &Path) -> Result<(), BundleError> {
    let file = |path: &Path| {
        let path = path.to_owned();
        move |error| BundleError::File { path, error }
    };
    let make = |path: &Path| {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(path)
            .map_err(file(path))
    };
    make(folder)?;
    for entry in tar::Archive::new(bytes)
        .entries()
        .map_err(BundleError::Damaged)?
    {
        let mut entry = entry.map_err(BundleError::Damaged)?;
        let path = entry.path().map_err(BundleError::Damaged)?.into_owned();
        let is_below = path
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
        let is_file = entry.header().entry_type() == tar::EntryType::Regular;
        if !is_below || !is_file || path.as_os_str().is_empty() {
            return Err(BundleError::Entry { path });
        }
        let is_executable = entry.header().mode().map_err(BundleError::Damaged)? & 0o111 != 0;
        let target = folder.join(&path);
        make(target.parent().unwrap_or(folder))?;
        let mut content = Vec::new();
        entry
            .read_to_end(&mut content)
            .map_err(BundleError::Damaged)?;
        // A second entry with the same path is refused.
        let mode = if is_executable { 0o700 } else { 0o600 };
        let created = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(mode)
            .open(&target);
        created
            .and_then(|mut created| io::Write::write_all(&mut created, &content))
            .map_err(file(&target))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_has_the_files_of_the_folder_and_the_same_digest_each_time() {
        let from = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = from.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("two.yml", "nodes: []");
        write("nodes/camera.py", "print(1)");
        write("run.sh", "#!/bin/sh");
        fs::set_permissions(
            from.path().join("run.sh"),
            fs::Permissions::from_mode(0o755),
        )
        .unwrap();
        write(".gitignore", "*.log\n");
        write("big.log", "left out");
        write(".nervureignore", "data/\n");
        write("data/run.mcap", "left out");
        write(".venv/bin/python", "left out");
        std::os::unix::fs::symlink("/etc/passwd", from.path().join("link")).unwrap();
        let bundle = pack(from.path()).unwrap();
        assert_eq!(bundle.files, 5);
        assert_eq!(bundle.left_out, [from.path().join("link")]);
        assert_eq!(pack(from.path()).unwrap().digest, bundle.digest);

        let to = tempfile::tempdir().unwrap();
        let folder = to.path().join("files");
        unpack(&bundle.bytes, &folder).unwrap();
        assert_eq!(
            fs::read_to_string(folder.join("nodes/camera.py")).unwrap(),
            "print(1)"
        );
        let mode = fs::metadata(folder.join("run.sh"))
            .unwrap()
            .permissions()
            .mode();
        assert_ne!(mode & 0o100, 0);
        assert!(!folder.join("big.log").exists() && !folder.join("link").exists());
    }

    #[test]
    fn an_archive_cannot_write_outside_of_its_folder() {
        let entry = |kind, name: &[u8]| {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(kind);
            header.set_size(0);
            header.set_mode(0o644);
            header.as_mut_bytes()[..name.len()].copy_from_slice(name);
            header.set_cksum();
            let mut bytes = header.as_bytes().to_vec();
            bytes.extend([0; 1024]);
            bytes
        };
        let folder = tempfile::tempdir().unwrap();
        for bytes in [
            entry(tar::EntryType::Regular, b"../outside"),
            entry(tar::EntryType::Regular, b"/tmp/outside"),
            entry(tar::EntryType::Regular, b"a/../../outside"),
            entry(tar::EntryType::Symlink, b"link"),
            entry(tar::EntryType::Link, b"link"),
            entry(tar::EntryType::Fifo, b"fifo"),
        ] {
            let error = unpack(&bytes, &folder.path().join("in")).unwrap_err();
            assert!(matches!(error, BundleError::Entry { .. }), "{error}");
        }
        assert!(unpack(&[7; 2000], &folder.path().join("in")).is_err());
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(left.len(), 1);
    }
}
