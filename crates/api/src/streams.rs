//! Log records and samples as they come: server-sent events
//! (<https://html.spec.whatwg.org/multipage/server-sent-events.html>).
//!
//! Data flows in one direction: WebSocket would only add frames of clients, which would have to be
//! parsed and limited, and a handshake that bypasses the rules of requests. Events are one long answer
//! to an ordinary request, with the token in its header, over HTTP/1.1, for clients without a library.
//!
//! Each stream is the command that follows, in a process of its own which ends with the stream. Its lines
//! go through a queue to the client. A client that reads more slowly misses the lines that find the queue
//! full, and is informed of their number; it delays neither the dataflow nor other clients.

use std::{
    collections::VecDeque,
    io::{BufRead, BufReader, Read},
    pin::Pin,
    process::{Child, ChildStdout, Command},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    thread,
    time::{Duration, Instant},
};

use axum::{
    Extension,
    body::{Body, Bytes},
    extract::{Path, Query, State},
    http::{StatusCode, header},
    response::{IntoResponse, Response},
};
use http_body::{Body as HttpBody, Frame};
use nervure_inspect::{answers::ErrorAnswer, places, topics::select_topics};
use nervure_protocol::report::Level;
use regex_lite::Regex;
use rustix::process::Signal;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{
    sync::OwnedSemaphorePermit,
    task::spawn_blocking,
    time::{Interval, interval_at},
};
use utoipa::IntoParams;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    Error,
    child::{self, Handle},
    common::{CLIENT_TIMEOUT, Checked, OfDataflow, OfTopics, Shared, failed, refused},
    connection::Connection,
};

/// Streams at a time.
pub const MAX_STREAMS: usize = 16;

/// Events that wait for a client, and their bytes.
const MAX_QUEUED_EVENTS: usize = 256;
const MAX_QUEUED_BYTES: usize = 4 << 20;

/// The longest line of an event. Longer ones count as missed.
const MAX_LINE_BYTES: usize = 1 << 20;

/// Interval of comments, which keep a silent stream alive: each end notices the loss of the other.
const COMMENT_INTERVAL: Duration = Duration::from_secs(10);

/// The routes.
pub fn router() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::new()
        .routes(routes!(samples))
        .routes(routes!(log_records))
}

/// Follow the samples of topics, as `nervure topic echo`
///
/// Events are `sample` with a JSON object, `missed` with the number of samples that this client has not
/// taken in time, and at last `end` with the reason.
#[utoipa::path(get, path = "/v1/dataflows/{dataflow}/samples", params(OfDataflow, OfTopics, SampleQuery), responses(
    (status = 200, description = "Server-sent events", body = String, content_type = "text/event-stream"),
    (status = "default", description = "An error", body = ErrorAnswer),
))]
async fn samples(
    State(shared): State<Arc<Shared>>,
    Extension(connection): Extension<Connection>,
    Checked(of): Checked<Path<OfDataflow>>,
    Checked(topics): Checked<Query<OfTopics>>,
    Checked(query): Checked<Query<SampleQuery>>,
) -> Response {
    let patterns = match topics.patterns() {
        patterns if patterns.is_empty() => vec!["*".to_owned()],
        patterns => patterns,
    };
    let mut arguments = vec!["topic".to_owned(), "echo".to_owned(), "--json".to_owned()];
    arguments.push(format!("--dataflow={}", of.dataflow));
    arguments.extend(query.full.then(|| "--full".to_owned()));
    arguments.push("--".to_owned());
    arguments.extend(patterns.iter().cloned());
    let check = move || Ok(select_topics(&patterns, Some(&of.dataflow), "echo").map(drop)?);
    follow(shared, connection, "sample", arguments, check).await
}

