//! Samples with verifiable content: a receiver can check that a sample is complete and unchanged.

use crate::{PlaneOutput, PlaneSample, Receipt, Refusal, Wait};
use nervure_message::Header;
use std::sync::LazyLock;

/// Payload and head of a test sample, generated from its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Content {
    /// Distinguishes the content of this sample from all others.
    pub number: u64,
    /// Length of the payload, in bytes.
    pub payload_bytes: usize,
    /// Length of the head, in bytes.
    pub head_bytes: usize,
}

/// A prime, so that no two blocks have equal content.
const NOISE_BYTES: usize = 65_537;

static NOISE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut noise = vec![0; 2 * NOISE_BYTES];
    fastrand::Rng::with_seed(1).fill(&mut noise);
    noise
});

impl Content {
    /// Content of the given number and size, without a head.
    pub fn new(number: u64, payload_bytes: usize) -> Self {
        Self {
            number,
            payload_bytes,
            head_bytes: 0,
        }
    }

    /// Adds a head.
    #[must_use]
    pub fn with_head(self, head_bytes: usize) -> Self {
        Self { head_bytes, ..self }
    }

    /// The header of the sample. The number is in every field that the plane does not set.
    pub fn header(&self) -> Header {
        Header {
            stamp: self.number as i64 + 1,
            correlation_id: self.number,
            trace_id: u128::from(self.number) << 64 | u128::from(!self.number),
            ..Header::default()
        }
    }

    /// Writes the payload.
    pub fn fill(&self, payload: &mut [u8]) {
        fill(payload, self.number);
    }

    /// Generates the head.
    pub fn head(&self) -> Vec<u8> {
        let mut head = vec![0; self.head_bytes];
        fill(&mut head, !self.number);
        head
    }

    /// Loans, fills in place and publishes.
    ///
    /// # Errors
    /// [`Refusal`].
    pub fn send(&self, output: &impl PlaneOutput, wait: Wait) -> Result<Receipt, Refusal> {
        use crate::PlaneLoan;
        let mut loan = output.loan(self.payload_bytes, self.head_bytes, wait)?;
        self.fill(loan.payload_mut());
        output
            .publish(loan, self.header(), &self.head(), wait)
            .map_err(|(_, refusal)| refusal)
    }

    /// Checks a sample against the content that its header and lengths determine.
    ///
    /// # Panics
    /// If any byte differs.
    pub fn check(sample: &impl PlaneSample) -> Self {
        let header = sample.header();
        let content = Self {
            number: header.correlation_id,
            payload_bytes: sample.payload().len(),
            head_bytes: sample.head().len(),
        };
        assert_eq!(
            (header.stamp, header.trace_id),
            (content.header().stamp, content.header().trace_id)
        );
        assert!(
            sample.head() == content.head(),
            "the head of sample {} is not its own",
            content.number
        );
        assert!(
            is_filled(sample.payload(), content.number),
            "payload of sample {} is not its own",
            content.number
        );
        content
    }
}

fn fill(bytes: &mut [u8], number: u64) {
    let noise = noise(number);
    for chunk in bytes.chunks_mut(NOISE_BYTES) {
        chunk.copy_from_slice(&noise[..chunk.len()]);
    }
    mark(number, bytes.len(), |index, byte| bytes[index] = byte);
}

fn is_filled(bytes: &[u8], number: u64) -> bool {
    let noise = noise(number);
    let mut whole = true;
    mark(number, bytes.len(), |index, byte| {
        whole &= bytes[index] == byte
    });
    let (mut at, end) = (
        bytes.len().min(8),
        if bytes.len() >= 16 {
            bytes.len() - 8
        } else {
            bytes.len()
        },
    );
    while whole && at < end {
        let stop = end.min((at / NOISE_BYTES + 1) * NOISE_BYTES);
        whole = bytes[at..stop] == noise[at % NOISE_BYTES..][..stop - at];
        at = stop;
    }
    whole
}

fn noise(number: u64) -> &'static [u8] {
    let start = (number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) as usize % NOISE_BYTES;
    &NOISE[start..][..NOISE_BYTES]
}

/// Writes the number at both ends, so that numbers with the same piece of noise differ.
fn mark(number: u64, bytes: usize, mut set: impl FnMut(usize, u8)) {
    for (index, byte) in number.to_le_bytes().into_iter().enumerate() {
        if index < bytes {
            set(index, byte);
        }
        if bytes >= 16 {
            set(bytes - 8 + index, byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_byte_is_detected_at_any_position() {
        for bytes in [1, 7, 8, 9, 16, 17, 4096, NOISE_BYTES, NOISE_BYTES * 3 + 5] {
            let mut payload = vec![0; bytes];
            fill(&mut payload, 77);
            assert!(is_filled(&payload, 77));
            assert!(!is_filled(&payload, 78), "{bytes}");
            for at in [0, bytes / 2, bytes - 1] {
                payload[at] ^= 1;
                assert!(!is_filled(&payload, 77), "{at} of {bytes}");
                payload[at] ^= 1;
            }
        }
    }
}
