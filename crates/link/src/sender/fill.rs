//! Filling packets.

use std::time::Instant;

use super::{Sender, given_up::Cause, in_flight::PacketSymbols, stream::PendingSample};
use crate::wire::data::{
    ABANDONED_MAX, HEADER_BYTES, Header, ReportInterval, SenderStatus, Symbol,
};

/// Further blocks that are tried for one that fits the rest of a packet.
const LOOK_AHEAD: usize = 8;
/// The most runs of given-up transmissions in the status of a packet that also carries symbols.
const ABANDONED_BESIDE_SYMBOLS: usize = 8;
/// With less room than this in a packet, no further symbol is tried.
const SYMBOL_BYTES_MIN: usize = 16;

/// A packet that was filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filled {
    /// Its number, from 1.
    pub packet: u64,
    /// The length of the datagram, in bytes.
    pub bytes: usize,
}

/// The place of a datagram in the buffer that it is written to.
#[derive(Clone, Copy)]
struct Room {
    start: usize,
    datagram_bytes: usize,
}

impl Room {
    /// Bytes that still fit.
    fn left(self, out: &[u8]) -> usize {
        (self.start + self.datagram_bytes).saturating_sub(out.len())
    }
}

impl Sender {
    /// Whether there is a symbol or a status to send.
    pub fn has_work(&self, now: Instant) -> bool {
        let status_due = self.given_up.status_due(now, self.path.status_interval());
        self.schedule.has_symbols() || status_due && !self.given_up.is_empty()
    }

    /// Appends a datagram of at most `datagram_bytes` with the most urgent symbols and statuses. A
    /// `probe` is filled even when there are none.
    pub fn fill(
        &mut self,
        now: Instant,
        datagram_bytes: usize,
        probe: bool,
        out: &mut Vec<u8>,
    ) -> Option<Filled> {
        if self.path.silent {
            self.keep_history(now);
        }
        let packet = self.in_flight.next_packet();
        let room = Room {
            start: out.len(),
            datagram_bytes,
        };
        let report_interval = ReportInterval::at_most(self.path.report_interval);
        Header {
            session: self.session,
            packet_number: packet as u32,
            report_interval,
        }
        .write(out);
        let mut symbols = PacketSymbols::new();
        let due = self.given_up.status_due(now, self.path.status_interval());
        if due && self.given_up.len() > ABANDONED_BESIDE_SYMBOLS {
            // A long status takes a packet of its own.
            self.write_status(now, room, ABANDONED_MAX, out);
        } else {
            while room.left(out) > 0 && self.add_symbol(now, room, &mut symbols, out) {}
            let alone = symbols.is_empty();
            let has_given_up = !self.given_up.is_empty();
            let wanted = due && (has_given_up || self.given_up.has_news()) || probe && alone;
            let fits = SenderStatus::len_max(ABANDONED_BESIDE_SYMBOLS) <= room.left(out);
            if wanted && fits && (!alone || probe || has_given_up) {
                self.write_status(now, room, ABANDONED_BESIDE_SYMBOLS, out);
            }
        }
        let bytes = out.len() - room.start;
        if bytes == HEADER_BYTES {
            out.truncate(room.start);
            return None;
        }
        self.in_flight.on_sent(now, symbols);
        Some(Filled { packet, bytes })
    }

    fn write_status(&mut self, now: Instant, room: Room, most: usize, out: &mut Vec<u8>) {
        let fitting = room.left(out).saturating_sub(SenderStatus::len_max(0))
            / (SenderStatus::len_max(1) - SenderStatus::len_max(0));
        // Every transmission below is known to be closed.
        let floor = [self.transmissions.lowest_id(), self.given_up.lowest_id()]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or(self.transmissions.next_id());
        self.given_up
            .status(now, floor, self.feedback_seen, fitting.min(most))
            .write(out);
    }

    /// Adds the most urgent symbol that fits, of a block with no symbol in the packet yet: symbols
    /// in one packet are lost together.
    fn add_symbol(
        &mut self,
        now: Instant,
        room: Room,
        symbols: &mut PacketSymbols,
        out: &mut Vec<u8>,
    ) -> bool {
        let ahead = if symbols.is_empty() {
            1
        } else {
            symbols.len() + LOOK_AHEAD
        };
        if !symbols.is_empty() && room.left(out) < SYMBOL_BYTES_MIN {
            return false;
        }
        for (id, number) in self.next_blocks(now, ahead, room.datagram_bytes) {
            if symbols.contains(&(id, number)) {
                continue;
            }
            let transmission = self
                .transmissions
                .get(id)
                .expect("a ready block is in transmission");
            let block = transmission.geometry.block(number.into());
            let state = &transmission.blocks[usize::from(number)];
            let age = now.saturating_duration_since(transmission.accepted) + self.path.transit;
            let symbol = Symbol {
                transmit_id: id,
                stream: transmission.stream,
                sequence: transmission.sequence,
                geometry: transmission.geometry,
                block: number,
                index: (state.next as usize % block.symbols()) as u16,
                age_millis: u16::try_from(age.as_millis()).unwrap_or(u16::MAX),
            };
            if symbol.head_len() + block.shard_bytes() <= room.left(out) {
                symbol.write(out);
                self.write_shard(now, &symbol, out);
                symbols.push((id, number));
                return true;
            }
            if symbols.is_empty() {
                // Datagrams have become shorter since the sample was cut.
                self.recut(now, id);
                return self.add_symbol(now, room, symbols, out);
            }
        }
        false
    }

