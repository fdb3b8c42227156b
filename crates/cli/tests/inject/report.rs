//! What was counted and done.

use std::{collections::BTreeMap, fs, io, path::Path};

use serde::Serialize;

/// What the campaign reads.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// By role and system call: how often.
    pub calls: BTreeMap<String, BTreeMap<String, u64>>,
    /// On what it was acted: the file of each call, where there is one.
    pub acted_on: Vec<String>,
    /// The command did not end in time.
    pub hangs: bool,
    /// Processes that were there when all should have ended.
    pub left: Vec<String>,
}

impl Report {
    /// Counts a call; how many of its kind this role has made.
    pub fn count(&mut self, role: &str, call: &str) -> u64 {
        if !self.calls.contains_key(role) {
            self.calls.insert(role.to_owned(), BTreeMap::new());
        }
        let count = self
            .calls
            .get_mut(role)
            .expect("just inserted")
            .entry(call.to_owned())
            .or_default();
        *count += 1;
        *count
    }

    pub fn write(&self, path: &Path) -> io::Result<()> {
        fs::write(path, serde_json::to_vec(self)?)
    }
}
