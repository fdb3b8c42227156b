//! Memory that is shared for reading can be read, and nothing else.

#![expect(
    unsafe_code,
    reason = "the tests map and remap what a reader was given"
)]

pub mod support;

use nervure_protocol::wiring::Policy;
use nervure_shm::{
    ControlPage, CountersPage, EdgeRegion, Output, ProducerPair, Received, RunState, Seqpacket,
    Wait, WakePage, eventfd, monotonic_nanos, page_bytes, read_only,
};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{FallocateFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, MprotectFlags, ProtFlags};
use std::sync::Arc;
use support::{TestNode, queue};

/// Tries everything that a reader may try with a descriptor of `bytes` bytes.
fn assert_read_only(fd: &OwnedFd, bytes: usize) {
    assert_descriptor_is_read_only(fd, bytes);
    let reopened = reopen(fd, OFlags::RDWR).expect("the owner may open it");
    assert_descriptor_is_read_only(&reopened, bytes);
    let reopened = reopen(fd, OFlags::RDONLY).expect("a descriptor");
    assert_descriptor_is_read_only(&reopened, bytes);
    assert!(
        reopen(fd, OFlags::RDWR | OFlags::TRUNC).is_err()
            || rustix::fs::fstat(fd).expect("open").st_size as usize == bytes
    );
}

fn assert_descriptor_is_read_only(fd: &OwnedFd, bytes: usize) {
    let refused = |what: &str, result: Result<(), Errno>| {
        let error = result.expect_err(what);
        assert!(
            matches!(
                error,
                Errno::PERM | Errno::ACCESS | Errno::BADF | Errno::INVAL | Errno::OPNOTSUPP
            ),
            "{what}: {error}"
        );
    };
    refused("write", rustix::io::pwrite(fd, b"x", 0).map(drop));
    refused("shrink", rustix::fs::ftruncate(fd, 0));
    refused("grow", rustix::fs::ftruncate(fd, bytes as u64 * 2));
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    refused(
        "punch a hole",
        rustix::fs::fallocate(fd, punch, 0, bytes as u64),
    );
    refused(
        "zero",
        rustix::fs::fallocate(fd, FallocateFlags::ZERO_RANGE, 0, bytes as u64),
    );
    refused(
        "collapse",
        rustix::fs::fallocate(fd, FallocateFlags::COLLAPSE_RANGE, 0, page_bytes() as u64),
    );
    refused("seal", rustix::fs::fcntl_add_seals(fd, SealFlags::WRITE));
    for flags in [MapFlags::SHARED, MapFlags::SHARED_VALIDATE] {
        refused(
            "map for writing",
            map(fd, bytes, ProtFlags::READ | ProtFlags::WRITE, flags).map(drop),
        );
        refused(
            "map for writing only",
            map(fd, bytes, ProtFlags::WRITE, flags).map(drop),
        );
    }
    let start = map(fd, bytes, ProtFlags::READ, MapFlags::SHARED).expect("reading is allowed");
    // SAFETY: the mapping was made above, nothing else uses it, and its protection is not weakened.
    unsafe {
        refused(
            "make a mapping writable",
            rustix::mm::mprotect(start, bytes, MprotectFlags::READ | MprotectFlags::WRITE),
        );
        refused(
            "remove pages",
            rustix::mm::madvise(start, bytes, Advice::LinuxRemove),
        );
        rustix::mm::munmap(start, bytes).expect("its own mapping");
    }
}

fn map(
    fd: &OwnedFd,
    bytes: usize,
    protection: ProtFlags,
    flags: MapFlags,
) -> Result<*mut std::ffi::c_void, Errno> {
    // SAFETY: the kernel chooses a free address, so the mapping disturbs no other memory.
    unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, flags, fd, 0) }
}

fn reopen(fd: &OwnedFd, flags: OFlags) -> Result<OwnedFd, Errno> {
    rustix::fs::open(
        format!("/proc/self/fd/{}", fd.as_raw_fd()),
        flags | OFlags::CLOEXEC,
        Mode::empty(),
    )
}

