//! The producer's end of one edge.

use crate::atomics::Ordering;
use crate::away::AwayConsumer;
use crate::counter_rows::OutputCounter;
use crate::counters::CountersPage;
use crate::lock_free::ring::is_leased;
use crate::misbehaviour::Misbehaviour;
use crate::outstanding_leases::OutstandingLeases;
use crate::pages::EdgeRegion;
use crate::pair::ProducerPair;
use crate::pool::Pool;
use crate::producer::Producer;
use crate::slot::{Descriptor, SlotImage};
use crate::wake::WakePage;
use nervure_message::Header;
use nervure_protocol::wiring::{Policy, Queue};
use rustix::fd::{AsFd, OwnedFd};
use std::collections::HashMap;
use std::io;
use std::sync::Arc;

/// An edge to attach: see `AttachOutput` of the control protocol.
#[derive(Debug)]
pub struct OutputEdge {
    /// Id of the edge within the dataflow.
    pub id: u32,
    /// The consumer, as `node/input`.
    pub consumer: String,
    /// Index of the consumer's input, which is its bit in the doorbell.
    pub input: u32,
    /// Depth, policy and the limit of held blocks.
    pub queue: Queue,
    /// The edge's row in the producer's counters.
    pub counters_row: u32,
    /// The ring and the leases.
    pub region: EdgeRegion,
    /// The consumer's wake page, for its doorbell.
    pub bell: Arc<WakePage>,
    /// The consumer's eventfd, for a consumer that sleeps in an event loop.
    pub eventfd: Arc<OwnedFd>,
    /// The socket to the consumer.
    pub pair: Arc<ProducerPair>,
}

/// The announcements of an output: schemas and frame names by their hash.
pub(crate) type Announcements = HashMap<u64, Arc<[u8]>>;

/// The producer's end of an edge. Memory that its consumer can write is read once and checked;
/// decisions depend on the private fields here.
pub(crate) struct Edge {
    pub(crate) attached: OutputEdge,
    /// The producer's own copy of the ring's `head`.
    head: u64,
    /// References of the sample in each slot. Kept here, because the consumer can write to the
    /// slots.
    references: Box<[Reference]>,
    outstanding: OutstandingLeases,
    /// The consumer died and will be restarted: the queue is kept, and not popped.
    is_suspended: bool,
    /// Segments or announcements that queued samples refer to have not all been sent.
    announcements_pending: bool,
    /// The edge was cut off: its consumer broke the protocol.
    is_broken: bool,
    /// The consumer is an observer: its queued samples are dropped when memory is short, and its
    /// losses do not count.
    pub(crate) is_observer: bool,
}

/// References of a sample: the consumer must have received all of them to read the sample.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reference {
    block: Option<u32>,
    segment: u32,
    /// Hashes of schema and frame; 0 for none.
    announced: [u64; 2],
}

impl Reference {
    pub(crate) fn new(header: &Header, descriptor: &Descriptor) -> Self {
        let announced = [header.schema_id, header.frame_id];
        Self {
            block: descriptor.block(),
            segment: descriptor.segment,
            announced,
        }
    }

    /// Whether the sample refers to nothing, so that any consumer can read it.
    #[inline]
    fn is_empty(&self) -> bool {
        self.block.is_none() && self.announced == [0, 0]
    }
}

impl Edge {
    pub(crate) fn new(attached: OutputEdge) -> Self {
        let (capacity, rows) = (attached.region.capacity(), attached.region.blocks());
        Self {
            attached,
            head: 0,
            references: vec![Reference::default(); capacity].into(),
            outstanding: OutstandingLeases::new(rows),
            is_suspended: false,
            announcements_pending: true,
            is_broken: false,
            is_observer: false,
        }
    }

    pub(crate) fn count(&self, counters: &CountersPage, counter: OutputCounter, amount: u64) {
        if let Some(row) = counters.output_row(self.attached.counters_row) {
            row.add(counter, amount);
        }
    }

