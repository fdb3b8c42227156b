//! Carries packets from the TUN devices through the model and back.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use nervure_linkemu::{Air, Ecn, Header, Scenario};

use crate::capture::Captures;

/// The most packets read from one device before the next one's turn.
const BATCH: usize = 64;

/// Carries packets between devices.
pub struct Forwarder {
    air: Air<Datagram>,
    ports: Vec<Port>,
    captures: Option<Captures>,
    start: Instant,
    /// `start` on CLOCK_MONOTONIC, for programs that log their own times.
    start_nanos: u64,
    buffer: Box<[u8; 65_536]>,
    late: Lateness,
}

/// A host as the emulator sees it.
pub struct Port {
    pub name: String,
    pub address: Ipv4Addr,
    pub tun: File,
    pub counters: PortCounters,
}

/// Counters of packets that the model does not see.
#[derive(Clone, Copy, Default)]
pub struct PortCounters {
    /// Sent to an address that no host has.
    pub unroutable: u64,
    /// Arrived, but refused by the host's interface.
    pub refused: u64,
}

/// Lateness of deliveries, compared with the model.
#[derive(Clone, Copy, Default)]
pub struct Lateness {
    pub packets: u64,
    pub sum: Duration,
    pub longest: Duration,
}

struct Datagram {
    to: Destination,
    bytes: Box<[u8]>,
}

#[derive(Clone, Copy)]
enum Destination {
    Host(usize),
    /// Multicast and broadcast.
    All,
}

impl Forwarder {
    pub fn new(
        scenario: &Scenario,
        ports: Vec<Port>,
        captures: Option<Captures>,
        start: Instant,
    ) -> Self {
        Self {
            air: scenario.air(),
            ports,
            captures,
            start,
            start_nanos: monotonic_nanos().saturating_sub(start.elapsed().as_nanos() as u64),
            buffer: Box::new([0; 65_536]),
            late: Lateness::default(),
        }
    }

    /// Reads packets from the hosts and delivers those that have arrived; returns whether there
    /// were any.
    pub fn turn(&mut self) -> io::Result<bool> {
        let received = self.receive()?;
        let delivered = self.deliver()?;
        Ok(received || delivered)
    }

    /// The time until the next event, unless a host sends.
    pub fn idle_for(&self) -> Option<Duration> {
        self.air
            .next_event()
            .map(|next| next.saturating_sub(self.start.elapsed()))
    }

    pub fn air_hosts(&self) -> impl Iterator<Item = (&Port, &nervure_linkemu::Counters)> {
        self.ports
            .iter()
            .enumerate()
            .map(|(host, port)| (port, self.air.counters(host)))
    }

    pub fn late(&self) -> Lateness {
        self.late
    }

    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    pub fn start_nanos(&self) -> u64 {
        self.start_nanos
    }

    pub fn devices(&self) -> impl Iterator<Item = &File> {
        self.ports.iter().map(|port| &port.tun)
    }

    /// Flushes the captures.
    pub fn finish(&mut self) -> io::Result<()> {
        self.captures.take().map_or(Ok(()), Captures::finish)
    }

    fn receive(&mut self) -> io::Result<bool> {
        let mut any = false;
        for host in 0..self.ports.len() {
            for _ in 0..BATCH {
                let length = match (&self.ports[host].tun).read(&mut self.buffer[..]) {
                    Ok(length) => length,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    // The interface is down: a program inside took it down, or it goes with its
                    // namespace.
                    Err(error) if is_down(&error) => break,
                    Err(error) => return Err(error),
                };
                any = true;
                self.offer(host, length)?;
            }
        }
        Ok(any)
    }

    fn offer(&mut self, host: usize, length: usize) -> io::Result<()> {
        let now = self.start.elapsed();
        let packet = &self.buffer[..length];
        if let Some(captures) = &mut self.captures {
            captures.write(host, now, packet)?;
        }
        let Some(to) = destination(packet, &self.ports) else {
            self.ports[host].counters.unroutable += 1;
            return Ok(());
        };
        // A TUN device gives at most its MTU, 65,535 bytes.
        self.air.offer(
            now,
            host,
            Header {
                bytes: length as u32,
                flow: flow(packet),
                ecn: Ecn::from_bits(packet[1]),
            },
            Datagram {
                to,
                bytes: packet.into(),
            },
        );
        Ok(())
    }

