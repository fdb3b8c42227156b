//! Plain lines, for pipes and files.

use std::time::Duration;

use nervure_inspect::{
    edges::Edges,
    format::{self, count},
};
use nervure_protocol::report::Report;

use super::{
    display::{Display, Lines},
    nodes::Nodes,
    streams::{Streams, Target},
    summary::Summary,
};

/// Interval between lines of status.
const STATUS_PERIOD: Duration = Duration::from_secs(5);

/// Shows a run as lines.
#[derive(Debug)]
pub struct Plain {
    lines: Lines,
    next_status: Duration,
    streams: Streams,
}

impl Plain {
    pub fn new(lines: Lines) -> Self {
        Self {
            lines,
            next_status: STATUS_PERIOD,
            streams: Streams::default(),
        }
    }

    fn write(&mut self, target: Target, text: &str) {
        self.streams.write(target, &format!("{text}\n"));
    }
}

impl Display for Plain {
    fn message(&mut self, message: &Report) {
        if let Report::Log(record) = message {
            let (target, line) = self.lines.of(record);
            self.write(target, &line);
        }
    }

    fn figures(&mut self, nodes: &Nodes, edges: &Edges, elapsed: Duration) {
        if elapsed >= self.next_status {
            self.next_status = elapsed + STATUS_PERIOD;
            self.write(Target::Stderr, &(status(edges, elapsed) + &problems(nodes)));
        }
    }

    fn conclude(&mut self, summary: &Summary, edges: &Edges, elapsed: Duration) {
        let text = summary.text(edges, self.streams.missing(), elapsed);
        self.write(Target::Stderr, text.trim_end());
    }

    fn streams(&mut self) -> &mut Streams {
        &mut self.streams
    }
}

/// `nervure: 12.3 s, 4 edges: 125 samples/s, 38.9 MB/s, 0 lost`
fn status(edges: &Edges, elapsed: Duration) -> String {
    let (mut rate, mut bytes, mut lost) = (0.0, 0.0, 0);
    for edge in edges.iter() {
        let figures = edge.figures();
        rate += figures.rate_hz;
        bytes += figures.bytes_per_second;
        lost = edge.lost().saturating_add(lost);
    }
    let unreadable = match edges.unreadable().count() {
        0 => String::new(),
        nodes => format!(", the counters of {} not readable", count(nodes, "node")),
    };
    format!(
        "nervure: {}, {}: {} samples/s, {} MB/s, {lost} lost{unreadable}",
        format::elapsed(elapsed),
        count(edges.iter().len(), "edge"),
        format::rate(rate),
        format::megabytes(bytes)
    )
}

/// `; `camera` failed`
fn problems(nodes: &Nodes) -> String {
    nodes
        .problems()
        .map(|problems| format!("; {problems}"))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nervure_protocol::wiring::{Policy, Queue};

    #[test]
    fn edges_are_counted() {
        let queue = || Queue {
            policy: Policy::DropOldest,
            depth: 10,
            max_held: 18,
        };
        let one = Edges::fake(vec![("a/out", "b/in", queue())]);
        let two = Edges::fake(vec![("a/out", "b/in", queue()), ("a/out", "c/in", queue())]);
        let begin = |edges| {
            status(edges, Duration::from_secs(5))
                .split(": ")
                .nth(1)
                .unwrap()
                .to_owned()
        };
        assert_eq!(begin(&one), "5.0 s, 1 edge");
        assert_eq!(begin(&two), "5.0 s, 2 edges");
    }
}