    /// Whether the edge counts in that row of the producer's counters.
    pub(crate) fn has_row(&self, row: u32) -> bool {
        self.attached.counters_row == row
    }

    /// Whether the edge leads to the process `peer`, and that process is alive.
    pub(crate) fn has_peer(&self, peer: u32) -> bool {
        !self.is_suspended && self.attached.pair.peer == peer
    }

    /// Whether the consumer, or its queue, holds the block of that row.
    pub(crate) fn holds(&self, row: u32) -> bool {
        self.outstanding.contains(row) && is_leased(&self.attached.region.leases()[row as usize])
    }

    /// Whether the producer must wait while the edge is full.
    pub(crate) fn can_block(&self) -> bool {
        self.attached.queue.policy.is_lossless() && !self.is_broken
    }

    /// Whether samples are queued that only this process can make readable: the consumer has died, or has
    /// not received all that they refer to.
    pub(crate) fn owes(&self) -> bool {
        self.can_block()
            && (self.announcements_pending || self.attached.pair.is_closed())
            && self
                .queued_references()
                .is_ok_and(|queued| queued.iter().any(|reference| !reference.is_empty()))
    }

    /// Whether the edge has no room for a sample.
    pub(crate) fn is_full(&mut self, needs_block: bool) -> bool {
        self.queued() >= u64::from(self.attached.queue.depth)
            || needs_block && self.is_at_lease_limit()
    }

    /// Whether the edge has room for a sample, and its consumer has everything it needs to read it.
    #[inline(never)]
    pub(crate) fn is_ready(
        &mut self,
        reference: &Reference,
        pool: &mut Pool,
        announcements: &Announcements,
    ) -> bool {
        !self.is_full(reference.block.is_some()) && self.announce(reference, pool, announcements)
    }

    /// Queues a sample, or counts why it could not. True if it was queued.
    pub(crate) fn offer(
        &mut self,
        image: &SlotImage,
        pool: &mut Pool,
        announcements: &Announcements,
        producer: &Producer,
    ) -> bool {
        if self.is_broken {
            self.count(&producer.counters, OutputCounter::MissedControl, 1);
            return false;
        }
        let offered = self.try_offer(image, pool, announcements, &producer.counters);
        offered.unwrap_or_else(|misbehaviour| {
            self.count(&producer.counters, OutputCounter::MissedControl, 1);
            self.cut_off(misbehaviour, producer);
            false
        })
    }

    fn try_offer(
        &mut self,
        image: &SlotImage,
        pool: &mut Pool,
        announcements: &Announcements,
        counters: &CountersPage,
    ) -> Result<bool, Misbehaviour> {
        let descriptor = image.descriptor();
        let reference = Reference::new(&image.header(), &descriptor);
        let needs_block = reference.block.is_some();
        let may_drop = match self.attached.queue.policy {
            Policy::DropOldest => true,
            Policy::DropNewest | Policy::Block => false,
        };
        let missed = |edge: &Self, counter| {
            edge.count(counters, counter, 1);
            Ok(false)
        };
        let is_full =
            self.attached.region.ring().queued(self.head)? >= u64::from(self.attached.queue.depth);
        if is_full && !may_drop {
            return missed(self, OutputCounter::DroppedNewest);
        }
        if needs_block && self.is_at_lease_limit() && !(may_drop && self.has_queued_block()?) {
            return missed(self, OutputCounter::MissedHeld);
        }
        if !self.announce(&reference, pool, announcements) {
            return missed(self, OutputCounter::MissedControl);
        }
        if is_full {
            self.drop_oldest(counters)?;
        }
        while needs_block && self.is_at_lease_limit() {
            // The consumer may just have taken the last block that a drop would free.
            if !self.has_queued_block()? {
                return missed(self, OutputCounter::MissedHeld);
            }
            self.drop_oldest(counters)?;
        }
        self.push(image, reference);
        // Ring before counting, so that the consumer wakes meanwhile.
        self.ring();
        if let Some(row) = counters.output_row(self.attached.counters_row) {
            row.add(OutputCounter::Sent, 1);
            row.add(OutputCounter::Bytes, descriptor.payload_bytes);
        }
        Ok(true)
    }

