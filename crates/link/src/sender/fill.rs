//! Filling packets.

use std::time::{Duration, Instant};

use smallvec::SmallVec;

use super::{Cause, InFlight, Sender, stream::Pending};
use crate::wire::data::{ABANDONED_MAX, HEADER_BYTES, Header, ReportInterval, Status, Symbol};

/// How many blocks are looked at for one that fits what is left of a packet.
const LOOK_AHEAD: usize = 8;
/// What is told of given-up transmissions in a packet that also carries symbols.
const ABANDONED_ASIDE: usize = 8;
/// Less room than this is not worth looking for a symbol that fits.
const SYMBOL_BYTES_MIN: usize = 16;
/// The shortest time between two statuses.
const STATUS_INTERVAL_MIN: Duration = Duration::from_millis(5);

/// A packet that was filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filled {
    /// Its number.
    pub packet: u64,
    /// The bytes of the datagram.
    pub bytes: usize,
}

/// Where in a buffer a datagram is being written.
#[derive(Clone, Copy)]
struct Room {
    start: usize,
    datagram_bytes: usize,
}

impl Room {
    /// The bytes that still fit.
    fn left(self, out: &[u8]) -> usize {
        (self.start + self.datagram_bytes).saturating_sub(out.len())
    }
}

impl Sender {
    /// Whether there is something to send.
    pub fn has_work(&self, now: Instant) -> bool {
        self.has_symbols() || self.status_due(now) && !self.given_up.is_empty()
    }

    /// Appends a datagram of at most `datagram_bytes` with what is most urgent. A `probe` is filled even when there is
    /// nothing to say.
    pub fn fill(
        &mut self,
        now: Instant,
        datagram_bytes: usize,
        probe: bool,
        out: &mut Vec<u8>,
    ) -> Option<Filled> {
        if self.path.silent {
            self.keep_freshest(now);
        }
        let packet = self.next_packet;
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
        let mut symbols = SmallVec::<[(u64, u16); 2]>::new();
        let telling = self.status_due(now);
        // What is given up is told in a packet of its own when there is much of it, or nothing else to send.
        if telling && self.given_up.len() > ABANDONED_ASIDE {
            self.write_status(now, room, ABANDONED_MAX, out);
        } else {
            while room.left(out) > 0 && self.add_symbol(now, room, &mut symbols, out) {}
            let alone = symbols.is_empty();
            if (telling && !self.given_up.is_empty())
                || (probe && alone)
                || (self.status.news && telling)
            {
                let fits = Status::len_max(ABANDONED_ASIDE) <= room.left(out);
                if fits && (!alone || probe || !self.given_up.is_empty()) {
                    self.write_status(now, room, ABANDONED_ASIDE, out);
                }
            }
        }
        let bytes = out.len() - room.start;
        if bytes == HEADER_BYTES {
            out.truncate(room.start);
            return None;
        }
        self.next_packet += 1;
        self.in_flight.push_back(InFlight {
            packet,
            sent: now,
            symbols,
        });
        Some(Filled { packet, bytes })
    }

    pub(super) fn status_interval(&self) -> Duration {
        (self.path.rto / 2).max(STATUS_INTERVAL_MIN)
    }

    fn status_due(&self, now: Instant) -> bool {
        (self.status.news || !self.given_up.is_empty())
            && self
                .status
                .last
                .is_none_or(|last| last + self.status_interval() <= now)
    }

    fn write_status(&mut self, now: Instant, room: Room, most: usize, out: &mut Vec<u8>) {
        let fitting = room.left(out).saturating_sub(Status::len_max(0))
            / (Status::len_max(1) - Status::len_max(0));
        let abandoned = self.abandoned(fitting.min(most));
        Status {
            floor: self.floor(),
            feedback_seen: self.feedback_seen,
            abandoned,
        }
        .write(out);
        self.status.news = false;
        // What did not fit follows at once.
        self.status.last = (self.status.cursor == 0).then_some(now);
    }

    /// Every transmission below is known to be closed.
    pub(super) fn floor(&self) -> u64 {
        let first = self
            .transmissions
            .keys()
            .next()
            .into_iter()
            .chain(self.given_up.keys().next());
        first.copied().min().unwrap_or(self.next_transmit)
    }

    /// Adds the most urgent symbol that fits and of whose block there is none in the packet: symbols in one packet are
    /// lost together.
    fn add_symbol(
        &mut self,
        now: Instant,
        room: Room,
        symbols: &mut SmallVec<[(u64, u16); 2]>,
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
            let transmission = &self.transmissions[&id];
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
                // Datagrams have become shorter since the sample was cut: it is cut anew.
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
            .get_mut(&id)
            .expect("what sends is under way");
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
        let stream = self
            .streams
            .get_mut(&symbol.stream)
            .expect("what sends has a stream");
        stream.counters.symbols += 1;
        stream.counters.repair_symbols += u64::from(!first_time);
        if complete {
            transmission.unsent_blocks -= 1;
        }
        let sent_once = complete && transmission.unsent_blocks == 0;
        if sent_once {
            stream.sending = None;
        }
        if first_time {
            self.advance(id, block.shard_bytes());
        }
        self.evaluate(id, symbol.block);
        if sent_once {
            self.refresh(now, symbol.stream);
        }
    }

    /// Gives a sample up and puts it back to its place before those that wait.
    fn recut(&mut self, now: Instant, id: u64) {
        let transmission = &self.transmissions[&id];
        let (stream, sequence) = (transmission.stream, transmission.sequence);
        let pending = Pending {
            sequence,
            payload: transmission.payload.clone(),
            accepted: transmission.accepted,
        };
        self.give_up(now, id, Cause::Recut);
        let state = self
            .streams
            .get_mut(&stream)
            .expect("what sends has a stream");
        let place = state
            .pending
            .partition_point(|other| other.sequence < sequence);
        state.pending.insert(place, pending);
        state.unclosed -= 1;
        self.refresh_key(stream, None);
        self.refresh(now, stream);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::{
        qos::{Delivery, Qos},
        sender::Path,
        wire::data::{self, Frame},
    };

    /// An age is that at which the sample arrives, and what would arrive too old is not sent.
    #[test]
    fn the_way_to_the_peer_counts_towards_the_age_of_a_sample() {
        let now = Instant::now();
        let mut sender = Sender::new(1);
        let lifespan = Some(Duration::from_millis(100));
        let stream = sender.open(
            now,
            "stream".into(),
            Qos {
                lifespan,
                ..Qos::new(Delivery::keep_last(1))
            },
        );
        sender.on_grant(now, stream, 1 << 20);
        sender.set_path(
            now,
            Path {
                transit: Duration::from_millis(40),
                ..Path::default()
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
