//! `nervure logs`: shows the log files of a run, and follows them.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::mpsc::{Sender, channel},
    time::{Duration, Instant},
};

use regex_lite::Regex;

use nervure_launch::log_folder;
use nervure_node::running::{self, Connection, ConnectionError};
use nervure_protocol::{
    cli_to_daemon,
    cli_to_keeper::{self, Watch},
    daemon_to_daemon::{Answer, LogFilter, Request},
    did_you_mean, keeper_to_cli,
    report::{Level, LogRecord, Report},
};

#[cfg(feature = "api")]
use super::answers::Logs;
use super::{
    arguments::LogsArguments,
    observing::next_answer,
    places::{self, Found, PartKeeper, Place, Unreachable, daemon},
    state::{State, not_reached},
};
use crate::{
    failure::{Failure, INTERNAL},
    format, output,
    run::display::record_line,
    threads,
};

/// The node id of the keeper's own records.
const KEEPER: &str = "nervure";

/// Shows the records of a run on all its machines, ordered by time.
pub fn logs(arguments: &LogsArguments) -> Result<ExitCode, Failure> {
    let name = running::named(arguments.target.dataflow.as_deref());
    let name = name.as_deref();
    let filter = Filter::new(arguments);
    let found = match places::try_find(name)? {
        Ok(found) => found,
        Err(error @ (ConnectionError::NoneRuns(_) | ConnectionError::NotRunning { .. })) => {
            if arguments.follow {
                return Err(error.into());
            }
            let found = read(&last_folder(name)?, &filter)?;
            check_nodes(&arguments.node, found.nodes, None)?;
            show_all(found.records, arguments.target.json)?;
            return Ok(ExitCode::SUCCESS);
        }
        Err(error) => return Err(error.into()),
    };
    let collected = collect(&found, &filter, arguments.follow)?;
    check_nodes(&arguments.node, collected.nodes, Some(&found))?;
    show_all(collected.records, arguments.target.json)?;
    for away in &collected.unreachable {
        note!("warning: {}; its logs are not shown", away.reason);
    }
    if arguments.follow {
        follow_records(collected.followed, &filter, arguments.target.json)?;
    }
    Ok(match collected.unreachable.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::from(INTERNAL),
    })
}

/// The newest records of a running dataflow, at most `most`.
#[cfg(feature = "api")]
pub fn logs_of(dataflow: &str, filter: &Filter<'_>, most: usize) -> Result<Logs, Failure> {
    let found = places::find(Some(dataflow))?;
    let collected = collect(&found, filter, false)?;
    check_nodes(filter.nodes, collected.nodes, Some(&found))?;
    let mut records = collected.records;
    records.sort_by_key(|record| record.utc_nanos);
    let omitted = records.len().saturating_sub(most);
    records.drain(..omitted);
    let unreachable = collected.unreachable.into_iter();
    Ok(Logs {
        dataflow: found.dataflow,
        records,
        omitted,
        unreachable: unreachable.map(|away| away.machine).collect(),
    })
}

/// The records of a running dataflow.
struct Collected {
    records: Vec<LogRecord>,
    nodes: BTreeSet<String>,
    /// Connections for later records, each with the time of its last known record.
    followed: Vec<(Connection, i64)>,
    unreachable: Vec<Unreachable>,
}

fn collect(found: &Found, filter: &Filter<'_>, follow: bool) -> Result<Collected, Failure> {
    let mut collected = Collected {
        records: Vec::new(),
        nodes: BTreeSet::new(),
        followed: Vec::new(),
        unreachable: Vec::new(),
    };
    for part in &found.parts {
        let place = match &part.keeper {
            PartKeeper::At(place, _) => place,
            PartKeeper::Unreachable(away) => {
                collected.unreachable.push(away.clone());
                continue;
            }
        };
        let mut connection = place.connect("logs")?;
        if follow {
            // Subscribes before the files are read, so that no record is missed in between.
            subscribe(&mut connection)?;
        }
        let of_part = match place {
            Place::Here(_) => {
                let folder = &connection.welcome().log_folder;
                if folder.is_empty() {
                    return Err(Failure::invalid(
                        "this dataflow writes no logs: it was started with `--no-logs`",
                    ));
                }
                let found = read(Path::new(folder), filter)?;
                collected.nodes.extend(found.nodes);
                found.records
            }
            Place::There { machine, keeper } => fetch(machine, *keeper, filter)?,
        };
        let last = of_part.iter().map(|record| record.utc_nanos).max();
        collected.records.extend(of_part);
        collected.followed.push((connection, last.unwrap_or(0)));
    }
    if collected.followed.is_empty() {
        return Err(not_reached(&found.dataflow, &collected.unreachable));
    }
    let nodes = collected.records.iter().map(|record| record.node.clone());
    collected.nodes.extend(nodes);
    Ok(collected)
}

