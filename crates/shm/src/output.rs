//! The producer's end of one output: loans, publication, and the edges to its consumers.

use crate::counters::{CountersPage, OutputCounter};
use crate::edge::{Announcements, Edge, OutputEdge, Reference, accepted};
use crate::fork;
use crate::loan::{LoanedBlock, PayloadLoan};
use crate::pair::{MAX_ANNOUNCEMENT_BYTES, MAX_ANNOUNCEMENTS};
use crate::pool::{Block, Budget, EVICTION_PATIENCE_NANOS, Evict, NoBlock, Pool};
use crate::ring::Misbehaviour;
use crate::send::{Receipt, SendError, Wait};
use crate::slot::{INLINE_BYTES, MAX_HEAD_BYTES, SlotImage};
use crate::sync::{Ordering, Waited};
use crate::sys::{self, monotonic_nanos};
use crate::wake::OwnWakePage;
use nervure_message::Header;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// How often a blocked producer looks for room before it goes to sleep: some microseconds.
const SPINS: u32 = 64;
/// However long it waits, a blocked producer looks again so often: nobody wakes it when a socket has room again, or when
/// a hostile peer keeps others from waking it.
const BLOCKED_RECHECK_NANOS: u64 = 50_000_000;

/// What all outputs of a node share.
#[derive(Clone)]
pub struct Producer {
    /// The memory that they may own.
    pub budget: Arc<Budget>,
    /// The node's own wake page, for its space futex.
    pub wake: Arc<OwnWakePage>,
    /// The node's counters.
    pub counters: Arc<CountersPage>,
    /// The node's incarnation.
    pub incarnation: u32,
    /// Set by [`Producer::stop`].
    pub stopping: Arc<AtomicBool>,
    /// Told of an edge that was cut off because its consumer broke the rules.
    pub on_misbehaviour: Arc<dyn Fn(u32, Misbehaviour) + Send + Sync>,
}

impl std::fmt::Debug for Producer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Producer")
            .field("budget", &self.budget)
            .finish_non_exhaustive()
    }
}

impl Producer {
    /// Ends every blocked call, now and later.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.wake.notify_room();
    }
}

/// The producer's end of one output. Clones are the same output; any thread may use it.
#[derive(Clone)]
pub struct Output(pub(crate) Arc<Shared>);

pub(crate) struct Shared {
    name: String,
    pub(crate) producer: Producer,
    pub(crate) fork_generation: u32,
    state: Mutex<State>,
}

pub(crate) struct State {
    pub(crate) pool: Pool,
    /// Those that give way are the last.
    edges: Vec<Edge>,
    history: VecDeque<SlotImage>,
    history_depth: usize,
    sequence: u64,
    announcements: Announcements,
    /// For the next loan, as the last one left it.
    spare_image: Option<Box<SlotImage>>,
}

