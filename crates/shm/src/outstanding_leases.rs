//! The blocks that the consumer of an edge may hold.

/// Place of a row that is not listed.
const NOT_LISTED: u32 = u32::MAX;

/// The rows of the lease table that the producer has set and not yet seen cleared.
///
/// The consumer can write the lease words themselves, and a hostile one may set any of them. Only
/// blocks listed here can be held on an edge, and there are at most `max_held` of them.
#[derive(Debug)]
pub(crate) struct OutstandingLeases {
    rows: Vec<u32>,
    /// Index in `rows`, by row; or [`NOT_LISTED`].
    places: Box<[u32]>,
}

impl OutstandingLeases {
    /// An empty list for a lease table of `rows` rows.
    pub(crate) fn new(rows: u32) -> Self {
        Self {
            rows: Vec::new(),
            places: vec![NOT_LISTED; rows as usize].into(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn contains(&self, row: u32) -> bool {
        self.places[row as usize] != NOT_LISTED
    }

    pub(crate) fn insert(&mut self, row: u32) {
        if !self.contains(row) {
            self.places[row as usize] = self.rows.len() as u32;
            self.rows.push(row);
        }
    }

    pub(crate) fn remove(&mut self, row: u32) {
        let place = std::mem::replace(&mut self.places[row as usize], NOT_LISTED);
        if place != NOT_LISTED {
            self.rows.swap_remove(place as usize);
            if let Some(&moved) = self.rows.get(place as usize) {
                self.places[moved as usize] = place;
            }
        }
    }

    /// Keeps the rows for which `keep` returns true.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(u32) -> bool) {
        for index in (0..self.rows.len()).rev() {
            let row = self.rows[index];
            if !keep(row) {
                self.remove(row);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_added_and_removed_in_any_order() {
        let mut leases = OutstandingLeases::new(8);
        let listed = |leases: &OutstandingLeases| {
            (0..8)
                .filter(|&row| leases.contains(row))
                .collect::<Vec<_>>()
        };
        for row in [5, 0, 7, 5, 3] {
            leases.insert(row);
        }
        assert_eq!((leases.len(), listed(&leases)), (4, vec![0, 3, 5, 7]));
        leases.remove(0);
        leases.remove(0);
        leases.remove(7);
        assert_eq!((leases.len(), listed(&leases)), (2, vec![3, 5]));
        leases.insert(0);
        leases.retain(|row| row != 3);
        assert_eq!((leases.len(), listed(&leases)), (2, vec![0, 5]));
        leases.retain(|_| false);
        assert_eq!((leases.len(), listed(&leases)), (0, vec![]));
    }
}
