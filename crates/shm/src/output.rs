//! The producer's end of one output: loans, publication, and the edges to its consumers.

use crate::counters::{CountersPage, OutputCounter};
use crate::fork::{self, NodeForked};
use crate::pages::{EdgeRegion, WakePage};
use crate::pair::{MAX_ANNOUNCEMENT_BYTES, MAX_ANNOUNCEMENTS, ProducerPair};
use crate::pool::{Block, Budget, NoBlock, Pool};
use crate::ring::{Misbehaviour, SLOT_WORDS, is_leased};
use crate::slot::{Descriptor, INLINE_BYTES, MAX_HEAD_BYTES, NO_BLOCK, SlotImage, WORD_BLOCK};
use crate::sync::{Ordering, Waited};
use crate::sys::{self, Mapping, monotonic_nanos};
use nervure_message::Header;
use nervure_protocol::wiring::{Policy, Queue};
use rustix::fd::{AsFd, OwnedFd};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How long a loan waits for consumers to acknowledge an eviction even where the policy is to drop: it is under way
/// and takes microseconds, unless a consumer is stopped.
const EVICTION_PATIENCE_NANOS: u64 = 20_000_000;
/// How often a blocked producer looks for room before it goes to sleep: some microseconds.
const SPINS: u32 = 64;

/// How long to wait when a `block` edge is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Not at all.
    Never,
    /// Until there is room, or the node is told to stop.
    Forever,
    /// At most until this reading of CLOCK_MONOTONIC, in nanoseconds.
    Until(u64),
}

/// Why a loan or a publication failed.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// A `block` edge is full, and the call does not wait.
    #[error("the queue of consumer {consumer} is full")]
    WouldBlock {
        /// `node/input`.
        consumer: String,
    },
    /// A `block` edge stayed full until the deadline.
    #[error("the queue of consumer {consumer} stayed full until the timeout")]
    TimedOut {
        /// `node/input`.
        consumer: String,
    },
    /// A signal handler ran while the call waited.
    #[error("interrupted by a signal")]
    Interrupted,
    /// The node was told to stop while the call waited.
    #[error("the dataflow is stopping")]
    Stopped,
    /// The budget is used up by samples that consumers or queues hold. The sample is counted as missed.
    #[error(
        "no shared memory for {bytes} more bytes: {used} of {limit} are in use by samples that consumers hold; \
         drop samples sooner, use a shorter queue, or raise `shared_memory` of the node"
    )]
    OutOfMemory {
        /// What was asked for.
        bytes: u64,
        /// What is in use.
        used: u64,
        /// The node's budget.
        limit: u64,
    },
    /// The node has no such output.
    #[error("{0}")]
    UnknownOutput(String),
    /// The sample alone is larger than the budget.
    #[error(
        "a sample of {bytes} bytes is larger than the node's whole budget of {limit} bytes: \
         raise `shared_memory` of the node"
    )]
    TooLarge {
        /// What was asked for.
        bytes: u64,
        /// The node's budget.
        limit: u64,
    },
    /// Layout and metadata are too large.
    #[error("metadata and layout of {bytes} bytes, at most {max} are possible")]
    HeadTooLarge {
        /// Their size.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// The output announced too many schemas, or too large a one.
    #[error("{0}")]
    Announcement(String),
    /// The kernel refused memory.
    #[error("the system gave no shared memory: {0}")]
    System(#[from] std::io::Error),
    /// The handle was inherited by fork.
    #[error(transparent)]
    Forked(#[from] NodeForked),
}

/// A publication that did not happen, with its loan, so that it can be tried again.
#[derive(Debug)]
pub struct Unsent {
    /// The filled loan.
    pub loan: Loan,
    /// Why.
    pub cause: SendError,
}

/// What became of a publication.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Receipt {
    /// Edges in whose queue it now waits.
    pub queued: u32,
    /// Edges that missed it: counted there with the cause.
    pub missed: u32,
}

/// An edge to be attached: see `AttachOutput` of the control protocol.
#[derive(Debug)]
pub struct OutputEdge {
    /// Its id.
    pub id: u32,
    /// `node/input` of the consumer.
    pub consumer: String,
    /// The consumer's bit in its doorbell.
    pub input: u32,
    /// The queue.
    pub queue: Queue,
    /// Row in the producer's counters.
    pub counters_row: u32,
    /// Ring and leases.
    pub region: EdgeRegion,
    /// The consumer's wake page.
    pub bell: Arc<WakePage>,
    /// The consumer's eventfd.
    pub eventfd: Arc<OwnedFd>,
    /// The socket to the consumer.
    pub pair: Arc<ProducerPair>,
}

/// What all outputs of a node share.
#[derive(Clone)]
pub struct Producer {
    /// The memory that they may own.
    pub budget: Arc<Budget>,
    /// The node's own wake page, for its space futex.
    pub wake: Arc<WakePage>,
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
        f.debug_struct("Producer").field("budget", &self.budget).finish_non_exhaustive()
    }
}

