//! `nervure record`: records topics as an observer, or inputs as a node.

pub mod arguments;
pub mod selection;

use std::{
    collections::{BTreeMap, HashMap},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use nervure_node::{Event, Events, Next, Node, Observer, monotonic_nanos};
use nervure_protocol::CONTROL_FD_VARIABLE;
use nervure_recorder::{
    FileNames, IncomingSample, Notice, RecordError, RecorderOptions, Report, Series, SeriesOptions,
    SeriesReport, TopicId, TopicReport,
};
use serde_json::{Value, json};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    flag,
};

use arguments::{RecordArguments, Split, Throttle};
use nervure_inspect::{
    format::count,
    observing::locate,
    topics::{self, select_topics},
};

use crate::{failure::Failure, output};

/// Interval between reports of losses, and the longest time until a signal is noticed.
const REPORT_INTERVAL: Duration = Duration::from_millis(500);

/// Niceness of an observer: lower priority than the nodes that it observes.
const NICENESS: i32 = 5;
/// Queue depth per topic. Samples in shared memory are limited to fewer, by the limit on the slots
/// that an observer holds.
const QUEUE_DEPTH: u32 = 256;

/// Records until the dataflow ends or a signal arrives.
pub fn record(arguments: &RecordArguments) -> Result<ExitCode, Failure> {
    match std::env::var_os(CONTROL_FD_VARIABLE) {
        Some(_) => record_as_node(arguments),
        None => record_as_observer(arguments),
    }
}

fn record_as_observer(arguments: &RecordArguments) -> Result<ExitCode, Failure> {
    // Raising the niceness is always allowed. It is per thread, and threads that are started from
    // here on inherit it, also the one that writes to the disk.
    let _ = rustix::process::nice(NICENESS);
    let mut selected = select_topics(&arguments.topics, arguments.dataflow.as_deref(), "record")?;
    selected
        .topics
        .retain(|topic| !is_excluded(arguments, &topic.name));
    if selected.topics.is_empty() {
        return Err(Failure::invalid("the dataflow has no topics to record")
            .hint("its nodes have no outputs, or `--exclude` leaves none"));
    }
    let of_name: HashMap<String, topics::Topic> = selected
        .topics
        .iter()
        .map(|topic| (topic.name.clone(), topic.clone()))
        .collect();
    let located = locate(selected);
    // Samples of another machine are recorded there: over the link they would take its capacity.
    for ((machine, _), topics) in &located.there {
        note!(
            "not recorded: {}, on {machine}; run `nervure record` there",
            topics.join(", ")
        );
    }
    let Some(connection) = located.connection else {
        let failure = Failure::invalid("none of the topics is on this machine");
        return Err(failure.hint("run `nervure record` on the machine of their nodes"));
    };
    let mut observer = Observer::open_through(connection, &located.here, QUEUE_DEPTH)
        .map_err(|error| Failure::internal("cannot observe the dataflow").because(error))?;
    let topic = |name: String| {
        let topic = of_name.get(&name)?;
        Some(Topic {
            id: name.clone(),
            type_name: topic.output.type_name.clone(),
            history: topic.output.history,
            name,
        })
    };
    let topics: Vec<Topic> = located.here.into_iter().filter_map(topic).collect();
    ActiveRecording::begin(arguments, Role::Observer, observer.dataflow(), &topics)?
        .run(observer.events())
}

fn record_as_node(arguments: &RecordArguments) -> Result<ExitCode, Failure> {
    if !arguments.topics.is_empty() || arguments.dataflow.is_some() {
        return Err(
            Failure::invalid("as a node, `nervure record` records its inputs")
                .hint("name the topics in the node's `inputs`"),
        );
    }
    let node = Node::connect().map_err(|error| Failure::internal(error.to_string()))?;
    let (handle, mut events) = node.split();
    let topic = |input: &str| {
        let name = handle.topic_of(input)?.to_owned();
        let type_name = handle.type_of(input).map(str::to_owned);
        Some(Topic {
            id: input.to_owned(),
            name,
            type_name,
            history: handle.history_of(input),
        })
    };
    let mut topics: Vec<Topic> = handle.inputs().filter_map(topic).collect();
    topics.retain(|topic| !is_excluded(arguments, &topic.name));
    ActiveRecording::begin(arguments, Role::Node, handle.dataflow(), &topics)?.run(&mut events)
}

fn is_excluded(arguments: &RecordArguments, topic: &str) -> bool {
    let mut patterns = arguments.exclude.iter();
    patterns.any(|pattern| topics::matches_pattern(pattern, topic))
}

/// A topic to record.
struct Topic {
    /// The id of the events with its samples.
    id: String,
    name: String,
    type_name: Option<String>,
    history: u32,
}

