//! Calls of the operating system: memfds, mappings, eventfds, clocks.

use crate::lock_free::Waited;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::ptr::NonNull;
use std::sync::LazyLock;

/// Nanoseconds of CLOCK_MONOTONIC.
#[inline]
pub fn monotonic_nanos() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// Nanoseconds since the Unix epoch.
#[inline]
pub fn utc_nanos() -> i64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// The first half of the kernel's random boot id, or 0 if /proc does not provide it.
pub fn boot_id() -> u64 {
    static BOOT_ID: LazyLock<u64> = LazyLock::new(|| {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let digits: String = text
            .chars()
            .filter(char::is_ascii_hexdigit)
            .take(16)
            .collect();
        u64::from_str_radix(&digits, 16).unwrap_or(0)
    });
    *BOOT_ID
}

/// Size of a memory page of this machine, in bytes.
pub fn page_bytes() -> usize {
    rustix::param::page_size()
}

/// Makes a non-blocking eventfd, for a consumer that sleeps in an event loop.
///
/// # Errors
/// If the process is out of descriptors.
pub fn eventfd() -> io::Result<OwnedFd> {
    use rustix::event::EventfdFlags;
    Ok(rustix::event::eventfd(
        0,
        EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK,
    )?)
}

/// Makes an eventfd readable.
pub(crate) fn eventfd_write(fd: BorrowedFd<'_>) {
    // It fails only if the counter is full, and then the eventfd is readable already.
    let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
}

/// Resets an eventfd, so that it is no longer readable.
pub(crate) fn eventfd_clear(fd: BorrowedFd<'_>) {
    let _ = rustix::io::read(fd, &mut [0u8; 8]);
}

/// Waits until `news` or `other` is readable, at most until `deadline` (nanoseconds of
/// CLOCK_MONOTONIC).
pub(crate) fn wait_readable(news: BorrowedFd<'_>, other: BorrowedFd<'_>, deadline: u64) -> Waited {
    let nanos = deadline.saturating_sub(monotonic_nanos());
    let timeout = Timespec {
        tv_sec: (nanos / 1_000_000_000).cast_signed(),
        tv_nsec: (nanos % 1_000_000_000).cast_signed() as _,
    };
    let mut polled = [news, other].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    match rustix::event::poll(&mut polled, Some(&timeout)) {
        Ok(0) => Waited::TimedOut,
        Ok(_) if polled[1].revents().is_empty() => Waited::LookAgain,
        Ok(_) | Err(Errno::INTR) => Waited::Interrupted,
        Err(_) => Waited::LookAgain,
    }
}

/// Starts a thread with all signals blocked, so that the program's handlers run on its own threads.
///
/// # Errors
/// If the system allows no more threads.
pub fn spawn_without_signals(
    name: &str,
    run: impl FnOnce() + Send + 'static,
) -> io::Result<std::thread::JoinHandle<()>> {
    // A thread inherits the mask. Setting it here leaves no moment in which the thread has none.
    let mut before = std::mem::MaybeUninit::uninit();
    // SAFETY: the calls initialise both sets before they read them; the sets outlive the calls.
    unsafe {
        let mut all = std::mem::MaybeUninit::uninit();
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let thread = std::thread::Builder::new()
        .name(name.to_owned())
        .stack_size(256 * 1024)
        .spawn(run);
    // SAFETY: the call above initialised `before`.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    thread
}

/// Takes ownership of descriptor `number`, which this process inherited, and makes it
/// close-on-exec. Only the first call for a number succeeds.
///
/// # Errors
/// If no such descriptor is open, was not inherited, or has an owner already.
pub fn adopt_inherited_fd(number: i32) -> io::Result<OwnedFd> {
    use rustix::fd::FromRawFd;
    static ADOPTED: std::sync::Mutex<Vec<i32>> = std::sync::Mutex::new(Vec::new());
    let mut adopted = ADOPTED
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    if number < 3 || adopted.contains(&number) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is in use already",
        ));
    }
    // SAFETY: `fd` is only used to query the number's flags, which fails if the number is closed.
    let fd = unsafe { BorrowedFd::borrow_raw(number) };
    // A descriptor opened by this process is close-on-exec. An inherited one cannot be: it survived
    // exec.
    if rustix::io::fcntl_getfd(fd)?.contains(rustix::io::FdFlags::CLOEXEC) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it was not inherited",
        ));
    }
    rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::CLOEXEC)?;
    adopted.push(number);
    // SAFETY: it is open, was inherited rather than opened by other code of this process, and is
    // adopted only once, so that the result is its only owner.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Rights of the receivers of a memfd.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// The size is sealed; both ends write.
    ReadWrite,
    /// The size is sealed. The first end that maps it writable is the only writer: it then seals it
    /// as `ReadOnly`.
    OneWriter,
    /// The size is sealed, and no new mapping may write.
    ReadOnly,
}

