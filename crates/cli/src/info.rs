//! `nervure info`: shows the contents of a recording.

use std::{path::PathBuf, process::ExitCode};

use nervure_inspect::format::count;
use nervure_recorder::{
    CutShort, DefinitionOrigin, Definitions, End, Overview, ReadError, Recording, TopicOverview,
};
use serde_json::json;

use crate::{
    failure::{Failure, IMPERFECT},
    output,
    record::arguments::InfoArguments,
    table::{Align, Table},
    times,
};

/// Prints the contents and the damage of a recording.
pub fn info(arguments: &InfoArguments) -> Result<ExitCode, Failure> {
    let InfoArguments {
        files,
        definitions,
        quick,
        json: as_json,
    } = arguments;
    let recording = open(files, definitions)?;
    let overview = if *quick {
        recording.overview()
    } else {
        recording.checked_overview()
    };
    let text = if *as_json {
        format!("{}\n", json(&recording, &overview))
    } else {
        plain(&recording, &overview)
    };
    output::write(&text)?;
    let is_whole = damages(&recording, &overview).is_empty();
    Ok(if is_whole {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(IMPERFECT)
    })
}

/// Descriptions of the parts of a recording that cannot be read.
pub fn damages(recording: &Recording, overview: &Overview) -> Vec<String> {
    let cut_short = recording.cut_short().map(
        |CutShort {
             path,
             at,
             what,
             unreadable_bytes,
         }| {
            let unreadable = match unreadable_bytes {
                0 => String::new(),
                bytes => format!("; the last {bytes} bytes cannot be read"),
            };
            format!(
                "{} was cut short at byte {at}: {what}{unreadable}",
                path.display()
            )
        },
    );
    let damaged = overview
        .damaged
        .iter()
        .map(|damage| format!("damaged: {damage}"));
    let left_out = recording.left_out().iter().cloned();
    left_out.chain(cut_short).chain(damaged).collect()
}

/// Opens a recording of one or several files that the user named, with definitions in folders.
pub fn open(files: &[PathBuf], definitions: &[PathBuf]) -> Result<Recording, Failure> {
    let mut known = Definitions::default();
    for folder in definitions {
        known
            .add_folder(folder)
            .map_err(|error| Failure::invalid(format!("`--definitions`: {error}")))?;
    }
    let mut recording = Recording::open_all(files).map_err(|error| {
        let failure = Failure::invalid(error.to_string());
        match error {
            ReadError::NotRecording { .. } => {
                failure.hint("`nervure record` makes recordings, `ros2 bag record` makes bags")
            }
            _ => failure,
        }
    })?;
    recording.define(known);
    Ok(recording)
}

fn plain(recording: &Recording, overview: &Overview) -> String {
    let messages: u64 = overview.topics.iter().map(|topic| topic.messages).sum();
    let mut text = format!(
        "{}: {}, {:.1} s, {:.1} MB\n",
        recording.name(),
        count(messages as usize, "sample"),
        seconds(overview),
        recording.bytes() as f64 / 1e6
    );
    if let Some((first, _)) = overview.times {
        text += &format!(
            "begins {}, written by {}\n",
            times::local_time(i64::try_from(first).unwrap_or(i64::MAX)),
            library(recording)
        );
    }
    if recording.is_growing() {
        text += "a recorder is still writing to it\n";
    }
    let notes = recording.notes().iter().cloned();
    for line in notes.chain(damages(recording, overview)) {
        text += &format!("{line}\n");
    }
    text + &topic_table(overview).render(None)
}

/// The table of topics. For messages of other recorders it has a column with the types that they
/// are played as.
fn topic_table(overview: &Overview) -> Table {
    let has_foreign = overview
        .topics
        .iter()
        .any(|topic| !topic.becomes.is_empty());
    let mut columns = vec![
        ("topic", Align::Left),
        ("type", Align::Left),
        ("schema", Align::Left),
        ("samples", Align::Right),
        ("hz", Align::Right),
        ("lost", Align::Right),
    ];
    columns.extend(has_foreign.then_some(("played as", Align::Left)));
    let mut table = Table::new(&columns);
    let dash = || "-".to_owned();
    for topic in &overview.topics {
        let mut row = vec![
            topic.topic.clone(),
            topic.type_name.clone().unwrap_or_else(dash),
            topic.schemas.join(", "),
            topic.messages.to_string(),
            rate(topic.messages, overview).map_or_else(dash, |rate| format!("{rate:.1}")),
            topic.lost.map_or_else(dash, |lost| lost.to_string()),
        ];
        row.extend(has_foreign.then(|| match topic.becomes.as_slice() {
            [] => "as recorded".to_owned(),
            becomes => played_as(topic, becomes),
        }));
        table.row(row);
    }
    table
}

/// Types in which a topic is played, with the source of a definition that is not the recording's.
fn played_as(topic: &TopicOverview, becomes: &[String]) -> String {
    let others = topic
        .definitions
        .iter()
        .filter(|origin| **origin != DefinitionOrigin::Recording);
    let others: Vec<_> = others
        .map(|origin| format!(" by {}", short(*origin)))
        .collect();
    format!("{}{}", becomes.join(", "), others.concat())
}

fn short(origin: DefinitionOrigin) -> &'static str {
    match origin {
        DefinitionOrigin::Recording => "recording",
        DefinitionOrigin::Files => "--definitions",
        DefinitionOrigin::Humble => "ROS 2 Humble",
    }
}

fn json(recording: &Recording, overview: &Overview) -> serde_json::Value {
    let topics: Vec<_> = overview
        .topics
        .iter()
        .map(|topic| {
            json!({
                "topic": topic.topic,
                "type": topic.type_name,
                "schemas": topic.schemas,
                "samples": topic.messages,
                "rate_hz": rate(topic.messages, overview),
                "lost": topic.lost,
                "missing": topic.missing,
                "recorded_by_nervure": topic.holds_samples,
                "played_as": topic.becomes,
                "definitions": topic.definitions.iter().map(|origin| short(*origin)).collect::<Vec<_>>(),
            })
        })
        .collect();
    let (is_complete, cut_short) = match recording.end() {
        End::Complete => (true, None),
        End::Growing { .. } => (false, None),
        End::CutShort { at, what } => (false, Some(json!({"at_byte": at, "what": what}))),
    };
    json!({
        "file": recording.name(),
        "bytes": recording.bytes(),
        "library": recording.library(),
        "is_complete": is_complete && recording.left_out().is_empty(),
        "is_growing": recording.is_growing(),
        "cut_short": cut_short,
        "unreadable_bytes": recording.cut_short().map(|file| file.unreadable_bytes).sum::<u64>(),
        "left_out": recording.left_out(),
        "notes": recording.notes(),
        "damaged": overview.damaged,
        "begin_utc_nanos": overview.times.map(|(first, _)| first),
        "end_utc_nanos": overview.times.map(|(_, last)| last),
        "topics": topics,
    })
}

fn library(recording: &Recording) -> &str {
    Some(recording.library())
        .filter(|name| !name.is_empty())
        .unwrap_or("an unknown program")
}

fn seconds(overview: &Overview) -> f64 {
    overview
        .times
        .map_or(0.0, |(first, last)| (last - first) as f64 / 1e9)
}

/// Messages per second; `None` for fewer than two messages.
fn rate(messages: u64, overview: &Overview) -> Option<f64> {
    let seconds = seconds(overview);
    (messages > 1 && seconds > 0.0).then(|| (messages - 1) as f64 / seconds)
}
