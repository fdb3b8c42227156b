//! The consumer's end: samples, edges, and the inbox that waits for all inputs of a node.

use crate::counters::{CountersPage, InputRow};
use crate::fork::{self, NodeForked};
use crate::pages::EdgeRegion;
use crate::pair::{ConsumerPair, Lookup, Segment};
use crate::ring::{Misbehaviour, Popped};
use crate::slot::{Descriptor, INLINE_BYTES, InlineArea, MAX_HEAD_BYTES, SlotHeader};
use crate::sync::{Ordering, Waited};
use crate::sys::monotonic_nanos;
use crate::wake::{OwnWakePage, WakePage};
use nervure_message::{
    DecodeError, Encode, Header, Layout, Metadata, MetadataError, decode_head, encode_head,
};
use nervure_protocol::wiring::Policy;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The consumer's end of one edge: see `AttachInput` of the control protocol.
#[derive(Debug)]
pub struct InputEdge {
    /// Its id.
    pub id: u32,
    /// Index of the input, and row in the consumer's counters.
    pub input: u32,
    /// The queue's policy: a producer may wait for what is popped from a `block` edge.
    pub policy: Policy,
    /// Ring and leases.
    pub region: EdgeRegion,
    /// The socket to the producer.
    pub pair: Arc<ConsumerPair>,
    /// The producer's wake page, for its space futex.
    pub producer_wake: Arc<WakePage>,
    /// The consumer's counters.
    pub counters: Arc<CountersPage>,
}

impl InputEdge {
    /// Takes the oldest sample that is queued. It is copied straight into `spare`, which is made where there is none: so
    /// the look that finds nothing, after which the node sleeps, allocates for the sample that will wake it.
    fn pop(self: &Arc<Self>, spare: &mut Option<Arc<SampleInner>>) -> Result<Pop, Misbehaviour> {
        loop {
            let received = spare.get_or_insert_with(SampleInner::blank);
            let received = Arc::get_mut(received).expect("a spare is nobody's sample yet");
            let mut segment = Ok(None);
            let admit = |fixed: &SlotHeader| {
                let descriptor = fixed.descriptor();
                let find = |_| self.pair.find(self.id, descriptor.segment);
                segment = descriptor.block().map(find).transpose();
                !matches!(
                    segment,
                    Ok(Some(Lookup::Pending | Lookup::Shortage)) | Err(_)
                )
            };
            let read = |slot: &[_]| SlotHeader::load(slot, &mut received.inline);
            let fixed = match self.region.ring().pop(read, admit)? {
                Popped::Empty => return Ok(Pop::Nothing),
                Popped::Refused => {
                    let is_short = matches!(segment?, Some(Lookup::Shortage));
                    return Ok(if is_short {
                        Pop::Shortage
                    } else {
                        Pop::Nothing
                    });
                }
                Popped::Taken(fixed) => fixed,
            };
            if self.policy == Policy::Block {
                self.producer_wake.room_futex().notify();
            }
            let row = self.counters.input_row(self.input);
            let segment = match segment? {
                None => None,
                Some(Lookup::Found(segment)) => Some(segment),
                Some(Lookup::Gone | Lookup::Pending | Lookup::Shortage) => {
                    row.inspect(InputRow::lost);
                    continue;
                }
            };
            received.fill(self, &fixed, segment)?;
            if let Some(row) = row {
                row.received(received.payload_bytes as u64, received.latency_nanos());
            }
            return Ok(spare.take().map_or(Pop::Nothing, |received| {
                Pop::Sample(ReceivedSample(received))
            }));
        }
    }
}

/// What [`InputEdge::pop`] found.
enum Pop {
    Sample(ReceivedSample),
    /// Nothing that can be read, now or without another ring.
    Nothing,
    /// A sample whose memory cannot be mapped for lack of descriptors or memory. It stays queued.
    Shortage,
}

/// A received sample: a read-only view of its producer's memory, which stays valid until the sample is dropped.
///
/// The producer of a block can still write to it, if it is hostile: what is read may then be wrong, but nothing
/// outside the block is ever read. Whatever depends on a value read here (an offset, a length) must be checked on
/// a private copy of it.
///
/// Clones are the same sample.
#[derive(Clone)]
pub struct ReceivedSample(Arc<SampleInner>);

