//! How good a run of a channel is: factors in (0, 1], and their geometric mean.
//!
//! - *delivered*: payload bytes that arrived while the load lasted, of those that the ideal link
//!   delivers ([`crate::ideal`]). Its share of the channel is the larger of the max-min fair share
//!   and the capacity left by the other flows: the throughput of a TCP flow in its place, and the
//!   time in which nothing was sent beside it.
//! - *p50*, *p95*: these percentiles of the latency (from acceptance) of the samples that arrived:
//!   the ideal link's divided by the real one's. Where TCP flows share its queue, the ideal link
//!   waits in the queue that they make beside one of their kind.
//! - *bytes*: IP bytes sent per payload byte delivered; 1 / ((1 - loss) * header share), of the
//!   real. Packets that queues drop and those sent into an outage are the link's own fault.
//! - *others*: throughput of the flows of a kind, relative to their throughput when one more flow
//!   of their kind replaces the link, at most 1; the mean over kinds. (R. Ware, M. K. Mukerjee, S.
//!   Seshan, J. Sherry, "Beyond Jain's Fairness Index: Setting the Bar For The Deployment of
//!   Congestion Control Algorithms", HotNets 2019: one less the harm.) Flows of the link's own kind
//!   are entitled to the max-min fair share.
//! - *recovery*: after a change of the rate or an outage, the time until 80 % of the ideal link's
//!   arrivals in the same window arrive; `a / (a + time)` with a = 0.5 s + 4 RTT.

use std::collections::BTreeMap;
use std::time::Duration;

use nervure_link::session::SessionConfig;
use nervure_linkemu::Duplex;
use nervure_linkemu::capacity::STEP;
use nervure_linkemu::population::{Channel, Flow, FlowKind, START};

use crate::ideal::{Served, Server, max_min};
use crate::trial::{Sender, Snapshot, Tcp, Trial, run};

/// Payload of a full packet, and the headers of IP, UDP, QUIC and the link in each.
const SHARD_BYTES: usize = 1408;
const OVERHEAD_BYTES: usize = 92;
/// No factor is less, so that one does not hide all others.
const LEAST_FACTOR: f64 = 0.01;
const WINDOW: Duration = Duration::from_millis(200);
const WINDOW_STEP: Duration = Duration::from_millis(20);
const RECOVERED: f64 = 0.8;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Factor {
    Delivered,
    P50,
    P95,
    Bytes,
    Others,
    Recovery,
}

impl Factor {
    pub const ALL: [Self; 6] = [
        Self::Delivered,
        Self::P50,
        Self::P95,
        Self::Bytes,
        Self::Others,
        Self::Recovery,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::P50 => "p50",
            Self::P95 => "p95",
            Self::Bytes => "bytes",
            Self::Others => "others",
            Self::Recovery => "recovery",
        }
    }
}

/// The score of a channel.
pub struct Score {
    pub factors: BTreeMap<Factor, f64>,
    /// Delivered bytes of the possible. More than 1 where the link takes more than its share.
    pub delivered: f64,
    /// Delivered bytes relative to the ideal link that has the channel alone.
    pub of_capacity: f64,
    /// Latencies in milliseconds: p50 and p95, and those of the ideal link.
    pub millis: [f64; 4],
    /// Bytes sent for each delivered.
    pub bytes: f64,
    /// The samples of the ideal link, with their times.
    pub ideal: Vec<Served>,
    pub trial: Trial,
}

impl Score {
    /// The geometric mean of the factors.
    pub fn value(&self) -> f64 {
        let logs = self.factors.values().map(|factor| factor.ln());
        (logs.sum::<f64>() / self.factors.len() as f64).exp()
    }

    /// IP bytes that the receiver sent, feedback above all, for each byte delivered.
    pub fn returned_bytes(&self) -> f64 {
        let last = self.trial.snapshots.last();
        last.map_or(f64::NAN, |last| {
            last.returned_bytes as f64 / last.payload_bytes[0].max(1) as f64
        })
    }
}

