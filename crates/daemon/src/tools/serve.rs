//! Serves the commands of other machines.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

use bytes::Bytes;
use nervure_link::sender::SendError;
use nervure_link::shell::{IncomingStream, OutgoingStream, StreamError};
use nervure_node::binding::SequenceGaps;
use nervure_node::meter::Meter;
use nervure_node::running::{self, Connection, ConnectionError};
use nervure_node::{Event, Observer, monotonic_nanos, remote};
use nervure_protocol::daemon_to_daemon::{Answer, Ask, Frame, LogFilter, Request, SampleInfo};
use nervure_protocol::keeper_to_cli::{Message, Refused};
use nervure_protocol::report::{LogRecord, Report};

use super::Host;
use super::dataflows::Dataflows;
use super::pages::Originals;
use super::permission::{self, Asked, Asker};
use crate::bridge::{Bridge, Request as Arrived};
use crate::threads::{Threads, spawn};

/// The most requests of other machines at a time.
const MAX_SERVED: usize = 64;

/// The interval of signs of life, and of counters: two readings a second, as on one host.
const INTERVAL: Duration = Duration::from_millis(500);

/// How long a command may be silent: five of its signs of life.
const SILENCE: Duration = Duration::from_secs(10);

/// The queue of an observer whose figures are wanted.
const MEASURE_DEPTH: u32 = 4096;

/// Bytes of log records in a message, and in an answer at most. Older ones are left out.
const RECORDS_BYTES: usize = 100_000;
const MAX_LOG_BYTES: usize = 16 << 20;

/// Serves requests of other machines.
pub(crate) struct Served {
    /// The bridge.
    pub bridge: Arc<Bridge>,
    /// The dataflows of this machine.
    pub dataflows: Dataflows,
    /// The command that the daemon is part of.
    pub host: Arc<dyn Host>,
}

/// A request is over: its command or its machine is gone.
#[derive(Clone, Copy, Debug)]
struct Over;

impl Served {
    /// Serves all requests, each in threads of its own.
    pub fn serve_all(self, arrived: Receiver<Arrived>) -> std::io::Result<()> {
        let (served, threads) = (Arc::new(self), Threads::new("nervure-served", MAX_SERVED));
        spawn("nervure-serve", move || {
            for request in arrived {
                let served = Arc::clone(&served);
                if let Err(error) = threads.start(move || served.serve(request)) {
                    tracing::warn!("a command of another machine is not served: {error}");
                }
            }
        })
    }

    fn serve(&self, arrived: Arrived) {
        let Some((machine, role)) = self.bridge.machine_of(arrived.peer) else {
            return;
        };
        let asker = Asker { machine, role };
        let first = arrived.asks.receive(SILENCE);
        let first = first.and_then(|it| nervure_protocol::decode::<Ask>(&it.payload).ok());
        let Some(Ask::Request { request }) = first else {
            return;
        };
        let is_bulk = matches!(request, Request::Observe { .. } | Request::Logs { .. });
        let Some(stream) = self.bridge.open_answers(arrived.peer, &arrived.id, is_bulk) else {
            return;
        };
        let answers = Answers {
            stream,
            is_over: AtomicBool::new(false),
        };
        let result = permission::check(&asker, Asked::Request(&request))
            .and_then(|()| self.answer(&asker, request, &answers, &arrived.asks));
        if let Err(refused) = result {
            let _ = answers.send(&Frame::Answer(Answer::Refused(refused)));
        }
    }

    fn answer(
        &self,
        asker: &Asker,
        request: Request,
        answers: &Answers,
        asks: &IncomingStream,
    ) -> Result<(), Refused> {
        match request {
            Request::List => {
                for one in self.dataflows.list() {
                    let _ = answers.send(&Frame::Answer(Answer::Dataflow(one)));
                }
                let _ = answers.send(&Frame::Answer(Answer::Done));
                Ok(())
            }
            Request::Reach {
                keeper,
                program,
                usages,
            } => {
                let connection = open(keeper, &program)?;
                self.reach(asker, connection, usages, answers, asks)
            }
            Request::Observe {
                keeper,
                program,
                topics,
            } => {
                let observer = observe(keeper, &program, &topics, 1)?;
                with_asks(answers, asks, |credit| {
                    send_samples(observer, &topics, answers, credit)
                })
            }
            Request::Measure {
                keeper,
                program,
                topics,
                interval_nanos,
            } => {
                let mut observer = observe(keeper, &program, &topics, MEASURE_DEPTH)?;
                if program == "delay" {
                    observer.set_patience(None);
                }
                let interval = Duration::from_nanos(interval_nanos)
                    .clamp(Duration::from_millis(100), Duration::from_secs(3600));
                with_asks(answers, asks, |_| {
                    measure(observer, &topics, interval, answers)
                })
            }
            Request::Logs { keeper, filter } => {
                let folder = open(keeper, "logs")?.welcome().log_folder.clone();
                with_asks(answers, asks, |_| self.logs(&folder, &filter, answers))?
            }
        }
    }

