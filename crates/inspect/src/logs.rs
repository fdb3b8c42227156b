//! The log records of a run, from its files and its keepers.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, BufRead, BufReader},
    path::Path,
    sync::mpsc::{Receiver, Sender, channel},
    time::{Duration, Instant},
};

use nervure_node::running::{self, Connection, ConnectionError};
use nervure_protocol::{
    cli_to_daemon,
    cli_to_keeper::{self, Watch},
    daemon_to_daemon::{Answer, LogFilter, Request},
    keeper_to_cli,
    report::{Level, LogRecord, Report},
};
use regex_lite::Regex;

use crate::{
    Error, Fault, State,
    answers::Logs,
    daemon,
    observing::next_answer,
    places::{self, Found, PartKeeper, Place, Unreachable},
    state::not_reached,
    threads,
};

/// The node id of the keeper's own records.
const KEEPER: &str = "nervure";

/// The newest records of a running dataflow, at most `most`.
///
/// # Errors
/// If the dataflow cannot be found or reached, has no logs, or has no node of a name in the filter.
pub fn logs(dataflow: &str, filter: &Filter<'_>, most: usize) -> Result<Logs, Error> {
    let found = places::find(Some(dataflow))?;
    let collected = collect(&found, filter, false)?;
    check_nodes(filter.nodes, collected.nodes, Some(&found))?;
    let mut records = collected.records;
    records.sort_by_key(|record| record.utc_nanos);
    let omitted_here = records.len().saturating_sub(most);
    records.drain(..omitted_here);
    let omitted_there: u64 = collected.omitted.iter().map(|(_, records)| records).sum();
    let unreachable = collected.unreachable.into_iter();
    Ok(Logs {
        dataflow: found.dataflow,
        records,
        omitted: omitted_here + omitted_there as usize,
        unreachable: unreachable.map(|away| away.machine).collect(),
    })
}

/// The records of a running dataflow.
#[derive(Debug)]
pub struct Collected {
    /// The selected records, part after part.
    pub records: Vec<LogRecord>,
    /// All nodes with a record. Of parts on other machines: those with a selected one.
    pub nodes: BTreeSet<String>,
    /// Connections for later records.
    pub followed: Vec<Followed>,
    /// Machines that left out older records, with their number.
    pub omitted: Vec<(String, u64)>,
    /// Machines that cannot be reached.
    pub unreachable: Vec<Unreachable>,
}

/// A part whose later records are awaited.
#[derive(Debug)]
pub struct Followed {
    connection: Connection,
    /// The time of the last known record.
    last_utc_nanos: i64,
}

/// Collects the records of all parts. With `follow`, their keepers report later ones.
///
/// # Errors
/// If no part can be reached, or one that can be has no logs.
pub fn collect(found: &Found, filter: &Filter<'_>, follow: bool) -> Result<Collected, Error> {
    let mut collected = Collected {
        records: Vec::new(),
        nodes: BTreeSet::new(),
        followed: Vec::new(),
        omitted: Vec::new(),
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
                    return Err(Error::NoLogs);
                }
                let found = read(Path::new(folder), filter)?;
                collected.nodes.extend(found.nodes);
                found.records
            }
            Place::There { machine, keeper } => {
                let (records, omitted) = fetch(machine, *keeper, filter)?;
                let omitted = (omitted > 0).then(|| (machine.clone(), omitted));
                collected.omitted.extend(omitted);
                records
            }
        };
        let last = of_part.iter().map(|record| record.utc_nanos).max();
        collected.records.extend(of_part);
        collected.followed.push(Followed {
            connection,
            last_utc_nanos: last.unwrap_or(0),
        });
    }
    if collected.followed.is_empty() {
        return Err(not_reached(&found.dataflow, &collected.unreachable));
    }
    let nodes = collected.records.iter().map(|record| record.node.clone());
    collected.nodes.extend(nodes);
    Ok(collected)
}

