//! The socket between a producing and a consuming process. Segments and announcements travel one
//! way, acknowledgements the other.
//!
//! A packet is three words (kind, id, value) in native byte order, and perhaps bytes. A segment
//! travels *before* the first descriptor that names it, so a consumer that meets an unknown segment
//! finds it in the socket.
//!
//! A restarted consumer inherits a ring with descriptors whose segments were sent to its
//! predecessor. It may look into the ring before the producer has sent them again. So until the
//! producer has reported the edge as attached, the consumer asks for an unknown segment, and waits
//! for it.
//!
//! A consumer that is out of descriptors, or of memory for a mapping, leaves the packet of a
//! segment in the socket, and with it everything behind. Meanwhile only the control thread
//! receives: the socket is readable, so the thread tries again. When it succeeds it rings the
//! node's own doorbell.

use crate::misbehaviour::Misbehaviour;
use crate::seqpacket::{Received, Seqpacket};
use crate::shortage::Shortage;
use crate::sys::Mapping;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const KIND_SEGMENT: u64 = 1;
const KIND_RETIRE: u64 = 2;
const KIND_ANNOUNCE: u64 = 3;
const KIND_RETIRED: u64 = 4;
const KIND_ATTACHED: u64 = 5;
const KIND_WANTED: u64 = 6;

const HEADER_BYTES: usize = 24;
/// The longest announcement (of a schema, for example) in bytes.
pub const MAX_ANNOUNCEMENT_BYTES: usize = 128 * 1024;
/// The most announcements that one producer makes to one consumer.
pub const MAX_ANNOUNCEMENTS: usize = 4096;
/// The most announcements that a consumer accepts from one process, over all of its outputs.
const MAX_ANNOUNCEMENTS_RECEIVED: usize = 16 * MAX_ANNOUNCEMENTS;
/// The most bytes of announcements that a consumer accepts from one process.
const MAX_BYTES_RECEIVED: usize = 256 * 1024 * 1024;
/// The most segments of one producer that a consumer maps at the same time.
const MAX_SEGMENTS: usize = 32 * 1024;
/// The most edges between two processes.
const MAX_EDGES: usize = 64 * 1024;
/// The most packets received in one call: several times the capacity of a socket. A peer that
/// floods the socket must not keep the thread from other work.
const PACKETS_AT_ONCE: usize = 1024;
/// Longest wait for a schema or the name of a frame while descriptors or memory are short.
const ANNOUNCEMENT_TIMEOUT: Duration = Duration::from_secs(2);

fn packet(kind: u64, id: u64, value: u64) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    for (chunk, word) in bytes.chunks_exact_mut(8).zip([kind, id, value]) {
        chunk.copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}

