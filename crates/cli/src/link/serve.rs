//! `nervure link bench serve`.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufWriter, Write},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use nervure_link::{
    carrier::{DisconnectReason, PublicKey},
    receiver::ReceiveCounters,
    shell::{IncomingStream, Link, LinkEvent, Received},
};
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    flag,
};

use super::{
    arguments::ServeArguments,
    figures::{End, HEADER_BYTES, Latency, Reporter, StreamFigures, link_figures, monotonic},
};
use crate::failure::Failure;

/// A peer that closed its connection and has not reconnected within this time has ended.
const PEER_TIMEOUT: Duration = Duration::from_secs(3);
/// Interval between reports.
const INTERVAL: Duration = Duration::from_secs(1);
/// Longest sleep of the main loop.
const MAX_SLEEP: Duration = Duration::from_millis(20);

pub fn serve(arguments: &ServeArguments) -> Result<ExitCode, Failure> {
    let link = arguments
        .end
        .bind(arguments.listen, arguments.allow.clone())?;
    note!(
        "listening on {}, public key {}",
        link.local_address(),
        link.public_key()
    );
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        flag::register(signal, Arc::clone(&stop))
            .map_err(|error| Failure::internal("cannot watch for signals").because(error))?;
    }
    let receptions = arguments
        .receptions
        .as_deref()
        .map(File::create)
        .transpose();
    let receptions = receptions
        .map_err(|error| Failure::invalid("cannot write the file of --receptions").because(error))?
        .map(BufWriter::new);
    let mut run = Run {
        link,
        streams: BTreeMap::new(),
        peer: None,
        began: None,
        gone_since: None,
        receptions,
    };
    run.work(&stop, arguments)?;
    arguments.end.end_trace(&mut run.link)?;
    if let Some(mut file) = run.receptions {
        file.flush().map_err(|error| {
            Failure::internal("cannot write the file of --receptions").because(error)
        })?;
    }
    Ok(ExitCode::SUCCESS)
}

struct Run {
    link: Link,
    streams: BTreeMap<(PublicKey, u32), Sink>,
    /// The peer that connected first.
    peer: Option<PublicKey>,
    /// Start of the run at the sending end, from the first sample.
    began: Option<Duration>,
    /// When the first peer closed its connection, unless it has reconnected.
    gone_since: Option<Duration>,
    receptions: Option<BufWriter<File>>,
}

struct Sink {
    name: String,
    stream: IncomingStream,
    delivered: u64,
    delivered_bytes: u64,
    latencies: Vec<Duration>,
    /// Samples, bytes and latencies at the last report.
    reported: (u64, u64, usize),
    wrong: u64,
    counters: ReceiveCounters,
}

impl Run {
    fn work(&mut self, stop: &AtomicBool, arguments: &ServeArguments) -> Result<(), Failure> {
        let mut reporter = Reporter::new(arguments.end.json, End::Serve);
        let listens = monotonic();
        let end = arguments.end.duration.map(|duration| listens + duration);
        let (mut last_report, mut next_report) = (listens, listens + INTERVAL);
        let mut last = listens;
        while !stop.load(Ordering::Relaxed) {
            self.process_events();
            if let Some(received) = self.link.receive_any(MAX_SLEEP) {
                last = monotonic();
                if let Some(began) = self.receive(&received, last) {
                    reporter.set_began(began);
                    (last_report, next_report) = (began, began + INTERVAL);
                }
                self.write_reception(&received, last)?;
            }
            let now = monotonic();
            if now >= next_report {
                let streams = self.interval();
                if self.began.is_some() {
                    let peer = self.peer.map(|peer| self.link.peer(peer));
                    let figures = link_figures(&self.link, peer.as_ref(), End::Serve);
                    reporter.report(
                        "interval",
                        (now - last_report).as_secs_f64(),
                        &streams,
                        figures,
                    )?;
                }
                (last_report, next_report) = (now, next_report + INTERVAL);
            }
            if let Some(failure) = self.link.failure() {
                return Err(Failure::internal(format!("the link has ended: {failure}")));
            }
            if end.is_some_and(|end| now >= end) || arguments.once && self.is_over() {
                break;
            }
        }
        self.process_events();
        let peer = self.peer.map(|peer| self.link.peer(peer));
        let seconds = self
            .began
            .map_or(0.0, |began| last.saturating_sub(began).as_secs_f64());
        let streams: BTreeMap<_, _> = self
            .streams
            .values()
            .map(|sink| (sink.name.clone(), sink.summary()))
            .collect();
        reporter.report(
            "summary",
            seconds,
            &streams,
            link_figures(&self.link, peer.as_ref(), End::Serve),
        )
    }

