//! The edges, blocks and history of one output, behind one lock.

use crate::atomics::{AtomicBool, Ordering};
use crate::away::AwayConsumer;
use crate::counter_rows::OutputCounter;
use crate::counters::CountersPage;
use crate::edge::{Announcements, Edge, OutputEdge, Reference, accepted};
use crate::fork;
use crate::pair::{MAX_ANNOUNCEMENT_BYTES, MAX_ANNOUNCEMENTS};
use crate::pool::{Block, Evict, NoBlock, Pool};
use crate::producer::Producer;
use crate::send::Receipt;
use crate::slot::SlotImage;
use crate::sys::monotonic_nanos;
use nervure_protocol::wiring::Return;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// An output, shared by its clones and loans.
pub(crate) struct SharedOutput {
    pub(crate) name: String,
    pub(crate) producer: Producer,
    pub(crate) fork_generation: u32,
    /// [`OutputState::has_readers`], written under the lock, so that a send without readers need not
    /// take it.
    has_readers: AtomicBool,
    state: Mutex<OutputState>,
}

/// State under the lock of an output.
pub(crate) struct OutputState {
    pub(crate) pool: Pool,
    /// Observers are the last.
    edges: Vec<Edge>,
    /// Consumers without an edge that may return.
    away: Vec<AwayConsumer>,
    /// The last samples, oldest first.
    history: VecDeque<SlotImage>,
    history_depth: usize,
    /// Sequence number of the next sample.
    sequence: u64,
    /// Time of the last publication, in nanoseconds of CLOCK_MONOTONIC.
    published: u64,
    announcements: Announcements,
    /// The slot image of the last published loan, for reuse by the next one.
    pub(crate) spare_image: Option<Box<SlotImage>>,
}

impl SharedOutput {
    pub(crate) fn new(name: String, blocks: u32, history: u32, producer: Producer) -> Arc<Self> {
        let state = OutputState {
            pool: Pool::new(producer.budget.clone(), blocks),
            edges: Vec::new(),
            away: Vec::new(),
            history: VecDeque::new(),
            history_depth: history as usize,
            sequence: 0,
            published: 0,
            announcements: HashMap::new(),
            spare_image: None,
        };
        let shared = Arc::new(Self {
            name,
            producer,
            fork_generation: fork::generation(),
            has_readers: AtomicBool::new(state.has_readers()),
            state: Mutex::new(state),
        });
        shared.producer.budget.join(shared.as_member());
        shared
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, OutputState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a sample would be received, at once or from the history.
    pub(crate) fn has_readers(&self) -> bool {
        self.has_readers.load(Ordering::Acquire)
    }

    /// Updates [`Self::has_readers`] after edges were added or removed.
    pub(crate) fn note_readers(&self, state: &OutputState) {
        self.has_readers
            .store(state.has_readers(), Ordering::Release);
    }

    /// The output as a member of its budget.
    pub(crate) fn as_member(self: &Arc<Self>) -> Weak<dyn Evict> {
        Arc::downgrade(self) as Weak<dyn Evict>
    }
}

impl std::fmt::Debug for SharedOutput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Output")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Evict for SharedOutput {
    fn evict(&self, bytes: u64) -> bool {
        let mut guard = self.lock();
        let state = &mut *guard;
        let any = loop {
            let any = state.pool.evict(bytes, is_free(&state.edges));
            if any || !state.drop_from_history() {
                break any;
            }
        };
        state.announce_retiring();
        any
    }
}

/// Whether no consumer and no history holds a block.
fn is_free(edges: &[Edge]) -> impl Fn(u32, &Block) -> bool {
    |row, block| block.holds == 0 && !edges.iter().any(|edge| edge.holds(row))
}

/// The order in which edges are offered a sample. Each wake-up delays the next, so consumers take
/// turns at being the first. Observers, behind the others in `edges`, come last.
fn rotated<T>(
    edges: &mut [T],
    turn: u64,
    is_observer: impl Fn(&T) -> bool,
) -> impl Iterator<Item = &mut T> {
    let count = edges.partition_point(|edge| !is_observer(edge));
    let (edges, observers) = edges.split_at_mut(count);
    let (later, sooner) =
        edges.split_at_mut(turn.checked_rem(edges.len() as u64).unwrap_or(0) as usize);
    sooner.iter_mut().chain(later).chain(observers)
}

impl OutputState {
    /// Whether a sample would be received, at once or from the history, or counts for a consumer
    /// that is away.
    fn has_readers(&self) -> bool {
        self.history_depth > 0 || !self.edges.is_empty() || !self.away.is_empty()
    }

    /// The consumer of the edge at `index`, as `node/input`.
    pub(crate) fn consumer(&self, index: usize) -> String {
        self.edges[index].attached.consumer.clone()
    }

