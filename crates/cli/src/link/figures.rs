//! The reports of the benchmark, each second and at the end.

use std::{collections::BTreeMap, time::Duration};

use nervure_link::{
    session::SessionStatus,
    shell::{Link, Peer, SocketCounters},
};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::{failure::Failure, output};

/// Header of a sample: due time, number, and due time since the start of the run. 64 bits each,
/// little-endian; times in nanoseconds.
pub const HEADER_BYTES: usize = 24;

/// Which end of the link this is.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum End {
    Serve,
    Send,
}

/// Delays of samples, in milliseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Latency {
    pub samples: u64,
    pub mean_ms: f64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    pub max_ms: f64,
}

impl Latency {
    pub fn of(mut latencies: Vec<Duration>) -> Self {
        if latencies.is_empty() {
            return Self::default();
        }
        latencies.sort_unstable();
        let millis = |duration: Duration| duration.as_secs_f64() * 1e3;
        let last = latencies.len() - 1;
        // The nearest-rank method.
        let percentile = |share: f64| {
            millis(
                latencies
                    [((latencies.len() as f64 * share).ceil() as usize).clamp(1, last + 1) - 1],
            )
        };
        let mean = latencies.iter().copied().map(millis).sum::<f64>() / latencies.len() as f64;
        Self {
            samples: latencies.len() as u64,
            mean_ms: mean,
            p50_ms: percentile(0.5),
            p99_ms: percentile(0.99),
            max_ms: millis(latencies[last]),
        }
    }
}

/// One stream, over an interval or the whole run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StreamFigures {
    /// Samples that were due by the schedule (sending end).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offered: Option<u64>,
    /// Samples accepted by the link (sending end).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted: Option<u64>,
    /// Samples received, or confirmed (sending end).
    pub delivered: u64,
    pub delivered_bytes: u64,
    /// Lost samples by cause.
    pub lost: BTreeMap<&'static str, u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<Latency>,
}

/// Figures of the path and of this process.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct LinkFigures {
    pub rtt_ms: f64,
    pub queue_ms: f64,
    pub loss: f64,
    pub rate_mbit_s: f64,
    pub silent: bool,
    pub competing: bool,
    /// Bytes of IP packets sent, headers included.
    pub wire_bytes_sent: u64,
    pub wire_bytes_received: u64,
    pub packets_sent: u64,
    pub packets_received: u64,
    /// Symbols sent beyond one for each source shard.
    pub repair_symbols: u64,
    pub symbols: u64,
    /// Delivered bytes of samples, sent or received.
    pub payload_bytes: u64,
    /// Bytes copied between the application's memory and the packets, repair and decoding included.
    pub bytes_copied: u64,
    /// Seconds of processor time of this process, the benchmark's own filling and checking of
    /// samples included.
    pub cpu_s: f64,
    /// `cpu_s` per Gbit of delivered payload.
    pub cpu_s_per_gbit: f64,
    pub invalid_packets: u64,
}

/// A report: a line of JSON, or of text.
#[derive(Debug, Serialize)]
pub struct Report<'a> {
    /// `interval` or `summary`.
    pub kind: &'a str,
    pub end: End,
    /// Seconds since the start of the run, which is when the first sample was due.
    pub time_s: f64,
    /// Length of the reported period in seconds. For a summary: from the start of the run until the
    /// end of the schedule (sending end) or the last sample (receiving end).
    pub seconds: f64,
    /// Delivered payload.
    pub goodput_mbit_s: f64,
    pub streams: &'a BTreeMap<String, StreamFigures>,
    /// Totals since the start.
    pub link: LinkFigures,
}

/// Writes reports to stdout.
pub struct Reporter {
    pub json: bool,
    end: End,
    began: Duration,
    lines: u32,
    cpu_before: Duration,
}

impl Reporter {
    pub fn new(json: bool, end: End) -> Self {
        Self {
            json,
            end,
            began: monotonic(),
            lines: 0,
            cpu_before: cpu_time(),
        }
    }

    /// Sets the start of the run.
    pub fn set_began(&mut self, began: Duration) {
        self.began = began;
    }

    /// Writes a report of an interval or of the whole run: `kind` is `interval` or `summary`.
    pub fn report(
        &mut self,
        kind: &str,
        seconds: f64,
        streams: &BTreeMap<String, StreamFigures>,
        link: LinkFigures,
    ) -> Result<(), Failure> {
        let bytes: u64 = streams.values().map(|stream| stream.delivered_bytes).sum();
        let report = Report {
            kind,
            end: self.end,
            time_s: monotonic().saturating_sub(self.began).as_secs_f64(),
            seconds,
            goodput_mbit_s: bytes as f64 * 8e-6 / seconds.max(1e-9),
            streams,
            link,
        };
        if self.json {
            let line = serde_json::to_string(&report).map_err(|error| {
                Failure::internal("cannot serialize the figures").because(error)
            })?;
            return output::write(&(line + "\n"));
        }
        output::write(&self.human(&report))
    }

