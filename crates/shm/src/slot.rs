//! What a slot of the ring holds.
//!
//! Words 0..11 are the header, 11..15 the descriptor, 16.. the inline area. A small payload lies at the start of the
//! inline area and its head at the next multiple of 8; a block's head lies at the start of the inline area, or, when
//! it does not fit there, in the block at the next multiple of 8 behind the payload.

use crate::ring::SLOT_WORDS;
use crate::sync::{AtomicU64, Ordering::Relaxed};
use nervure_message::Header;

/// Bytes of the inline area.
pub const INLINE_BYTES: usize = (SLOT_WORDS - INLINE) * 8;
/// The largest head in bytes.
pub const MAX_HEAD_BYTES: usize = 64 * 1024;
/// The block of a sample that has none.
pub(crate) const NO_BLOCK: u32 = u32::MAX;

/// Block in the low half, segment in the high half.
const WORD_BLOCK: usize = Header::WORDS;
const WORD_HEAD: usize = WORD_BLOCK + 3;
const INLINE: usize = 16;
const _: () = assert!(WORD_HEAD < INLINE);

/// Where a sample's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    /// Row of the lease table, or [`NO_BLOCK`].
    pub(crate) block: u32,
    pub(crate) segment: u32,
    /// Of the block within its segment.
    pub(crate) offset: u64,
    pub(crate) payload_bytes: u64,
    pub(crate) head_bytes: u32,
}

impl Descriptor {
    /// Its block, if it has one.
    pub(crate) fn block(&self) -> Option<u32> {
        Some(self.block).filter(|&block| block != NO_BLOCK)
    }

    /// Bytes of the inline area in use. Saturates where the peer wrote nonsense.
    fn inline_bytes(&self) -> usize {
        let head = self.head_bytes as usize;
        if self.block == NO_BLOCK {
            usize::try_from(self.payload_bytes)
                .unwrap_or(usize::MAX)
                .checked_next_multiple_of(8)
                .map_or(usize::MAX, |start| start.saturating_add(head))
        } else if head <= INLINE_BYTES {
            head
        } else {
            0
        }
    }

    fn words(&self) -> [u64; 4] {
        [
            u64::from(self.block) | u64::from(self.segment) << 32,
            self.offset,
            self.payload_bytes,
            u64::from(self.head_bytes),
        ]
    }

    fn from_words(words: &[u64]) -> Self {
        Self {
            block: words[0] as u32,
            segment: (words[0] >> 32) as u32,
            offset: words[1],
            payload_bytes: words[2],
            head_bytes: words[3] as u32,
        }
    }
}

/// The inline area, aligned for any payload (128-bit values), and no more than the allocator's fast path gives.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(16))]
pub(crate) struct Inline(pub(crate) [u64; SLOT_WORDS - INLINE]);

impl Inline {
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: words are bytes of any value, and a byte needs no alignment.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), INLINE_BYTES) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and any bytes are valid words.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), INLINE_BYTES) }
    }
}

/// A slot in private memory.
#[derive(Clone)]
pub(crate) struct SlotImage {
    fixed: [u64; INLINE],
    inline: Inline,
    /// Words of the inline area in use.
    used: usize,
}

impl SlotImage {
    /// Fills a slot. `inline_payload` is as long as the inline area for a sample without a block, and empty else.
    pub(crate) fn new(header: &Header, descriptor: &Descriptor, inline_payload: &[u8], head: &[u8]) -> Self {
        let mut fixed = [0; INLINE];
        fixed[..Header::WORDS].copy_from_slice(&header.to_words());
        fixed[WORD_BLOCK..=WORD_HEAD].copy_from_slice(&descriptor.words());
        let mut inline = Inline([0; SLOT_WORDS - INLINE]);
        let bytes = inline.bytes_mut();
        let payload = if descriptor.block == NO_BLOCK { descriptor.payload_bytes as usize } else { 0 };
        bytes[..payload].copy_from_slice(&inline_payload[..payload]);
        let used = descriptor.inline_bytes();
        if used > 0 && used >= head.len() {
            bytes[used - head.len()..used].copy_from_slice(head);
        }
        Self { fixed, inline, used: used.div_ceil(8) }
    }

    pub(crate) fn store(&self, slot: &[AtomicU64]) {
        let values = self.fixed.iter().chain(&self.inline.0[..self.used]);
        for (word, value) in slot.iter().zip(values) {
            word.store(*value, Relaxed);
        }
    }

    /// Copies a slot out of shared memory. Whatever it holds, this stays in bounds.
    pub(crate) fn load(slot: &[AtomicU64]) -> Self {
        let mut image = Self { fixed: [0; INLINE], inline: Inline([0; SLOT_WORDS - INLINE]), used: 0 };
        for (value, word) in image.fixed.iter_mut().zip(slot) {
            *value = word.load(Relaxed);
        }
        image.used = image.descriptor().inline_bytes().div_ceil(8).min(SLOT_WORDS - INLINE);
        for (value, word) in image.inline.0[..image.used].iter_mut().zip(&slot[INLINE..]) {
            *value = word.load(Relaxed);
        }
        image
    }

    pub(crate) fn header(&self) -> Header {
        Header::from_words(self.fixed[..Header::WORDS].try_into().expect("as many words"))
    }

    pub(crate) fn descriptor(&self) -> Descriptor {
        Descriptor::from_words(&self.fixed[WORD_BLOCK..=WORD_HEAD])
    }

    pub(crate) fn into_inline(self) -> Inline {
        self.inline
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_payload_and_its_head_survive_the_slot() {
        let slot: Vec<AtomicU64> = (0..SLOT_WORDS).map(|_| AtomicU64::new(u64::MAX)).collect();
        let descriptor =
            Descriptor { block: NO_BLOCK, segment: 0, offset: 0, payload_bytes: 13, head_bytes: 5 };
        let header = Header { sequence: 7, frame_id: 3, ..Header::default() };
        let mut payload = [0; INLINE_BYTES];
        payload[..13].copy_from_slice(b"hello, world!");
        SlotImage::new(&header, &descriptor, &payload, b"HEAD!").store(&slot);
        let image = SlotImage::load(&slot);
        assert_eq!(
            (image.header(), image.descriptor(), image.descriptor().block()),
            (header, descriptor, None)
        );
        let inline = image.into_inline();
        assert_eq!(
            (&inline.bytes()[..13], &inline.bytes()[16..21]),
            (b"hello, world!".as_slice(), b"HEAD!".as_slice())
        );
    }

    #[test]
    fn hostile_sizes_stay_in_bounds() {
        let slot: Vec<AtomicU64> = (0..SLOT_WORDS).map(|_| AtomicU64::new(u64::MAX)).collect();
        let image = SlotImage::load(&slot);
        assert_eq!(image.used, SLOT_WORDS - INLINE);
        assert_eq!(image.descriptor().inline_bytes(), usize::MAX);
    }
}
