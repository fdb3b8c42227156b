//! Packets between the two ends of a link: two kinds, one packet to a carrier datagram.
//!
//! | byte 0 | packet | direction |
//! |---|---|---|
//! | `0x10` | [`data`]: symbols of samples, and the status of transmissions | sender to receiver |
//! | `0x11` | [`feedback`]: reports of arrivals | receiver to sender |
//!
//! The upper four bits are the version of the protocol, so that an end can distinguish a newer peer
//! from garbage. [`control`] messages travel as samples of stream 0. Numbers are little-endian;
//! *varint* is the variable-length integer of RFC 9000, section 16. Everything is checked when it
//! is read: a packet that does not parse to its last byte is dropped as a whole.

pub mod control;
pub mod data;
pub mod feedback;

use thiserror::Error;

/// The version of the protocol, in the upper four bits of a packet's first byte.
pub const VERSION: u8 = 1;

const KIND_DATA: u8 = VERSION << 4;
const KIND_FEEDBACK: u8 = VERSION << 4 | 1;

/// The largest number that a varint holds.
pub const VARINT_MAX: u64 = (1 << 62) - 1;

/// Why a packet was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum WireError {
    /// It ends within a field.
    #[error("a packet ends within {0}")]
    Truncated(&'static str),
    /// It has another version.
    #[error("a packet of version {0}, expected version {VERSION}")]
    Version(u8),
    /// It has a kind that this version does not define.
    #[error("a packet or frame of an unknown kind ({0:#04x})")]
    Kind(u8),
    /// A field has a value that no peer sends.
    #[error("{0} is out of range")]
    Range(&'static str),
}

/// The kind of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A packet of [`data`].
    Data,
    /// A packet of [`feedback`].
    Feedback,
}

impl Kind {
    /// Determines the kind from the first byte.
    ///
    /// # Errors
    /// When the datagram is empty, or its version or kind is unknown.
    pub fn of(datagram: &[u8]) -> Result<Self, WireError> {
        match *datagram
            .first()
            .ok_or(WireError::Truncated("the first byte"))?
        {
            KIND_DATA => Ok(Self::Data),
            KIND_FEEDBACK => Ok(Self::Feedback),
            other if other >> 4 != VERSION => Err(WireError::Version(other >> 4)),
            other => Err(WireError::Kind(other)),
        }
    }
}

/// Reads fields from the front of a packet.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    length: usize,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes,
            length: bytes.len(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Number of bytes read.
    pub(crate) fn position(&self) -> usize {
        self.length - self.rest.len()
    }

    pub(crate) fn bytes(
        &mut self,
        count: usize,
        field: &'static str,
    ) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self
            .rest
            .split_at_checked(count)
            .ok_or(WireError::Truncated(field))?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn u8(&mut self, field: &'static str) -> Result<u8, WireError> {
        Ok(self.bytes(1, field)?[0])
    }

    pub(crate) fn u16(&mut self, field: &'static str) -> Result<u16, WireError> {
        let bytes = self.bytes(2, field)?;
        Ok(u16::from_le_bytes([bytes[0], bytes[1]]))
    }

    pub(crate) fn u32(&mut self, field: &'static str) -> Result<u32, WireError> {
        let bytes = self.bytes(4, field)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// A varint: two bits of length, then the number, big-endian (RFC 9000, section 16).
    pub(crate) fn varint(&mut self, field: &'static str) -> Result<u64, WireError> {
        let first = *self.rest.first().ok_or(WireError::Truncated(field))?;
        let bytes = self.bytes(1 << (first >> 6), field)?;
        Ok(bytes[1..]
            .iter()
            .fold(u64::from(first & 0x3f), |value, byte| {
                value << 8 | u64::from(*byte)
            }))
    }

    /// A varint that must be at most `max`.
    pub(crate) fn varint_up_to(&mut self, max: u64, field: &'static str) -> Result<u64, WireError> {
        Some(self.varint(field)?)
            .filter(|value| *value <= max)
            .ok_or(WireError::Range(field))
    }
}

/// The length of a varint, in bytes.
pub(crate) const fn varint_len(value: u64) -> usize {
    match value {
        0..0x40 => 1,
        0x40..0x4000 => 2,
        0x4000..0x4000_0000 => 4,
        _ => 8,
    }
}

/// Appends a varint; `value` is at most [`VARINT_MAX`].
pub(crate) fn put_varint(out: &mut Vec<u8>, value: u64) {
    debug_assert!(value <= VARINT_MAX);
    let len = varint_len(value);
    let tagged = value | (u64::from(len.trailing_zeros()) << (len * 8 - 2));
    out.extend_from_slice(&tagged.to_be_bytes()[8 - len..]);
}

/// The number closest to `near` whose low 32 bits are `low`.
pub(crate) fn expand(low: u32, near: u64) -> u64 {
    let base = near & !0xffff_ffff;
    let candidate = base | u64::from(low);
    let half = 1 << 31;
    if candidate > near.saturating_add(half) {
        candidate.checked_sub(1 << 32).unwrap_or(candidate)
    } else if candidate + half < near {
        candidate + (1 << 32)
    } else {
        candidate
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn varints_return(value in 0..=VARINT_MAX) {
            for value in [value, value >> 24, value >> 40, value >> 50, value >> 58] {
                let mut out = Vec::new();
                put_varint(&mut out, value);
                prop_assert_eq!(out.len(), varint_len(value));
                let mut reader = Reader::new(&out);
                prop_assert_eq!(reader.varint("value"), Ok(value));
                prop_assert!(reader.is_empty());
            }
        }

        #[test]
        fn truncated_numbers_return(near in 0u64..1 << 40, distance in -(1i64 << 30)..1 << 30) {
            let number = near.saturating_add_signed(distance);
            prop_assert_eq!(expand(number as u32, near), number);
        }
    }

    #[test]
    fn the_examples_of_the_rfc() {
        let mut out = Vec::new();
        for value in [37, 15_293, 494_878_333, 151_288_809_941_952_652] {
            put_varint(&mut out, value);
        }
        assert_eq!(
            out,
            [
                0x25, 0x7b, 0xbd, 0x9d, 0x7f, 0x3e, 0x7d, 0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8,
                0x8c
            ]
        );
    }

    #[test]
    fn other_versions_differ_from_garbage() {
        assert_eq!(Kind::of(&[0x20]), Err(WireError::Version(2)));
        assert_eq!(Kind::of(&[0x1f]), Err(WireError::Kind(0x1f)));
        assert_eq!(Kind::of(&[]), Err(WireError::Truncated("the first byte")));
    }
}
