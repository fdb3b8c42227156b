//! Plain lines, for pipes and files.

use std::{
    io::{self, Write},
    time::Duration,
};

use nervure_protocol::keeper_to_run::Message;

use super::{
    display::{Display, Lines, Target},
    edges::Edges,
    format,
    summary::Summary,
};
use crate::validate::count;

/// How often the state is told.
const STATUS_PERIOD: Duration = Duration::from_secs(5);

/// Shows a run as lines.
#[derive(Debug)]
pub struct Plain {
    lines: Lines,
    next_status: Duration,
    is_closed: bool,
}

impl Plain {
    pub fn new(lines: Lines) -> Self {
        Self { lines, next_status: STATUS_PERIOD, is_closed: false }
    }

    fn write(&mut self, target: Target, text: &str) {
        let written = match target {
            Target::Stdout => writeln!(io::stdout(), "{text}"),
            Target::Stderr => writeln!(io::stderr(), "{text}"),
        };
        self.is_closed |= written.is_err();
    }
}

impl Display for Plain {
    fn message(&mut self, message: &Message) {
        if let Message::Log(record) = message {
            let (target, line) = self.lines.of(record);
            self.write(target, &line);
        }
    }

    fn figures(&mut self, edges: &Edges, elapsed: Duration) {
        if elapsed >= self.next_status {
            self.next_status = elapsed + STATUS_PERIOD;
            self.write(Target::Stderr, &status(edges, elapsed));
        }
    }

    fn conclude(&mut self, summary: &Summary, edges: &Edges, elapsed: Duration) {
        let text = summary.text(edges, elapsed);
        self.write(Target::Stderr, text.trim_end());
    }

    fn is_closed(&self) -> bool {
        self.is_closed
    }
}

/// `nervure: 12.3 s, 4 edges: 125 samples/s, 38.9 MB/s, 0 lost`
fn status(edges: &Edges, elapsed: Duration) -> String {
    let (mut rate, mut bytes, mut lost) = (0.0, 0.0, 0);
    for edge in edges.iter() {
        let figures = edge.figures();
        rate += figures.rate_hz;
        bytes += figures.bytes_per_second;
        lost += edge.lost();
    }
    format!(
        "nervure: {}, {}: {} samples/s, {} MB/s, {lost} lost",
        format::elapsed(elapsed),
        count(edges.iter().len(), "edge"),
        format::rate(rate),
        format::megabytes(bytes)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use nervure_protocol::wiring::{Policy, Queue};

    #[test]
    fn edges_are_counted() {
        let queue = || Queue { policy: Policy::DropOldest, depth: 10, max_held: 18 };
        let one = Edges::imagined(vec![("a/out", "b/in", queue())]);
        let two = Edges::imagined(vec![("a/out", "b/in", queue()), ("a/out", "c/in", queue())]);
        let begin = |edges| status(edges, Duration::from_secs(5)).split(": ").nth(1).unwrap().to_owned();
        assert_eq!(begin(&one), "5.0 s, 1 edge");
        assert_eq!(begin(&two), "5.0 s, 2 edges");
    }
}
