//! The output of `run`. The trait [`Display`] has three implementations: a live table, plain lines,
//! JSON.

use std::{
    borrow::Cow,
    io::{self, IsTerminal},
    time::Duration,
};

use nervure_inspect::edges::Edges;
use nervure_keeper::plan::Plan;
use nervure_protocol::report::{Level, LogRecord, Report};

use super::{
    nodes::Nodes,
    streams::{Streams, Target},
    summary::Summary,
};
use crate::{
    output::{plain_text, safe_part},
    source::{colour_on_stderr, wants_colour},
};

/// Shows a run.
pub trait Display {
    /// Shows a report of the keeper.
    fn message(&mut self, message: &Report);
    /// Shows new values of the counters.
    fn figures(&mut self, nodes: &Nodes, edges: &Edges, elapsed: Duration);
    /// Writes buffered lines: no message follows for now.
    fn flush(&mut self) {}
    /// Shows the summary.
    fn conclude(&mut self, summary: &Summary, edges: &Edges, elapsed: Duration);
    /// The streams that it writes to.
    fn streams(&mut self) -> &mut Streams;
}

/// Formats log records as lines, and selects their stream.
#[derive(Debug)]
pub struct Lines {
    name_width: usize,
    colour_stdout: bool,
    pub colour_stderr: bool,
}

impl Lines {
    /// Names above this width, in characters, are not aligned.
    const MAX_NAME_WIDTH: usize = 20;

    pub fn new(plan: &Plan) -> Self {
        let widths = plan.nodes.iter().map(|node| node.id.chars().count());
        let name_width = widths
            .filter(|&width| width <= Self::MAX_NAME_WIDTH)
            .max()
            .unwrap_or(0)
            .max("nervure".len());
        let colour_stdout = io::stdout().is_terminal() && wants_colour();
        Self {
            name_width,
            colour_stdout,
            colour_stderr: colour_on_stderr(),
        }
    }

    /// The stream and the line of a record, without a newline.
    pub fn of(&self, record: &LogRecord) -> (Target, String) {
        let target = if record.stream == "stdout" {
            Target::Stdout
        } else {
            Target::Stderr
        };
        let colour = if target == Target::Stdout {
            self.colour_stdout
        } else {
            self.colour_stderr
        };
        let (name, text) = record_line(record);
        let name_width = self.name_width;
        let line = match (colour, record.level) {
            (false, _) => format!("{name:name_width$} | {text}"),
            (true, Level::Error) => {
                format!("\x1b[2m{name:name_width$} |\x1b[0m \x1b[31m{text}\x1b[0m")
            }
            (true, Level::Warn) => {
                format!("\x1b[2m{name:name_width$} |\x1b[0m \x1b[33m{text}\x1b[0m")
            }
            (true, _) => format!("\x1b[2m{name:name_width$} |\x1b[0m {text}"),
        };
        (target, line)
    }
}

/// The author and the text of a record. Records of the keeper about a node have `nervure` as their
/// author.
pub fn record_line(record: &LogRecord) -> (Cow<'_, str>, String) {
    let is_nodes_own = matches!(record.stream.as_str(), "stdout" | "stderr");
    let text = plain_text(&record.text);
    match record.node.as_str() {
        "nervure" => ("nervure".into(), text),
        node if is_nodes_own => (safe_part(node), text),
        node => ("nervure".into(), format!("{}: {text}", safe_part(node))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_stdout_of_nodes_goes_to_stdout() {
        let lines = Lines {
            name_width: 7,
            colour_stdout: false,
            colour_stderr: false,
        };
        let record = |node: &str, stream: &str| LogRecord {
            utc_nanos: 0,
            node: node.to_owned(),
            level: Level::Info,
            stream: stream.to_owned(),
            text: "x".to_owned(),
        };
        assert_eq!(
            lines.of(&record("cam", "stdout")),
            (Target::Stdout, "cam     | x".to_owned())
        );
        assert_eq!(
            lines.of(&record("cam", "stderr")),
            (Target::Stderr, "cam     | x".to_owned())
        );
        assert_eq!(
            lines.of(&record("cam", "keeper")),
            (Target::Stderr, "nervure | cam: x".to_owned())
        );
        assert_eq!(
            lines.of(&record("nervure", "run")),
            (Target::Stderr, "nervure | x".to_owned())
        );
    }
}
