//! The blocks of one output: made on demand, reused hottest first, retired oldest first.
//!
//! Block sizes are geometric, four classes per octave, so that images and point clouds of varying
//! size reuse blocks. A block of 64 KB or more has a segment of its own; smaller ones share a slab.
//! A block's row is its index in the lease table of every edge.

use crate::sys::{self, Mapping, Sharing, monotonic_nanos};
use rustix::fd::{AsFd, OwnedFd};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Alignment of every block, in bytes.
pub const BLOCK_ALIGNMENT: usize = 256;
/// Blocks of this size and above have a segment of their own, in bytes.
const SLAB_LIMIT: usize = 64 * 1024;
/// Number of busy blocks, oldest first, that a loan checks before it takes the hottest free one.
const LOOK_AHEAD: usize = 4;

/// Time in which a consumer is expected to acknowledge an eviction. It takes microseconds, unless
/// the consumer is stopped.
pub(crate) const EVICTION_TIMEOUT_NANOS: u64 = 20_000_000;

/// The shared memory that one node may own, over all of its outputs.
pub struct Budget {
    limit: u64,
    used: AtomicU64,
    next_segment: AtomicU32,
    /// The outputs that share it.
    members: Mutex<Vec<Weak<dyn Evict>>>,
}

/// An output that may hold memory that another output needs.
pub(crate) trait Evict: Send + Sync {
    /// Evicts free blocks of `bytes` in total, as far as there are any. True if some of those bytes
    /// are free, or will be once consumers acknowledge.
    fn evict(&self, bytes: u64) -> bool;
}

impl Budget {
    /// Makes a budget of `limit` bytes.
    pub fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self {
            limit,
            used: AtomicU64::new(0),
            next_segment: AtomicU32::new(0),
            members: Mutex::default(),
        })
    }

    /// The limit in bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes in use, including segments that consumers have not acknowledged to have unmapped.
    pub fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// The largest block that the budget allows, in bytes.
    pub(crate) fn largest_block(&self) -> usize {
        let limit = usize::try_from(self.limit)
            .unwrap_or(usize::MAX)
            .min(isize::MAX as usize / 2);
        limit - limit % sys::page_bytes()
    }

    pub(crate) fn join(&self, member: Weak<dyn Evict>) {
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        members.retain(|member| member.strong_count() > 0);
        members.push(member);
    }

    /// Makes the other outputs evict free blocks of `bytes` in total. The caller must not hold the
    /// lock of an output.
    pub(crate) fn evict_elsewhere(&self, own: &Weak<dyn Evict>, bytes: u64) -> bool {
        let members = self
            .members
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let others = members
            .iter()
            .filter(|member| !Weak::ptr_eq(member, own))
            .filter_map(Weak::upgrade);
        others.fold(false, |any, other| any | other.evict(bytes))
    }

    fn reserve(&self, bytes: u64) -> bool {
        let fits = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= self.limit);
        self.used.fetch_update(Relaxed, Relaxed, fits).is_ok()
    }

    pub(crate) fn release(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Relaxed);
    }
}

impl std::fmt::Debug for Budget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Budget")
            .field("limit", &self.limit)
            .field("used", &self.used)
            .finish_non_exhaustive()
    }
}

/// Rounds up to a size class: four per octave.
pub(crate) fn size_class(bytes: usize) -> usize {
    let bytes = bytes.max(BLOCK_ALIGNMENT);
    let step = (1usize << bytes.ilog2()) / 4;
    bytes.next_multiple_of(step.max(BLOCK_ALIGNMENT))
}

/// The producer's record of a block.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) segment: u32,
    pub(crate) offset: usize,
    pub(crate) capacity: usize,
    pub(crate) start: std::ptr::NonNull<u8>,
    /// Number of entries of the output's history that hold the block.
    pub(crate) holds: u32,
}

/// The producer's record of a segment.
#[derive(Debug)]
pub(crate) struct OwnedSegment {
    pub(crate) fd: OwnedFd,
    pub(crate) mapping: Arc<Mapping>,
    rows: Vec<u32>,
    /// Pairs that the segment was sent to.
    pub(crate) sent_to: Vec<u32>,
    last_used: u64,
}

impl OwnedSegment {
    pub(crate) fn bytes(&self) -> usize {
        self.mapping.bytes()
    }
}

/// A segment that is no longer used, but that consumers may still map.
#[derive(Debug)]
pub(crate) struct RetiringSegment {
    pub(crate) segment: u32,
    bytes: u64,
    /// Pairs that have not acknowledged.
    pub(crate) waiting_for: Vec<u32>,
    /// Whether all consumers were asked to unmap it.
    pub(crate) announced: bool,
    since_nanos: u64,
}