    /// Drops the oldest queued samples of an observer until a block of them is free. False if the
    /// edge is not an observer's, or no block is queued.
    pub(crate) fn drop_queued_block(&mut self, counters: &CountersPage) -> bool {
        // The next offer reports an invalid ring.
        let can_drop =
            self.is_observer && !self.is_broken && self.has_queued_block().unwrap_or(false);
        let before = self.outstanding.len();
        while can_drop
            && self.outstanding.len() == before
            && self.has_queued_block().unwrap_or(false)
        {
            if self.drop_oldest(counters).is_err() {
                return false;
            }
        }
        can_drop
    }

    /// Sends the references of queued samples, as far as the socket has room. True if the consumer
    /// has everything.
    #[inline(never)]
    pub(crate) fn announce_queued(
        &mut self,
        pool: &mut Pool,
        announcements: &Announcements,
    ) -> bool {
        if self.announcements_pending && !self.is_suspended {
            // The next offer reports an invalid ring.
            let queued = self.queued_references().unwrap_or_default();
            self.announcements_pending = !(queued
                .iter()
                .all(|reference| self.announce_reference(reference, pool, announcements))
                && accepted(&self.attached.pair.send_attached(self.attached.id)));
            self.ring();
        }
        !self.announcements_pending
    }

    /// Prepares the edge for a restart of its dead consumer: samples that the consumer had taken
    /// are lost, and queued ones remain.
    pub(crate) fn suspend(&mut self, producer: &Producer) {
        self.is_suspended = true;
        self.announcements_pending = true;
        let queued = self.queued_references().unwrap_or_else(|misbehaviour| {
            self.cut_off(misbehaviour, producer);
            Vec::new()
        });
        let queued: Vec<u32> = queued.iter().filter_map(|sample| sample.block).collect();
        let leases = self.attached.region.leases();
        let mut lost = 0;
        self.outstanding.retain(|row| {
            let is_queued = queued.contains(&row);
            if !is_queued && is_leased(&leases[row as usize]) {
                leases[row as usize].store(0, Ordering::Release);
                lost += 1;
            }
            is_queued
        });
        self.count(&producer.counters, OutputCounter::LostInCrash, lost);
    }

    /// Connects the consumer's next incarnation, which inherits the queue.
    pub(crate) fn resume(&mut self, attached: OutputEdge) {
        self.attached.bell = attached.bell;
        self.attached.eventfd = attached.eventfd;
        self.attached.pair = attached.pair;
        self.is_suspended = false;
    }

    /// Ends the edge: no process of the consumer inherits its queue. `away` is the consumer, if it
    /// may return.
    pub(crate) fn end(self, away: Option<&mut AwayConsumer>, counters: &CountersPage) {
        match away {
            Some(away) => away.take_queue(self.queued(), counters),
            None => self.count(counters, OutputCounter::Undelivered, self.queued()),
        }
    }

    // -- helpers

    #[cold]
    fn cut_off(&mut self, misbehaviour: Misbehaviour, producer: &Producer) {
        self.is_broken = true;
        (producer.on_misbehaviour)(self.attached.id, misbehaviour);
    }

    /// Number of queued samples. An invalid ring counts as empty; the next offer reports it.
    fn queued(&self) -> u64 {
        self.attached.region.ring().queued(self.head).unwrap_or(0)
    }

    fn slot(&self, index: u64) -> usize {
        (index & (self.references.len() as u64 - 1)) as usize
    }

