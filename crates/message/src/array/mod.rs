//! Arrow arrays in a payload.
//!
//! The position of every buffer follows from the schema and a few numbers in the head. The types
//! are walked depth first. The buffers of each array are placed one after the other: validity
//! first, then Arrow's order, then the children. A buffer of 64 bytes or more starts at a multiple
//! of 64. A smaller one starts at its type's alignment, and at least 8, so that a small record
//! batch stays small. Gaps are zero. With this rule, buffers cannot overlap or exceed the payload,
//! and the head only adds the facts that the schema does not determine:
//!
//! - for each array that may have nulls, whether it has: without nulls there is no validity bitmap;
//! - the size in bytes of the values of text and binary; the number of items in the child of lists,
//!   list views, dictionaries, run-end encoded arrays (their runs) and in each child of dense unions;
//!   for views, the number of data buffers and the size in bytes of each.
//!
//! Arrays always start at offset 0: of a slice, only the part in use is sent ([`Plan`]).
//!
//! Trust in the sender
//! None. Fixed-width values and binary values are viewed in place: every bit pattern is valid,
//! so a sender that alters them later causes wrong numbers at most. Everything that memory safety
//! depends on (offsets, sizes, views, dictionary keys, run ends, type ids, bitmaps, and text, which
//! Rust assumes to be UTF-8) is first copied into private memory and validated there ([`read`]).

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

/// The part of a head that describes an Arrow array. The rest follows from its schema.
#[derive(Debug, PartialEq, Eq)]
pub struct ArrayLayout {
    pub(crate) length: usize,
    /// The numbers that the schema does not determine, in the order of the walk.
    pub(crate) numbers: Head,
}

impl Clone for ArrayLayout {
    /// Copies the numbers at once: a clone of the vector would copy them one by one.
    fn clone(&self) -> Self {
        Self {
            length: self.length,
            numbers: SmallVec::from_slice(&self.numbers),
        }
    }
}

impl ArrayLayout {
    /// Number of elements or rows.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The numbers that the schema does not determine, in the order of the walk (see the module).
    pub fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        let mut numbers = Reader::new(&self.numbers);
        std::iter::from_fn(move || numbers.number("numbers of the array").ok())
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

/// Limit on the length of arrays that take no payload (type null, structs without fields, run-end
/// encoded). Otherwise a sender could make receivers allocate for rows that cost it nothing.
pub const MAX_WEIGHTLESS_LENGTH: usize = 1 << 20;

/// Whether a payload of this size can hold arrays of this length. A row takes at least one bit.
pub(crate) fn length_fits(length: usize, payload_bytes: usize) -> bool {
    length <= MAX_WEIGHTLESS_LENGTH.max(payload_bytes.saturating_mul(8))
}

/// Assigns positions in the payload to consecutive buffers. The rule is part of the format.
#[derive(Debug, Default)]
pub(crate) struct Places {
    end: usize,
}

impl Places {
    /// Total length of the buffers so far, in bytes.
    pub(crate) fn end(&self) -> usize {
        self.end
    }

    /// The position of the next buffer; `None` on overflow.
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