/// The role of the recorder in the dataflow.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Ends when it cannot record.
    Observer,
    /// Continues with the next file number if an earlier run or incarnation left files. On a full
    /// disk it continues and counts lost samples, so that the dataflow does not wait for its
    /// restarts.
    Node,
}

/// A recording in progress.
struct ActiveRecording {
    role: Role,
    series: Series,
    /// Topics by the id of their events.
    topics: HashMap<String, TopicId>,
    as_json: bool,
    begin: Instant,
    reported_at: Instant,
    reported_lost: u64,
    has_reported_failure: bool,
    has_signal: Arc<AtomicBool>,
}

impl ActiveRecording {
    fn begin(
        arguments: &RecordArguments,
        role: Role,
        dataflow: &str,
        topics: &[Topic],
    ) -> Result<Self, Failure> {
        let file_names = FileNames::parse(&arguments.output, dataflow)
            .map_err(|error| Failure::invalid(error.to_string()))?;
        let name = |topic: &Topic| {
            let mut renamed = arguments.rename.iter();
            let name = renamed.find_map(|rename| rename.apply(&topic.name));
            name.unwrap_or_else(|| topic.name.clone())
        };
        let names: Vec<String> = topics.iter().map(name).collect();
        let about = BTreeMap::from([
            ("dataflow".to_owned(), dataflow.to_owned()),
            ("topics".to_owned(), names.join(" ")),
        ]);
        let options = SeriesOptions {
            recorder: RecorderOptions {
                compress: arguments.compress,
                about,
                ..RecorderOptions::default()
            },
            goes_on: role == Role::Node,
            ..series_options(arguments)?
        };
        let time = nervure_launch::log_folder::utc_name(
            nervure_shm::utc_nanos().div_euclid(1_000_000_000),
        );
        let now = Instant::now();
        let mut series =
            Series::create(file_names, time, options, now).map_err(|error| not_created(&error))?;
        let topics: HashMap<String, TopicId> = topics
            .iter()
            .zip(&names)
            .map(|(topic, name)| {
                let id = series.add_topic(name, topic.type_name.as_deref(), topic.history);
                let mut limits = arguments.throttle.iter();
                let is_of = |limit: &&Throttle| topics::matches_pattern(&limit.topic, &topic.name);
                if let Some(limit) = limits.find(is_of) {
                    series.throttle(id, limit.hz);
                }
                (topic.id.clone(), id)
            })
            .collect();
        let has_signal = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            flag::register(signal, has_signal.clone())
                .map_err(|error| Failure::internal("cannot watch for Ctrl-C").because(error))?;
        }
        report_notices(series.take_notices());
        note!(
            "recording {} in {}",
            count(topics.len(), "topic"),
            series.path().display()
        );
        Ok(Self {
            role,
            series,
            topics,
            as_json: arguments.json,
            begin: now,
            reported_at: now,
            reported_lost: 0,
            has_reported_failure: false,
            has_signal,
        })
    }

    fn run(mut self, events: &mut Events) -> Result<ExitCode, Failure> {
        let failed = |error: RecordError| Failure::internal(error.to_string());
        let reason = loop {
            let event = match events.poll() {
                Ok(Next::Event(event)) => event,
                Ok(Next::Nothing) if self.has_signal.load(Ordering::SeqCst) => {
                    break "a signal".to_owned();
                }
                Ok(Next::Nothing) => {
                    events.wait(Some(self.next_wakeup()));
                    self.series.tick(Instant::now()).map_err(failed)?;
                    self.report_progress();
                    if self.must_end() {
                        break "the disk failed".to_owned();
                    }
                    continue;
                }
                Ok(Next::End) => break "the dataflow has ended".to_owned(),
                Err(error) => return Err(Failure::internal(error.to_string())),
            };
            match event {
                Event::Input { id, sample } => {
                    let Some(&topic) = self.topics.get(&*id) else {
                        continue;
                    };
                    match IncomingSample::new(&sample) {
                        Ok(incoming) => self
                            .series
                            .record(topic, &incoming, Instant::now())
                            .map_err(failed)?,
                        Err(error) => note!("a sample of {id} is not recorded: {error}"),
                    }
                }
                Event::Stop { reason } => break reason,
                _ => {}
            }
            self.report_progress();
            if self.must_end() {
                break "the disk failed".to_owned();
            }
        };
        self.conclude(&reason)
    }

    /// The next time to report or to split a file without an event, in nanoseconds of
    /// CLOCK_MONOTONIC.
    fn next_wakeup(&self) -> u64 {
        let deadline = self
            .series
            .deadline()
            .map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let wait = deadline.unwrap_or(REPORT_INTERVAL).min(REPORT_INTERVAL);
        monotonic_nanos().saturating_add(wait.as_nanos() as u64)
    }

    /// Whether the recording must end because of a failure.
    fn must_end(&self) -> bool {
        self.role == Role::Observer && self.has_reported_failure
    }

    /// Reports changes of files, disk failures and losses, at most every [`REPORT_INTERVAL`].
    fn report_progress(&mut self) {
        if self.reported_at.elapsed() < REPORT_INTERVAL {
            return;
        }
        self.reported_at = Instant::now();
        report_notices(self.series.take_notices());
        if !self.has_reported_failure
            && let Some(reason) = self.series.disk_failure()
        {
            self.has_reported_failure = true;
            let path = self.series.path().display();
            note!(
                "ERROR: {path}: {reason}; nothing more is recorded, later samples are counted as lost"
            );
        }
        let report = self.series.report();
        let lost: u64 = report.topics.iter().map(|topic| topic.lost).sum();
        if lost > self.reported_lost {
            note!("{}", losses(&report));
            self.reported_lost = lost;
        }
    }

    fn conclude(self, reason: &str) -> Result<ExitCode, Failure> {
        let Self {
            series,
            begin,
            as_json,
            ..
        } = self;
        let SeriesReport {
            files,
            report,
            failure,
            notices,
        } = series.finish(reason);
        report_notices(notices);
        let samples: u64 = report.topics.iter().map(|topic| topic.recorded).sum();
        let names = match files.as_slice() {
            [first, .., last] => format!(
                "{} to {}, {} files",
                first.display(),
                last.display(),
                files.len()
            ),
            files => files
                .iter()
                .map(|file| file.display().to_string())
                .collect(),
        };
        note!(
            "{names}: {samples} samples in {:.1} s, {:.1} MB; {}",
            begin.elapsed().as_secs_f64(),
            report.bytes as f64 / 1e6,
            losses(&report)
        );
        if as_json {
            let summary = json!({
                "files": files.iter().map(|file| file.display().to_string()).collect::<Vec<_>>(),
                "reason": reason,
                "seconds": begin.elapsed().as_secs_f64(),
                "samples": samples,
                "bytes": report.bytes,
                "topics": report.topics.iter().map(topic_json).collect::<Vec<_>>(),
            });
            output::write(&format!("{summary}\n"))?;
        }
        match failure {
            None => Ok(ExitCode::SUCCESS),
            Some(error) => {
                let failure = Failure::internal(error.to_string());
                Err(failure.hint("the dataflow keeps running without a recording"))
            }
        }
    }
}

