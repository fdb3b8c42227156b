//! `nervure record`.

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use nervure_node::{Event, Events, Next, Node, Observer, monotonic_nanos};
use nervure_protocol::CONTROL_FD_VARIABLE;
use nervure_recorder::{Incoming, RecordError, Recorder, RecorderOptions, Report, TopicId};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag,
};

use crate::{
    arguments::RecordArguments,
    failure::Failure,
    look::topics::{self, choose},
    run::format,
    validate::count,
};

/// How often losses are told while it records, and how long a signal may go unnoticed.
const TELL_EVERY: Duration = Duration::from_millis(500);

/// How much an observer steps back behind the nodes that it observes.
const NICENESS: i32 = 5;
/// Samples of a topic that wait for the recorder. Images are limited to fewer, by what an observer may hold.
const QUEUE_DEPTH: u32 = 256;

/// Records until the dataflow ends, or a signal comes.
pub fn record(arguments: &RecordArguments) -> Result<ExitCode, Failure> {
    match std::env::var_os(CONTROL_FD_VARIABLE) {
        Some(_) => record_as_node(arguments),
        None => record_as_observer(arguments),
    }
}

fn record_as_observer(arguments: &RecordArguments) -> Result<ExitCode, Failure> {
    // The robot's nodes go first. Stepping back is always allowed, and a matter of each thread: those that are started
    // from here on, the one that writes to the disk among them, inherit it.
    let _ = rustix::process::nice(NICENESS);
    let chosen = choose(&arguments.topics, arguments.dataflow.as_deref(), "record")?;
    if chosen.topics.is_empty() {
        return Err(Failure::invalid("there is nothing to record").hint("its nodes have no outputs"));
    }
    let names: Vec<&str> = chosen.topics.iter().map(|topic| topic.name.as_str()).collect();
    let mut observer = Observer::open_through(chosen.state.into_connection(), &names, QUEUE_DEPTH)
        .map_err(|error| Failure::internal("the dataflow cannot be observed").because(error))?;
    let topic = |topic: topics::Topic| Topic {
        id: topic.name.clone(),
        name: topic.name,
        type_name: topic.output.type_name,
    };
    let topics: Vec<Topic> = chosen.topics.into_iter().map(topic).collect();
    Session::begin(arguments, observer.dataflow(), &topics)?.run(observer.events())
}

fn record_as_node(arguments: &RecordArguments) -> Result<ExitCode, Failure> {
    if !arguments.topics.is_empty() || arguments.dataflow.is_some() {
        return Err(Failure::invalid("as a node, `nervure record` records its inputs")
            .hint("name the topics in the node's `inputs`"));
    }
    let node = Node::connect().map_err(|error| Failure::internal(error.to_string()))?;
    let (handle, mut events) = node.split();
    let topic = |input: &str| {
        let name = handle.topic_of(input)?.to_owned();
        let type_name = handle.type_of(input).map(str::to_owned);
        Some(Topic { id: input.to_owned(), name, type_name })
    };
    let topics: Vec<Topic> = handle.inputs().filter_map(topic).collect();
    Session::begin(arguments, handle.dataflow(), &topics)?.run(&mut events)
}

/// A topic to record.
struct Topic {
    /// The id of its events.
    id: String,
    name: String,
    type_name: Option<String>,
}

/// A recording that is being made.
struct Session {
    path: PathBuf,
    recorder: Recorder,
    /// Topics by the id that their events have.
    topics: HashMap<String, TopicId>,
    begin: Instant,
    told: Instant,
    told_lost: u64,
    has_signal: Arc<AtomicBool>,
}

