//! The report of a run: counted calls and faults.

use std::{collections::BTreeMap, fs, io, path::Path};

use serde::Serialize;

/// The report, which the campaign reads.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// Number of calls by role and system call.
    pub calls: BTreeMap<String, BTreeMap<String, u64>>,
    /// The calls with a fault, each with its file if it has one.
    pub acted_on: Vec<String>,
    /// The command did not end in time.
    pub hangs: bool,
    /// Processes that were still alive when all should have ended.
    pub left: Vec<String>,
}

impl Report {
    /// Counts a call. Returns the number of calls of its kind by this role so far.
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
