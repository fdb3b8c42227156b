//! Recordings of running dataflows.
//!
//! Each is `nervure record` in a process of its own, which continues when this server ends: until then
//! it can be stopped here, afterwards with the dataflow or by a signal.

use std::{
    io::{self, BufRead, BufReader, Read},
    os::unix::process::CommandExt,
    process::Child,
    sync::Arc,
};

use axum::{
    Json,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse, Response},
};
use nervure_inspect::{INVALID, answers::ErrorAnswer, places, threads};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::{sync::watch, task::spawn_blocking};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    Error, child,
    common::{Checked, OfDataflow, Shared, failed, refused},
    orders::Body,
    recorders::{Entry, Recording, Recordings},
};

/// Recordings at a time.
const MAX_RUNNING: usize = 8;

/// The longest output of `nervure record` that is kept.
const MAX_SUMMARY_BYTES: u64 = 1 << 20;

/// The routes.
pub fn router() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::new()
        .routes(routes!(record))
        .routes(routes!(list_recordings))
        .routes(routes!(stop_recording))
}

/// Record topics of a dataflow in an MCAP file, as `nervure record`
#[utoipa::path(post, path = "/v1/dataflows/{dataflow}/recordings", params(OfDataflow), request_body = Record, responses(
    (status = 200, description = "It records", body = Recording),
    (status = "default", description = "An error", body = ErrorAnswer),
))]
async fn record(
    State(shared): State<Arc<Shared>>,
    Checked(of): Checked<Path<OfDataflow>>,
    body: Body<Record>,
) -> Response {
    let record = body.0;
    if !record.file.starts_with('/') {
        return failed(&Error::Relative(record.file));
    }
    let Ok(permit) = Arc::clone(&shared.orders).try_acquire_owned() else {
        return refused(StatusCode::SERVICE_UNAVAILABLE, &Error::Busy);
    };
    if shared.recordings.running() >= MAX_RUNNING {
        let error = Error::ManyRecordings(MAX_RUNNING);
        return refused(StatusCode::SERVICE_UNAVAILABLE, &error);
    }
    let started = spawn_blocking(move || {
        let _permit = permit;
        places::find(Some(&of.dataflow))?;
        start(&shared.recordings, of.dataflow, record)
    });
    let started = started.await;
    answer(started.unwrap_or_else(|_| Err(Error::Panicked)))
}

/// List the recordings that this server has started: those that run, and the last ones that have ended
#[utoipa::path(get, path = "/v1/recordings", responses(
    (status = 200, description = "The recordings", body = ListedRecordings),
    (status = "default", description = "An error", body = ErrorAnswer),
))]
async fn list_recordings(State(shared): State<Arc<Shared>>) -> Response {
    let entries = shared.recordings.lock();
    let recordings = entries.values().map(Entry::shown).collect();
    Json(ListedRecordings { recordings }).into_response()
}

/// End a recording, and wait until its file is complete
#[utoipa::path(post, path = "/v1/recordings/{recording}/stop", params(OfRecording), responses(
    (status = 200, description = "It has ended", body = Recording),
    (status = "default", description = "An error", body = ErrorAnswer),
))]
async fn stop_recording(
    State(shared): State<Arc<Shared>>,
    Checked(of): Checked<Path<OfRecording>>,
) -> Response {
    let found = {
        let entries = shared.recordings.lock();
        let entry = entries.get(&of.recording);
        entry.map(|entry| {
            entry.handle.signal(Signal::INT);
            entry.end.clone()
        })
    };
    let Some(mut end) = found else {
        return failed(&Error::NoRecording(of.recording));
    };
    // Its thread sends the end in any case.
    let _ = end.wait_for(Option::is_some).await;
    let entries = shared.recordings.lock();
    match entries.get(&of.recording) {
        Some(entry) => Json(entry.shown()).into_response(),
        None => failed(&Error::RecordingGone),
    }
}

/// A recording to start.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct Record {
    /// Topics, `node/output`; `*` matches anything. Default: all.
    #[serde(default)]
    topics: Vec<String>,
    /// The absolute path of the file on the machine of the server, which must not exist; `{time}` is the
    /// start in UTC, `{name}` the dataflow.
    file: String,
    /// Start a new numbered file before one exceeds this size, such as `1GB`, or age, such as `10min`.
    split: Option<String>,
    /// Delete the oldest files when all of them together exceed this size. Needs `split`.
    max_disk: Option<String>,
    /// Compress with LZ4.
    #[serde(default)]
    compress: bool,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
