//! Memory on loan for one payload.

use crate::fork;
use crate::output_state::SharedOutput;
use crate::pool::Pool;
use crate::send::SendError;
use crate::slot::{Descriptor, INLINE_BYTES, MAX_HEAD_BYTES, NO_BLOCK, SlotImage};
use crate::sys::Mapping;
use nervure_message::Origin;
use std::sync::Arc;

/// Memory for one payload, written in place and then published. Empty once it is published. A loan
/// that is dropped without being published returns its memory.
#[derive(Debug)]
pub struct PayloadLoan {
    pub(crate) output: Arc<SharedOutput>,
    pub(crate) payload_bytes: usize,
    /// The payload's block; `None` if the payload travels in the ring's slot.
    pub(crate) block: Option<LoanedBlock>,
    /// The slot as it will be published. A small payload is written straight into it. `None` once
    /// it is published: consumers may hold the block then, and the loan may neither write nor
    /// return it.
    pub(crate) image: Option<Box<SlotImage>>,
    /// The first publication of the sample, if it is from another machine.
    pub(crate) origin: Option<Origin>,
}

/// A block while it is loaned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoanedBlock {
    start: std::ptr::NonNull<u8>,
    row: u32,
    segment: u32,
    /// Start of the block within its segment, in bytes.
    offset: u64,
    capacity: usize,
}

impl LoanedBlock {
    pub(crate) fn new(pool: &Pool, row: u32) -> Self {
        let block = pool.block(row);
        Self {
            start: block.start,
            row,
            segment: block.segment,
            offset: block.offset as u64,
            capacity: block.capacity,
        }
    }
}

/// Keeps the memory of a loan mapped: see [`PayloadLoan::mapped`].
#[derive(Clone, Debug)]
pub struct Mapped(#[expect(dead_code, reason = "it is there to be dropped")] Arc<Mapping>);

// SAFETY: only this loan accesses its block until it is published; the block's memory lives as long
// as the output, which the loan holds.
unsafe impl Send for PayloadLoan {}
// SAFETY: shared access only reads, and no other thread can write while it lasts.
unsafe impl Sync for PayloadLoan {}

impl PayloadLoan {
    /// The payload, for writing. Unwritten bytes are unspecified: zeros, or an older sample of this
    /// output.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        match (&self.block, &mut self.image) {
            (_, None) => &mut [],
            (None, Some(image)) => &mut image.inline_mut()[..self.payload_bytes],
            // SAFETY: the block holds `payload_bytes` and is mapped writable; while it is on loan
            // nothing but this loan accesses it.
            (Some(block), Some(_)) => unsafe {
                std::slice::from_raw_parts_mut(block.start.as_ptr(), self.payload_bytes)
            },
        }
    }

    /// The payload, for reading.
    pub fn payload(&self) -> &[u8] {
        match (&self.block, &self.image) {
            (_, None) => &[],
            (None, Some(image)) => &image.inline()[..self.payload_bytes],
            // SAFETY: the block holds `payload_bytes` and is mapped; while it is on loan nothing
            // but this loan writes to it.
            (Some(block), Some(_)) => unsafe {
                std::slice::from_raw_parts(block.start.as_ptr(), self.payload_bytes)
            },
        }
    }

    /// Keeps the payload's memory mapped beyond the loan's end, for bindings that hand out pointers
    /// to it. `None` for a small payload, which lies in no block and moves with the loan.
    pub fn mapped(&self) -> Option<Mapped> {
        let segment = self.block?.segment;
        let state = self.output.lock();
        state
            .pool
            .segments
            .get(&segment)
            .map(|segment| Mapped(segment.mapping.clone()))
    }

    /// Sets the first publication of the sample, on another machine. Consumers drop a sample whose
    /// origin is covered by the last one on the same input.
    pub fn set_origin(&mut self, origin: Option<Origin>) {
        self.origin = origin;
    }

    /// Length of the payload in bytes.
    pub fn len(&self) -> usize {
        self.payload_bytes
    }

    /// True for a payload of zero bytes.
    pub fn is_empty(&self) -> bool {
        self.payload_bytes == 0
    }

    /// Shortens the payload to `bytes`, for sources that know its size only once it is filled (a
    /// JPEG encoder).
    pub fn truncate(&mut self, bytes: usize) {
        self.payload_bytes = self.payload_bytes.min(bytes);
    }

    /// Writes the head to its place, and returns the descriptor of the sample.
    ///
    /// # Panics
    /// If the loan was published already.
    #[inline]
    pub(crate) fn place(&mut self, head: &[u8]) -> Result<Descriptor, SendError> {
        let inline = self
            .image
            .as_mut()
            .expect("a loan is published once")
            .inline_mut();
        let (payload_bytes, head_bytes) = (self.payload_bytes as u64, head.len() as u32);
        let head_start = self.payload_bytes.next_multiple_of(8);
        let Some(block) = self.block else {
            let Some(target) = inline.get_mut(head_start..head_start + head.len()) else {
                let max = INLINE_BYTES.saturating_sub(head_start);
                return Err(SendError::HeadTooLarge {
                    bytes: head.len(),
                    max,
                });
            };
            target.copy_from_slice(head);
            return Ok(Descriptor {
                block: NO_BLOCK,
                segment: 0,
                offset: 0,
                payload_bytes,
                head_bytes,
            });
        };
        if head.len() <= INLINE_BYTES {
            inline[..head.len()].copy_from_slice(head);
        } else if head.len() > MAX_HEAD_BYTES || head_start + head.len() > block.capacity {
            let max = MAX_HEAD_BYTES.min(block.capacity - head_start);
            return Err(SendError::HeadTooLarge {
                bytes: head.len(),
                max,
            });
        } else {
            // SAFETY: within the block's capacity: checked above. Only this loan accesses the
            // block.
            unsafe {
                let target = block.start.as_ptr().add(head_start);
                std::ptr::copy_nonoverlapping(head.as_ptr(), target, head.len());
            }
        }
        let LoanedBlock {
            row: block,
            segment,
            offset,
            ..
        } = block;
        Ok(Descriptor {
            block,
            segment,
            offset,
            payload_bytes,
            head_bytes,
        })
    }
}

impl Drop for PayloadLoan {
    fn drop(&mut self) {
        if let Some(LoanedBlock { row, .. }) = self.block
            && self.image.is_some()
            && fork::check(self.output.fork_generation).is_ok()
        {
            self.output.lock().pool.give_back(row);
            self.output.producer.wake.notify_room();
        }
    }
}
