//! `nervure telemetry`, with a receiver that reads messages with the types of `opentelemetry-proto`.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::{
        atomic::{AtomicUsize, Ordering},
        mpsc::{Receiver, channel},
    },
    thread,
    time::Instant,
};

use opentelemetry_proto::tonic::{
    collector::{metrics::v1::ExportMetricsServiceRequest, trace::v1::ExportTraceServiceRequest},
    common::v1::{KeyValue, any_value},
    metrics::v1::{Metric, metric::Data, number_data_point},
    trace::v1::{Span as OtlpSpan, span::SpanKind, status::StatusCode},
};
use serde_json::json;

use crate::{
    dataflow::{Dataflow, WAIT_LIMIT, output},
    serve::{Server, losing_dataflow},
};

/// The name of a domain for one test: nodes of others find its telemetry otherwise.
pub fn domain() -> String {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    format!("t{}-{number}", std::process::id())
}

/// A receiver of OTLP on a free port.
pub struct Otlp {
    pub endpoint: String,
    /// Path and body of each request.
    requests: Receiver<(String, String)>,
}

impl Otlp {
    /// Answers the first requests with these statuses, later ones with 200.
    pub fn answering(statuses: &'static [u16]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let (sender, requests) = channel();
        thread::spawn(move || {
            let statuses = statuses.iter().copied().chain(std::iter::repeat(200));
            for (stream, status) in listener.incoming().map_while(Result::ok).zip(statuses) {
                if sender.send(request(stream, status)).is_err() {
                    return;
                }
            }
        });
        Self { endpoint, requests }
    }

    /// The body of the next request for this path.
    pub fn next(&self, path: &str) -> String {
        loop {
            let (is, body) = self.requests.recv_timeout(WAIT_LIMIT).unwrap();
            if is == path {
                return body;
            }
        }
    }

    /// The metrics of the next message, by name.
    fn metrics(&self) -> BTreeMap<String, Metric> {
        let body = self.next("/v1/metrics");
        let message: ExportMetricsServiceRequest = serde_json::from_str(&body).unwrap();
        let [resource] = &message.resource_metrics[..] else {
            panic!("{message:?}");
        };
        let attributes = &resource.resource.as_ref().unwrap().attributes;
        assert_eq!(text(attributes, "service.name"), "nervure");
        assert!(!text(attributes, "host.name").is_empty());
        let metrics = resource.scope_metrics[0].metrics.iter();
        metrics
            .map(|metric| (metric.name.clone(), metric.clone()))
            .collect()
    }
}

/// Reads a request, and answers it.
fn request(mut stream: TcpStream, status: u16) -> (String, String) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut lines = String::new();
    while !lines.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut lines).unwrap() > 0, "{lines}");
    }
    let head = lines.to_ascii_lowercase();
    assert!(head.contains("content-type: application/json"), "{head}");
    let (_, length) = head.split_once("content-length: ").unwrap();
    let length: usize = length.lines().next().unwrap().trim().parse().unwrap();
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    let answer = format!("HTTP/1.1 {status} It\r\nContent-Length: 2\r\n\r\n{{}}");
    let _ = stream.write_all(answer.as_bytes());
    let path = lines.split(' ').nth(1).unwrap().to_owned();
    (path, String::from_utf8(body).unwrap())
}

pub fn text(attributes: &[KeyValue], key: &str) -> String {
    let found = attributes.iter().find(|attribute| attribute.key == key);
    let value = found.and_then(|attribute| attribute.value.clone()?.value);
    match value {
        Some(any_value::Value::StringValue(text)) => text,
        other => panic!("{key} is {other:?} in {attributes:?}"),
    }
}

/// `nervure telemetry`.
pub struct Telemetry {
    child: Child,
    /// Lines of stderr.
    pub lines: Receiver<String>,
}

impl Telemetry {
    pub fn start(mut command: Command) -> Self {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let (sender, lines) = channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                eprintln!("telemetry: {line}");
                let _ = sender.send(line);
            }
        });
        Self { child, lines }
    }

    /// Waits for a line that contains this text.
    pub fn line(&self, text: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(WAIT_LIMIT).unwrap();
            if line.contains(text) {
                return line;
            }
        }
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        let _ = (self.child.kill(), self.child.wait());
    }
}

