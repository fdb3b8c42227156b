//! Spans that the nodes of this machine report, and their messages.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
    time::{Duration, Instant},
};

use nervure_inspect::{Fault, threads};
use nervure_node::{
    packets::{PacketError, Packets},
    serving::Server,
};
use nervure_protocol::{
    domain::Domain,
    node_to_telemetry::{Span, Step, socket_name},
};
use serde_json::{Value, json};

use super::otlp::{attributes, now, object, scope};
use crate::{Error, Note};

/// Spans that wait for the receiver. 2048 is the default of OpenTelemetry's SDKs, for one process.
const MAX_WAITING: usize = 8192;

/// The most spans of a message, as in OpenTelemetry's SDKs.
const MAX_BATCH: usize = 512;

/// The longest time that a span waits for others, while the receiver takes messages.
const PERIOD: Duration = Duration::from_secs(1);

/// Processes of nodes that are connected at a time.
const MAX_CONNECTIONS: usize = 512;

/// A wait without a reason to end it.
const A_WHILE: Duration = Duration::from_secs(3600);

/// The spans that wait, and those that were dropped.
#[derive(Default)]
pub struct Spans {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Span>,
    dropped: Dropped,
    ends: bool,
}

/// Spans that were dropped, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Its node found a full socket.
    socket: u64,
    /// The receiver was too slow.
    queue: u64,
    /// The receiver rejected them.
    rejected: u64,
    /// They did not have the form of a span.
    invalid: u64,
}

impl Spans {
    /// Takes connections of nodes from now on.
    pub fn listen(note: Note) -> Result<Arc<Self>, Error> {
        let uid = rustix::process::geteuid().as_raw();
        let name = socket_name(&Domain::of_environment()?, uid);
        let server = Server::bind(&name).map_err(|error| match error.kind() {
            io::ErrorKind::AddrInUse => Error::SecondTelemetry,
            _ => Error::Spans(error),
        })?;
        let spans = Arc::new(Self::default());
        let shared = Arc::clone(&spans);
        threads::spawn(move || shared.accept(&server, note))?;
        Ok(spans)
    }

    fn accept(self: &Arc<Self>, server: &Server, note: Note) {
        // Each thread has a handle besides this one, until it ends or is not started.
        let connections = Arc::new(());
        loop {
            let Ok(packets) = server.accept() else {
                // Out of descriptors: connections end meanwhile.
                thread::sleep(Duration::from_millis(100));
                continue;
            };
            if Arc::strong_count(&connections) > MAX_CONNECTIONS {
                continue;
            }
            let (spans, connection) = (Arc::clone(self), Arc::clone(&connections));
            let started = threads::spawn(move || {
                let _connection = connection;
                spans.receive(packets);
            });
            if let Err(error) = started {
                let error = error.text_with_causes();
                note(format_args!(
                    "warning: the spans of a process are not taken: {error}"
                ));
            }
        }
    }

    /// Takes the spans of a process until it ends.
    fn receive(&self, mut packets: Packets) {
        loop {
            match packets.receive_until::<Span>(Instant::now() + A_WHILE) {
                Ok(Some((span, _))) => self.add(span),
                Ok(None) => {}
                Err(PacketError::Protocol(_)) => self.state().dropped.invalid += 1,
                Err(_) => return,
            }
        }
    }

    fn add(&self, span: Span) {
        let mut state = self.state();
        let dropped = &mut state.dropped;
        dropped.socket = dropped.socket.saturating_add(span.dropped_before);
        if !span.is_valid() {
            dropped.invalid += 1;
            return;
        }
        if state.waiting.len() >= MAX_WAITING {
            // The oldest is the least useful one.
            state.waiting.pop_front();
            state.dropped.queue += 1;
        }
        state.waiting.push_back(span);
        if state.waiting.len() >= MAX_BATCH {
            self.changed.notify_all();
        }
    }