    fn deliver(&mut self) -> io::Result<bool> {
        let mut any = false;
        let mut now = self.start.elapsed();
        while let Some(delivery) = self.air.deliver(now) {
            any = true;
            let Datagram { to, mut bytes } = delivery.packet;
            set_ecn(&mut bytes, delivery.ecn);
            let receivers = match to {
                Destination::Host(host) => host..host + 1,
                Destination::All => 0..self.ports.len(),
            };
            for host in receivers
                .filter(|&host| matches!(to, Destination::Host(_)) || host != delivery.from)
            {
                if let Some(captures) = &mut self.captures {
                    captures.write(host, delivery.at, &bytes)?;
                }
                let port = &mut self.ports[host];
                match rustix::io::write(&port.tun, &bytes) {
                    Ok(_) => {}
                    Err(_) => port.counters.refused += 1,
                }
            }
            now = self.start.elapsed();
            let late = now.saturating_sub(delivery.at);
            self.late.packets += 1;
            self.late.sum += late;
            self.late.longest = self.late.longest.max(late);
        }
        Ok(any)
    }
}

impl Lateness {
    pub fn mean(&self) -> Duration {
        u32::try_from(self.packets)
            .ok()
            .and_then(|packets| self.sum.checked_div(packets))
            .unwrap_or_default()
    }
}

fn monotonic_nanos() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

fn is_down(error: &io::Error) -> bool {
    matches!(error.raw_os_error().map(rustix::io::Errno::from_raw_os_error),
        Some(errno) if errno == rustix::io::Errno::IO || errno == rustix::io::Errno::BADFD)
}

/// The destination of an IPv4 packet; `None` if no host has the address.
fn destination(packet: &[u8], ports: &[Port]) -> Option<Destination> {
    let octets: [u8; 4] = packet.get(16..20)?.try_into().ok()?;
    if packet[0] >> 4 != 4 {
        return None;
    }
    let address = Ipv4Addr::from(octets);
    if address.is_multicast() || address.is_broadcast() || octets[3] == 255 {
        return Some(Destination::All);
    }
    ports
        .iter()
        .position(|port| port.address == address)
        .map(Destination::Host)
}

/// Addresses, protocol and, where the packet has them, ports.
fn flow(packet: &[u8]) -> u64 {
    const UDP_AND_TCP: [u8; 2] = [17, 6];
    let header_bytes = usize::from(packet[0] & 0x0f) * 4;
    let is_first_fragment = packet[6] & 0x1f == 0 && packet[7] == 0;
    let ports = packet
        .get(header_bytes..header_bytes + 4)
        .filter(|_| UDP_AND_TCP.contains(&packet[9]) && is_first_fragment);
    let mut hasher = DefaultHasher::new();
    (packet[9], &packet[12..20], ports).hash(&mut hasher);
    hasher.finish()
}

/// Sets the ECN field of an IPv4 packet, with its checksum. (RFC 1624, equation 3.)
fn set_ecn(packet: &mut [u8], ecn: Ecn) {
    let old = u16::from_be_bytes([packet[0], packet[1]]);
    let new = old & !0b11 | u16::from(ecn.bits());
    if new == old {
        return;
    }
    packet[1] = new as u8;
    let checksum = u16::from_be_bytes([packet[10], packet[11]]);
    let sum = u32::from(!checksum) + u32::from(!old) + u32::from(new);
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    packet[10..12].copy_from_slice(&(!(folded as u16)).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sum over a header with a right checksum is 0xffff (RFC 1071).
    fn sum(header: &[u8]) -> u16 {
        let words = header
            .chunks(2)
            .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
        let sum: u32 = words.sum();
        ((sum & 0xffff) + (sum >> 16)) as u16
    }

    #[test]
    fn a_mark_keeps_the_checksum_right() {
        // The example header of RFC 1071's readers: 192.168.0.1 to 192.168.0.199, UDP.
        let mut packet = [
            0x45, 0x02, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x5f, 0xc0, 0xa8,
            0x00, 0x01, 0xc0, 0xa8, 0x00, 0xc7,
        ];
        assert_eq!(sum(&packet), 0xffff);
        set_ecn(&mut packet, Ecn::CongestionExperienced);
        assert_eq!(packet[1], 0x03);
        assert_eq!(sum(&packet), 0xffff);
    }
}
