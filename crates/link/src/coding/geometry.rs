//! How a sample is cut into coding blocks and shards. The cut depends only on the lengths of the
//! sample and of the longest shard, so both ends compute the same.

use std::ops::Range;

/// The longest sample, in bytes.
pub const SAMPLE_BYTES_MAX: usize = 1 << 30;
/// The most source shards in a coding block.
pub const SHARDS_MAX: usize = 1024;
/// The lowest limit for the length of a shard, in bytes.
pub const SHARD_LIMIT_MIN: usize = 64;
/// The longest shard, in bytes.
pub const SHARD_BYTES_MAX: usize = 1 << 16;
/// Repair shards for each source shard: enough for 75 % loss, after which symbols are repeated.
const REPAIR_RATIO: usize = 3;

/// The cut of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    sample_bytes: usize,
    shard_limit: usize,
    blocks: usize,
    block_bytes: usize,
}

/// A coding block of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodingBlock {
    start: usize,
    bytes: usize,
    source_shards: usize,
    shard_bytes: usize,
}

impl Geometry {
    /// Cuts a sample into shards of at most `shard_limit` bytes, an even number. The blocks, and
    /// the shards of a block, are as equal as possible. `None` when a length is out of range.
    pub fn new(sample_bytes: usize, shard_limit: usize) -> Option<Self> {
        let limits = SHARD_LIMIT_MIN..=SHARD_BYTES_MAX;
        if sample_bytes > SAMPLE_BYTES_MAX
            || !limits.contains(&shard_limit)
            || !shard_limit.is_multiple_of(2)
        {
            return None;
        }
        let blocks = sample_bytes
            .div_ceil(shard_limit)
            .div_ceil(SHARDS_MAX)
            .max(1);
        Some(Self {
            sample_bytes,
            shard_limit,
            blocks,
            block_bytes: sample_bytes.div_ceil(blocks),
        })
    }

    /// The length of the sample, in bytes.
    pub fn sample_bytes(&self) -> usize {
        self.sample_bytes
    }

    /// The longest shard, in bytes.
    pub fn shard_limit(&self) -> usize {
        self.shard_limit
    }

    /// Number of coding blocks, at least 1.
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// Whether the repair of a sample takes the erasure code: a block of one shard is repeated
    /// instead.
    pub fn needs_coding(&self) -> bool {
        self.block(0).source_shards() > 1
    }

    /// The block with this number, from 0.
    pub fn block(&self, number: usize) -> CodingBlock {
        debug_assert!(number < self.blocks);
        let start = number * self.block_bytes;
        let bytes = self.block_bytes.min(self.sample_bytes - start);
        let source_shards = bytes.div_ceil(self.shard_limit).max(1);
        CodingBlock {
            start,
            bytes,
            source_shards,
            shard_bytes: bytes.div_ceil(source_shards).next_multiple_of(2),
        }
    }

    /// Number of source shards in all blocks.
    pub fn source_shards(&self) -> usize {
        (0..self.blocks)
            .map(|number| self.block(number).source_shards)
            .sum()
    }
}

impl CodingBlock {
    /// The range of the block in the sample.
    pub fn range(&self) -> Range<usize> {
        self.start..self.start + self.bytes
    }

    /// Number of source shards: this many different symbols restore the block.
    pub fn source_shards(&self) -> usize {
        self.source_shards
    }

    /// Number of possible repair shards.
    pub fn repair_shards(&self) -> usize {
        self.source_shards * REPAIR_RATIO
    }

    /// Number of different symbols.
    pub fn symbols(&self) -> usize {
        self.source_shards + self.repair_shards()
    }

    /// The length of every symbol, an even number of bytes; a shorter source shard is padded with
    /// zeros.
    pub fn shard_bytes(&self) -> usize {
        self.shard_bytes
    }

    /// The range of a source shard in the block; the last ones may be short or empty.
    pub fn shard_range(&self, shard: usize) -> Range<usize> {
        let start = (shard * self.shard_bytes).min(self.bytes);
        start..(start + self.shard_bytes).min(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn blocks_and_shards_cover_the_sample(sample_bytes in 0usize..40_000_000, limit in 32usize..800) {
            let geometry = Geometry::new(sample_bytes, limit * 2).expect("within the limits");
            let mut end = 0;
            for number in 0..geometry.blocks() {
                let block = geometry.block(number);
                prop_assert_eq!(block.range().start, end);
                end = block.range().end;
                prop_assert!((1..=SHARDS_MAX).contains(&block.source_shards()));
                prop_assert!(block.shard_bytes() <= limit * 2);
                prop_assert!(block.shard_bytes().is_multiple_of(2));
                let mut shard_end = 0;
                for shard in 0..block.source_shards() {
                    let range = block.shard_range(shard);
                    prop_assert_eq!(range.start, shard_end);
                    shard_end = range.end;
                }
                prop_assert_eq!(shard_end, block.range().len());
            }
            prop_assert_eq!(end, sample_bytes);
        }
    }

    #[test]
    fn out_of_range() {
        assert_eq!(Geometry::new(SAMPLE_BYTES_MAX + 1, 1000), None);
        assert_eq!(Geometry::new(10, 101), None);
        assert_eq!(Geometry::new(10, 62), None);
        let empty = Geometry::new(0, 1000)
            .expect("an empty sample is one")
            .block(0);
        assert_eq!((empty.source_shards(), empty.shard_bytes()), (1, 0));
    }
}
