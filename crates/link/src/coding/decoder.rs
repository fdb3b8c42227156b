//! Decodes a block on the transforms of `reed_solomon_simd::engine`.
//!
//! The crate's own decoder counts all 65536 elements of the field as positions of the code, which
//! takes 0.3 ms for each block, however short. Here the positions are those up to the highest repair
//! shard that arrived, rounded up to a power of two. Those hold at least as many shards as the
//! polynomial of the block has coefficients, so they determine it. The rest is the algorithm of the
//! crate (Lin, Al-Naffouri, Han and Chung, FOCS 2014): the polynomial times one that is zero at the
//! positions of missing shards is known everywhere, and its derivative gives the missing values.
//!
//! Columns of shards are independent of each other, so they are decoded in strips: the working memory
//! fits the processor's cache, and does not grow with the length of shards.

use reed_solomon_simd::engine::{
    DefaultEngine, Engine, GF_MODULUS, ShardsRefMut, tables::get_exp_log, utils::xor_within,
};

use super::geometry::CodingBlock;

/// The engine works on columns of this many bytes.
const COLUMN_BYTES: usize = 64;
/// Columns in a strip. For 360 shards of 1458 bytes, decoding takes 0.57 ms with 6 to 23 columns, and
/// 0.67 ms with 4.
const STRIP_COLUMNS: usize = 8;

pub(super) struct Decoder {
    engine: DefaultEngine,
    work: Vec<[u8; COLUMN_BYTES]>,
}

impl Decoder {
    pub(super) fn new() -> Self {
        Self {
            engine: DefaultEngine::new(),
            work: Vec::new(),
        }
    }

    /// Bytes of working memory.
    pub(super) fn bytes(&self) -> usize {
        self.work.capacity() * COLUMN_BYTES
    }

    /// Restores the source shards that are `missing`, in ascending order, in `target`, which holds
    /// the others. `repair` gives as many repair shards or more, with their indices.
    pub(super) fn decode<'a>(
        &mut self,
        block: CodingBlock,
        target: &mut [u8],
        missing: &[usize],
        repair: impl Iterator<Item = (usize, &'a [u8])> + Clone,
    ) {
        let first_repair = block.source_shards().next_power_of_two();
        let repair = repair.map(|(index, shard)| (first_repair + index, shard));
        let end = repair.clone().map(|(position, _)| position + 1).max();
        let end = end.expect("a repair shard");
        let factors = factors(
            end.next_power_of_two(),
            first_repair,
            missing,
            repair.clone(),
        );
        let in_place: Vec<_> = (0..block.source_shards())
            .filter(|shard| missing.binary_search(shard).is_err())
            .collect();
        for start in (0..block.shard_bytes()).step_by(STRIP_COLUMNS * COLUMN_BYTES) {
            let strip = start
                ..block
                    .shard_bytes()
                    .min(start + STRIP_COLUMNS * COLUMN_BYTES);
            let columns = strip.len().div_ceil(COLUMN_BYTES);
            self.work.clear();
            self.work.resize(factors.len() * columns, [0; COLUMN_BYTES]);
            let mut place = |position: usize, shard: &[u8]| {
                let place = &mut self.work[position * columns..][..columns];
                let part = &shard[start.min(shard.len())..strip.end.min(shard.len())];
                place_strip(place, part, strip.len());
                self.engine.mul(place, factors[position]);
            };
            for shard in &in_place {
                place(*shard, &target[block.shard_range(*shard)]);
            }
            for (position, shard) in repair.clone() {
                place(position, shard);
            }
            self.transform(columns, end, missing.last().map_or(0, |last| last + 1));
            for shard in missing {
                let place = &mut self.work[shard * columns..][..columns];
                self.engine.mul(place, GF_MODULUS - factors[*shard]);
                take_strip(place, strip.len());
                let restored = target[block.shard_range(*shard)].iter_mut().skip(start);
                let place = &place.as_flattened()[..strip.len()];
                restored.zip(place).for_each(|(to, from)| *to = *from);
            }
        }
    }

    /// Turns the known values into those of the derivative at the first `wanted` positions. All
    /// values from `end` on are zero.
    fn transform(&mut self, columns: usize, end: usize, wanted: usize) {
        let positions = self.work.len() / columns;
        let mut work = ShardsRefMut::new(positions, columns, &mut self.work);
        self.engine.ifft(&mut work, 0, positions, end, 0);
        for position in 1..positions {
            let width = 1 << position.trailing_zeros();
            xor_within(&mut work, position - width, position, width);
        }
        self.engine.fft(&mut work, 0, positions, wanted, 0);
    }
}

/// The logarithms of the values, at all positions, of the polynomial that is zero where no shard is
/// known; at these, of its derivative.
fn factors<'a>(
    positions: usize,
    first_repair: usize,
    missing: &[usize],
    repair: impl Iterator<Item = (usize, &'a [u8])>,
) -> Vec<u16> {
    let mut unknown = vec![0_i64; positions];
    missing.iter().for_each(|missing| unknown[*missing] = 1);
    unknown[first_repair..].fill(1);
    repair.for_each(|(position, _)| unknown[position] = 0);
    // At each position the sum of the logarithms of its distances from the zeros. A distance is the
    // exclusive-or of two positions, so the sums are a convolution. The largest value in it is below
    // 2^16 * 4096^3.
    let logarithms = &get_exp_log().log[..positions];
    let mut distances: Vec<_> = logarithms.iter().map(|log| i64::from(*log)).collect();
    walsh_transform(&mut unknown);
    walsh_transform(&mut distances);
    for (sum, distance) in unknown.iter_mut().zip(distances) {
        *sum *= distance;
    }
    walsh_transform(&mut unknown);
    let sums = unknown.into_iter().map(|sum| sum / positions as i64);
    sums.map(|sum| (sum % i64::from(GF_MODULUS)) as u16)
        .collect()
}

/// The Walsh-Hadamard transform, which is its own inverse but for a factor.
fn walsh_transform(values: &mut [i64]) {
    let mut distance = 1;
    while distance < values.len() {
        for pair in values.chunks_exact_mut(2 * distance) {
            let (low, high) = pair.split_at_mut(distance);
            for (low, high) in low.iter_mut().zip(high) {
                (*low, *high) = (*low + *high, *low - *high);
            }
        }
        distance *= 2;
    }
}

/// Writes part of a shard to zeroed columns. The last column of a strip of `strip_bytes` may be
/// short: it has its first half at its start, and the other half from its middle.
fn place_strip(columns: &mut [[u8; COLUMN_BYTES]], part: &[u8], strip_bytes: usize) {
    let whole = strip_bytes / COLUMN_BYTES * COLUMN_BYTES;
    let (body, tail) = part.split_at(part.len().min(whole));
    columns.as_flattened_mut()[..body.len()].copy_from_slice(body);
    let half = (strip_bytes - whole) / 2;
    if let Some(last) = columns.get_mut(whole / COLUMN_BYTES) {
        let (low, high) = tail.split_at(tail.len().min(half));
        last[..low.len()].copy_from_slice(low);
        last[COLUMN_BYTES / 2..][..high.len()].copy_from_slice(high);
    }
}

/// Puts the halves of a short last column together again.
fn take_strip(columns: &mut [[u8; COLUMN_BYTES]], strip_bytes: usize) {
    let half = strip_bytes % COLUMN_BYTES / 2;
    if half > 0 {
        let last = columns.last_mut().expect("a strip is not empty");
        last.copy_within(COLUMN_BYTES / 2..COLUMN_BYTES / 2 + half, half);
    }
}
