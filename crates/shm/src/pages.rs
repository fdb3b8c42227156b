//! The layout of the shared pages, other than payloads and wake pages.
//!
//! A page that one process writes begins with a cache line of constants: magic, layout version, and
//! its sizes. A process that maps the page checks them once, and uses private copies from then on.
//! An edge region has no such line: either end could overwrite it before the other end maps the
//! region. Its sizes come from the keeper's messages.

use crate::atomics::{AtomicU32, AtomicU64, Ordering::*, prefetch};
use crate::lock_free::double_buffer::DoubleBuffer;
use crate::lock_free::ring::Ring;
use crate::slot::SLOT_WORDS;
use crate::sys::{self, Mapping, Sharing};
use rustix::fd::{AsFd, OwnedFd};
use std::io;
// Private to a process, so that it is no kill point.
use std::sync::atomic::{AtomicI64, Ordering as AtomicOrdering};

/// Version of the layouts in this file. A build refuses pages of another version.
const LAYOUT_VERSION: u64 = 4;

/// Bytes of a cache line. Fields that are written on different occasions do not share one.
pub(crate) const LINE: usize = 64;

const CONTROL_MAGIC: u64 = u64::from_le_bytes(*b"nv-ctrl\0");
pub(crate) const COUNTERS_MAGIC: u64 = u64::from_le_bytes(*b"nv-cntr\0");

/// The most samples that a queue can hold.
pub const MAX_QUEUE_DEPTH: u32 = 1 << 20;
/// The most rows that a lease table can have.
pub const MAX_BLOCKS: u32 = 1 << 21;

/// Makes the memory of a page, writes its constants and seals it for `sharing`. Returns the
/// creator's own mapping, too.
pub(crate) fn create_page(
    name: &str,
    magic: u64,
    sizes: [u64; 2],
    bytes: usize,
    sharing: Sharing,
) -> io::Result<(Mapping, OwnedFd)> {
    let bytes = sys::whole_pages(bytes);
    let fd = sys::memfd(name, bytes)?;
    let mapping = Mapping::new(fd.as_fd(), bytes, true, false)?;
    sys::seal(fd.as_fd(), sharing)?;
    // SAFETY: four atomics in the first line, which every page has.
    let line = unsafe { mapping.slice_at::<AtomicU64>(0, 4) };
    for (word, value) in line.iter().zip([magic, LAYOUT_VERSION, sizes[0], sizes[1]]) {
        word.store(value, Relaxed);
    }
    Ok((mapping, fd))
}

/// Maps a received page, checks its constants, and returns its two sizes. `bytes_of` computes the
/// page's length from them, or refuses them.
pub(crate) fn map_page(
    name: &str,
    magic: u64,
    fd: &OwnedFd,
    writable: bool,
    bytes_of: impl FnOnce([u64; 2]) -> Option<usize>,
) -> io::Result<(Mapping, [u64; 2])> {
    let refused = |text: String| io::Error::new(io::ErrorKind::InvalidData, text);
    let bytes = sys::sealed_size(fd.as_fd())?;
    if bytes < LINE {
        return Err(refused(format!(
            "the {name} is {bytes} bytes long, expected at least {LINE}"
        )));
    }
    let mapping = Mapping::received(fd, bytes, writable, true)?;
    // SAFETY: four atomics in the first line, which every page has: checked above.
    let line = unsafe { mapping.slice_at::<AtomicU64>(0, 4) };
    let [found, version, a, b] = [0, 1, 2, 3].map(|i| line[i].load(Relaxed));
    if found != magic {
        return Err(refused(format!("the descriptor received is no {name}")));
    }
    if version != LAYOUT_VERSION {
        return Err(refused(format!(
            "{name} of layout version {version}, this build reads version {LAYOUT_VERSION}: \
             the two processes use different versions of Nervure"
        )));
    }
    match bytes_of([a, b]) {
        Some(expected) if sys::whole_pages(expected) == bytes => Ok((mapping, [a, b])),
        _ => Err(refused(format!(
            "the {name} is {bytes} bytes long, which contradicts its sizes ({a}, {b})"
        ))),
    }
}

/// Whether the constants of a page are unchanged.
pub(crate) fn has_head(mapping: &Mapping, magic: u64, sizes: [u64; 2]) -> bool {
    // SAFETY: four atomics in the first line, which every page has.
    let line = unsafe { mapping.slice_at::<AtomicU64>(0, 4) };
    let expected = [magic, LAYOUT_VERSION, sizes[0], sizes[1]];
    line.iter()
        .zip(expected)
        .all(|(word, value)| word.load(Relaxed) == value)
}

/// The memory of one edge: the ring and the leases. Only its two ends map it.
#[derive(Debug)]
pub struct EdgeRegion {
    mapping: Mapping,
    depth: u32,
    blocks: u32,
    capacity: usize,
}