    /// Adds an announcement, unless `id` is known already. The error names the limit that it
    /// exceeds.
    pub(crate) fn announce(&mut self, id: u64, bytes: &[u8], output: &str) -> Result<(), String> {
        if self.announcements.contains_key(&id) {
            return Ok(());
        }
        if bytes.len() > MAX_ANNOUNCEMENT_BYTES {
            return Err(format!(
                "schema of {} bytes, at most {MAX_ANNOUNCEMENT_BYTES} are possible",
                bytes.len()
            ));
        }
        if self.announcements.len() >= MAX_ANNOUNCEMENTS {
            return Err(format!(
                "output {output} has changed its schema {MAX_ANNOUNCEMENTS} times"
            ));
        }
        self.announcements.insert(id, bytes.into());
        Ok(())
    }

    /// Makes `edge` an observer's: see [`Edge::is_observer`].
    pub(crate) fn mark_as_observer(&mut self, edge: u32) {
        let mut edges = self.edges.iter_mut();
        if let Some(edge) = edges.find(|known| known.attached.id == edge) {
            edge.is_observer = true;
        }
        self.edges.sort_by_key(|edge| edge.is_observer);
    }

    pub(crate) fn next_sequence(&mut self) -> u64 {
        let sequence = self.sequence;
        self.sequence += 1;
        sequence
    }

    /// The time of a publication now. No two samples have the same, whatever the clock's resolution.
    pub(crate) fn next_time(&mut self) -> u64 {
        self.published = monotonic_nanos().max(self.published + 1);
        self.published
    }

    pub(crate) fn take_block(
        &mut self,
        bytes: usize,
        counters: &CountersPage,
    ) -> Result<u32, NoBlock> {
        loop {
            let result = self.pool.take(bytes, is_free(&self.edges));
            self.announce_retiring();
            let freed = match result {
                // The bytes that consumers are about to return will suffice.
                Err(NoBlock::Budget { evicting: true, .. }) => self.drop_from_observer(counters),
                Err(NoBlock::Rows | NoBlock::Budget { .. }) => {
                    self.drop_from_observer(counters) || self.drop_from_history()
                }
                _ => false,
            };
            if !freed {
                return result;
            }
        }
    }

    /// Drops the oldest sample that only the history holds: new samples count for more than those
    /// of a late joiner. False if there is none.
    fn drop_from_history(&mut self) -> bool {
        let Self {
            history,
            edges,
            pool,
            ..
        } = self;
        let unshared_row = |image: &SlotImage| {
            let is_unshared = |row: &u32| !edges.iter().any(|edge| edge.holds(*row));
            image.descriptor().block().filter(is_unshared)
        };
        let Some((index, row)) = history
            .iter()
            .enumerate()
            .find_map(|(index, image)| Some((index, unshared_row(image)?)))
        else {
            return false;
        };
        history.remove(index);
        pool.block_mut(row).holds -= 1;
        true
    }

    /// Drops a queued block of an observer. False if there is none.
    fn drop_from_observer(&mut self, counters: &CountersPage) -> bool {
        self.edges
            .iter_mut()
            .any(|edge| edge.drop_queued_block(counters))
    }

    /// Sends consumers the ids of retiring segments. If a socket is full, the next call tries
    /// again.
    fn announce_retiring(&mut self) {
        for retiring in self
            .pool
            .retiring
            .iter_mut()
            .filter(|retiring| !retiring.announced)
        {
            let pairs = self.edges.iter().map(|edge| &edge.attached.pair);
            let mut concerned = pairs.filter(|pair| retiring.waiting_for.contains(&pair.peer));
            retiring.announced =
                concerned.all(|pair| accepted(&pair.send_retire(retiring.segment)));
        }
    }

    /// The consumer of a `block` edge, for which a caller at the budget waits.
    pub(crate) fn blocking_consumer(&self) -> Option<String> {
        self.edges
            .iter()
            .find(|edge| edge.can_block())
            .map(|edge| edge.attached.consumer.clone())
    }

    /// The first `block` edge that cannot take a sample yet.
    pub(crate) fn unready_edge(&mut self, sample: &Reference) -> Option<usize> {
        let Self {
            edges,
            pool,
            announcements,
            ..
        } = self;
        edges
            .iter_mut()
            .position(|edge| edge.can_block() && !edge.is_ready(sample, pool, announcements))
    }

    /// The consumer of an edge that [owes](Edge::owes) samples.
    pub(crate) fn consumer_to_await(&self) -> Option<&str> {
        let mut edges = self.edges.iter();
        edges
            .find(|edge| edge.owes())
            .map(|edge| edge.attached.consumer.as_str())
    }

    pub(crate) fn offer_to_all(&mut self, image: &SlotImage, producer: &Producer) -> Receipt {
        let mut receipt = Receipt::default();
        for edge in rotated(&mut self.edges, self.sequence, |edge| edge.is_observer) {
            match edge.offer(image, &mut self.pool, &self.announcements, producer) {
                _ if edge.is_observer => {}
                true => receipt.queued += 1,
                false => receipt.missed += 1,
            }
        }
        self.count_for_away(&producer.counters);
        if self.history_depth > 0 {
            self.add_to_history(image.clone());
        }
        receipt
    }

    /// Counts a sample for the consumers that have no edge.
    fn count_for_away(&mut self, counters: &CountersPage) {
        let Self { away, edges, .. } = self;
        for consumer in away {
            // Between the notice that the consumer is away and the end of its edge it has both.
            if !edges.iter().any(|edge| edge.has_row(consumer.row)) {
                consumer.miss(self.history_depth, counters);
            }
        }
    }

