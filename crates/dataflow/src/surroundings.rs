//! The host of a dataflow file: its files, commands and environment variables.

use std::path::Path;

#[cfg(doc)]
use crate::source::MAX_FILE_BYTES;

/// The parts of a host that a dataflow file refers to.
///
/// [`Host`](crate::Host) is the host of this process; tests and editors can provide another.
pub trait Surroundings {
    /// The value of an environment variable.
    fn variable(&self, name: &str) -> Option<String>;
    /// The text that a command line gives for an argument of the file.
    fn argument(&self, name: &str) -> Option<String>;
    /// The kind of the entry at `path`.
    fn entry(&self, path: &Path) -> Entry;
    /// The names of the entries of `folder`, for "did you mean"; empty if it cannot be read.
    fn names_in(&self, folder: &Path) -> Vec<String>;
    /// Whether `name`, without a slash, is a command on the PATH.
    fn has_command(&self, name: &str) -> bool;
    /// The content of the file at `path`, cut one byte past [`MAX_FILE_BYTES`]; an error is the
    /// reason for people. By default, no file can be read.
    ///
    /// # Errors
    /// Why the file cannot be read.
    fn read(&self, path: &Path) -> Result<Vec<u8>, String> {
        Err(format!("{} cannot be read here", path.display()))
    }
}

/// The kind of entry at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// There is no entry.
    Missing,
    /// A folder, or anything else that is not a regular file.
    Folder,
    /// A regular file.
    File {
        /// Whether this user may execute it.
        executable: bool,
    },
}

/// Surroundings in which every file and command exists and every variable is empty, to check a file
/// alone.
#[derive(Debug, Clone, Copy, Default)]
pub struct Anywhere;

impl Surroundings for Anywhere {
    fn variable(&self, _name: &str) -> Option<String> {
        Some(String::new())
    }

    fn argument(&self, _name: &str) -> Option<String> {
        None
    }

    fn entry(&self, _path: &Path) -> Entry {
        Entry::File { executable: true }
    }

    fn names_in(&self, _folder: &Path) -> Vec<String> {
        Vec::new()
    }

    fn has_command(&self, _name: &str) -> bool {
        true
    }
}
