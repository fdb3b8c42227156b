//! A run of a channel of the population.

use std::time::Duration;

use nervure_link::qos::{Delivery, Qos};
use nervure_link::session::{SessionConfig, SessionStatus};
use nervure_linkemu::network::{Network, Packet};
use nervure_linkemu::population::{Channel, FlowKind, History, Load, START};
use nervure_linkemu::tcp::TcpSender;
use nervure_linkemu::{Air, Count};

use crate::machine::{Delays, HEADER_BYTES, Machine, Socket, key, link_with};
use crate::peer::{self, Arrived};

/// A link that is not connected by then has failed.
const CONNECT_LIMIT: Duration = Duration::from_secs(20);

/// The sender of a channel's load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    Link,
    /// In its place a TCP flow of this kind, as a reference.
    Tcp(Tcp),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tcp {
    Cubic,
    Bbr,
    Transfers,
}

impl Tcp {
    pub fn of(kind: FlowKind) -> Option<Self> {
        match kind {
            FlowKind::Cubic => Some(Self::Cubic),
            FlowKind::Bbr => Some(Self::Bbr),
            FlowKind::Transfers => Some(Self::Transfers),
            FlowKind::Own(_) => None,
        }
    }

    fn sender(self, seed: u64) -> TcpSender {
        match self {
            Self::Cubic => TcpSender::cubic(),
            Self::Bbr => TcpSender::bbr(seed),
            Self::Transfers => TcpSender::transfers(seed),
        }
    }
}

/// Counters at a time.
#[derive(Clone, Debug)]
pub struct Snapshot {
    pub at: Duration,
    /// IP bytes that arrived of the load (or of the flow in its place) and of each flow.
    pub arrived_bytes: Vec<u64>,
    /// Payload bytes that arrived of the load and of each flow; those of IP for TCP.
    pub payload_bytes: Vec<u64>,
    /// IP bytes that the link sent.
    pub sent_bytes: u64,
    /// IP bytes that the other end of the link sent back.
    pub returned_bytes: u64,
    /// Of the packets of host 0.
    pub dropped: Count,
    pub queued: usize,
    /// Time on the air of both hosts.
    pub airtime: [Duration; 2],
    pub status: Option<SessionStatus>,
}

/// A run.
pub struct Trial {
    /// From the begin to the end of the load, at the times asked for and at every change of the
    /// number of flows.
    pub snapshots: Vec<Snapshot>,
    /// When the load began. `None`: the link was not connected.
    pub begin: Option<Duration>,
    /// The number of each sample that arrived, and when.
    pub arrived: Vec<(u64, Duration)>,
    /// When each sample was accepted.
    pub accepted: Vec<Duration>,
    /// The share of the packets of host 0 that the channel, not its queue, let pass.
    pub kept: f64,
    /// The mean one-way delay of the segments of the flow in place of the link.
    pub segment_delay: Duration,
}

/// Runs a channel until its load ends. Snapshots are taken each `interval`.
pub fn run(channel: &Channel, sender: Sender, interval: Duration, config: SessionConfig) -> Trial {
    let mut network = network(channel, sender, config);
    let mut own = own_flows(channel);
    let mut now = Duration::ZERO;
    if sender == Sender::Link {
        let load = peer_load(channel.load, now, channel.length);
        network
            .endpoint_mut(0)
            .peer_mut(0)
            .connect(now, 1, 0, &[load]);
    }
    let mut begin = None;
    while begin.is_none() {
        now += Duration::from_millis(1);
        run_to(&mut network, now, &mut own, channel);
        begin = match sender {
            Sender::Link => network.endpoint(0).peer(0).begin(0),
            Sender::Tcp(_) => (now >= START).then_some(START),
        };
        if begin.is_none() && now >= CONNECT_LIMIT {
            return failed(&network, channel);
        }
    }
    let begin = begin.unwrap_or(START).max(now);
    let end = begin + channel.length;
    let mut snapshots = Vec::new();
    for at in times(channel, begin, end, interval) {
        run_to(&mut network, at, &mut own, channel);
        snapshots.push(snapshot(&network, sender, channel));
    }
    check(&network, sender);
    finish(&network, sender, begin, snapshots)
}

