//! One edge, as its producer keeps it.

use crate::atomics::Ordering;
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

/// Announcements of an output, by id.
pub(crate) type Announcements = HashMap<u64, Arc<[u8]>>;

/// An edge. Whatever its consumer can write is read once and checked; decisions rest on the private fields here.
pub(crate) struct Edge {
    pub(crate) attached: OutputEdge,
    /// The producer's own copy of the ring's head.
    head: u64,
    /// What the sample in each slot of the ring refers to: the slots themselves are the consumer's to write, too.
    slots: Box<[Reference]>,
    outstanding: OutstandingLeases,
    /// The consumer died and will be restarted: nobody pops.
    suspended: bool,
    /// The consumer has not yet been told of all that is queued.
    announcements_pending: bool,
    /// It was cut off: its consumer broke the rules.
    is_broken: bool,
    /// Its queue is given up when memory is short.
    pub(crate) is_observer: bool,
}

/// What a sample refers to, and a consumer must have been told of before it can read the sample.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reference {
    block: Option<u32>,
    segment: u32,
    /// Schema and frame; 0 for none.
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

    /// Whether a consumer can read the sample without having been told of anything.
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
            slots: vec![Reference::default(); capacity].into(),
            outstanding: OutstandingLeases::new(rows),
            suspended: false,
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

    /// Whether the process at its other end is there, and has that number.
    pub(crate) fn has_peer(&self, peer: u32) -> bool {
        !self.suspended && self.attached.pair.peer == peer
    }

    /// Whether the consumer, or its queue, has the block of that row.
    pub(crate) fn holds(&self, row: u32) -> bool {
        self.outstanding.contains(row) && is_leased(&self.attached.region.leases()[row as usize])
    }

    /// Whether the producer has to wait for it.
    pub(crate) fn can_block(&self) -> bool {
        self.attached.queue.policy == Policy::Block && !self.is_broken
    }

    /// Whether it has no room for a sample.
    pub(crate) fn is_full(&mut self, needs_block: bool) -> bool {
        self.queued() >= u64::from(self.attached.queue.depth)
            || needs_block && self.is_holding_all()
    }

    /// Whether it has room for a sample, and its consumer knows where to look.
    #[inline(never)]
    pub(crate) fn is_ready(
        &mut self,
        reference: &Reference,
        pool: &mut Pool,
        announcements: &Announcements,
    ) -> bool {
        !self.is_full(reference.block.is_some()) && self.announce(reference, pool, announcements)
    }

    /// Queues a sample, or counts why not. True when it is queued.
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
        let may_drop = self.attached.queue.policy == Policy::DropOldest;
        let missed = |edge: &Self, counter| {
            edge.count(counters, counter, 1);
            Ok(false)
        };
        let is_full =
            self.attached.region.ring().queued(self.head)? >= u64::from(self.attached.queue.depth);
        if is_full && !may_drop {
            return missed(self, OutputCounter::DroppedNewest);
        }
        if needs_block && self.is_holding_all() && !(may_drop && self.has_queued_block()?) {
            return missed(self, OutputCounter::MissedHeld);
        }
        if !self.announce(&reference, pool, announcements) {
            return missed(self, OutputCounter::MissedControl);
        }
        if is_full {
            self.drop_oldest(counters)?;
        }
        while needs_block && self.is_holding_all() {
            // The consumer may just have taken the last of those that would make room.
            if !self.has_queued_block()? {
                return missed(self, OutputCounter::MissedHeld);
            }
            self.drop_oldest(counters)?;
        }
        self.push(image, reference);
        // The consumer wakes while the producer still counts.
        self.ring();
        if let Some(row) = counters.output_row(self.attached.counters_row) {
            row.add(OutputCounter::Sent, 1);
            row.add(OutputCounter::Bytes, descriptor.payload_bytes);
        }
        Ok(true)
    }

    /// Gives up the oldest queued samples until a block of them is free. False when it does not give way, or has none.
    pub(crate) fn drop_queued_block(&mut self, counters: &CountersPage) -> bool {
        // A ring out of order is found out by the next offer.
        let gives = self.is_observer && !self.is_broken && self.has_queued_block().unwrap_or(false);
        let before = self.outstanding.len();
        while gives && self.outstanding.len() == before && self.has_queued_block().unwrap_or(false)
        {
            if self.drop_oldest(counters).is_err() {
                return false;
            }
        }
        gives
    }

    /// Tells the consumer of what was queued before it could be told, as far as its socket has room. True when it knows
    /// everything.
    #[inline(never)]
    pub(crate) fn announce_queued(
        &mut self,
        pool: &mut Pool,
        announcements: &Announcements,
    ) -> bool {
        if self.announcements_pending && !self.suspended {
            // A ring out of order is found out by the next offer.
            let queued = self.queued_references().unwrap_or_default();
            self.announcements_pending = !(queued
                .iter()
                .all(|reference| self.announce_reference(reference, pool, announcements))
                && accepted(&self.attached.pair.send_attached(self.attached.id)));
            self.ring();
        }
        !self.announcements_pending
    }

    /// The consumer is dead and will be restarted: what it had taken is lost, what is queued stays.
    pub(crate) fn suspend(&mut self, producer: &Producer) {
        self.suspended = true;
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

    /// The consumer's next incarnation is there, and inherits what is queued.
    pub(crate) fn resume(&mut self, attached: OutputEdge) {
        self.attached.bell = attached.bell;
        self.attached.eventfd = attached.eventfd;
        self.attached.pair = attached.pair;
        self.suspended = false;
    }

    /// The consumer is gone for good.
    pub(crate) fn end(self, counters: &CountersPage) {
        self.count(counters, OutputCounter::Undelivered, self.queued());
    }

    // -- helpers

    #[cold]
    fn cut_off(&mut self, misbehaviour: Misbehaviour, producer: &Producer) {
        self.is_broken = true;
        (producer.on_misbehaviour)(self.attached.id, misbehaviour);
    }

    /// Queued samples; a ring out of order counts as empty here and is found out by the next offer.
    fn queued(&self) -> u64 {
        self.attached.region.ring().queued(self.head).unwrap_or(0)
    }

    fn slot(&self, index: u64) -> usize {
        (index & (self.slots.len() as u64 - 1)) as usize
    }

    /// What the queued samples refer to, the oldest first.
    fn queued_references(&self) -> Result<Vec<Reference>, Misbehaviour> {
        let queued = self.attached.region.ring().queued(self.head)?;
        let oldest = self.head.wrapping_sub(queued);
        Ok((0..queued)
            .map(|i| self.slots[self.slot(oldest.wrapping_add(i))])
            .collect())
    }

    #[inline(never)]
    fn has_queued_block(&self) -> Result<bool, Misbehaviour> {
        let queued = self.attached.region.ring().queued(self.head)?;
        let indices = (1..=queued).rev().map(|back| self.head.wrapping_sub(back));
        Ok(indices
            .into_iter()
            .any(|index| self.slots[self.slot(index)].block.is_some()))
    }

    /// Whether the consumer, with its queue, has as many blocks as it may.
    #[inline(never)]
    fn is_holding_all(&mut self) -> bool {
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
        self.slots[slot] = reference;
        self.attached
            .region
            .ring()
            .push(self.head, |slot| image.store(slot));
        self.head = self.head.wrapping_add(1);
    }

    fn ring(&self) {
        if !self.suspended {
            self.attached
                .bell
                .ring(self.attached.input, self.attached.eventfd.as_fd());
        }
    }

    #[inline(never)]
    fn drop_oldest(&mut self, counters: &CountersPage) -> Result<(), Misbehaviour> {
        if let Some(index) = self.attached.region.ring().take_back(self.head)? {
            if let Some(row) = self.slots[self.slot(index)].block {
                self.attached.region.leases()[row as usize].store(0, Ordering::Release);
                self.outstanding.remove(row);
            }
            self.count(counters, OutputCounter::DroppedOldest, 1);
        }
        Ok(())
    }

    /// Tells the consumer what it needs to read a sample. False when its socket is full: it can be told later. While it
    /// is away it is told nothing, and the next one of all that is queued.
    #[inline]
    fn announce(
        &mut self,
        reference: &Reference,
        pool: &mut Pool,
        announcements: &Announcements,
    ) -> bool {
        self.suspended
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

/// Whether a packet was sent, or never needs to be: a consumer that is gone has been told everything.
pub(crate) fn accepted(sent: &io::Result<()>) -> bool {
    !matches!(sent, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

fn send_segment(pair: &ProducerPair, segment: u32, pool: &mut Pool) -> bool {
    // A segment that is still queued was not retired.
    let owned = pool
        .segments
        .get_mut(&segment)
        .expect("a published block's segment");
    if owned.sent_to.contains(&pair.peer) {
        return true;
    }
    let sent = pair.send_segment(segment, owned.bytes(), owned.fd.as_fd());
    if sent.is_ok() {
        owned.sent_to.push(pair.peer);
    }
    accepted(&sent)
}
