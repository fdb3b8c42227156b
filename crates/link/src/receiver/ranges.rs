//! Sets of transmit ids, as ranges.

use std::collections::BTreeMap;

use super::cost;
use crate::wire::feedback::{ClosedRange, Outcome};

/// The cost of a range of [`ClosedIds`].
const CLOSED_ENTRY: u64 = cost::entry(size_of::<(u64, u64)>());
/// The cost of a range of [`Reports`].
const REPORT_ENTRY: u64 = cost::entry(size_of::<(u64, (u64, Outcome))>());
/// Largest cost of a closed transmission until the sender knows that it is closed.
pub(super) const CLOSING: u64 = CLOSED_ENTRY + REPORT_ENTRY;

/// The cost of both sets.
pub(super) fn cost(closed: &ClosedIds, reports: &Reports) -> u64 {
    closed.len() as u64 * CLOSED_ENTRY + reports.len() as u64 * REPORT_ENTRY
}

/// The closed ids: all below a floor, and ranges above it.
#[derive(Debug, Default)]
pub(super) struct ClosedIds {
    floor: u64,
    /// Start to end; ranges neither touch nor overlap.
    ranges: BTreeMap<u64, u64>,
}

impl ClosedIds {
    pub(super) fn floor(&self) -> u64 {
        self.floor
    }

    pub(super) fn len(&self) -> usize {
        self.ranges.len()
    }

    pub(super) fn contains(&self, id: u64) -> bool {
        id < self.floor
            || self
                .ranges
                .range(..=id)
                .next_back()
                .is_some_and(|(_, end)| id < *end)
    }

    /// Adds a range and returns the parts of it that were not in the set.
    pub(super) fn insert(&mut self, start: u64, end: u64) -> Vec<(u64, u64)> {
        let mut added = Vec::new();
        let (mut from, mut new_start, mut new_end) = (start.max(self.floor), start, end);
        if from >= end {
            return added;
        }
        new_start = new_start.max(self.floor);
        let mut covered = Vec::new();
        if let Some((before, before_end)) = self.ranges.range(..from).next_back()
            && *before_end >= from
        {
            covered.push((*before, *before_end));
        }
        covered.extend(
            self.ranges
                .range(from..=end)
                .map(|(start, end)| (*start, *end)),
        );
        for (covered_start, covered_end) in covered {
            if from < covered_start.min(end) {
                added.push((from, covered_start.min(end)));
            }
            from = from.max(covered_end);
            new_start = new_start.min(covered_start);
            new_end = new_end.max(covered_end);
            self.ranges.remove(&covered_start);
        }
        if from < end {
            added.push((from, end));
        }
        self.ranges.insert(new_start, new_end);
        added
    }

    /// Closes all ids below the floor.
    pub(super) fn raise_floor(&mut self, floor: u64) {
        self.floor = self.floor.max(floor);
        while let Some(entry) = self.ranges.first_entry()
            && *entry.key() < self.floor
        {
            let end = entry.remove();
            if end > self.floor {
                self.ranges.insert(self.floor, end);
            }
        }
    }
}

/// Closed ids to report to the sender.
#[derive(Debug, Default)]
pub(super) struct Reports {
    /// Start to end and outcome, not overlapping.
    ranges: BTreeMap<u64, (u64, Outcome)>,
    /// The id at which the next feedback continues, when not all fit in one.
    cursor: u64,
}

impl Reports {
    pub(super) fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Adds a range, which overlaps no other.
    pub(super) fn add(&mut self, start: u64, end: u64, outcome: Outcome) {
        let (mut start, mut end) = (start, end);
        if let Some((before, (before_end, before_outcome))) = self.ranges.range(..start).next_back()
            && *before_end == start
            && *before_outcome == outcome
        {
            start = *before;
        }
        if let Some((after_end, after_outcome)) = self.ranges.get(&end).copied()
            && after_outcome == outcome
        {
            self.ranges.remove(&end);
            end = after_end;
        }
        self.ranges.insert(start, (end, outcome));
    }