/// The begin, each interval and start of a flow, and the end.
fn times(channel: &Channel, begin: Duration, end: Duration, interval: Duration) -> Vec<Duration> {
    let steps = (0..).map(|step| begin + interval * step);
    let mut times: Vec<_> = steps
        .take_while(|at| *at < end)
        .chain(channel.flows.iter().map(|flow| flow.starts))
        .filter(|at| (begin..end).contains(at))
        .chain([end])
        .collect();
    times.sort_unstable();
    times.dedup();
    times
}

fn network(channel: &Channel, sender: Sender, config: SessionConfig) -> Network<Machine> {
    let schedules = [channel.forward.clone(), channel.reverse.clone()];
    let air = Air::new(channel.duplex, channel.seed, schedules);
    let socket = |host: usize, socket: usize| {
        let (tcp, is_reverse, from) = match (socket.checked_sub(1), sender) {
            (None, Sender::Link) => (None, false, Duration::ZERO),
            // In place of the link a flow always has data to send.
            (None, Sender::Tcp(Tcp::Transfers)) => (Some(Tcp::Cubic), false, Duration::ZERO),
            (None, Sender::Tcp(tcp)) => (Some(tcp), false, Duration::ZERO),
            (Some(flow), _) => {
                let flow = &channel.flows[flow];
                (Tcp::of(flow.kind), flow.is_reverse, flow.starts)
            }
        };
        match tcp {
            None => link_with(config, channel.seed, host, socket, usize::from(!is_reverse)),
            Some(tcp) if (host == 0) != is_reverse => Socket::Tcp {
                to: 1 - host,
                from,
                sender: tcp.sender(socket as u64),
            },
            Some(_) => Socket::TcpSink(Delays::default()),
        }
    };
    let sockets = channel.flows.len() + 1;
    let extra_delays = channel.flows.iter().map(|flow| flow.extra_delay);
    let extra_delays: Vec<_> = std::iter::once(Duration::ZERO)
        .chain(extra_delays)
        .collect();
    let machine = |host| {
        let sockets = (0..sockets).map(|number| socket(host, number)).collect();
        Machine::new(host, sockets).with_delays(extra_delays.clone())
    };
    Network::new(air, [0, 1].map(machine))
        .with_header_bytes(HEADER_BYTES)
        .with_flows(flow)
}

/// The ports and the direction.
fn flow(packet: &Packet) -> u64 {
    let ports = packet.bytes[..4].iter();
    ports.fold(packet.from as u64, |flow, byte| {
        flow << 8 | u64::from(*byte)
    })
}

/// The sockets of the flows with the link's own protocol that are to begin, and when.
fn own_flows(channel: &Channel) -> Vec<(Duration, usize)> {
    let flows = channel.flows.iter().enumerate();
    let own = flows.filter(|(_, flow)| matches!(flow.kind, FlowKind::Own(_)));
    let mut own: Vec<_> = own
        .map(|(number, flow)| (flow.starts, number + 1))
        .collect();
    own.sort_unstable();
    own
}

/// Runs the network, and begins flows with the link's own protocol on their way.
fn run_to(
    network: &mut Network<Machine>,
    to: Duration,
    own: &mut Vec<(Duration, usize)>,
    channel: &Channel,
) {
    while let Some((starts, socket)) = own.first().copied().filter(|own| own.0 <= to) {
        own.remove(0);
        network.run_to(starts);
        let flow = &channel.flows[socket - 1];
        if let FlowKind::Own(load) = flow.kind {
            let now = network.now();
            let mut load = peer_load(load, now, CONNECT_LIMIT + channel.length);
            load.pause = flow.pause;
            let (host, to) = if flow.is_reverse { (1, 0) } else { (0, 1) };
            let peer = network.endpoint_mut(host).peer_mut(socket);
            peer.connect(now, to, socket, &[load]);
        }
    }
    network.run_to(to);
}

