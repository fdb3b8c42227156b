//! The node that sends what other nodes write to stdout and stderr: `send_stdout_as`, `send_logs_as`
//! and `nervure/logs` of a dataflow file. A keeper starts it.
//!
//! It follows the keeper's log like `nervure logs --follow`, so that the lines of a program in any language
//! reach a dataflow.

use std::{
    collections::HashSet,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
        mpsc::{Receiver, RecvError, SendError, Sender, channel},
    },
    time::{Duration, Instant},
};

use nervure_inspect::threads;
use nervure_node::{
    Event, Node, Publisher, binding,
    running::{self, Connection, ConnectionError},
};
use nervure_protocol::{
    cli_to_keeper::{self, Watch},
    graph::{LOG_OUTPUTS_VARIABLE, LogForm, LogOutputSpec},
    keeper_to_cli,
    report::{LogRecord, Report},
};
use rustix::process::getppid;
use serde_json::{Map, Value, json};

use crate::{failure::Failure, times};

/// The stream of records of the keeper about a node, which the node did not write.
const KEEPER_STREAM: &str = "keeper";

/// Lines that wait to be sent, at most: a burst such as a long traceback of each of 50 nodes. At the
/// longest line of a log, 16 KB, they take 16 MB.
const MAX_QUEUED_RECORDS: usize = 1000;

/// Shortest time between two reports of lines that were not sent.
const LOSS_REPORT_PERIOD: Duration = Duration::from_secs(1);

/// What wakes the node.
#[derive(Debug, PartialEq)]
enum Wakeup {
    Record(LogRecord),
    /// The node with this id has ended for good.
    Ended(String),
    /// The dataflow stops, or the keeper is gone.
    Stop,
}

/// Sends lines until every node that writes them has ended.
pub fn send() -> Result<ExitCode, Failure> {
    let specs = std::env::var(LOG_OUTPUTS_VARIABLE)
        .map_err(|error| Failure::internal(format!("{LOG_OUTPUTS_VARIABLE}: {error}")))?;
    let specs: Vec<LogOutputSpec> = serde_json::from_str(&specs)
        .map_err(|error| Failure::internal(LOG_OUTPUTS_VARIABLE).because(error))?;
    // Follows the log before the dataflow starts, so that no line is missed.
    let (connection, nodes) = follow()?;
    let failed = |error: &dyn std::error::Error| Failure::internal(error.to_string());
    let node = Node::connect().map_err(|error| failed(&error))?;
    let own = node.id().to_owned();
    let (handle, mut events) = node.split();
    // Processes continue in a pause, and so does their output.
    binding::send_in_pause(&handle);
    let outputs: Result<Vec<(Publisher, &LogOutputSpec)>, _> = specs
        .iter()
        .map(|spec| handle.output(&spec.output).map(|output| (output, spec)))
        .collect();
    let outputs = outputs.map_err(|error| failed(&error))?;
    let mut awaited = awaited(&specs, &own, nodes);
    let (queue, wakeups) = Queue::new();
    let lost = queue.lost.clone();
    let of_log = queue.clone();
    threads::spawn(move || receive(connection, &of_log))?;
    threads::spawn(move || {
        while let Some(event) = events.next() {
            if matches!(event, Event::Stop { .. }) {
                break;
            }
        }
        let _ = queue.send(Wakeup::Stop);
    })?;
    let mut reported = LossReports::new();
    while !awaited.is_empty() {
        let wakeup = wakeups.receive();
        reported.report_if_due(lost.load(Ordering::Relaxed));
        match wakeup {
            Ok(Wakeup::Record(record)) if record.stream != KEEPER_STREAM => {
                publish(&outputs, &record)?;
            }
            Ok(Wakeup::Record(_)) => {}
            Ok(Wakeup::Ended(id)) => {
                awaited.remove(&id);
            }
            Ok(Wakeup::Stop) | Err(_) => break,
        }
    }
    reported.report(lost.load(Ordering::Relaxed));
    Ok(ExitCode::SUCCESS)
}

/// The sending half of the queue of wakeups. Records beyond [`MAX_QUEUED_RECORDS`] are lost, and
/// counted: the reader of an output with `queue_policy: block` may be slower than the log, and must
/// not cost the robot its memory. Everything else is kept, in its order.
#[derive(Clone)]
struct Queue {
    wakeups: Sender<Wakeup>,
    queued_records: Arc<AtomicUsize>,
    lost: Arc<AtomicU64>,
}

