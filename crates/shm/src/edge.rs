//! One edge, as its producer keeps it.

use crate::counters::{CountersPage, OutputCounter};
use crate::pages::{EdgeRegion, WakePage};
use crate::pair::ProducerPair;
use crate::pool::Pool;
use crate::ring::{Misbehaviour, is_leased};
use crate::slot::{SlotImage, WORD_BLOCK};
use crate::sync::Ordering;
use nervure_protocol::wiring::{Policy, Queue};
use rustix::fd::{AsFd, OwnedFd};
use std::collections::HashMap;
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

pub(crate) struct Edge {
    pub(crate) attached: OutputEdge,
    /// The producer's own copy of the ring's head.
    pub(crate) head: u64,
    /// Rows that were leased when last looked at.
    pub(crate) leased: Vec<u32>,
    /// The consumer died and will be restarted: nobody pops.
    pub(crate) suspended: bool,
    pub(crate) broken: Option<Misbehaviour>,
}

impl Edge {
    pub(crate) fn count(&self, counters: &CountersPage, counter: OutputCounter, amount: u64) {
        if let Some(row) = counters.output_row(self.attached.counters_row) {
            row.add(counter, amount);
        }
    }

    /// Queued samples; a ring out of order counts as empty here and is found out by the next offer.
    pub(crate) fn queued(&self) -> u64 {
        self.attached.region.ring().queued(self.head).unwrap_or(0)
    }

    /// Whether the consumer (with its queue) holds as many blocks as it may.
    pub(crate) fn is_holding_all(&mut self) -> bool {
        let max = self.attached.queue.max_held as usize;
        if self.leased.len() >= max {
            let leases = self.attached.region.leases();
            self.leased.retain(|&row| is_leased(&leases[row as usize]));
        }
        self.leased.len() >= max
    }

    /// Queues a sample, or counts why not. True when it is queued.
    pub(crate) fn offer(
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
        // The consumer wakes while the producer still counts.
        self.ring();
        if let Some(row) = counters.output_row(self.attached.counters_row) {
            row.add(OutputCounter::Sent, 1);
            row.add(OutputCounter::Bytes, image.payload_bytes());
            row.set(OutputCounter::Queued, queued + 1);
        }
        Ok(true)
    }

    pub(crate) fn ring(&self) {
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
    pub(crate) fn suspend(&mut self, counters: &CountersPage) {
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
    pub(crate) fn end(self, counters: &CountersPage) {
        self.count(counters, OutputCounter::Undelivered, self.queued());
        if let Some(row) = counters.output_row(self.attached.counters_row) {
            row.set(OutputCounter::Queued, 0);
        }
    }

    pub(crate) fn send_queued_segments(
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
