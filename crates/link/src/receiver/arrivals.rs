//! From symbols to samples.

use std::{collections::btree_map::Entry, time::Duration};

use super::{
    Receiver,
    assembly::Assembly,
    stream::{CompleteSample, Described, LinkSample, QueueOutcome},
};
use crate::{
    memory::{Heap, Memory, NoMemory, Payload},
    sender::CONTROL_STREAM,
    wire::{
        control::CONTROL_BYTES_MAX,
        data::{Abandoned, Symbol},
        feedback::Outcome,
    },
};

/// The most messages that wait for the peer; then its own wait too.
const REPLIES_MAX: usize = 256;
/// The most held samples that a run of abandoned transmissions spares. Honest senders abandon at
/// most one with each run: it continues under another id.
const SPARED_MAX: usize = 64;

impl Receiver {
    /// Takes the oldest sample in the queue of a stream.
    pub fn take(&mut self, stream: u32) -> Option<LinkSample> {
        let state = self
            .streams
            .by_id
            .get_mut(&stream)
            .filter(|_| stream != CONTROL_STREAM)?;
        let sample = state.pop(&mut self.ledger.queued)?;
        state.counters.taken += 1;
        let more = !state.queue.is_empty();
        self.reporter.begin_taking();
        self.deliver_in_order(stream);
        if more {
            self.streams.note_readable(stream);
        }
        self.streams.note_if_complete(stream);
        Some(sample)
    }

    pub(super) fn on_symbol(&mut self, symbol: &Symbol, shard: &[u8]) {
        let id = symbol.transmit_id;
        if self.closed.contains(id) {
            self.counters.late_symbols += 1;
            return;
        }
        if let Some(held) = self.held.get(&id) {
            if *held == Described::from(symbol) {
                // The sender does not know yet that it is complete.
                let shards = symbol.geometry.block(symbol.block.into()).source_shards();
                self.reporter.on_progress(id, symbol.block, shards as u16);
                self.counters.late_symbols += 1;
            } else {
                self.counters.refused_symbols += 1;
            }
            return;
        }
        if !self.assemblies.contains_key(&id) && !self.begin(symbol, shard) {
            return;
        }
        let assembly = self.assemblies.get_mut(&id).expect("it was there or begun");
        let state = self
            .streams
            .by_id
            .get_mut(&assembly.stream)
            .expect("an assembly belongs to a stream");
        let before = assembly.cost();
        let added = Some(&mut *assembly)
            .filter(|assembly| assembly.agrees(symbol))
            .and_then(|assembly| {
                assembly
                    .add(&mut self.coder, symbol, shard, state.room())
                    .ok()
            });
        let Some(added) = added else {
            self.counters.refused_symbols += 1;
            return;
        };
        state.cost = state.cost - before + assembly.cost();
        self.ledger.charge_decoder(&mut self.coder);
        self.counters.bytes_copied += added.copied as u64;
        self.reporter.on_progress(id, symbol.block, added.symbols);
        if added.complete {
            let assembly = self.assemblies.remove(&id).expect("it was just seen");
            let state = self
                .streams
                .by_id
                .get_mut(&symbol.stream)
                .expect("it was just seen");
            state.cost -= assembly.cost();
            self.complete(symbol, assembly.into_payload());
        }
    }

    /// Begins a sample with its first symbol. Returns whether it is in assembly then: a sample of
    /// one shard is complete at once.
    fn begin(&mut self, symbol: &Symbol, shard: &[u8]) -> bool {
        let id = symbol.transmit_id;
        let has_room = self.settle();
        let Some(state) = self.streams.by_id.get_mut(&symbol.stream) else {
            self.counters.refused_symbols += 1;
            return false;
        };
        let is_control = symbol.stream == CONTROL_STREAM;
        let has_room = has_room || is_control;
        if has_room && state.is_past(symbol.sequence) {
            let keeps_all = state.qos.delivery.keeps_all();
            self.close(
                id,
                if keeps_all {
                    Outcome::Delivered
                } else {
                    Outcome::Superseded
                },
            );
            return false;
        }
        let bytes = symbol.geometry.sample_bytes();
        let too_long = is_control && bytes > CONTROL_BYTES_MAX;
        let geometry = &symbol.geometry;
        let cost = Assembly::first_cost(geometry).max(CompleteSample::cost(geometry));
        if too_long || !has_room || !state.begin(bytes, cost) {
            self.counters.refused_symbols += 1;
            return false;
        }
        let Ok(mut payload) = allocate(&mut *self.memory, symbol.stream, bytes) else {
            state.end(bytes);
            self.counters.refused_symbols += 1;
            return false;
        };
        if geometry.blocks() == 1 && !geometry.needs_coding() {
            payload.bytes_mut(0..bytes).copy_from_slice(&shard[..bytes]);
            self.counters.bytes_copied += shard.len() as u64;
            self.complete(symbol, payload);
            return false;
        }
        self.uses_coding = true;
        let assembly = Assembly::new(symbol, payload);
        state.cost += assembly.cost();
        self.assemblies.insert(id, Box::new(assembly));
        true
    }