impl Producer {
    /// Ends every blocked call, now and later.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.wake.space().notify();
    }
}

/// The producer's end of one output. Clones are the same output; any thread may use it.
#[derive(Clone)]
pub struct Output(Arc<Shared>);

struct Shared {
    name: String,
    producer: Producer,
    fork_generation: u32,
    state: Mutex<State>,
}

struct State {
    pool: Pool,
    edges: Vec<Edge>,
    history: VecDeque<SlotImage>,
    history_depth: usize,
    sequence: u64,
    announcements: HashMap<u64, Arc<[u8]>>,
}

struct Edge {
    attached: OutputEdge,
    /// The producer's own copy of the ring's head.
    head: u64,
    /// Rows that were leased when last looked at.
    leased: Vec<u32>,
    /// The consumer died and will be restarted: nobody pops.
    suspended: bool,
    broken: Option<Misbehaviour>,
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
        };
        Self(Arc::new(Shared {
            name,
            producer,
            fork_generation: fork::generation(),
            state: Mutex::new(state),
        }))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Whether anybody would receive a sample now, or later from the history. If not, filling one is in vain.
    pub fn has_readers(&self) -> bool {
        let state = self.state();
        state.history_depth > 0 || !state.edges.is_empty()
    }

    /// Borrows memory for a payload of `payload_bytes`, whose head will be at most `head_bytes` long.
    ///
    /// # Errors
    /// [`SendError`]: at the budget, `block` edges make it wait as `wait` says; otherwise the sample counts as
    /// missed on every edge.
    pub fn loan(&self, payload_bytes: usize, head_bytes: usize, wait: Wait) -> Result<Loan, SendError> {
        fork::check(self.0.fork_generation)?;
        if head_bytes > MAX_HEAD_BYTES {
            return Err(SendError::HeadTooLarge { bytes: head_bytes, max: MAX_HEAD_BYTES });
        }
        if payload_bytes.next_multiple_of(8) + head_bytes <= INLINE_BYTES {
            let memory = Memory::Inline(InlineBuffer([0; INLINE_BYTES]));
            return Ok(Loan { output: self.clone(), payload_bytes, memory });
        }
        // A head that fits into the slot needs no room in the block.
        let extra = if head_bytes > INLINE_BYTES { head_bytes } else { 0 };
        let bytes = payload_bytes.checked_next_multiple_of(8).and_then(|bytes| bytes.checked_add(extra));
        let limit = self.0.producer.budget.limit();
        let Some(bytes) = bytes.filter(|&bytes| bytes as u64 <= limit) else {
            return Err(SendError::TooLarge { bytes: payload_bytes as u64, limit });
        };
        let block = self.take_block(bytes.max(1), wait)?;
        Ok(Loan { output: self.clone(), payload_bytes, memory: Memory::Block(block) })
    }

    /// Publishes a filled loan. The header's sequence, incarnation, boot and publication times are set here; a
    /// `stamp` of 0 becomes the time of publication.
    ///
    /// Either every edge is offered the sample or none: while a `block` edge is full, nothing is published.
    ///
    /// # Errors
    /// [`Unsent`] with the loan, which can be published again.
    pub fn publish(
        &self,
        mut loan: Loan,
        header: Header,
        head: &[u8],
        wait: Wait,
    ) -> Result<Receipt, Box<Unsent>> {
        let unsent = |loan, cause| Err(Box::new(Unsent { loan, cause }));
        debug_assert!(Arc::ptr_eq(&self.0, &loan.output.0), "a loan is published where it was made");
        if let Err(forked) = fork::check(self.0.fork_generation) {
            return unsent(loan, forked.into());
        }
        let descriptor = match loan.place(head) {
            Ok(descriptor) => descriptor,
            Err(cause) => return unsent(loan, cause),
        };
        let mut state = match self.wait_for_room(descriptor.block != NO_BLOCK, wait) {
            Ok(state) => state,
            Err(cause) => return unsent(loan, cause),
        };
        let inline = loan.take_inline();
        let header = self.complete(header, state.next_sequence());
        let image =
            SlotImage::new(&header, &descriptor, inline.as_ref().map_or(&[], |buffer| &buffer.0), head);
        if descriptor.block != NO_BLOCK {
            // From here on consumers may hold the block: it is no longer the loan's to give back.
            state.pool.published(descriptor.block);
        }
        Ok(state.offer_to_all(image, &self.0.producer))
    }

    /// The receipt of a sample that found no memory, which [`Output::loan`] has counted.
    pub fn missed_by_all(&self) -> Receipt {
        Receipt { queued: 0, missed: self.state().edges.len() as u32 }
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
            let text =
                format!("schema of {} bytes, at most {MAX_ANNOUNCEMENT_BYTES} are possible", bytes.len());
            return Err(SendError::Announcement(text));
        }
        if state.announcements.len() >= MAX_ANNOUNCEMENTS {
            let text = format!("output {} has changed its schema {MAX_ANNOUNCEMENTS} times", self.name());
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
        if region.blocks() < rows
            || (region.capacity() as u64) < u64::from(attached.queue.depth)
            || attached.input >= attached.bell.inputs()
        {
            let text = format!("edge {}: its region or wake page is too small for it", attached.id);
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, text));
        }
        if let Some(row) = self.0.producer.counters.output_row(attached.counters_row)
            && !state.edges.iter().any(|edge| edge.attached.id == attached.id)
        {
            row.reset();
        }
        state.attach(attached, &self.0.producer);
        drop(state);
        self.0.producer.wake.space().notify();
        Ok(())
    }

    /// Removes an edge whose consumer is gone, or keeps it for the consumer's next incarnation.
    pub fn detach(&self, edge: u32, suspended: bool) {
        self.state().detach(edge, suspended, &self.0.producer.counters);
        self.0.producer.wake.space().notify();
    }

    /// Takes in acknowledgements of evictions that came from pair `peer`.
    pub fn acknowledge(&self, peer: u32, segments: &[u32]) {
        let mut state = self.state();
        for &segment in segments {
            state.pool.acknowledged(peer, Some(segment));
        }
        drop(state);
        self.0.producer.wake.space().notify();
    }

    // -- helpers

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn complete(&self, header: Header, sequence: u64) -> Header {
        let publish_utc = sys::utc_nanos();
        Header {
            sequence,
            incarnation: self.0.producer.incarnation,
            publish_mono: monotonic_nanos(),
            publish_utc,
            boot_id: sys::boot_id(),
            stamp: if header.stamp == 0 { publish_utc } else { header.stamp },
            ..header
        }
    }

    fn take_block(&self, bytes: usize, wait: Wait) -> Result<BlockLoan, SendError> {
        let patience = monotonic_nanos() + EVICTION_PATIENCE_NANOS;
        loop {
            let mut state = self.state();
            let (blocks, evicting) = match state.take_block(bytes) {
                Ok(row) => return Ok(BlockLoan::new(&state.pool, row)),
                Err(NoBlock::System(error)) => return Err(error.into()),
                Err(NoBlock::Budget { evicting }) => (state.blocking_consumer(), evicting),
            };
            let wait = match (&blocks, wait) {
                (Some(_), wait) => wait,
                (None, Wait::Never) => Wait::Never,
                (None, _) if evicting && monotonic_nanos() < patience => Wait::Until(patience),
                (None, _) => Wait::Never,
            };
            if wait == Wait::Never {
                return Err(match blocks {
                    Some(consumer) => SendError::WouldBlock { consumer },
                    None => {
                        state.count_missed_memory(&self.0.producer.counters);
                        let budget = &self.0.producer.budget;
                        SendError::OutOfMemory {
                            bytes: bytes as u64,
                            used: budget.used(),
                            limit: budget.limit(),
                        }
                    }
                });
            }
            drop(state);
            let try_again = || {
                let mut state = self.state();
                let row = state.take_block(bytes).ok()?;
                Some(BlockLoan::new(&state.pool, row))
            };
            match self.wait_for(wait, try_again) {
                Ok(found) => return Ok(found),
                // Without a `block` edge this was patience, and it is over.
                Err(SendError::TimedOut { .. }) if blocks.is_none() => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn wait_for_room(&self, needs_block: bool, wait: Wait) -> Result<MutexGuard<'_, State>, SendError> {
        let room = || {
            let mut state = self.state();
            state.full_edge(needs_block).is_none().then_some(state)
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
            return match state.full_edge(needs_block) {
                None => Ok(state),
                Some(index) => {
                    Err(SendError::WouldBlock { consumer: state.edges[index].attached.consumer.clone() })
                }
            };
        }
        self.wait_for(wait, room)
    }

    /// Waits on the space futex until `look` finds something, counting the time for the edge in the way.
    fn wait_for<T>(&self, wait: Wait, mut look: impl FnMut() -> Option<T>) -> Result<T, SendError> {
        let deadline = match wait {
            Wait::Until(deadline) => Some(deadline),
            _ => None,
        };
        let producer = &self.0.producer;
        loop {
            let began = monotonic_nanos();
            let stopped = || producer.stopping.load(Ordering::SeqCst);
            let waited = producer
                .wake
                .space()
                .wait(deadline, || if stopped() { Some(Err(SendError::Stopped)) } else { look().map(Ok) });
            let waited = match waited {
                Ok(result) => return result,
                Err(waited) => waited,
            };
            let mut state = self.state();
            let consumer = state.count_blocked(monotonic_nanos() - began, &producer.counters);
            drop(state);
            match waited {
                Waited::LookAgain => {}
                Waited::Interrupted => return Err(SendError::Interrupted),
                Waited::TimedOut => {
                    return look().ok_or(SendError::TimedOut { consumer });
                }
            }
        }
    }
}

impl std::fmt::Debug for Output {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Output").field("name", &self.0.name).finish_non_exhaustive()
    }
}