fn parse(packet: &[u8]) -> Option<([u64; 3], &[u8])> {
    let (header, body) = packet.split_at_checked(HEADER_BYTES)?;
    let word = |i: usize| u64::from_ne_bytes(header[i * 8..][..8].try_into().expect("eight bytes"));
    Some(([word(0), word(1), word(2)], body))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The producer's end.
#[derive(Debug)]
pub struct ProducerPair {
    socket: Seqpacket,
    /// Number of the pair within the dataflow.
    pub(crate) peer: u32,
    announced: Mutex<HashSet<u64>>,
}

impl ProducerPair {
    /// Makes the producer's end of pair `peer` from its socket.
    pub fn new(socket: Seqpacket, peer: u32) -> Self {
        Self {
            socket,
            peer,
            announced: Mutex::default(),
        }
    }

    /// Whether the consumer's process has closed its end.
    pub(crate) fn is_closed(&self) -> bool {
        let mut end = [PollFd::new(&self.socket, PollFlags::empty())];
        let now = Timespec::default();
        rustix::event::poll(&mut end, Some(&now)).is_ok()
            && end[0].revents().intersects(PollFlags::HUP)
    }

    pub(crate) fn send_segment(&self, id: u32, bytes: usize, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.socket
            .send(&packet(KIND_SEGMENT, u64::from(id), bytes as u64), &[fd])
    }

    pub(crate) fn send_retire(&self, id: u32) -> io::Result<()> {
        self.socket
            .send(&packet(KIND_RETIRE, u64::from(id), 0), &[])
    }

    /// Reports that every sample queued on `edge` can be read from now on.
    pub(crate) fn send_attached(&self, edge: u32) -> io::Result<()> {
        self.socket
            .send(&packet(KIND_ATTACHED, u64::from(edge), 0), &[])
    }

    /// Announces `bytes` under `id`, unless that was done before.
    pub(crate) fn announce(&self, id: u64, bytes: &[u8]) -> io::Result<()> {
        let mut announced = lock(&self.announced);
        if !announced.contains(&id) {
            self.socket
                .send(&[&packet(KIND_ANNOUNCE, id, 0), bytes].concat(), &[])?;
            announced.insert(id);
        }
        Ok(())
    }

    /// Receives the ids of segments that the consumer has unmapped. The list may be empty: a
    /// consumer may also ask for missing references (see [`crate::Output::acknowledge`]). `None` if
    /// the consumer's end is closed.
    pub fn receive(&self) -> Option<Vec<u32>> {
        let (mut retired, mut buffer) = (Vec::new(), [0; HEADER_BYTES]);
        for _ in 0..PACKETS_AT_ONCE {
            match self.socket.receive_bytes(&mut buffer) {
                Ok(0) => return None,
                Ok(bytes) => {
                    // Other packets are requests or noise: they name no unmapped segment.
                    if let Some(([KIND_RETIRED, id, _], _)) = parse(&buffer[..bytes]) {
                        retired.push(id as u32);
                    }
                }
                Err(_) => return Some(retired),
            }
        }
        Some(retired)
    }
}

impl AsFd for ProducerPair {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A segment of a producer, mapped by its consumer. It is unmapped, and that acknowledged, when the
/// last view is dropped.
#[derive(Debug)]
pub(crate) struct Segment {
    id: u32,
    mapping: Option<Mapping>,
    acknowledgements: Arc<Acknowledgements>,
}

impl Segment {
    pub(crate) fn bytes(&self) -> u64 {
        self.mapping().bytes() as u64
    }

    pub(crate) fn start(&self) -> std::ptr::NonNull<u8> {
        self.mapping().start()
    }

    fn mapping(&self) -> &Mapping {
        self.mapping.as_ref().expect("taken by drop alone")
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // Unmap before acknowledging.
        self.mapping = None;
        self.acknowledgements.send(self.id);
    }
}

/// Sends acknowledgements to the producer.
#[derive(Debug)]
struct Acknowledgements {
    socket: Arc<Seqpacket>,
    /// Ids for which the socket had no room, sent at the next opportunity.
    unsent: Mutex<Vec<u32>>,
    fork_generation: u32,
}

impl Acknowledgements {
    fn send(&self, id: u32) {
        if self.fork_generation == crate::fork::generation() {
            lock(&self.unsent).push(id);
            self.flush();
        }
    }

    fn flush(&self) {
        let mut unsent = lock(&self.unsent);
        while let Some(&id) = unsent.last() {
            match self
                .socket
                .send(&packet(KIND_RETIRED, u64::from(id), 0), &[])
            {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // A producer that is gone needs no acknowledgement.
                _ => unsent.pop(),
            };
        }
    }
}

/// The consumer's end.
#[derive(Debug)]
pub struct ConsumerPair {
    socket: Arc<Seqpacket>,
    acknowledgements: Arc<Acknowledgements>,
    state: Mutex<ConsumerState>,
    /// Notified when a shortage is over.
    relieved: Condvar,
}

#[derive(Debug, Default)]
struct ConsumerState {
    segments: HashMap<u32, Arc<Segment>>,
    announcements: HashMap<u64, Arc<[u8]>>,
    announced_bytes: usize,
    /// Edges whose queued samples can all be read.
    attached: HashSet<u32>,
    /// Why the first packet stays in the socket.
    shortage: Option<Shortage>,
    /// The producer's breach of the protocol; nothing is received after it.
    misbehaviour: Option<Misbehaviour>,
}

thread_local! {
    /// Receives one packet of any pair. It is allocated as zeros, so that only the pages below packets
    /// take memory.
    static PACKET: RefCell<Vec<u8>> = RefCell::new(vec![0; HEADER_BYTES + MAX_ANNOUNCEMENT_BYTES]);
}

/// Result of [`ConsumerPair::receive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairStatus {
    /// False once the producer's end is closed and everything it sent has been received.
    pub is_open: bool,
    /// The shortage that keeps the first packet in the socket. Meanwhile the socket stays readable.
    pub shortage: Option<Shortage>,
    /// A shortage has ended. Samples may have been left in their queues, so the inbox must look
    /// into all of them again.
    pub is_relieved: bool,
}

/// Result of [`ConsumerPair::find`].
#[derive(Debug)]
pub(crate) enum Lookup {
    /// The segment is mapped.
    Found(Arc<Segment>),
    /// The segment was requested; the doorbell rings once it was sent.
    Pending,
    /// The segment may be in the socket, behind a packet that waits for descriptors or memory: see
    /// [`PairStatus::is_relieved`].
    Shortage,
    /// The producer is gone, and the memory with it.
    Gone,
}

impl ConsumerPair {
    /// Makes the consumer's end from its socket.
    pub fn new(socket: Seqpacket) -> Self {
        let socket = Arc::new(socket);
        let fork_generation = crate::fork::generation();
        let acknowledgements = Arc::new(Acknowledgements {
            socket: socket.clone(),
            unsent: Mutex::default(),
            fork_generation,
        });
        Self {
            socket,
            acknowledgements,
            state: Mutex::default(),
            relieved: Condvar::new(),
        }
    }

    /// Receives the producer's packets. For the control thread.
    ///
    /// # Errors
    /// [`Misbehaviour`] if the producer broke the protocol.
    pub fn receive(&self) -> Result<PairStatus, Misbehaviour> {
        let mut state = lock(&self.state);
        let was_short = state.shortage.take().is_some();
        let is_open = self.receive_locked(&mut state)?;
        let shortage = state.shortage;
        let is_relieved = was_short && shortage.is_none();
        drop(state);
        if is_relieved {
            self.relieved.notify_all();
        }
        Ok(PairStatus {
            is_open,
            shortage,
            is_relieved,
        })
    }

    /// As [`ConsumerPair::receive`]. True while the producer's end is open.
    fn receive_locked(&self, state: &mut ConsumerState) -> Result<bool, Misbehaviour> {
        if let Some(misbehaviour) = state.misbehaviour {
            return Err(misbehaviour);
        }
        self.acknowledgements.flush();
        let is_open = PACKET.with_borrow_mut(|buffer| self.receive_into(state, buffer));
        state.misbehaviour.map_or(Ok(is_open), Err)
    }

    /// Receives into `buffer`. True while the producer's end is open.
    fn receive_into(&self, state: &mut ConsumerState, buffer: &mut [u8]) -> bool {
        for _ in 0..PACKETS_AT_ONCE {
            let handled = match self.socket.peek_few(buffer) {
                Ok((bytes, Ok(Received::Packet(fds)))) => self.handle(state, &buffer[..bytes], fds),
                Ok((_, Ok(Received::Closed))) => return false,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Ok((_, Err(error))) | Err(error) => {
                    Err(Refusal::of(&error, "a packet that is too long"))
                }
            };
            match handled {
                Ok(()) => self.socket.consume(),
                Err(Refusal::Shortage(shortage)) => {
                    state.shortage = Some(shortage);
                    break;
                }
                Err(Refusal::Misbehaviour(misbehaviour)) => {
                    state.misbehaviour = Some(misbehaviour);
                    break;
                }
            }
        }
        true
    }

    fn handle(
        &self,
        state: &mut ConsumerState,
        packet: &[u8],
        fds: Vec<OwnedFd>,
    ) -> Result<(), Refusal> {
        let refused = |what| Err(Refusal::Misbehaviour(Misbehaviour::Message(what)));
        let Some(([kind, id, value], body)) = parse(packet) else {
            return refused("short packet");
        };
        match (kind, fds.as_slice()) {
            (KIND_SEGMENT, [fd]) => {
                if state.segments.contains_key(&(id as u32)) {
                    // It was sent again for another edge.
                    return Ok(());
                }
                if state.segments.len() >= MAX_SEGMENTS {
                    return refused("too many segments");
                }
                let Ok(bytes) = usize::try_from(value) else {
                    return refused("segment size");
                };
                let mapping = Mapping::of_segment(fd, bytes).map_err(|error| {
                    Refusal::of(
                        &error,
                        "a segment that cannot be mapped, or is not sealed, or has another size",
                    )
                })?;
                let id = id as u32;
                let segment = Segment {
                    id,
                    mapping: Some(mapping),
                    acknowledgements: self.acknowledgements.clone(),
                };
                state.segments.insert(id, Arc::new(segment));
                Ok(())
            }
            (KIND_RETIRE, []) => {
                state.segments.remove(&(id as u32));
                Ok(())
            }
            (KIND_ANNOUNCE, []) => {
                if state.announcements.contains_key(&id) {
                    return Ok(());
                }
                state.announced_bytes += body.len();
                if state.announcements.len() >= MAX_ANNOUNCEMENTS_RECEIVED
                    || state.announced_bytes > MAX_BYTES_RECEIVED
                {
                    return refused("too many announcements");
                }
                state.announcements.insert(id, body.into());
                Ok(())
            }
            (KIND_ATTACHED, []) => {
                if state.attached.len() >= MAX_EDGES {
                    return refused("too many edges");
                }
                state.attached.insert(id as u32);
                Ok(())
            }
            _ => refused("unknown kind, or descriptors that do not belong to it"),
        }
    }

    /// Finds segment `id`, which a descriptor on `edge` names.
    pub(crate) fn find(&self, edge: u32, id: u32) -> Result<Lookup, Misbehaviour> {
        let mut state = lock(&self.state);
        let mut is_open = true;
        if !state.segments.contains_key(&id) && state.shortage.is_none() {
            is_open = self.receive_locked(&mut state)?;
        }
        if let Some(segment) = state.segments.get(&id) {
            return Ok(Lookup::Found(segment.clone()));
        }
        if state.shortage.is_some() {
            return Ok(Lookup::Shortage);
        }
        if state.attached.contains(&edge) {
            return Err(Misbehaviour::Segment { segment: id });
        }
        if !is_open {
            return Ok(Lookup::Gone);
        }
        // If the socket is full, its packets wake the producer.
        let _ = self
            .socket
            .send(&packet(KIND_WANTED, u64::from(id), 0), &[]);
        Ok(Lookup::Pending)
    }

    /// The announcement under `id`. While a shortage keeps it in the socket, waits for the control
    /// thread, up to [`ANNOUNCEMENT_TIMEOUT`].
    pub(crate) fn announcement(&self, id: u64) -> Option<Arc<[u8]>> {
        let mut state = lock(&self.state);
        if !state.announcements.contains_key(&id) && state.shortage.is_none() {
            self.receive_locked(&mut state).ok()?;
        }
        if !state.announcements.contains_key(&id) && state.shortage.is_some() {
            let is_short = |state: &mut ConsumerState| state.shortage.is_some();
            let waited = self
                .relieved
                .wait_timeout_while(state, ANNOUNCEMENT_TIMEOUT, is_short);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.announcements.get(&id).cloned()
    }
}

/// Why a packet was refused.
#[derive(Debug)]
enum Refusal {
    /// Out of resources: the packet stays in the socket.
    Shortage(Shortage),
    Misbehaviour(Misbehaviour),
}

impl Refusal {
    fn of(error: &io::Error, what: &'static str) -> Self {
        match Shortage::of(error) {
            Some(shortage) => Self::Shortage(shortage),
            None => Self::Misbehaviour(Misbehaviour::Message(what)),
        }
    }
}

impl AsFd for ConsumerPair {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
