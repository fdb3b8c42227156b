//! `nervure link bench send`.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use nervure_link::{
    carrier::DisconnectReason,
    sender::{SendCounters, SendError},
    shell::{Link, LinkEvent, OutgoingStream, Peer, StreamError},
};
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    flag,
};

use super::{
    arguments::{SendArguments, StreamSpec},
    figures::{End, HEADER_BYTES, Reporter, StreamFigures, link_figures, monotonic},
};
use crate::failure::{self, Failure};

/// Interval between reports.
const INTERVAL: Duration = Duration::from_secs(1);
/// Longest sleep of the main loop.
const MAX_SLEEP: Duration = Duration::from_millis(50);
/// Time limit for sending the end of the streams to the other end.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Delay before the next try on a full `keep_all` stream.
const RETRY_WHEN_FULL: Duration = Duration::from_micros(500);

pub fn send(arguments: &SendArguments) -> Result<ExitCode, Failure> {
    let local: SocketAddr = match arguments.connect {
        SocketAddr::V4(to) if to.ip().is_loopback() => (Ipv4Addr::LOCALHOST, 0).into(),
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let mut link = arguments.end.bind(local, Vec::new())?;
    let peer = link
        .connect(arguments.connect, arguments.peer)
        .map_err(|error| Failure::invalid(error.to_string()))?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        flag::register(signal, Arc::clone(&stop))
            .map_err(|error| Failure::internal("cannot watch for signals").because(error))?;
    }
    let mut run = Run::open(&peer, &arguments.streams)?;
    run.wait_for_peer(&link, &stop, arguments)?;
    let code = run.work(&link, &peer, &stop, arguments)?;
    drop(run);
    // Sends the end of the streams.
    peer.flush(CLOSE_TIMEOUT);
    arguments.end.end_trace(&mut link)?;
    Ok(code)
}

/// A stream and its schedule.
struct Source {
    spec: StreamSpec,
    stream: OutgoingStream,
    name: String,
    sent: u64,
    reported: SendCounters,
    reported_offered: u64,
}

struct Run {
    sources: Vec<Source>,
    began: Duration,
    /// True after the first connection.
    connected: bool,
}

impl Run {
    fn open(peer: &Peer, specs: &[StreamSpec]) -> Result<Self, Failure> {
        let all = specs
            .iter()
            .flat_map(|spec| std::iter::repeat_n(spec, spec.copies as usize));
        let sources = all
            .enumerate()
            .map(|(number, spec)| {
                let name = format!("bench/{number}");
                let stream = peer
                    .open(&name, spec.qos)
                    .map_err(|error| Failure::internal(error.to_string()))?;
                let (reported, reported_offered) = (SendCounters::default(), 0);
                Ok(Source {
                    spec: spec.clone(),
                    stream,
                    name,
                    sent: 0,
                    reported,
                    reported_offered,
                })
            })
            .collect::<Result<_, Failure>>()?;
        Ok(Self {
            sources,
            began: Duration::ZERO,
            connected: false,
        })
    }

    /// Waits until the other end has opened every stream: samples are due from then on.
    fn wait_for_peer(
        &mut self,
        link: &Link,
        stop: &AtomicBool,
        arguments: &SendArguments,
    ) -> Result<(), Failure> {
        let mut reported = false;
        let began = monotonic();
        let mut unopened = self.sources.iter().peekable();
        while let Some(source) = unopened.peek()
            && !stop.load(Ordering::Relaxed)
        {
            let opened = source.stream.wait_opened(Duration::from_millis(100));
            // A refused end gets the reason as an event, and has no streams.
            process_events(link, &mut self.connected)?;
            if opened.map_err(|error| Failure::internal(format!("{}: {error}", source.name)))? {
                unopened.next();
                continue;
            }
            if !reported && monotonic() - began > Duration::from_secs(2) {
                reported = true;
                note!(
                    "waiting for {}: {}",
                    arguments.connect,
                    missing_answer(self.connected)
                );
            }
            let waited = monotonic() - began;
            if link.failure().is_some() {
                break;
            }
            if arguments
                .end
                .duration
                .is_some_and(|duration| waited > duration)
            {
                return Err(Failure::internal(format!(
                    "{}: {}",
                    arguments.connect,
                    missing_answer(self.connected)
                ))
                .hint(
                    "check the address, and that a firewall does not block UDP between the hosts",
                ));
            }
        }
        Ok(())
    }

