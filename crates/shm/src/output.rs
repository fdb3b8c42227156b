//! The producer's end of one output: loans and publication.

use crate::atomics::Ordering;
use crate::edge::{OutputEdge, Reference};
use crate::fork;
use crate::loan::{LoanedBlock, PayloadLoan};
use crate::lock_free::Waited;
use crate::output_state::{OutputState, SharedOutput};
use crate::pool::{EVICTION_TIMEOUT_NANOS, NoBlock};
use crate::producer::Producer;
use crate::send::{Receipt, SendError, Wait};
use crate::slot::{INLINE_BYTES, MAX_HEAD_BYTES, SlotImage};
use crate::sys::{self, monotonic_nanos};
use nervure_message::Header;
use nervure_protocol::wiring::Return;
use std::sync::{Arc, MutexGuard};

/// Times that a blocked producer looks for room before it sleeps: some microseconds.
const SPINS_BEFORE_SLEEP: u32 = 64;
/// Interval at which a blocked producer looks for room without a wake-up. It gets none when a
/// socket has room again, or when a hostile peer keeps consumers from waking it.
const BLOCKED_RECHECK_NANOS: u64 = 50_000_000;
/// Interval at which a held producer looks without a wake-up, which a hostile peer can suppress.
const HELD_RECHECK_NANOS: u64 = 1_000_000_000;

/// The slot image of an earlier loan, if there is one. It is taken under the lock of the output, and a
/// missing one is allocated outside it.
type SpareImage = Option<Box<SlotImage>>;

/// The producer's end of one output. Clones are the same output, and any thread may use them.
#[derive(Clone)]
pub struct Output(pub(crate) Arc<SharedOutput>);

impl Output {
    /// Makes an output without edges. It has at most `blocks` blocks, and keeps the last `history`
    /// samples for consumers that join later.
    pub fn new(name: String, blocks: u32, history: u32, producer: Producer) -> Self {
        Self(SharedOutput::new(name, blocks, history, producer))
    }

    /// Name of the output within its node.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Whether a sample published now would be received, at once or from the history. False in a
    /// forked child.
    pub fn has_readers(&self) -> bool {
        if fork::check(self.0.fork_generation).is_err() {
            return false;
        }
        self.0.has_readers()
    }