struct OfRecording {
    /// The process of the recording.
    recording: u32,
}

#[derive(Debug, Serialize, ToSchema)]
struct ListedRecordings {
    recordings: Vec<Recording>,
}

/// Starts `nervure record`, and waits until it records.
fn start(recordings: &Recordings, dataflow: String, record: Record) -> Result<Recording, Error> {
    let mut child = child::command(&arguments(&dataflow, &record))
        // It continues when this server ends.
        .process_group(0)
        .spawn()
        .map_err(Error::Command)?;
    let handle = child::handle(&child).map_err(Error::Command)?;
    let stderr = child.stderr.take();
    let mut notes =
        BufReader::new(stderr.ok_or_else(|| Error::Command(io::Error::other("no pipe")))?).lines();
    let records = notes.any(|line| line.is_ok_and(|line| line.starts_with(RECORDS)));
    if !records {
        return Err(refusal(&last_line(&mut child)));
    }
    let recording = Recording {
        recording: child.id(),
        dataflow,
        topics: record.topics,
        file: record.file,
        is_running: true,
        summary: None,
    };
    let (sender, end) = watch::channel(None);
    // Both pipes are read, so that it never waits for room in one.
    let read_notes = move || notes.for_each(drop);
    let read_summary = move || {
        let line = last_line(&mut child);
        let summary = serde_json::from_str(&line).unwrap_or(Value::from(line));
        sender.send_replace(Some(summary));
    };
    let started = threads::spawn(read_notes).and_then(|_| threads::spawn(read_summary));
    if let Err(error) = started {
        handle.signal(Signal::KILL);
        return Err(error.into());
    }
    recordings.insert(Entry {
        recording: recording.clone(),
        handle,
        end,
    });
    Ok(recording)
}

/// Begin of the note by which `nervure record` reports that it records.
const RECORDS: &str = "recording ";

fn arguments(dataflow: &str, record: &Record) -> Vec<String> {
    let mut arguments = vec!["record".to_owned(), "--json".to_owned()];
    arguments.push(format!("--dataflow={dataflow}"));
    arguments.push(format!("--output={}", record.file));
    let split = record.split.iter();
    arguments.extend(split.map(|split| format!("--split={split}")));
    let max_disk = record.max_disk.iter();
    arguments.extend(max_disk.map(|most| format!("--max-disk={most}")));
    arguments.extend(record.compress.then(|| "--compress".to_owned()));
    arguments.push("--".to_owned());
    arguments.extend(record.topics.iter().cloned());
    arguments
}

/// The last line that the command writes until it has ended.
fn last_line(child: &mut Child) -> String {
    let mut text = String::new();
    if let Some(mut stdout) = child.stdout.take() {
        // After an error, the bytes read before count.
        let _ = stdout
            .by_ref()
            .take(MAX_SUMMARY_BYTES)
            .read_to_string(&mut text);
        let _ = std::io::copy(&mut stdout, &mut std::io::sink());
    }
    let _ = child.wait();
    text.lines().next_back().unwrap_or_default().to_owned()
}

/// The error that the command has written as JSON.
fn refusal(line: &str) -> Error {
    let answer: Value = serde_json::from_str(line).unwrap_or_default();
    let details = &answer["error"];
    let Some(message) = details["message"].as_str() else {
        return Error::NoAnswer(None);
    };
    let causes = details["caused_by"].as_array().into_iter().flatten();
    let causes = causes.filter_map(Value::as_str);
    Error::Refused {
        message: message.to_owned(),
        causes: causes.map(str::to_owned).collect(),
        hint: details["hint"].as_str().map(str::to_owned),
        is_invalid: details["exit_code"] == INVALID,
    }
}

fn answer(result: Result<Recording, Error>) -> Response {
    match result {
        Ok(recording) => Json(recording).into_response(),
        Err(error) => failed(&error),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_error_of_a_command_is_answered_unchanged() {
        for exit_code in [1, 2] {
            let written = json!({"message": "error", "error": {
                "message": "there is no topic `a/b`",
                "file": null, "line": null, "column": null,
                "hint": "the topics are c/d",
                "caused_by": ["edge is away"],
                "exit_code": exit_code,
                "findings": [],
            }});
            let error = refusal(&written.to_string());
            assert_eq!(json!(ErrorAnswer::of(&error)), written);
        }
        assert!(matches!(refusal("killed"), Error::NoAnswer(None)));
    }
}
