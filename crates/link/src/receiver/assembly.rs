//! The assembly of a sample from its symbols.

use crate::{
    coding::{Coder, geometry::Geometry},
    memory::Payload,
    wire::data::Symbol,
};

#[derive(Debug)]
pub(super) struct Assembly {
    pub(super) stream: u32,
    pub(super) sequence: u64,
    pub(super) geometry: Geometry,
    payload: Payload,
    blocks: Vec<BlockAssembly>,
    blocks_left: usize,
}

#[derive(Debug, Default)]
struct BlockAssembly {
    /// Different symbols received.
    got: usize,
    complete: bool,
    /// A bit for each symbol of the block.
    have: Vec<u64>,
    repair: Vec<(usize, Box<[u8]>)>,
}

/// The effect of a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AddedSymbol {
    /// Different symbols of the block that have arrived.
    pub(super) symbols: u16,
    /// The sample is complete.
    pub(super) complete: bool,
    /// Bytes copied.
    pub(super) copied: usize,
}

impl Assembly {
    /// Begins with the first symbol. `payload` is as long as the sample.
    pub(super) fn new(symbol: &Symbol, payload: Payload) -> Self {
        let geometry = symbol.geometry;
        let blocks: Vec<_> = (0..geometry.blocks())
            .map(|_| BlockAssembly::default())
            .collect();
        Self {
            stream: symbol.stream,
            sequence: symbol.sequence,
            geometry,
            payload,
            blocks_left: blocks.len(),
            blocks,
        }
    }

    /// Whether a symbol describes the sample as the first one did.
    pub(super) fn agrees(&self, symbol: &Symbol) -> bool {
        (self.stream, self.sequence, self.geometry)
            == (symbol.stream, symbol.sequence, symbol.geometry)
    }

    /// Adds a symbol that [agrees](Self::agrees), and decodes its block as soon as possible.
    pub(super) fn add(&mut self, coder: &mut Coder, symbol: &Symbol, shard: &[u8]) -> AddedSymbol {
        let block = self.geometry.block(symbol.block.into());
        let state = &mut self.blocks[usize::from(symbol.block)];
        let index = usize::from(symbol.index);
        let shards = block.source_shards();
        // A block of one shard is repeated: all its symbols are equal.
        let index = if shards == 1 { 0 } else { index };
        let mut added = AddedSymbol {
            symbols: state.got as u16,
            complete: false,
            copied: 0,
        };
        if state.complete {
            return added;
        }
        if state.have.is_empty() {
            state.have = vec![0; block.symbols().div_ceil(64)];
        }
        let (word, bit) = (index / 64, 1 << (index % 64));
        if state.have[word] & bit != 0 {
            return added;
        }
        state.have[word] |= bit;
        state.got += 1;
        added.symbols = state.got as u16;
        if index < shards {
            let range = block.shard_range(index);
            let target = self.payload.bytes_mut(block.range());
            target[range.clone()].copy_from_slice(&shard[..range.len()]);
        } else {
            state.repair.push((index - shards, shard.into()));
        }
        added.copied = shard.len();
        if state.got < shards {
            return added;
        }
        if !state.repair.is_empty() {
            let have = &state.have;
            let received = (0..shards).filter(|shard| have[shard / 64] & (1 << (shard % 64)) != 0);
            let repair = state
                .repair
                .iter()
                .map(|(index, shard)| (*index, &shard[..]));
            added.copied += coder.decode(
                block,
                self.payload.bytes_mut(block.range()),
                received,
                repair,
            );
        }
        state.complete = true;
        state.repair = Vec::new();
        state.have = Vec::new();
        self.blocks_left -= 1;
        added.complete = self.blocks_left == 0;
        added
    }

    /// Bytes of the sample and of repair shards.
    pub(super) fn memory_bytes(&self) -> usize {
        let repair = self.blocks.iter().flat_map(|block| &block.repair);
        self.payload.len() + repair.map(|(_, shard)| shard.len()).sum::<usize>()
    }

    pub(super) fn into_payload(self) -> Payload {
        self.payload
    }
}