fn show_all(mut records: Vec<LogRecord>, as_json: bool) -> Result<(), Failure> {
    records.sort_by_key(|record| record.utc_nanos);
    records.iter().try_for_each(|record| show(record, as_json))
}

/// The records of a part on another machine, which filters them.
fn fetch(machine: &str, keeper: u32, filter: &Filter<'_>) -> Result<Vec<LogRecord>, Failure> {
    let mut daemon = daemon("logs")?;
    daemon.send(&cli_to_daemon::Message::Ask {
        machine: machine.to_owned(),
        request: Request::Logs {
            keeper,
            filter: LogFilter {
                nodes: filter.nodes.to_vec(),
                level: filter.level,
                pattern: filter.pattern.map(|it| it.as_str().to_owned()),
                since_utc_nanos: filter.since_utc_nanos,
            },
        },
    })?;
    let mut records = Vec::new();
    loop {
        match next_answer(&mut daemon)?.0 {
            Answer::Records { records: more } => records.extend(more),
            Answer::Omitted { records } => {
                note!("{records} older lines of {machine} are left out; `--since` limits the time");
            }
            Answer::Done => return Ok(records),
            _ => {}
        }
    }
}

/// The log records in a folder that pass a filter of another machine, by time.
#[cfg(feature = "fleet")]
pub fn read_for_other(folder: &Path, filter: &LogFilter) -> Result<Vec<LogRecord>, String> {
    let pattern = filter.pattern.as_deref().map(Regex::new).transpose();
    let pattern = pattern.map_err(|error| error.to_string())?;
    let filter = Filter {
        nodes: &filter.nodes,
        level: filter.level,
        pattern: pattern.as_ref(),
        since_utc_nanos: filter.since_utc_nanos,
    };
    let found = read(folder, &filter).map_err(|failure| failure.to_string())?;
    let mut records = found.records;
    records.sort_by_key(|record| record.utc_nanos);
    Ok(records)
}

/// Selects records.
pub struct Filter<'a> {
    pub nodes: &'a [String],
    pub level: Level,
    pub pattern: Option<&'a Regex>,
    pub since_utc_nanos: i64,
}