/// The receiving half.
struct Wakeups {
    wakeups: Receiver<Wakeup>,
    queued_records: Arc<AtomicUsize>,
}

impl Queue {
    fn new() -> (Self, Wakeups) {
        let (sender, receiver) = channel();
        let queue = Self {
            wakeups: sender,
            queued_records: Arc::default(),
            lost: Arc::default(),
        };
        let wakeups = Wakeups {
            wakeups: receiver,
            queued_records: queue.queued_records.clone(),
        };
        (queue, wakeups)
    }

    fn send(&self, wakeup: Wakeup) -> Result<(), SendError<Wakeup>> {
        if matches!(wakeup, Wakeup::Record(_)) {
            // Only one thread sends records, so that the limit is exact.
            if self.queued_records.load(Ordering::Relaxed) >= MAX_QUEUED_RECORDS {
                self.lost.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            }
            self.queued_records.fetch_add(1, Ordering::Relaxed);
        }
        self.wakeups.send(wakeup)
    }
}

impl Wakeups {
    fn receive(&self) -> Result<Wakeup, RecvError> {
        let wakeup = self.wakeups.recv()?;
        if matches!(wakeup, Wakeup::Record(_)) {
            self.queued_records.fetch_sub(1, Ordering::Relaxed);
        }
        Ok(wakeup)
    }
}

/// Reports lines that were not sent, at most once a period and at the end.
struct LossReports {
    reported: u64,
    at: Instant,
}

impl LossReports {
    fn new() -> Self {
        Self {
            reported: 0,
            at: Instant::now(),
        }
    }

    fn report_if_due(&mut self, lost: u64) {
        if lost > self.reported && self.at.elapsed() >= LOSS_REPORT_PERIOD {
            self.report(lost);
        }
    }

    fn report(&mut self, lost: u64) {
        let new = lost - self.reported;
        if new > 0 {
            eprintln!(
                "WARN {new} lines were not sent, because the nodes that read logs are slower than the log ({lost} in all): use another `queue_policy` than `block` there"
            );
        }
        self.reported = lost;
        self.at = Instant::now();
    }
}

/// The nodes whose lines are sent: this node ends after them. A reader of the lines of all nodes is not
/// among them, because it waits for the end of its inputs.
fn awaited(specs: &[LogOutputSpec], own: &str, nodes: HashSet<String>) -> HashSet<String> {
    let readers: HashSet<&str> = specs
        .iter()
        .filter_map(|spec| spec.except.as_deref())
        .collect();
    let of_one: HashSet<&str> = specs
        .iter()
        .filter_map(|spec| spec.node.as_deref())
        .collect();
    let has_all = specs.iter().any(|spec| spec.node.is_none());
    let is_awaited = |id: &String| {
        let id = id.as_str();
        id != own && !readers.contains(id) && (has_all || of_one.contains(id))
    };
    nodes.into_iter().filter(is_awaited).collect()
}

/// A connection that follows the log of this node's keeper, and the ids of all nodes that have not
/// ended.
fn follow() -> Result<(Connection, HashSet<String>), Failure> {
    let keeper = getppid().map_or(0, |pid| pid.as_raw_pid().unsigned_abs());
    let address = running::dataflows()?
        .into_iter()
        .find(|address| address.keeper == keeper)
        .ok_or_else(|| Failure::internal("the keeper that started this node cannot be found"))?;
    let mut connection = Connection::open(&address, "log outputs")?;
    connection.send(&cli_to_keeper::Message::Watch(Watch {
        logs: true,
        follow: true,
        without_observers: false,
    }))?;
    let mut nodes = HashSet::new();
    loop {
        match connection.receive_until(Instant::now() + running::KEEPER_ANSWER_TIMEOUT)? {
            Some((keeper_to_cli::Message::SnapshotComplete, _)) => return Ok((connection, nodes)),
            Some((keeper_to_cli::Message::Refused(refused), _)) => {
                return Err(ConnectionError::Refused(refused).into());
            }
            Some((keeper_to_cli::Message::NodeDeclared(declared), _)) if !declared.observer => {
                nodes.insert(declared.id);
            }
            Some((keeper_to_cli::Message::Report { report }, _)) => {
                if let Report::NodeEnded(ended) = report
                    && !ended.restarts
                {
                    nodes.remove(&ended.id);
                }
            }
            Some(_) => {}
            None => return Err(Failure::internal("the keeper does not answer")),
        }
    }
}

