//! The erasure code: any `n` different symbols of a coding block with `n` source shards restore it.
//!
//! Repair shards are Reed-Solomon over GF(2^16), in O(n log n) (Lin, Al-Naffouri, Han and Chung:
//! "Novel Polynomial Basis and Its Application to Reed-Solomon Erasure Codes", FOCS 2014). The
//! low-rate form is used throughout: there a repair shard depends on the block alone, not on the
//! number of repair shards, so they are made in steps, as loss requires. A block of one shard is
//! repeated instead.

mod decoder;
pub mod geometry;

use reed_solomon_simd::{
    engine::DefaultEngine,
    rate::{LowRateEncoder, RateEncoder},
};

use decoder::Decoder;
use geometry::CodingBlock;

/// The repair shards of a block that are made at once are a multiple of this.
const REPAIR_STEP: usize = 16;

/// Makes the tables of the erasure code, once in a process: 8 MiB, in 10 to 15 ms. Otherwise the
/// first block that is repaired waits for them.
pub fn make_tables() {
    drop(DefaultEngine::new());
}

/// Encodes repair shards and decodes blocks; keeps its working memory.
#[derive(Default)]
pub struct Coder {
    encoder: Option<LowRateEncoder<DefaultEngine>>,
    decoder: Option<Decoder>,
}

/// The repair shards of a block made so far, in order.
#[derive(Clone, Debug, Default)]
pub struct RepairShards {
    bytes: Vec<u8>,
    count: usize,
}

impl RepairShards {
    /// Bytes of all shards.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

impl Coder {
    /// Bytes of the decoder's working memory.
    pub fn decoder_bytes(&self) -> usize {
        self.decoder.as_ref().map_or(0, Decoder::bytes)
    }

    /// Frees the decoder's working memory.
    pub fn free_decoder(&mut self) {
        self.decoder = None;
    }

    /// Returns the repair shard `index` (from 0) of a block, and makes it first if need be, together
    /// with as many as are `expected` to be needed. `source` holds the bytes of the block.
    pub fn repair_shard<'a>(
        &mut self,
        block: CodingBlock,
        source: &[u8],
        repair: &'a mut RepairShards,
        index: usize,
        expected: usize,
    ) -> &'a [u8] {
        if index >= repair.count {
            self.encode(block, source, repair, expected.max(index + 1));
        }
        &repair.bytes[index * block.shard_bytes()..][..block.shard_bytes()]
    }

    /// Makes at least `wanted` repair shards. Their number at least doubles, because each step makes
    /// all of them again.
    fn encode(
        &mut self,
        block: CodingBlock,
        source: &[u8],
        repair: &mut RepairShards,
        wanted: usize,
    ) {
        let count = wanted
            .max(repair.count * 2)
            .next_multiple_of(REPAIR_STEP)
            .min(block.repair_shards());
        let (shards, bytes) = (block.source_shards(), block.shard_bytes());
        let encoder = match &mut self.encoder {
            Some(encoder) => {
                encoder
                    .reset(shards, count, bytes)
                    .expect("a block is within the limits of the code");
                encoder
            }
            none => none.insert(
                LowRateEncoder::new(shards, count, bytes, DefaultEngine::new(), None)
                    .expect("a block is within the limits of the code"),
            ),
        };
        let mut padded = Vec::new();
        for shard in 0..shards {
            let part = &source[block.shard_range(shard)];
            let part = if part.len() == bytes {
                part
            } else {
                padded.clear();
                padded.extend_from_slice(part);
                padded.resize(bytes, 0);
                &padded
            };
            encoder
                .add_original_shard(part)
                .expect("as many shards as were said, of the length that was said");
        }
        let result = encoder.encode().expect("all shards were added");
        repair.bytes.clear();
        repair.bytes.reserve_exact(count * bytes);
        result
            .recovery_iter()
            .for_each(|shard| repair.bytes.extend_from_slice(shard));
        repair.count = count;
    }

    /// Restores the missing source shards of a block in `target`. `received` gives the numbers of
    /// the source shards in place, `repair` the repair shards with their indices, each once.
    /// Returns the number of bytes copied.
    ///
    /// # Panics
    /// If there are fewer shards than the block has source shards.
    pub fn decode<'a>(
        &mut self,
        block: CodingBlock,
        target: &mut [u8],
        received: impl Iterator<Item = usize>,
        repair: impl Iterator<Item = (usize, &'a [u8])> + Clone,
    ) -> usize {
        let mut is_missing = vec![true; block.source_shards()];
        received.for_each(|shard| is_missing[shard] = false);
        let missing: Vec<_> = (0..is_missing.len())
            .filter(|shard| is_missing[*shard])
            .collect();
        let repairs = repair.clone().count();
        assert!(repairs >= missing.len(), "too few shards");
        self.decoder
            .get_or_insert_with(Decoder::new)
            .decode(block, target, &missing, repair);
        // Each shard that arrived is copied to the decoder, and each missing one from it.
        (is_missing.len() + repairs) * block.shard_bytes()
    }
}

impl std::fmt::Debug for Coder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Coder")
    }
}

#[cfg(test)]
mod tests {
    use super::{geometry::Geometry, *};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn any_n_symbols_give_the_block_back(
            sample_bytes in 1usize..20_000,
            limit in 32usize..400,
            order in prop::collection::vec(any::<u64>(), 2500),
        ) {
            let geometry = Geometry::new(sample_bytes, limit * 2).expect("within the limits");
            let block = geometry.block(0);
            prop_assume!(block.source_shards() > 1);
            let source: Vec<u8> = (0..sample_bytes).map(|i| (i * 31 % 251) as u8).collect();
            let mut coder = Coder::default();
            let mut repair = RepairShards::default();

            let mut chosen: Vec<usize> = (0..block.symbols()).collect();
            chosen.sort_by_key(|symbol| order[*symbol % order.len()]);
            chosen.truncate(block.source_shards());
            let mut target = vec![0; sample_bytes];
            let mut received = Vec::new();
            let mut recovery = Vec::new();
            for symbol in chosen {
                match symbol.checked_sub(block.source_shards()) {
                    None => {
                        target[block.shard_range(symbol)].copy_from_slice(&source[block.shard_range(symbol)]);
                        received.push(symbol);
                    }
                    Some(index) => {
                        recovery.push((index, coder.repair_shard(block, &source, &mut repair, index, 1).to_vec()));
                    }
                }
            }
            if !recovery.is_empty() {
                let repair = recovery.iter().map(|(index, shard)| (*index, &shard[..]));
                coder.decode(block, &mut target, received.into_iter(), repair);
            }
            prop_assert!(target == source);
        }
    }

    #[test]
    fn a_repair_shard_does_not_depend_on_how_many_are_made() {
        let block = Geometry::new(9_000, 100)
            .expect("within the limits")
            .block(0);
        let source: Vec<u8> = (0..9_000).map(|i| (i % 255) as u8).collect();
        let mut coder = Coder::default();
        let (mut few, mut many) = (RepairShards::default(), RepairShards::default());
        let all = block.repair_shards();
        coder.repair_shard(block, &source, &mut many, 0, all);
        for index in 0..block.repair_shards() {
            let lazily = coder
                .repair_shard(block, &source, &mut few, index, 1)
                .to_vec();
            assert_eq!(
                lazily,
                coder.repair_shard(block, &source, &mut many, index, 1)
            );
        }
    }
}