fn series_options(arguments: &RecordArguments) -> Result<SeriesOptions, Failure> {
    let mut options = SeriesOptions {
        max_disk_bytes: arguments.max_disk,
        ..SeriesOptions::default()
    };
    match arguments.split {
        None => {}
        Some(Split::Bytes(bytes)) => options.split_bytes = Some(bytes),
        Some(Split::Period(period)) => options.split_period = Some(period),
    }
    if let (Some(bytes), Some(max)) = (options.split_bytes, options.max_disk_bytes)
        && bytes > max / 2
    {
        return Err(Failure::invalid(format!(
            "`--split` is {bytes} bytes, expected at most half of `--max-disk`, which is {max} bytes"
        ))
        .hint("the current file is never deleted: smaller files keep more of the past"));
    }
    Ok(options)
}

fn report_notices(notices: Vec<Notice>) {
    for notice in notices {
        match notice {
            Notice::GoesOn { taken, path } => {
                note!(
                    "{} exists already: the recording continues in {}",
                    taken.display(),
                    path.display()
                );
            }
            Notice::NextFile(path) => note!("the recording continues in {}", path.display()),
            Notice::Deleted(path) => {
                note!(
                    "deleted {}: the recordings reached `--max-disk`",
                    path.display()
                );
            }
            Notice::Problem(text) => note!("WARNING: {text}"),
        }
    }
}

fn topic_json(topic: &TopicReport) -> Value {
    let TopicReport {
        name,
        recorded,
        lost,
        damaged,
        throttled,
    } = topic;
    json!({"topic": name, "recorded": recorded, "lost": lost, "damaged": damaged, "throttled": throttled})
}

fn losses(report: &Report) -> String {
    let lost = report
        .topics
        .iter()
        .filter(|topic| topic.lost + topic.damaged > 0);
    let lost: Vec<_> = lost
        .map(|topic| format!("{} of {}", topic.lost + topic.damaged, topic.name))
        .collect();
    if lost.is_empty() {
        "none lost".to_owned()
    } else {
        format!("lost: {}", lost.join(", "))
    }
}

fn not_created(error: &RecordError) -> Failure {
    let failure = Failure::invalid(error.to_string());
    match error.is_taken() {
        true => failure.hint(
            "recordings are never overwritten: select_topics another name, such as `-o 'run-{time}.mcap'`",
        ),
        false => failure,
    }
}
