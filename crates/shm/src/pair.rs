//! The socket between a producing and a consuming process: segments and announcements one way, receipts the other.
//!
//! A packet is three words (kind, id, value) in native order, and perhaps bytes. A segment travels *before* the
//! first descriptor that names it, so a consumer that meets an unknown one finds it in the socket.
//!
//! A restarted consumer inherits a ring with descriptors whose segments its predecessor was sent. It may look into the
//! ring before the producer has sent them again: until the producer has said that the edge is attached, an unknown
//! segment is one to wait for, and to ask for.

use crate::ring::Misbehaviour;
use crate::seqpacket::{Received, Seqpacket};
use crate::sys::Mapping;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const KIND_SEGMENT: u64 = 1;
const KIND_RETIRE: u64 = 2;
const KIND_ANNOUNCE: u64 = 3;
const KIND_RETIRED: u64 = 4;
const KIND_ATTACHED: u64 = 5;
const KIND_WANTED: u64 = 6;

const HEADER_BYTES: usize = 24;
/// The longest announcement (a schema, say) in bytes.
pub const MAX_ANNOUNCEMENT_BYTES: usize = 128 * 1024;
/// The most announcements that one producer makes to one consumer.
pub const MAX_ANNOUNCEMENTS: usize = 4096;
/// The most announcements that a consumer takes from one producing process, over all of its outputs.
const MAX_ANNOUNCEMENTS_RECEIVED: usize = 16 * MAX_ANNOUNCEMENTS;
/// The most bytes of those.
const MAX_BYTES_RECEIVED: usize = 256 * 1024 * 1024;
/// The most segments that one producer has mapped into one consumer.
const MAX_SEGMENTS: usize = 32 * 1024;
/// The most edges between two processes.
const MAX_EDGES: usize = 64 * 1024;
/// Packets taken in at once: several times what a socket holds, so that whoever floods it keeps nobody from other work.
const PACKETS_AT_ONCE: usize = 1024;

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

/// A producer's end.
#[derive(Debug)]
pub struct ProducerPair {
    socket: Seqpacket,
    /// The pair's number within the dataflow.
    pub(crate) peer: u32,
    announced: Mutex<HashSet<u64>>,
}

impl ProducerPair {
    /// Takes the producer's end of the socket of pair `peer`.
    pub fn new(socket: Seqpacket, peer: u32) -> Self {
        Self { socket, peer, announced: Mutex::default() }
    }

    pub(crate) fn send_segment(&self, id: u32, bytes: usize, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.socket.send(&packet(KIND_SEGMENT, u64::from(id), bytes as u64), &[fd])
    }

    pub(crate) fn send_retire(&self, id: u32) -> io::Result<()> {
        self.socket.send(&packet(KIND_RETIRE, u64::from(id), 0), &[])
    }

    /// Says that whatever is queued on `edge` can be read from now on.
    pub(crate) fn send_attached(&self, edge: u32) -> io::Result<()> {
        self.socket.send(&packet(KIND_ATTACHED, u64::from(edge), 0), &[])
    }

    /// Announces `bytes` under `id`, once.
    pub(crate) fn announce(&self, id: u64, bytes: &[u8]) -> io::Result<()> {
        let mut announced = lock(&self.announced);
        if !announced.contains(&id) {
            self.socket.send(&[&packet(KIND_ANNOUNCE, id, 0), bytes].concat(), &[])?;
            announced.insert(id);
        }
        Ok(())
    }

