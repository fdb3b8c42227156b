//! Matches values of several lanes by their stamps, without I/O.
//!
//! The rule of [`SyncPolicy::Approximate`] is that of `message_filters::sync_policies::ApproximateTime`
//! of ROS 2: a set has one value of each lane and the smallest difference between its oldest and its
//! newest stamp, by a margin for older sets. Every value is in one set at most.

use std::collections::VecDeque;

use nervure_protocol::graph::SyncPolicy;

/// Matches the values of several lanes. The stamps of a lane grow.
#[derive(Debug)]
pub(crate) struct Matcher<T> {
    lanes: Vec<Lane<T>>,
    policy: SyncPolicy,
    /// Largest difference between the stamps of a set.
    tolerance: i64,
    /// Most values of a lane that wait.
    queue_size: usize,
    /// The best set so far, whose values are the first of each lane.
    candidate: Option<Candidate>,
    /// Values of each lane that a search has passed in thought.
    passed: Vec<usize>,
    sets: VecDeque<Vec<T>>,
}

#[derive(Debug)]
struct Lane<T> {
    waiting: VecDeque<Stamped<T>>,
    /// The values before those that wait, as far back as the candidate's.
    past: Vec<Stamped<T>>,
    /// A value was dropped that may have been a better partner than those that follow.
    has_dropped: bool,
    is_closed: bool,
    /// Values that were dropped without a partner, since they were last counted.
    unmatched: u64,
}

#[derive(Debug)]
struct Stamped<T> {
    stamp: i64,
    value: T,
}

#[derive(Clone, Copy, Debug)]
struct Candidate {
    start: i64,
    end: i64,
    /// The lane of the newest value when the search began: every later set has a value of it that is
    /// as new.
    pivot: usize,
    pivot_stamp: i64,
}

/// The oldest or the newest of the first values of all lanes.
#[derive(Clone, Copy, Debug)]
struct Bound {
    lane: usize,
    stamp: i64,
}

/// A later set is better only if it is smaller by a tenth of the time that it comes later, which is
/// the default `age_penalty` of `message_filters`.
fn with_age_penalty(later: i64) -> i64 {
    later.saturating_mul(11) / 10
}

/// The oldest and the newest of several stamps. Of equal stamps, the oldest is the first and the newest
/// is the last.
fn bounds(stamps: impl Iterator<Item = i64>) -> (Bound, Bound) {
    let bounds = stamps
        .enumerate()
        .map(|(lane, stamp)| Bound { lane, stamp });
    let both = bounds.fold(None, |both: Option<(Bound, Bound)>, bound| {
        let (mut start, mut end) = both.unwrap_or((bound, bound));
        if bound.stamp < start.stamp {
            start = bound;
        }
        if bound.stamp >= end.stamp {
            end = bound;
        }
        Some((start, end))
    });
    both.expect("a matcher has lanes")
}

impl<T> Lane<T> {
    fn first(&self) -> Option<i64> {
        self.waiting.front().map(|first| first.stamp)
    }

    fn drop_first(&mut self) {
        self.unmatched += u64::from(self.waiting.pop_front().is_some());
    }

    fn pass_first(&mut self) {
        self.past.extend(self.waiting.pop_front());
    }

    /// Drops the values before those that wait.
    fn forget_past(&mut self) {
        self.unmatched += self.past.len() as u64;
        self.past.clear();
    }

    /// Returns to the candidate's value.
    fn recover(&mut self) {
        for value in self.past.drain(..).rev() {
            self.waiting.push_front(value);
        }
    }
}

impl<T> Matcher<T> {
    /// # Panics
    /// Without lanes.
    pub fn new(
        lanes: usize,
        policy: SyncPolicy,
        tolerance: Option<i64>,
        queue_size: usize,
    ) -> Self {
        assert!(lanes > 0, "a matcher has lanes");
        let lane = || Lane {
            waiting: VecDeque::new(),
            past: Vec::new(),
            has_dropped: false,
            is_closed: false,
            unmatched: 0,
        };
        let unlimited = match policy {
            SyncPolicy::Exact => 0,
            SyncPolicy::Approximate => i64::MAX,
        };
        Self {
            lanes: std::iter::repeat_with(lane).take(lanes).collect(),
            policy,
            tolerance: tolerance.unwrap_or(unlimited),
            queue_size,
            candidate: None,
            passed: vec![0; lanes],
            sets: VecDeque::new(),
        }
    }

    /// Adds a value to a lane.
    pub fn add(&mut self, lane: usize, stamp: i64, value: T) {
        self.lanes[lane].waiting.push_back(Stamped { stamp, value });
        self.search();
        if self.lanes[lane].waiting.len() + self.lanes[lane].past.len() > self.queue_size {
            self.lanes.iter_mut().for_each(Lane::recover);
            self.lanes[lane].drop_first();
            self.lanes[lane].has_dropped = true;
            if self.candidate.take().is_some() {
                self.search();
            }
        }
        self.finish();
    }

