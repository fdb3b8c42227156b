//! A host of the simulated network: sockets with links or TCP flows behind them, and applications
//! that send and check.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use nervure_link::carrier::{self, KeyPair};
use nervure_link::session::SessionConfig;
use nervure_linkemu::Ecn;
use nervure_linkemu::network::{self, Draw, IPV4_AND_UDP_HEADER_BYTES, Packet};
use nervure_linkemu::tcp::TcpSender;

use crate::peer::Peer;

/// The ports precede each payload, so that many sockets share a host. They are part of the UDP
/// header.
const PORT_BYTES: usize = 4;
/// Bytes that the network adds to each payload.
pub const HEADER_BYTES: u32 = IPV4_AND_UDP_HEADER_BYTES - PORT_BYTES as u32;
const FIRST_PORT: u16 = 4000;
/// A segment of TCP and its acknowledgement, without the bytes that the network adds.
const SEGMENT_BYTES: usize = 1500 - HEADER_BYTES as usize;
const ACKNOWLEDGEMENT_BYTES: usize = 52 - HEADER_BYTES as usize;

/// The epoch of the virtual clock: one instant for all machines of all runs, since only differences
/// count.
pub fn epoch() -> Instant {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    *EPOCH.get_or_init(|| Instant::now() + Duration::from_secs(3600))
}

/// The address of a socket of a host.
pub fn address(host: usize, socket: usize) -> SocketAddr {
    let ip = Ipv4Addr::new(10, 0, (host / 250) as u8, (host % 250 + 1) as u8);
    SocketAddr::new(IpAddr::V4(ip), FIRST_PORT + socket as u16)
}

/// The key of the link at a socket.
pub fn key(host: usize, socket: usize) -> KeyPair {
    let mut seed = [7; 32];
    seed[0] = host as u8;
    seed[1] = socket as u8;
    KeyPair::from_seed(seed)
}

/// The use of a socket.
pub enum Socket {
    /// A link.
    Link(Box<Peer>),
    /// A TCP flow that always has data to send, to the same socket of another host, from a time on.
    Tcp {
        to: usize,
        from: Duration,
        sender: TcpSender,
    },
    /// The receiving end of one.
    TcpSink(Delays),
}

/// The one-way delays of the segments of a flow.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delays {
    pub sum: Duration,
    pub segments: u32,
}

/// The link at a socket. The other host's link connects to that of host `acceptor`.
pub fn link(seed: u64, host: usize, socket: usize, acceptor: usize) -> Socket {
    link_with(SessionConfig::default(), seed, host, socket, acceptor)
}

/// A link of another configuration.
pub fn link_with(
    config: SessionConfig,
    seed: u64,
    host: usize,
    socket: usize,
    acceptor: usize,
) -> Socket {
    let allowed = if host == acceptor {
        vec![key(1 - acceptor, socket).public()]
    } else {
        Vec::new()
    };
    Socket::Link(Box::new(Peer::with_config(
        config, seed, host, socket, &allowed,
    )))
}

/// A host with its sockets.
pub struct Machine {
    number: usize,
    pub sockets: Vec<Socket>,
    /// Bytes that arrived at each socket, whole IP packets.
    pub received_bytes: Vec<u64>,
    /// Bytes that each socket sent, whole IP packets.
    pub sent_bytes: Vec<u64>,
    stalls: Option<Stalls>,
    /// Extra delay of packets to each socket.
    extra_delays: Vec<Duration>,
    /// Packets that are still so delayed, by the time of their arrival and their number.
    delayed: BTreeMap<(Duration, u64), Packet>,
    delayed_count: u64,
    /// Packets that arrived while the processor had other work.
    inbox: VecDeque<Packet>,
    outbox: VecDeque<Packet>,
    timeout: Option<Duration>,
    /// Something happened since the sockets were last polled.
    woken: bool,
}

impl Machine {
    pub fn new(number: usize, sockets: Vec<Socket>) -> Self {
        let (received_bytes, sent_bytes) = (vec![0; sockets.len()], vec![0; sockets.len()]);
        let extra_delays = vec![Duration::ZERO; sockets.len()];
        let (inbox, outbox) = (VecDeque::new(), VecDeque::new());
        Self {
            number,
            sockets,
            received_bytes,
            sent_bytes,
            stalls: None,
            extra_delays,
            delayed: BTreeMap::new(),
            delayed_count: 0,
            inbox,
            outbox,
            timeout: None,
            woken: true,
        }
    }