/// Receives reports of the keeper until it is gone.
fn receive(mut connection: Connection, queue: &Queue) {
    const LONG: Duration = Duration::from_secs(3600);
    loop {
        let report = match connection.receive_until(Instant::now() + LONG) {
            Ok(Some((keeper_to_cli::Message::Report { report }, _))) => report,
            Ok(_) => continue,
            Err(_) => {
                let _ = queue.send(Wakeup::Stop);
                return;
            }
        };
        let wakeup = match report {
            Report::Log(record) => Wakeup::Record(record),
            Report::NodeEnded(ended) if !ended.restarts => Wakeup::Ended(ended.id),
            _ => continue,
        };
        if queue.send(wakeup).is_err() {
            return;
        }
    }
}

fn publish(outputs: &[(Publisher, &LogOutputSpec)], record: &LogRecord) -> Result<(), Failure> {
    for (output, spec) in outputs {
        if let Some(text) = sample(spec, record) {
            output
                .send(text.as_str())
                .map_err(|error| Failure::internal(format!("cannot send a line: {error}")))?;
        }
    }
    Ok(())
}

/// The sample that an output sends for a line; `None` if it does not carry the line.
fn sample(spec: &LogOutputSpec, record: &LogRecord) -> Option<String> {
    let is_of_node = spec.node.as_ref().is_none_or(|node| *node == record.node);
    if !is_of_node || spec.except.as_ref() == Some(&record.node) {
        return None;
    }
    if spec.form == LogForm::Line {
        return Some(format!("{}\n", record.text));
    }
    let value = dora_record(record);
    let passes = spec
        .min_level
        .as_ref()
        .is_none_or(|min_level| has_level(&value, min_level));
    passes.then(|| value.to_string())
}

/// Whether a line of a node is below its `min_log_level`.
pub fn is_below(record: &LogRecord, min_level: &str) -> bool {
    !has_level(&dora_record(record), min_level)
}

/// Whether a record of dora has at least this level.
fn has_level(value: &Value, min_level: &str) -> bool {
    rank(value["level"].as_str().unwrap_or("stdout")) >= rank(min_level)
}

/// Levels of dora in their order. A line without a level is `stdout`, below all others.
fn rank(level: &str) -> usize {
    const LEVELS: [&str; 6] = ["stdout", "trace", "debug", "info", "warn", "error"];
    let mut levels = LEVELS.iter();
    let found = levels.position(|known| known.eq_ignore_ascii_case(level));
    found.unwrap_or(0)
}

/// The level in dora's words. Those of Python's logging differ.
fn dora_level(level: &str) -> &'static str {
    match level.to_ascii_lowercase().as_str() {
        "error" | "critical" | "fatal" => "ERROR",
        "warn" | "warning" => "WARN",
        "info" => "INFO",
        "debug" => "DEBUG",
        "trace" => "TRACE",
        _ => "stdout",
    }
}

/// The level with which a line begins, as Nervure's package `dora` prints it, and the rest of it.
fn leading_level(line: &str) -> Option<(&'static str, &str)> {
    let (word, rest) = line.split_once(' ')?;
    let level = dora_level(word);
    let is_level = level != "stdout" && word.chars().all(|letter| letter.is_ascii_uppercase());
    is_level.then_some((level, rest))
}

/// A line as dora's record: its fields if it is one already, else the line as the message.
fn dora_record(record: &LogRecord) -> Value {
    let given = serde_json::from_str::<Map<String, Value>>(&record.text)
        .ok()
        .filter(|fields| fields.get("level").is_some_and(Value::is_string))
        .unwrap_or_default();
    let (level, message) = match given.is_empty() {
        true => leading_level(&record.text).unwrap_or(("stdout", record.text.as_str())),
        false => ("stdout", ""),
    };
    let mut fields = json!({
        "build_id": null,
        "dataflow_id": null,
        "node_id": record.node,
        "daemon_id": null,
        "level": level,
        "target": null,
        "module_path": null,
        "file": null,
        "line": null,
        "message": message,
        "timestamp": times::utc_date_time(record.utc_nanos),
        "fields": null,
    });
    for (name, value) in given {
        match (&mut fields[&name], value) {
            (_, Value::Null) => {}
            (level, Value::String(text)) if name == "level" => {
                *level = Value::String(dora_level(&text).to_owned());
            }
            (field, value) => *field = value,
        }
    }
    fields["node_id"] = json!(record.node);
    fields
}

#[cfg(test)]
mod tests {
    use nervure_protocol::report::Level;

    use super::*;

