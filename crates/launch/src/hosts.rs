//! Hosts that dataflow files are checked against in the place of the real one.

use std::{collections::BTreeMap, path::Path};

use nervure_dataflow::{Entry, Host, Surroundings};

/// The host after a successful build: any program may exist then, whichever node's `build` creates
/// it.
pub struct BuiltHost<'a> {
    /// The host before it.
    pub host: &'a dyn Surroundings,
}

impl Surroundings for BuiltHost<'_> {
    fn variable(&self, name: &str) -> Option<String> {
        self.host.variable(name)
    }

    fn argument(&self, name: &str) -> Option<String> {
        self.host.argument(name)
    }

    fn entry(&self, path: &Path) -> Entry {
        match self.host.entry(path) {
            // A build may make a file executable as well.
            Entry::Missing | Entry::File { .. } => Entry::File { executable: true },
            Entry::Folder => Entry::Folder,
        }
    }

    fn names_in(&self, folder: &Path) -> Vec<String> {
        self.host.names_in(folder)
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>, String> {
        self.host.read(path)
    }

    /// A build may install any command.
    fn has_command(&self, _name: &str) -> bool {
        true
    }
}

/// The host with additional environment variables, and a command line with arguments of the file.
pub(crate) struct OverriddenHost {
    pub variables: BTreeMap<String, String>,
    pub arguments: BTreeMap<String, String>,
}

impl Surroundings for OverriddenHost {
    fn variable(&self, name: &str) -> Option<String> {
        self.variables
            .get(name)
            .cloned()
            .or_else(|| Host.variable(name))
    }

    fn argument(&self, name: &str) -> Option<String> {
        self.arguments.get(name).cloned()
    }

    fn entry(&self, path: &Path) -> Entry {
        Host.entry(path)
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>, String> {
        Host.read(path)
    }

    fn names_in(&self, folder: &Path) -> Vec<String> {
        Host.names_in(folder)
    }

    fn has_command(&self, name: &str) -> bool {
        Host.has_command(name)
    }
}