    /// Makes the command a client of the keeper.
    fn reach(
        &self,
        asker: &Asker,
        mut connection: Connection,
        usages: bool,
        answers: &Answers,
        asks: &IncomingStream,
    ) -> Result<(), Refused> {
        let failed = |error: &dyn std::fmt::Display| Refused::new(error.to_string(), None);
        let to_keeper = connection.sender().map_err(|error| failed(&error))?;
        let welcome = connection.welcome().clone();
        if answers
            .send(&Frame::Answer(Answer::Reached(welcome)))
            .is_err()
        {
            return Ok(());
        }
        std::thread::scope(|scope| {
            let takes = Builder::new().spawn_scoped(scope, || {
                take_asks(answers, asks, |ask| match ask {
                    Ask::Keeper { message } => {
                        match permission::check(asker, Asked::Keeper(&message)) {
                            Ok(()) => to_keeper.send(&message, None).map_err(|_| Over),
                            Err(refused) => {
                                answers.send(&Frame::Keeper(Message::Refused(refused), None))
                            }
                        }
                    }
                    _ => Ok(()),
                });
                // Ends the wait for the keeper.
                to_keeper.shut_down();
            });
            takes.map_err(|error| failed(&error))?;
            let result = self.pass_back(&mut connection, usages, answers);
            answers.end();
            result
        })
    }

    fn pass_back(
        &self,
        connection: &mut Connection,
        usages: bool,
        answers: &Answers,
    ) -> Result<(), Refused> {
        let mut pages = Originals::default();
        let mut processes: BTreeMap<u32, u32> = BTreeMap::new();
        let mut next = Instant::now() + INTERVAL;
        loop {
            if answers.is_over() {
                return Ok(());
            }
            match connection.receive_until(next) {
                Ok(Some((message, descriptor))) => {
                    let page = match (started_node(&message), descriptor) {
                        (Some(node), Some(page)) => {
                            let added = pages.add(node, page);
                            Some(added.map_err(|error| Refused::new(error.to_string(), None))?)
                        }
                        _ => None,
                    };
                    note_process(&message, &mut processes);
                    let is_complete = matches!(message, Message::SnapshotComplete);
                    if answers.send(&Frame::Keeper(message, page)).is_err() {
                        return Ok(());
                    }
                    if is_complete && usages {
                        let _ = answers.send(&Frame::Answer(self.usages(&processes)));
                    }
                }
                Ok(None) => {
                    next = Instant::now() + INTERVAL;
                    // Counters are sums: the next frame includes a skipped one.
                    if answers.has_room() {
                        for frame in pages.changes() {
                            let _ = answers.send_bytes(frame.into());
                        }
                        if usages {
                            let _ = answers.send(&Frame::Answer(self.usages(&processes)));
                        }
                    }
                }
                Err(ConnectionError::Gone(_)) => {
                    let _ = answers.send(&Frame::Answer(Answer::Ended { topic: None }));
                    return Ok(());
                }
                Err(error) => return Err(refusal(&error)),
            }
        }
    }

    fn usages(&self, processes: &BTreeMap<u32, u32>) -> Answer {
        let usages = processes.values().filter_map(|pid| self.host.usage(*pid));
        Answer::Usages {
            at_nanos: monotonic_nanos(),
            usages: usages.collect(),
        }
    }

    fn logs(&self, folder: &str, filter: &LogFilter, answers: &Answers) -> Result<(), Refused> {
        if folder.is_empty() {
            return Err(Refused::new(
                "this dataflow writes no logs: it was started with `--no-logs`",
                None,
            ));
        }
        let records = self.host.logs(Path::new(folder), filter);
        let records = records.map_err(|why| Refused::new(why, None))?;
        let bytes = |record: &LogRecord| record.text.len() * 2 + record.node.len() + 100;
        let mut left = MAX_LOG_BYTES;
        let newest = records.iter().rev().take_while(|record| {
            left = left.saturating_sub(bytes(record));
            left > 0
        });
        let omitted = records.len() - newest.count();
        if omitted > 0 {
            let _ = answers.send(&Frame::Answer(Answer::Omitted {
                records: omitted as u64,
            }));
        }
        let mut batch = Vec::new();
        let mut size = 0;
        for record in records.into_iter().skip(omitted) {
            if size + bytes(&record) > RECORDS_BYTES && !batch.is_empty() {
                let records = std::mem::take(&mut batch);
                size = 0;
                if answers
                    .send(&Frame::Answer(Answer::Records { records }))
                    .is_err()
                {
                    return Ok(());
                }
            }
            size += bytes(&record);
            batch.push(record);
        }
        let _ = answers.send(&Frame::Answer(Answer::Records { records: batch }));
        let _ = answers.send(&Frame::Answer(Answer::Done));
        Ok(())
    }
}