    /// Segments that the consumer has unmapped since the last call; a consumer may also say only that there is something
    /// to tell it: see [`crate::Output::acknowledge`]. `None` when the consumer's end is closed.
    pub fn receive(&self) -> Option<Vec<u32>> {
        let (mut retired, mut buffer) = (Vec::new(), [0; HEADER_BYTES]);
        for _ in 0..PACKETS_AT_ONCE {
            match self.socket.receive_into(&mut buffer) {
                Ok((bytes, Received::Packet(_))) => {
                    // Anything else than a receipt is noise of a hostile consumer, and changes nothing.
                    if let Some(([KIND_RETIRED, id, _], _)) = parse(&buffer[..bytes]) {
                        retired.push(id as u32);
                    }
                }
                Ok((_, Received::Closed)) => return None,
                Err(error) if error.kind() == io::ErrorKind::InvalidData => {}
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

/// A segment of a producer, as its consumer maps it. Unmapped, and that acknowledged, when the last view is gone.
#[derive(Debug)]
pub(crate) struct Segment {
    id: u32,
    mapping: Option<Mapping>,
    receipts: Arc<Receipts>,
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
        // First unmap, then say so.
        self.mapping = None;
        self.receipts.send(self.id);
    }
}

/// The way back to the producer.
#[derive(Debug)]
struct Receipts {
    socket: Arc<Seqpacket>,
    /// Those for which the socket had no room, sent at the next occasion.
    unsent: Mutex<Vec<u32>>,
    fork_generation: u32,
}

impl Receipts {
    fn send(&self, id: u32) {
        if self.fork_generation == crate::fork::generation() {
            lock(&self.unsent).push(id);
            self.flush();
        }
    }

    fn flush(&self) {
        let mut unsent = lock(&self.unsent);
        while let Some(&id) = unsent.last() {
            match self.socket.send(&packet(KIND_RETIRED, u64::from(id), 0), &[]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // A producer that is gone needs no receipt.
                _ => unsent.pop(),
            };
        }
    }
}

/// A consumer's end.
#[derive(Debug)]
pub struct ConsumerPair {
    socket: Arc<Seqpacket>,
    receipts: Arc<Receipts>,
    state: Mutex<ConsumerState>,
}

#[derive(Debug, Default)]
struct ConsumerState {
    segments: HashMap<u32, Arc<Segment>>,
    announcements: HashMap<u64, Arc<[u8]>>,
    announced_bytes: usize,
    /// Edges of which every queued descriptor can be read.
    attached: HashSet<u32>,
    buffer: Vec<u8>,
}

/// What [`ConsumerPair::find`] found.
#[derive(Debug)]
pub(crate) enum Lookup {
    /// The segment.
    Found(Arc<Segment>),
    /// It was asked for; the doorbell rings when it was sent.
    Later,
    /// Its producer is gone, and its memory with it.
    Never,
}

impl ConsumerPair {
    /// Takes the consumer's end of the socket.
    pub fn new(socket: Seqpacket) -> Self {
        let socket = Arc::new(socket);
        let fork_generation = crate::fork::generation();
        let receipts =
            Arc::new(Receipts { socket: socket.clone(), unsent: Mutex::default(), fork_generation });
        Self { socket, receipts, state: Mutex::default() }
    }

    /// Takes in what the producer sent. True while the producer's end is open.
    ///
    /// # Errors
    /// [`Misbehaviour`] when it sent what it never may.
    pub fn receive(&self) -> Result<bool, Misbehaviour> {
        self.receive_locked(&mut lock(&self.state))
    }

    fn receive_locked(&self, state: &mut ConsumerState) -> Result<bool, Misbehaviour> {
        self.receipts.flush();
        let mut buffer = std::mem::take(&mut state.buffer);
        buffer.resize(HEADER_BYTES + MAX_ANNOUNCEMENT_BYTES, 0);
        let mut result = Ok(true);
        for _ in 0..PACKETS_AT_ONCE {
            result = match self.socket.receive_into(&mut buffer) {
                Ok((bytes, Received::Packet(fds))) => match self.handle(state, &buffer[..bytes], fds) {
                    Ok(()) => continue,
                    Err(misbehaviour) => Err(misbehaviour),
                },
                Ok((_, Received::Closed)) => Ok(false),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
                Err(_) => Err(Misbehaviour::Message("truncated packet, or out of file descriptors")),
            };
            break;
        }
        state.buffer = buffer;
        result
    }

    fn handle(
        &self,
        state: &mut ConsumerState,
        packet: &[u8],
        fds: Vec<OwnedFd>,
    ) -> Result<(), Misbehaviour> {
        let refused = |what| Err(Misbehaviour::Message(what));
        let Some(([kind, id, value], body)) = parse(packet) else { return refused("short packet") };
        match (kind, fds.as_slice()) {
            (KIND_SEGMENT, [fd]) => {
                if state.segments.contains_key(&(id as u32)) {
                    // Sent again for another edge.
                    return Ok(());
                }
                if state.segments.len() >= MAX_SEGMENTS {
                    return refused("too many segments");
                }
                let Ok(bytes) = usize::try_from(value) else { return refused("segment size") };
                let Ok(mapping) = Mapping::of_segment(fd, bytes) else {
                    return refused("a segment that cannot be mapped, or is not sealed, or has another size");
                };
                let id = id as u32;
                let segment = Segment { id, mapping: Some(mapping), receipts: self.receipts.clone() };
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

    /// The segment `id`, which a descriptor on `edge` names.
    pub(crate) fn find(&self, edge: u32, id: u32) -> Result<Lookup, Misbehaviour> {
        let mut state = lock(&self.state);
        let mut is_open = true;
        if !state.segments.contains_key(&id) {
            is_open = self.receive_locked(&mut state)?;
        }
        if let Some(segment) = state.segments.get(&id) {
            return Ok(Lookup::Found(segment.clone()));
        }
        if state.attached.contains(&edge) {
            return Err(Misbehaviour::Segment { segment: id });
        }
        if !is_open {
            return Ok(Lookup::Never);
        }
        // When the socket is full the producer has enough to wake up for.
        let _ = self.socket.send(&packet(KIND_WANTED, u64::from(id), 0), &[]);
        Ok(Lookup::Later)
    }

    /// What was announced under `id`.
    pub(crate) fn announcement(&self, id: u64) -> Option<Arc<[u8]>> {
        let mut state = lock(&self.state);
        if !state.announcements.contains_key(&id) {
            self.receive_locked(&mut state).ok()?;
        }
        state.announcements.get(&id).cloned()
    }
}

impl AsFd for ConsumerPair {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
