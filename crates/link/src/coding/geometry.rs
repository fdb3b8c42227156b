//! How a sample is cut into coding blocks and shards: a function of its length and of the longest shard, so that both
//! ends find the same.

use std::ops::Range;

/// The longest sample, in bytes.
pub const SAMPLE_BYTES_MAX: usize = 1 << 30;
/// The most source shards of a coding block.
pub const SHARDS_MAX: usize = 1024;
/// The least that may be the longest shard.
pub const SHARD_LIMIT_MIN: usize = 64;
/// The longest shard.
pub const SHARD_BYTES_MAX: usize = 1 << 16;
/// Repair shards for each source shard: enough for 75 % loss, after which symbols are repeated.
const REPAIR_RATIO: usize = 3;

/// How a sample is cut.
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
    /// Cuts a sample into shards of at most `shard_limit` bytes, which is even. The blocks, and the shards of a block,
    /// are as equal as can be. `None` when a length is out of range.
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

    /// The length of the sample.
    pub fn sample_bytes(&self) -> usize {
        self.sample_bytes
    }

    /// The longest shard.
    pub fn shard_limit(&self) -> usize {
        self.shard_limit
    }

    /// How many coding blocks there are; at least one.
    pub fn blocks(&self) -> usize {
        self.blocks
    }

    /// Whether the repair of a sample takes the erasure code: a block of one shard is repeated instead.
    pub fn needs_coding(&self) -> bool {
        self.block(0).source_shards() > 1
    }

    /// A block, by its number.
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

    /// Source shards of all blocks.
    pub fn source_shards(&self) -> usize {
        (0..self.blocks)
            .map(|number| self.block(number).source_shards)
            .sum()
    }
}

impl CodingBlock {
    /// Where in the sample the block lies.
    pub fn range(&self) -> Range<usize> {
        self.start..self.start + self.bytes
    }

    /// How many source shards there are, and so how many symbols give the block back.
    pub fn source_shards(&self) -> usize {
        self.source_shards
    }

    /// How many repair shards there can be.
    pub fn repair_shards(&self) -> usize {
        self.source_shards * REPAIR_RATIO
    }

    /// How many symbols there are.
    pub fn symbols(&self) -> usize {
        self.source_shards + self.repair_shards()
    }

    /// The length of every symbol, even; a source shard that is shorter is filled up with zeros.
    pub fn shard_bytes(&self) -> usize {
        self.shard_bytes
    }

    /// Where in the block a source shard lies; the last ones may be short or empty.
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
