//! Received samples, and how they are popped from an edge.

use crate::counter_rows::InputRow;
use crate::fork;
use crate::input_edge::{Cursor, InputEdge};
use crate::lock_free::ring::Popped;
use crate::misbehaviour::Misbehaviour;
use crate::pair::{Lookup, Segment};
use crate::pool::BLOCK_ALIGNMENT;
use crate::slot::{Descriptor, INLINE_BYTES, InlineArea, MAX_HEAD_BYTES, SlotHeader};
use crate::sys::monotonic_nanos;
use nervure_message::{
    DecodeError, Encode, Header, Layout, Metadata, MetadataError, Origin, decode_head, encode_head,
};
use std::cell::RefCell;
use std::mem::ManuallyDrop;
use std::sync::{Arc, OnceLock};

/// A received sample: a read-only view of its producer's memory, which stays valid until the sample
/// is dropped. Clones are the same sample.
///
/// A hostile producer can still write to the block. A value read from it may then be wrong, but nothing outside the
/// block is ever read. Anything that depends on a value read here (an offset, a length) must be checked on a private
/// copy of it.
#[derive(Clone)]
pub struct ReceivedSample(ManuallyDrop<Arc<SampleInner>>);

impl std::fmt::Debug for ReceivedSample {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

pub(crate) struct SampleInner {
    header: Header,
    received_mono: u64,
    payload_bytes: usize,
    head_bytes: usize,
    /// `None` for a local sample, which was made in this process.
    edge: Option<Arc<InputEdge>>,
    /// Its index in the ring, where it stays until [`ReceivedSample::confirm`]; or [`NOT_KEPT`].
    kept_at: u64,
    body: Body,
    /// A small payload with its head, or the head of a block if it fits: as in the slot.
    inline: InlineArea,
    /// Decoded at the first call of [`ReceivedSample::layout`].
    layout: OnceLock<Result<Layout, DecodeError>>,
}

/// [`SampleInner::kept_at`] of a sample that was taken out of the ring.
const NOT_KEPT: u64 = u64::MAX;

impl std::fmt::Debug for SampleInner {
    /// Formats everything but the bytes.
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
        /// Aligned to 16 bytes, as a small sample's.
        payload: Vec<u128>,
        head: Box<[u8]>,
        /// By id, as an edge would have them.
        announcements: Vec<(u64, Arc<[u8]>)>,
    },
    Block {
        row: u32,
        start: std::ptr::NonNull<u8>,
        /// A private copy of a head that lies behind the payload.
        head: Option<Box<[u8]>>,
        /// Keeps the segment mapped.
        _segment: Arc<Segment>,
        fork_generation: u32,
    },
}

// SAFETY: the payload is only read, by any thread; its block stays leased and mapped until the last
// clone of the sample is dropped.
unsafe impl Send for SampleInner {}
// SAFETY: as above: shared access only reads.
unsafe impl Sync for SampleInner {}

impl ReceivedSample {
    fn new(inner: Arc<SampleInner>) -> Self {
        Self(ManuallyDrop::new(inner))
    }

    /// The header, with the sample's sequence number and times.
    pub fn header(&self) -> &Header {
        &self.0.header
    }

    /// When the sample was taken from the queue, in nanoseconds of CLOCK_MONOTONIC.
    pub fn received_mono(&self) -> u64 {
        self.0.received_mono
    }

    /// Nanoseconds from publication until the sample was taken from the queue; 0 if the clocks of
    /// producer and consumer differ.
    pub fn latency_nanos(&self) -> u64 {
        self.0.latency_nanos()
    }

    /// Layout and metadata, encoded; private to this process.
    pub fn head(&self) -> &[u8] {
        self.0.head()
    }

    /// The layout of the payload, decoded from the head.
    ///
    /// # Errors
    /// If the producer wrote no valid head.
    pub fn layout(&self) -> Result<&Layout, &DecodeError> {
        let decode = || decode_head(self.0.head()).map(|(layout, _)| layout);
        self.0.layout.get_or_init(decode).as_ref()
    }

    /// The payload, in place as long as a clone of the sample lives. Aligned to 256 bytes in a
    /// block, and to 16 in a small sample.
    pub fn payload(&self) -> &[u8] {
        self.0.payload()
    }