    /// No more values come to a lane.
    pub fn close(&mut self, lane: usize) {
        self.lanes[lane].is_closed = true;
        self.finish();
    }

    /// The next set: one value of each lane, in the order of the lanes.
    pub fn next_set(&mut self) -> Option<Vec<T>> {
        self.sets.pop_front()
    }

    /// Takes the number of values of a lane that were dropped without a partner.
    pub fn take_unmatched(&mut self, lane: usize) -> u64 {
        std::mem::take(&mut self.lanes[lane].unmatched)
    }

    /// Publishes the candidate of lanes to which nothing comes any more, and drops values that cannot
    /// have partners.
    fn finish(&mut self) {
        let is_over = |lane: &Lane<T>| lane.is_closed && lane.waiting.is_empty();
        while self.lanes.iter().any(is_over) {
            if self.candidate.is_some() {
                self.publish();
                self.search();
            } else {
                for lane in &mut self.lanes {
                    lane.unmatched += lane.waiting.len() as u64;
                    lane.waiting.clear();
                }
                return;
            }
        }
    }

    fn search(&mut self) {
        match self.policy {
            SyncPolicy::Exact => self.search_exact(),
            SyncPolicy::Approximate => self.search_approximate(),
        }
    }

    /// The oldest and the newest first value, if every lane has one.
    fn first_bounds(&self) -> Option<(Bound, Bound)> {
        let have_first = self.lanes.iter().all(|lane| !lane.waiting.is_empty());
        have_first.then(|| bounds(self.lanes.iter().filter_map(Lane::first)))
    }

    fn search_exact(&mut self) {
        while let Some((start, end)) = self.first_bounds() {
            if end.stamp.saturating_sub(start.stamp) <= self.tolerance {
                self.publish();
            } else {
                // The lane of the newest value has none that is older.
                self.lanes[start.lane].drop_first();
            }
        }
    }

    fn search_approximate(&mut self) {
        while let Some((start, end)) = self.first_bounds() {
            for (at, lane) in self.lanes.iter_mut().enumerate() {
                // No dropped value would have been a better partner than the one that is there.
                lane.has_dropped &= at == end.lane;
            }
            let better = Candidate {
                start: start.stamp,
                end: end.stamp,
                pivot: end.lane,
                pivot_stamp: end.stamp,
            };
            let candidate = match self.candidate {
                None => {
                    let is_too_wide = end.stamp.saturating_sub(start.stamp) > self.tolerance;
                    if is_too_wide || self.lanes[end.lane].has_dropped {
                        self.lanes[start.lane].drop_first();
                        continue;
                    }
                    better
                }
                Some(best) if best.is_worse_than(start.stamp, end.stamp) => {
                    self.lanes.iter_mut().for_each(Lane::forget_past);
                    Candidate {
                        pivot: best.pivot,
                        pivot_stamp: best.pivot_stamp,
                        ..better
                    }
                }
                Some(best) => best,
            };
            self.candidate = Some(candidate);
            self.lanes[start.lane].pass_first();
            let is_best = start.lane == candidate.pivot
                || candidate.is_best_until(end.stamp)
                || self.lanes.iter().any(|lane| lane.waiting.is_empty())
                    && self.is_best_whatever_comes(candidate);
            if is_best {
                self.publish();
            }
        }
    }

    /// Whether no value that may come makes a better set: a value of an empty lane is at least as new as
    /// the last one there, and as the pivot.
    fn is_best_whatever_comes(&mut self, candidate: Candidate) -> bool {
        self.passed.fill(0);
        loop {
            let stamp = |(lane, passed): (&Lane<T>, &usize)| match lane.waiting.get(*passed) {
                Some(next) => next.stamp,
                None => {
                    let last = lane.waiting.back().or(lane.past.last());
                    last.map_or(candidate.pivot_stamp, |last| {
                        last.stamp.max(candidate.pivot_stamp)
                    })
                }
            };
            let (start, end) = bounds(self.lanes.iter().zip(&self.passed).map(stamp));
            if candidate.is_best_until(end.stamp) {
                return true;
            }
            if candidate.is_worse_than(start.stamp, end.stamp) {
                return false;
            }
            self.passed[start.lane] += 1;
        }
    }

    /// Makes a set of the first values.
    fn publish(&mut self) {
        self.candidate = None;
        self.lanes.iter_mut().for_each(Lane::recover);
        let first = |lane: &mut Lane<T>| lane.waiting.pop_front().map(|first| first.value);
        self.sets
            .push_back(self.lanes.iter_mut().filter_map(first).collect());
    }
}

impl Candidate {
    fn is_worse_than(self, start: i64, end: i64) -> bool {
        with_age_penalty(end.saturating_sub(self.end)) < start.saturating_sub(self.start)
    }

    /// Whether every set with a value as new as `end` is worse: it has one as old as the pivot, too.
    fn is_best_until(self, end: i64) -> bool {
        let later = with_age_penalty(end.saturating_sub(self.end));
        later >= self.pivot_stamp.saturating_sub(self.start)
    }
}

#[cfg(test)]
mod tests;
