//! The part of a recorded message that viewers ignore.
//!
//! A message of a recording is `viewer's bytes, payload, viewer's bytes, envelope`. The payload is
//! stored once, byte for byte as its receivers saw it: as the `data` of an image, or as the body of
//! an Arrow record batch. The envelope holds everything else about the sample. Its last bytes, the
//! trailer, give the position of the payload. So reading a sample back is exact and does not depend
//! on the viewer's encoding.
//!
//!
//! 88  header, little-endian words as of `Header::to_words`
//!  4  length of the frame's name
//!  .  the frame's name
//!  .  head: layout and metadata
//!  4  offset of the payload in the message
//!  8  length of the payload
//!  4  length of the envelope, including the trailer
//!  4  "nvr1"
//! ```

use nervure_message::Header;

/// The last bytes of every message that holds a sample. The digit is the version of the envelope.
const MAGIC: [u8; 4] = *b"nvr1";
const HEADER_BYTES: usize = Header::WORDS * 8;
const TRAILER_BYTES: usize = 20;
/// Size of the length field of the frame's name.
const LENGTH_BYTES: usize = 4;

/// A sample without its payload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RecordedEnvelope<'a> {
    pub(crate) header: Header,
    /// Empty for none.
    pub(crate) frame: &'a str,
    pub(crate) head: &'a [u8],
}

/// Why a message is not a recorded sample.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// The message is too short, or does not end with the trailer's magic bytes.
    #[error("the message does not end with the envelope of a sample")]
    Missing,
    /// The lengths in the envelope contradict each other.
    #[error("the sample's envelope is damaged: {0}")]
    Damaged(&'static str),
}

impl<'a> RecordedEnvelope<'a> {
    /// Number of bytes that [`Self::write`] appends.
    pub(crate) fn bytes(&self) -> usize {
        HEADER_BYTES + LENGTH_BYTES + self.frame.len() + self.head.len() + TRAILER_BYTES
    }

    /// Appends the envelope of a message whose payload of `payload_bytes` begins at
    /// `payload_start`.
    pub(crate) fn write(&self, message: &mut Vec<u8>, payload_start: usize, payload_bytes: usize) {
        for word in self.header.to_words() {
            message.extend_from_slice(&word.to_le_bytes());
        }
        message.extend_from_slice(&(self.frame.len() as u32).to_le_bytes());
        message.extend_from_slice(self.frame.as_bytes());
        message.extend_from_slice(self.head);
        message.extend_from_slice(&(payload_start as u32).to_le_bytes());
        message.extend_from_slice(&(payload_bytes as u64).to_le_bytes());
        message.extend_from_slice(&(self.bytes() as u32).to_le_bytes());
        message.extend_from_slice(&MAGIC);
    }

    /// Splits a message into envelope and payload.
    pub(crate) fn read(message: &'a [u8]) -> Result<(Self, &'a [u8]), EnvelopeError> {
        let damaged = EnvelopeError::Damaged;
        let (rest, trailer) = message
            .split_last_chunk::<TRAILER_BYTES>()
            .ok_or(EnvelopeError::Missing)?;
        if trailer[16..] != MAGIC {
            return Err(EnvelopeError::Missing);
        }
        let payload_start = u64::from(u32::from_le_bytes(fixed(&trailer[..4])));
        let payload_bytes = u64::from_le_bytes(fixed(&trailer[4..12]));
        let envelope_bytes = u32::from_le_bytes(fixed(&trailer[12..16])) as usize;

        let start = message
            .len()
            .checked_sub(envelope_bytes)
            .filter(|&start| start <= rest.len());
        let (before, envelope) =
            rest.split_at(start.ok_or(damaged("it is longer than the message"))?);
        let payload = payload_start
            .checked_add(payload_bytes)
            .filter(|&end| end <= before.len() as u64);
        let payload = payload.ok_or(damaged("the payload overlaps the envelope"))? as usize;
        let payload = &before[payload_start as usize..payload];

        let (words, rest) = envelope
            .split_at_checked(HEADER_BYTES)
            .ok_or(damaged("it is shorter than a header"))?;
        let mut header = [0; Header::WORDS];
        for (word, bytes) in header.iter_mut().zip(words.chunks_exact(8)) {
            *word = u64::from_le_bytes(fixed(bytes));
        }
        let (length, rest) = rest
            .split_first_chunk::<LENGTH_BYTES>()
            .ok_or(damaged("there is no frame"))?;
        let (frame, head) = rest
            .split_at_checked(u32::from_le_bytes(*length) as usize)
            .ok_or(damaged("the frame's name is longer than the envelope"))?;
        let frame =
            std::str::from_utf8(frame).map_err(|_| damaged("the frame's name is not UTF-8"))?;
        Ok((
            Self {
                header: Header::from_words(&header),
                frame,
                head,
            },
            payload,
        ))
    }
}

fn fixed<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes
        .try_into()
        .expect("the caller cut as many bytes as the type has")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(
        before: &[u8],
        payload: &[u8],
        after: &[u8],
        envelope: &RecordedEnvelope<'_>,
    ) -> Vec<u8> {
        let mut message = [before, payload, after].concat();
        envelope.write(&mut message, before.len(), payload.len());
        message
    }

    proptest! {
        #[test]
        fn a_sample_is_read_back_from_between_any_bytes(
            before: Vec<u8>, payload: Vec<u8>, after: Vec<u8>, head: Vec<u8>, frame: String,
            words: [u64; Header::WORDS],
        ) {
            let header = Header::from_words(&words);
            let envelope = RecordedEnvelope { header, frame: &frame, head: &head };
            let message = message(&before, &payload, &after, &envelope);
            prop_assert_eq!(message.len(), before.len() + payload.len() + after.len() + envelope.bytes());
            prop_assert_eq!(RecordedEnvelope::read(&message), Ok((envelope, &payload[..])));
        }

        #[test]
        fn a_damaged_message_is_read_or_refused(
            payload: Vec<u8>, head: Vec<u8>, at: prop::sample::Index, byte: u8, cut: prop::sample::Index,
        ) {
            let envelope = RecordedEnvelope { header: Header::default(), frame: "base", head: &head };
            let mut message = message(b"<", &payload, b">", &envelope);
            let at = at.index(message.len());
            message[at] = byte;
            let _ = RecordedEnvelope::read(&message);
            let _ = RecordedEnvelope::read(&message[..cut.index(message.len())]);
        }
    }

    #[test]
    fn bytes_without_the_trailer_are_not_a_sample() {
        assert_eq!(RecordedEnvelope::read(b""), Err(EnvelopeError::Missing));
        assert_eq!(
            RecordedEnvelope::read(&[7; 300]),
            Err(EnvelopeError::Missing)
        );
    }
}