impl State {
    fn next_sequence(&mut self) -> u64 {
        let sequence = self.sequence;
        self.sequence += 1;
        sequence
    }

    fn take_block(&mut self, bytes: usize) -> Result<u32, NoBlock> {
        let edges = &self.edges;
        let is_free = |row: u32, block: &Block| {
            block.holds == 0
                && edges.iter().all(|edge| !is_leased(&edge.attached.region.leases()[row as usize]))
        };
        let result = self.pool.take(bytes, is_free);
        self.tell_retiring();
        result
    }

    /// Tells consumers of segments that are given up. One whose socket is full is told at the next occasion.
    fn tell_retiring(&mut self) {
        for retiring in self.pool.retiring.iter_mut().filter(|retiring| !retiring.told) {
            let pairs = self.edges.iter().map(|edge| &edge.attached.pair);
            let mut concerned = pairs.filter(|pair| retiring.waiting_for.contains(&pair.peer));
            retiring.told = concerned.all(|pair| pair.send_retire(retiring.segment).is_ok());
        }
    }

    /// The consumer that a caller at the budget waits for: any `block` edge.
    fn blocking_consumer(&self) -> Option<String> {
        let blocking = |edge: &&Edge| edge.attached.queue.policy == Policy::Block;
        self.edges.iter().find(blocking).map(|edge| edge.attached.consumer.clone())
    }