    fn work(
        &mut self,
        link: &Link,
        peer: &Peer,
        stop: &AtomicBool,
        arguments: &SendArguments,
    ) -> Result<ExitCode, Failure> {
        self.began = monotonic();
        let mut reporter = Reporter::new(arguments.end.json, End::Send);
        reporter.set_began(self.began);
        let end = arguments.end.duration.map(|duration| self.began + duration);
        let mut due: BinaryHeap<Reverse<(Duration, usize)>> = (0..self.sources.len())
            .map(|number| Reverse((self.began, number)))
            .collect();
        let mut next_report = self.began + INTERVAL;
        let mut last_report = self.began;
        while !stop.load(Ordering::Relaxed) {
            let now = monotonic();
            if end.is_some_and(|end| now >= end) || due.is_empty() || link.failure().is_some() {
                break;
            }
            if now >= next_report {
                reporter.report(
                    "interval",
                    (now - last_report).as_secs_f64(),
                    &self.interval(now),
                    link_figures(link, Some(peer), End::Send),
                )?;
                (last_report, next_report) = (now, next_report + INTERVAL);
            }
            process_events(link, &mut self.connected)?;
            let Some(Reverse((at, number))) = due.peek().copied() else {
                break;
            };
            if at > now {
                std::thread::sleep((at - now).min(next_report - now).min(MAX_SLEEP));
                continue;
            }
            due.pop();
            if let Some(next) = self.sources[number].send_due(now, self.began)? {
                due.push(Reverse((next, number)));
            }
        }
        let produced = monotonic();
        for source in &self.sources {
            let left = (produced + arguments.drain).saturating_sub(monotonic());
            source.stream.flush(left);
        }
        process_events(link, &mut self.connected)?;
        let seconds = (produced - self.began).as_secs_f64();
        reporter.report(
            "summary",
            seconds,
            &self.summary(produced, end),
            link_figures(link, Some(peer), End::Send),
        )?;
        if let Some(failure) = link.failure() {
            return Err(Failure::internal(format!("the link has ended: {failure}")));
        }
        let lossless = self
            .sources
            .iter()
            .filter(|source| source.spec.qos.delivery.keeps_all());
        let lost = lossless
            .filter_map(|source| source.stream.counters())
            .any(|c| c.delivered < c.accepted);
        Ok(if lost {
            ExitCode::from(failure::IMPERFECT)
        } else {
            ExitCode::SUCCESS
        })
    }

    fn interval(&mut self, now: Duration) -> BTreeMap<String, StreamFigures> {
        let began = self.began;
        let figures = self.sources.iter_mut().map(|source| {
            let counters = source.stream.counters().unwrap_or(source.reported);
            let offered = source.offered(now - began);
            let figures = figures(
                &counters,
                &source.reported,
                offered - source.reported_offered,
            );
            (source.reported, source.reported_offered) = (counters, offered);
            (source.name.clone(), figures)
        });
        figures.collect()
    }

    fn summary(
        &self,
        produced: Duration,
        end: Option<Duration>,
    ) -> BTreeMap<String, StreamFigures> {
        let until = end.unwrap_or(produced).min(produced);
        let figures = self.sources.iter().map(|source| {
            let counters = source.stream.counters().unwrap_or(source.reported);
            let mut figures = figures(
                &counters,
                &SendCounters::default(),
                source.offered(until - self.began),
            );
            figures.lost.insert("under way", counters.held);
            (source.name.clone(), figures)
        });
        figures.collect()
    }
}

