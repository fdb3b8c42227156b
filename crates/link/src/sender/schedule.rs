//! The order in which blocks send.
//!
//! A higher class takes all that it needs. Within a class the sample goes first that would finish
//! first if all streams shared the link evenly: weighted fair queueing by sample (Demers, Keshav
//! and Shenker: "Analysis and Simulation of a Fair Queueing Algorithm", SIGCOMM 1989), with the
//! progress of the sample in transmission as the virtual time (Golestani: "A Self-Clocked Fair
//! Queueing Scheme", INFOCOM 1994). So a small sample overtakes a large one of another stream,
//! equal streams take turns sample by sample, and repair goes first, because its sample began
//! first.

use std::collections::BTreeSet;

use super::{
    stream::SendStream,
    transmission::{BlockId, PathEstimate, Transmission},
};
use crate::qos::TrafficClass;

/// Cost of a sample beside its bytes, in bytes.
const SAMPLE_COST: u64 = 64;

/// The ready blocks and waiting streams of all classes.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    classes: [ClassQueue; TrafficClass::ALL.len()],
}

#[derive(Debug, Default)]
struct ClassQueue {
    /// Blocks that need another symbol: (finish tag, transmit id, block).
    ready: BTreeSet<(u64, u64, u16)>,
    /// Streams whose first pending sample may be admitted: (finish tag, stream).
    waiting: BTreeSet<(u64, u32)>,
    virtual_time: u64,
}

impl Schedule {
    /// The finish tag of the first pending sample of a stream: the one it has, or a new one.
    pub(super) fn finish_tag(&self, stream: &SendStream) -> Option<u64> {
        let first = stream.pending.front()?;
        let start = self
            .class(stream.qos.traffic_class)
            .virtual_time
            .max(stream.last_finish);
        Some(
            stream
                .tag
                .unwrap_or(start + first.payload.len() as u64 + SAMPLE_COST),
        )
    }

    /// The start, in virtual time, of a sample with this finish tag.
    pub(super) fn start_of(tag: u64, sample_bytes: usize) -> u64 {
        tag.saturating_sub(sample_bytes as u64 + SAMPLE_COST)
    }

    /// Lets a stream wait under this tag, or not at all.
    pub(super) fn place_stream(&mut self, id: u32, stream: &mut SendStream, tag: Option<u64>) {
        if stream.tag != tag {
            let waiting = &mut self.class_mut(stream.qos.traffic_class).waiting;
            stream.tag.map(|old| waiting.remove(&(old, id)));
            tag.map(|new| waiting.insert((new, id)));
            stream.tag = tag;
        }
    }

    /// Adds the blocks of an admitted transmission, all of which are ready.
    pub(super) fn add(&mut self, id: u64, transmission: &Transmission) {
        let keys = (0..transmission.blocks.len()).map(|block| (transmission.tag, id, block as u16));
        self.class_mut(transmission.class).ready.extend(keys);
    }

    pub(super) fn remove(&mut self, id: u64, transmission: &Transmission) {
        let ready = &mut self.class_mut(transmission.class).ready;
        for (number, block) in transmission.blocks.iter().enumerate() {
            if block.ready {
                ready.remove(&(transmission.tag, id, number as u16));
            }
        }
    }

    /// Decides again whether a block is ready.
    pub(super) fn evaluate(
        &mut self,
        (id, number): BlockId,
        transmission: &mut Transmission,
        path: &PathEstimate,
    ) {
        let wants = transmission.wants_symbol(number, path);
        let block = &mut transmission.blocks[usize::from(number)];
        if wants != block.ready {
            block.ready = wants;
            let key = (transmission.tag, id, number);
            let ready = &mut self.class_mut(transmission.class).ready;
            if wants {
                ready.insert(key)
            } else {
                ready.remove(&key)
            };
        }
    }

    /// Moves the virtual time on: a source shard of this length was sent.
    pub(super) fn advance(&mut self, transmission: &mut Transmission, bytes: usize) {
        transmission.sent_bytes += bytes as u64;
        let virtual_time = &mut self.class_mut(transmission.class).virtual_time;
        *virtual_time = (*virtual_time).max(transmission.start + transmission.sent_bytes);
    }

    /// The stream whose sample is to be admitted before any ready block of the class sends, and its
    /// tag.
    pub(super) fn next_admission(&self, class: TrafficClass) -> Option<(u64, u32)> {
        let queue = self.class(class);
        let (tag, stream) = queue.waiting.first().copied()?;
        let is_behind = queue.ready.first().is_some_and(|(first, ..)| *first <= tag);
        (!is_behind).then_some((tag, stream))
    }

    /// The ready blocks of a class, most urgent first.
    pub(super) fn ready(&self, class: TrafficClass) -> impl Iterator<Item = BlockId> {
        self.class(class)
            .ready
            .iter()
            .map(|(_, id, block)| (*id, *block))
    }

    /// Whether there is a symbol to send in any class.
    pub(super) fn has_symbols(&self) -> bool {
        TrafficClass::ALL
            .into_iter()
            .any(|class| self.has_symbols_of(class))
    }

    /// Whether there is a symbol to send in this class.
    pub(super) fn has_symbols_of(&self, class: TrafficClass) -> bool {
        let queue = self.class(class);
        !queue.ready.is_empty() || !queue.waiting.is_empty()
    }

    fn class(&self, class: TrafficClass) -> &ClassQueue {
        &self.classes[class as usize]
    }

    fn class_mut(&mut self, class: TrafficClass) -> &mut ClassQueue {
        &mut self.classes[class as usize]
    }
}