fn started_node(message: &Message) -> Option<u32> {
    match message {
        Message::Report {
            report: Report::NodeStarted(started),
        } => Some(started.node),
        _ => None,
    }
}

fn note_process(message: &Message, processes: &mut BTreeMap<u32, u32>) {
    match message {
        Message::Report {
            report: Report::NodeStarted(started),
        } => drop(processes.insert(started.node, started.pid)),
        Message::Report {
            report: Report::NodeEnded(ended),
        } => drop(processes.remove(&ended.node)),
        _ => {}
    }
}

fn open(keeper: u32, program: &str) -> Result<Connection, Refused> {
    let address = running::find(Some(&keeper.to_string())).map_err(|error| refusal(&error))?;
    Connection::open(&address, &harmless(program)).map_err(|error| refusal(&error))
}

fn observe(keeper: u32, program: &str, topics: &[String], depth: u32) -> Result<Observer, Refused> {
    Observer::open_through(open(keeper, program)?, topics, depth).map_err(|error| match error {
        nervure_node::ObserveError::Connection(error) => refusal(&error),
        error => Refused::new(error.to_string(), None),
    })
}

/// The name of a program, for people and for the id of an observer.
fn harmless(program: &str) -> String {
    let letters = program
        .chars()
        .filter(|it| it.is_ascii_alphanumeric() || *it == '-');
    letters.take(32).collect()
}

fn refusal(error: &ConnectionError) -> Refused {
    Refused::new(error.to_string(), error.hint().as_deref())
}

/// The stream of answers.
struct Answers {
    stream: OutgoingStream,
    is_over: AtomicBool,
}

impl Answers {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    fn end(&self) {
        self.is_over.store(true, Ordering::SeqCst);
    }

    fn has_room(&self) -> bool {
        let held = self.stream.counters().map_or(0, |counters| counters.held);
        held < crate::bridge::ANSWERS_DEPTH as u64 / 2
    }

    fn send(&self, frame: &Frame<'_>) -> Result<(), Over> {
        // A keeper sends no message above the limit.
        self.send_bytes(frame.encode().map_err(|_| Over)?.into())
    }

    /// Sends a frame; waits while the stream is full.
    fn send_bytes(&self, bytes: Bytes) -> Result<(), Over> {
        loop {
            match self.stream.try_send(bytes.clone()) {
                Ok(()) => return Ok(()),
                Err(StreamError::Send(SendError::Full { .. })) if !self.is_over() => {
                    self.stream.flush(INTERVAL);
                }
                Err(_) => {
                    self.end();
                    return Err(Over);
                }
            }
        }
    }

    /// A sign of life, unless others are on their way.
    fn alive(&self) {
        let alive = Frame::Answer(Answer::Alive).encode();
        let alive = alive.expect("it is a small message");
        let _ = self.stream.try_send(Bytes::from(alive));
    }
}

/// Takes the messages of a command until it ends, and sends signs of life meanwhile.
fn take_asks(
    answers: &Answers,
    asks: &IncomingStream,
    mut take: impl FnMut(Ask) -> Result<(), Over>,
) {
    let mut heard = Instant::now();
    let mut alive_at = Instant::now() + INTERVAL;
    while !answers.is_over() {
        let wait = alive_at.saturating_duration_since(Instant::now());
        if let Some(sample) = asks.receive(wait) {
            heard = Instant::now();
            let ask = nervure_protocol::decode::<Ask>(&sample.payload);
            if ask.map_err(|_| Over).and_then(&mut take).is_err() {
                break;
            }
        } else if asks.counters().is_none() || heard.elapsed() > SILENCE {
            break;
        }
        if Instant::now() >= alive_at {
            alive_at = Instant::now() + INTERVAL;
            answers.alive();
        }
    }
    answers.end();
}

