//! The command line of `nervure link`.

use std::{
    fs::File,
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use clap::{Args, Subcommand};
use nervure_link::{
    carrier::{KeyPair, PublicKey},
    qos::{Delivery, Qos, TrafficClass},
    shell::{Link, LinkConfig, LinkError, TraceSink},
};

use crate::{failure::Failure, option_values::parse_duration};

#[derive(Debug, Subcommand)]
pub enum LinkCommand {
    /// Generate the key of this host if it does not exist, and print its public half.
    Key {
        /// The file of the key.
        file: PathBuf,
    },
    /// Measure a link between two hosts.
    ///
    /// Latency is the time from when a sample was due until it was received. Both ends must read
    /// the same clock for it: run them on one host, in network namespaces. Between hosts it
    /// includes the offset of their clocks.
    #[command(subcommand)]
    Bench(BenchCommand),
}

#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Receive samples, and report rates, latencies and losses.
    Serve(ServeArguments),
    /// Send samples on a fixed schedule, and report their delivery.
    Send(SendArguments),
}

#[derive(Debug, Args)]
pub struct EndArguments {
    /// The file of this host's key, which is generated if it does not exist.
    #[arg(long, value_name = "FILE")]
    pub key: PathBuf,
    /// Write JSON to stdout, one object per second and one at the end.
    #[arg(long)]
    pub json: bool,
    /// Write a trace of the link's state and decisions, one JSON object per line.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// End after this time, such as `10s`.
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub duration: Option<Duration>,
}

impl EndArguments {
    /// Binds this end of the link, with this host's key.
    pub fn bind(&self, address: SocketAddr, allow: Vec<PublicKey>) -> Result<Link, Failure> {
        let trace = match &self.trace {
            Some(file) => Some(TraceSink::new(
                File::create(file).map_err(|error| self.trace_failure(&error))?,
            )),
            None => None,
        };
        let config = LinkConfig {
            allow,
            trace,
            ..LinkConfig::new(address, load_key(&self.key)?)
        };
        Link::bind(config).map_err(|error| match &error {
            LinkError::Bind { .. } => Failure::invalid(error.to_string())
                .hint("the address must be one of this host (or 0.0.0.0), and its port free"),
            _ => Failure::internal(error.to_string()),
        })
    }

    /// Waits until the trace is written, if there is one.
    pub fn end_trace(&self, link: &mut Link) -> Result<(), Failure> {
        link.end_trace().map_err(|error| self.trace_failure(&error))
    }

    fn trace_failure(&self, error: &io::Error) -> Failure {
        let file = self.trace.as_deref().unwrap_or(Path::new(""));
        Failure::invalid(format!(
            "cannot write the trace to {}: {error}",
            file.display()
        ))
        .hint("--trace takes a file in a folder that exists and has room")
    }
}

/// Loads the key of this host, or generates it.
pub fn load_key(file: &Path) -> Result<KeyPair, Failure> {
    KeyPair::load_or_generate(file).map_err(|error| {
        let text = error.to_string();
        match text.split_once("\nhint: ") {
            Some((text, hint)) => Failure::invalid(text).hint(hint),
            None => Failure::invalid(text),
        }
    })
}

#[derive(Debug, Args)]
pub struct ServeArguments {
    /// Listen on this address, such as `10.0.0.2:7777`.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// Allow the host with this public key (see `nervure link key`). May be given several times.
    #[arg(long, required = true, value_name = "PUBLIC-KEY")]
    pub allow: Vec<PublicKey>,
    /// End when all streams of the first peer have ended.
    #[arg(long)]
    pub once: bool,
    /// Write a line per sample: stream, number, due and receive time (ns of CLOCK_MONOTONIC).
    #[arg(long, value_name = "FILE")]
    pub receptions: Option<PathBuf>,
    #[command(flatten)]
    pub end: EndArguments,
}

#[derive(Debug, Args)]
pub struct SendArguments {
    /// Connect to this address.
    #[arg(long, value_name = "ADDRESS")]
    pub connect: SocketAddr,
    /// The other end's public key.
    #[arg(long, value_name = "PUBLIC-KEY")]
    pub peer: PublicKey,
    /// Send a stream, such as `size=512KiB,rate_hz=30,qos=keep_last:1`. May be given several times.
    ///
    /// Keys: size (such as 64kB or 512KiB, or bytes), rate_hz, qos (keep_all:N, keep_last:N,
    /// best_effort:N, latest), class (control, default, bulk), lifespan, deadline (such as 200ms),
    /// count (samples), copies (number of equal streams).
    #[arg(
        long = "stream",
        value_name = "STREAM",
        default_value = "size=512KiB,rate_hz=30,qos=keep_last:1"
    )]
    pub streams: Vec<StreamSpec>,
    /// Wait this long at the end for samples that are still in flight.
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse_duration)]
    pub drain: Duration,
    #[command(flatten)]
    pub end: EndArguments,
}