/// Follow the log records of a dataflow, as `nervure logs --follow`
///
/// Events are `record` with a JSON object, `missed` with the number of records that this client has not
/// taken in time, and at last `end` with the reason.
#[utoipa::path(get, path = "/v1/dataflows/{dataflow}/logs/follow", params(OfDataflow, FollowQuery), responses(
    (status = 200, description = "Server-sent events", body = String, content_type = "text/event-stream"),
    (status = "default", description = "An error", body = ErrorAnswer),
))]
async fn log_records(
    State(shared): State<Arc<Shared>>,
    Extension(connection): Extension<Connection>,
    Checked(of): Checked<Path<OfDataflow>>,
    Checked(query): Checked<Query<FollowQuery>>,
) -> Response {
    let mut arguments = vec![
        "logs".to_owned(),
        "--follow".to_owned(),
        "--json".to_owned(),
    ];
    arguments.push(format!("--dataflow={}", of.dataflow));
    arguments.extend(query.node.map(|node| format!("--node={node}")));
    let level = query.level.map(|level| json!(level));
    arguments.extend(level.and_then(|level| Some(format!("--level={}", level.as_str()?))));
    let pattern = query.pattern;
    arguments.extend(pattern.iter().map(|pattern| format!("--grep={pattern}")));
    let millis = (query.since_seconds.unwrap_or(0.0).clamp(0.0, 1e9) * 1e3) as u64;
    arguments.push(format!("--since={millis}ms"));
    let check = move || {
        pattern
            .as_deref()
            .map(Regex::new)
            .transpose()
            .map_err(Error::Pattern)?;
        Ok(places::find(Some(&of.dataflow)).map(drop)?)
    };
    follow(shared, connection, "record", arguments, check).await
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct SampleQuery {
    /// Write long arrays and texts in full. An event of more than 1 MiB is missed.
    #[serde(default)]
    full: bool,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct FollowQuery {
    /// Only of this node; `nervure` is the keeper.
    node: Option<String>,
    /// Only of this level and above: `trace`, `debug`, `info`, `warn` or `error`.
    #[param(value_type = Option<String>)]
    level: Option<Level>,
    /// Only those that match this regular expression.
    pattern: Option<String>,
    /// Begin with records that are not older than this. Default: 0, with those that are written from
    /// now on.
    since_seconds: Option<f64>,
}

/// Starts a stream after a check. A failed check is answered with a status.
async fn follow(
    shared: Arc<Shared>,
    connection: Connection,
    kind: &'static str,
    arguments: Vec<String>,
    check: impl FnOnce() -> Result<(), Error> + Send + 'static,
) -> Response {
    let Ok(permit) = Arc::clone(&shared.streams).try_acquire_owned() else {
        let error = Error::ManyStreams(MAX_STREAMS);
        return refused(StatusCode::SERVICE_UNAVAILABLE, &error);
    };
    let checked = spawn_blocking(check).await;
    let checked = checked.unwrap_or_else(|_| Err(Error::Panicked));
    if let Err(error) = checked {
        return failed(&error);
    }
    let queue = Arc::new(Queue::new(CLIENT_TIMEOUT));
    let of_thread = Arc::clone(&queue);
    // The thread that starts the command waits for it: the command ends with its thread.
    let started = thread::Builder::new()
        .name("stream".to_owned())
        .spawn(move || {
            let mut command = child::command(&arguments);
            command.env(child::ENDS_WITH, std::process::id().to_string());
            let reason = match run(&of_thread, kind, command) {
                Ok(reason) => reason,
                Err(error) => {
                    json!({"reason": "the command cannot be run", "error": error.to_string()})
                }
            };
            of_thread.end(reason);
        });
    if let Err(error) = started {
        return failed(&nervure_inspect::Error::Thread(error).into());
    }
    connection.begin_stream();
    let events = Events {
        queue,
        comments: interval_at(
            tokio::time::Instant::now() + COMMENT_INTERVAL,
            COMMENT_INTERVAL,
        ),
        connection,
        _permit: permit,
    };
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-store"),
    ];
    (headers, Body::new(events)).into_response()
}

/// Runs the command, and queues its lines. Returns the data of the last event.
fn run(queue: &Queue, kind: &str, mut command: Command) -> std::io::Result<Value> {
    let mut child = command.stderr(std::process::Stdio::null()).spawn()?;
    let handle = child::handle(&child)?;
    let stdout = child.stdout.take();
    if queue.started(handle) {
        read_lines(queue, kind, stdout);
    }
    end_of(queue, &mut child)
}

fn read_lines(queue: &Queue, kind: &str, stdout: Option<ChildStdout>) {
    let Some(stdout) = stdout else { return };
    let mut reader = BufReader::new(stdout);
    loop {
        let mut line = Vec::new();
        let limit = MAX_LINE_BYTES as u64 + 1;
        match reader.by_ref().take(limit).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        if line.last() == Some(&b'\n') {
            line.pop();
            queue.push(kind, &line);
        } else {
            queue.miss();
            if reader.skip_until(b'\n').is_err() {
                return;
            }
        }
        if queue.is_stale() {
            return;
        }
    }
}

/// The reason for the end of a stream.
fn end_of(queue: &Queue, child: &mut Child) -> std::io::Result<Value> {
    let is_stale = queue.is_stale();
    if is_stale {
        queue.kill();
    }
    let status = child.wait()?;
    let mut state = queue.lock();
    Ok(match state.error.take() {
        _ if is_stale => {
            let seconds = queue.patience.as_secs_f64();
            json!({"reason": format!("the client has read nothing for {seconds} s")})
        }
        Some(error) => json!({"reason": error["error"]["message"], "error": error["error"]}),
        None if status.success() => json!({"reason": "the dataflow has ended"}),
        None => json!({"reason": format!("the command has ended: {status}")}),
    })
}

/// Events between the command and the client.
#[derive(Debug)]
struct Queue {
    state: Mutex<Queued>,
    /// A client that takes nothing for this long, while events wait for it, has left.
    patience: Duration,
}

#[derive(Debug, Default)]
struct Queued {
    events: VecDeque<Bytes>,
    bytes: usize,
    /// Lines that were left out since the last event.
    missed: u64,
    /// Lines that were left out since the begin of the stream.
    all_missed: u64,
    /// Since when events wait for the client.
    waits_since: Option<Instant>,
    /// The error that the command has written.
    error: Option<Value>,
    is_ended: bool,
    /// The client has left.
    is_left: bool,
    handle: Option<Handle>,
    waker: Option<Waker>,
}

impl Queue {
    fn new(patience: Duration) -> Self {
        Self {
            state: Mutex::default(),
            patience,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queued> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The command runs. False if the client has left meanwhile.
    fn started(&self, handle: Handle) -> bool {
        let mut state = self.lock();
        if state.is_left {
            handle.signal(Signal::KILL);
        }
        state.handle = Some(handle);
        !state.is_left
    }

    fn kill(&self) {
        if let Some(handle) = &self.lock().handle {
            handle.signal(Signal::KILL);
        }
    }

    /// Queues a line, or counts it if there is no room.
    fn push(&self, kind: &str, line: &[u8]) {
        let mut state = self.lock();
        // Keys are in alphabetical order: neither a record nor a sample begins like this.
        if line.starts_with(b"{\"error\":{") {
            state.error = serde_json::from_slice(line).ok();
            return;
        }
        let has_room =
            state.events.len() < MAX_QUEUED_EVENTS && state.bytes + line.len() <= MAX_QUEUED_BYTES;
        if !has_room {
            state.missed += 1;
            return;
        }
        state.report_missed();
        let line = String::from_utf8_lossy(line);
        state.add(format!("event: {kind}\ndata: {line}\n\n"));
    }

    /// Counts a line that is too long.
    fn miss(&self) {
        self.lock().missed += 1;
    }

    /// Whether the client takes nothing.
    fn is_stale(&self) -> bool {
        let since = self.lock().waits_since;
        since.is_some_and(|since| since.elapsed() >= self.patience)
    }

    /// Queues the last event.
    fn end(&self, mut data: Value) {
        let mut state = self.lock();
        state.report_missed();
        data["missed"] = state.all_missed.into();
        state.add(format!("event: end\ndata: {data}\n\n"));
        state.is_ended = true;
        state.handle = None;
    }
}

impl Queued {
    fn add(&mut self, event: String) {
        self.bytes += event.len();
        self.events.push_back(event.into());
        self.waits_since.get_or_insert_with(Instant::now);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn report_missed(&mut self) {
        let missed = std::mem::take(&mut self.missed);
        if missed > 0 {
            self.all_missed += missed;
            let data = json!({"missed": missed});
            self.add(format!("event: missed\ndata: {data}\n\n"));
        }
    }

    fn take(&mut self) -> Option<Bytes> {
        let event = self.events.pop_front()?;
        self.bytes -= event.len();
        // The remaining events wait from now on.
        self.waits_since = (!self.events.is_empty()).then(Instant::now);
        Some(event)
    }
}

/// The body of the answer. The command is killed when the client leaves.
struct Events {
    queue: Arc<Queue>,
    comments: Interval,
    connection: Connection,
    _permit: OwnedSemaphorePermit,
}

impl HttpBody for Events {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        {
            let mut state = self.queue.lock();
            match state.take() {
                Some(event) => return Poll::Ready(Some(Ok(Frame::data(event)))),
                None if state.is_ended => return Poll::Ready(None),
                None => state.waker = Some(context.waker().clone()),
            }
        }
        self.comments
            .poll_tick(context)
            .map(|_| Some(Ok(Frame::data(Bytes::from_static(b": here\n\n")))))
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.connection.end_stream();
        self.queue.lock().is_left = true;
        self.queue.kill();
    }
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    /// A command that writes lines without end.
    fn endless() -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do echo '{\"n\":1}'; sleep 0.01; done"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        command
    }

    #[test]
    fn the_stream_of_a_client_that_takes_nothing_is_ended() {
        let queue = Queue::new(Duration::from_millis(300));
        let end = run(&queue, "sample", endless()).unwrap();
        assert_eq!(end["reason"], "the client has read nothing for 0.3 s");
        queue.end(end);
        let mut state = queue.lock();
        assert!(state.events.len() <= MAX_QUEUED_EVENTS + 2);
        let events: Vec<Bytes> = std::iter::from_fn(|| state.take()).collect();
        assert!(events[0].starts_with(b"event: sample\n"), "{events:?}");
        assert!(events.last().unwrap().starts_with(b"event: end\n"));
    }
}