impl std::fmt::Debug for ReceivedSample {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

struct SampleInner {
    header: Header,
    received_mono: u64,
    payload_bytes: usize,
    head_bytes: usize,
    /// `None` for a sample of no edge, which was made in this process.
    edge: Option<Arc<InputEdge>>,
    body: Body,
    /// A small payload and its head, or the head of a block where it fits: as in the slot.
    inline: InlineArea,
    /// Decoded when somebody asks.
    layout: OnceLock<Result<Layout, DecodeError>>,
}

impl std::fmt::Debug for SampleInner {
    /// What it is, and not its bytes.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            header,
            payload_bytes,
            head_bytes,
            ..
        } = self;
        f.debug_struct("Sample")
            .field("header", header)
            .field("payload_bytes", payload_bytes)
            .field("head_bytes", head_bytes)
            .finish_non_exhaustive()
    }
}

enum Body {
    Inline,
    Local {
        /// Aligned as a small sample's.
        payload: Vec<u128>,
        head: Box<[u8]>,
        /// What an edge would know.
        announcements: Vec<(u64, Arc<[u8]>)>,
    },
    Block {
        row: u32,
        start: std::ptr::NonNull<u8>,
        /// A private copy of a head that lies behind the payload.
        head: Option<Box<[u8]>>,
        /// Keeps the mapping.
        _segment: Arc<Segment>,
        fork_generation: u32,
    },
}

// SAFETY: the payload is only read; its block stays leased and mapped until the sample is dropped.
unsafe impl Send for SampleInner {}
// SAFETY: as above.
unsafe impl Sync for SampleInner {}

impl ReceivedSample {
    /// Its header.
    pub fn header(&self) -> &Header {
        &self.0.header
    }

    /// When it was taken from the queue, in nanoseconds of CLOCK_MONOTONIC.
    pub fn received_mono(&self) -> u64 {
        self.0.received_mono
    }

    /// Nanoseconds from publication until it was taken from the queue; 0 where the clocks are not one.
    pub fn latency_nanos(&self) -> u64 {
        self.0.latency_nanos()
    }

    /// Layout and metadata, private to this process.
    pub fn head(&self) -> &[u8] {
        self.0.head()
    }

    /// How the payload is laid out, as the head says.
    ///
    /// # Errors
    /// When the producer wrote no valid head.
    pub fn layout(&self) -> Result<&Layout, &DecodeError> {
        let decode = || decode_head(self.0.head()).map(|(layout, _)| layout);
        self.0.layout.get_or_init(decode).as_ref()
    }

    /// The payload, in place as long as a clone of the sample lives. Aligned to 256 bytes in a block, and to 16 in a
    /// small sample.
    pub fn payload(&self) -> &[u8] {
        self.0.payload()
    }

    /// What the producer announced under `id`: a schema or the name of a frame.
    pub fn announcement(&self, id: u64) -> Option<Arc<[u8]>> {
        match (&self.0.edge, &self.0.body) {
            (Some(edge), _) => edge.pair.announcement(id),
            (None, Body::Local { announcements, .. }) => announcements
                .iter()
                .find(|(known, _)| *known == id)
                .map(|(_, bytes)| bytes.clone()),
            (None, _) => None,
        }
    }

    /// A sample that came over no edge, for [`InboxHandle::deliver`].
    pub fn local<V: Encode + ?Sized>(
        value: &V,
        metadata: &Metadata,
        header: Header,
    ) -> Result<Self, MetadataError> {
        let head = encode_head(value, metadata)?;
        let payload_bytes = value.payload_bytes();
        let mut payload = vec![0_u128; payload_bytes.div_ceil(size_of::<u128>())];
        value.write(&mut nervure_message::cast_slice_mut(&mut payload)[..payload_bytes]);
        let announcements: Vec<(u64, Arc<[u8]>)> = value
            .schema()
            .map(|schema| (schema.id(), schema.bytes().into()))
            .into_iter()
            .collect();
        let schema_id = announcements.first().map_or(0, |(id, _)| *id);
        Ok(Self(Arc::new(SampleInner {
            header: Header {
                schema_id,
                ..header
            },
            received_mono: monotonic_nanos(),
            payload_bytes,
            head_bytes: head.len(),
            edge: None,
            body: Body::Local {
                payload,
                head: head[..].into(),
                announcements,
            },
            inline: InlineArea::default(),
            layout: OnceLock::new(),
        })))
    }

