//! Samples of tools that nodes were asked to publish.

/// Publications that their nodes have not confirmed.
#[derive(Debug, Default)]
pub(super) struct Publications {
    last_id: u64,
    waiting: Vec<Publication>,
}

#[derive(Debug)]
struct Publication {
    id: u64,
    client: usize,
    node: usize,
}

impl Publications {
    /// Adds a publication of a client by a node. Returns its number.
    pub fn add(&mut self, client: usize, node: usize) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        self.waiting.push(Publication { id, client, node });
        id
    }

    /// Removes the publication of that number by a node. Returns its client.
    pub fn take(&mut self, node: usize, id: u64) -> Option<usize> {
        let is_same = |one: &Publication| (one.node, one.id) == (node, id);
        let at = self.waiting.iter().position(is_same)?;
        Some(self.waiting.swap_remove(at).client)
    }

    /// Removes all publications by a node. Returns their clients.
    pub fn take_all(&mut self, node: usize) -> Vec<usize> {
        let removed = self.waiting.extract_if(.., |one| one.node == node);
        removed.map(|one| one.client).collect()
    }

    pub fn forget_client(&mut self, client: usize) {
        self.waiting.retain(|one| one.client != client);
    }
}