impl Output {
    /// Makes an output without edges, of at most `blocks` blocks, which keeps the last `history` samples.
    pub fn new(name: String, blocks: u32, history: u32, producer: Producer) -> Self {
        let state = State {
            pool: Pool::new(producer.budget.clone(), blocks),
            edges: Vec::new(),
            history: VecDeque::new(),
            history_depth: history as usize,
            sequence: 0,
            announcements: HashMap::new(),
            spare_image: None,
        };
        let fork_generation = fork::generation();
        let output = Self(Arc::new(Shared {
            name,
            producer,
            fork_generation,
            state: Mutex::new(state),
        }));
        output.0.producer.budget.join(output.as_member());
        output
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Whether anybody would receive a sample now, or later from the history. If not, filling one is in vain.
    /// Nobody would in a forked child.
    pub fn has_readers(&self) -> bool {
        if fork::check(self.0.fork_generation).is_err() {
            return false;
        }
        let state = self.state();
        state.history_depth > 0 || !state.edges.is_empty()
    }

    /// Borrows memory for a payload of `payload_bytes`, whose head will be at most `head_bytes` long.
    ///
    /// # Errors
    /// [`SendError`]: at the budget, `block` edges make it wait as `wait` says; otherwise the sample counts as
    /// missed on every edge.
    pub fn loan(
        &self,
        payload_bytes: usize,
        head_bytes: usize,
        wait: Wait,
    ) -> Result<PayloadLoan, SendError> {
        fork::check(self.0.fork_generation)?;
        if head_bytes > MAX_HEAD_BYTES {
            return Err(SendError::HeadTooLarge {
                bytes: head_bytes,
                max: MAX_HEAD_BYTES,
            });
        }
        let limit = self.0.producer.budget.limit();
        let too_large = SendError::TooLarge {
            bytes: payload_bytes as u64,
            limit,
        };
        let Some(padded) = payload_bytes.checked_next_multiple_of(8) else {
            return Err(too_large);
        };
        if padded.saturating_add(head_bytes) <= INLINE_BYTES {
            return Ok(self.lend(payload_bytes, None));
        }
        // A head that fits into the slot needs no room in the block.
        let extra = if head_bytes > INLINE_BYTES {
            head_bytes
        } else {
            0
        };
        let bytes = padded.saturating_add(extra);
        if bytes > self.0.producer.budget.largest_block() {
            return Err(too_large);
        }
        let block = self.take_block(bytes.max(1), wait)?;
        Ok(self.lend(payload_bytes, Some(block)))
    }

    /// Publishes a filled loan. The header's sequence, incarnation, boot and publication times are set here; a
    /// `stamp` of 0 becomes the time of publication.
    ///
    /// Either every edge is offered the sample or none: while a `block` edge is full, nothing is published.
    ///
    /// # Errors
    /// [`SendError`]: the loan is as it was, and can be published again.
    ///
    /// # Panics
    /// When the loan is of another output, or was published already.
    pub fn publish(
        &self,
        loan: &mut PayloadLoan,
        header: Header,
        head: &[u8],
        wait: Wait,
    ) -> Result<Receipt, SendError> {
        assert!(
            Arc::ptr_eq(&self.0, &loan.output.0),
            "a loan is published where it was made"
        );
        fork::check(self.0.fork_generation)?;
        let descriptor = loan.place(head)?;
        let reference = Reference::new(&header, &descriptor);
        let mut state = self.state();
        if state.unready_edge(&reference).is_some() {
            drop(state);
            state = self.wait_for_room(&reference, wait)?;
        }
        let header = self.complete(header, state.next_sequence());
        let mut image = loan.image.take().expect("`place` has found it");
        image.describe(&header, &descriptor);
        if let Some(row) = descriptor.block() {
            state.pool.published(row);
        }
        let receipt = state.offer_to_all(&image, &self.0.producer);
        state.spare_image = Some(image);
        Ok(receipt)
    }

    /// The receipt of a sample that found no memory, which [`Output::loan`] has counted.
    pub fn missed_by_all(&self) -> Receipt {
        let state = self.state();
        Receipt {
            queued: 0,
            missed: state.edges.iter().filter(|edge| !edge.is_observer).count() as u32,
        }
    }

    /// Makes `bytes` known to present and future consumers under `id` (a schema's or a frame's hash).
    ///
    /// # Errors
    /// [`SendError::Announcement`] when it is too large, or one too many.
    pub fn announce(&self, id: u64, bytes: &[u8]) -> Result<(), SendError> {
        fork::check(self.0.fork_generation)?;
        let mut state = self.state();
        if state.announcements.contains_key(&id) {
            return Ok(());
        }
        if bytes.len() > MAX_ANNOUNCEMENT_BYTES {
            let text = format!(
                "schema of {} bytes, at most {MAX_ANNOUNCEMENT_BYTES} are possible",
                bytes.len()
            );
            return Err(SendError::Announcement(text));
        }
        if state.announcements.len() >= MAX_ANNOUNCEMENTS {
            let text = format!(
                "output {} has changed its schema {MAX_ANNOUNCEMENTS} times",
                self.name()
            );
            return Err(SendError::Announcement(text));
        }
        state.announcements.insert(id, bytes.into());
        Ok(())
    }

    // -- for the control thread

    /// Adds an edge, and gives it the history; or, for a suspended edge of the same id, its restarted consumer.
    ///
    /// # Errors
    /// `InvalidInput` when the edge's regions do not fit this output.
    pub fn attach(&self, attached: OutputEdge) -> std::io::Result<()> {
        let mut state = self.state();
        let (rows, region) = (state.pool.rows(), &attached.region);
        if attached.queue.depth == 0
            || attached.queue.max_held == 0
            || region.blocks() < rows
            || (region.capacity() as u64) < u64::from(attached.queue.depth)
            || !attached.bell.has_input(attached.input)
        {
            let text = format!(
                "edge {}: its queue is empty, or its region or wake page too small for it",
                attached.id
            );
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, text));
        }
        state.attach(attached, &self.0.producer);
        drop(state);
        self.0.producer.wake.notify_room();
        Ok(())
    }

    /// An edge gives way from now on: when memory is short, what waits in its queue is given up for the others.
    pub fn mark_as_observer(&self, edge: u32) {
        let mut state = self.state();
        if let Some(edge) = state
            .edges
            .iter_mut()
            .find(|known| known.attached.id == edge)
        {
            edge.is_observer = true;
        }
        state.edges.sort_by_key(|edge| edge.is_observer);
    }

    /// A row of the counters is another edge's from now on, which is about to be attached to this output.
    pub fn clear_counters(&self, row: u32) {
        let _state = self.state();
        if let Some(row) = self.0.producer.counters.output_row(row) {
            row.clear();
        }
    }

    /// Removes an edge whose consumer is gone, or keeps it for the consumer's next incarnation.
    pub fn detach(&self, edge: u32, suspended: bool) {
        self.state().detach(edge, suspended, &self.0.producer);
        self.0.producer.wake.notify_room();
    }

    /// Takes in what came from pair `peer`: acknowledgements of evictions, or the wish to be told again of segments.
    pub fn acknowledge(&self, peer: u32, segments: &[u32]) {
        self.state().acknowledge(peer, segments);
        self.0.producer.wake.notify_room();
    }

    // -- helpers

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lend(&self, payload_bytes: usize, block: Option<LoanedBlock>) -> PayloadLoan {
        let image = self.state().spare_image.take().unwrap_or_default();
        PayloadLoan {
            output: self.clone(),
            payload_bytes,
            block,
            image: Some(image),
        }
    }

    fn complete(&self, header: Header, sequence: u64) -> Header {
        let publish_utc = sys::utc_nanos();
        Header {
            sequence,
            incarnation: self.0.producer.incarnation,
            publish_mono: monotonic_nanos(),
            publish_utc,
            boot_id: sys::boot_id(),
            stamp: if header.stamp == 0 {
                publish_utc
            } else {
                header.stamp
            },
            ..header
        }
    }

    fn take_block(&self, bytes: usize, wait: Wait) -> Result<LoanedBlock, SendError> {
        let patience = monotonic_nanos() + EVICTION_PATIENCE_NANOS;
        loop {
            let evicting = match self.try_take_block(bytes) {
                Ok(block) => return Ok(block),
                Err(NoBlock::System(error)) => return Err(error.into()),
                Err(NoBlock::Rows) => false,
                Err(NoBlock::Budget { evicting, .. }) => evicting,
            };
            let blocks = self.state().blocking_consumer();
            // Even where the policy is to drop, an eviction that is under way is worth its microseconds.
            let wait = match (&blocks, wait) {
                (Some(_), wait) => wait,
                (None, Wait::Never) => Wait::Never,
                (None, _) if evicting && monotonic_nanos() < patience => Wait::Until(patience),
                (None, _) => Wait::Never,
            };
            if wait == Wait::Never {
                return Err(match blocks {
                    Some(consumer) => SendError::WouldBlock { consumer },
                    None => self.out_of_memory(bytes),
                });
            }
            let try_again = || match self.try_take_block(bytes) {
                Ok(block) => Some(Ok(block)),
                Err(NoBlock::System(error)) => Some(Err(error.into())),
                Err(NoBlock::Rows | NoBlock::Budget { .. }) => None,
            };
            match self.wait_for(wait, try_again) {
                Ok(found) => return found,
                // Without a `block` edge this was patience, and it is over.
                Err(SendError::TimedOut { .. }) if blocks.is_none() => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn try_take_block(&self, bytes: usize) -> Result<LoanedBlock, NoBlock> {
        let take = || {
            let mut state = self.state();
            let row = state.take_block(bytes, &self.0.producer.counters)?;
            Ok(LoanedBlock::new(&state.pool, row))
        };
        match take() {
            Err(NoBlock::Budget { bytes, .. })
                if self
                    .0
                    .producer
                    .budget
                    .evict_elsewhere(&self.as_member(), bytes) =>
            {
                take().map_err(|none| match none {
                    NoBlock::Budget { bytes, .. } => NoBlock::Budget {
                        bytes,
                        evicting: true,
                    },
                    other => other,
                })
            }
            result => result,
        }
    }

    fn as_member(&self) -> Weak<dyn Evict> {
        Arc::downgrade(&self.0) as Weak<dyn Evict>
    }

    /// Counts a sample that found no memory.
    fn out_of_memory(&self, bytes: usize) -> SendError {
        let Producer {
            counters, budget, ..
        } = &self.0.producer;
        self.state().count_missed_memory(counters);
        SendError::OutOfMemory {
            bytes: bytes as u64,
            used: budget.used(),
            limit: budget.limit(),
        }
    }

    #[cold]
    fn wait_for_room(
        &self,
        sample: &Reference,
        wait: Wait,
    ) -> Result<MutexGuard<'_, State>, SendError> {
        let room = || {
            let mut state = self.state();
            state.unready_edge(sample).is_none().then_some(state)
        };
        for _ in 0..SPINS {
            if let Some(state) = room() {
                return Ok(state);
            }
            if wait == Wait::Never {
                break;
            }
            std::hint::spin_loop();
        }
        if wait == Wait::Never {
            let mut state = self.state();
            return match state.unready_edge(sample) {
                None => Ok(state),
                Some(index) => Err(SendError::WouldBlock {
                    consumer: state.edges[index].attached.consumer.clone(),
                }),
            };
        }
        self.wait_for(wait, room)
    }

    /// Waits on the space futex until `look` finds something, counting the time for the edge in the way.
    fn wait_for<T>(&self, wait: Wait, mut look: impl FnMut() -> Option<T>) -> Result<T, SendError> {
        let deadline = match wait {
            Wait::Until(deadline) => deadline,
            _ => u64::MAX,
        };
        let producer = &self.0.producer;
        let stopped = || producer.stopping.load(Ordering::SeqCst);
        loop {
            let began = monotonic_nanos();
            let until = deadline.min(began + BLOCKED_RECHECK_NANOS);
            let look_unless_stopped = || {
                if stopped() {
                    Some(Err(SendError::Stopped))
                } else {
                    look().map(Ok)
                }
            };
            let waited = match producer.wake.wait_for_room(until, look_unless_stopped) {
                Ok(result) => return result,
                Err(waited) => waited,
            };
            let now = monotonic_nanos();
            let consumer = self.state().count_blocked(now - began, &producer.counters);
            match waited {
                Waited::Interrupted => return Err(SendError::Interrupted),
                _ if now >= deadline => return look().ok_or(SendError::TimedOut { consumer }),
                Waited::LookAgain | Waited::TimedOut => {}
            }
        }
    }
}

impl std::fmt::Debug for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Output")
            .field("name", &self.0.name)
            .finish_non_exhaustive()
    }
}

