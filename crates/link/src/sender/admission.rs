//! Admission: which sample of which stream begins its transmission.

use std::time::Instant;

use super::{
    Sender,
    given_up::{Cause, GivenUp},
    schedule::Schedule,
    stream::SendStream,
    transmission::{BlockId, OutBlock, Transmission},
};
use crate::{
    coding::geometry::{Geometry, SHARD_BYTES_MAX, SHARD_LIMIT_MIN},
    qos::TrafficClass,
    wire::{
        control::Control,
        data::{HEADER_BYTES, Symbol},
    },
};

impl Sender {
    /// Adds a stream to those that wait in the schedule, or removes it. Requests credit that it
    /// lacks.
    pub(crate) fn refresh(&mut self, now: Instant, stream: u32) {
        self.refuse_too_long(stream);
        let Some(state) = self.streams.get_mut(stream) else {
            return;
        };
        state.drop_expired(now);
        if let Some(bytes) = state.credit_to_request(now) {
            self.control(now, &Control::Want { stream, bytes });
        }
        let unclosed = self.transmissions.len() + self.given_up.len();
        let Some(state) = self.streams.get_mut(stream) else {
            return;
        };
        let tag = state
            .may_admit(unclosed)
            .then(|| self.schedule.finish_tag(state))
            .flatten();
        self.schedule.place_stream(stream, state, tag);
        self.request_change_if_drained(now, stream);
        // The last pending sample may just have expired.
        self.finish_if_done(now, stream);
    }

    /// The blocks that send next, most urgent first, at most `most`; admits samples whose turn has
    /// come.
    pub(super) fn next_blocks(
        &mut self,
        now: Instant,
        most: usize,
        datagram_bytes: usize,
    ) -> Vec<BlockId> {
        let mut blocks = Vec::with_capacity(most);
        for class in TrafficClass::ALL {
            while let Some((tag, stream)) = self.schedule.next_admission(class) {
                self.admit(now, stream, tag, datagram_bytes);
            }
            blocks.extend(self.schedule.ready(class).take(most - blocks.len()));
            if blocks.len() == most {
                break;
            }
        }
        blocks
    }

    /// Gives the first pending sample of a stream a transmit id, and makes its blocks ready.
    fn admit(&mut self, now: Instant, stream: u32, tag: u64, datagram_bytes: usize) {
        let state = self
            .streams
            .get_mut(stream)
            .expect("a waiting stream is open");
        self.schedule.place_stream(stream, state, None);
        state.drop_expired(now);
        let Some(pending) = state.pop_pending() else {
            return self.finish_if_done(now, stream);
        };
        let id = self.transmissions.new_id();
        // A sample that leaves later than this arrives too late.
        let expires = state
            .qos
            .lifespan
            .map(|lifespan| pending.accepted + lifespan.saturating_sub(self.path.transit));
        let bytes = pending.payload.len();
        state.unclosed += 1;
        state.unclosed_bytes += SendStream::charge(bytes);
        if expires.is_some_and(|at| at <= now) {
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
        let geometry = cut(id, stream, pending.sequence, bytes, datagram_bytes);
        self.uses_coding |= geometry.needs_coding();
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
            start: Schedule::start_of(tag, bytes),
            tag,
            payload: pending.payload,
            sent_bytes: 0,
            unsent_blocks: blocks.len(),
            blocks,
            in_flight: 0,
        };
        self.schedule.add(id, &transmission);
        self.transmissions.insert(id, transmission);
    }

    /// Ends the repair of a stream's newest transmission, if it was sent once: only the newest
    /// sample counts, and a newer one is pending.
    pub(super) fn supersede_sent_once(&mut self, now: Instant, stream: u32) {
        let newest = self.streams.get(stream).and_then(|state| state.newest);
        if let Some(newest) = newest
            && self
                .transmissions
                .get(newest)
                .is_some_and(Transmission::sent_once)
        {
            self.give_up(now, newest, Cause::Superseded);
        }
    }

    /// Gives up samples in flight that are no longer within the history of their stream, on a silent path and
    /// when it is heard again: newer ones would wait behind them.
    pub(super) fn keep_history(&mut self, now: Instant) {
        let is_past = |transmission: &Transmission| {
            let state = self.streams.get(transmission.stream);
            state.is_some_and(|state| {
                let newer = state.next_sequence - 1 - transmission.sequence;
                !state.qos.delivery.keeps_all() && newer >= state.qos.delivery.depth() as u64
            })
        };
        let past: Vec<u64> = self
            .transmissions
            .iter()
            .filter(|(_, transmission)| is_past(transmission))
            .map(|(id, _)| id)
            .collect();
        for id in past {
            self.give_up(now, id, Cause::Superseded);
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
        let limit = limit.clamp(SHARD_LIMIT_MIN, SHARD_BYTES_MAX);
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