impl EdgeRegion {
    const HEAD: usize = 0;
    const TAIL: usize = LINE;
    const LEASES: usize = 2 * LINE;

    fn slots_offset(blocks: u32) -> usize {
        (Self::LEASES + blocks as usize * size_of::<u32>()).next_multiple_of(LINE)
    }

    /// Slots and bytes of the region of a queue of `depth` samples.
    fn sizes(depth: u32, blocks: u32) -> io::Result<(usize, usize)> {
        if !(1..=MAX_QUEUE_DEPTH).contains(&depth) || !(1..=MAX_BLOCKS).contains(&blocks) {
            let text = format!(
                "queue of {depth} samples, {blocks} blocks: expected 1 to {MAX_QUEUE_DEPTH}, 1 to {MAX_BLOCKS}"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let capacity = depth.next_power_of_two() as usize;
        let slots_bytes = capacity * SLOT_WORDS * size_of::<u64>();
        let bytes = sys::whole_pages(Self::slots_offset(blocks) + slots_bytes);
        Ok((capacity, bytes))
    }

    /// Makes an empty region for a queue of `depth` samples and an output of at most `blocks`
    /// blocks.
    ///
    /// # Errors
    /// `InvalidInput` beyond [`MAX_QUEUE_DEPTH`] or [`MAX_BLOCKS`]; others if memory or descriptors
    /// run out.
    pub fn create(depth: u32, blocks: u32) -> io::Result<OwnedFd> {
        let (_, bytes) = Self::sizes(depth, blocks)?;
        let fd = sys::memfd("nervure-edge", bytes)?;
        sys::seal(fd.as_fd(), Sharing::ReadWrite)?;
        Ok(fd)
    }

    /// Maps a received region, which was made with the same sizes. The memory may hold anything: the
    /// other end may have written to it.
    ///
    /// # Errors
    /// `InvalidData` if the memory is not sealed, or is not that of such a region; `InvalidInput` as
    /// [`EdgeRegion::create`].
    pub fn map(fd: &OwnedFd, depth: u32, blocks: u32) -> io::Result<Self> {
        let (capacity, bytes) = Self::sizes(depth, blocks)?;
        Ok(Self {
            mapping: Mapping::received(fd, bytes, true, true)?,
            depth,
            blocks,
            capacity,
        })
    }

    /// Number of rows of the lease table.
    pub(crate) fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Number of slots of the ring.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    #[inline]
    pub(crate) fn ring(&self) -> Ring<'_, SLOT_WORDS> {
        // SAFETY: atomics, within the region: `map` checked its length.
        let (head, tail) = unsafe { (self.mapping.at(Self::HEAD), self.mapping.at(Self::TAIL)) };
        // SAFETY: as above.
        let slots = unsafe {
            self.mapping
                .slice_at(Self::slots_offset(self.blocks), self.capacity * SLOT_WORDS)
        };
        Ring { head, tail, slots }
    }

    /// Whether at most half of the queue's depth is queued, as far as the consumer can see.
    #[inline]
    pub(crate) fn is_half_empty(&self) -> bool {
        let ring = self.ring();
        let queued = ring
            .head
            .load(Relaxed)
            .wrapping_sub(ring.tail.load(Relaxed));
        queued <= u64::from(self.depth / 2)
    }

    /// Starts to fetch the cache lines that the next pop of a small sample reads.
    #[inline]
    pub(crate) fn prefetch_oldest(&self) {
        const LINE_WORDS: usize = LINE / size_of::<u64>();
        let ring = self.ring();
        prefetch(ring.head);
        let oldest = ring.slot(ring.tail.load(Relaxed));
        for line in oldest.chunks(LINE_WORDS).take(4) {
            prefetch(&line[0]);
        }
    }

    #[inline]
    pub(crate) fn leases(&self) -> &[AtomicU32] {
        // SAFETY: atomics, within the region: `map` checked its length.
        unsafe { self.mapping.slice_at(Self::LEASES, self.blocks as usize) }
    }
}

/// Whether a dataflow's clock and timers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// Clock and timers run.
    Running,
    /// Clock and timers stand still.
    Paused,
}

/// The page in which the keeper publishes the run state and clock of a dataflow. Nodes can only
/// read it.
///
/// The clock reads `origin + (CLOCK_MONOTONIC - base) * rate`. A real-time clock has rate 1, and
/// its origin is the system's time when the dataflow started.
#[derive(Debug)]
pub struct ControlPage {
    mapping: Mapping,
    is_creator: bool,
    /// The latest time that [`Self::now`] has returned.
    latest_reading: AtomicI64,
}