    /// The same sample in memory of this process: it holds no block of its producer, and outlives the edge.
    #[must_use]
    pub fn copied(&self) -> Self {
        let mut payload = vec![0_u128; self.payload().len().div_ceil(size_of::<u128>())];
        let bytes = &mut nervure_message::cast_slice_mut(&mut payload)[..self.payload().len()];
        bytes.copy_from_slice(self.payload());
        let ids = [self.header().schema_id, self.header().frame_id]
            .into_iter()
            .filter(|&id| id != 0);
        let announcements = ids
            .filter_map(|id| Some((id, self.announcement(id)?)))
            .collect();
        Self(Arc::new(SampleInner {
            header: *self.header(),
            received_mono: self.received_mono(),
            payload_bytes: self.payload().len(),
            head_bytes: self.head().len(),
            edge: None,
            body: Body::Local {
                payload,
                head: self.head().into(),
                announcements,
            },
            inline: InlineArea::default(),
            layout: OnceLock::new(),
        }))
    }
}

impl SampleInner {
    fn blank() -> Arc<Self> {
        Arc::new(Self {
            header: Header::default(),
            received_mono: 0,
            payload_bytes: 0,
            head_bytes: 0,
            edge: None,
            body: Body::Inline,
            inline: InlineArea::default(),
            layout: OnceLock::new(),
        })
    }

    /// Becomes the sample of a slot, of which `inline` has the rest already. Validates what was copied out of shared
    /// memory, and stays blank where it is not valid.
    #[inline]
    fn fill(
        &mut self,
        edge: &Arc<InputEdge>,
        fixed: &SlotHeader,
        segment: Option<Arc<Segment>>,
    ) -> Result<(), Misbehaviour> {
        self.received_mono = monotonic_nanos();
        let descriptor = fixed.descriptor();
        let head_bytes = descriptor.head_bytes as usize;
        if head_bytes > MAX_HEAD_BYTES {
            return Err(Misbehaviour::Head {
                bytes: head_bytes as u64,
                max: MAX_HEAD_BYTES as u64,
            });
        }
        match segment {
            Some(segment) => self.body = in_block(edge, &descriptor, segment)?,
            None => check_inline(&descriptor)?,
        }
        self.header = fixed.header();
        self.payload_bytes = descriptor.payload_bytes as usize;
        self.head_bytes = head_bytes;
        self.edge = Some(edge.clone());
        Ok(())
    }

    fn head(&self) -> &[u8] {
        let start = match &self.body {
            Body::Inline => self.payload_bytes.next_multiple_of(8),
            Body::Block { head: None, .. } => 0,
            Body::Block {
                head: Some(head), ..
            }
            | Body::Local { head, .. } => return head,
        };
        &self.inline.bytes()[start..][..self.head_bytes]
    }

    fn payload(&self) -> &[u8] {
        match &self.body {
            Body::Inline => &self.inline.bytes()[..self.payload_bytes],
            Body::Local { payload, .. } => {
                &nervure_message::cast_slice(payload)[..self.payload_bytes]
            }
            // SAFETY: within the segment (checked by `in_block`), which stays mapped as long as `self` holds it.
            Body::Block { start, .. } => unsafe {
                std::slice::from_raw_parts(start.as_ptr(), self.payload_bytes)
            },
        }
    }

    fn latency_nanos(&self) -> u64 {
        self.received_mono.saturating_sub(self.header.publish_mono)
    }
}

/// Checks that a small sample lies within its slot.
fn check_inline(descriptor: &Descriptor) -> Result<(), Misbehaviour> {
    let padded = descriptor.payload_bytes.checked_next_multiple_of(8);
    let end = padded.and_then(|padded| padded.checked_add(u64::from(descriptor.head_bytes)));
    if end.is_some_and(|end| end <= INLINE_BYTES as u64) {
        return Ok(());
    }
    Err(Misbehaviour::Bounds {
        end: end.unwrap_or(u64::MAX),
        bytes: INLINE_BYTES as u64,
    })
}

