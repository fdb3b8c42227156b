//! The JSON output of `run`, one object per line.
//!
//! Reports of the keeper are written unchanged (`"message": "log"`, `"node_started"`,
//! `"edge_wired"`, `"ready"`, `"node_ended"`, `"finished"`). `"edges"` has the counters of every
//! edge once per second, and `"summary"` is the last line.

use std::time::Duration;

use nervure_protocol::report::Report;
use serde_json::json;

use super::{
    display::{Display, record_line},
    edges::{Edge, Edges},
    nodes::Nodes,
    streams::{Streams, Target},
    summary::Summary,
};
use crate::{inspect::answers::LoadOfEdge, output::safe};

const FIGURES_PERIOD: Duration = Duration::from_secs(1);

/// Shows a run as JSON.
#[derive(Debug, Default)]
pub struct Json {
    next_figures: Duration,
    streams: Streams,
}

impl Json {
    fn write(&mut self, value: &impl serde::Serialize) {
        let text = serde_json::to_string(value).expect("these values have text keys only");
        self.streams
            .write(Target::Stdout, &format!("{}\n", safe(&text)));
    }
}

impl Display for Json {
    fn message(&mut self, message: &Report) {
        self.write(message);
        if let Report::Log(record) = message
            && record.stream == "run"
            && !self.streams.stdout_is_intact()
        {
            let (name, text) = record_line(record);
            self.streams
                .write(Target::Stderr, &format!("{name} | {text}\n"));
        }
    }

    fn figures(&mut self, nodes: &Nodes, edges: &Edges, elapsed: Duration) {
        if elapsed >= self.next_figures {
            self.next_figures = elapsed + FIGURES_PERIOD;
            let edges: Vec<_> = edges.iter().map(edge).collect();
            self.write(
                &json!({"message": "edges", "elapsed_seconds": elapsed.as_secs_f64(), "nodes": nodes.json(), "edges": edges}),
            );
        }
    }

    fn conclude(&mut self, summary: &Summary, edges: &Edges, elapsed: Duration) {
        let edges: Vec<_> = edges.iter().map(edge).collect();
        self.write(&json!({
            "message": "summary",
            "elapsed_seconds": elapsed.as_secs_f64(),
            "is_perfect": summary.is_perfect(),
            "failed": summary.failures().collect::<Vec<_>>(),
            "failed_edges": summary.failed_edges(),
            "log_folder": summary.log_folder(),
            "unwritten": self.streams.json(),
            "nodes": summary.nodes().json(),
            "never_started": summary.nodes().never_started(),
            "never_sent": summary.never_sent(),
            "unmet": summary.watched().json(),
            "edges": edges,
        }));
        if let Some(missing) = self.streams.missing() {
            self.streams.write(Target::Stderr, &format!("{missing}\n"));
        }
    }

    fn streams(&mut self) -> &mut Streams {
        &mut self.streams
    }
}

/// The queue, counters and figures of an edge.
pub fn edge(edge: &Edge) -> LoadOfEdge {
    let (totals, figures) = (edge.totals(), edge.figures());
    let (output, input) = (&totals.output, &totals.input);
    let sent = |value: u64| edge.has_output().then_some(value);
    let received = |value: u64| edge.has_input().then_some(value);
    LoadOfEdge {
        topic: edge.topic.clone(),
        input: edge.input.clone(),
        queue: edge.queue,
        sent: sent(totals.published()),
        received: received(totals.received()),
        received_bytes: received(input.bytes),
        lost: sent(totals.lost()).filter(|_| edge.has_input()),
        not_taken: sent(totals.not_taken()).filter(|_| edge.has_input()),
        dropped_oldest: sent(output.dropped_oldest),
        dropped_newest: sent(output.dropped_newest),
        missed_held: sent(output.missed_held),
        missed_memory: sent(output.missed_memory),
        missed_control: sent(output.missed_control),
        missed_away: sent(output.missed_away),
        dropped_away: sent(output.dropped_away),
        lost_in_crash: sent(output.lost_in_crash),
        lost_with_producer: received(input.lost),
        undelivered: sent(output.undelivered),
        queued: sent(totals.queued()).filter(|_| edge.has_input()),
        held: received(input.held),
        stale: received(input.stale),
        blocked_nanos: sent(output.blocked_nanos),
        rate_hz: edge.has_input().then_some(figures.rate_hz),
        bytes_per_second: edge.has_input().then_some(figures.bytes_per_second),
        latency_p50_nanos: input.latency.quantile(0.5),
        latency_p99_nanos: input.latency.quantile(0.99),
        latency_max_nanos: (input.latency.count() > 0).then(|| input.latency.max_nanos()),
        unreadable: edge.unreadable(),
    }
}