    /// References of the queued samples, oldest first.
    fn queued_references(&self) -> Result<Vec<Reference>, Misbehaviour> {
        let queued = self.attached.region.ring().queued(self.head)?;
        let oldest = self.head.wrapping_sub(queued);
        Ok((0..queued)
            .map(|i| self.references[self.slot(oldest.wrapping_add(i))])
            .collect())
    }

    #[inline(never)]
    fn has_queued_block(&self) -> Result<bool, Misbehaviour> {
        let queued = self.attached.region.ring().queued(self.head)?;
        let indices = (1..=queued).rev().map(|back| self.head.wrapping_sub(back));
        Ok(indices
            .into_iter()
            .any(|index| self.references[self.slot(index)].block.is_some()))
    }

    /// Whether the consumer, with its queue, holds `max_held` blocks.
    #[inline(never)]
    fn is_at_lease_limit(&mut self) -> bool {
        let max = self.attached.queue.max_held as usize;
        if self.outstanding.len() >= max {
            let leases = self.attached.region.leases();
            self.outstanding
                .retain(|row| is_leased(&leases[row as usize]));
        }
        self.outstanding.len() >= max
    }

    fn push(&mut self, image: &SlotImage, reference: Reference) {
        if let Some(row) = reference.block {
            self.attached.region.leases()[row as usize].store(1, Ordering::Relaxed);
            self.outstanding.insert(row);
        }
        let slot = self.slot(self.head);
        self.references[slot] = reference;
        self.attached
            .region
            .ring()
            .push(self.head, |slot| image.store(slot));
        self.head = self.head.wrapping_add(1);
    }

    fn ring(&self) {
        if !self.is_suspended {
            self.attached
                .bell
                .ring(self.attached.input, self.attached.eventfd.as_fd());
        }
    }

    #[inline(never)]
    fn drop_oldest(&mut self, counters: &CountersPage) -> Result<(), Misbehaviour> {
        if let Some(index) = self.attached.region.ring().take_back(self.head)? {
            if let Some(row) = self.references[self.slot(index)].block {
                self.attached.region.leases()[row as usize].store(0, Ordering::Release);
                self.outstanding.remove(row);
            }
            self.count(counters, OutputCounter::DroppedOldest, 1);
        }
        Ok(())
    }

    /// Sends the references that the consumer needs to read a sample. False if its socket is full:
    /// the caller tries again later. A suspended consumer gets nothing now; its next incarnation
    /// gets the references of all queued samples.
    #[inline]
    fn announce(
        &mut self,
        reference: &Reference,
        pool: &mut Pool,
        announcements: &Announcements,
    ) -> bool {
        self.is_suspended
            || !self.announcements_pending && reference.is_empty()
            || self.announce_queued(pool, announcements)
                && self.announce_reference(reference, pool, announcements)
    }

    #[inline(never)]
    fn announce_reference(
        &self,
        reference: &Reference,
        pool: &mut Pool,
        announcements: &Announcements,
    ) -> bool {
        let pair = &self.attached.pair;
        let knows_segment =
            reference.block.is_none() || send_segment(pair, reference.segment, pool);
        let known = |id: &u64| {
            announcements
                .get(id)
                .is_none_or(|bytes| accepted(&pair.announce(*id, bytes)))
        };
        knows_segment && reference.announced.iter().all(known)
    }
}

/// Whether a packet was sent, or need not be because the consumer is gone.
pub(crate) fn accepted(sent: &io::Result<()>) -> bool {
    !matches!(sent, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

fn send_segment(pair: &ProducerPair, segment: u32, pool: &mut Pool) -> bool {
    // The segment of a queued sample is not retired.
    let owned = pool
        .segments
        .get_mut(&segment)
        .expect("a published block has a segment");
    if owned.sent_to.contains(&pair.peer) {
        return true;
    }
    let sent = pair.send_segment(segment, owned.bytes(), owned.fd.as_fd());
    if sent.is_ok() {
        owned.sent_to.push(pair.peer);
    }
    accepted(&sent)
}