/// The block of a sample, and its head if that lies there. What is returned has to be dropped as a [`SampleInner`].
#[inline(never)]
fn in_block(
    edge: &InputEdge,
    descriptor: &Descriptor,
    segment: Arc<Segment>,
) -> Result<Body, Misbehaviour> {
    let &Descriptor {
        block,
        offset,
        payload_bytes,
        head_bytes,
        ..
    } = descriptor;
    if block >= edge.region.blocks() {
        return Err(Misbehaviour::Block {
            block,
            blocks: edge.region.blocks(),
        });
    }
    // A head that does not fit into the slot lies behind the payload.
    let head_bytes = head_bytes as usize;
    let beyond = if head_bytes > INLINE_BYTES {
        head_bytes as u64
    } else {
        0
    };
    let head_start = if beyond > 0 {
        payload_bytes.checked_next_multiple_of(8)
    } else {
        Some(payload_bytes)
    };
    let length = head_start.and_then(|start| start.checked_add(beyond));
    let end = length.and_then(|length| offset.checked_add(length));
    if !offset.is_multiple_of(crate::pool::BLOCK_ALIGNMENT as u64)
        || end.is_none_or(|end| end > segment.bytes())
    {
        return Err(Misbehaviour::Bounds {
            end: end.unwrap_or(u64::MAX),
            bytes: segment.bytes(),
        });
    }
    // SAFETY: `offset` lies within the segment, checked above.
    let start = unsafe { segment.start().add(offset as usize) };
    let head = (beyond > 0).then(|| {
        // SAFETY: the head's bytes lie within the segment, checked above. They are copied before they are looked at.
        let shared = unsafe {
            let head_start = start
                .as_ptr()
                .add((payload_bytes as usize).next_multiple_of(8));
            std::slice::from_raw_parts(head_start, head_bytes)
        };
        shared.into()
    });
    if let Some(row) = edge.counters.input_row(edge.input) {
        row.hold();
    }
    Ok(Body::Block {
        row: block,
        start,
        head,
        _segment: segment,
        fork_generation: fork::generation(),
    })
}

impl Drop for SampleInner {
    fn drop(&mut self) {
        if let (
            Body::Block {
                row,
                fork_generation,
                ..
            },
            Some(edge),
        ) = (&self.body, &self.edge)
            && fork::check(*fork_generation).is_ok()
        {
            if let Some(counters) = edge.counters.input_row(edge.input) {
                counters.release();
            }
            edge.region.leases()[*row as usize].store(0, Ordering::Release);
            edge.producer_wake.room_futex().notify();
        }
    }
}

/// What [`Inbox::try_next`] found.
#[derive(Debug)]
pub enum Arrival {
    /// A sample.
    Sample {
        /// Index of its input.
        input: u32,
        /// The sample.
        sample: ReceivedSample,
    },
    /// The input's last producer is gone, and its last sample was delivered.
    Closed {
        /// Index of the input.
        input: u32,
    },
    /// The producer of an edge broke the rules; the edge was cut off.
    Misbehaved {
        /// Index of its input.
        input: u32,
        /// The edge.
        edge: u32,
        /// What it did.
        misbehaviour: Misbehaviour,
    },
    /// A producer of the input is gone, and its last sample was delivered; another may come.
    Ended {
        /// Index of the input.
        input: u32,
    },
    /// The control thread has something for the node: see [`InboxHandle::notify`].
    Notified,
}

/// The inputs of one node: waits for all of them at once, and delivers round-robin over those that have news, each
/// in its own order.
#[derive(Debug)]
pub struct Inbox {
    handle: InboxHandle,
    inputs: Vec<Input>,
    /// Bits taken from the doorbell and not yet found empty.
    pending: Vec<u64>,
    cursor: u32,
    /// Arrivals until the doorbell is looked at although something is pending.
    until_take: u32,
    /// For the next sample: see [`InputEdge::pop`].
    spare: Option<Arc<SampleInner>>,
}

/// A producer that is faster than this node keeps its own bit pending for ever: others are heard after so many arrivals.
/// Looking each time would cost both sides a cache line a sample.
const ARRIVALS_PER_DOORBELL_CHECK: u32 = 16;

#[derive(Debug, Default)]
struct Input {
    /// The current edge first; behind it those of the producer's next incarnations, and between them what is delivered
    /// in the place of one that is gone.
    sources: VecDeque<Source>,
    /// Edges that were cut off, and whose end the control thread has not told yet.
    cut_off_edges: Vec<u32>,
    /// No producer will come any more.
    last: bool,
    closed: bool,
}