/// Selects records.
#[derive(Debug)]
pub struct Filter<'a> {
    /// Of these nodes; of all if it is empty.
    pub nodes: &'a [String],
    /// Of this level or above.
    pub level: Level,
    /// With a text that matches.
    pub pattern: Option<&'a Regex>,
    /// Not older than this.
    pub since_utc_nanos: i64,
}

impl Filter<'_> {
    /// Whether it selects a record.
    pub fn wants(&self, record: &LogRecord) -> bool {
        record.level >= self.level
            && record.utc_nanos >= self.since_utc_nanos
            && (self.nodes.is_empty() || self.nodes.contains(&record.node))
            && self
                .pattern
                .is_none_or(|pattern| pattern.is_match(&record.text))
    }
}

/// Later records of the parts, each part's from a thread. Ends when all parts have ended.
///
/// # Errors
/// If the system refuses a thread.
pub fn follow(
    followed: Vec<Followed>,
) -> Result<Receiver<Result<LogRecord, ConnectionError>>, Error> {
    let (sender, records) = channel();
    for Followed {
        connection,
        last_utc_nanos,
    } in followed
    {
        let sender = sender.clone();
        threads::spawn(move || pass_on(connection, last_utc_nanos, &sender))?;
    }
    Ok(records)
}

/// The records of a part on another machine, which filters them, and the number of older ones that it
/// left out.
fn fetch(machine: &str, keeper: u32, filter: &Filter<'_>) -> Result<(Vec<LogRecord>, u64), Error> {
    let mut daemon = daemon::connect("logs")?;
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
    let (mut records, mut omitted) = (Vec::new(), 0);
    loop {
        match next_answer(&mut daemon)?.0 {
            Answer::Records { records: more } => records.extend(more),
            Answer::Omitted { records } => omitted += records,
            Answer::Done => return Ok((records, omitted)),
            _ => {}
        }
    }
}

/// The log records in a folder that pass a filter of another machine, by time.
///
/// # Errors
/// The text for the other machine, if a file cannot be read or the pattern is invalid.
pub fn read_for_other(folder: &Path, filter: &LogFilter) -> Result<Vec<LogRecord>, String> {
    let pattern = filter.pattern.as_deref().map(Regex::new).transpose();
    let pattern = pattern.map_err(|error| error.to_string())?;
    let filter = Filter {
        nodes: &filter.nodes,
        level: filter.level,
        pattern: pattern.as_ref(),
        since_utc_nanos: filter.since_utc_nanos,
    };
    let found = read(folder, &filter).map_err(|error| error.text_with_causes())?;
    let mut records = found.records;
    records.sort_by_key(|record| record.utc_nanos);
    Ok(records)
}

fn subscribe(connection: &mut Connection) -> Result<(), Error> {
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
            None => return Err(Error::NoState),
        }
    }
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

/// The contents of the log files of a run.
#[derive(Debug)]
pub struct LogFiles {
    /// The selected records.
    pub records: Vec<LogRecord>,
    /// All nodes with a record, selected or not.
    pub nodes: BTreeSet<String>,
}

/// Checks that there is a node of each name. Asks the keeper too: a running node may not have written
/// anything yet.
///
/// # Errors
/// For a name without a node.
pub fn check_nodes(
    wanted: &[String],
    mut known: BTreeSet<String>,
    running: Option<&Found>,
) -> Result<(), Error> {
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
    let nodes = known.iter().filter(|name| *name != KEEPER);
    Err(Error::NoNode {
        node: unknown.clone(),
        nodes: nodes.cloned().collect(),
    })
}

/// Reads every file of a run.
///
/// # Errors
/// If the folder or a file cannot be read.
pub fn read(folder: &Path, filter: &Filter<'_>) -> Result<LogFiles, Error> {
    let unreadable = |path: &Path, source: io::Error| Error::Logs {
        path: path.to_owned(),
        source,
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
}