    /// The producer's announcement under `id`: a schema or the name of a frame.
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

    /// Takes the sample, and all before it, out of the queue in which [`crate::Inbox::keep`] has left
    /// it. The block of the sample must not be viewed any longer: drop the sample at once.
    pub fn confirm(&self) {
        let Some(edge) = self.0.edge.as_ref().filter(|_| self.0.kept_at != NOT_KEPT) else {
            return;
        };
        edge.region.ring().take_through(self.0.kept_at);
        if let Some(row) = edge.counters.input_row(edge.input) {
            row.received(self.0.payload_bytes as u64, self.0.latency_nanos());
        }
        edge.producer_wake.room_futex().notify();
    }

    /// Number of blocks that this process views of the sample's input, its own included; 0 for a
    /// sample without a block.
    pub fn blocks_in_use(&self) -> u64 {
        match (&self.0.edge, &self.0.body) {
            (Some(edge), Body::Block { .. }) => edge.held_blocks(),
            _ => 0,
        }
    }

    /// Makes a local sample, which came over no edge: see [`crate::InboxHandle::deliver`].
    ///
    /// # Errors
    /// If the metadata has too many entries or bytes.
    pub fn local<V: Encode + ?Sized>(
        value: &V,
        metadata: &Metadata,
        header: Header,
    ) -> Result<Self, MetadataError> {
        Self::local_announcing(value, metadata, header, None)
    }

    /// As [`ReceivedSample::local`], with the name of the coordinate frame that the header has the id
    /// of.
    ///
    /// # Errors
    /// As [`ReceivedSample::local`].
    pub fn local_announcing<V: Encode + ?Sized>(
        value: &V,
        metadata: &Metadata,
        header: Header,
        frame: Option<&str>,
    ) -> Result<Self, MetadataError> {
        let head = encode_head(value, metadata)?;
        let payload_bytes = value.payload_bytes();
        let mut payload = vec![0_u128; payload_bytes.div_ceil(size_of::<u128>())];
        value.write(&mut nervure_message::cast_slice_mut(&mut payload)[..payload_bytes]);
        let schema = value
            .schema()
            .map(|schema| (schema.id(), schema.bytes().into()));
        let schema_id = schema.as_ref().map_or(0, |(id, _)| *id);
        let frame = frame.map(|name| (header.frame_id, name.as_bytes().into()));
        let announcements: Vec<(u64, Arc<[u8]>)> = schema.into_iter().chain(frame).collect();
        Ok(Self::new(Arc::new(SampleInner {
            header: Header {
                schema_id,
                ..header
            },
            received_mono: monotonic_nanos(),
            payload_bytes,
            head_bytes: head.len(),
            edge: None,
            kept_at: NOT_KEPT,
            body: Body::Local {
                payload,
                head: head[..].into(),
                announcements,
            },
            inline: InlineArea::default(),
            layout: OnceLock::new(),
        })))
    }