/// Why no block is available.
#[derive(Debug)]
pub(crate) enum NoBlock {
    /// The output has its maximum number of blocks, and all of them are in use.
    Rows,
    /// Every block that would fit is in use, and the budget lacks `bytes` for another one.
    /// `evicting` if acknowledgements of consumers will soon free some.
    Budget { bytes: u64, evicting: bool },
    /// The kernel provided no memory.
    System(io::Error),
}

/// The blocks of one output.
pub(crate) struct Pool {
    budget: Arc<Budget>,
    blocks: Vec<Option<Block>>,
    unused_rows: Vec<u32>,
    pub(crate) segments: BTreeMap<u32, OwnedSegment>,
    /// Rows of free blocks by size class, the hottest last.
    free: BTreeMap<usize, Vec<u32>>,
    /// Rows of published blocks, the oldest first.
    busy: VecDeque<u32>,
    pub(crate) retiring: Vec<RetiringSegment>,
    uses: u64,
}

// SAFETY: the pointers in `Block` point into mappings that the pool owns, and move with it.
unsafe impl Send for Pool {}

impl Pool {
    pub(crate) fn new(budget: Arc<Budget>, rows: u32) -> Self {
        Self {
            budget,
            blocks: (0..rows).map(|_| None).collect(),
            unused_rows: (0..rows).rev().collect(),
            segments: BTreeMap::new(),
            free: BTreeMap::new(),
            busy: VecDeque::new(),
            retiring: Vec::new(),
            uses: 0,
        }
    }

    /// Number of rows that the lease tables need.
    pub(crate) fn rows(&self) -> u32 {
        self.blocks.len() as u32
    }

    pub(crate) fn block(&self, row: u32) -> &Block {
        self.blocks[row as usize].as_ref().expect("a row in use")
    }

    pub(crate) fn block_mut(&mut self, row: u32) -> &mut Block {
        self.blocks[row as usize].as_mut().expect("a row in use")
    }

    /// Takes a block of at least `bytes`: the hottest free one of the smallest class that fits, or
    /// a new one. `is_free` returns whether no consumer and no history holds a published block. The
    /// budget must allow blocks of that size: see [`Budget::largest_block`].
    pub(crate) fn take(
        &mut self,
        bytes: usize,
        is_free: impl Fn(u32, &Block) -> bool,
    ) -> Result<u32, NoBlock> {
        let class = size_class(bytes).min(self.budget.largest_block());
        self.collect(LOOK_AHEAD, &is_free);
        let row = match self.take_free(class) {
            Some(row) => row,
            None => {
                self.collect(usize::MAX, &is_free);
                match self.take_free(class) {
                    Some(row) => row,
                    None => self.grow(class)?,
                }
            }
        };
        self.uses += 1;
        let segment = self.block(row).segment;
        self.segments
            .get_mut(&segment)
            .expect("the block's segment")
            .last_used = self.uses;
        Ok(row)
    }

    /// Records that a block was published: consumers may hold it.
    pub(crate) fn published(&mut self, row: u32) {
        self.busy.push_back(row);
    }

    /// Returns a block that was loaned and not published.
    pub(crate) fn give_back(&mut self, row: u32) {
        let capacity = self.block(row).capacity;
        self.free.entry(capacity).or_default().push(row);
    }

    /// Records that a pair no longer maps `segment`, or is gone (`None`). True if bytes of the
    /// budget became free.
    pub(crate) fn acknowledged(&mut self, peer: u32, segment: Option<u32>) -> bool {
        if segment.is_none() {
            for owned in self.segments.values_mut() {
                owned.sent_to.retain(|&p| p != peer);
            }
        }
        let before = self.retiring.len();
        self.retiring.retain_mut(|retiring| {
            if segment.is_none_or(|id| id == retiring.segment) {
                retiring.waiting_for.retain(|&p| p != peer);
            }
            if retiring.waiting_for.is_empty() {
                self.budget.release(retiring.bytes);
            }
            !retiring.waiting_for.is_empty()
        });
        self.retiring.len() < before
    }

    /// Moves blocks that became free from `busy` to `free`; stops after `look_ahead` blocks that
    /// did not.
    fn collect(&mut self, look_ahead: usize, is_free: impl Fn(u32, &Block) -> bool) {
        let mut index = 0;
        while index < look_ahead.min(self.busy.len()) {
            let row = self.busy[index];
            if is_free(row, self.block(row)) {
                self.busy.remove(index);
                self.give_back(row);
            } else {
                index += 1;
            }
        }
    }

    /// Takes a free block of at most twice the size: a hot block that is too large is better than a
    /// cold one.
    fn take_free(&mut self, class: usize) -> Option<u32> {
        self.free
            .range_mut(class..=class * 2)
            .find_map(|(_, rows)| rows.pop())
    }