#[derive(Debug)]
enum Source {
    Edge(Attached),
    Local(ReceivedSample),
    /// See [`InboxHandle::deliver_end`].
    End,
}

#[derive(Debug)]
struct Attached {
    edge: Arc<InputEdge>,
    /// The producer is gone: when the ring is empty, so is the edge.
    is_ended: bool,
    /// What its producer did, found and not yet told.
    misbehaviour: Option<Misbehaviour>,
}

/// Samples of no edge that wait on an input at most: the oldest goes. Each of them says that a producer failed.
const MAX_LOCAL_SAMPLES: usize = 16;

impl Input {
    fn edges_mut(&mut self) -> impl Iterator<Item = &mut Attached> {
        self.sources.iter_mut().filter_map(|source| match source {
            Source::Edge(attached) => Some(attached),
            Source::Local(_) | Source::End => None,
        })
    }

    /// Adds a sample behind everything that is there.
    fn deliver(&mut self, sample: ReceivedSample) {
        let is_local = |source: &Source| matches!(source, Source::Local(_));
        if self
            .sources
            .iter()
            .filter(|source| is_local(source))
            .count()
            == MAX_LOCAL_SAMPLES
            && let Some(oldest) = self.sources.iter().position(is_local)
        {
            self.sources.remove(oldest);
        }
        self.sources.push_back(Source::Local(sample));
    }

    /// The producer of `edge` is gone. False when the edge is not one of this input.
    fn close(&mut self, edge: u32, last: bool) -> bool {
        if let Some(attached) = self.edges_mut().find(|attached| attached.edge.id == edge) {
            attached.is_ended = true;
        } else if let Some(index) = self.cut_off_edges.iter().position(|&cut| cut == edge) {
            self.cut_off_edges.swap_remove(index);
        } else {
            return false;
        }
        self.last |= last;
        true
    }
}

/// What the control thread does to an inbox.
#[derive(Clone, Debug)]
pub struct InboxHandle {
    fork_generation: u32,
    page: Arc<OwnWakePage>,
    eventfd: Arc<OwnedFd>,
    commands: Arc<Mutex<VecDeque<Command>>>,
}

#[derive(Debug)]
enum Command {
    Attach(Arc<InputEdge>),
    Close { edge: u32, last: bool },
    Deliver { input: u32, sample: ReceivedSample },
    DeliverEnd { input: u32 },
    Notify,
}

impl InboxHandle {
    /// Adds an edge behind those that its input has.
    pub fn attach(&self, edge: InputEdge) {
        self.push(Command::Attach(Arc::new(edge)));
    }

    /// The producer of `edge` is gone; `last` when no other will come.
    pub fn close(&self, edge: u32, last: bool) {
        self.push(Command::Close { edge, last });
    }

    /// Adds a sample behind everything that the edges of `input` hold, and before those that are attached later.
    pub fn deliver(&self, input: u32, sample: ReceivedSample) {
        self.push(Command::Deliver { input, sample });
    }

    /// Makes the inbox deliver [`Arrival::Ended`] for `input`, behind everything that it has.
    pub fn deliver_end(&self, input: u32) {
        self.push(Command::DeliverEnd { input });
    }

    /// Makes the inbox deliver [`Arrival::Notified`].
    pub fn notify(&self) {
        self.push(Command::Notify);
    }

    /// Makes the inbox look at every input, whether its producers rang or not.
    pub fn check_all_inputs(&self) {
        if fork::check(self.fork_generation).is_ok() {
            self.page.check_all_inputs(self.eventfd.as_fd());
        }
    }

    /// As [`Inbox::wait`], without the inbox at hand. One thread at a time may wait, and none while it is armed.
    pub fn wait(&self, deadline: Option<u64>) -> Waited {
        if fork::check(self.fork_generation).is_err() {
            return Waited::LookAgain;
        }
        self.page.sleep(deadline)
    }

    /// As [`InboxHandle::wait`], and ends as [`Waited::Interrupted`] when `other` is readable, too. What rings then costs
    /// its producer a write to the eventfd.
    pub fn wait_beside(&self, other: BorrowedFd<'_>, deadline: Option<u64>) -> Waited {
        if fork::check(self.fork_generation).is_err() {
            return Waited::LookAgain;
        }
        self.page
            .sleep_beside(self.eventfd.as_fd(), other, deadline)
    }