/// Runs a channel and its references, with snapshots of the former each `interval`.
pub fn score(channel: &Channel, interval: Duration, config: SessionConfig) -> Score {
    let trial = run(channel, Sender::Link, interval, config);
    let Some(begin) = trial.begin else {
        return lost(channel, trial);
    };
    let references = References::run(channel);
    let end = begin + channel.length;
    let capacity = channel.deliverable_bits(end);
    let shares = Shares::new(channel, &references, &capacity);
    let header_share = header_share(channel.load.sample_bytes);
    let alone: Vec<f64> = capacity.iter().map(|bits| bits * header_share).collect();
    let of_step = |(step, bits): (usize, &f64)| bits * shares.at(STEP * step as u32) * header_share;
    let bits: Vec<f64> = capacity.iter().enumerate().map(of_step).collect();
    let settings = channel.forward.at(START);
    let ideal_link = |bits| Server {
        bits,
        load: channel.load,
        begin,
        // Jitter that keeps the order delays nearly every packet as much as the latest one.
        delay: settings.delay + settings.jitter,
    };
    let (ideal, possible) = ideal_link(&bits).serve(end);
    let (_, alone) = ideal_link(&alone).serve(end);
    let sample = channel.load.sample_bytes as f64;
    let arrived = trial.arrived.iter().filter(|(_, at)| *at <= end).count() as f64 * sample;
    let delivered = arrived / possible.max(sample);
    let millis = latencies(&trial, &ideal, references.queue(channel));
    let bytes = bytes_sent(&trial) / arrived.max(1.0);
    let mut factors = BTreeMap::from([
        (Factor::Delivered, delivered),
        (Factor::P50, millis[2] / millis[0]),
        (Factor::P95, millis[3] / millis[1]),
        (Factor::Bytes, 1.0 / (trial.kept * header_share) / bytes),
    ]);
    if let Some(others) = others(channel, &trial, &references, &shares, &capacity) {
        factors.insert(Factor::Others, others);
    }
    if let Some(recovery) = recovery(channel, &trial, &ideal, end) {
        factors.insert(Factor::Recovery, recovery);
    }
    factors
        .values_mut()
        .for_each(|factor| *factor = factor.clamp(LEAST_FACTOR, 1.0));
    Score {
        factors,
        delivered,
        of_capacity: arrived / alone.max(sample),
        millis,
        bytes,
        ideal,
        trial,
    }
}

/// The link was not connected.
fn lost(channel: &Channel, trial: Trial) -> Score {
    let recovery = |factor: &Factor| *factor != Factor::Recovery || !channel.changes.is_empty();
    let others = |factor: &Factor| *factor != Factor::Others;
    let factors = Factor::ALL.into_iter().filter(recovery).filter(others);
    Score {
        factors: factors.map(|factor| (factor, LEAST_FACTOR)).collect(),
        delivered: 0.0,
        of_capacity: 0.0,
        millis: [f64::INFINITY, f64::INFINITY, 0.0, 0.0],
        bytes: f64::INFINITY,
        ideal: Vec::new(),
        trial,
    }
}

/// The share of a packet that its headers leave.
fn header_share(sample_bytes: usize) -> f64 {
    let packets = sample_bytes.div_ceil(SHARD_BYTES);
    sample_bytes as f64 / (sample_bytes + packets * OVERHEAD_BYTES) as f64
}

/// IP bytes that the link sent, without those that are still in flight.
fn bytes_sent(trial: &Trial) -> f64 {
    let last = trial.snapshots.last().expect("the end is a snapshot");
    let in_flight = last.status.map_or(0, |status| status.path.in_flight_bytes);
    last.sent_bytes.saturating_sub(in_flight) as f64
}

fn latencies(trial: &Trial, ideal: &[Served], queue: Duration) -> [f64; 4] {
    let real = trial.arrived.iter();
    let real = real.map(|(number, at)| at.saturating_sub(trial.accepted[*number as usize]));
    let ideal = ideal
        .iter()
        .map(|served| served.arrived - served.accepted + queue);
    let (real, ideal) = (sorted_millis(real), sorted_millis(ideal));
    [
        percentile(&real, 0.5, f64::INFINITY),
        percentile(&real, 0.95, f64::INFINITY),
        percentile(&ideal, 0.5, 0.0),
        percentile(&ideal, 0.95, 0.0),
    ]
}

fn sorted_millis(of: impl Iterator<Item = Duration>) -> Vec<f64> {
    let mut millis: Vec<_> = of.map(|latency| latency.as_secs_f64() * 1e3).collect();
    millis.sort_by(f64::total_cmp);
    millis
}

/// A percentile of sorted values; `none` if there are none.
pub fn percentile(sorted: &[f64], share: f64, none: f64) -> f64 {
    let index = (sorted.len().saturating_sub(1)) as f64 * share;
    sorted.get(index.round() as usize).copied().unwrap_or(none)
}

