//! JSON, one object a line, for programs.
//!
//! What the keeper reports is written as it is (`"message": "log"`, `"node_started"`, `"edge_wired"`, `"ready"`,
//! `"node_ended"`, `"finished"`); `"edges"` has the counters of every edge once a second, and `"summary"` ends it.

use std::{
    io::{self, Write},
    time::Duration,
};

use nervure_protocol::keeper_to_run::Message;
use serde_json::{Value, json};

use super::{
    display::{Display, record_line},
    edges::{Edge, Edges},
    summary::Summary,
};

const FIGURES_PERIOD: Duration = Duration::from_secs(1);

/// Shows a run as JSON.
#[derive(Debug, Default)]
pub struct Json {
    next_figures: Duration,
    is_closed: bool,
}

impl Json {
    fn write(&mut self, value: &impl serde::Serialize) {
        let text = serde_json::to_string(value).expect("these values have text keys only");
        self.is_closed |= writeln!(io::stdout(), "{text}").is_err();
    }
}

impl Display for Json {
    fn message(&mut self, message: &Message) {
        self.write(message);
        if let Message::Log(record) = message
            && record.stream == "run"
            && self.is_closed
        {
            let (name, text) = record_line(record);
            let _ = writeln!(io::stderr(), "{name} | {text}");
        }
    }

    fn figures(&mut self, edges: &Edges, elapsed: Duration) {
        if elapsed >= self.next_figures {
            self.next_figures = elapsed + FIGURES_PERIOD;
            let edges: Vec<_> = edges.iter().map(edge).collect();
            self.write(
                &json!({"message": "edges", "elapsed_seconds": elapsed.as_secs_f64(), "edges": edges}),
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
            "log_folder": summary.log_folder(),
            "unmet": summary.watched().json(),
            "edges": edges,
        }));
    }

    fn is_closed(&self) -> bool {
        self.is_closed
    }
}

/// What there is to know of an edge.
pub fn edge(edge: &Edge) -> Value {
    let (totals, figures) = (edge.totals(), edge.figures());
    let (output, input) = (&totals.output, &totals.input);
    json!({
        "topic": edge.topic,
        "input": edge.input,
        "queue": edge.queue,
        "sent": output.published(),
        "received": input.received,
        "received_bytes": input.bytes,
        "lost": output.lost(),
        "dropped_oldest": output.dropped_oldest,
        "dropped_newest": output.dropped_newest,
        "missed_held": output.missed_held,
        "missed_memory": output.missed_memory,
        "missed_control": output.missed_control,
        "lost_in_crash": output.lost_in_crash,
        "undelivered": output.undelivered,
        "queued": totals.queued(),
        "held": input.held,
        "stale": input.stale,
        "blocked_nanos": output.blocked_nanos,
        "rate_hz": figures.rate_hz,
        "bytes_per_second": figures.bytes_per_second,
        "latency_p50_nanos": input.latency.quantile(0.5),
        "latency_p99_nanos": input.latency.quantile(0.99),
        "latency_max_nanos": (input.latency.count() > 0).then(|| input.latency.max_nanos()),
    })
}