    fn arm(&self) -> bool {
        fork::check(self.fork_generation).is_ok() && self.page.arm()
    }

    fn disarm(&self) {
        if fork::check(self.fork_generation).is_ok() {
            self.page.disarm(self.eventfd.as_fd());
        }
    }

    fn push(&self, command: Command) {
        if fork::check(self.fork_generation).is_err() {
            return;
        }
        self.commands
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push_back(command);
        self.page.interrupt(self.eventfd.as_fd());
    }
}

impl Inbox {
    /// Makes the inbox of the node whose wake page and eventfd these are.
    pub fn new(page: Arc<OwnWakePage>, eventfd: Arc<OwnedFd>) -> Self {
        let inputs = page.inputs();
        Self {
            inputs: (0..inputs).map(|_| Input::default()).collect(),
            // One bit more than inputs: the last is for what the control thread has to say.
            pending: vec![0; (inputs as usize + 1).div_ceil(64)],
            cursor: 0,
            until_take: ARRIVALS_PER_DOORBELL_CHECK,
            spare: None,
            handle: InboxHandle {
                fork_generation: fork::generation(),
                page,
                eventfd,
                commands: Arc::default(),
            },
        }
    }

    /// For the control thread.
    pub fn handle(&self) -> InboxHandle {
        self.handle.clone()
    }

    /// The next arrival, if there is one. Never waits.
    ///
    /// # Errors
    /// [`NodeForked`] in a forked child.
    pub fn try_next(&mut self) -> Result<Option<Arrival>, NodeForked> {
        fork::check(self.handle.fork_generation)?;
        self.until_take -= 1;
        if self.until_take == 0 {
            self.until_take = ARRIVALS_PER_DOORBELL_CHECK;
            self.handle.page.take(&mut self.pending);
        }
        loop {
            let Some(input) = self.next_pending() else {
                if self.handle.page.take(&mut self.pending) {
                    continue;
                }
                return Ok(None);
            };
            let arrival = if input == self.inputs.len() as u32 {
                self.apply_commands()
            } else {
                self.pop_input(input)
            };
            if arrival.is_some() {
                return Ok(arrival);
            }
        }
    }

    /// The newest sample queued on `input`; those before it are let go. Never waits.
    ///
    /// # Errors
    /// [`NodeForked`] in a forked child.
    pub fn take_newest(&mut self, input: u32) -> Result<Option<ReceivedSample>, NodeForked> {
        fork::check(self.handle.fork_generation)?;
        let (mut newest, mut is_short) = (None, false);
        let sources = &mut self.inputs[input as usize].sources;
        while let Some(source) = sources.front_mut() {
            let attached = match source {
                Source::Edge(attached) => attached,
                Source::Local(sample) => {
                    newest = Some(sample.clone());
                    sources.pop_front();
                    continue;
                }
                Source::End => {
                    sources.pop_front();
                    continue;
                }
            };
            // As many as there can be: a producer in a hurry does not keep it here.
            for _ in 0..attached.edge.region.capacity() {
                match attached.edge.pop(&mut self.spare) {
                    Ok(Pop::Sample(sample)) => newest = Some(sample),
                    Ok(Pop::Nothing) => break,
                    Ok(Pop::Shortage) => {
                        is_short = true;
                        break;
                    }
                    Err(misbehaviour) => {
                        attached.misbehaviour = Some(misbehaviour);
                        break;
                    }
                }
            }
            if !attached.is_ended || attached.misbehaviour.is_some() || is_short {
                break;
            }
            sources.pop_front();
        }
        // What else there is to say of the input, `try_next` says.
        self.set(input);
        Ok(newest)
    }

    /// Whether a sample waits on `input`. If so, [`Inbox::try_next`] finds it, rung for or not.
    pub fn has_queued(&mut self, input: u32) -> bool {
        self.refresh();
        let has_queued = self.inputs[input as usize]
            .sources
            .iter()
            .any(|source| match source {
                Source::Edge(attached) => !attached.edge.region.ring().is_empty(),
                Source::Local(_) => true,
                Source::End => false,
            });
        if has_queued {
            self.set(input);
        }
        has_queued
    }

