//! `nervure logs`: shows the log files of a run, and follows them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use nervure_inspect::{
    logs::{Filter, Followed, check_nodes, collect, follow, read},
    places,
};
use nervure_launch::log_folder;
use nervure_node::running::{self, ConnectionError};
use nervure_protocol::report::{Level, LogRecord};

use super::arguments::LogsArguments;
use crate::{
    failure::{Failure, INTERNAL},
    output,
    run::display::record_line,
    times,
};

/// Shows the records of a run on all its machines, ordered by time.
pub fn logs(arguments: &LogsArguments) -> Result<ExitCode, Failure> {
    let name = running::named(arguments.target.dataflow.as_deref());
    let name = name.as_deref();
    let filter = filter_of(arguments);
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
    for (machine, records) in &collected.omitted {
        note!("{records} older lines of {machine} are left out; `--since` limits the time");
    }
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

fn filter_of(arguments: &LogsArguments) -> Filter<'_> {
    let since = |since: Duration| {
        nervure_shm::utc_nanos().saturating_sub(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
    };
    Filter {
        nodes: &arguments.node,
        level: arguments.level.into(),
        pattern: arguments.grep.as_ref(),
        since_utc_nanos: arguments.since.map_or(i64::MIN, since),
    }
}

fn show_all(mut records: Vec<LogRecord>, as_json: bool) -> Result<(), Failure> {
    records.sort_by_key(|record| record.utc_nanos);
    records.iter().try_for_each(|record| show(record, as_json))
}

/// Shows records of each part that are newer than its files. Ends when all parts have ended.
fn follow_records(
    followed: Vec<Followed>,
    filter: &Filter<'_>,
    as_json: bool,
) -> Result<(), Failure> {
    for record in follow(followed)? {
        let record = record?;
        if filter.wants(&record) {
            show(&record, as_json)?;
        }
    }
    Ok(())
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
        times::utc_time(record.utc_nanos)
    )
}

fn has_word(text: &str, words: &[&str]) -> bool {
    text.split(|letter: char| !letter.is_ascii_alphanumeric())
        .any(|word| words.contains(&word))
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