    /// Takes a complete sample, with its last symbol.
    fn complete(&mut self, symbol: &Symbol, payload: Payload) {
        let (id, stream, sequence) = (symbol.transmit_id, symbol.stream, symbol.sequence);
        let state = self
            .streams
            .by_id
            .get_mut(&stream)
            .expect("a sample belongs to a stream");
        let age = Duration::from_millis(symbol.age_millis.into());
        let bytes = payload.len();
        let sample = LinkSample {
            sequence,
            age,
            payload,
        };
        let expired = state.qos.lifespan.is_some_and(|lifespan| age >= lifespan);
        if state.qos.delivery.keeps_all() {
            // An expired sample keeps its place in the order, like a skipped one.
            let complete = CompleteSample {
                id,
                sample: (!expired).then_some(sample),
                geometry: symbol.geometry,
            };
            match state.waiting.entry(sequence) {
                Entry::Vacant(place) => {
                    place.insert(complete);
                    state.cost += CompleteSample::cost(&symbol.geometry);
                    self.held.insert(id, Described::from(symbol));
                    self.deliver_in_order(stream);
                }
                Entry::Occupied(_) => {
                    state.end(bytes);
                    self.close(id, Outcome::Refused);
                }
            }
            return;
        }
        state.end(bytes);
        if expired {
            state.counters.expired += 1;
            return self.close(id, Outcome::Expired);
        }
        let outcome = match state.put_newest(sample, &mut self.ledger.queued) {
            QueueOutcome::Queued => {
                self.streams.note_readable(stream);
                Outcome::Delivered
            }
            QueueOutcome::Superseded => Outcome::Superseded,
            QueueOutcome::NoRoom => Outcome::Refused,
        };
        self.close(id, outcome);
    }

    /// Delivers the complete samples of a stream that keeps all, in order, while its queue has
    /// room.
    pub(super) fn deliver_in_order(&mut self, stream: u32) {
        loop {
            let Some(state) = self.streams.by_id.get_mut(&stream) else {
                return;
            };
            if state.skip() {
                continue;
            }
            let next = state.next_sequence;
            let Some(first) = state.waiting.get(&next) else {
                return;
            };
            let is_control = stream == CONTROL_STREAM;
            let (bytes, is_expired) = (first.geometry.sample_bytes(), first.sample.is_none());
            if is_control && self.replies.len() >= REPLIES_MAX {
                return;
            }
            if !is_control && !is_expired {
                let is_full = state.queue.len() >= state.qos.delivery.depth();
                if is_full || !state.take_place(bytes, &mut self.ledger.queued) {
                    return;
                }
            }
            let complete = state.waiting.remove(&next).expect("it was just seen");
            state.next_sequence += 1;
            state.end(bytes);
            state.cost -= CompleteSample::cost(&complete.geometry);
            let Some(sample) = complete.sample else {
                state.counters.expired += 1;
                self.close(complete.id, Outcome::Expired);
                continue;
            };
            if is_control {
                self.close(complete.id, Outcome::Delivered);
                self.on_control(&sample.payload);
            } else {
                state.put(sample);
                self.close(complete.id, Outcome::Delivered);
                self.streams.note_readable(stream);
            }
        }
    }

    pub(super) fn on_abandoned(&mut self, run: &Abandoned) {
        let end = run
            .transmit_id
            .saturating_add(run.count)
            .min(crate::wire::VARINT_MAX);
        if !self.settle() {
            return;
        }
        // A transmission of a stream that keeps all is closed only if its receiver can skip it.
        if run.stream != CONTROL_STREAM
            && let Some(state) = self.streams.by_id.get_mut(&run.stream)
            && state.qos.delivery.keeps_all()
        {
            if !state.note_skipped(run.sequence) {
                return;
            }
            self.deliver_in_order(run.stream);
        }
        // A complete sample that is held will be delivered: it stays open.
        let held = self.held.range(run.transmit_id..end.max(run.transmit_id));
        let held: Vec<u64> = held.map(|(id, _)| *id).take(SPARED_MAX + 1).collect();
        let end = if held.len() > SPARED_MAX {
            run.transmit_id
        } else {
            end
        };
        let mut from = run.transmit_id;
        for id in held.into_iter().take(SPARED_MAX).chain([end]) {
            self.abandon(from, id);
            from = id + 1;
        }
    }

    /// Closes the open transmissions of a range.
    fn abandon(&mut self, start: u64, end: u64) {
        if start >= end {
            return;
        }
        for (start, end) in self.closed.insert(start, end) {
            while let Some((id, _)) = self.assemblies.range(start..end).next() {
                self.drop_assembly(*id);
            }
            self.reports.add(start, end, Outcome::Abandoned);
        }
    }

    pub(super) fn drop_assembly(&mut self, id: u64) {
        let Some(assembly) = self.assemblies.remove(&id) else {
            return;
        };
        self.reporter.on_closed(id);
        if let Some(state) = self.streams.by_id.get_mut(&assembly.stream) {
            state.end(assembly.geometry.sample_bytes());
            state.cost -= assembly.cost();
            state.counters.incomplete += 1;
        }
        self.streams.note_if_complete(assembly.stream);
    }

    pub(super) fn close(&mut self, id: u64, outcome: Outcome) {
        self.held.remove(&id);
        for (start, end) in self.closed.insert(id, id + 1) {
            self.reports.add(start, end, outcome);
        }
        self.reporter.on_closed(id);
        self.settle();
    }
}

/// Allocates memory of the application, exactly as long as the sample. Control messages are stored
/// on the heap.
fn allocate(memory: &mut dyn Memory, stream: u32, bytes: usize) -> Result<Payload, NoMemory> {
    let block = if stream == CONTROL_STREAM {
        Heap.allocate(stream, bytes)
    } else {
        memory.allocate(stream, bytes)
    };
    block.map(Payload::new).and_then(|payload| {
        if payload.len() == bytes {
            Ok(payload)
        } else {
            Err(NoMemory)
        }
    })
}