    /// The first `block` edge that has no room.
    fn full_edge(&mut self, needs_block: bool) -> Option<usize> {
        self.edges.iter_mut().position(|edge| {
            edge.attached.queue.policy == Policy::Block
                && edge.broken.is_none()
                && (edge.queued() >= u64::from(edge.attached.queue.depth)
                    || needs_block && edge.is_holding_all())
        })
    }

    fn offer_to_all(&mut self, mut image: SlotImage, producer: &Producer) -> Receipt {
        let mut receipt = Receipt::default();
        for edge in &mut self.edges {
            match edge.offer(&image, &mut self.pool, &self.announcements, &producer.counters) {
                Ok(true) => receipt.queued += 1,
                Ok(false) => receipt.missed += 1,
                Err(misbehaviour) => {
                    receipt.missed += 1;
                    edge.broken = Some(misbehaviour);
                    (producer.on_misbehaviour)(edge.attached.id, misbehaviour);
                }
            }
        }
        if self.history_depth > 0 {
            self.remember(&mut image);
        }
        receipt
    }

    fn remember(&mut self, image: &mut SlotImage) {
        if self.history.len() == self.history_depth
            && let Some(oldest) = self.history.pop_front()
            && let Some(row) = oldest.block()
        {
            self.pool.block_mut(row).holds -= 1;
        }
        if let Some(row) = image.block() {
            self.pool.block_mut(row).holds += 1;
        }
        self.history.push_back(image.clone());
    }