    /// The next arrival of one input, whatever there is on others. Never waits.
    pub fn next_of(&mut self, input: u32) -> Option<Arrival> {
        if self.belongs_to_this_process() {
            self.pop_input(input)
        } else {
            None
        }
    }

    /// Does what the control thread asked for, if anything was taken in that it did: see [`Inbox::collect`]. True where
    /// [`Arrival::Notified`] would follow.
    pub fn take_commands(&mut self) -> bool {
        let own = self.inputs.len();
        self.belongs_to_this_process()
            && self.pending[own / 64] & 1 << (own % 64) != 0
            && self.apply_commands().is_some()
    }

    /// Takes in edges that were attached since the last call, so that [`Inbox::take_newest`] sees them.
    pub fn refresh(&mut self) {
        if !self.belongs_to_this_process() {
            return;
        }
        let own = self.inputs.len() as u32;
        self.handle.page.take(&mut self.pending);
        if self.pending[own as usize / 64] & 1 << (own % 64) != 0 && self.apply_commands().is_some()
        {
            // There was more than edges: `try_next` shall find it again.
            self.handle.notify();
        }
    }

    /// Takes in what rang, for a later [`Inbox::try_next`], so that [`Inbox::wait`] sleeps until something else rings.
    pub fn collect(&mut self) {
        self.handle.page.take(&mut self.pending);
    }

    /// Whether it belongs to this process, and not to the one that it was forked from.
    pub fn belongs_to_this_process(&self) -> bool {
        fork::check(self.handle.fork_generation).is_ok()
    }

