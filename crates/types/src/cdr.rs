//! Decodes CDR, the encoding of ROS 2 messages: the Common Data Representation of OMG (DDS
//! Interoperability Wire Protocol, section 10; "plain" CDR of XTypes version 1). A value is aligned
//! to its size, counted from the end of the 4 bytes that identify the encoding.

/// Why a message does not match its definition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CdrError {
    /// The encoding is not plain CDR, or missing.
    #[error("the message begins with {found:02x?}, which is not plain CDR (00 00 or 00 01)")]
    Encoding {
        /// First bytes of the message.
        found: Vec<u8>,
    },
    /// The message ends early, or a count exceeds the rest of the message.
    #[error("the message needs {wanted} bytes at byte {at}, where {left} are left")]
    Short {
        /// Offset in bytes.
        at: usize,
        /// Number of bytes required, at least.
        wanted: usize,
        /// Number of bytes left.
        left: usize,
    },
    /// Bytes are left after the last field, so the definition is not that of the message.
    #[error(
        "{left} bytes are left after the last field, at byte {at}: the message has other fields than its definition"
    )]
    Left {
        /// Offset in bytes.
        at: usize,
        /// Number of bytes left.
        left: usize,
    },
    /// A list exceeds 2 GB.
    #[error("the message is too large for Arrow's lists")]
    TooLarge,
}

/// Length of the identifier of the encoding.
const ENCODING_BYTES: usize = 4;

/// Reads a message from front to back.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    is_big_endian: bool,
}

impl<'a> Reader<'a> {
    /// Begins at the first field of a message, whose byte order its first bytes give.
    ///
    /// # Errors
    /// If the encoding is another one.
    pub fn new(message: &'a [u8]) -> Result<Self, CdrError> {
        let is_big_endian = match message {
            [0, 0, _, _, ..] => true,
            [0, 1, _, _, ..] => false,
            _ => {
                let found = message[..message.len().min(ENCODING_BYTES)].to_vec();
                return Err(CdrError::Encoding { found });
            }
        };
        Ok(Self {
            bytes: &message[ENCODING_BYTES..],
            at: 0,
            is_big_endian,
        })
    }

    /// Whether the bytes of numbers must be reversed.
    pub fn is_big_endian(&self) -> bool {
        self.is_big_endian
    }

    /// `count` values of `size` bytes each, aligned to `size`.
    ///
    /// # Errors
    /// If the message ends before.
    pub fn values(&mut self, count: usize, size: usize) -> Result<&'a [u8], CdrError> {
        if count == 0 {
            return Ok(&[]);
        }
        let start = self.at.next_multiple_of(size);
        let left = self.bytes.len().saturating_sub(start);
        let wanted = count.saturating_mul(size);
        if wanted > left {
            return Err(CdrError::Short {
                at: start + ENCODING_BYTES,
                wanted,
                left,
            });
        }
        self.at = start + wanted;
        Ok(&self.bytes[start..self.at])
    }

    /// # Errors
    /// If the message ends before.
    pub fn u8(&mut self) -> Result<u8, CdrError> {
        Ok(self.values(1, 1)?[0])
    }

    /// # Errors
    /// If the message ends before.
    pub fn u32(&mut self) -> Result<u32, CdrError> {
        let bytes = self.values(1, 4)?.try_into().expect("four bytes");
        Ok(if self.is_big_endian {
            u32::from_be_bytes(bytes)
        } else {
            u32::from_le_bytes(bytes)
        })
    }

    /// # Errors
    /// If the message ends before.
    pub fn i32(&mut self) -> Result<i32, CdrError> {
        self.u32().map(u32::cast_signed)
    }

    /// The number of values in a sequence. As each value takes at least one byte, more than the
    /// bytes left is an error.
    ///
    /// # Errors
    /// If the message cannot have them.
    pub fn count(&mut self) -> Result<usize, CdrError> {
        let count = self.u32()? as usize;
        let left = self.bytes.len() - self.at;
        if count > left {
            return Err(CdrError::Short {
                at: self.at + ENCODING_BYTES,
                wanted: count,
                left,
            });
        }
        Ok(count)
    }

    /// A text, without its terminating zero.
    ///
    /// # Errors
    /// If the message ends before.
    pub fn text(&mut self) -> Result<&'a [u8], CdrError> {
        let count = self.count()?;
        let bytes = self.values(count, 1)?;
        Ok(bytes.strip_suffix(&[0]).unwrap_or(bytes))
    }

    /// Fails unless the whole message was read. Zeros up to a multiple of 4 bytes may follow, which
    /// Fast DDS and Cyclone DDS write, and 4 more, to which old versions of Fast CDR align an empty
    /// sequence of 8-byte values.
    ///
    /// # Errors
    /// If bytes are left.
    pub fn finish(&self) -> Result<(), CdrError> {
        const MAX_PADDING_BYTES: usize = 7;
        let rest = &self.bytes[self.at..];
        let is_padding = rest.len() <= MAX_PADDING_BYTES
            && self.bytes.len().is_multiple_of(4)
            && rest.iter().all(|&byte| byte == 0);
        if rest.is_empty() || is_padding {
            return Ok(());
        }
        Err(CdrError::Left {
            at: self.at + ENCODING_BYTES,
            left: rest.len(),
        })
    }

    /// A sequence of bytes.
    ///
    /// # Errors
    /// If the message ends before.
    pub fn byte_sequence(&mut self) -> Result<&'a [u8], CdrError> {
        let count = self.count()?;
        self.values(count, 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_aligned_to_their_size_in_either_byte_order() {
        let little = [
            0, 1, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0, b'h', b'i', 0,
        ];
        let mut reader = Reader::new(&little).unwrap();
        assert_eq!(
            (reader.u8(), reader.u32(), reader.text()),
            (Ok(7), Ok(1), Ok(&b"hi"[..]))
        );
        let big = [
            0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 3, b'h', b'i', 0,
        ];
        let mut reader = Reader::new(&big).unwrap();
        assert_eq!(
            (reader.u8(), reader.u32(), reader.text()),
            (Ok(7), Ok(1), Ok(&b"hi"[..]))
        );
        assert!(reader.is_big_endian());
    }

    #[test]
    fn only_padding_may_be_left() {
        let rest = |tail: &[u8]| {
            let message = [&[0, 1, 0, 0, 7], tail].concat();
            let mut reader = Reader::new(&message).unwrap();
            reader.u8().unwrap();
            reader.finish()
        };
        for padding in [0, 3, 7] {
            assert_eq!(rest(&vec![0; padding]), Ok(()));
        }
        for tail in [&[0][..], &[0; 4], &[0; 11], &[0, 0, 1]] {
            let left = tail.len();
            assert_eq!(rest(tail), Err(CdrError::Left { at: 5, left }));
        }
    }

    #[test]
    fn a_count_is_checked_against_the_rest_of_the_message() {
        let mut reader = Reader::new(&[0, 1, 0, 0, 0xff, 0xff, 0xff, 0xff, 1]).unwrap();
        assert_eq!(
            reader.count(),
            Err(CdrError::Short {
                at: 8,
                wanted: 0xffff_ffff,
                left: 1
            })
        );
        assert!(reader.values(usize::MAX, 8).is_err());
        let error = Reader::new(&[0, 7, 0, 0]).unwrap_err().to_string();
        assert_eq!(
            error,
            "the message begins with [00, 07, 00, 00], which is not plain CDR (00 00 or 00 01)"
        );
    }
}
