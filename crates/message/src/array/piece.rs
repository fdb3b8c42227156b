//! Buffers of an array as they are written to a payload.

use arrow_buffer::BooleanBuffer;
use arrow_data::{ByteView, MAX_INLINE_VIEW_LEN};

/// The content of one buffer.
#[derive(Debug)]
pub(super) enum Piece<'a> {
    /// Copied unchanged.
    Bytes(&'a [u8]),
    /// Shifted to start at the first bit.
    Bits(BooleanBuffer),
    /// Offsets into a child that is sent from `base` on.
    Offsets {
        offsets: &'a [u8],
        width: usize,
        base: i64,
    },
    /// Offsets of list views. Those of empty lists may have any value.
    ViewOffsets {
        offsets: &'a [u8],
        sizes: &'a [u8],
        width: usize,
        base: i64,
    },
    /// Offsets into children, each of which is sent from its own base on.
    UnionOffsets {
        type_ids: &'a [u8],
        offsets: &'a [u8],
        bases: Vec<usize>,
    },
    /// Run ends of the `length` elements after the first `start`.
    RunEnds {
        ends: &'a [u8],
        width: usize,
        start: i64,
        length: i64,
    },
    /// Views into data buffers, each of which is sent from its own base on. The view of a null may
    /// have any value, and is replaced by an empty one.
    Views {
        views: &'a [u8],
        valid: Option<BooleanBuffer>,
        bases: Vec<usize>,
    },
}

impl Piece<'_> {
    /// Writes the buffer. `out` has its exact length.
    pub(super) fn write(&self, out: &mut [u8]) {
        match self {
            Self::Bytes(bytes) => out.copy_from_slice(bytes),
            Self::Bits(bits) => {
                for (out, chunk) in out.chunks_mut(8).zip(bits.bit_chunks().iter_padded()) {
                    out.copy_from_slice(&chunk.to_le_bytes()[..out.len()]);
                }
            }
            Self::Offsets {
                offsets,
                width,
                base,
            } => map_words(*width, offsets, out, |_, offset| offset.wrapping_sub(*base)),
            Self::ViewOffsets {
                offsets,
                sizes,
                width,
                base,
            } => map_words(*width, offsets, out, |index, offset| {
                if word(sizes, *width, index) == 0 {
                    0
                } else {
                    offset.wrapping_sub(*base)
                }
            }),
            Self::UnionOffsets {
                type_ids,
                offsets,
                bases,
            } => {
                map_words(4, offsets, out, |index, offset| {
                    offset - bases[usize::from(type_ids[index])] as i64
                });
            }
            Self::RunEnds {
                ends,
                width,
                start,
                length,
            } => {
                map_words(*width, ends, out, |_, end| {
                    end.wrapping_sub(*start).min(*length)
                });
            }
            Self::Views {
                views,
                valid,
                bases,
            } => {
                for (index, out) in out.chunks_exact_mut(VIEW_BYTES).enumerate() {
                    let mut view = view(views, index);
                    if valid.as_ref().is_some_and(|valid| !valid.value(index)) {
                        view = 0;
                    } else if let Some(long) = long_view(view) {
                        let base = bases[long.buffer_index as usize];
                        view = long.with_offset(long.offset - base as u32).into();
                    }
                    out.copy_from_slice(&view.to_le_bytes());
                }
            }
        }
    }
}

/// Size of a view of text or binary.
pub(super) const VIEW_BYTES: usize = 16;

/// The view, if its text or binary is in a data buffer.
pub(super) fn long_view(view: u128) -> Option<ByteView> {
    let view = ByteView::from(view);
    (view.length > MAX_INLINE_VIEW_LEN).then_some(view)
}

pub(super) fn view(views: &[u8], index: usize) -> u128 {
    u128::from_le_bytes(fixed(&views[index * VIEW_BYTES..][..VIEW_BYTES]))
}

/// An integer of 2, 4 or 8 bytes, as in Arrow's offsets and run ends. Needs no alignment.
pub(super) fn word(words: &[u8], width: usize, index: usize) -> i64 {
    let bytes = &words[index * width..][..width];
    match width {
        2 => i16::from_le_bytes(fixed(bytes)).into(),
        4 => i32::from_le_bytes(fixed(bytes)).into(),
        _ => i64::from_le_bytes(fixed(bytes)),
    }
}

fn map_words(width: usize, words: &[u8], out: &mut [u8], map: impl Fn(usize, i64) -> i64) {
    for (index, out) in out.chunks_exact_mut(width).enumerate() {
        let mapped = map(index, word(words, width, index)).to_le_bytes();
        out.copy_from_slice(&mapped[..width]);
    }
}

fn fixed<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes
        .try_into()
        .expect("the caller passes the size of the type")
}
