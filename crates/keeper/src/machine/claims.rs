//! The places of nodes that are kept for programs of clients (`nervure attach`).

use std::collections::BTreeMap;

/// The claims, by node.
#[derive(Debug, Default)]
pub(super) struct Claims(BTreeMap<usize, Claim>);

/// A node's place that is kept for a program of a client.
#[derive(Debug)]
pub(super) struct Claim {
    pub client: usize,
    /// The client's name, for people.
    pub name: String,
    /// The secret with which the program may join.
    pub token: String,
    /// The node stays stopped when the client is gone.
    pub leave_stopped: bool,
}

impl Claims {
    pub fn of_node(&self, node: usize) -> Option<&Claim> {
        self.0.get(&node)
    }

    pub fn add(&mut self, node: usize, claim: Claim) {
        self.0.insert(node, claim);
    }

    /// True when a client keeps the place of a node.
    pub fn has_client(&self, client: usize) -> bool {
        self.0.values().any(|claim| claim.client == client)
    }

    /// Removes the claims of a client, in the order of nodes.
    pub fn remove_client(&mut self, client: usize) -> Vec<(usize, Claim)> {
        let is_its = |(_, claim): &(usize, Claim)| claim.client == client;
        let (removed, kept): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.0).into_iter().partition(is_its);
        self.0 = kept.into_iter().collect();
        removed
    }
}
