//! Contents of a slot of the ring.
//!
//! Words 0..11 are the header, 11..15 the descriptor, 16.. the inline area. Of a sample from another
//! machine, the upper half of word 14 and word 15 are its origin; otherwise they are 0. A small payload lies at
//! the start of the inline area, and its head at the next multiple of 8. The head of a block lies
//! at the start of the inline area. If it does not fit there, it lies in the block, at the next
//! multiple of 8 behind the payload.

use crate::atomics::{AtomicU64, Ordering::Relaxed};
use nervure_message::{Header, Origin};

/// Words of a slot: header and descriptor, then the inline area.
pub(crate) const SLOT_WORDS: usize = 48;
/// Bytes of the inline area.
pub const INLINE_BYTES: usize = (SLOT_WORDS - INLINE) * 8;
/// Largest head of a sample (layout and metadata), in bytes.
pub const MAX_HEAD_BYTES: usize = 64 * 1024;
/// Value of [`Descriptor::block`] for a sample that has none.
pub(crate) const NO_BLOCK: u32 = u32::MAX;

/// Index of the word with the block in its low half and the segment in its high half.
const WORD_BLOCK: usize = Header::WORDS;
const WORD_HEAD: usize = WORD_BLOCK + 3;
const WORD_PUBLISHED: usize = WORD_HEAD + 1;
const INLINE: usize = 16;
const _: () = assert!(WORD_PUBLISHED < INLINE);

/// Where the bytes of a sample lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    /// Row of the lease table, or [`NO_BLOCK`].
    pub(crate) block: u32,
    pub(crate) segment: u32,
    /// Start of the block within its segment, in bytes.
    pub(crate) offset: u64,
    pub(crate) payload_bytes: u64,
    pub(crate) head_bytes: u32,
}

impl Descriptor {
    /// Row of the block, if the sample has one.
    pub(crate) fn block(&self) -> Option<u32> {
        Some(self.block).filter(|&block| block != NO_BLOCK)
    }

    /// Bytes of the inline area in use. Saturates if the peer wrote nonsense.
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

    fn inline_words(&self) -> usize {
        self.inline_bytes().div_ceil(8)
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

/// The inline area, aligned for any payload (128-bit values). Its size stays within the allocator's
/// fast path.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(16))]
pub(crate) struct InlineArea(pub(crate) [u64; SLOT_WORDS - INLINE]);

impl Default for InlineArea {
    fn default() -> Self {
        Self([0; SLOT_WORDS - INLINE])
    }
}

impl InlineArea {
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the words span INLINE_BYTES, and initialised words are valid, aligned bytes.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), INLINE_BYTES) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and any bytes are valid words.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), INLINE_BYTES) }
    }
}

/// The words of a slot before its inline area: the header and the descriptor.
#[derive(Clone, Debug, Default)]
pub(crate) struct SlotHeader([u64; INLINE]);

impl SlotHeader {
    /// Copies a slot out of shared memory: these words, and into `inline` the words in use behind
    /// them. Stays in bounds whatever the slot holds.
    #[inline]
    pub(crate) fn load(slot: &[AtomicU64], inline: &mut InlineArea) -> Self {
        let mut fixed = Self([0; INLINE]);
        for (value, word) in fixed.0.iter_mut().zip(slot) {
            *value = word.load(Relaxed);
        }
        let used = fixed.descriptor().inline_words().min(inline.0.len());
        for (value, word) in inline.0[..used].iter_mut().zip(&slot[INLINE..]) {
            *value = word.load(Relaxed);
        }
        fixed
    }

    pub(crate) fn header(&self) -> Header {
        Header::from_words(self.0[..Header::WORDS].try_into().expect("as many words"))
    }

    pub(crate) fn descriptor(&self) -> Descriptor {
        Descriptor::from_words(&self.0[WORD_BLOCK..=WORD_HEAD])
    }

    /// The first publication of a sample from another machine.
    #[inline]
    pub(crate) fn origin(&self) -> Option<Origin> {
        let boot = (self.0[WORD_HEAD] >> 32) as u32;
        (boot != 0).then_some(Origin {
            boot,
            published: self.0[WORD_PUBLISHED],
        })
    }
}

/// A slot in private memory. Its inline area is filled first; then it is described.
#[derive(Clone, Debug, Default)]
pub(crate) struct SlotImage {
    fixed: SlotHeader,
    inline: InlineArea,
    /// Number of words of the inline area in use.
    used: usize,
}

impl SlotImage {
    pub(crate) fn inline(&self) -> &[u8] {
        self.inline.bytes()
    }

    pub(crate) fn inline_mut(&mut self) -> &mut [u8] {
        self.inline.bytes_mut()
    }

    /// Stores header, descriptor and origin, and derives how much of the inline area is in use.
    #[inline]
    pub(crate) fn describe(
        &mut self,
        header: &Header,
        descriptor: &Descriptor,
        origin: Option<Origin>,
    ) {
        self.fixed.0[..Header::WORDS].copy_from_slice(&header.to_words());
        self.fixed.0[WORD_BLOCK..=WORD_HEAD].copy_from_slice(&descriptor.words());
        let Origin { boot, published } = origin.unwrap_or(Origin {
            boot: 0,
            published: 0,
        });
        self.fixed.0[WORD_HEAD] |= u64::from(boot) << 32;
        self.fixed.0[WORD_PUBLISHED] = published;
        self.used = descriptor.inline_words();
    }

    pub(crate) fn store(&self, slot: &[AtomicU64]) {
        let values = self.fixed.0.iter().chain(&self.inline.0[..self.used]);
        for (word, value) in slot.iter().zip(values) {
            word.store(*value, Relaxed);
        }
    }

    pub(crate) fn header(&self) -> Header {
        self.fixed.header()
    }

    pub(crate) fn descriptor(&self) -> Descriptor {
        self.fixed.descriptor()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_payload_and_its_head_pass_through_a_slot() {
        let slot: Vec<AtomicU64> = (0..SLOT_WORDS).map(|_| AtomicU64::new(u64::MAX)).collect();
        let descriptor = Descriptor {
            block: NO_BLOCK,
            segment: 0,
            offset: 0,
            payload_bytes: 13,
            head_bytes: 5,
        };
        let header = Header {
            sequence: 7,
            frame_id: 3,
            ..Header::default()
        };
        let mut image = SlotImage::default();
        image.inline_mut()[..13].copy_from_slice(b"hello, world!");
        image.inline_mut()[16..21].copy_from_slice(b"HEAD!");
        let origin = Origin {
            boot: 9,
            published: u64::MAX,
        };
        image.describe(&header, &descriptor, Some(origin));
        image.store(&slot);
        let mut inline = InlineArea::default();
        let fixed = SlotHeader::load(&slot, &mut inline);
        assert_eq!(
            (
                fixed.header(),
                fixed.descriptor(),
                fixed.descriptor().block(),
                fixed.origin()
            ),
            (header, descriptor, None, Some(origin))
        );
        assert_eq!(
            (&inline.bytes()[..13], &inline.bytes()[16..21]),
            (b"hello, world!".as_slice(), b"HEAD!".as_slice())
        );
    }

    #[test]
    fn hostile_sizes_stay_in_bounds() {
        let slot: Vec<AtomicU64> = (0..SLOT_WORDS).map(|_| AtomicU64::new(u64::MAX)).collect();
        let mut inline = InlineArea::default();
        let fixed = SlotHeader::load(&slot, &mut inline);
        assert_eq!(inline.0, [u64::MAX; SLOT_WORDS - INLINE]);
        assert_eq!(fixed.descriptor().inline_bytes(), usize::MAX);
    }
}
