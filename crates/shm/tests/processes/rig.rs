//! Does the keeper's work: makes pages, regions and sockets, starts processes and ends them.

use nervure_protocol::wiring::{Policy, Queue};
use nervure_shm::{
    Budget, CountersPage, EdgeRegion, Output, OutputEdge, OwnWakePage, Producer, ProducerPair,
    Received, ReceivedSample, Seqpacket, WakePage, eventfd, monotonic_nanos,
};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

pub const BLOCKS: u32 = 64;

/// Environment variable with the role of a child.
pub const ROLE: &str = "NERVURE_TEST_ROLE";

/// Runs one test at a time: they count the descriptors of this process.
pub fn run_alone() -> MutexGuard<'static, ()> {
    static RUNNING: Mutex<()> = Mutex::new(());
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Number of open descriptors and of mappings of this process.
pub fn open_counts() -> (usize, usize) {
    let count = |folder: &str| std::fs::read_dir(folder).expect("proc").count();
    (count("/proc/self/fd"), count("/proc/self/map_files"))
}

/// A deadline for anything that should end: in 60 seconds.
pub fn deadline() -> u64 {
    monotonic_nanos() + 60_000_000_000
}

/// A child process that runs this program, and its control socket.
pub struct Spawned {
    process: Child,
    pub socket: Seqpacket,
}

impl Spawned {
    pub fn new(role: &str) -> Self {
        let (socket, end) = Seqpacket::pair().expect("a socket");
        let process = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "child::child", "--test-threads=1"])
            .env(ROLE, role)
            .stdin(Stdio::from(OwnedFd::from(end)))
            .stdout(Stdio::null())
            .spawn()
            .expect("a process");
        Self { process, socket }
    }

    /// Sends the child the descriptors that its role needs.
    pub fn give(&self, fds: &[BorrowedFd<'_>]) {
        self.socket.send(b"descriptors", fds).expect("room");
    }

    /// The next number that the child reports; `None` when it is gone.
    pub fn report(&self) -> Option<u64> {
        let (_, bytes) = receive(&self.socket)?;
        Some(u64::from_ne_bytes(bytes.try_into().expect("a number")))
    }

    pub fn kill(&mut self) {
        self.process.kill().expect("it lives");
        let status = self.process.wait().expect("its end");
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&status),
            Some(9),
            "it failed by itself: {status}"
        );
    }
}

impl Drop for Spawned {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Waits for the next packet; `None` when the other end is closed.
pub fn receive(socket: &Seqpacket) -> Option<(Vec<OwnedFd>, Vec<u8>)> {
    let mut buffer = Vec::with_capacity(64);
    loop {
        match socket.receive(&mut buffer) {
            Ok(Received::Packet(fds)) => return Some((fds, buffer)),
            Ok(Received::Closed) => return None,
            Err(_) => wait_readable(socket.as_fd()),
        }
    }
}

fn wait_readable(fd: BorrowedFd<'_>) {
    let _ = poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], None);
}

/// A producing process: this one or a child.
pub fn producer(wake: &OwnedFd, counters: &OwnedFd) -> Producer {
    let counters = Arc::new(CountersPage::map(counters, true).expect("counters"));
    Producer {
        budget: Budget::new(1 << 30),
        wake: Arc::new(OwnWakePage::map(wake, 0, counters.clone()).expect("a wake page")),
        counters,
        incarnation: 0,
        stopping: Arc::default(),
        held: Arc::default(),
        cut_short: Arc::default(),
        on_misbehaviour: Arc::new(|edge, what| panic!("edge {edge}: {what}")),
    }
}

/// The pages of a consuming process.
pub struct ConsumerPages {
    pub wake: OwnedFd,
    pub eventfd: OwnedFd,
    pub counters: OwnedFd,
}

impl ConsumerPages {
    pub fn new() -> Self {
        Self {
            wake: WakePage::create(1).expect("memory").1,
            eventfd: eventfd().expect("a descriptor"),
            counters: CountersPage::create(0, 1).expect("memory"),
        }
    }
}

/// Attaches edge 0 of an output to a consumer, given by its wake page and eventfd. `peer` is the
/// number of its process.
pub fn attach(
    output: &Output,
    queue: Queue,
    region: &OwnedFd,
    consumer: (&OwnedFd, &OwnedFd),
    socket: Seqpacket,
    peer: u32,
) -> Arc<ProducerPair> {
    let pair = Arc::new(ProducerPair::new(socket, peer));
    let attached = output.attach(OutputEdge {
        id: 0,
        consumer: "consumer/input".to_owned(),
        input: 0,
        queue,
        counters_row: 0,
        region: EdgeRegion::map(region, queue.depth, BLOCKS).expect("a region"),
        bell: Arc::new(WakePage::map(consumer.0).expect("a wake page")),
        eventfd: Arc::new(consumer.1.try_clone().expect("a descriptor")),
        pair: pair.clone(),
    });
    attached.expect("it fits");
    pair
}

/// Runs the control thread of a producing process for one pair, until the other end is gone.
pub fn serve(output: Output, pair: Arc<ProducerPair>, peer: u32) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        while let Some(retired) = pair.receive() {
            output.acknowledge(peer, &retired);
            wait_readable(pair.as_fd());
        }
    })
}

pub fn queue(policy: Policy, depth: u32) -> Queue {
    Queue {
        policy,
        depth,
        max_held: depth + 8,
    }
}

/// Size of sample `number`: inline, in a slab or in a block of its own.
pub fn bytes_of(number: u64) -> usize {
    [40, 3000, 100_000][number as usize % 3]
}

/// Writes a payload that identifies its sample at every byte.
pub fn fill(payload: &mut [u8], number: u64) {
    payload.fill(number as u8);
    payload[..8].copy_from_slice(&number.to_ne_bytes());
}

/// The number of a sample, which must not be torn.
pub fn number_of(sample: &ReceivedSample) -> u64 {
    let payload = sample.payload();
    let number = u64::from_ne_bytes(payload[..8].try_into().expect("eight bytes"));
    assert_eq!(payload.len(), bytes_of(number));
    assert!(
        payload[8..].iter().all(|&byte| byte == number as u8),
        "sample {number} is torn"
    );
    number
}