impl Evict for Shared {
    fn evict(&self, bytes: u64) -> bool {
        let mut guard = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *guard;
        let any = loop {
            let any = state.pool.evict(bytes, is_free(&state.edges));
            if any || !state.take_back_from_history() {
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

/// The order in which edges get a sample. Each wake-up comes after those before it: consumers take turns at being the
/// first. Observers, behind the others in `edges`, come last.
fn in_turn<T>(
    edges: &mut [T],
    turn: u64,
    is_observer: impl Fn(&T) -> bool,
) -> impl Iterator<Item = &mut T> {
    let own = edges.partition_point(|edge| !is_observer(edge));
    let (own, observers) = edges.split_at_mut(own);
    let (later, sooner) =
        own.split_at_mut(turn.checked_rem(own.len() as u64).unwrap_or(0) as usize);
    sooner.iter_mut().chain(later).chain(observers)
}

impl State {
    fn next_sequence(&mut self) -> u64 {
        let sequence = self.sequence;
        self.sequence += 1;
        sequence
    }

    fn take_block(&mut self, bytes: usize, counters: &CountersPage) -> Result<u32, NoBlock> {
        loop {
            let result = self.pool.take(bytes, is_free(&self.edges));
            self.announce_retiring();
            let gave_way = match result {
                // What is on its way will do.
                Err(NoBlock::Budget { evicting: true, .. }) => {
                    self.take_back_from_observer(counters)
                }
                Err(NoBlock::Rows | NoBlock::Budget { .. }) => {
                    self.take_back_from_observer(counters) || self.take_back_from_history()
                }
                _ => false,
            };
            if !gave_way {
                return result;
            }
        }
    }

    /// Forgets the oldest sample that the history alone still holds: what is new counts for more than what a late joiner
    /// would get. False when there is none.
    fn take_back_from_history(&mut self) -> bool {
        let Self {
            history,
            edges,
            pool,
            ..
        } = self;
        let row_alone = |image: &SlotImage| {
            let is_alone = |row: &u32| !edges.iter().any(|edge| edge.holds(*row));
            image.descriptor().block().filter(is_alone)
        };
        let Some((index, row)) = history
            .iter()
            .enumerate()
            .find_map(|(index, image)| Some((index, row_alone(image)?)))
        else {
            return false;
        };
        history.remove(index);
        pool.block_mut(row).holds -= 1;
        true
    }

    /// Takes a queued block back from an edge that gives way. False when there is none.
    fn take_back_from_observer(&mut self, counters: &CountersPage) -> bool {
        self.edges
            .iter_mut()
            .any(|edge| edge.drop_queued_block(counters))
    }

    /// Tells consumers of segments that are given up. One whose socket is full is told at the next occasion.
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

    /// The consumer that a caller at the budget waits for: any `block` edge.
    fn blocking_consumer(&self) -> Option<String> {
        self.edges
            .iter()
            .find(|edge| edge.can_block())
            .map(|edge| edge.attached.consumer.clone())
    }

    /// The first `block` edge that cannot take a sample yet.
    fn unready_edge(&mut self, sample: &Reference) -> Option<usize> {
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

    fn offer_to_all(&mut self, image: &SlotImage, producer: &Producer) -> Receipt {
        let mut receipt = Receipt::default();
        for edge in in_turn(&mut self.edges, self.sequence, |edge| edge.is_observer) {
            match edge.offer(image, &mut self.pool, &self.announcements, producer) {
                _ if edge.is_observer => {}
                true => receipt.queued += 1,
                false => receipt.missed += 1,
            }
        }
        if self.history_depth > 0 {
            self.remember(image.clone());
        }
        receipt
    }

    fn remember(&mut self, image: SlotImage) {
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

    fn attach(&mut self, attached: OutputEdge, producer: &Producer) {
        let Self {
            edges,
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
        for image in history.iter().skip(skipped) {
            edge.offer(image, pool, announcements, producer);
        }
        edges.insert(edges.partition_point(|edge| !edge.is_observer), edge);
    }

    fn detach(&mut self, id: u32, suspended: bool, producer: &Producer) {
        let Some(index) = self.edges.iter().position(|edge| edge.attached.id == id) else {
            return;
        };
        let peer = self.edges[index].attached.pair.peer;
        if suspended {
            self.edges[index].suspend(producer);
        } else {
            self.edges.remove(index).end(&producer.counters);
        }
        if !self.edges.iter().any(|edge| edge.has_peer(peer)) {
            self.pool.acknowledged(peer, None);
        }
    }

    fn acknowledge(&mut self, peer: u32, segments: &[u32]) {
        for &segment in segments {
            self.pool.acknowledged(peer, Some(segment));
        }
        for edge in self.edges.iter_mut().filter(|edge| edge.has_peer(peer)) {
            edge.announce_queued(&mut self.pool, &self.announcements);
        }
    }

    fn count_missed_memory(&mut self, counters: &CountersPage) {
        self.next_sequence();
        for edge in &self.edges {
            edge.count(counters, OutputCounter::MissedMemory, 1);
        }
    }

    /// Adds to the waiting time of the edge that is in the way, and names its consumer.
    fn count_blocked(&mut self, nanos: u64, counters: &CountersPage) -> String {
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
    use super::in_turn;

    #[test]
    fn consumers_take_turns_and_observers_come_last() {
        let mut edges = [1, 2, 3, -1, -2];
        let mut order = |turn| {
            in_turn(&mut edges, turn, |&edge| edge < 0)
                .map(|edge| *edge)
                .collect::<Vec<_>>()
        };
        assert_eq!(order(0), [1, 2, 3, -1, -2]);
        assert_eq!(order(1), [2, 3, 1, -1, -2]);
        assert_eq!(order(5), [3, 1, 2, -1, -2]);
        assert_eq!(in_turn(&mut [-1], 7, |&edge| edge < 0).count(), 1);
        assert_eq!(in_turn(&mut [], 7, |&edge: &i32| edge < 0).count(), 0);
    }
}
