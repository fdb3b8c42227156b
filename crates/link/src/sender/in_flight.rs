//! Packets in flight: sent, and neither reported on nor overdue.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use smallvec::SmallVec;

use super::transmission::BlockId;

/// The blocks of the symbols in a packet, in order.
pub(super) type PacketSymbols = SmallVec<[BlockId; 2]>;

/// Numbers packets and remembers what is in them until their fate is known.
#[derive(Debug)]
pub(super) struct InFlight {
    next_packet: u64,
    packets: VecDeque<SentPacket>,
}

#[derive(Debug)]
struct SentPacket {
    number: u64,
    sent: Instant,
    symbols: PacketSymbols,
}

impl Default for InFlight {
    fn default() -> Self {
        Self {
            next_packet: 1,
            packets: VecDeque::new(),
        }
    }
}

impl InFlight {
    /// The number of the packet that is sent next, from 1.
    pub(super) fn next_packet(&self) -> u64 {
        self.next_packet
    }

    pub(super) fn packets_sent(&self) -> u64 {
        self.next_packet - 1
    }

    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Notes that the next packet was sent with these symbols.
    pub(super) fn on_sent(&mut self, now: Instant, symbols: PacketSymbols) {
        self.packets.push_back(SentPacket {
            number: self.next_packet,
            sent: now,
            symbols,
        });
        self.next_packet += 1;
    }

    /// Removes the packets up to `highest` and returns the blocks of their symbols.
    pub(super) fn take_reported(&mut self, highest: u64) -> Vec<BlockId> {
        self.take_while(|packet| packet.number <= highest)
    }

    /// Removes the packets that count as lost after `rto` and returns the blocks of their symbols.
    pub(super) fn take_overdue(&mut self, now: Instant, rto: Duration) -> Vec<BlockId> {
        self.take_while(|packet| packet.sent + rto <= now)
    }

    /// When the oldest packet counts as lost.
    pub(super) fn next_timeout(&self, rto: Duration) -> Option<Instant> {
        self.packets.front().map(|packet| packet.sent + rto)
    }

    fn take_while(&mut self, is_done: impl Fn(&SentPacket) -> bool) -> Vec<BlockId> {
        let mut symbols = Vec::new();
        while self.packets.front().is_some_and(&is_done) {
            let packet = self.packets.pop_front().expect("there is a first one");
            symbols.extend(packet.symbols);
        }
        symbols
    }
}
