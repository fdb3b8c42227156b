//! The names of the clients.

use std::collections::BTreeMap;

/// The client that has started the keeper: `nervure run`. Its connection is open from the start,
/// and the dataflow ends with it unless it is detached.
pub const STARTER: usize = 0;

/// The clients that said Hello, and the name of each for people: `top@4711`.
#[derive(Debug, Default)]
pub(super) struct Clients(BTreeMap<usize, String>);

impl Clients {
    pub fn is_known(&self, client: usize) -> bool {
        self.0.contains_key(&client)
    }

    /// Adds a client. Its name is `echo@4711`, or `echo@4711.2` for another one of the same
    /// process.
    pub fn add(&mut self, client: usize, program: &str, pid: u32) {
        const MAX_PROGRAM_CHARS: usize = 32;
        let is_plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let plain = program.chars().filter(is_plain);
        let plain: String = plain.take(MAX_PROGRAM_CHARS).collect();
        let program = if plain.is_empty() { "client" } else { &plain };
        let first = format!("{program}@{pid}");
        let others = (2..).map(|number| format!("{first}.{number}"));
        let is_free = |name: &String| self.0.values().all(|taken| taken != name);
        let name = std::iter::once(first.clone()).chain(others).find(is_free);
        self.0.insert(client, name.expect("there are few clients"));
    }

    pub fn remove(&mut self, client: usize) {
        self.0.remove(&client);
    }

    /// The client's name; empty for one that has not said Hello.
    pub fn name(&self, client: usize) -> String {
        self.0.get(&client).cloned().unwrap_or_default()
    }
}
