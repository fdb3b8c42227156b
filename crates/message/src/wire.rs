//! The primitives of heads, metadata and schemas: bytes, LEB128 numbers, length-prefixed text.

use smallvec::SmallVec;

/// The bytes that describe a payload. Most heads fit on the stack.
pub type Head = SmallVec<[u8; 128]>;

/// Why bytes from a peer cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes end too early.
    #[error("{what} needs {needed} more bytes, only {left} are left")]
    Truncated {
        /// The decoded item.
        what: &'static str,
        /// Number of bytes needed.
        needed: usize,
        /// Number of bytes left.
        left: usize,
    },
    /// Bytes follow after the expected end.
    #[error("{extra} bytes follow the end of {what}")]
    Trailing {
        /// The decoded item.
        what: &'static str,
        /// Number of excess bytes.
        extra: usize,
    },
    /// The encoding has a version that this build does not read.
    #[error("{what} is written in version {found}, this build reads version {expected}")]
    Version {
        /// The decoded item.
        what: &'static str,
        /// The version found.
        found: u8,
        /// The version that this build reads.
        expected: u8,
    },
    /// A code has no meaning.
    #[error("{code} is not a known {what}")]
    Code {
        /// The kind of the code.
        what: &'static str,
        /// The code found.
        code: u64,
    },
    /// A size or count exceeds the limit that keeps a malicious peer from exhausting memory.
    #[error("{what} is {found}, the limit is {limit}")]
    Limit {
        /// The quantity that is too large.
        what: &'static str,
        /// The size found.
        found: u64,
        /// The limit.
        limit: u64,
    },
    /// A text is not UTF-8.
    #[error("{what} is not UTF-8")]
    Utf8 {
        /// The expected text.
        what: &'static str,
    },
    /// The bytes are well-formed but break a rule.
    #[error("{what}: {reason}")]
    Invalid {
        /// The decoded item.
        what: &'static str,
        /// The rule that is broken.
        reason: String,
    },
}

/// Appends a number in LEB128: 7 bits per byte, lowest first.
pub(crate) fn put_number(out: &mut Head, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends length-prefixed bytes.
pub(crate) fn put_bytes(out: &mut Head, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Decodes bytes from front to back.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn take(
        &mut self,
        count: usize,
        what: &'static str,
    ) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self
            .rest
            .split_at_checked(count)
            .ok_or(DecodeError::Truncated {
                what,
                needed: count,
                left: self.rest.len(),
            })?;
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(
        &mut self,
        what: &'static str,
    ) -> Result<[u8; N], DecodeError> {
        let bytes = self.take(N, what)?;
        Ok(bytes
            .try_into()
            .expect("take returns as many bytes as asked"))
    }

    pub(crate) fn byte(&mut self, what: &'static str) -> Result<u8, DecodeError> {
        Ok(self.array::<1>(what)?[0])
    }

    pub(crate) fn number(&mut self, what: &'static str) -> Result<u64, DecodeError> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte(what)?;
            let bits = u64::from(byte & 0x7f);
            if bits << shift >> shift != bits {
                break;
            }
            number |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(DecodeError::Invalid {
            what,
            reason: "the number does not fit 64 bits".into(),
        })
    }

    /// A number that must fit in `usize`.
    pub(crate) fn size(&mut self, what: &'static str) -> Result<usize, DecodeError> {
        let found = self.number(what)?;
        usize::try_from(found).map_err(|_| DecodeError::Limit {
            what,
            found,
            limit: usize::MAX as u64,
        })
    }

    /// A count of items of at least one byte each. It is checked against the bytes left, which
    /// bounds the memory for the items.
    pub(crate) fn count(&mut self, what: &'static str, limit: usize) -> Result<usize, DecodeError> {
        let found = self.size(what)?;
        let limit = limit.min(self.rest.len());
        if found > limit {
            return Err(DecodeError::Limit {
                what,
                found: found as u64,
                limit: limit as u64,
            });
        }
        Ok(found)
    }

    pub(crate) fn bytes(&mut self, what: &'static str) -> Result<&'a [u8], DecodeError> {
        let count = self.size(what)?;
        self.take(count, what)
    }

    pub(crate) fn text(&mut self, what: &'static str) -> Result<&'a str, DecodeError> {
        std::str::from_utf8(self.bytes(what)?).map_err(|_| DecodeError::Utf8 { what })
    }

    pub(crate) fn finish(self, what: &'static str) -> Result<(), DecodeError> {
        match self.rest.len() {
            0 => Ok(()),
            extra => Err(DecodeError::Trailing { what, extra }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_every_width_round_trip() {
        for number in (0..64)
            .flat_map(|bit| [1_u64 << bit, (1 << bit) - 1])
            .chain([u64::MAX])
        {
            let mut bytes = Head::new();
            put_number(&mut bytes, number);
            let mut reader = Reader::new(&bytes);
            assert_eq!(reader.number("number"), Ok(number));
            assert_eq!(reader.finish("number"), Ok(()));
        }
    }

    #[test]
    fn numbers_beyond_64_bits_are_refused() {
        let mut reader = Reader::new(&[0xff; 9]);
        assert!(matches!(
            reader.number("number"),
            Err(DecodeError::Truncated { .. })
        ));
        let too_wide = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02];
        assert!(matches!(
            Reader::new(&too_wide).number("number"),
            Err(DecodeError::Invalid { .. })
        ));
        let endless = [0x80; 11];
        assert!(matches!(
            Reader::new(&endless).number("number"),
            Err(DecodeError::Invalid { .. })
        ));
    }
}
