//! Whose turn it is.
//!
//! A higher class takes all that it needs. Within a class the sample that would finish first goes first, if all streams
//! shared the link evenly: weighted fair queueing by sample (Demers, Keshav and Shenker: "Analysis and Simulation of a
//! Fair Queueing Algorithm", SIGCOMM 1989), with the progress of what is being sent as the virtual time (Golestani: "A
//! Self-Clocked Fair Queueing Scheme", INFOCOM 1994). So a small sample overtakes a large one of another stream, equal
//! streams take turns sample by sample, and what is repaired goes first, because it began first.

use std::{collections::BTreeSet, time::Instant};

use super::{
    Cause, GivenUp, Sender, UNCLOSED_MANY,
    stream::SendStream,
    transmission::{OutBlock, Transmission, surplus},
};
use crate::{
    coding::{self, geometry::Geometry},
    qos::TrafficClass,
    wire::{
        control::Control,
        data::{HEADER_BYTES, Symbol},
    },
};

/// What a sample costs beside its bytes.
const SAMPLE_COST: u64 = 64;

/// The work of a class.
#[derive(Debug, Default)]
pub(super) struct ClassQueue {
    /// Blocks that ask for a symbol: (finish tag, transmission, block).
    pub(super) ready: BTreeSet<(u64, u64, u16)>,
    /// Streams with a sample that may be admitted: (finish tag, stream).
    pub(super) waiting: BTreeSet<(u64, u32)>,
    virtual_time: u64,
}

impl Sender {
    /// Puts a stream among those that wait for their turn, or takes it out. Asks for credit where it lacks some.
    pub(super) fn refresh(&mut self, now: Instant, stream: u32) {
        let Some(state) = self.streams.get_mut(&stream) else {
            return;
        };
        state.drop_expired(now);
        if let Some(bytes) = state.credit_to_want() {
            self.control(now, &Control::Want { stream, bytes });
        }
        let Some(state) = self.streams.get(&stream) else {
            return;
        };
        let many = self.transmissions.len() + self.given_up.len() > UNCLOSED_MANY;
        let queue = &self.classes[state.qos.traffic_class as usize];
        let tag = match state.pending.front() {
            Some(first) if state.may_admit(many) => {
                let start = queue.virtual_time.max(state.last_finish);
                Some(
                    state
                        .tag
                        .unwrap_or(start + first.payload.len() as u64 + SAMPLE_COST),
                )
            }
            _ => None,
        };
        self.refresh_key(stream, tag);
        // The last that waited may just have expired.
        self.finish_if_done(now, stream);
    }

    pub(super) fn refresh_key(&mut self, stream: u32, tag: Option<u64>) {
        let Some(state) = self.streams.get_mut(&stream) else {
            return;
        };
        if state.tag != tag {
            let queue = &mut self.classes[state.qos.traffic_class as usize];
            state.tag.map(|old| queue.waiting.remove(&(old, stream)));
            tag.map(|new| queue.waiting.insert((new, stream)));
            state.tag = tag;
        }
    }

    /// The blocks that are to send next, the first first, at most `most`; admits samples whose turn has come.
    pub(super) fn next_blocks(
        &mut self,
        now: Instant,
        most: usize,
        datagram_bytes: usize,
    ) -> Vec<(u64, u16)> {
        let mut blocks = Vec::with_capacity(most);
        for class in TrafficClass::ALL {
            self.admit_due(now, class, datagram_bytes);
            let ready = &self.classes[class as usize].ready;
            blocks.extend(
                ready
                    .iter()
                    .take(most - blocks.len())
                    .map(|(_, id, block)| (*id, *block)),
            );
            if blocks.len() == most {
                break;
            }
        }
        blocks
    }

    /// Whether there is a symbol to send.
    pub(super) fn has_symbols(&self) -> bool {
        self.classes
            .iter()
            .any(|queue| !queue.ready.is_empty() || !queue.waiting.is_empty())
    }

    fn admit_due(&mut self, now: Instant, class: TrafficClass, datagram_bytes: usize) {
        loop {
            let queue = &self.classes[class as usize];
            let Some((tag, stream)) = queue.waiting.first().copied() else {
                return;
            };
            if queue.ready.first().is_some_and(|(first, ..)| *first <= tag) {
                return;
            }
            self.admit(now, stream, tag, datagram_bytes);
        }
    }