/// The channel with a TCP flow in place of the link, for each kind that shares it.
struct References(BTreeMap<Tcp, Trial>);

impl References {
    fn run(channel: &Channel) -> Self {
        let kinds = channel.flows.iter().filter_map(|flow| Tcp::of(flow.kind));
        let of = |kind| {
            (
                kind,
                run(
                    channel,
                    Sender::Tcp(kind),
                    channel.length,
                    SessionConfig::default(),
                ),
            )
        };
        let kinds: std::collections::BTreeSet<_> = kinds.collect();
        Self(kinds.into_iter().map(of).collect())
    }

    /// The queue that the flows make, if they share one with the link.
    fn queue(&self, channel: &Channel) -> Duration {
        let settings = channel.forward.at(START);
        let shares = channel.flows.iter().any(is_tcp_beside);
        if !shares || settings.aqm.is_some_and(|aqm| aqm.fair) {
            return Duration::ZERO;
        }
        let queues = self
            .0
            .values()
            .map(|trial| trial.segment_delay.saturating_sub(settings.delay));
        queues.min().unwrap_or_default()
    }
}

fn is_tcp_beside(flow: &Flow) -> bool {
    !flow.is_reverse && Tcp::of(flow.kind).is_some()
}

/// The share of the capacity that the ideal link has, from a time on.
struct Shares {
    from: Vec<(Duration, f64)>,
    /// The max-min fair share of each flow, if the link takes no more than its load.
    fair: Vec<(Duration, Vec<f64>)>,
}

impl Shares {
    fn new(channel: &Channel, references: &References, capacity: &[f64]) -> Self {
        let starts = channel.flows.iter().map(|flow| flow.starts.max(START));
        let mut times: Vec<_> = starts.chain([START]).collect();
        times.sort_unstable();
        times.dedup();
        let mean = capacity.iter().sum::<f64>() / capacity.len() as f64 / STEP.as_secs_f64();
        let fair = |load: f64| {
            let of = |at: &Duration| (*at, fair_shares(channel, *at, mean, load));
            times.iter().map(of).collect::<Vec<_>>()
        };
        let demand = channel.load.bits_per_second() / header_share(channel.load.sample_bytes);
        let mut from = Vec::new();
        for (at, fair) in fair(f64::INFINITY) {
            let left = references
                .0
                .values()
                .map(|trial| left_at(channel, trial, at, capacity));
            let shares = channel
                .flows
                .iter()
                .any(|flow| flow.starts <= at && is_beside(channel, flow));
            let left = left.fold(0.0, f64::max);
            from.push((at, if shares { fair[0].max(left) } else { 1.0 }));
        }
        Self {
            from,
            fair: fair(demand / mean),
        }
    }

    fn at(&self, time: Duration) -> f64 {
        let index = self.from.partition_point(|(from, _)| *from <= time);
        self.from[index.saturating_sub(1)].1
    }
}

/// Whether a flow sends over the same air as the link.
fn is_beside(channel: &Channel, flow: &Flow) -> bool {
    !flow.is_reverse || channel.duplex == Duplex::Half
}

/// The max-min fair shares of the link, which asks for `load`, and of each flow.
fn fair_shares(channel: &Channel, at: Duration, capacity: f64, load: f64) -> Vec<f64> {
    let demand = |flow: &Flow| match flow.kind {
        _ if flow.starts > at || !is_beside(channel, flow) => 0.0,
        FlowKind::Own(load) => load.bits_per_second() / header_share(load.sample_bytes) / capacity,
        _ => f64::INFINITY,
    };
    let demands: Vec<_> = std::iter::once(load)
        .chain(channel.flows.iter().map(demand))
        .collect();
    max_min(&demands)
}

/// Throughput of the flow in place of the link from `at` until the next flow began, and the time in
/// which nothing was sent, as a share of the capacity.
fn left_at(channel: &Channel, trial: &Trial, at: Duration, capacity: &[f64]) -> f64 {
    let index = trial.snapshots.partition_point(|snapshot| snapshot.at < at);
    let [before, after] = [0, 1].map(|next| trial.snapshots.get(index + next));
    let (Some(before), Some(after)) = (before, after) else {
        return 0.0;
    };
    let bits: f64 = capacity[steps(before.at, after.at, capacity.len())]
        .iter()
        .sum();
    let got = |socket: usize| {
        8.0 * (after.arrived_bytes[socket] - before.arrived_bytes[socket]) as f64 / bits.max(1.0)
    };
    let beside = |socket: &usize| *socket == 0 || is_beside(channel, &channel.flows[*socket - 1]);
    let used: f64 = (0..=channel.flows.len()).filter(beside).map(got).sum();
    let hosts = if channel.duplex == Duplex::Half { 2 } else { 1 };
    let airtime = |host: usize| (after.airtime[host] - before.airtime[host]).as_secs_f64();
    let busy = (0..hosts).map(airtime).sum::<f64>() / (after.at - before.at).as_secs_f64();
    (got(0) + (1.0 - used).min(1.0 - busy).max(0.0)).min(1.0)
}

