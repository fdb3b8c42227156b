//! The sockets of a node's peers.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Pairs of one direction, by peer.
///
/// A pair whose peer has closed its socket stays until its last edge is detached. A peer can end
/// before all edges between the two are attached, and the keeper sends the socket with the first
/// edge only: the remaining edges still need the pair, for the samples that wait in their queues.
pub(super) struct Pairs<P>(HashMap<u32, Entry<P>>);

struct Entry<P> {
    pair: Arc<P>,
    is_open: bool,
    edges: HashSet<u32>,
}

impl<P> Default for Pairs<P> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<P> Pairs<P> {
    /// Adds the pair of a new process of a peer, in the place of its last one.
    pub(super) fn open(&mut self, peer: u32, pair: P) {
        let entry = Entry {
            pair: Arc::new(pair),
            is_open: true,
            edges: HashSet::new(),
        };
        self.0.insert(peer, entry);
    }

    /// Returns the pair that an edge uses. `None` if the peer has none.
    pub(super) fn attach(&mut self, peer: u32, edge: u32) -> Option<Arc<P>> {
        let entry = self.0.get_mut(&peer)?;
        entry.edges.insert(edge);
        Some(entry.pair.clone())
    }

    pub(super) fn detach(&mut self, edge: u32) {
        self.0.retain(|_, entry| {
            entry.edges.remove(&edge);
            entry.is_open || !entry.edges.is_empty()
        });
    }

    /// The peer has closed its socket.
    pub(super) fn close(&mut self, peer: u32) {
        if let Some(entry) = self.0.get_mut(&peer) {
            entry.is_open = false;
            if entry.edges.is_empty() {
                self.0.remove(&peer);
            }
        }
    }

    /// Peers whose socket is open.
    pub(super) fn open_peers(&self) -> impl Iterator<Item = u32> {
        let open = self.0.iter().filter(|(_, entry)| entry.is_open);
        open.map(|(&peer, _)| peer)
    }

    /// The pair of one of [`Self::open_peers`].
    pub(super) fn get(&self, peer: u32) -> &P {
        &self.0[&peer].pair
    }

    /// One edge of a pair, for messages to the keeper.
    pub(super) fn edge_of(&self, peer: u32) -> Option<u32> {
        self.0.get(&peer)?.edges.iter().next().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: u32 = 7;

    #[test]
    fn an_edge_that_comes_after_the_end_of_its_peer_finds_the_pair() {
        let mut pairs = Pairs::default();
        pairs.open(PEER, ());
        assert!(pairs.attach(PEER, 0).is_some());
        pairs.close(PEER);
        assert_eq!(pairs.open_peers().count(), 0);
        assert!(pairs.attach(PEER, 1).is_some());
    }

    #[test]
    fn a_closed_pair_goes_with_its_last_edge() {
        let mut pairs = Pairs::default();
        pairs.open(PEER, ());
        pairs.attach(PEER, 0);
        pairs.attach(PEER, 1);
        pairs.detach(0);
        pairs.close(PEER);
        assert_eq!(pairs.edge_of(PEER), Some(1));
        pairs.detach(1);
        assert!(pairs.0.is_empty());
    }

    #[test]
    fn an_open_pair_stays_without_edges() {
        let mut pairs = Pairs::default();
        pairs.open(PEER, ());
        pairs.attach(PEER, 0);
        pairs.detach(0);
        assert!(pairs.attach(PEER, 1).is_some());
        pairs.detach(1);
        pairs.close(PEER);
        assert!(pairs.0.is_empty());
    }
}