impl<'a> Filter<'a> {
    fn new(arguments: &'a LogsArguments) -> Self {
        let since = |since: Duration| {
            nervure_shm::utc_nanos()
                .saturating_sub(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
        };
        Self {
            nodes: &arguments.node,
            level: arguments.level.into(),
            pattern: arguments.grep.as_ref(),
            since_utc_nanos: arguments.since.map_or(i64::MIN, since),
        }
    }

    fn wants(&self, record: &LogRecord) -> bool {
        record.level >= self.level
            && record.utc_nanos >= self.since_utc_nanos
            && (self.nodes.is_empty() || self.nodes.contains(&record.node))
            && self
                .pattern
                .is_none_or(|pattern| pattern.is_match(&record.text))
    }
}

fn subscribe(connection: &mut Connection) -> Result<(), Failure> {
    connection.send(&cli_to_keeper::Message::Watch(Watch {
        logs: true,
        follow: true,
        without_observers: false,
    }))?;
    loop {
        match connection.receive_until(Instant::now() + running::KEEPER_ANSWER_TIMEOUT)? {
            Some((keeper_to_cli::Message::SnapshotComplete, _)) => return Ok(()),
            Some((keeper_to_cli::Message::Refused(refused), _)) => {
                return Err(ConnectionError::Refused(refused).into());
            }
            Some(_) => {}
            None => {
                return Err(Failure::internal(
                    "the keeper does not answer a request for the state of its dataflow",
                ));
            }
        }
    }
}

/// Shows records of each part that are newer than its files. Ends when all parts have ended.
fn follow_records(
    followed: Vec<(Connection, i64)>,
    filter: &Filter<'_>,
    as_json: bool,
) -> Result<(), Failure> {
    let (sender, records) = channel();
    for (connection, last_utc_nanos) in followed {
        let sender = sender.clone();
        threads::spawn(move || pass_on(connection, last_utc_nanos, &sender))?;
    }
    drop(sender);
    for record in records {
        let record = record?;
        if filter.wants(&record) {
            show(&record, as_json)?;
        }
    }
    Ok(())
}

fn pass_on(
    mut connection: Connection,
    last_utc_nanos: i64,
    sender: &Sender<Result<LogRecord, ConnectionError>>,
) {
    const A_WHILE: Duration = Duration::from_secs(3600);
    loop {
        let sent = match connection.receive_until(Instant::now() + A_WHILE) {
            Ok(Some((
                keeper_to_cli::Message::Report {
                    report: Report::Log(record),
                },
                _,
            ))) if record.utc_nanos > last_utc_nanos => sender.send(Ok(record)),
            Ok(_) => Ok(()),
            Err(ConnectionError::Gone(_)) => return,
            Err(error) => {
                drop(sender.send(Err(error)));
                return;
            }
        };
        if sent.is_err() {
            return;
        }
    }
}

fn show(record: &LogRecord, as_json: bool) -> Result<(), Failure> {
    output::write_or_end(&match as_json {
        true => serde_json::to_string(record).expect("a record has text keys only") + "\n",
        false => line(record),
    })
}

/// `09:15:00.123 camera  | 30 frames`, with the level of warnings and errors if the text does not
/// name it.
fn line(record: &LogRecord) -> String {
    let (name, text) = record_line(record);
    let level = match record.level {
        Level::Error if !has_word(&text, &["ERROR", "CRITICAL", "FATAL"]) => "ERROR ",
        Level::Warn if !has_word(&text, &["WARN", "WARNING"]) => "WARN ",
        _ => "",
    };
    format!(
        "{} {name:10} | {level}{text}\n",
        format::utc_time(record.utc_nanos)
    )
}

fn has_word(text: &str, words: &[&str]) -> bool {
    text.split(|letter: char| !letter.is_ascii_alphanumeric())
        .any(|word| words.contains(&word))
}

/// The contents of the log files of a run.
struct LogFiles {
    /// The selected records.
    records: Vec<LogRecord>,
    /// All nodes with a record, selected or not.
    nodes: BTreeSet<String>,
}

/// Fails for a name without a node. Asks the keeper too: a running node may not have written
/// anything yet.
fn check_nodes(
    wanted: &[String],
    mut known: BTreeSet<String>,
    running: Option<&Found>,
) -> Result<(), Failure> {
    if wanted.iter().all(|name| known.contains(name)) {
        return Ok(());
    }
    if let Some(found) = running {
        let state = State::open(found, "logs", false)?;
        for away in &state.unreachable {
            known.extend(away.nodes.keys().cloned());
        }
        known.extend(state.nodes.into_values().map(|node| node.declared.id));
    }
    let Some(unknown) = wanted
        .iter()
        .find(|name| *name != KEEPER && !known.contains(*name))
    else {
        return Ok(());
    };
    let nodes = known
        .iter()
        .map(String::as_str)
        .filter(|name| *name != KEEPER);
    let hint = did_you_mean(unknown, "its nodes are", nodes);
    Err(Failure::missing(format!("there is no node `{unknown}`")).hint(hint))
}

/// Reads every file of a run.
fn read(folder: &Path, filter: &Filter<'_>) -> Result<LogFiles, Failure> {
    let unreadable = |path: &Path, error: io::Error| {
        Failure::internal(format!("cannot read `{}`", path.display())).because(error)
    };
    let mut found = LogFiles {
        records: Vec::new(),
        nodes: BTreeSet::new(),
    };
    for entry in fs::read_dir(folder).map_err(|error| unreadable(folder, error))? {
        let path = entry.map_err(|error| unreadable(folder, error))?.path();
        if path
            .extension()
            .is_none_or(|extension| extension != "jsonl")
        {
            continue;
        }
        let file = BufReader::new(File::open(&path).map_err(|error| unreadable(&path, error))?);
        for line in file.split(b'\n') {
            let line = line.map_err(|error| unreadable(&path, error))?;
            // The last line of a run that was killed may be incomplete.
            if let Ok(record) = serde_json::from_slice::<LogRecord>(&line) {
                if !found.nodes.contains(&record.node) {
                    found.nodes.insert(record.node.clone());
                }
                if filter.wants(&record) {
                    found.records.push(record);
                }
            }
        }
    }
    Ok(found)
}

/// The folder of the last run, of the named dataflow or of any.
fn last_folder(dataflow: Option<&str>) -> Result<PathBuf, Failure> {
    let none = || {
        Failure::invalid(match dataflow {
            Some(name) => format!("there are no logs of dataflow `{name}`"),
            None => "there are no logs".to_owned(),
        })
        .hint(
            "run a dataflow with `nervure run FILE`; set NERVURE_LOG_DIR if its logs are elsewhere",
        )
    };
    let root = log_folder::root().map_err(|why| none().because(why))?;
    let dataflows = match dataflow {
        Some(name) => vec![root.join(name)],
        None => folders_in(&root),
    };
    let runs = dataflows.iter().flat_map(|dataflow| folders_in(dataflow));
    // The names of the folders begin with the start time.
    runs.max_by_key(|run| run.file_name().map(ToOwned::to_owned))
        .ok_or_else(none)
}

fn folders_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(Result::ok);
    entries
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(utc_nanos: i64, node: &str, level: Level, text: &str) -> LogRecord {
        let (node, stream) = (node.to_owned(), "stdout".to_owned());
        LogRecord {
            utc_nanos,
            node,
            level,
            stream,
            text: text.to_owned(),
        }
    }