fn steps(from: Duration, to: Duration, most: usize) -> std::ops::Range<usize> {
    let step = |at: Duration| (at.div_duration_f64(STEP) as usize).min(most);
    step(from)..step(to)
}

fn others(
    channel: &Channel,
    trial: &Trial,
    references: &References,
    shares: &Shares,
    capacity: &[f64],
) -> Option<f64> {
    let got = |trial: &Trial, socket: usize| {
        let bytes =
            |snapshot: Option<&Snapshot>| snapshot.map_or(0, |one| one.payload_bytes[socket]);
        (bytes(trial.snapshots.last()) - bytes(trial.snapshots.first())) as f64
    };
    let end = trial.snapshots.last()?.at;
    let entitled = |number: usize| {
        let of = |(index, (at, fair)): (usize, &(Duration, Vec<f64>))| {
            let until = shares.fair.get(index + 1).map_or(end, |(at, _)| *at);
            let bits: f64 = capacity[steps(*at, until, capacity.len())].iter().sum();
            fair[number + 1] * bits / 8.0
        };
        shares.fair.iter().enumerate().map(of).sum::<f64>()
    };
    // (got, entitled to) by kind; the last kind is the link's own.
    let mut kinds: BTreeMap<Option<Tcp>, (f64, f64)> = BTreeMap::new();
    for (number, flow) in channel.flows.iter().enumerate() {
        let socket = number + 1;
        let tcp = Tcp::of(flow.kind);
        let most = match (tcp, flow.kind) {
            (Some(tcp), _) => got(&references.0[&tcp], socket),
            (None, FlowKind::Own(load)) => {
                let fair = entitled(number) * header_share(load.sample_bytes);
                let beside_tcp = references.0.values().map(|trial| got(trial, socket));
                beside_tcp.fold(fair, f64::min)
            }
            (None, _) => unreachable!("all other flows are TCP"),
        };
        let kind = kinds.entry(tcp).or_default();
        kind.0 += got(trial, socket);
        kind.1 += most;
    }
    let shares = kinds.values().filter(|(_, most)| *most > 0.0);
    let shares: Vec<f64> = shares.map(|(got, most)| (got / most).min(1.0)).collect();
    (!shares.is_empty()).then(|| shares.iter().sum::<f64>() / shares.len() as f64)
}

fn recovery(channel: &Channel, trial: &Trial, ideal: &[Served], end: Duration) -> Option<f64> {
    let load = channel.load;
    let rtt = 2 * channel.forward.at(START).delay;
    let ideal_rate = ideal.len() as f64 / channel.length.as_secs_f64();
    let samples = Duration::from_secs_f64(4.0 / ideal_rate.max(0.5).min(load.rate_hz));
    let window = WINDOW.max(2 * rtt).max(samples);
    let real: Vec<_> = trial.arrived.iter().map(|(_, at)| *at).collect();
    let ideal: Vec<_> = ideal.iter().map(|served| served.arrived).collect();
    let within = |times: &[Duration], from: Duration| {
        let index = |at: Duration| times.partition_point(|one| *one <= at);
        (index(from + window) - index(from)) as f64
    };
    let time = |change: &Duration| {
        let steps = (0..).map(|step| *change + WINDOW_STEP * step);
        let mut steps = steps.take_while(|at| *at + window <= end);
        let recovered = steps.find(|at| within(&real, *at) >= RECOVERED * within(&ideal, *at));
        recovered
            .unwrap_or(end)
            .saturating_sub(*change)
            .as_secs_f64()
    };
    let half = 0.5 + 4.0 * rtt.as_secs_f64();
    let in_time = channel
        .changes
        .iter()
        .filter(|change| **change + window < end);
    let factors: Vec<f64> = in_time.map(|change| half / (half + time(change))).collect();
    (!factors.is_empty()).then(|| factors.iter().sum::<f64>() / factors.len() as f64)
}