    fn process_events(&mut self) {
        while let Some(event) = self.link.next_event(Duration::ZERO) {
            match event {
                LinkEvent::Connected { peer, address } => {
                    note!("connected: {peer} at {address}");
                    self.peer.get_or_insert(peer);
                    self.gone_since = self.gone_since.filter(|_| self.peer != Some(peer));
                }
                LinkEvent::Disconnected { peer, why } => {
                    note!("the connection is lost: {why}");
                    if why == DisconnectReason::ClosedByPeer && self.peer == Some(peer) {
                        self.gone_since = Some(monotonic());
                    }
                }
                LinkEvent::Opened { peer, name, stream } => {
                    let sink = Sink {
                        name,
                        delivered: 0,
                        delivered_bytes: 0,
                        latencies: Vec::new(),
                        reported: (0, 0, 0),
                        wrong: 0,
                        counters: ReceiveCounters::default(),
                        stream,
                    };
                    self.streams.insert((peer, sink.stream.id()), sink);
                }
                LinkEvent::PeerRestarted { lost, .. } => {
                    note!("the other end restarted; {lost} samples were in flight");
                }
                LinkEvent::Refused {
                    peer, address, why, ..
                } => {
                    let name =
                        peer.map_or_else(|| "an unknown peer".to_owned(), |peer| peer.to_string());
                    note!("refused {name} at {address}: {why}");
                }
                LinkEvent::Forgotten { .. }
                | LinkEvent::PeerLost { .. }
                | LinkEvent::Requested { .. }
                | LinkEvent::QosChanged { .. }
                | LinkEvent::StreamRefused { .. } => {}
            }
        }
    }

    /// Processes a sample. Returns the start of the run if this is its first sample.
    fn receive(&mut self, received: &Received, now: Duration) -> Option<Duration> {
        if !self.streams.contains_key(&(received.peer, received.stream)) {
            self.process_events();
        }
        if let Some(sink) = self.streams.get_mut(&(received.peer, received.stream)) {
            sink.receive(&received.sample.payload, now);
        }
        if self.began.is_some() {
            return None;
        }
        // Includes this sample's latency, as the end of the run includes the last one's.
        let offset = Duration::from_nanos(word(&received.sample.payload, 2)?);
        self.began = Some(now.saturating_sub(offset));
        self.began
    }

    /// Writes a line about a sample to the file of `--receptions`.
    fn write_reception(&mut self, received: &Received, now: Duration) -> Result<(), Failure> {
        let Some(file) = &mut self.receptions else {
            return Ok(());
        };
        let Some(sink) = self.streams.get(&(received.peer, received.stream)) else {
            return Ok(());
        };
        let payload = &received.sample.payload;
        let (Some(due), Some(number)) = (word(payload, 0), word(payload, 1)) else {
            return Ok(());
        };
        writeln!(file, "{} {number} {due} {}", sink.name, now.as_nanos()).map_err(|error| {
            Failure::internal("cannot write the file of --receptions").because(error)
        })
    }

    fn interval(&mut self) -> BTreeMap<String, StreamFigures> {
        self.streams
            .values_mut()
            .map(|sink| (sink.name.clone(), sink.interval()))
            .collect()
    }

    /// Whether the first peer has ended, or all streams have.
    fn is_over(&mut self) -> bool {
        self.gone_since
            .is_some_and(|since| monotonic() - since > PEER_TIMEOUT)
            || !self.streams.is_empty() && self.streams.values_mut().all(Sink::has_ended)
    }
}

/// A word of a sample's header.
fn word(payload: &[u8], place: usize) -> Option<u64> {
    payload
        .get(place * 8..)?
        .first_chunk()
        .map(|word| u64::from_le_bytes(*word))
}

impl Sink {
    fn receive(&mut self, payload: &[u8], now: Duration) {
        let (Some(due), Some(number), Some(filling)) = (
            word(payload, 0),
            word(payload, 1),
            payload.get(HEADER_BYTES..),
        ) else {
            self.wrong += 1;
            return;
        };
        let due = Duration::from_nanos(due);
        let filled = filling
            .first()
            .is_none_or(|first| u64::from(*first) == number % 251)
            && filling.get(1..).unwrap_or_default() == &filling[..filling.len().saturating_sub(1)];
        self.wrong += u64::from(!filled);
        self.delivered += 1;
        self.delivered_bytes += payload.len() as u64;
        self.latencies.push(now.saturating_sub(due));
    }

    fn has_ended(&mut self) -> bool {
        match self.stream.counters() {
            Some(counters) => {
                self.counters = counters;
                false
            }
            None => true,
        }
    }

    fn interval(&mut self) -> StreamFigures {
        let (delivered, bytes, latencies) = self.reported;
        self.reported = (self.delivered, self.delivered_bytes, self.latencies.len());
        StreamFigures {
            delivered: self.delivered - delivered,
            delivered_bytes: self.delivered_bytes - bytes,
            latency: Some(Latency::of(self.latencies[latencies..].to_vec())),
            ..StreamFigures::default()
        }
    }

    fn summary(&self) -> StreamFigures {
        let counters = self.stream.counters().unwrap_or(self.counters);
        let lost = [
            ("overwritten", counters.overwritten),
            ("superseded", counters.superseded),
            ("expired", counters.expired),
            ("incomplete", counters.incomplete),
            ("altered", self.wrong),
        ];
        StreamFigures {
            delivered: self.delivered,
            delivered_bytes: self.delivered_bytes,
            lost: lost.into_iter().collect(),
            latency: Some(Latency::of(self.latencies.clone())),
            ..StreamFigures::default()
        }
    }
}