/// Makes a zeroed memfd of `bytes`, not yet sealed.
pub(crate) fn memfd(name: &str, bytes: usize) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // NOEXEC_SEAL came with Linux 6.3; older kernels refuse the unknown flag.
    let fd = match rustix::fs::memfd_create(name, flags | MemfdFlags::NOEXEC_SEAL) {
        Err(Errno::INVAL) => rustix::fs::memfd_create(name, flags)?,
        other => other?,
    };
    rustix::fs::ftruncate(&fd, bytes as u64)?;
    Ok(fd)
}

/// Allocates the memory of a memfd, so that a lack of memory is an error now, and not SIGBUS or a
/// hole later.
pub(crate) fn allocate(fd: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    // A signal undoes the allocations of the interrupted call. Small steps make progress even in a
    // program with frequent timers.
    const STEP: usize = 1024 * 1024;
    for start in (0..bytes).step_by(STEP) {
        let length = STEP.min(bytes - start) as u64;
        rustix::io::retry_on_intr(|| {
            rustix::fs::fallocate(
                fd,
                rustix::fs::FallocateFlags::empty(),
                start as u64,
                length,
            )
        })?;
    }
    Ok(())
}

/// Seals a memfd. `ReadOnly` must come after the writer's own mapping.
pub(crate) fn seal(fd: BorrowedFd<'_>, sharing: Sharing) -> io::Result<()> {
    let size = SealFlags::SHRINK | SealFlags::GROW;
    let seals = match sharing {
        Sharing::ReadWrite => size | SealFlags::SEAL,
        Sharing::OneWriter => size,
        Sharing::ReadOnly => size | SealFlags::FUTURE_WRITE | SealFlags::SEAL,
    };
    Ok(rustix::fs::fcntl_add_seals(fd, seals)?)
}

/// Checks that a received descriptor is a memfd that no process can shrink under a mapping (access
/// would raise SIGBUS), and returns its size.
pub(crate) fn sealed_size(fd: BorrowedFd<'_>) -> io::Result<usize> {
    sealed_bytes(fd, SealFlags::SHRINK | SealFlags::GROW)
}

fn sealed_bytes(fd: BorrowedFd<'_>, expected: SealFlags) -> io::Result<usize> {
    let seals = rustix::fs::fcntl_get_seals(fd)
        .map_err(|_| refused("the descriptor received for shared memory is no memfd"))?;
    if !seals.contains(expected) {
        return Err(refused(
            "the shared memory received is not sealed as it must be",
        ));
    }
    usize::try_from(rustix::fs::fstat(fd)?.st_size).map_err(|_| refused("negative size"))
}

fn refused(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// A mapping of a memfd, unmapped when it is dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
    fork_generation: u32,
}

