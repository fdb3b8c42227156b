//! Transmissions that the sender has given up, and the status frames that report them.

use std::{
    collections::BTreeMap,
    ops::Range,
    time::{Duration, Instant},
};

use super::stream::CONTROL_STREAM;
use crate::wire::data::{Abandoned, SenderStatus};

/// A transmission that was given up and is not yet reported closed.
#[derive(Debug)]
pub(super) struct GivenUp {
    pub(super) stream: u32,
    /// The sample's place in a stream that keeps all, whose receiver must skip it.
    pub(super) sequence: Option<u64>,
    pub(super) bytes: usize,
    pub(super) cause: Cause,
}

/// Why a transmission was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    Expired,
    Superseded,
    Incomplete,
    /// The peer has no memory for it.
    Refused,
    /// It continues under another id, in shorter shards.
    Recut,
    /// It was in flight when the peer lost its state, and was counted then.
    Unconfirmed,
}

/// The given-up transmissions by id, and when the receiver hears of them next.
#[derive(Debug, Default)]
pub(super) struct GivenUpList {
    entries: BTreeMap<u64, GivenUp>,
    last_status: Option<Instant>,
    /// Feedback has closed transmissions since the last status.
    has_news: bool,
    /// The id at which the next status continues, when not all fit in the last one.
    cursor: u64,
}

impl GivenUpList {
    pub(super) fn insert(&mut self, id: u64, given_up: GivenUp) {
        self.entries.insert(id, given_up);
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn lowest_id(&self) -> Option<u64> {
        self.entries.keys().next().copied()
    }

    /// Removes the entries of a range that the receiver has closed.
    pub(super) fn take(&mut self, ids: Range<u64>) -> Vec<GivenUp> {
        let closed: Vec<u64> = self.entries.range(ids).map(|(id, _)| *id).collect();
        closed
            .into_iter()
            .filter_map(|id| self.entries.remove(&id))
            .collect()
    }

    /// Feedback closed transmissions: the next status acknowledges it.
    pub(super) fn note_news(&mut self) {
        self.has_news = true;
    }

    pub(super) fn has_news(&self) -> bool {
        self.has_news
    }

    /// Whether a status should go, `interval` after the last one.
    pub(super) fn status_due(&self, now: Instant, interval: Duration) -> bool {
        (self.has_news || !self.entries.is_empty())
            && self.last_status.is_none_or(|last| last + interval <= now)
    }

    /// When the next status on given-up transmissions is due, if that is later than `now`.
    pub(super) fn next_status(&self, now: Instant, interval: Duration) -> Option<Instant> {
        let last = self.last_status.filter(|_| !self.entries.is_empty())?;
        Some(last + interval).filter(|at| *at > now)
    }

    /// The status to send now, with at most `most` runs of given-up transmissions.
    pub(super) fn status(
        &mut self,
        now: Instant,
        floor: u64,
        feedback_seen: u64,
        most: usize,
    ) -> SenderStatus {
        let abandoned = self.next_runs(most);
        self.has_news = false;
        // A status with the rest follows at once.
        self.last_status = (self.cursor == 0).then_some(now);
        SenderStatus {
            floor,
            feedback_seen,
            abandoned,
        }
    }

    /// The entries from the cursor on, merged into runs.
    fn next_runs(&mut self, most: usize) -> Vec<Abandoned> {
        let mut runs: Vec<Abandoned> = Vec::new();
        let cursor = std::mem::take(&mut self.cursor);
        for (id, given_up) in self.entries.range(cursor..) {
            if given_up.sequence.is_none()
                && let Some(run) = runs.last_mut()
                && run.stream == CONTROL_STREAM
                && run.transmit_id + run.count == *id
            {
                run.count += 1;
                continue;
            }
            if runs.len() == most {
                self.cursor = *id;
                break;
            }
            runs.push(Abandoned {
                transmit_id: *id,
                count: 1,
                stream: given_up
                    .sequence
                    .map_or(CONTROL_STREAM, |_| given_up.stream),
                sequence: given_up.sequence.unwrap_or(0),
            });
        }
        runs
    }
}