    /// Lets the machine pause now and then, as if its scheduler had other work.
    pub fn with_stalls(mut self, stalls: Option<Stalls>) -> Self {
        self.stalls = stalls;
        self
    }

    /// Delays packets to the sockets.
    pub fn with_delays(mut self, extra_delays: Vec<Duration>) -> Self {
        self.extra_delays = extra_delays;
        self
    }

    /// The link at a socket.
    pub fn peer(&self, socket: usize) -> &Peer {
        match &self.sockets[socket] {
            Socket::Link(peer) => peer,
            _ => panic!("socket {socket} of host {} has no link", self.number),
        }
    }

    pub fn peer_mut(&mut self, socket: usize) -> &mut Peer {
        self.woken = true;
        match &mut self.sockets[socket] {
            Socket::Link(peer) => peer,
            _ => panic!("socket {socket} has no link"),
        }
    }

    fn asleep_until(&mut self, now: Duration) -> Option<Duration> {
        self.stalls.as_mut()?.asleep_until(now)
    }

    fn delay(&mut self, now: Duration, packet: Packet) {
        let port = u16::from_be_bytes([packet.bytes[2], packet.bytes[3]]) - FIRST_PORT;
        match self.extra_delays.get(usize::from(port)) {
            Some(delay) if !delay.is_zero() => {
                self.delayed_count += 1;
                let key = (now + *delay, self.delayed_count);
                self.delayed.insert(key, packet);
            }
            _ => self.take(now, packet),
        }
    }

    fn take(&mut self, now: Duration, packet: Packet) {
        let ports: [u8; PORT_BYTES] = packet.bytes[..PORT_BYTES]
            .try_into()
            .expect("every packet has ports");
        let from_port = u16::from_be_bytes([ports[0], ports[1]]) - FIRST_PORT;
        let to_port = u16::from_be_bytes([ports[2], ports[3]]) - FIRST_PORT;
        let Some(socket) = self.sockets.get_mut(usize::from(to_port)) else {
            return;
        };
        self.received_bytes[usize::from(to_port)] +=
            u64::from(HEADER_BYTES) + packet.bytes.len() as u64;
        let payload = &packet.bytes[PORT_BYTES..];
        match socket {
            Socket::Link(peer) => {
                let from = address(packet.from, usize::from(from_port));
                peer.handle_packet(now, from, mark(packet.ecn), payload);
            }
            Socket::Tcp { sender, .. } => sender.on_ack(now, word(payload, 0)),
            Socket::TcpSink(delays) => {
                delays.sum += now.saturating_sub(Duration::from_nanos(word(payload, 1)));
                delays.segments += 1;
                let mut answer = packet.bytes[2..4].to_vec();
                answer.extend_from_slice(&packet.bytes[..2]);
                answer.extend_from_slice(&word(payload, 0).to_le_bytes());
                answer.resize(ACKNOWLEDGEMENT_BYTES, 0);
                self.outbox.push_back(Packet {
                    from: self.number,
                    to: packet.from,
                    ecn: Ecn::NotCapable,
                    bytes: answer,
                });
            }
        }
    }

    fn settle_timeout(&mut self, now: Duration) {
        let timeouts = self.sockets.iter_mut().filter_map(|socket| match socket {
            Socket::Link(peer) => peer.next_timeout(now),
            Socket::Tcp { from, sender, .. } => {
                if now < *from {
                    Some(*from)
                } else {
                    sender.timeout()
                }
            }
            Socket::TcpSink(_) => None,
        });
        let delayed = self.delayed.keys().next().map(|(at, _)| *at);
        self.timeout = timeouts.chain(delayed).min();
    }
}

impl network::Endpoint for Machine {
    fn handle_packet(&mut self, now: Duration, packet: Packet) {
        self.woken = true;
        match self.asleep_until(now) {
            Some(_) => self.inbox.push_back(packet),
            None => self.delay(now, packet),
        }
    }