// SAFETY: a mapping is plain memory of the process. Its users decide which concurrent accesses are
// sound, and reach it only through `start` and the unsafe accessors.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps the whole of `fd`, `bytes` long, shared. `populate` fills the page tables now rather
    /// than at first use.
    pub(crate) fn new(
        fd: BorrowedFd<'_>,
        bytes: usize,
        writable: bool,
        populate: bool,
    ) -> io::Result<Self> {
        let protection = if writable {
            ProtFlags::READ | ProtFlags::WRITE
        } else {
            ProtFlags::READ
        };
        let flags = if populate {
            MapFlags::SHARED | MapFlags::POPULATE
        } else {
            MapFlags::SHARED
        };
        // SAFETY: the kernel chooses a free address, so the mapping disturbs no other memory.
        let start =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, flags, fd, 0)? };
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self {
            start,
            bytes,
            fork_generation: crate::fork::generation(),
        })
    }

    /// Maps a received descriptor whose size must be exactly `bytes`.
    pub(crate) fn received(
        fd: &OwnedFd,
        bytes: usize,
        writable: bool,
        populate: bool,
    ) -> io::Result<Self> {
        let actual = sealed_size(fd.as_fd())?;
        if actual != bytes {
            let text = format!("shared memory of {actual} bytes received, expected {bytes}");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Self::new(fd.as_fd(), bytes, writable, populate)
    }

    /// Maps a received segment, of exactly `bytes`, for reading.
    ///
    /// All of it must be allocated, and sealed so that it stays allocated. Otherwise the reader
    /// would pay for the memory of a hole, however large its producer made it.
    pub(crate) fn of_segment(fd: &OwnedFd, bytes: usize) -> io::Result<Self> {
        let sealed = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE;
        let actual = sealed_bytes(fd.as_fd(), sealed)?;
        let blocks = u64::try_from(rustix::fs::fstat(fd)?.st_blocks).unwrap_or(0);
        if actual != bytes || blocks.saturating_mul(512) < bytes as u64 {
            return Err(refused("a segment of another size, or with holes"));
        }
        Self::new(fd.as_fd(), bytes, false, true)
    }

    pub(crate) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// A reference to a `T` at byte `offset`.
    ///
    /// # Safety
    /// As [`Mapping::slice_at`].
    #[inline]
    pub(crate) unsafe fn at<T>(&self, offset: usize) -> &T {
        // SAFETY: the caller guarantees what `slice_at` requires, for one `T`.
        unsafe { &self.slice_at::<T>(offset, 1)[0] }
    }

    /// `count` values of type `T`, starting at byte `offset`.
    ///
    /// # Safety
    /// The values must lie within the mapping, and be aligned. (The code that maps a page checks
    /// its length against its sizes once; every sample goes through here several times.) `T` must
    /// consist of atomics alone: valid for any bytes, and changed by other processes at any time.
    #[inline]
    pub(crate) unsafe fn slice_at<T>(&self, offset: usize, count: usize) -> &[T] {
        debug_assert!(
            offset + count * size_of::<T>() <= self.bytes,
            "beyond the mapping"
        );
        debug_assert!(
            (self.start.as_ptr() as usize + offset).is_multiple_of(align_of::<T>()),
            "misaligned"
        );
        // SAFETY: the caller guarantees that the values lie within the mapping, are aligned, and
        // consist of atomics. They are mapped as long as `self` lives.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().add(offset).cast(), count) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // After a fork the parent's handles are inert: see `fork`.
        if self.fork_generation == crate::fork::generation() {
            // SAFETY: `new` mapped the range, and every user of it borrows from `self` or holds it.
            let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
        }
    }
}

/// Makes a second descriptor for the same memfd that can only be mapped for reading.
///
/// # Errors
/// If /proc is not mounted, or descriptors run out.
pub fn read_only(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    use rustix::fd::AsRawFd;
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, rustix::fs::Mode::empty())?)
}

/// Rounds up to whole pages.
pub(crate) fn whole_pages(bytes: usize) -> usize {
    bytes.next_multiple_of(page_bytes())
}