    fn human(&mut self, report: &Report<'_>) -> String {
        let mut text = String::new();
        if report.kind == "summary" {
            text.push_str("\ntotal\n");
            for (name, stream) in report.streams {
                text.push_str(&format!("  {name}: {}\n", describe(stream)));
            }
            text.push_str(&format!(
                "  processor time of this end: {:.2} s for each Gbit delivered; {:.2} bytes copied for each\n",
                report.link.cpu_s_per_gbit,
                report.link.bytes_copied as f64 / report.link.payload_bytes.max(1) as f64,
            ));
        }
        if self.lines.is_multiple_of(20) || report.kind == "summary" {
            text.push_str(
                "   time  delivered   goodput  p50 latency  p99 latency     rtt   queue   loss      rate   cpu\n",
            );
        }
        self.lines += 1;
        let delivered: u64 = report.streams.values().map(|stream| stream.delivered).sum();
        let worst = |figure: fn(&Latency) -> f64| {
            let latencies = report
                .streams
                .values()
                .filter_map(|stream| stream.latency.as_ref());
            latencies
                .filter(|latency| latency.samples > 0)
                .map(figure)
                .reduce(f64::max)
        };
        let millis =
            |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.1} ms"));
        let cpu = (report.link.cpu_s - self.cpu_before.as_secs_f64()) / report.seconds.max(1e-9);
        self.cpu_before = Duration::from_secs_f64(report.link.cpu_s);
        let cpu = if report.kind == "summary" {
            report.link.cpu_s / report.seconds.max(1e-9)
        } else {
            cpu
        };
        text.push_str(&format!(
            "{:>5.1} s {delivered:>10} {:>6.1} Mb/s {:>9} {:>12} {:>7.1} {:>7.1} {:>5.1}% {:>5.0} Mb/s {:>4.0}%\n",
            report.time_s,
            report.goodput_mbit_s,
            millis(worst(|latency| latency.p50_ms)),
            millis(worst(|latency| latency.p99_ms)),
            report.link.rtt_ms,
            report.link.queue_ms,
            report.link.loss * 100.0,
            report.link.rate_mbit_s,
            cpu * 100.0,
        ));
        if report.link.silent {
            text.push_str("        the other end is silent\n");
        }
        text
    }
}

fn describe(stream: &StreamFigures) -> String {
    let mut text = String::new();
    if let Some(offered) = stream.offered {
        text.push_str(&format!("{offered} due, "));
    }
    text.push_str(&format!("{} delivered", stream.delivered));
    for (cause, count) in stream.lost.iter().filter(|(_, count)| **count > 0) {
        text.push_str(&format!(", {count} {cause}"));
    }
    if let Some(latency) = stream.latency.filter(|latency| latency.samples > 0) {
        text.push_str(&format!(
            ", latency mean {:.1} ms, p50 {:.1}, p99 {:.1}, max {:.1}",
            latency.mean_ms, latency.p50_ms, latency.p99_ms, latency.max_ms
        ));
    }
    text
}

/// Figures of the path to the peer, if there is one, and of this process.
pub fn link_figures(link: &Link, peer: Option<&Peer>, end: End) -> LinkFigures {
    let header_bytes = if link.local_address().is_ipv4() {
        20 + 8
    } else {
        40 + 8
    };
    let socket: SocketCounters = link.socket_counters();
    let mut figures = LinkFigures {
        wire_bytes_sent: socket.bytes_sent + socket.packets_sent * header_bytes,
        wire_bytes_received: socket.bytes_received + socket.packets_received * header_bytes,
        packets_sent: socket.packets_sent,
        packets_received: socket.packets_received,
        cpu_s: cpu_time().as_secs_f64(),
        ..LinkFigures::default()
    };
    let carrier = link.carrier_counters();
    figures.bytes_copied = carrier.bytes_copied_in + carrier.bytes_copied_out;
    if let Some(SessionStatus {
        path,
        sent,
        received: taken,
        link: received,
        bytes_copied_out,
        ..
    }) = peer.and_then(Peer::status)
    {
        figures.rtt_ms = path.rtt.as_secs_f64() * 1e3;
        figures.queue_ms = path.queue_delay.as_secs_f64() * 1e3;
        figures.loss = path.loss;
        figures.rate_mbit_s = path.bytes_per_second * 8e-6;
        figures.silent = path.silent;
        figures.competing = path.competing;
        figures.symbols = sent.symbols;
        figures.repair_symbols = sent.repair_symbols;
        figures.payload_bytes = match end {
            End::Send => sent.delivered_bytes,
            End::Serve => taken.delivered_bytes,
        };
        figures.cpu_s_per_gbit = figures.cpu_s / (figures.payload_bytes.max(1) as f64 * 8e-9);
        figures.bytes_copied += bytes_copied_out + received.bytes_copied;
        figures.invalid_packets = received.invalid_packets;
    }
    figures
}

/// `CLOCK_MONOTONIC`, which all processes of a host share, whatever their namespaces.
pub fn monotonic() -> Duration {
    read_clock(ClockId::Monotonic)
}

/// Processor time of this process.
pub fn cpu_time() -> Duration {
    read_clock(ClockId::ProcessCPUTime)
}

fn read_clock(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}