    /// Readable after [`Inbox::arm`], when there is news.
    pub fn eventfd(&self) -> BorrowedFd<'_> {
        self.handle.eventfd.as_fd()
    }

    /// Sleeps until there is news, or until `deadline` (nanoseconds of CLOCK_MONOTONIC), and at most for
    /// [`crate::MAX_SLEEP_NANOS`]. Call it when [`Inbox::try_next`] found nothing. In a forked child it returns at once.
    pub fn wait(&self, deadline: Option<u64>) -> Waited {
        let waited = self.handle.wait(deadline);
        self.prefetch();
        waited
    }

    /// What was slept through has gone from the caches: what the input of the last sample needs for the next one is
    /// fetched while the doorbell is looked at.
    fn prefetch(&self) {
        let last = self
            .cursor
            .checked_sub(1)
            .and_then(|last| self.inputs.get(last as usize));
        if let Some(Source::Edge(attached)) = last.and_then(|input| input.sources.front()) {
            attached.edge.region.ring().prefetch();
        }
    }

    /// Asks for the eventfd to become readable at the next news. False when there is news already. The caller looks again
    /// when [`Inbox::sleep_deadline`] says.
    pub fn arm(&self) -> bool {
        self.handle.arm()
    }

    /// When a caller that sleeps in an event loop, and means to look again at `deadline`, has to: see
    /// [`OwnWakePage::sleep_deadline`].
    pub fn sleep_deadline(&self, deadline: Option<u64>) -> u64 {
        match self.belongs_to_this_process() {
            true => self.handle.page.sleep_deadline(deadline),
            false => monotonic_nanos(),
        }
    }

    /// Ends what [`Inbox::arm`] began.
    pub fn disarm(&self) {
        self.handle.disarm();
    }

    /// The node's own bit (what the control thread has to say comes before samples), or else the first pending input from
    /// the cursor on, round-robin.
    fn next_pending(&self) -> Option<u32> {
        let own = self.inputs.len();
        if self.pending[own / 64] & 1 << (own % 64) != 0 {
            return Some(own as u32);
        }
        let start = self.cursor as usize;
        let words = self.pending.len();
        for step in 0..=words {
            let index = (start / 64 + step) % words;
            let mut word = self.pending[index];
            if step == 0 {
                word &= u64::MAX << (start % 64);
            }
            // Bits beyond the node's own are set where all are.
            let valid = self.inputs.len() + 1 - (index * 64).min(self.inputs.len() + 1);
            if valid < 64 {
                word &= (1 << valid) - 1;
            }
            if word != 0 {
                return Some(index as u32 * 64 + word.trailing_zeros());
            }
        }
        None
    }

    fn clear(&mut self, input: u32) {
        self.pending[input as usize / 64] &= !(1 << (input % 64));
    }

    fn set(&mut self, input: u32) {
        self.pending[input as usize / 64] |= 1 << (input % 64);
    }

    /// Pops from an input; its bit stays until it is found empty.
    #[inline]
    fn pop_input(&mut self, index: u32) -> Option<Arrival> {
        if let Some(Source::Edge(Attached {
            edge,
            misbehaviour: None,
            ..
        })) = self.inputs[index as usize].sources.front()
        {
            match edge.pop(&mut self.spare) {
                Ok(Pop::Sample(sample)) => {
                    self.cursor = (index + 1) % (self.inputs.len() as u32 + 1);
                    return Some(Arrival::Sample {
                        input: index,
                        sample,
                    });
                }
                Ok(Pop::Nothing) => {}
                // Also at the end of an edge: it ends behind what is queued.
                Ok(Pop::Shortage) => {
                    self.clear(index);
                    return None;
                }
                Err(misbehaviour) => return Some(self.cut_off(index, misbehaviour)),
            }
        }
        self.advance_source(index)
    }

    /// What comes from an input whose first edge, if it has one, is found empty.
    #[inline(never)]
    fn advance_source(&mut self, index: u32) -> Option<Arrival> {
        let input = &mut self.inputs[index as usize];
        match input.sources.front_mut() {
            Some(Source::Edge(Attached {
                misbehaviour: Some(misbehaviour),
                ..
            })) => {
                let misbehaviour = *misbehaviour;
                return Some(self.cut_off(index, misbehaviour));
            }
            Some(Source::Edge(Attached { is_ended: true, .. }) | Source::End) => {
                input.sources.pop_front();
                return Some(Arrival::Ended { input: index });
            }
            Some(Source::Local(sample)) => {
                let sample = sample.clone();
                input.sources.pop_front();
                self.cursor = (index + 1) % (self.inputs.len() as u32 + 1);
                return Some(Arrival::Sample {
                    input: index,
                    sample,
                });
            }
            Some(Source::Edge(_)) | None => {}
        }
        let closed = input.last && input.sources.is_empty() && !input.closed;
        input.closed |= closed;
        self.clear(index);
        closed.then_some(Arrival::Closed { input: index })
    }

    /// Cuts off the first edge of an input.
    #[cold]
    fn cut_off(&mut self, index: u32, misbehaviour: Misbehaviour) -> Arrival {
        let input = &mut self.inputs[index as usize];
        let Some(Source::Edge(Attached { edge, .. })) = input.sources.pop_front() else {
            unreachable!("an edge was looked at")
        };
        input.cut_off_edges.push(edge.id);
        Arrival::Misbehaved {
            input: index,
            edge: edge.id,
            misbehaviour,
        }
    }

    /// Does what the control thread asked for.
    #[cold]
    fn apply_commands(&mut self) -> Option<Arrival> {
        self.clear(self.inputs.len() as u32);
        let mut notified = false;
        let commands = std::mem::take(
            &mut *self
                .handle
                .commands
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        );
        for command in commands {
            match command {
                Command::Attach(edge) => {
                    let input = edge.input;
                    if let Some(known) = self.inputs.get_mut(input as usize) {
                        let attached = Attached {
                            edge,
                            is_ended: false,
                            misbehaviour: None,
                        };
                        known.sources.push_back(Source::Edge(attached));
                        self.set(input);
                    }
                }
                Command::Close { edge, last } => {
                    let inputs = self.inputs.iter_mut().enumerate();
                    let found = inputs
                        .filter_map(|(index, input)| input.close(edge, last).then_some(index))
                        .next();
                    if let Some(input) = found {
                        self.set(input as u32);
                    }
                }
                Command::Deliver { input, sample } => {
                    if let Some(known) = self.inputs.get_mut(input as usize) {
                        known.deliver(sample);
                        self.set(input);
                    }
                }
                Command::DeliverEnd { input } => {
                    if let Some(known) = self.inputs.get_mut(input as usize) {
                        known.sources.push_back(Source::End);
                        self.set(input);
                    }
                }
                Command::Notify => notified = true,
            }
        }
        notified.then_some(Arrival::Notified)
    }
}