    fn attach(&mut self, attached: OutputEdge, producer: &Producer) {
        let counters = &producer.counters;
        if let Some(edge) = self.edges.iter_mut().find(|edge| edge.attached.id == attached.id) {
            // The next incarnation of a consumer: what is queued is still to come, in segments that it must have.
            edge.attached.bell = attached.bell;
            edge.attached.eventfd = attached.eventfd;
            edge.attached.pair = attached.pair;
            edge.suspended = false;
            match edge.send_queued_segments(&mut self.pool, &self.announcements) {
                Ok(()) => edge.ring(),
                Err(misbehaviour) => edge.broken = Some(misbehaviour),
            }
            return;
        }
        let mut edge = Edge { attached, head: 0, leased: Vec::new(), suspended: false, broken: None };
        let skipped = self.history.len().saturating_sub(edge.attached.queue.depth as usize);
        for image in self.history.iter().skip(skipped) {
            if let Err(misbehaviour) = edge.offer(image, &mut self.pool, &self.announcements, counters) {
                edge.broken = Some(misbehaviour);
            }
        }
        self.edges.push(edge);
    }

    fn detach(&mut self, id: u32, suspended: bool, counters: &CountersPage) {
        let Some(index) = self.edges.iter().position(|edge| edge.attached.id == id) else { return };
        let peer = self.edges[index].attached.pair.peer;
        if suspended {
            self.edges[index].suspend(counters);
        } else {
            self.edges.remove(index).end(counters);
        }
        let still_used =
            |edge: &Edge| edge.attached.pair.peer == peer && !(suspended && edge.attached.id == id);
        if !self.edges.iter().any(still_used) {
            self.pool.acknowledged(peer, None);
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
        let index = self
            .full_edge(true)
            .or_else(|| self.edges.iter().position(|edge| edge.attached.queue.policy == Policy::Block));
        index.map_or_else(String::new, |index| {
            self.edges[index].count(counters, OutputCounter::BlockedNanos, nanos);
            self.edges[index].attached.consumer.clone()
        })
    }
}

impl Edge {
    fn count(&self, counters: &CountersPage, counter: OutputCounter, amount: u64) {
        if let Some(row) = counters.output_row(self.attached.counters_row) {
            row.add(counter, amount);
        }
    }