fn telemetry(dataflow: &Dataflow, domain: &str, otlp: &Otlp) -> Telemetry {
    let mut command = dataflow.command(&["telemetry", &otlp.endpoint, "--every", "1s"]);
    command
        .env("NERVURE_STATE", dataflow.folder())
        .env("NERVURE_DOMAIN", domain);
    let telemetry = Telemetry::start(command);
    telemetry.line("sending to");
    telemetry
}

/// The value of a counter or gauge with these attributes.
fn value(metric: &Metric, attributes: &[(&str, &str)]) -> Option<f64> {
    let points = match metric.data.as_ref().unwrap() {
        Data::Gauge(gauge) => &gauge.data_points,
        Data::Sum(sum) => {
            assert!(sum.is_monotonic && sum.aggregation_temporality == 2);
            &sum.data_points
        }
        other => panic!("{other:?}"),
    };
    let mut points = points.iter().filter(|point| {
        let mut wanted = attributes.iter();
        wanted.all(|(key, value)| text(&point.attributes, key) == *value)
    });
    let value = match points.next()?.value? {
        number_data_point::Value::AsInt(count) => count as f64,
        number_data_point::Value::AsDouble(value) => value,
    };
    assert!(points.next().is_none(), "{attributes:?} in {metric:?}");
    Some(value)
}

#[test]
fn metrics_by_otlp_are_those_for_prometheus() {
    let (otlp, domain, dataflow) = (Otlp::answering(&[]), domain(), losing_dataflow());
    let _telemetry = telemetry(&dataflow, &domain, &otlp);
    let mut run = dataflow.run_in(&domain, &["--grace", "100ms"]);
    run.line("sink", "in 49");
    let dataflow = run.name().to_owned();
    let ended = [
        ("dataflow", dataflow.as_str()),
        ("node", "source"),
        ("state", "ended"),
    ];
    let until = Instant::now() + WAIT_LIMIT;
    // All samples of the source are counted when it has ended, and nothing changes from then on.
    let metrics = loop {
        let metrics = otlp.metrics();
        let Some(states) = metrics.get("nervure.node.state") else {
            continue;
        };
        let points = match states.data.as_ref().unwrap() {
            Data::Gauge(gauge) => &gauge.data_points,
            other => panic!("{other:?}"),
        };
        let is_there = |point: &[KeyValue]| ended.iter().all(|(key, it)| text(point, key) == *it);
        if points.iter().any(|point| is_there(&point.attributes)) {
            break metrics;
        }
        assert!(Instant::now() < until, "the source ends");
    };
    let mut command = run.command(&["serve", "--listen", "127.0.0.1:0"]);
    command
        .env("NERVURE_STATE", run.folder())
        .env("NERVURE_DOMAIN", &domain);
    let prometheus = Server::start(command).metrics();
    let edge = [
        ("dataflow", dataflow.as_str()),
        ("topic", "source/out"),
        ("input", "sink/in"),
    ];
    for (name, theirs, unit) in [
        (
            "nervure.edge.published_samples",
            "nervure_edge_published_samples_total",
            "",
        ),
        (
            "nervure.edge.received",
            "nervure_edge_received_bytes_total",
            "By",
        ),
        (
            "nervure.edge.queued_samples",
            "nervure_edge_queued_samples",
            "",
        ),
    ] {
        let metric = &metrics[name];
        assert_eq!(metric.unit, unit, "{name}");
        assert!(!metric.description.is_empty(), "{name}");
        let expected = prometheus.value(theirs, &edge);
        assert!(expected.is_some(), "{theirs}");
        assert_eq!(value(metric, &edge), expected, "{name}");
    }
    let deaf = [
        edge[0],
        edge[1],
        ("input", "deaf/in"),
        ("cause", "dropped_oldest"),
    ];
    assert_eq!(
        value(&metrics["nervure.edge.lost_samples"], &deaf),
        prometheus.value("nervure_edge_lost_samples_total", &deaf)
    );
    let latency = &metrics["nervure.edge.latency"];
    assert_eq!(latency.unit, "s");
    let Some(Data::Histogram(histogram)) = &latency.data else {
        panic!("{latency:?}");
    };
    let points = &mut histogram.data_points.iter();
    let point = points
        .find(|point| text(&point.attributes, "input") == "sink/in")
        .unwrap();
    assert_eq!(point.count, 50);
    assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
    assert_eq!(point.bucket_counts.iter().sum::<u64>(), 50);
    assert!(point.sum.unwrap() > 0.0 && point.time_unix_nano > 0);
}

