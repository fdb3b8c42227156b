//! Reads the captures of a run.

use std::path::Path;
use std::time::Duration;

/// A captured IP packet.
pub struct Packet {
    pub at: Duration,
    pub bytes: Vec<u8>,
}

impl Packet {
    /// The number of a datagram of the program `datagrams`.
    pub fn number(&self) -> Option<u64> {
        let is_udp_to_port_5000 =
            self.bytes.get(9) == Some(&17) && self.bytes.get(22..24) == Some(&[0x13, 0x88]);
        let number = self.bytes.get(28..36).filter(|_| is_udp_to_port_5000)?;
        Some(u64::from_be_bytes(number.try_into().unwrap()))
    }
}

/// Reads the packets of a capture, after a check of its header.
pub fn read_capture(path: &Path) -> Vec<Packet> {
    let bytes = std::fs::read(path).unwrap();
    let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
    assert_eq!(word(0), 0xA1B2_3C4D, "pcap with nanoseconds");
    assert_eq!(word(20), 101, "raw IP");
    let mut packets = Vec::new();
    let mut at = 24;
    while at < bytes.len() {
        let (kept, length) = (word(at + 8) as usize, word(at + 12) as usize);
        assert_eq!(kept, length, "nothing cut off");
        let time = Duration::new(u64::from(word(at)), word(at + 4));
        packets.push(Packet {
            at: time,
            bytes: bytes[at + 16..at + 16 + kept].to_vec(),
        });
        at += 16 + kept;
    }
    packets
}