    /// Sends what waits once a second, until [`Spans::end`]. `send` returns false for a message that was
    /// not taken: its spans are sent again.
    pub fn send_all(&self, resource: &Value, mut send: impl FnMut(&Value) -> Sent) {
        loop {
            let (batch, ends) = self.next_batch();
            if batch.is_empty() {
                if ends {
                    return;
                }
                continue;
            }
            match send(&message(&batch, resource)) {
                Sent::Taken => {}
                Sent::Rejected => self.state().dropped.rejected += batch.len() as u64,
                Sent::Failed if ends => return,
                Sent::Failed => {
                    let mut state = self.state();
                    let room = MAX_WAITING - state.waiting.len();
                    let lost = batch.len().saturating_sub(room);
                    state.dropped.queue += lost as u64;
                    for span in batch.into_iter().skip(lost).rev() {
                        state.waiting.push_front(span);
                    }
                    // Limits the rate of attempts.
                    let wait = self
                        .changed
                        .wait_timeout_while(state, PERIOD, |it| !it.ends);
                    drop(wait);
                }
            }
        }
    }

    /// Ends [`Spans::send_all`] when nothing waits.
    pub fn end(&self) {
        self.state().ends = true;
        self.changed.notify_all();
    }

    /// Waits until a batch is full, or for the period.
    fn next_batch(&self) -> (Vec<Span>, bool) {
        let is_short = |state: &mut State| !state.ends && state.waiting.len() < MAX_BATCH;
        let waited = self
            .changed
            .wait_timeout_while(self.state(), PERIOD, is_short);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let length = state.waiting.len().min(MAX_BATCH);
        (state.waiting.drain(..length).collect(), state.ends)
    }

