//! Sent packets without a report.

use std::collections::VecDeque;

/// Most packets remembered: older ones are forgotten, and reports on them are refused.
const MAX_REMEMBERED: usize = 1 << 18;

/// A packet that was sent.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    pub number: u64,
    /// Seconds since the start.
    pub time: f64,
    /// Packets sent up to and with this one.
    pub count: u64,
    /// Bytes sent up to and with this one.
    pub bytes: u64,
    /// Cumulative lateness of packets, in seconds, that was not caught up.
    pub late: f64,
}

/// The packets that reports may name.
#[derive(Debug, Default)]
pub struct SentPackets {
    packets: VecDeque<Sent>,
    count: u64,
    bytes: u64,
    last_number: u64,
    late: f64,
    /// The newest packet sent after a pause.
    last_idle: u64,
}

impl SentPackets {
    /// `late`: lateness of the packet in seconds, as far as it is not caught up.
    pub fn push(&mut self, number: u64, time: f64, bytes: usize, idle: bool, late: f64) {
        debug_assert!(
            self.count == 0 || number > self.last_number,
            "packet numbers increase"
        );
        self.count += 1;
        self.bytes += bytes as u64;
        self.late += late;
        self.last_number = number;
        if idle || self.count == 1 {
            self.last_idle = number;
        }
        if self.packets.len() == MAX_REMEMBERED {
            self.packets.pop_front();
        }
        self.packets.push_back(Sent {
            number,
            time,
            count: self.count,
            bytes: self.bytes,
            late: self.late,
        });
    }

    pub fn find(&self, number: u64) -> Option<Sent> {
        let index = self
            .packets
            .binary_search_by_key(&number, |packet| packet.number)
            .ok()?;
        Some(self.packets[index])
    }

    pub fn forget_before(&mut self, number: u64) {
        let old = self
            .packets
            .partition_point(|packet| packet.number < number);
        self.packets.drain(..old);
    }

    pub fn last_number(&self) -> u64 {
        self.last_number
    }

    pub fn last_idle(&self) -> u64 {
        self.last_idle
    }

    /// Bytes sent after the packet with this number.
    pub fn bytes_after(&self, number: Option<u64>) -> u64 {
        match number {
            None => self.bytes,
            // The reported packet is kept, so it is found unless [`MAX_REMEMBERED`] packets were sent since.
            Some(number) => self
                .find(number)
                .map_or(self.bytes, |packet| self.bytes - packet.bytes),
        }
    }
}
