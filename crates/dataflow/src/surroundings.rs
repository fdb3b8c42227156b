//! What a dataflow file means depends on the host: which files and variables there are.

use std::path::Path;

/// The host, as far as a dataflow file refers to it.
///
/// [`Host`](crate::Host) asks the real one; a test or an editor can imagine another.
pub trait Surroundings {
    /// The value of an environment variable.
    fn variable(&self, name: &str) -> Option<String>;
    /// What is at `path`.
    fn entry(&self, path: &Path) -> Entry;
    /// The names of what is in `folder`, for "did you mean"; empty if it cannot be read.
    fn names_in(&self, folder: &Path) -> Vec<String>;
    /// Whether `name`, which has no slash, is a command on the PATH.
    fn has_command(&self, name: &str) -> bool;
}

/// What a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// Nothing.
    Missing,
    /// A folder, or something else that is not a file.
    Folder,
    /// A file.
    File {
        /// Whether this user may execute it.
        executable: bool,
    },
}

/// No host at all: every file and command exists, every variable is empty. For checks of the file alone.
#[derive(Debug, Clone, Copy, Default)]
pub struct Anywhere;

impl Surroundings for Anywhere {
    fn variable(&self, _name: &str) -> Option<String> {
        Some(String::new())
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