    /// The metric of the dropped spans.
    pub fn metric(&self) -> Value {
        let dropped = self.state().dropped;
        let point = |(cause, count): (&str, u64)| {
            json!({
                "asInt": count.to_string(),
                "timeUnixNano": now().to_string(),
                "attributes": attributes([("cause", cause)]),
            })
        };
        let causes = [
            ("socket", dropped.socket),
            ("queue", dropped.queue),
            ("rejected", dropped.rejected),
            ("invalid", dropped.invalid),
        ];
        json!({
            "name": "nervure.telemetry.dropped_spans",
            "description": "Spans of nodes of this machine that were not sent, by cause",
            "unit": "",
            "sum": {
                "dataPoints": causes.map(point),
                "aggregationTemporality": super::figures::CUMULATIVE,
                "isMonotonic": true,
            },
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Outcome of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    Taken,
    /// A later attempt would be rejected, too.
    Rejected,
    /// A later attempt may succeed.
    Failed,
}

/// A message for `/v1/traces`. Each node is a service of its own, in the namespace of its dataflow.
fn message(spans: &[Span], resource: &Value) -> Value {
    let mut by_node: BTreeMap<[&str; 3], Vec<Value>> = BTreeMap::new();
    for span in spans {
        // What crosses is carried by the daemon.
        let service = match &span.step {
            Step::Crossed { .. } => "nervure",
            _ => &span.node,
        };
        let node = [service, &span.dataflow, &span.machine];
        by_node.entry(node).or_default().push(encoded(span));
    }
    let of_node = |([service, dataflow, machine], spans): ([&str; 3], Vec<Value>)| {
        let own = [
            ("service.name", service),
            ("service.namespace", dataflow),
            ("nervure.machine", machine),
        ];
        let own = attributes(own.into_iter().filter(|(_, value)| !value.is_empty()));
        let mut all = own.as_array().cloned().unwrap_or_default();
        let shared = resource["attributes"].as_array().into_iter().flatten();
        all.extend(shared.filter(|one| one["key"] != "service.name").cloned());
        json!({
            "resource": { "attributes": all },
            "scopeSpans": [{ "scope": scope(), "spans": spans }],
        })
    };
    json!({ "resourceSpans": by_node.into_iter().map(of_node).collect::<Vec<_>>() })
}

/// The kinds of spans of OTLP.
const INTERNAL: u32 = 1;
const PRODUCER: u32 = 4;
const CONSUMER: u32 = 5;

/// Names and attributes follow OpenTelemetry's conventions for messaging, where there are some.
fn encoded(span: &Span) -> Value {
    let text = |key: &str, value: &str| json!({ "key": key, "value": { "stringValue": value } });
    let number =
        |key: &str, value: u64| json!({ "key": key, "value": { "intValue": value.to_string() } });
    let seconds = |key: &str, nanos: u64| json!({ "key": key, "value": { "doubleValue": nanos as f64 / 1e9 } });
    let mut attributes = vec![
        text("messaging.system", "nervure"),
        text("messaging.destination.name", &span.topic),
        text("nervure.node", &span.node),
    ];
    let mut lost = 0;
    let (verb, kind) = match &span.step {
        Step::Sent { queued, missed } => {
            lost = *missed;
            attributes.extend([
                number("nervure.consumers.queued", (*queued).into()),
                number("nervure.consumers.missed", (*missed).into()),
            ]);
            ("send", PRODUCER)
        }
        Step::Crossed {
            from,
            error_nanos,
            queued,
            missed,
        } => {
            lost = *missed;
            attributes.extend([
                text("nervure.machine.from", from),
                text("nervure.machine.to", &span.machine),
                number("nervure.consumers.queued", (*queued).into()),
                number("nervure.consumers.missed", (*missed).into()),
            ]);
            if let Some(error) = error_nanos {
                let latency = span.end_utc_nanos.saturating_sub(span.start_utc_nanos);
                attributes.push(seconds("nervure.latency", latency));
                attributes.push(seconds("nervure.latency.error", *error));
            }
            ("cross", INTERNAL)
        }
        Step::Handled {
            input,
            sequence,
            incarnation,
            latency_nanos,
        } => {
            attributes.extend([
                text("nervure.input", input),
                number("nervure.sequence", *sequence),
                number("nervure.incarnation", (*incarnation).into()),
                seconds("nervure.latency", *latency_nanos),
            ]);
            ("process", CONSUMER)
        }
        Step::Unknown => ("", INTERNAL),
    };
    if verb != "cross" {
        attributes.push(text("messaging.operation.type", verb));
    }
    let mut encoded = json!({
        "traceId": span.trace,
        "spanId": span.span,
        "name": format!("{verb} {}", span.topic),
        "kind": kind,
        "startTimeUnixNano": span.start_utc_nanos.to_string(),
        "endTimeUnixNano": span.end_utc_nanos.to_string(),
        "attributes": attributes,
    });
    if !span.parent.is_empty() {
        encoded["parentSpanId"] = json!(span.parent);
    }
    if lost > 0 {
        // `STATUS_CODE_ERROR`. The counters of the edge have the cause.
        encoded["status"] = object("code", json!(2));
        encoded["status"]["message"] = json!(format!("{lost} consumers missed the sample"));
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(number: u64) -> Span {
        Span {
            trace: format!("{:032x}", 1),
            span: format!("{number:016x}"),
            step: Step::Sent {
                queued: 1,
                missed: 0,
            },
            ..Span::default()
        }
    }

    #[test]
    fn the_queue_is_bounded_and_counts_what_it_drops() {
        let spans = Spans::default();
        for number in 1..=MAX_WAITING as u64 + 3 {
            spans.add(span(number));
        }
        spans.add(Span {
            dropped_before: 5,
            ..Span::default()
        });
        let dropped = Dropped {
            socket: 5,
            queue: 3,
            rejected: 0,
            invalid: 1,
        };
        assert_eq!(spans.state().dropped, dropped);
        assert_eq!(spans.state().waiting.len(), MAX_WAITING);
    }

    #[test]
    fn spans_that_were_not_taken_are_sent_again_and_those_that_were_rejected_are_not() {
        let spans = Spans::default();
        (1..=3).for_each(|number| spans.add(span(number)));
        let mut results = [Sent::Failed, Sent::Taken].into_iter();
        let mut numbers = Vec::new();
        spans.send_all(&json!({ "attributes": [] }), |message| {
            let all = &message["resourceSpans"][0]["scopeSpans"][0]["spans"];
            numbers.push(all.as_array().unwrap().len());
            let result = results.next().unwrap();
            if result == Sent::Taken {
                spans.end();
            }
            result
        });
        assert_eq!(numbers, [3, 3]);
        assert_eq!(spans.state().dropped, Dropped::default());
    }
}