impl ControlPage {
    const VERSION: usize = LINE;
    const COPIES: usize = 2 * LINE;
    /// Number of words of a copy.
    const COUNT: usize = 4;
    const STATE: usize = 0;
    const ORIGIN: usize = 1;
    const BASE: usize = 2;
    const RATE: usize = 3;

    fn bytes() -> usize {
        Self::COPIES + 2 * Self::COUNT * size_of::<u64>()
    }

    /// Makes the page of a running dataflow with a real-time clock.
    ///
    /// # Errors
    /// If memory or descriptors run out.
    pub fn create() -> io::Result<(Self, OwnedFd)> {
        let (mapping, fd) = create_page(
            "nervure-control",
            CONTROL_MAGIC,
            [0; 2],
            Self::bytes(),
            Sharing::ReadOnly,
        )?;
        let page = Self {
            mapping,
            is_creator: true,
            latest_reading: AtomicI64::new(i64::MIN),
        };
        page.set(
            RunState::Running,
            sys::utc_nanos(),
            sys::monotonic_nanos(),
            1.0,
        );
        Ok((page, fd))
    }

    /// Maps a received page for reading.
    ///
    /// # Errors
    /// `InvalidData` if it is no control page, or of another version.
    pub fn map(fd: &OwnedFd) -> io::Result<Self> {
        let (mapping, _) = map_page("control page", CONTROL_MAGIC, fd, false, |_| {
            Some(Self::bytes())
        })?;
        Ok(Self {
            mapping,
            is_creator: false,
            latest_reading: AtomicI64::new(i64::MIN),
        })
    }

    fn latest(&self) -> DoubleBuffer<'_> {
        // SAFETY: an atomic, within the page: `create` made it that long, or `map` checked it.
        let version = unsafe { self.mapping.at(Self::VERSION) };
        // SAFETY: atomics, within the page, as above.
        let words = unsafe { self.mapping.slice_at(Self::COPIES, 2 * Self::COUNT) };
        let (even, odd) = words.split_at(Self::COUNT);
        DoubleBuffer {
            version,
            copies: [even, odd],
        }
    }

    /// Sets the run state and the clock: it reads `origin` (nanoseconds since the epoch) at `base`
    /// (nanoseconds of CLOCK_MONOTONIC), and runs at `rate` seconds per second.
    ///
    /// # Panics
    /// If the page was mapped and not created: then it is read-only.
    pub fn set(&self, state: RunState, origin: i64, base: u64, rate: f64) {
        assert!(
            self.is_creator,
            "a control page is written by its creator alone"
        );
        let mut values = [0; Self::COUNT];
        values[Self::STATE] = u64::from(state == RunState::Paused);
        values[Self::ORIGIN] = origin.cast_unsigned();
        values[Self::BASE] = base;
        values[Self::RATE] = rate.to_bits();
        self.latest().write(&values);
    }

    /// When the clock will read `time`, in nanoseconds of CLOCK_MONOTONIC; `None` if it stands
    /// still.
    pub fn monotonic_at(&self, time: i64) -> Option<u64> {
        let values = self.load();
        let rate = f64::from_bits(values[Self::RATE]);
        let ahead = time.wrapping_sub(values[Self::ORIGIN].cast_signed());
        let runs = values[Self::STATE] == 0 && rate > 0.0;
        let nanos = if rate == 1.0 {
            ahead
        } else {
            (ahead as f64 / rate) as i64
        };
        runs.then(|| values[Self::BASE].saturating_add_signed(nanos))
    }

    /// The run state, and the clock's reading at `monotonic` nanoseconds, in nanoseconds since the
    /// epoch.
    pub fn read(&self, monotonic: u64) -> (RunState, i64) {
        let values = self.load();
        let state = if values[Self::STATE] == 0 {
            RunState::Running
        } else {
            RunState::Paused
        };
        let elapsed = monotonic.wrapping_sub(values[Self::BASE]).cast_signed();
        let rate = f64::from_bits(values[Self::RATE]);
        let passed = match state {
            RunState::Paused => 0,
            RunState::Running if rate == 1.0 => elapsed,
            RunState::Running => (elapsed as f64 * rate) as i64,
        };
        (
            state,
            values[Self::ORIGIN].cast_signed().wrapping_add(passed),
        )
    }

    /// The clock's reading now, in nanoseconds since the epoch. It never goes back between two
    /// calls. (When a clock is slowed down it is set to a reading that is a moment old, and later
    /// ones may have been returned since.)
    pub fn now(&self) -> i64 {
        let (_, reads) = self.read(sys::monotonic_nanos());
        self.latest_reading
            .fetch_max(reads, AtomicOrdering::Relaxed)
            .max(reads)
    }

    fn load(&self) -> [u64; Self::COUNT] {
        self.latest().read()
    }
}