    fn write_shard(&mut self, now: Instant, symbol: &Symbol, out: &mut Vec<u8>) {
        let (id, number) = (symbol.transmit_id, usize::from(symbol.block));
        let transmission = self
            .transmissions
            .get_mut(id)
            .expect("a ready block is in transmission");
        let block = transmission.geometry.block(number);
        let state = &mut transmission.blocks[number];
        let source = &transmission.payload[block.range()];
        let (index, shards) = (usize::from(symbol.index), block.source_shards());
        if index >= shards && shards > 1 {
            out.extend_from_slice(self.coder.repair_shard(
                block,
                source,
                &mut state.repair,
                index - shards,
                expected_repair(shards, self.path.loss),
            ));
        } else {
            let end = out.len() + block.shard_bytes();
            // The only shard of a block is repeated.
            let part = &source[block.shard_range(if shards == 1 { 0 } else { index })];
            out.extend_from_slice(part);
            out.resize(end, 0);
        }
        self.bytes_copied += block.shard_bytes() as u64;

        state.next += 1;
        state.in_flight += 1;
        transmission.in_flight += 1;
        let first_time = state.next <= state.source_shards;
        let complete = state.next == state.source_shards;
        if complete {
            transmission.unsent_blocks -= 1;
        }
        let sent_once = complete && transmission.unsent_blocks == 0;
        if first_time {
            self.schedule.advance(transmission, block.shard_bytes());
        }
        self.schedule
            .evaluate((id, symbol.block), transmission, &self.path);
        let stream = self
            .streams
            .get_mut(symbol.stream)
            .expect("a transmission has a stream");
        stream.counters.symbols += 1;
        stream.counters.repair_symbols += u64::from(!first_time);
        if sent_once {
            stream.sending = None;
            self.refresh(now, symbol.stream);
        }
    }

    /// Gives a transmission up and makes its sample pending again, before later ones.
    fn recut(&mut self, now: Instant, id: u64) {
        let transmission = self
            .transmissions
            .get(id)
            .expect("a ready block is in transmission");
        let (stream, sequence) = (transmission.stream, transmission.sequence);
        let pending = PendingSample {
            sequence,
            payload: transmission.payload.clone(),
            accepted: transmission.accepted,
        };
        self.give_up(now, id, Cause::Recut);
        let state = self
            .streams
            .get_mut(stream)
            .expect("a transmission has a stream");
        state.push_again(pending);
        state.unclosed -= 1;
        self.schedule.place_stream(stream, state, None);
        self.refresh(now, stream);
    }
}

/// The repair shards that a block with this number of source shards will rarely exceed: those for
/// the expected loss, and three standard deviations.
fn expected_repair(source_shards: usize, loss: f64) -> usize {
    let lost = source_shards as f64 * loss;
    ((lost + 3.0 * lost.sqrt()) / (1.0 - loss)) as usize
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;

    use super::*;
    use crate::{
        qos::{Delivery, Qos},
        sender::PathEstimate,
        wire::data::{self, Frame},
    };

    /// A symbol carries the age that the sample has on arrival; a sample that would arrive too old
    /// is not sent.
    #[test]
    fn the_transit_time_counts_towards_the_age_of_a_sample() {
        let now = Instant::now();
        let mut sender = Sender::new(1, 1);
        let lifespan = Some(Duration::from_millis(100));
        let stream = sender.open(
            now,
            "stream".into(),
            Qos {
                lifespan,
                ..Qos::new(Delivery::keep_last(1))
            },
        );
        let stream = stream.expect("the name is short");
        sender.on_grant(now, stream, 1 << 20, 1 << 20);
        sender.set_path(
            now,
            PathEstimate {
                transit: Duration::from_millis(40),
                ..PathEstimate::default()
            },
        );
        sender
            .accept(now, stream, Bytes::from_static(b"sample"))
            .expect("it is small");
        let ages = sent_ages(&mut sender, now + Duration::from_millis(7), stream);
        assert_eq!(ages, [47]);
        sender
            .accept(now, stream, Bytes::from_static(b"sample"))
            .expect("it is small");
        assert_eq!(
            sent_ages(&mut sender, now + Duration::from_millis(61), stream),
            []
        );
    }

    fn sent_ages(sender: &mut Sender, now: Instant, stream: u32) -> Vec<u16> {
        sender.handle_timeout(now);
        let mut ages = Vec::new();
        let mut packet = Vec::new();
        while sender.fill(now, 1200, false, &mut packet).is_some() {
            let (_, frames) = data::read(&packet).expect("it was just written");
            ages.extend(frames.iter().filter_map(|frame| match frame {
                Frame::Symbol { symbol, .. } if symbol.stream == stream => Some(symbol.age_millis),
                _ => None,
            }));
            packet.clear();
        }
        ages
    }
}