    fn handle_timeout(&mut self, now: Duration) {
        self.woken = true;
        if self.asleep_until(now).is_some() {
            return;
        }
        while let Some(packet) = self.inbox.pop_front() {
            self.delay(now, packet);
        }
        while let Some(entry) = self.delayed.first_entry()
            && entry.key().0 <= now
        {
            let packet = entry.remove();
            self.take(now, packet);
        }
        for socket in &mut self.sockets {
            if let Socket::Link(peer) = socket {
                peer.handle_timeout(now);
            }
        }
    }

    fn next_timeout(&self) -> Option<Duration> {
        self.timeout
    }

    fn poll_transmit(&mut self, now: Duration) -> Option<Packet> {
        if !self.woken {
            return None;
        }
        if let Some(until) = self.asleep_until(now) {
            (self.timeout, self.woken) = (Some(until), false);
            return None;
        }
        if let Some(packet) = self.outbox.pop_front() {
            return Some(packet);
        }
        for (number, socket) in self.sockets.iter_mut().enumerate() {
            let sent = match socket {
                Socket::Link(peer) => peer.poll_transmit(now).map(|(transmit, payload)| {
                    let ecn = transmit.ecn.map_or(Ecn::NotCapable, |_| Ecn::Capable);
                    (transmit.destination, ecn, payload)
                }),
                Socket::Tcp { to, from, sender } if *from <= now => {
                    sender.next(now).map(|sequence| {
                        let mut segment = sequence.to_le_bytes().to_vec();
                        segment.extend_from_slice(&(now.as_nanos() as u64).to_le_bytes());
                        segment.resize(SEGMENT_BYTES - PORT_BYTES, 0);
                        (address(*to, number), Ecn::NotCapable, segment)
                    })
                }
                Socket::Tcp { .. } | Socket::TcpSink(_) => None,
            };
            if let Some((destination, ecn, payload)) = sent {
                let mut bytes = (FIRST_PORT + number as u16).to_be_bytes().to_vec();
                bytes.extend_from_slice(&destination.port().to_be_bytes());
                bytes.extend_from_slice(&payload);
                self.sent_bytes[number] += u64::from(HEADER_BYTES) + bytes.len() as u64;
                return Some(Packet {
                    from: self.number,
                    to: host_of(destination),
                    ecn,
                    bytes,
                });
            }
        }
        self.settle_timeout(now);
        self.woken = false;
        None
    }
}

fn mark(ecn: Ecn) -> Option<carrier::Ecn> {
    match ecn {
        Ecn::NotCapable => None,
        Ecn::Capable => Some(carrier::Ecn::Ect0),
        Ecn::CapableL4s => Some(carrier::Ecn::Ect1),
        Ecn::CongestionExperienced => Some(carrier::Ecn::CongestionExperienced),
    }
}

fn host_of(address: SocketAddr) -> usize {
    let IpAddr::V4(ip) = address.ip() else {
        panic!("{address} is on no host")
    };
    let [_, _, high, low] = ip.octets();
    usize::from(high) * 250 + usize::from(low) - 1
}

/// A number in a segment or an acknowledgement: the first is the sequence number, the second the time
/// of sending in nanoseconds.
fn word(payload: &[u8], index: usize) -> u64 {
    let bytes = payload[8 * index..][..8].try_into();
    u64::from_le_bytes(bytes.expect("a slice of eight bytes"))
}

/// The pauses of a machine whose processor others use, too. The times between are exponential with
/// a mean, the lengths uniform up to the longest.
#[derive(Clone, Debug)]
pub struct Stalls {
    mean_between: Duration,
    longest: Duration,
    draw: Draw,
    begins: Duration,
    ends: Duration,
}

impl Stalls {
    pub fn new(seed: u64, mean_between: Duration, longest: Duration) -> Self {
        let draw = Draw::new(seed);
        Self {
            mean_between,
            longest,
            draw,
            begins: Duration::ZERO,
            ends: Duration::ZERO,
        }
    }

    fn asleep_until(&mut self, now: Duration) -> Option<Duration> {
        while self.ends <= now {
            let pause = self.mean_between.mul_f64(-(1.0 - self.draw.share()).ln());
            self.begins = self.ends + pause;
            self.ends =
                self.begins + self.longest.mul_f64(self.draw.share()) + Duration::from_nanos(1);
        }
        (self.begins <= now).then_some(self.ends)
    }
}