    #[test]
    fn a_record_must_pass_all_filters() {
        let nodes = ["camera".to_owned()];
        let pattern = Regex::new("los[ts]$").unwrap();
        let (nodes, pattern) = (&nodes[..], Some(&pattern));
        let filter = Filter {
            nodes,
            level: Level::Warn,
            pattern,
            since_utc_nanos: 100,
        };
        assert!(filter.wants(&record(100, "camera", Level::Error, "frame lost")));
        assert!(!filter.wants(&record(99, "camera", Level::Error, "frame lost")));
        assert!(!filter.wants(&record(100, "imu", Level::Error, "frame lost")));
        assert!(!filter.wants(&record(100, "camera", Level::Info, "frame lost")));
        assert!(!filter.wants(&record(100, "camera", Level::Error, "frame")));
    }

    #[test]
    fn an_incomplete_line_is_skipped() {
        let folder = tempfile::tempdir().unwrap();
        let whole = serde_json::to_string(&record(1, "camera", Level::Info, "one")).unwrap();
        fs::write(
            folder.path().join("camera.jsonl"),
            format!("{whole}\n{}", &whole[..20]),
        )
        .unwrap();
        fs::write(folder.path().join("notes.txt"), "no log").unwrap();
        let filter = Filter {
            nodes: &[],
            level: Level::Trace,
            pattern: None,
            since_utc_nanos: i64::MIN,
        };
        assert_eq!(read(folder.path(), &filter).unwrap().records.len(), 1);
    }

    #[test]
    fn lines_have_time_node_and_level() {
        assert_eq!(
            line(&record(
                1_773_479_700_123_000_000,
                "camera",
                Level::Warn,
                "dark\x1b[2J"
            )),
            "09:15:00.123 camera     | WARN dark\n"
        );
        for (level, text) in [
            (Level::Warn, "WARNING: dark"),
            (Level::Warn, "[2026-01-31 WARN camera] dark"),
            (Level::Error, "FATAL: gone"),
        ] {
            let shown = line(&record(1_773_479_700_123_000_000, "camera", level, text));
            assert_eq!(shown, format!("09:15:00.123 camera     | {text}\n"));
        }
        let shown = line(&record(0, "camera", Level::Error, "no WARNING before"));
        assert_eq!(shown, "00:00:00.000 camera     | ERROR no WARNING before\n");
    }
}