    /// See [`crate::Output::await_consumer`].
    pub(crate) fn await_consumer(&mut self, row: u32, returns: Return, counters: &CountersPage) {
        let at = self.away.iter().position(|consumer| consumer.row == row);
        if returns == Return::Never {
            if let Some(at) = at {
                self.away.swap_remove(at).ended(counters);
            }
            return;
        }
        let at = at.unwrap_or_else(|| {
            self.away.push(AwayConsumer::new(row));
            self.away.len() - 1
        });
        if returns == Return::Certain {
            self.away[at].will_return(self.history_depth, counters);
        }
    }

    fn add_to_history(&mut self, image: SlotImage) {
        if self.history.len() == self.history_depth
            && let Some(oldest) = self.history.pop_front()
            && let Some(row) = oldest.descriptor().block()
        {
            self.pool.block_mut(row).holds -= 1;
        }
        if let Some(row) = image.descriptor().block() {
            self.pool.block_mut(row).holds += 1;
        }
        self.history.push_back(image);
    }

    pub(crate) fn attach(&mut self, attached: OutputEdge, producer: &Producer) {
        let Self {
            edges,
            away,
            pool,
            announcements,
            history,
            ..
        } = self;
        if let Some(edge) = edges
            .iter_mut()
            .find(|edge| edge.attached.id == attached.id)
        {
            edge.resume(attached);
            edge.announce_queued(pool, announcements);
            return;
        }
        let mut edge = Edge::new(attached);
        edge.announce_queued(pool, announcements);
        let skipped = history
            .len()
            .saturating_sub(edge.attached.queue.depth as usize);
        let row = edge.attached.counters_row;
        if let Some(at) = away.iter().position(|consumer| consumer.row == row) {
            let from_history = (history.len() - skipped) as u64;
            away.swap_remove(at)
                .returned(from_history, &producer.counters);
        }
        for image in history.iter().skip(skipped) {
            edge.offer(image, pool, announcements, producer);
        }
        edges.insert(edges.partition_point(|edge| !edge.is_observer), edge);
    }

    pub(crate) fn detach(&mut self, id: u32, suspended: bool, producer: &Producer) {
        let Some(index) = self.edges.iter().position(|edge| edge.attached.id == id) else {
            return;
        };
        let peer = self.edges[index].attached.pair.peer;
        if suspended {
            self.edges[index].suspend(producer);
        } else {
            let edge = self.edges.remove(index);
            let row = edge.attached.counters_row;
            let away = self.away.iter_mut().find(|consumer| consumer.row == row);
            edge.end(away, &producer.counters);
        }
        if !self.edges.iter().any(|edge| edge.has_peer(peer)) {
            self.pool.acknowledged(peer, None);
        }
    }

    pub(crate) fn acknowledge(&mut self, peer: u32, segments: &[u32]) {
        for &segment in segments {
            self.pool.acknowledged(peer, Some(segment));
        }
        for edge in self.edges.iter_mut().filter(|edge| edge.has_peer(peer)) {
            edge.announce_queued(&mut self.pool, &self.announcements);
        }
    }

    /// Counts a sample that found no memory, and returns the number of edges that miss it.
    pub(crate) fn count_missed_memory(&mut self, counters: &CountersPage) -> u32 {
        self.next_sequence();
        let Self { away, edges, .. } = self;
        for edge in &*edges {
            edge.count(counters, OutputCounter::MissedMemory, 1);
        }
        for consumer in away {
            if !edges.iter().any(|edge| edge.has_row(consumer.row)) {
                consumer.miss_without_memory(counters);
            }
        }
        edges.iter().filter(|edge| !edge.is_observer).count() as u32
    }

    /// Adds to the blocked time of the edge that blocks, and returns its consumer.
    pub(crate) fn count_blocked(&mut self, nanos: u64, counters: &CountersPage) -> String {
        let full = self
            .edges
            .iter_mut()
            .position(|edge| edge.can_block() && edge.is_full(true));
        let index = full.or_else(|| self.edges.iter().position(Edge::can_block));
        index.map_or_else(String::new, |index| {
            self.edges[index].count(counters, OutputCounter::BlockedNanos, nanos);
            self.edges[index].attached.consumer.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::rotated;

    #[test]
    fn consumers_take_turns_and_observers_come_last() {
        let mut edges = [1, 2, 3, -1, -2];
        let mut order = |turn| {
            rotated(&mut edges, turn, |&edge| edge < 0)
                .map(|edge| *edge)
                .collect::<Vec<_>>()
        };
        assert_eq!(order(0), [1, 2, 3, -1, -2]);
        assert_eq!(order(1), [2, 3, 1, -1, -2]);
        assert_eq!(order(5), [3, 1, 2, -1, -2]);
        assert_eq!(rotated(&mut [-1], 7, |&edge| edge < 0).count(), 1);
        assert_eq!(rotated(&mut [], 7, |&edge: &i32| edge < 0).count(), 0);
    }
}