    /// Queued samples; a ring out of order counts as empty here and is found out by the next offer.
    fn queued(&self) -> u64 {
        self.attached.region.ring().queued(self.head).unwrap_or(0)
    }

    /// Whether the consumer (with its queue) holds as many blocks as it may.
    fn is_holding_all(&mut self) -> bool {
        let max = self.attached.queue.max_held as usize;
        if self.leased.len() >= max {
            let leases = self.attached.region.leases();
            self.leased.retain(|&row| is_leased(&leases[row as usize]));
        }
        self.leased.len() >= max
    }

    /// Queues a sample, or counts why not. True when it is queued.
    fn offer(
        &mut self,
        image: &SlotImage,
        pool: &mut Pool,
        announcements: &HashMap<u64, Arc<[u8]>>,
        counters: &CountersPage,
    ) -> Result<bool, Misbehaviour> {
        if self.broken.is_some() {
            return Ok(false);
        }
        let queue = self.attached.queue;
        let missed = |edge: &Self, counter| {
            edge.count(counters, counter, 1);
            Ok(false)
        };
        let mut queued = self.attached.region.ring().queued(self.head)?;
        if queued >= u64::from(queue.depth) {
            if queue.policy != Policy::DropOldest {
                return missed(self, OutputCounter::DroppedNewest);
            }
            self.drop_oldest(counters)?;
            queued -= 1;
        }
        if let Some(row) = image.block() {
            while self.is_holding_all() {
                if queue.policy != Policy::DropOldest || queued == 0 {
                    return missed(self, OutputCounter::MissedHeld);
                }
                self.drop_oldest(counters)?;
                queued = self.attached.region.ring().queued(self.head)?;
            }
            if !self.send_segment(image.segment(), pool) {
                return missed(self, OutputCounter::MissedControl);
            }
            self.attached.region.leases()[row as usize].store(1, Ordering::Relaxed);
            self.leased.push(row);
        }
        for id in image.announced() {
            let known =
                announcements.get(&id).is_none_or(|bytes| self.attached.pair.announce(id, bytes).is_ok());
            if !known {
                self.release(image.block());
                return missed(self, OutputCounter::MissedControl);
            }
        }
        self.attached.region.ring().push(self.head, |slot| image.store(slot));
        self.head = self.head.wrapping_add(1);
        if let Some(row) = counters.output_row(self.attached.counters_row) {
            row.add(OutputCounter::Sent, 1);
            row.add(OutputCounter::Bytes, image.payload_bytes());
            row.set(OutputCounter::Queued, queued + 1);
        }
        self.ring();
        Ok(true)
    }

    fn ring(&self) {
        if !self.suspended {
            self.attached.bell.ring(self.attached.input, self.attached.eventfd.as_fd());
        }
    }

    fn drop_oldest(&mut self, counters: &CountersPage) -> Result<(), Misbehaviour> {
        if let Some(word) = self.attached.region.ring().take_back(self.head, WORD_BLOCK)? {
            self.release(SlotImage::block_of(word));
            self.count(counters, OutputCounter::DroppedOldest, 1);
        }
        Ok(())
    }

    fn release(&mut self, block: Option<u32>) {
        if let Some(row) = block {
            self.attached.region.leases()[row as usize].store(0, Ordering::Release);
            self.leased.retain(|&other| other != row);
        }
    }

