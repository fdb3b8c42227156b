//! The assembly of a sample from its symbols.

use smallvec::SmallVec;

use super::{cost, report::PROGRESS_ENTRY};
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
    /// In bytes.
    cost: u64,
    payload: Payload,
    blocks: SmallVec<[BlockAssembly; 1]>,
    blocks_left: usize,
}

#[derive(Debug, Default)]
pub(super) struct BlockAssembly {
    /// Different symbols received.
    got: usize,
    complete: bool,
    /// A bit for each symbol of the block.
    have: Vec<u64>,
    repair: Vec<RepairShard>,
}

type RepairShard = (usize, Box<[u8]>);

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

/// There is no memory for a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoRoom;

impl Assembly {
    /// Begins with the first symbol. `payload` is as long as the sample.
    pub(super) fn new(symbol: &Symbol, payload: Payload) -> Self {
        let geometry = symbol.geometry;
        let blocks: SmallVec<_> = (0..geometry.blocks())
            .map(|_| BlockAssembly::default())
            .collect();
        Self {
            stream: symbol.stream,
            sequence: symbol.sequence,
            geometry,
            cost: Self::first_cost(&geometry),
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

    /// Cost of the assembly, in bytes.
    pub(super) fn cost(&self) -> u64 {
        self.cost
    }

    /// Adds a symbol that [agrees](Self::agrees), and decodes its block as soon as possible.
    ///
    /// # Errors
    /// When the cost would grow by more than `room`. Then the symbol is not added.
    pub(super) fn add(
        &mut self,
        coder: &mut Coder,
        symbol: &Symbol,
        shard: &[u8],
        room: u64,
    ) -> Result<AddedSymbol, NoRoom> {
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
        let (word, bit) = (index / 64, 1 << (index % 64));
        if state.complete || state.have.get(word).is_some_and(|have| have & bit != 0) {
            return Ok(added);
        }
        let before = state.cost();
        let words = block.symbols().div_ceil(64);
        if state.cost_with(words, index, shards, shard.len()) > before + room {
            return Err(NoRoom);
        }
        if state.have.is_empty() {
            state.have = vec![0; words];
        }
        state.have[word] |= bit;
        state.got += 1;
        added.symbols = state.got as u16;
        if index < shards {
            let range = block.shard_range(index);
            let target = self.payload.bytes_mut(block.range());
            target[range.clone()].copy_from_slice(&shard[..range.len()]);
        } else {
            state.repair.reserve_exact(state.growth());
            state.repair.push((index - shards, shard.into()));
        }
        added.copied = shard.len();
        if state.got == shards {
            if !state.repair.is_empty() {
                let have = &state.have;
                let received =
                    (0..shards).filter(|shard| have[shard / 64] & (1 << (shard % 64)) != 0);
                let repair = state.repair.iter();
                let repair = repair.map(|(index, shard)| (*index, &shard[..]));
                let target = self.payload.bytes_mut(block.range());
                added.copied += coder.decode(block, target, received, repair);
            }
            state.complete = true;
            state.repair = Vec::new();
            state.have = Vec::new();
            self.blocks_left -= 1;
            added.complete = self.blocks_left == 0;
        }
        self.cost = self.cost - before + state.cost();
        Ok(added)
    }

    /// The cost counted again, in bytes.
    pub(super) fn recount(&self) -> u64 {
        let blocks: u64 = self.blocks.iter().map(BlockAssembly::cost).sum();
        Self::first_cost(&self.geometry) + blocks
    }

    /// Cost of a sample that begins to arrive, in bytes.
    pub(super) fn first_cost(geometry: &Geometry) -> u64 {
        let blocks = geometry.blocks();
        let own = match blocks {
            1 => 0,
            _ => cost::allocation(blocks * size_of::<BlockAssembly>()),
        };
        cost::entry(size_of::<(u64, Box<Self>)>())
            + cost::allocation(size_of::<Self>())
            + own
            + blocks as u64 * PROGRESS_ENTRY
            + cost::payload(geometry.sample_bytes())
    }

    pub(super) fn into_payload(self) -> Payload {
        self.payload
    }
}

impl BlockAssembly {
    /// Cost of its allocations, in bytes. All repair shards have one length.
    fn cost(&self) -> u64 {
        let bits = match self.have.len() {
            0 => 0,
            words => cost::allocation(words * 8),
        };
        let shard = self.repair.first().map_or(0, |(_, shard)| shard.len());
        bits + Self::repair_cost(self.repair.len(), self.repair.capacity(), shard)
    }

    /// The same with one more symbol.
    fn cost_with(&self, words: usize, index: usize, shards: usize, shard: usize) -> u64 {
        let (count, capacity) = match index < shards {
            true => (self.repair.len(), self.repair.capacity()),
            false => (
                self.repair.len() + 1,
                (self.repair.len() + self.growth()).max(self.repair.capacity()),
            ),
        };
        cost::allocation(words * 8) + Self::repair_cost(count, capacity, shard)
    }

    fn repair_cost(count: usize, capacity: usize, shard: usize) -> u64 {
        let places = (capacity * size_of::<RepairShard>()) as u64;
        count as u64 * cost::allocation(shard) + places
    }

    /// Places that the list of repair shards grows by, if it is full.
    fn growth(&self) -> usize {
        if self.repair.len() == self.repair.capacity() {
            self.repair.len().max(2)
        } else {
            1
        }
    }
}