    /// A copy in memory of this process: it holds no block of its producer, and outlives the edge.
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
        Self::new(Arc::new(SampleInner {
            header: *self.header(),
            received_mono: self.received_mono(),
            payload_bytes: self.payload().len(),
            head_bytes: self.head().len(),
            edge: None,
            kept_at: NOT_KEPT,
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

/// Blank samples that a thread keeps for reuse: as many as a node commonly holds at a time, in 8 KB.
const SPARES_PER_THREAD: usize = 16;

thread_local! {
    /// Memory of samples that were dropped on this thread, for those that it receives next. So a loop that receives
    /// and drops on one thread allocates nothing.
    static SPARES: RefCell<Vec<Arc<SampleInner>>> = const { RefCell::new(Vec::new()) };
}

impl Drop for ReceivedSample {
    fn drop(&mut self) {
        // SAFETY: the field is taken here alone, where the sample ends.
        let mut inner = unsafe { ManuallyDrop::take(&mut self.0) };
        let Some(sample) = Arc::get_mut(&mut inner) else {
            return;
        };
        sample.clear();
        // Not while the thread ends.
        let _ = SPARES.try_with(|spares| {
            if let Ok(mut spares) = spares.try_borrow_mut()
                && spares.len() < SPARES_PER_THREAD
            {
                if spares.capacity() == 0 {
                    spares.reserve_exact(SPARES_PER_THREAD);
                }
                spares.push(inner);
            }
        });
    }
}

impl SampleInner {
    fn blank() -> Arc<Self> {
        let spare = SPARES.try_with(|spares| spares.try_borrow_mut().ok()?.pop());
        spare.ok().flatten().unwrap_or_else(|| {
            Arc::new(Self {
                header: Header::default(),
                received_mono: 0,
                payload_bytes: 0,
                head_bytes: 0,
                edge: None,
                kept_at: NOT_KEPT,
                body: Body::Inline,
                inline: InlineArea::default(),
                layout: OnceLock::new(),
            })
        })
    }

    /// Gives the block back, and makes the sample a blank one. The bytes in `inline` stay: they have no meaning in a
    /// blank sample.
    fn clear(&mut self) {
        self.release();
        self.edge = None;
        self.kept_at = NOT_KEPT;
        self.body = Body::Inline;
        self.layout = OnceLock::new();
    }

    /// Gives the block back.
    fn release(&mut self) {
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
            edge.release_block(*row);
        }
    }

    /// Fills a blank sample from a slot, of which `inline` holds the rest already. Validates the copy from shared
    /// memory, and leaves the sample blank if it is not valid.
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
            // SAFETY: `in_block` checked that the payload lies within the segment, which stays
            // mapped as long as `self` holds it.
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

/// The block of a sample, with its head if that lies there. The caller must put the result into a
/// [`SampleInner`], whose drop releases the block.
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
    if !offset.is_multiple_of(BLOCK_ALIGNMENT as u64) || end.is_none_or(|end| end > segment.bytes())
    {
        return Err(Misbehaviour::Bounds {
            end: end.unwrap_or(u64::MAX),
            bytes: segment.bytes(),
        });
    }
    // SAFETY: `offset` lies within the segment: checked above.
    let start = unsafe { segment.start().add(offset as usize) };
    let head = (beyond > 0).then(|| {
        // SAFETY: the head's bytes lie within the segment: checked above. They are copied before
        // they are parsed.
        let shared = unsafe {
            let head_start = start
                .as_ptr()
                .add((payload_bytes as usize).next_multiple_of(8));
            std::slice::from_raw_parts(head_start, head_bytes)
        };
        shared.into()
    });
    edge.count_held_block();
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
        self.release();
    }
}

impl InputEdge {
    /// Takes the oldest queued sample, copied straight into `spare`, which is allocated if there is
    /// none. So the call that finds nothing, after which the node sleeps, allocates for the sample
    /// that will wake it. With a cursor, the sample stays in the queue until it is confirmed.
    pub(crate) fn pop(
        self: &Arc<Self>,
        spare: &mut Option<Arc<SampleInner>>,
        mut kept: Option<&mut Cursor>,
    ) -> Result<Pop, Misbehaviour> {
        loop {
            let received = spare.get_or_insert_with(SampleInner::blank);
            let received = Arc::get_mut(received).expect("a spare is not shared yet");
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
            let ring = self.region.ring();
            let popped = match &mut kept {
                None => ring.pop(read, admit)?,
                Some(cursor) => ring.peek(cursor, read, admit)?,
            };
            let fixed = match popped {
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
            // A producer that is woken for each place sleeps again after each sample. Until half of the
            // queue is free it has room only when it looks by itself.
            if self.policy.is_lossless() && kept.is_none() && self.region.is_half_empty() {
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
            match &kept {
                Some(cursor) => {
                    received.kept_at = cursor.map_or(NOT_KEPT, |next| next.wrapping_sub(1));
                }
                None => {
                    if let Some(row) = row {
                        row.received(received.payload_bytes as u64, received.latency_nanos());
                    }
                }
            }
            return Ok(spare.take().map_or(Pop::Nothing, |received| {
                Pop::Sample(ReceivedSample::new(received), fixed.origin())
            }));
        }
    }
}

/// Result of [`InputEdge::pop`].
pub(crate) enum Pop {
    /// A sample, and where it was first published, if it is from another machine.
    Sample(ReceivedSample, Option<Origin>),
    /// Nothing is queued, or nothing that can be read before the producer rings again.
    Nothing,
    /// A sample whose memory cannot be mapped for lack of descriptors or memory. It stays queued.
    Shortage,
}