impl Source {
    /// Number of samples that are due within a time.
    fn offered(&self, elapsed: Duration) -> u64 {
        let due = (elapsed.as_secs_f64() * self.spec.rate_hz - 1e-6).ceil() as u64;
        self.spec.count.map_or(due, |count| due.min(count))
    }

    fn due(&self, began: Duration) -> Duration {
        began + Duration::from_secs_f64(self.sent as f64 / self.spec.rate_hz)
    }

    /// Sends the sample that is due. Returns the time of the next one, if any.
    fn send_due(&mut self, now: Duration, began: Duration) -> Result<Option<Duration>, Failure> {
        match self.stream.try_send(sample(
            began,
            self.due(began),
            self.sent,
            self.spec.sample_bytes,
        )) {
            Ok(()) => self.sent += 1,
            Err(StreamError::Send(SendError::Full { .. })) => {
                return Ok(Some(now + RETRY_WHEN_FULL));
            }
            Err(error) => return Err(Failure::internal(format!("{}: {error}", self.name))),
        }
        let more = self.spec.count.is_none_or(|count| self.sent < count);
        Ok(more.then(|| self.due(began)))
    }
}

fn process_events(link: &Link, connected: &mut bool) -> Result<(), Failure> {
    while let Some(event) = link.next_event(Duration::ZERO) {
        match event {
            LinkEvent::Disconnected { why, .. }
                if !*connected || matches!(why, DisconnectReason::Refused(_)) =>
            {
                return Err(refused(link, &why));
            }
            LinkEvent::Disconnected { why, .. } => note!("the connection is lost: {why}"),
            LinkEvent::Connected { address, .. } if *connected => {
                note!("connected to {address} again")
            }
            LinkEvent::Connected { .. } => *connected = true,
            LinkEvent::PeerLost { unconfirmed, .. } => {
                note!("the other end restarted; {unconfirmed} samples were in flight");
            }
            _ => {}
        }
    }
    Ok(())
}

/// Describes the state of a connection without an answer from the other end.
fn missing_answer(connected: bool) -> &'static str {
    if connected {
        "connected, waiting for the streams to open"
    } else {
        "no answer yet"
    }
}

fn refused(link: &Link, why: &DisconnectReason) -> Failure {
    let why = why.to_string();
    let why = why.lines().next().unwrap_or_default();
    Failure::internal(format!("not connected: {why}")).hint(format!(
        "run `nervure link bench serve --allow {}` at the other end, and pass its public key to `--peer`",
        link.public_key()
    ))
}

fn figures(now: &SendCounters, before: &SendCounters, offered: u64) -> StreamFigures {
    let lost = [
        ("overwritten", now.overwritten - before.overwritten),
        ("expired", now.expired - before.expired),
        ("superseded", now.superseded - before.superseded),
        ("incomplete", now.incomplete - before.incomplete),
        ("refused", now.refused - before.refused),
        ("unconfirmed", now.unconfirmed - before.unconfirmed),
    ];
    StreamFigures {
        offered: Some(offered),
        accepted: Some(now.accepted - before.accepted),
        delivered: now.delivered - before.delivered,
        delivered_bytes: now.delivered_bytes - before.delivered_bytes,
        lost: lost.into_iter().collect(),
        latency: None,
    }
}

/// A header, filled up with a byte that depends on the sample's number.
fn sample(began: Duration, due: Duration, number: u64, bytes: usize) -> Bytes {
    let mut sample = Vec::with_capacity(bytes.max(HEADER_BYTES));
    for word in [
        due.as_nanos() as u64,
        number,
        (due - began).as_nanos() as u64,
    ] {
        sample.extend_from_slice(&word.to_le_bytes());
    }
    sample.resize(bytes.max(HEADER_BYTES), (number % 251) as u8);
    sample.into()
}
