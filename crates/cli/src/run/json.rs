//! The JSON output of `run`, one object per line.
//!
//! Reports of the keeper are written unchanged (`"message": "log"`, `"node_started"`,
//! `"edge_wired"`, `"ready"`, `"node_ended"`, `"finished"`). `"edges"` has the counters of every
//! edge once per second, and `"summary"` is the last line.

use std::time::Duration;

use nervure_inspect::{answers::LoadOfEdge, edges::Edges};
use nervure_protocol::report::Report;
use serde_json::json;

use super::{
    display::{Display, record_line},
    nodes::Nodes,
    streams::{Streams, Target},
    summary::Summary,
};
use crate::output::safe;

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
            let edges: Vec<_> = edges.iter().map(LoadOfEdge::from).collect();
            self.write(
                &json!({"message": "edges", "elapsed_seconds": elapsed.as_secs_f64(), "nodes": nodes.json(), "edges": edges}),
            );
        }
    }

    fn conclude(&mut self, summary: &Summary, edges: &Edges, elapsed: Duration) {
        let edges: Vec<_> = edges.iter().map(LoadOfEdge::from).collect();
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