    fn grow(&mut self, class: usize) -> Result<u32, NoBlock> {
        if self.unused_rows.is_empty()
            && self.retire_oldest().is_none()
            && !self.reclaim_slab_rows()
        {
            return Err(NoBlock::Rows);
        }
        let bytes = self.reserve(class)?;
        let count = (bytes / class).min(self.unused_rows.len());
        let (mapping, fd) = new_segment(bytes).map_err(|error| {
            self.budget.release(bytes as u64);
            NoBlock::System(error)
        })?;
        let segment = self.budget.next_segment.fetch_add(1, Relaxed);
        let rows = self.unused_rows.split_off(self.unused_rows.len() - count);
        for (index, &row) in rows.iter().enumerate() {
            let offset = index * class;
            // SAFETY: `offset` lies within the mapping, which holds `count` blocks of `class`
            // bytes.
            let start = unsafe { mapping.start().add(offset) };
            self.blocks[row as usize] = Some(Block {
                segment,
                offset,
                capacity: class,
                start,
                holds: 0,
            });
            if index > 0 {
                self.give_back(row);
            }
        }
        let first = rows[0];
        self.segments.insert(
            segment,
            OwnedSegment {
                fd,
                mapping: Arc::new(mapping),
                rows,
                sent_to: Vec::new(),
                last_used: 0,
            },
        );
        Ok(first)
    }

    /// Frees the rows of the free blocks of a slab that is partly in use: the least recently used
    /// one. Otherwise samples of growing sizes, one of each still held, would use up the rows with
    /// slabs of which one block is in use. The memory of those blocks comes back with the slab.
    /// False if no block is free.
    fn reclaim_slab_rows(&mut self) -> bool {
        let free: BTreeSet<u32> = self.free.values().flatten().copied().collect();
        let has_free =
            |segment: &&mut OwnedSegment| segment.rows.iter().any(|row| free.contains(row));
        let slabs = self.segments.values_mut().filter(has_free);
        let Some(slab) = slabs.min_by_key(|segment| segment.last_used) else {
            return false;
        };
        let (taken, kept): (Vec<u32>, Vec<u32>) =
            slab.rows.iter().partition(|row| free.contains(row));
        slab.rows = kept;
        for rows in self.free.values_mut() {
            rows.retain(|row| !taken.contains(row));
        }
        for &row in &taken {
            self.blocks[row as usize] = None;
        }
        self.unused_rows.extend(taken);
        true
    }

    /// Reserves bytes for a slab or a block of that class. If the budget does not allow a slab, a
    /// single block suffices.
    fn reserve(&mut self, class: usize) -> Result<usize, NoBlock> {
        let wanted = if class < SLAB_LIMIT {
            (SLAB_LIMIT / class).clamp(4, 32)
        } else {
            1
        };
        let [slab, block] =
            [wanted.min(self.unused_rows.len()), 1].map(|count| sys::whole_pages(count * class));
        if self.budget.reserve(slab as u64) {
            return Ok(slab);
        }
        while !self.budget.reserve(block as u64) {
            let bytes = block as u64;
            if self.pending_eviction_bytes() >= bytes || self.retire_oldest().is_none() {
                return Err(NoBlock::Budget {
                    bytes,
                    evicting: self.pending_eviction_bytes() > 0,
                });
            }
        }
        Ok(block)
    }

    /// Evicts free blocks of `bytes` in total, for another output: see [`Evict::evict`].
    pub(crate) fn evict(&mut self, bytes: u64, is_free: impl Fn(u32, &Block) -> bool) -> bool {
        self.collect(usize::MAX, is_free);
        let mut given = self.pending_eviction_bytes();
        while given < bytes
            && let Some(more) = self.retire_oldest()
        {
            given += more;
        }
        given > 0
    }

    /// Bytes that consumers were asked to unmap and will acknowledge soon. Those of a stopped
    /// consumer do not count.
    fn pending_eviction_bytes(&self) -> u64 {
        let now = monotonic_nanos();
        let soon = |retiring: &&RetiringSegment| {
            now.saturating_sub(retiring.since_nanos) < EVICTION_TIMEOUT_NANOS
        };
        self.retiring
            .iter()
            .filter(soon)
            .map(|retiring| retiring.bytes)
            .sum()
    }