    /// Gives the first sample of a stream a transmit id, and its symbols their place.
    fn admit(&mut self, now: Instant, stream: u32, tag: u64, datagram_bytes: usize) {
        self.refresh_key(stream, None);
        let state = self
            .streams
            .get_mut(&stream)
            .expect("a stream that waits is open");
        state.drop_expired(now);
        let Some(pending) = state.pending.pop_front() else {
            return self.finish_if_done(now, stream);
        };
        let id = self.next_transmit;
        self.next_transmit += 1;
        // What leaves later than this arrives too late.
        let expires = state
            .qos
            .lifespan
            .map(|lifespan| pending.accepted + lifespan.saturating_sub(self.path.transit));
        let charge = SendStream::charge(pending.payload.len());
        state.unclosed += 1;
        state.unclosed_bytes += charge;
        if expires.is_some_and(|at| at <= now) {
            let bytes = pending.payload.len();
            let given_up = GivenUp {
                stream,
                sequence: Some(pending.sequence),
                bytes,
                cause: Cause::Expired,
            };
            self.given_up.insert(id, given_up);
            self.refresh(now, stream);
            return;
        }
        let geometry = cut(
            id,
            stream,
            pending.sequence,
            pending.payload.len(),
            datagram_bytes,
        );
        coding::prepare(&geometry);
        let blocks: Vec<_> = (0..geometry.blocks())
            .map(|number| OutBlock {
                source_shards: geometry.block(number).source_shards() as u32,
                ready: true,
                ..OutBlock::default()
            })
            .collect();
        state.sending = Some(id);
        state.newest = Some(id);
        state.last_finish = tag;
        let queue = &mut self.classes[state.qos.traffic_class as usize];
        queue
            .ready
            .extend((0..blocks.len()).map(|number| (tag, id, number as u16)));
        expires.map(|at| self.expiries.insert((at, id)));
        let transmission = Transmission {
            stream,
            sequence: pending.sequence,
            class: state.qos.traffic_class,
            accepted: pending.accepted,
            admitted: now,
            expires,
            geometry,
            repairs: state.qos.delivery.repairs(),
            scarce: std::mem::take(&mut state.dropped) && !self.path.starting,
            start: tag.saturating_sub(pending.payload.len() as u64 + SAMPLE_COST),
            tag,
            payload: pending.payload,
            sent_bytes: 0,
            unsent_blocks: blocks.len(),
            blocks,
            in_flight: 0,
        };
        self.transmissions.insert(id, transmission);
    }

    /// A source shard of this transmission was sent.
    pub(super) fn advance(&mut self, id: u64, bytes: usize) {
        let transmission = self
            .transmissions
            .get_mut(&id)
            .expect("what sends is under way");
        transmission.sent_bytes += bytes as u64;
        let queue = &mut self.classes[transmission.class as usize];
        queue.virtual_time = queue
            .virtual_time
            .max(transmission.start + transmission.sent_bytes);
    }

    /// Looks anew whether a block asks for a symbol.
    pub(super) fn evaluate(&mut self, id: u64, number: u16) {
        let Some(transmission) = self.transmissions.get_mut(&id) else {
            return;
        };
        let surplus = surplus(self.path.rto.as_secs_f64(), transmission.scarce);
        let key = (transmission.tag, id, number);
        let block = &mut transmission.blocks[usize::from(number)];
        let wants = block.wants(transmission.repairs, self.path.loss, surplus);
        if wants != block.ready {
            block.ready = wants;
            let ready = &mut self.classes[transmission.class as usize].ready;
            if wants {
                ready.insert(key)
            } else {
                ready.remove(&key)
            };
        }
    }

    /// A stream of which only the newest sample counts has a newer one: ends the repair of what was sent once.
    pub(super) fn supersede_sent_once(&mut self, now: Instant, stream: u32) {
        let Some(newest) = self.streams.get(&stream).and_then(|state| state.newest) else {
            return;
        };
        if self
            .transmissions
            .get(&newest)
            .is_some_and(Transmission::sent_once)
        {
            self.give_up(now, newest, Cause::Superseded);
        }
    }

    /// Nothing comes back, or does again: only the newest sample of a stream that may skip some is worth a packet.
    pub(super) fn keep_freshest(&mut self, now: Instant) {
        let is_stale = |transmission: &&Transmission| {
            let state = self.streams.get(&transmission.stream);
            state.is_some_and(|state| !state.qos.delivery.keeps_all() && !state.pending.is_empty())
        };
        let stale = self
            .transmissions
            .iter()
            .filter(|(_, transmission)| is_stale(transmission));
        let stale: Vec<u64> = stale.map(|(id, _)| *id).collect();
        for id in stale {
            self.give_up(now, id, Cause::Superseded);
        }
        // Whatever else has something that waits, waits for its turn: none is under way and it has credit.
        let waiting = self
            .classes
            .iter()
            .flat_map(|queue| queue.waiting.iter().map(|(_, stream)| *stream));
        // Or it waits for the credit that what was given up holds.
        let held_back = self.given_up.values().map(|given_up| given_up.stream);
        let streams: BTreeSet<u32> = held_back.chain(waiting).collect();
        for stream in streams {
            let Some(state) = self.streams.get_mut(&stream) else {
                continue;
            };
            let older = state.pending.len().saturating_sub(1);
            if older == 0 || state.qos.delivery.keeps_all() {
                continue;
            }
            state.pending.drain(..older);
            state.counters.superseded += older as u64;
            self.refresh_key(stream, None);
            self.refresh(now, stream);
        }
    }
}

/// Cuts a sample so that each symbol fills a datagram.
fn cut(
    transmit_id: u64,
    stream: u32,
    sequence: u64,
    sample_bytes: usize,
    datagram_bytes: usize,
) -> Geometry {
    let room = datagram_bytes.saturating_sub(HEADER_BYTES);
    let geometry = |limit: usize| {
        let limit = limit.clamp(
            crate::coding::geometry::SHARD_LIMIT_MIN,
            crate::coding::geometry::SHARD_BYTES_MAX,
        );
        Geometry::new(sample_bytes, limit & !1)
            .expect("the length was checked when the sample was accepted")
    };
    let widest = geometry(room);
    let symbol = Symbol {
        transmit_id,
        stream,
        sequence,
        geometry: widest,
        block: 0,
        index: 0,
        age_millis: 0,
    };
    geometry(room.saturating_sub(symbol.head_len_max()))
}