    fn record(text: &str) -> LogRecord {
        LogRecord {
            utc_nanos: 1_000_000_000,
            node: "sensor".to_owned(),
            level: Level::Info,
            stream: "stdout".to_owned(),
            text: text.to_owned(),
        }
    }

    fn spec(form: LogForm, min_level: Option<&str>) -> LogOutputSpec {
        LogOutputSpec {
            output: "out".to_owned(),
            form,
            node: None,
            except: None,
            min_level: min_level.map(str::to_owned),
        }
    }

    #[test]
    fn a_line_is_sent_as_it_is_or_as_a_record() {
        let line = sample(&spec(LogForm::Line, None), &record("hello"));
        assert_eq!(line.as_deref(), Some("hello\n"));
        let json = sample(&spec(LogForm::Record, None), &record("hello")).unwrap();
        let value: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(value["message"], "hello");
        assert_eq!(value["level"], "stdout");
        assert_eq!(value["node_id"], "sensor");
        assert_eq!(value["timestamp"], "1970-01-01T00:00:01Z");
    }

    #[test]
    fn a_record_in_a_line_keeps_its_level_and_message() {
        let text = r#"{"level":"warning","message":"hot","timestamp":"x"}"#;
        let value = dora_record(&record(text));
        assert_eq!(value["level"], "WARN");
        assert_eq!(value["message"], "hot");
        assert_eq!(value["timestamp"], "x");
        let prefixed = dora_record(&record("WARNING root: warm"));
        assert_eq!(prefixed["level"], "WARN");
        assert_eq!(prefixed["message"], "root: warm");
        assert_eq!(dora_record(&record("Error is small"))["level"], "stdout");
        let number = dora_record(&record("{\"level\": 3}"));
        assert_eq!(number["level"], "stdout");
    }

    #[test]
    fn only_records_are_lost_and_every_one_is_counted() {
        let (queue, wakeups) = Queue::new();
        let send = |wakeup| queue.send(wakeup).unwrap();
        for number in 0..MAX_QUEUED_RECORDS + 7 {
            send(Wakeup::Record(record(&number.to_string())));
        }
        send(Wakeup::Ended("sensor".to_owned()));
        assert_eq!(queue.lost.load(Ordering::Relaxed), 7);
        assert_eq!(wakeups.receive(), Ok(Wakeup::Record(record("0"))));
        send(Wakeup::Record(record("room again")));
        send(Wakeup::Stop);
        let mut rest: Vec<Wakeup> =
            std::iter::from_fn(|| wakeups.wakeups.try_recv().ok()).collect();
        let tail = rest.split_off(MAX_QUEUED_RECORDS - 1);
        let ended = Wakeup::Ended("sensor".to_owned());
        let last = Wakeup::Record(record("room again"));
        assert_eq!(tail, [ended, last, Wakeup::Stop]);
    }

    #[test]
    fn a_line_without_a_level_is_below_all() {
        assert!(is_below(&record("plain"), "trace"));
        assert!(!is_below(&record("plain"), "stdout"));
        assert!(is_below(&record("DEBUG usb: detail"), "info"));
        assert!(!is_below(&record("WARNING usb: slow"), "info"));
    }

    #[test]
    fn only_lines_of_a_node_and_level_are_sent() {
        let info = spec(LogForm::Record, Some("info"));
        assert_eq!(sample(&info, &record("no level")), None);
        assert_eq!(sample(&info, &record(r#"{"level":"DEBUG"}"#)), None);
        assert!(sample(&info, &record(r#"{"level":"ERROR"}"#)).is_some());
        let mut of_other = spec(LogForm::Line, None);
        of_other.node = Some("camera".to_owned());
        assert_eq!(sample(&of_other, &record("x")), None);
        let mut not_own = spec(LogForm::Line, None);
        not_own.except = Some("sensor".to_owned());
        assert_eq!(sample(&not_own, &record("x")), None);
    }

    #[test]
    fn the_node_ends_with_those_whose_lines_it_sends() {
        let nodes = || ["sensor", "viewer", "logs"].map(str::to_owned).into();
        let of_sensor = LogOutputSpec {
            node: Some("sensor".to_owned()),
            ..spec(LogForm::Line, None)
        };
        let sensor = HashSet::from(["sensor".to_owned()]);
        assert_eq!(awaited(&[of_sensor], "logs", nodes()), sensor);
        let of_all = LogOutputSpec {
            except: Some("viewer".to_owned()),
            ..spec(LogForm::Record, None)
        };
        assert_eq!(awaited(&[of_all], "logs", nodes()), sensor);
    }
}
