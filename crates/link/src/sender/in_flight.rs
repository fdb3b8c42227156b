//! Packets in flight: sent, and neither reported on nor overdue.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use smallvec::SmallVec;

use super::transmission::BlockId;
use crate::random::Random;

/// The blocks of the symbols in a packet, in order.
pub(super) type PacketSymbols = SmallVec<[BlockId; 2]>;

/// Packet numbers are skipped at random, on average one in this number of packets. (QUIC's own
/// number, RFC 9000, section 21.4, is left to implementations. At this one, a receiver that names
/// packets which it does not have is found after some hundred reports, and the loss that an honest
/// one sees rises by 0.8 %.)
const PACKETS_PER_SKIP: u64 = 128;
/// Skipped numbers that are remembered: beyond any window of packets in flight.
const SKIPPED_MAX: usize = 4096;

/// Numbers packets and remembers their content until their fate is known.
#[derive(Debug)]
pub(super) struct InFlight {
    next_packet: u64,
    /// The number that is skipped next, and those skipped above the highest reported packet.
    skips_next: u64,
    skipped: VecDeque<u64>,
    random: Random,
    packets: VecDeque<SentPacket>,
}

#[derive(Debug)]
struct SentPacket {
    number: u64,
    sent: Instant,
    symbols: PacketSymbols,
}

impl InFlight {
    /// The peer must not be able to predict the seed.
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        Self {
            next_packet: 1,
            // The first number is never skipped.
            skips_next: 2 + random.next_u64() % (2 * PACKETS_PER_SKIP),
            skipped: VecDeque::new(),
            random,
            packets: VecDeque::new(),
        }
    }

    /// Begins with the first number again.
    pub(super) fn restart(&mut self) {
        *self = Self::new(self.random.next_u64());
    }

    /// The number of the packet that is sent next, from 1.
    pub(super) fn next_packet(&self) -> u64 {
        self.next_packet
    }

    /// Whether no packet has had this number yet, or it was skipped.
    pub(super) fn was_not_sent(&self, number: u64) -> bool {
        number >= self.next_packet || self.skipped.binary_search(&number).is_ok()
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
        if self.next_packet == self.skips_next {
            if self.skipped.len() == SKIPPED_MAX {
                self.skipped.pop_front();
            }
            self.skipped.push_back(self.next_packet);
            self.next_packet += 1;
            let gap = 1 + self.random.next_u64() % (2 * PACKETS_PER_SKIP);
            self.skips_next = self.next_packet + gap;
        }
    }

    /// Removes the packets up to `highest` and returns the blocks of their symbols.
    pub(super) fn take_reported(&mut self, highest: u64) -> Vec<BlockId> {
        let below = self.skipped.partition_point(|number| *number < highest);
        self.skipped.drain(..below);
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
