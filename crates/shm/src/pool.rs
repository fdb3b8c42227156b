//! The blocks of one output: made on demand, reused hottest first, retired oldest first.
//!
//! Block sizes are geometric, four classes an octave, so that images and clouds of varying size reuse blocks. A
//! block of 64 KB or more has a segment of its own; smaller ones share a slab. A block's row is its index in the
//! lease table of every edge.

use crate::sys::{self, Mapping, Sharing, monotonic_nanos};
use rustix::fd::{AsFd, OwnedFd};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Alignment of every block, in bytes.
pub const BLOCK_ALIGNMENT: usize = 256;
/// From here on a block has a segment of its own.
const SLAB_LIMIT: usize = 64 * 1024;
/// Busy blocks at the front of the queue that a loan looks at before it takes the hottest free one.
const LOOK_AHEAD: usize = 4;

/// How long a consumer is expected to take to acknowledge an eviction: it takes microseconds, unless it is stopped.
pub(crate) const EVICTION_PATIENCE_NANOS: u64 = 20_000_000;

/// The shared memory that one node may own, over all of its outputs.
pub struct Budget {
    limit: u64,
    used: AtomicU64,
    next_segment: AtomicU32,
    /// The outputs that share it.
    members: Mutex<Vec<Weak<dyn Evict>>>,
}

/// An output that may keep memory which another needs.
pub(crate) trait Evict: Send + Sync {
    /// Gives up free blocks of so many bytes, and says whether any are on their way.
    fn evict(&self, bytes: u64) -> bool;
}

impl Budget {
    /// A budget of `limit` bytes.
    pub fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self {
            limit,
            used: AtomicU64::new(0),
            next_segment: AtomicU32::new(0),
            members: Mutex::default(),
        })
    }

    /// Its limit in bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Bytes in use, those included whose unmapping consumers have not acknowledged yet.
    pub fn used(&self) -> u64 {
        self.used.load(Relaxed)
    }

    /// The largest block that it allows.
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

    /// Makes the other outputs give up free blocks of so many bytes. The caller holds no output's lock.
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

/// Rounds up to a size class: four an octave.
pub(crate) fn size_class(bytes: usize) -> usize {
    let bytes = bytes.max(BLOCK_ALIGNMENT);
    let step = (1usize << bytes.ilog2()) / 4;
    bytes.next_multiple_of(step.max(BLOCK_ALIGNMENT))
}

/// A block, as its producer keeps it.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) segment: u32,
    pub(crate) offset: usize,
    pub(crate) capacity: usize,
    pub(crate) start: std::ptr::NonNull<u8>,
    /// How many entries of the output's history hold it.
    pub(crate) holds: u32,
}

/// A segment, as its producer keeps it.
#[derive(Debug)]
pub(crate) struct OwnedSegment {
    pub(crate) fd: OwnedFd,
    pub(crate) mapping: Arc<Mapping>,
    rows: Vec<u32>,
    /// Pairs that have been sent the segment.
    pub(crate) sent_to: Vec<u32>,
    last_used: u64,
}

impl OwnedSegment {
    pub(crate) fn bytes(&self) -> usize {
        self.mapping.bytes()
    }
}

/// A segment that is no longer used, but perhaps still mapped by consumers.
#[derive(Debug)]
pub(crate) struct RetiringSegment {
    pub(crate) segment: u32,
    bytes: u64,
    /// Pairs that have not acknowledged.
    pub(crate) waiting_for: Vec<u32>,
    /// Whether they were told.
    pub(crate) announced: bool,
    since_nanos: u64,
}

/// Why there is no block.
#[derive(Debug)]
pub(crate) enum NoBlock {
    /// As many blocks as are allowed are in use.
    Rows,
    /// Every block that would fit is in use, and the budget lacks so many bytes for another. `evicting` when
    /// acknowledgements of consumers will soon free some.
    Budget { bytes: u64, evicting: bool },
    /// The kernel gave no memory.
    System(io::Error),
}

/// The blocks of one output.
pub(crate) struct Pool {
    budget: Arc<Budget>,
    blocks: Vec<Option<Block>>,
    unused_rows: Vec<u32>,
    pub(crate) segments: BTreeMap<u32, OwnedSegment>,
    /// Free blocks by class, the hottest last.
    free: BTreeMap<usize, Vec<u32>>,
    /// Published blocks, the oldest first.
    busy: VecDeque<u32>,
    pub(crate) retiring: Vec<RetiringSegment>,
    uses: u64,
}

// SAFETY: the pointers in `Block` point into the mappings that the pool itself owns.
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

    /// Rows of the lease tables that it needs.
    pub(crate) fn rows(&self) -> u32 {
        self.blocks.len() as u32
    }

    pub(crate) fn block(&self, row: u32) -> &Block {
        self.blocks[row as usize].as_ref().expect("a row in use")
    }

    pub(crate) fn block_mut(&mut self, row: u32) -> &mut Block {
        self.blocks[row as usize].as_mut().expect("a row in use")
    }

    /// Takes a block of at least `bytes`: the hottest free one of the smallest class that fits, or a new one.
    /// `is_free` says whether no consumer and no history holds a published block any more. The budget must allow blocks
    /// of that size: see [`Budget::largest_block`].
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

    /// A block was published: consumers may hold it.
    pub(crate) fn published(&mut self, row: u32) {
        self.busy.push_back(row);
    }

    /// A block was loaned and not published.
    pub(crate) fn give_back(&mut self, row: u32) {
        let capacity = self.block(row).capacity;
        self.free.entry(capacity).or_default().push(row);
    }

    /// A pair acknowledged that it no longer maps `segment`, or is gone altogether (`None`). True when bytes of the
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

    /// Moves blocks that came free from `busy` to `free`, looking at the first `look_ahead` busy ones that did not.
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

    /// A class or two up to twice the size will do: better a hot block that is too large than a cold one.
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
            // SAFETY: `offset` is within the mapping, which holds `count` blocks of `class` bytes.
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

    /// Takes the rows of the free blocks of a slab that is in use, the one that was used least recently. Otherwise samples of
    /// growing sizes, of which somebody holds one each, would use up the rows with slabs of which one block is in use.
    /// The memory of those blocks comes back with the slab. False when no block is free.
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

    /// Reserves bytes for a slab or a block of that class. A slab is a convenience: where the budget does not allow it,
    /// one block will do.
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

    /// Gives up free blocks of so many bytes, for another output, and says whether any are on their way.
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

    /// Bytes that consumers have been asked for, and will give soon. What a stopped consumer keeps is not waited for.
    fn pending_eviction_bytes(&self) -> u64 {
        let now = monotonic_nanos();
        let soon = |retiring: &&RetiringSegment| {
            now.saturating_sub(retiring.since_nanos) < EVICTION_PATIENCE_NANOS
        };
        self.retiring
            .iter()
            .filter(soon)
            .map(|retiring| retiring.bytes)
            .sum()
    }

    /// Gives up the segment that has been free for longest, and returns its size. The caller tells consumers: see
    /// [`Pool::retiring`].
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

/// A segment, mapped writable here and nowhere else from now on.
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
    fn classes_are_four_an_octave_and_waste_at_most_a_fifth() {
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
    fn samples_of_growing_sizes_that_are_held_do_not_use_up_the_rows_of_others() {
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
        // All of it comes back.
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
    fn at_the_budget_the_oldest_free_segment_goes_and_counts_until_it_is_acknowledged() {
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