/// The samples that a command can show.
#[derive(Debug, Default)]
struct Credit {
    samples: Mutex<u64>,
    changed: Condvar,
}

impl Credit {
    /// More credit is of no use: the command asks again when it has shown a sample.
    const MOST: u64 = 16;

    fn add(&self) {
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        *samples = (*samples + 1).min(Self::MOST);
        self.changed.notify_all();
    }

    /// Waits until the command can show a sample. Returns false after the interval.
    fn take(&self) -> bool {
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .changed
            .wait_timeout_while(samples, INTERVAL, |samples| *samples == 0);
        let mut samples = waited.unwrap_or_else(PoisonError::into_inner).0;
        let has_some = *samples > 0;
        *samples = samples.saturating_sub(1);
        has_some
    }
}

/// Does some work while another thread takes the messages of the command.
fn with_asks<T>(
    answers: &Answers,
    asks: &IncomingStream,
    work: impl FnOnce(&Credit) -> T,
) -> Result<T, Refused> {
    let credit = Credit::default();
    std::thread::scope(|scope| {
        let takes = Builder::new().spawn_scoped(scope, || {
            take_asks(answers, asks, |ask| {
                if ask == Ask::Next {
                    credit.add();
                }
                Ok(())
            });
        });
        takes.map_err(|error| Refused::new(error.to_string(), None))?;
        let result = work(&credit);
        answers.end();
        Ok(result)
    })
}

/// Sends the newest sample whenever the command can show one.
fn send_samples(mut observer: Observer, topics: &[String], answers: &Answers, credit: &Credit) {
    if answers.send(&Frame::Answer(Answer::Observing)).is_err() {
        return;
    }
    let mut gaps = SequenceGaps::default();
    while !answers.is_over() {
        if !credit.take() {
            continue;
        }
        let sent = loop {
            if answers.is_over() {
                return;
            }
            match observer.next_timeout(INTERVAL) {
                Some(Event::Input { id, sample }) => {
                    let header = *sample.header();
                    let info = SampleInfo {
                        topic: topics.iter().position(|topic| **topic == *id).unwrap_or(0) as u32,
                        incarnation: header.incarnation,
                        sequence: header.sequence,
                        missed: gaps.record(&id, &header),
                        latency_nanos: sample.latency().as_nanos() as u64,
                        now_utc_nanos: observer.now(),
                    };
                    let Ok(bytes) = remote::encode(&sample, None, &[]) else {
                        continue;
                    };
                    break answers.send(&Frame::Sample(info, &bytes));
                }
                Some(Event::InputClosed { id }) => {
                    let topic = Some(id.to_string());
                    let _ = answers.send(&Frame::Answer(Answer::Ended { topic }));
                }
                Some(Event::Stop { .. }) => {
                    let _ = answers.send(&Frame::Answer(Answer::Ended { topic: None }));
                    return;
                }
                Some(_) | None => {}
            }
        };
        if sent.is_err() {
            return;
        }
    }
}

/// Sends figures of topics after each interval.
fn measure(mut observer: Observer, topics: &[String], interval: Duration, answers: &Answers) {
    if answers.send(&Frame::Answer(Answer::Observing)).is_err() {
        return;
    }
    let mut meters: Vec<Meter> = topics.iter().map(|_| Meter::default()).collect();
    let mut gaps = SequenceGaps::default();
    // Samples of the output's history arrive at once and do not count for its rate.
    let attached_mono = monotonic_nanos();
    let mut begin = Instant::now();
    while !answers.is_over() {
        let left = (begin + interval).saturating_duration_since(Instant::now());
        let is_over = match observer.next_timeout(left.min(INTERVAL)) {
            Some(Event::Input { id, sample }) => {
                let missed = gaps.record(&id, sample.header());
                let at = topics.iter().position(|topic| **topic == *id);
                if let Some(meter) = at.and_then(|at| meters.get_mut(at))
                    && sample.header().publish_mono >= attached_mono
                {
                    meter.add(&sample, missed, observer.now());
                }
                false
            }
            Some(Event::Stop { .. }) => true,
            Some(_) | None => false,
        };
        if is_over || begin.elapsed() >= interval {
            let measured = Answer::Measured {
                seconds: begin.elapsed().as_secs_f64(),
                topics: meters.iter_mut().map(Meter::take).collect(),
            };
            begin = Instant::now();
            if answers.send(&Frame::Answer(measured)).is_err() {
                return;
            }
        }
        if is_over {
            let _ = answers.send(&Frame::Answer(Answer::Ended { topic: None }));
            return;
        }
    }
}