/// The first segment that a producer sends, as its consumer receives it.
fn received_segment(payload: &[u8]) -> (Output, OwnedFd) {
    let (producer, consumer) = (TestNode::new(1 << 30), TestNode::new(0));
    let output = producer.output(8, 0);
    let region = EdgeRegion::create(2, 8).expect("memory");
    let (a, b) = Seqpacket::pair().expect("a socket");
    let edge = consumer.output_edge(
        0,
        queue(Policy::DropOldest, 2, 4),
        (&region, 8),
        Arc::new(ProducerPair::new(a, 0)),
    );
    output.attach(edge).expect("it fits");
    let mut loan = output.loan(payload.len(), 0, Wait::Never).expect("memory");
    loan.payload_mut().copy_from_slice(payload);
    output
        .publish(
            &mut loan,
            nervure_message::Header::default(),
            b"",
            Wait::Never,
        )
        .expect("room");
    let mut buffer = Vec::with_capacity(1024);
    loop {
        match b.receive(&mut buffer).expect("a packet") {
            Received::Packet(fds) if !fds.is_empty() => {
                return (output, fds.into_iter().next().expect("one descriptor"));
            }
            Received::Packet(_) => {}
            Received::Closed => panic!("closed"),
        }
    }
}

#[test]
fn a_consumer_can_only_read_a_segment() {
    for bytes in [1000, 100_000] {
        let payload = vec![0x5a; bytes];
        let (output, fd) = received_segment(&payload);
        let length = rustix::fs::fstat(&fd).expect("a descriptor").st_size as usize;
        assert_read_only(&fd, length);
        let mut content = vec![0; bytes];
        rustix::io::pread(&fd, &mut content, 0).expect("reading is allowed");
        assert!(content == payload, "the content is unchanged");
        // The producer can still write.
        let mut loan = output.loan(bytes, 0, Wait::Never).expect("memory");
        loan.payload_mut().fill(1);
    }
}

#[test]
fn nodes_can_only_read_the_control_page() {
    let (page, fd) = ControlPage::create().expect("memory");
    assert_read_only(&fd, page_bytes());
    let node = ControlPage::map(&fd).expect("reading is allowed");
    page.set(RunState::Paused, 77, 5, 1.0);
    assert_eq!(node.read(100), (RunState::Paused, 77));
}

#[test]
fn a_clock_that_is_set_to_an_earlier_time_never_goes_back() {
    let (page, fd) = ControlPage::create().expect("memory");
    let node = ControlPage::map(&fd).expect("reading is allowed");
    let read = node.now();
    // Simulates a keeper that read the clock and was delayed before it set it.
    page.set(
        RunState::Running,
        read - 10_000_000_000,
        monotonic_nanos(),
        0.0,
    );
    assert_eq!(node.now(), read, "it stops at the last reading");
    page.set(RunState::Running, read + 5, monotonic_nanos(), 0.0);
    assert_eq!(node.now(), read + 5);
}

#[test]
fn only_its_node_can_write_a_counters_page() {
    let fd = CountersPage::create(1, 1).expect("memory");
    let early = read_only(fd.as_fd()).expect("a descriptor");
    assert!(CountersPage::map(&early, true).is_err());
    let _node = CountersPage::map(&fd, true).expect("the node");
    let late = read_only(fd.as_fd()).expect("a descriptor");
    let length = rustix::fs::fstat(&fd).expect("a descriptor").st_size as usize;
    for reader in [&fd, &early, &late] {
        assert_read_only(reader, length);
        assert!(CountersPage::map(reader, true).is_err());
        assert_eq!(
            CountersPage::map(reader, false)
                .expect("a reader")
                .output(0)
                .sent,
            0
        );
    }
}

/// No process can shrink memory that another one maps.
#[test]
fn sizes_are_sealed() {
    for fd in [
        EdgeRegion::create(8, 8).expect("memory"),
        WakePage::create(8).expect("memory").1,
        ControlPage::create().expect("memory").1,
        CountersPage::create(1, 1).expect("memory"),
    ] {
        let size = rustix::fs::fstat(&fd).expect("a descriptor").st_size as u64;
        for bytes in [0, size / 2, size - 1, size + 1, size * 2] {
            assert_eq!(rustix::fs::ftruncate(&fd, bytes), Err(Errno::PERM));
        }
    }
}

/// Another program could use descriptors that it inherits by accident.
#[test]
fn descriptors_are_closed_on_exec() {
    let (a, b) = Seqpacket::pair().expect("a socket");
    let (_output, segment) = received_segment(&[1; 1000]);
    let counters = CountersPage::create(1, 1).expect("memory");
    let all: [OwnedFd; 9] = [
        EdgeRegion::create(8, 8).expect("memory"),
        WakePage::create(8).expect("memory").1,
        ControlPage::create().expect("memory").1,
        read_only(counters.as_fd()).expect("a descriptor"),
        counters,
        eventfd().expect("a descriptor"),
        a.into(),
        b.into(),
        segment,
    ];
    for fd in all {
        assert!(
            rustix::io::fcntl_getfd(&fd)
                .expect("open")
                .contains(rustix::io::FdFlags::CLOEXEC)
        );
    }
}