    /// Makes sure that the consumer has been sent `segment`.
    fn send_segment(&self, segment: u32, pool: &mut Pool) -> bool {
        let peer = self.attached.pair.peer;
        let owned = pool.segments.get_mut(&segment).expect("a published block's segment");
        if owned.sent_to.contains(&peer) {
            return true;
        }
        let sent = self.attached.pair.send_segment(segment, owned.bytes(), owned.fd.as_fd()).is_ok();
        if sent {
            owned.sent_to.push(peer);
        }
        sent
    }

    /// The consumer is dead and will be restarted: what it had taken is lost, what is queued stays.
    fn suspend(&mut self, counters: &CountersPage) {
        self.suspended = true;
        let Ok(words) = self.attached.region.ring().peek_all(self.head, WORD_BLOCK) else { return };
        let queued: Vec<u32> = words.iter().filter_map(|&word| SlotImage::block_of(word)).collect();
        let (kept, lost): (Vec<u32>, Vec<u32>) = self.leased.iter().partition(|row| queued.contains(row));
        let leases = self.attached.region.leases();
        let lost = lost.into_iter().filter(|&row| is_leased(&leases[row as usize])).collect::<Vec<_>>();
        for &row in &lost {
            leases[row as usize].store(0, Ordering::Release);
        }
        self.leased = kept;
        self.count(counters, OutputCounter::LostInCrash, lost.len() as u64);
    }

    /// The consumer is gone for good.
    fn end(self, counters: &CountersPage) {
        self.count(counters, OutputCounter::Undelivered, self.queued());
        if let Some(row) = counters.output_row(self.attached.counters_row) {
            row.set(OutputCounter::Queued, 0);
        }
    }

    fn send_queued_segments(
        &mut self,
        pool: &mut Pool,
        announcements: &HashMap<u64, Arc<[u8]>>,
    ) -> Result<(), Misbehaviour> {
        let refused =
            Misbehaviour::Message("the restarted consumer does not accept the segments of its queue");
        for word in self.attached.region.ring().peek_all(self.head, WORD_BLOCK)? {
            if SlotImage::block_of(word).is_some() && !self.send_segment(SlotImage::segment_of(word), pool) {
                return Err(refused);
            }
        }
        for (&id, bytes) in announcements {
            self.attached.pair.announce(id, bytes).map_err(|_| refused)?;
        }
        Ok(())
    }
}

/// Memory for one payload, written in place and then published. Dropped without being published, it returns.
#[derive(Debug)]
pub struct Loan {
    output: Output,
    payload_bytes: usize,
    memory: Memory,
}

#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "an allocation for each small sample costs more than moving it"
)]
enum Memory {
    /// Small payloads travel in the ring's slot.
    Inline(InlineBuffer),
    Block(BlockLoan),
    /// Published or given back.
    Gone,
}

/// A block while it is loaned.
#[derive(Clone, Copy, Debug)]
struct BlockLoan {
    start: std::ptr::NonNull<u8>,
    row: u32,
    segment: u32,
    /// Within the segment.
    offset: u64,
    capacity: usize,
}

impl BlockLoan {
    fn new(pool: &Pool, row: u32) -> Self {
        let block = pool.block(row);
        Self {
            start: block.start,
            row,
            segment: block.segment,
            offset: block.offset as u64,
            capacity: block.capacity,
        }
    }
}

