//! Arrow arrays in a payload.
//!
//! The place of every buffer follows from the schema and a few numbers in the head, by one rule: walk the types depth
//! first, and lay each array's buffers down one after the other, validity first, then Arrow's order, then the children. A
//! buffer of 64 bytes or more starts on a multiple of 64, a smaller one on its type's alignment and at least 8, so that a
//! small record batch stays small. Gaps are zero. Buffers so cannot overlap nor reach beyond each other, and nothing has
//! to be said about them but what the schema does not know:
//!
//! - for each array that may have nulls, whether it has: without nulls there is no validity bitmap;
//! - bytes of the values of text and binary, items of the child of lists, list views, dictionaries, run-end encoded
//!   arrays (their runs) and each child of dense unions; of views the number of data buffers and the bytes of each.
//!
//! Arrays always start at offset 0: slices are cut to what they use ([`Plan`]), whatever they were cut from.
//!
//! # What the receiver trusts
//! Nothing. Fixed-width values and binary values are viewed in place: any bit pattern is a valid one, and a sender that
//! alters them later gives wrong numbers. All that memory safety hangs on (offsets, sizes, views, dictionary keys, run
//! ends, type ids, bitmaps, and text, which Rust assumes to be UTF-8) is copied into private memory first and validated
//! there ([`read`]).

mod piece;
mod placement;
mod read;
mod write;

#[cfg(test)]
mod tests;

use std::ops::Range;

use smallvec::SmallVec;

pub use placement::{Node, Placement, PlacementError};
pub use read::{ArrayError, read};
pub use write::{ArraySample, Plan, PlanError};

use crate::wire::{DecodeError, Head, Reader, put_bytes, put_number};

/// What a head says about an Arrow array; the rest follows from its schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArrayLayout {
    pub(crate) length: usize,
    /// The numbers that the schema does not know, in the order of the walk.
    pub(crate) numbers: Head,
}

impl ArrayLayout {
    /// Number of elements, or rows.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub(crate) fn write(&self, head: &mut Head) {
        put_number(head, self.length as u64);
        put_bytes(head, &self.numbers);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let length = reader.size("length of the array")?;
        let numbers = SmallVec::from_slice(reader.bytes("numbers of the array")?);
        Ok(Self { length, numbers })
    }
}

/// Lengths of arrays whose payload does not bound them (of type null, of structs without fields, run-end encoded) stop
/// here, so that no receiver can be made to allocate for rows that cost their sender nothing.
pub const MAX_WEIGHTLESS_LENGTH: usize = 1 << 20;

/// Whether a payload of this size may hold arrays of this length: a row takes a bit at least.
pub(crate) fn length_fits(length: usize, payload_bytes: usize) -> bool {
    length <= MAX_WEIGHTLESS_LENGTH.max(payload_bytes.saturating_mul(8))
}

/// Deals out the payload, buffer after buffer. The rule is part of the format.
#[derive(Debug, Default)]
pub(crate) struct Places {
    end: usize,
}

impl Places {
    /// Bytes of all buffers so far.
    pub(crate) fn end(&self) -> usize {
        self.end
    }

    /// The place of the next buffer; `None` where it would lie beyond any memory.
    pub(crate) fn next(&mut self, bytes: usize, alignment: usize) -> Option<Range<usize>> {
        let alignment = if bytes >= 64 { 64 } else { alignment.max(8) };
        let start = self.end.checked_next_multiple_of(alignment)?;
        let end = start.checked_add(bytes)?;
        if bytes > 0 {
            self.end = end;
        }
        Some(start..end)
    }
}

/// Bits in a byte of a bitmap.
pub(crate) const BITS: usize = 8;