    /// Returns the ranges to report next, at most `most`, ascending.
    pub(super) fn next(&mut self, most: usize) -> Vec<ClosedRange> {
        let closed = |(start, (end, outcome)): (&u64, &(u64, Outcome))| ClosedRange {
            start: *start,
            end: *end,
            outcome: *outcome,
        };
        if self.ranges.len() <= most {
            return self.ranges.iter().map(closed).collect();
        }
        let mut reported: Vec<_> = self
            .ranges
            .range(self.cursor..)
            .take(most)
            .map(closed)
            .collect();
        if reported.is_empty() {
            reported = self.ranges.iter().take(most).map(closed).collect();
        }
        self.cursor = reported.last().map_or(0, |range| range.end);
        reported
    }

    /// Removes ranges that the sender has acknowledged.
    pub(super) fn forget(&mut self, acknowledged: &[ClosedRange]) {
        for range in acknowledged {
            self.remove(range.start, range.end);
        }
    }

    /// Removes all ids below the floor, which the sender knows.
    pub(super) fn raise_floor(&mut self, floor: u64) {
        self.remove(0, floor);
    }

    fn remove(&mut self, start: u64, end: u64) {
        let mut overlapping = Vec::new();
        if let Some((before, value)) = self.ranges.range(..start).next_back() {
            overlapping.push((*before, *value));
        }
        overlapping.extend(
            self.ranges
                .range(start..end)
                .map(|(start, value)| (*start, *value)),
        );
        for (old_start, (old_end, outcome)) in overlapping {
            if old_end <= start {
                continue;
            }
            self.ranges.remove(&old_start);
            if old_start < start {
                self.ranges.insert(old_start, (start, outcome));
            }
            if old_end > end {
                self.ranges.insert(end, (old_end, outcome));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn closed_ids_are_a_set(steps in prop::collection::vec((0u64..60, 0u64..10, any::<bool>()), 1..60)) {
            let (mut ids, mut model, mut floor) = (ClosedIds::default(), BTreeSet::new(), 0);
            for (start, length, raise) in steps {
                if raise && length == 0 {
                    floor = floor.max(start);
                    ids.raise_floor(start);
                } else {
                    let added = ids.insert(start, start + length);
                    let added: BTreeSet<u64> = added.into_iter().flat_map(|(start, end)| start..end).collect();
                    let expected = (start..start + length).filter(|id| *id >= floor && !model.contains(id)).collect();
                    prop_assert_eq!(added, expected);
                    model.extend(start..start + length);
                }
                for id in 0..80 {
                    prop_assert_eq!(ids.contains(id), id < floor || model.contains(&id), "id {}", id);
                }
                let mut last = None;
                for (start, end) in &ids.ranges {
                    prop_assert!(start < end && last.is_none_or(|last| last < *start));
                    last = Some(*end);
                }
            }
        }

        #[test]
        fn reports_are_a_map(steps in prop::collection::vec((0u64..60, 1u64..10, 0u8..3), 1..60)) {
            let (mut reports, mut model) = (Reports::default(), std::collections::BTreeMap::new());
            for (start, length, what) in steps {
                let end = start + length;
                if what == 2 {
                    reports.forget(&[ClosedRange { start, end, outcome: Outcome::Delivered }]);
                    (start..end).for_each(|id| { model.remove(&id); });
                } else if (start..end).all(|id| !model.contains_key(&id)) {
                    let outcome = [Outcome::Delivered, Outcome::Expired][usize::from(what)];
                    reports.add(start, end, outcome);
                    model.extend((start..end).map(|id| (id, outcome)));
                }
                let reported = reports.next(usize::MAX);
                let reported: std::collections::BTreeMap<u64, Outcome> =
                    reported.iter().flat_map(|range| (range.start..range.end).map(|id| (id, range.outcome))).collect();
                prop_assert_eq!(&reported, &model);
            }
        }
    }

    #[test]
    fn what_does_not_fit_follows() {
        let mut reports = Reports::default();
        (0..10).for_each(|i| reports.add(i * 2, i * 2 + 1, Outcome::Delivered));
        let mut reported = BTreeSet::new();
        (0..4).for_each(|_| reported.extend(reports.next(3).iter().map(|range| range.start)));
        assert_eq!(reported.len(), 10);
    }
}