fn peer_load(load: Load, now: Duration, length: Duration) -> peer::Load {
    let delivery = match load.history {
        History::KeepLast(depth) => Delivery::keep_last(depth),
        History::KeepAll(depth) => Delivery::keep_all(depth),
    };
    peer::Load {
        qos: Qos::new(delivery),
        sample_bytes: load.sample_bytes,
        period: Duration::from_secs_f64(1.0 / load.rate_hz),
        count: (load.rate_hz * length.as_secs_f64()).ceil() as u64,
        start: Some(START.max(now)),
        pause: None,
    }
}

fn arrived(network: &Network<Machine>, to: usize, socket: usize) -> Option<&Arrived> {
    let stream = (key(1 - to, socket).public(), "stream 0".to_owned());
    network.endpoint(to).peer(socket).arrived.get(&stream)
}

fn snapshot(network: &Network<Machine>, sender: Sender, channel: &Channel) -> Snapshot {
    let ends = [0, 1].map(|host| network.endpoint(host));
    let to = |socket: usize| match socket.checked_sub(1) {
        Some(flow) if channel.flows[flow].is_reverse => 0,
        _ => 1,
    };
    let of = |socket: usize| ends[to(socket)].received_bytes[socket];
    let sockets = 0..=channel.flows.len();
    let payload = |socket: usize| match &ends[1].sockets[socket] {
        Socket::Link(_) => arrived(network, to(socket), socket).map_or(0, |arrived| arrived.bytes),
        _ => of(socket),
    };
    let counters = network.air().counters(0);
    let mut dropped = counters.dropped_queue;
    dropped += counters.dropped_aqm;
    dropped += counters.dropped_policer;
    Snapshot {
        at: network.now(),
        arrived_bytes: sockets.clone().map(of).collect(),
        payload_bytes: sockets.map(payload).collect(),
        sent_bytes: ends[0].sent_bytes[0],
        returned_bytes: ends[1].sent_bytes[0],
        dropped,
        queued: network.air().queued(0),
        airtime: [0, 1].map(|host| network.air().counters(host).airtime),
        status: (sender == Sender::Link).then(|| ends[0].peer(0).session(1, 0).status()),
    }
}

fn finish(
    network: &Network<Machine>,
    sender: Sender,
    begin: Duration,
    snapshots: Vec<Snapshot>,
) -> Trial {
    let counters = network.air().counters(0);
    let lost = counters.lost_random.packets + counters.lost_burst.packets;
    let passed = counters.delivered.packets;
    let mut trial = Trial {
        snapshots,
        begin: Some(begin),
        arrived: Vec::new(),
        accepted: Vec::new(),
        kept: passed as f64 / (passed + lost).max(1) as f64,
        segment_delay: Duration::ZERO,
    };
    if sender == Sender::Link {
        let arrived = arrived(network, 1, 0).map(|arrived| arrived.samples.clone());
        trial.arrived = arrived.unwrap_or_default();
        trial.accepted = network.endpoint(0).peer(0).accepted(0).to_vec();
    } else if let Socket::TcpSink(delays) = &network.endpoint(1).sockets[0] {
        trial.segment_delay = delays.sum / delays.segments.max(1);
    }
    trial
}

fn failed(network: &Network<Machine>, channel: &Channel) -> Trial {
    Trial {
        snapshots: vec![snapshot(network, Sender::Link, channel)],
        begin: None,
        arrived: Vec::new(),
        accepted: Vec::new(),
        kept: 1.0,
        segment_delay: Duration::ZERO,
    }
}

/// Checks the accounts of network and link.
///
/// # Panics
///
/// When they do not balance.
fn check(network: &Network<Machine>, sender: Sender) {
    let counters = network.air().counters(0);
    let waiting = counters.in_flight().packets;
    assert!(counters.offered.packets >= waiting, "{counters:?}");
    if sender != Sender::Link {
        return;
    }
    let (from, to) = (network.endpoint(0).peer(0), network.endpoint(1).peer(0));
    let status = from.session(1, 0).status();
    assert!(status.sent.is_balanced(), "{:?}", status.sent);
    assert_eq!(status.invalid_feedback, 0, "{status:?}");
    let taken = arrived(network, 1, 0).map_or(0, |arrived| arrived.samples.len() as u64);
    assert!(
        taken <= from.accepted(0).len() as u64,
        "{taken} samples arrived"
    );
    assert_eq!((from.disconnected, to.disconnected), (0, 0));
}
