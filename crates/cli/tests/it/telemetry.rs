//! `nervure telemetry`, with a receiver that reads messages with the types of `opentelemetry-proto`.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use opentelemetry_proto::tonic::{
    collector::metrics::v1::ExportMetricsServiceRequest,
    common::v1::{KeyValue, any_value},
    metrics::v1::{Metric, metric::Data, number_data_point},
};
use serde_json::json;

use crate::{
    dataflow::{Dataflow, Run, output},
    serve::{losing, server},
};

/// Time limit of a wait; tests need only a small part of it.
const PATIENCE: Duration = Duration::from_secs(60);

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
            let (is, body) = self.requests.recv_timeout(PATIENCE).unwrap();
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
            let line = self.lines.recv_timeout(PATIENCE).unwrap();
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

fn telemetry(run: &Run, otlp: &Otlp) -> Telemetry {
    let mut command = run.command(&["telemetry", &otlp.endpoint, "--every", "1s"]);
    command.env("NERVURE_STATE", run.folder());
    Telemetry::start(command)
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
    let mut run = losing();
    run.line("sink", "in 49");
    let otlp = Otlp::answering(&[]);
    let _telemetry = telemetry(&run, &otlp);
    let dataflow = run.name().to_owned();
    let ended = [
        ("dataflow", dataflow.as_str()),
        ("node", "source"),
        ("state", "ended"),
    ];
    let until = Instant::now() + PATIENCE;
    // What the source has sent is counted when it has ended, and nothing changes from then on.
    let metrics = loop {
        let metrics = otlp.metrics();
        let states = &metrics["nervure.node.state"];
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
    let prometheus = server(&run).metrics();
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
    let mut run = Dataflow::named()
        .node("source", "source 3 0 9", json!({"outputs": ["out"]}))
        .node("sink", "sink", json!({"inputs": {"in": "source/out"}}))
        .run(&[]);
    run.line("sink", "in 2");
    let otlp = Otlp::answering(&[503, 503]);
    let telemetry = telemetry(&run, &otlp);
    telemetry.line("takes no messages: 503");
    telemetry.line("takes messages again; 2 were lost");
    otlp.metrics();
}

#[test]
fn an_address_that_is_none_is_refused() {
    let dataflow = Dataflow::named();
    let command = dataflow.command(&["telemetry", "https://localhost:4318"]);
    let (code, _, stderr) = output(command);
    assert_eq!(code, Some(2), "{stderr}");
    assert!(stderr.contains("only `http://` is supported"), "{stderr}");
}