#[test]
fn a_receiver_that_fails_is_reported_once_and_holds_nothing_up() {
    let (otlp, domain) = (Otlp::answering(&[503, 503]), domain());
    let telemetry = telemetry(&Dataflow::named(), &domain, &otlp);
    telemetry.line("takes no metrics: 503");
    telemetry.line("takes metrics again; 2 messages had failed");
    otlp.metrics();
}

#[test]
fn a_second_one_is_refused() {
    let (otlp, domain, dataflow) = (Otlp::answering(&[]), domain(), Dataflow::named());
    let _telemetry = telemetry(&dataflow, &domain, &otlp);
    let mut command = dataflow.command(&["telemetry", &otlp.endpoint]);
    command.env("NERVURE_DOMAIN", &domain);
    let (code, _, stderr) = output(command);
    assert_eq!(code, Some(2), "{stderr}");
    assert!(
        stderr.contains("another `nervure telemetry` of this user runs"),
        "{stderr}"
    );
}

/// A span with the attributes of its resource.
#[derive(Clone, Debug)]
pub struct Span {
    pub span: OtlpSpan,
    pub service: String,
    pub machine: String,
}

impl Otlp {
    /// Receives spans until one trace has all these names and services, and returns its spans in that
    /// order.
    pub fn trace(&self, wanted: &[(&str, &str)]) -> Vec<Span> {
        let mut traces: BTreeMap<Vec<u8>, Vec<Span>> = BTreeMap::new();
        let until = Instant::now() + WAIT_LIMIT;
        loop {
            assert!(Instant::now() < until, "{wanted:?} in {traces:#?}");
            for span in self.spans() {
                traces
                    .entry(span.span.trace_id.clone())
                    .or_default()
                    .push(span);
            }
            for trace in traces.values() {
                let find = |(name, service): &(&str, &str)| {
                    let is_it = |it: &&Span| it.span.name == *name && it.service == *service;
                    trace.iter().find(is_it).cloned()
                };
                let found: Option<Vec<Span>> = wanted.iter().map(find).collect();
                if let Some(found) = found {
                    return found;
                }
            }
        }
    }

    fn spans(&self) -> Vec<Span> {
        let body = self.next("/v1/traces");
        let message: ExportTraceServiceRequest = serde_json::from_str(&body).unwrap();
        let mut spans = Vec::new();
        for resource in message.resource_spans {
            let attributes = resource.resource.unwrap().attributes;
            assert!(!text(&attributes, "host.name").is_empty());
            let machine = attributes.iter().any(|it| it.key == "nervure.machine");
            for span in resource.scope_spans.into_iter().flat_map(|it| it.spans) {
                assert_eq!((span.trace_id.len(), span.span_id.len()), (16, 8));
                assert!(span.start_time_unix_nano > 0);
                assert!(span.start_time_unix_nano <= span.end_time_unix_nano);
                spans.push(Span {
                    span,
                    service: text(&attributes, "service.name"),
                    machine: match machine {
                        true => text(&attributes, "nervure.machine"),
                        false => String::new(),
                    },
                });
            }
        }
        spans
    }
}

/// Each span is the parent of the next one.
pub fn assert_chain(trace: &[Span]) {
    assert!(trace[0].span.parent_span_id.is_empty(), "{trace:#?}");
    for pair in trace.windows(2) {
        assert_eq!(
            pair[1].span.parent_span_id, pair[0].span.span_id,
            "{trace:#?}"
        );
    }
}

const TRACES: &str = "NERVURE_TRACES_PER_SECOND=1000";