    /// Retires the segment that has been unused for longest, and returns its size. The caller
    /// notifies the consumers: see [`Pool::retiring`].
    fn retire_oldest(&mut self) -> Option<u64> {
        let is_free = |row: &u32| {
            let capacity = self.block(*row).capacity;
            self.free
                .get(&capacity)
                .is_some_and(|rows| rows.contains(row))
        };
        let free_segments = self
            .segments
            .iter()
            .filter(|(_, segment)| segment.rows.iter().all(is_free));
        let (&id, _) = free_segments.min_by_key(|(_, segment)| segment.last_used)?;
        let segment = self.segments.remove(&id).expect("found above");
        for &row in &segment.rows {
            let block = self.blocks[row as usize]
                .take()
                .expect("a row of the segment");
            if let Some(rows) = self.free.get_mut(&block.capacity) {
                rows.retain(|&other| other != row);
            }
            self.unused_rows.push(row);
        }
        let bytes = segment.bytes() as u64;
        if segment.sent_to.is_empty() {
            self.budget.release(bytes);
        } else {
            let since_nanos = monotonic_nanos();
            let waiting_for = segment.sent_to;
            self.retiring.push(RetiringSegment {
                segment: id,
                bytes,
                waiting_for,
                announced: false,
                since_nanos,
            });
        }
        Some(bytes)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let owned: u64 = self
            .segments
            .values()
            .map(|segment| segment.bytes() as u64)
            .sum();
        let retiring: u64 = self.retiring.iter().map(|retiring| retiring.bytes).sum();
        self.budget.release(owned + retiring);
    }
}

/// Makes a segment, mapped writable here and sealed against any other writable mapping.
fn new_segment(bytes: usize) -> io::Result<(Mapping, OwnedFd)> {
    let fd = sys::memfd("nervure-segment", bytes)?;
    sys::allocate(fd.as_fd(), bytes)?;
    let mapping = Mapping::new(fd.as_fd(), bytes, true, true)?;
    sys::seal(fd.as_fd(), Sharing::ReadOnly)?;
    Ok((mapping, fd))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_four_classes_per_octave_that_waste_at_most_a_fifth() {
        assert_eq!(
            [1, 256, 257, 1025, 1_555_200].map(size_class),
            [256, 256, 512, 1280, 1_572_864]
        );
        for bytes in (1..200_000).step_by(97) {
            let class = size_class(bytes);
            assert!(
                class >= bytes
                    && class.is_multiple_of(BLOCK_ALIGNMENT)
                    && size_class(class) == class
            );
            assert!(bytes < 1024 || class <= bytes + bytes / 4);
        }
    }

    #[test]
    fn the_hottest_free_block_is_reused() {
        let mut pool = Pool::new(Budget::new(1 << 30), 256);
        let free = |_: u32, _: &Block| true;
        let a = pool.take(100_000, free).unwrap();
        let b = pool.take(100_000, free).unwrap();
        pool.published(a);
        pool.published(b);
        assert_eq!(pool.take(100_000, free).unwrap(), b);
        pool.published(b);
        assert_eq!(pool.take(90_000, free).unwrap(), b);
        assert_eq!(pool.segments.len(), 2);
    }

    #[test]
    fn held_samples_of_growing_sizes_leave_rows_for_others() {
        const ROWS: u32 = 64;
        let mut pool = Pool::new(Budget::new(1 << 30), ROWS);
        let mut held = Vec::new();
        for number in 0..ROWS as usize {
            let row = pool
                .take(300 + number * 300, |row, _| !held.contains(&row))
                .expect("a row is left");
            assert!(!held.contains(&row), "{number}");
            pool.published(row);
            held.push(row);
        }
        assert!(matches!(
            pool.take(70_000, |row, _| !held.contains(&row)),
            Err(NoBlock::Rows)
        ));
        // All rows become usable again.
        for _ in 0..ROWS {
            let row = pool.take(70_000, |_, _| true).unwrap();
            pool.published(row);
        }
        assert_eq!(
            pool.unused_rows.len()
                + pool
                    .segments
                    .values()
                    .map(|it| it.rows.len())
                    .sum::<usize>(),
            64
        );
    }

    #[test]
    fn at_the_budget_the_oldest_free_segment_retires_and_counts_until_acknowledged() {
        let budget = Budget::new(300 * 1024);
        let mut pool = Pool::new(budget.clone(), 256);
        let a = pool.take(128 * 1024, |_, _| true).unwrap();
        let segment = pool.block(a).segment;
        pool.segments.get_mut(&segment).unwrap().sent_to.push(7);
        pool.published(a);
        assert!(matches!(
            pool.take(256 * 1024, |_, _| false),
            Err(NoBlock::Budget {
                evicting: false,
                ..
            })
        ));
        assert!(matches!(
            pool.take(256 * 1024, |_, _| true),
            Err(NoBlock::Budget { evicting: true, .. })
        ));
        assert_eq!(budget.used(), 128 * 1024);
        assert!(!pool.acknowledged(8, Some(segment)));
        assert!(pool.acknowledged(7, Some(segment)));
        assert_eq!(budget.used(), 0);
        pool.take(256 * 1024, |_, _| true).unwrap();
        drop(pool);
        assert_eq!(budget.used(), 0);
    }
}