impl Session {
    fn begin(arguments: &RecordArguments, dataflow: &str, topics: &[Topic]) -> Result<Self, Failure> {
        let path = arguments.output.clone().unwrap_or_else(|| default_path(dataflow));
        let names: Vec<&str> = topics.iter().map(|topic| topic.name.as_str()).collect();
        let about = BTreeMap::from([
            ("dataflow".to_owned(), dataflow.to_owned()),
            ("topics".to_owned(), names.join(" ")),
        ]);
        let options = RecorderOptions { compress: arguments.compress, about, ..RecorderOptions::default() };
        let mut recorder = Recorder::create(&path, options).map_err(|error| not_created(&error))?;
        let topics: HashMap<String, TopicId> = topics
            .iter()
            .map(|topic| (topic.id.clone(), recorder.add_topic(&topic.name, topic.type_name.as_deref())))
            .collect();
        let has_signal = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            flag::register(signal, has_signal.clone())
                .map_err(|error| Failure::internal("cannot watch for Ctrl-C").because(error))?;
        }
        eprintln!("recording {} in {}", count(topics.len(), "topic"), path.display());
        let now = Instant::now();
        Ok(Self { path, recorder, topics, begin: now, told: now, told_lost: 0, has_signal })
    }

    fn run(mut self, events: &mut Events) -> Result<ExitCode, Failure> {
        let failed = |error: RecordError| Failure::internal(error.to_string());
        let reason = loop {
            let event = match events.poll() {
                Ok(Next::Event(event)) => event,
                Ok(Next::Nothing) if self.has_signal.load(Ordering::SeqCst) => break "a signal".to_owned(),
                Ok(Next::Nothing) => {
                    events.wait(Some(self.next_look()));
                    self.recorder.tick(Instant::now()).map_err(failed)?;
                    self.tell_losses();
                    continue;
                }
                Ok(Next::End) => break "the dataflow has ended".to_owned(),
                Err(error) => return Err(Failure::internal(error.to_string())),
            };
            match event {
                Event::Input { id, sample } => {
                    let Some(&topic) = self.topics.get(&*id) else { continue };
                    match Incoming::new(&sample) {
                        Ok(incoming) => {
                            self.recorder.record(topic, &incoming, Instant::now()).map_err(failed)?
                        }
                        Err(error) => eprintln!("a sample of {id} is not recorded: {error}"),
                    }
                }
                Event::Stop { reason } => break reason,
                _ => {}
            }
            if self.recorder.has_failed() {
                break "the disk failed".to_owned();
            }
        };
        self.conclude(&reason)
    }

    /// When there is something to do although nothing came, in nanoseconds of CLOCK_MONOTONIC.
    fn next_look(&self) -> u64 {
        let deadline =
            self.recorder.deadline().map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let wait = deadline.unwrap_or(TELL_EVERY).min(TELL_EVERY);
        monotonic_nanos().saturating_add(wait.as_nanos() as u64)
    }

    fn tell_losses(&mut self) {
        if self.told.elapsed() < TELL_EVERY {
            return;
        }
        let report = self.recorder.report();
        let lost: u64 = report.topics.iter().map(|topic| topic.lost).sum();
        if lost > self.told_lost {
            eprintln!("{}", losses(&report));
            self.told_lost = lost;
        }
        self.told = Instant::now();
    }

    fn conclude(self, reason: &str) -> Result<ExitCode, Failure> {
        let Self { path, recorder, begin, .. } = self;
        let report = recorder.finish(reason).map_err(|error| {
            Failure::internal(error.to_string()).hint("the dataflow goes on without being recorded")
        })?;
        let samples: u64 = report.topics.iter().map(|topic| topic.recorded).sum();
        eprintln!(
            "{}: {samples} samples in {:.1} s, {:.1} MB; {}",
            path.display(),
            begin.elapsed().as_secs_f64(),
            report.bytes as f64 / 1e6,
            losses(&report)
        );
        Ok(ExitCode::SUCCESS)
    }
}

fn losses(report: &Report) -> String {
    let lost = report.topics.iter().filter(|topic| topic.lost + topic.damaged > 0);
    let lost: Vec<_> =
        lost.map(|topic| format!("{} of {}", topic.lost + topic.damaged, topic.name)).collect();
    if lost.is_empty() { "none lost".to_owned() } else { format!("lost: {}", lost.join(", ")) }
}

/// In the working directory, by the dataflow's name and the time.
fn default_path(dataflow: &str) -> PathBuf {
    let utc_seconds = nervure_shm::utc_nanos().div_euclid(1_000_000_000);
    Path::new(&format!("{dataflow}-{}.mcap", format::utc_name(utc_seconds))).to_owned()
}

fn not_created(error: &RecordError) -> Failure {
    let failure = Failure::invalid(error.to_string());
    match error {
        RecordError::Create { source, .. } if source.kind() == std::io::ErrorKind::AlreadyExists => {
            failure.hint("recordings are never overwritten: choose another name with `-o`, or remove it")
        }
        _ => failure,
    }
}