/// The samples and the QoS of a stream of the benchmark.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamSpec {
    pub sample_bytes: usize,
    pub rate_hz: f64,
    pub qos: Qos,
    pub count: Option<u64>,
    pub copies: u32,
}

impl FromStr for StreamSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut spec = Self {
            sample_bytes: 512 << 10,
            rate_hz: 30.0,
            qos: Qos::new(Delivery::keep_last(1)),
            count: None,
            copies: 1,
        };
        for part in text.split(',') {
            let (key, value) = part
                .split_once('=')
                .ok_or_else(|| format!("expected key=value, got `{part}`"))?;
            let wrong = |expected: &str| format!("{key}: expected {expected}, got `{value}`");
            match key {
                "size" => {
                    spec.sample_bytes =
                        parse_bytes(value).ok_or_else(|| wrong("a size such as 512KiB"))?
                }
                "rate_hz" => {
                    let rate = value
                        .parse::<f64>()
                        .ok()
                        .filter(|rate| *rate > 0.0 && *rate <= 1e5);
                    spec.rate_hz = rate.ok_or_else(|| wrong("samples a second, up to 100000"))?;
                }
                "qos" => {
                    spec.qos.delivery = parse_delivery(value)
                        .ok_or_else(|| wrong("keep_all:N, keep_last:N, best_effort:N or latest"))?;
                }
                "class" => {
                    spec.qos.traffic_class = match value {
                        "control" => TrafficClass::Control,
                        "default" => TrafficClass::Default,
                        "bulk" => TrafficClass::Bulk,
                        _ => return Err(wrong("control, default or bulk")),
                    }
                }
                "lifespan" => spec.qos.lifespan = Some(parse_duration(value)?),
                "deadline" => spec.qos.deadline = Some(parse_duration(value)?),
                "count" => {
                    spec.count = Some(value.parse().map_err(|_| wrong("a number of samples"))?)
                }
                "copies" => {
                    let copies = value
                        .parse()
                        .ok()
                        .filter(|copies| (1..=10_000).contains(copies));
                    spec.copies = copies.ok_or_else(|| wrong("1 to 10000"))?;
                }
                _ => {
                    return Err(format!(
                        "unknown key `{key}`, expected size, rate_hz, qos, class, lifespan, deadline, count or copies"
                    ));
                }
            }
        }
        Ok(spec)
    }
}

fn parse_delivery(text: &str) -> Option<Delivery> {
    let (kind, depth) = match text.split_once(':') {
        Some((kind, depth)) => (kind, depth.parse().ok().filter(|depth| *depth > 0)?),
        None => (text, 1),
    };
    Some(match kind {
        "keep_all" => Delivery::keep_all(depth),
        "keep_last" => Delivery::keep_last(depth),
        "best_effort" => Delivery::best_effort(depth),
        "latest" => Delivery::Latest,
        _ => return None,
    })
}

/// Parses a size with its unit, as in a dataflow file, or a bare number of bytes.
fn parse_bytes(text: &str) -> Option<usize> {
    let bytes = text
        .parse()
        .ok()
        .or_else(|| nervure_dataflow::parse_size(text).ok())?;
    usize::try_from(bytes)
        .ok()
        .filter(|bytes| *bytes <= nervure_link::coding::geometry::SAMPLE_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream() {
        let text =
            "size=64KB,rate_hz=12.5,qos=keep_all:8,class=bulk,lifespan=250ms,count=7,copies=3";
        let spec: StreamSpec = text.parse().unwrap();
        assert_eq!(
            (spec.sample_bytes, spec.rate_hz, spec.count, spec.copies),
            (64_000, 12.5, Some(7), 3)
        );
        assert_eq!(spec.qos.delivery, Delivery::keep_all(8));
        assert_eq!(spec.qos.traffic_class, TrafficClass::Bulk);
        assert_eq!(spec.qos.lifespan, Some(Duration::from_millis(250)));
        for (size, bytes) in [("512KiB", 512 << 10), ("1.5MB", 1_500_000), ("1000", 1000)] {
            assert_eq!(
                format!("size={size}")
                    .parse::<StreamSpec>()
                    .unwrap()
                    .sample_bytes,
                bytes,
                "{size}"
            );
        }
    }

    #[test]
    fn errors_in_a_stream_name_the_key_and_the_expected_value() {
        for (text, expected) in [
            ("size", "expected key=value, got `size`"),
            (
                "size=5GB",
                "size: expected a size such as 512KiB, got `5GB`",
            ),
            ("rate_hz=0", "rate_hz: expected samples a second"),
            ("qos=keep_all:0", "qos: expected keep_all:N"),
            ("depth=3", "unknown key `depth`, expected size, rate_hz"),
        ] {
            let error = text.parse::<StreamSpec>().unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
