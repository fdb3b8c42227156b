//! `nervure logs`: shows the log files of a run, and follows them.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use regex_lite::Regex;

use nervure_node::running::{self, Connection, ConnectionError};
use nervure_protocol::{
    cli_to_keeper::{self, Watch},
    did_you_mean, keeper_to_cli,
    report::{Level, LogRecord, Report},
};

use super::{arguments::LogsArguments, connect_to, state::State};
use crate::{
    failure::Failure,
    format, output,
    run::{display::record_line, log_folder},
};

/// The node id of the keeper's own records.
const KEEPER: &str = "nervure";

/// Shows the records of a run, ordered by time.
pub fn logs(arguments: &LogsArguments) -> Result<ExitCode, Failure> {
    let name = running::named(arguments.target.dataflow.as_deref());
    let name = name.as_deref();
    let (folder, connection) = match running::find(name) {
        Ok(address) => {
            let mut connection = connect_to(&address, "logs")?;
            if arguments.follow {
                // Subscribes before the files are read, so that no record is missed in between.
                subscribe(&mut connection)?;
            }
            (
                PathBuf::from(&connection.welcome().log_folder),
                Some(connection),
            )
        }
        Err(error @ (ConnectionError::NoneRuns | ConnectionError::NotRunning { .. })) => {
            if arguments.follow {
                return Err(error.into());
            }
            (last_folder(name)?, None)
        }
        Err(error) => return Err(error.into()),
    };
    if folder.as_os_str().is_empty() {
        return Err(Failure::invalid(
            "this dataflow writes no logs: it was started with `--no-logs`",
        ));
    }
    let filter = Filter::new(arguments);
    let Found { mut records, nodes } = read(&folder, &filter)?;
    check_nodes(&arguments.node, nodes, connection.as_ref())?;
    records.sort_by_key(|record| record.utc_nanos);
    let mut last = 0;
    for record in &records {
        last = record.utc_nanos;
        show(record, arguments.target.json)?;
    }
    if let Some(connection) = connection.filter(|_| arguments.follow) {
        follow_records(connection, &filter, last, arguments.target.json)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Selects records.
struct Filter<'a> {
    nodes: &'a [String],
    level: Level,
    pattern: Option<&'a Regex>,
    since_utc_nanos: i64,
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
        match connection.receive_until(Instant::now() + running::PATIENCE)? {
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

/// Shows records that are newer than those of the files.
fn follow_records(
    mut connection: Connection,
    filter: &Filter<'_>,
    last_utc_nanos: i64,
    as_json: bool,
) -> Result<(), Failure> {
    const A_WHILE: Duration = Duration::from_secs(3600);
    loop {
        match connection.receive_until(Instant::now() + A_WHILE) {
            Ok(Some((
                keeper_to_cli::Message::Report {
                    report: Report::Log(record),
                },
                _,
            ))) => {
                if record.utc_nanos > last_utc_nanos && filter.wants(&record) {
                    show(&record, as_json)?;
                }
            }
            Ok(_) => {}
            Err(ConnectionError::Gone(_)) => return Ok(()),
            Err(error) => return Err(error.into()),
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
struct Found {
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
    connection: Option<&Connection>,
) -> Result<(), Failure> {
    if wanted.iter().all(|name| known.contains(name)) {
        return Ok(());
    }
    if let Some(connection) = connection {
        let state = State::open(connect_to(connection.address(), "logs")?, false)?;
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
    Err(Failure::invalid(format!("there is no node `{unknown}`")).hint(hint))
}

/// Reads every file of a run.
fn read(folder: &Path, filter: &Filter<'_>) -> Result<Found, Failure> {
    let unreadable = |path: &Path, error: io::Error| {
        Failure::internal(format!("cannot read `{}`", path.display())).because(error)
    };
    let mut found = Found {
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