    /// Borrows memory for a payload of `payload_bytes` whose head has at most `head_bytes`.
    ///
    /// # Errors
    /// [`SendError`]. If the budget is used up and an edge has the policy `block`, the call waits
    /// as `wait` says; without such an edge the sample counts as missed on every edge.
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
            let spare_image = self.state().spare_image.take();
            return Ok(self.make_loan(payload_bytes, None, spare_image));
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
        let (block, spare_image) = self.take_block(bytes.max(1), wait)?;
        Ok(self.make_loan(payload_bytes, Some(block), spare_image))
    }

    /// Publishes a filled loan. Sets the header's sequence, incarnation, boot id and publication
    /// times; a `stamp` of 0 becomes the time of publication.
    ///
    /// Either every edge is offered the sample or none: while a `block` edge is full, nothing is
    /// published.
    ///
    /// # Errors
    /// [`SendError`]. The loan is unchanged, and can be published again.
    ///
    /// # Panics
    /// If the loan is of another output, or was published already.
    pub fn publish(
        &self,
        loan: &mut PayloadLoan,
        header: Header,
        head: &[u8],
        wait: Wait,
    ) -> Result<Receipt, SendError> {
        assert!(
            Arc::ptr_eq(&self.0, &loan.output),
            "a loan is published where it was made"
        );
        fork::check(self.0.fork_generation)?;
        if self.0.producer.held.load(Ordering::Relaxed) {
            self.wait_for_release(wait)?;
        }
        let descriptor = loan.place(head)?;
        let reference = Reference::new(&header, &descriptor);
        let mut state = self.state();
        if state.unready_edge(&reference).is_some() {
            drop(state);
            state = self.wait_for_room(&reference, wait)?;
        }
        let header = self.complete(header, &mut state);
        let mut image = loan.image.take().expect("`place` has found it");
        image.describe(&header, &descriptor, loan.origin);
        if let Some(row) = descriptor.block() {
            state.pool.published(row);
        }
        let receipt = state.offer_to_all(&image, &self.0.producer);
        state.spare_image = Some(image);
        Ok(receipt)
    }

    /// Announces `bytes` under `id` (the hash of a schema or a frame) to present and future
    /// consumers.
    ///
    /// # Errors
    /// [`SendError::Announcement`] if it is too large, or the output has announced too many.
    pub fn announce(&self, id: u64, bytes: &[u8]) -> Result<(), SendError> {
        fork::check(self.0.fork_generation)?;
        let announced = self.state().announce(id, bytes, self.name());
        announced.map_err(SendError::Announcement)
    }

    /// The consumer for which this process must not end yet: on an edge with the policy `block`, it is
    /// restarting, or has not received the memory of its queued samples. Without this process that memory
    /// is gone.
    pub fn consumer_to_await(&self) -> Option<String> {
        self.state().consumer_to_await().map(str::to_owned)
    }

    /// Waits until there is no [`Output::consumer_to_await`], or the dataflow stops.
    pub fn await_consumers(&self) {
        let producer = &self.0.producer;
        let look = || {
            let is_over = producer.stopping.load(Ordering::SeqCst)
                || self.state().consumer_to_await().is_none();
            is_over.then_some(())
        };
        loop {
            let until = monotonic_nanos() + BLOCKED_RECHECK_NANOS;
            if producer.wake.wait_for_room(until, look).is_ok() {
                return;
            }
        }
    }

    // -- for the control thread

    /// Adds an edge and offers it the history; or resumes a suspended edge of the same id with its
    /// restarted consumer.
    ///
    /// # Errors
    /// `InvalidInput` if the edge's regions do not fit this output.
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
        self.0.note_readers(&state);
        drop(state);
        self.0.producer.wake.notify_room();
        Ok(())
    }

    /// Marks an edge as an observer's: when memory is short, its queued samples are dropped in
    /// favour of the other edges.
    pub fn mark_as_observer(&self, edge: u32) {
        self.state().mark_as_observer(edge);
    }

    /// Zeroes a row of the counters, for an edge that is about to be attached to this output.
    pub fn clear_counters(&self, row: u32) {
        let _state = self.state();
        if let Some(row) = self.0.producer.counters.output_row(row) {
            row.clear();
        }
    }

    /// Removes an edge whose consumer is gone, or suspends it until the consumer's next
    /// incarnation.
    pub fn detach(&self, edge: u32, suspended: bool) {
        let mut state = self.state();
        state.detach(edge, suspended, &self.0.producer);
        self.0.note_readers(&state);
        drop(state);
        self.0.producer.wake.notify_room();
    }

    /// Sets whether the consumer of the edges of a counters row, whose process is gone, returns. If
    /// it does, samples count as lost in that row until its next edge is attached.
    pub fn await_consumer(&self, row: u32, returns: Return) {
        let mut state = self.state();
        state.await_consumer(row, returns, &self.0.producer.counters);
        self.0.note_readers(&state);
    }

    /// Handles packets from pair `peer`: the ids of segments that the consumer has unmapped, or
    /// none if it asks for missing references.
    pub fn acknowledge(&self, peer: u32, segments: &[u32]) {
        self.state().acknowledge(peer, segments);
        self.0.producer.wake.notify_room();
    }

    // -- helpers

    fn state(&self) -> MutexGuard<'_, OutputState> {
        self.0.lock()
    }

    fn make_loan(
        &self,
        payload_bytes: usize,
        block: Option<LoanedBlock>,
        spare_image: SpareImage,
    ) -> PayloadLoan {
        PayloadLoan {
            output: self.0.clone(),
            payload_bytes,
            block,
            image: Some(spare_image.unwrap_or_default()),
            origin: None,
        }
    }

    fn complete(&self, header: Header, state: &mut OutputState) -> Header {
        let publish_utc = sys::utc_nanos();
        Header {
            sequence: state.next_sequence(),
            incarnation: self.0.producer.incarnation,
            publish_mono: state.next_time(),
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

    fn take_block(&self, bytes: usize, wait: Wait) -> Result<(LoanedBlock, SpareImage), SendError> {
        let eviction_deadline = monotonic_nanos() + EVICTION_TIMEOUT_NANOS;
        loop {
            let evicting = match self.try_take_block(bytes) {
                Ok(block) => return Ok(block),
                Err(NoBlock::System(error)) => return Err(error.into()),
                Err(NoBlock::Rows) => false,
                Err(NoBlock::Budget { evicting, .. }) => evicting,
            };
            let blocks = self.state().blocking_consumer();
            // An eviction takes microseconds, so even an edge that drops waits for one in progress.
            let wait = match (&blocks, wait) {
                (Some(_), wait) => wait,
                (None, Wait::Never) => Wait::Never,
                (None, _) if evicting && monotonic_nanos() < eviction_deadline => {
                    Wait::Until(eviction_deadline)
                }
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
                // Without a `block` edge this was the wait for an eviction, and it is over.
                Err(SendError::TimedOut { .. }) if blocks.is_none() => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn try_take_block(&self, bytes: usize) -> Result<(LoanedBlock, SpareImage), NoBlock> {
        let take = || {
            let mut state = self.state();
            let row = state.take_block(bytes, &self.0.producer.counters)?;
            Ok((LoanedBlock::new(&state.pool, row), state.spare_image.take()))
        };
        match take() {
            Err(NoBlock::Budget { bytes, .. })
                if self
                    .0
                    .producer
                    .budget
                    .evict_elsewhere(&self.0.as_member(), bytes) =>
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

    /// Counts a sample that found no memory, and returns the error.
    fn out_of_memory(&self, bytes: usize) -> SendError {
        let Producer {
            counters, budget, ..
        } = &self.0.producer;
        let missed = self.state().count_missed_memory(counters);
        SendError::OutOfMemory {
            missed,
            bytes: bytes as u64,
            used: budget.used(),
            limit: budget.limit(),
        }
    }

    #[cold]
    fn wait_for_release(&self, wait: Wait) -> Result<(), SendError> {
        let deadline = match wait {
            Wait::Never => return Err(SendError::Paused),
            Wait::Until(deadline) => deadline,
            Wait::Forever => u64::MAX,
        };
        let producer = &self.0.producer;
        let look = || {
            if self.is_stopping() {
                return Some(Err(SendError::Stopped));
            }
            (!producer.held.load(Ordering::SeqCst)).then_some(Ok(()))
        };
        loop {
            let until = deadline.min(monotonic_nanos() + HELD_RECHECK_NANOS);
            match producer.wake.wait_for_room(until, look) {
                Ok(result) => return result,
                Err(Waited::Interrupted) => return Err(SendError::Interrupted),
                Err(_) if monotonic_nanos() >= deadline => return Err(SendError::Paused),
                Err(Waited::LookAgain | Waited::TimedOut) => {}
            }
        }
    }

    /// Whether the dataflow stops. A call that asks is cut short by that.
    fn is_stopping(&self) -> bool {
        let producer = &self.0.producer;
        let is_stopping = producer.stopping.load(Ordering::SeqCst);
        if is_stopping {
            producer.cut_short.store(true, Ordering::SeqCst);
        }
        is_stopping
    }

    #[cold]
    fn wait_for_room(
        &self,
        sample: &Reference,
        wait: Wait,
    ) -> Result<MutexGuard<'_, OutputState>, SendError> {
        let room = || {
            let mut state = self.state();
            state.unready_edge(sample).is_none().then_some(state)
        };
        for _ in 0..SPINS_BEFORE_SLEEP {
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
                    consumer: state.consumer(index),
                }),
            };
        }
        self.wait_for(wait, room)
    }

    /// Waits on the room futex until `look` finds something. Counts the time for the edge that
    /// blocks.
    fn wait_for<T>(&self, wait: Wait, mut look: impl FnMut() -> Option<T>) -> Result<T, SendError> {
        let deadline = match wait {
            Wait::Until(deadline) => deadline,
            _ => u64::MAX,
        };
        let producer = &self.0.producer;
        loop {
            let began = monotonic_nanos();
            let until = deadline.min(began + BLOCKED_RECHECK_NANOS);
            let look_unless_stopped = || {
                if self.is_stopping() {
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
        self.0.fmt(f)
    }
}