/// Keeps the memory of a loan mapped: see [`Loan::mapped`].
#[derive(Clone, Debug)]
pub struct Mapped(#[expect(dead_code, reason = "it is there to be dropped")] Arc<Mapping>);

#[derive(Debug)]
#[repr(align(64))]
struct InlineBuffer([u8; INLINE_BYTES]);

// SAFETY: a loaned block is this loan's alone until it is published; its memory lives as long as the output, which
// the loan holds.
unsafe impl Send for Loan {}
// SAFETY: shared access only reads.
unsafe impl Sync for Loan {}

impl Loan {
    /// The payload. What it reads before it is written is unspecified (zeros, or an older sample of this output).
    pub fn payload_mut(&mut self) -> &mut [u8] {
        match &mut self.memory {
            Memory::Inline(buffer) => &mut buffer.0[..self.payload_bytes],
            // SAFETY: the block holds `payload_bytes`, is mapped writable, and nobody else has it while it is loaned.
            Memory::Block(block) => unsafe {
                std::slice::from_raw_parts_mut(block.start.as_ptr(), self.payload_bytes)
            },
            Memory::Gone => &mut [],
        }
    }

    /// The payload as it is.
    pub fn payload(&self) -> &[u8] {
        match &self.memory {
            Memory::Inline(buffer) => &buffer.0[..self.payload_bytes],
            // SAFETY: the block holds `payload_bytes`, is mapped, and nobody else writes it while it is loaned.
            Memory::Block(block) => unsafe {
                std::slice::from_raw_parts(block.start.as_ptr(), self.payload_bytes)
            },
            Memory::Gone => &[],
        }
    }

    /// Keeps the payload's memory mapped when the loan has ended, for those who hand out pointers to it. `None` for a
    /// small payload that does not lie in a block, and moves with the loan.
    pub fn mapped(&self) -> Option<Mapped> {
        match &self.memory {
            Memory::Block(block) => {
                let state = self.output.state();
                state.pool.segments.get(&block.segment).map(|segment| Mapped(segment.mapping.clone()))
            }
            Memory::Inline(_) | Memory::Gone => None,
        }
    }

    /// Length of the payload in bytes.
    pub fn len(&self) -> usize {
        self.payload_bytes
    }

    /// Whether the payload is empty.
    pub fn is_empty(&self) -> bool {
        self.payload_bytes == 0
    }

    /// Shortens the payload, for sources that learn its size only by filling it (a JPEG encoder).
    pub fn truncate(&mut self, bytes: usize) {
        self.payload_bytes = self.payload_bytes.min(bytes);
    }

    /// Writes a head that does not fit into the slot behind the payload, and describes where everything is.
    fn place(&mut self, head: &[u8]) -> Result<Descriptor, SendError> {
        let payload_bytes = self.payload_bytes as u64;
        let head_bytes = head.len() as u32;
        let head_start = self.payload_bytes.next_multiple_of(8);
        match &self.memory {
            Memory::Inline(_) if head_start + head.len() <= INLINE_BYTES => {
                Ok(Descriptor { block: NO_BLOCK, segment: 0, offset: 0, payload_bytes, head_bytes })
            }
            Memory::Block(block) => {
                if head.len() > INLINE_BYTES {
                    if head.len() > MAX_HEAD_BYTES || head_start + head.len() > block.capacity {
                        let max = MAX_HEAD_BYTES.min(block.capacity - head_start);
                        return Err(SendError::HeadTooLarge { bytes: head.len(), max });
                    }
                    // SAFETY: within the block's capacity, checked above; the block is this loan's alone.
                    unsafe {
                        let target = block.start.as_ptr().add(head_start);
                        std::ptr::copy_nonoverlapping(head.as_ptr(), target, head.len());
                    }
                }
                let &BlockLoan { row: block, segment, offset, .. } = block;
                Ok(Descriptor { block, segment, offset, payload_bytes, head_bytes })
            }
            _ => Err(SendError::HeadTooLarge {
                bytes: head.len(),
                max: INLINE_BYTES.saturating_sub(head_start),
            }),
        }
    }

    /// The inline buffer, if it is one; a block is let go. The loan ends.
    fn take_inline(mut self) -> Option<InlineBuffer> {
        match std::mem::replace(&mut self.memory, Memory::Gone) {
            Memory::Inline(buffer) => Some(buffer),
            _ => None,
        }
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if let Memory::Block(BlockLoan { row, .. }) = self.memory
            && fork::check(self.output.0.fork_generation).is_ok()
        {
            self.output.state().pool.give_back(row);
            self.output.0.producer.wake.space().notify();
        }
    }
}

const _: () = assert!(SLOT_WORDS * 8 >= INLINE_BYTES);