#[test]
fn what_a_node_sends_while_it_handles_a_sample_continues_its_trace() {
    let (otlp, domain) = (Otlp::answering(&[]), domain());
    let dataflow = Dataflow::named()
        .node("source", "source 1000000 20 9", json!({"outputs": ["out"]}))
        .node(
            "relay",
            "relay",
            json!({"inputs": {"in": "source/out"}, "outputs": ["out"]}),
        )
        .node("sink", "sink", json!({"inputs": {"in": "relay/out"}}));
    let _telemetry = telemetry(&dataflow, &domain, &otlp);
    let run = dataflow.run_in(&domain, &["--env", TRACES]);
    let trace = otlp.trace(&[
        ("send source/out", "source"),
        ("process source/out", "relay"),
        ("send relay/out", "relay"),
        ("process relay/out", "sink"),
    ]);
    assert_chain(&trace);
    let kinds: Vec<_> = trace.iter().map(|it| it.span.kind()).collect();
    let (producer, consumer) = (SpanKind::Producer, SpanKind::Consumer);
    assert_eq!(kinds, [producer, consumer, producer, consumer]);
    let handled = &trace[1].span.attributes;
    assert_eq!(text(handled, "messaging.destination.name"), "source/out");
    assert_eq!(text(handled, "nervure.input"), "in");
    let has = |key: &str| handled.iter().any(|it| it.key == key);
    assert!(has("nervure.sequence") && has("nervure.latency"));
    drop(run);
}

#[test]
fn no_trace_begins_unless_it_is_asked_for_and_a_rate_limits_them() {
    let (otlp, domain) = (Otlp::answering(&[]), domain());
    let env = |rate: &str| json!({"outputs": ["out"], "env": {"NERVURE_TRACES_PER_SECOND": rate}});
    let dataflow = Dataflow::named()
        .node("silent", "source 200 1 9", json!({"outputs": ["out"]}))
        .node("rare", "source 200 1 9", env("0.001"))
        .node("often", "source 200 1 9", env("100000"))
        .node(
            "sink",
            "sink",
            json!({"inputs": {"a": {"source": "silent/out", "queue_size": 300},
                "b": {"source": "rare/out", "queue_size": 300},
                "c": {"source": "often/out", "queue_size": 300}}}),
        );
    let _telemetry = telemetry(&dataflow, &domain, &otlp);
    dataflow.run_in(&domain, &[]).finish();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    while counts.get("process often/out") != Some(&200) {
        for span in otlp.spans() {
            *counts.entry(span.span.name).or_default() += 1;
        }
    }
    assert!(counts["send often/out"] == 200, "{counts:?}");
    assert!(!counts.contains_key("send silent/out"), "{counts:?}");
    assert_eq!(counts.get("send rare/out"), Some(&1), "{counts:?}");
    assert_eq!(counts.get("process rare/out"), Some(&1), "{counts:?}");
}

#[test]
fn a_consumer_that_misses_a_sample_makes_its_span_an_error() {
    let (otlp, domain) = (Otlp::answering(&[]), domain());
    let dataflow = Dataflow::named()
        .node("source", "source 50 2 99", json!({"outputs": ["out"]}))
        .node(
            "deaf",
            "deaf",
            json!({"inputs": {"in": {"source": "source/out", "queue_size": 3, "queue_policy": "drop_newest"}}}),
        );
    let _telemetry = telemetry(&dataflow, &domain, &otlp);
    let _run = dataflow.run_in(&domain, &["--env", TRACES]);
    let until = Instant::now() + WAIT_LIMIT;
    loop {
        assert!(Instant::now() < until);
        let spans = otlp.spans();
        let is_error = |it: &&Span| {
            let status = it.span.status.as_ref();
            status.is_some_and(|status| status.code() == StatusCode::Error)
        };
        if let Some(lost) = spans.iter().find(is_error) {
            let status = lost.span.status.as_ref().unwrap();
            assert_eq!(status.message, "1 consumers missed the sample");
            assert_eq!(lost.span.name, "send source/out");
            return;
        }
    }
}

#[test]
fn an_address_that_is_none_is_refused() {
    let dataflow = Dataflow::named();
    let command = dataflow.command(&["telemetry", "https://localhost:4318"]);
    let (code, _, stderr) = output(command);
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("only `http://` is supported"), "{stderr}");
}
