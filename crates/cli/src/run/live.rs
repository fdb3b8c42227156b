//! A table that stays below the log lines and is redrawn in place, for terminals.

use std::{
    io::{self, IsTerminal},
    time::Duration,
};

use nervure_inspect::{edges::Edges, format};
use nervure_protocol::report::Report;
use rustix::fd::AsFd;

use super::{
    display::{Display, Lines},
    edge_table::{self, most_lossy},
    nodes::Nodes,
    streams::{Streams, Target},
    summary::Summary,
};
use crate::table::cut;

/// Synchronized update: terminals that support it show everything between these at once.
const BEGIN_UPDATE: &str = "\x1b[?2026h";
const END_UPDATE: &str = "\x1b[?2026l";

const COLUMNS: [edge_table::Column; 8] = [
    edge_table::EDGE,
    edge_table::RATE,
    edge_table::BANDWIDTH,
    edge_table::P50,
    edge_table::P99,
    edge_table::QUEUE,
    edge_table::HELD,
    edge_table::LOST,
];

/// Shows a run as log lines with a table below, on stderr.
#[derive(Debug)]
pub struct Live {
    lines: Lines,
    /// Stdout is a terminal too: the table must be redrawn below its lines.
    shares_screen: bool,
    table: Vec<String>,
    /// Number of lines of the table on the screen.
    drawn: usize,
    /// Lines to show above the table at the next redraw.
    waiting: Vec<(Target, String)>,
    streams: Streams,
}

impl Live {
    pub fn new(lines: Lines) -> Self {
        let shares_screen = io::stdout().is_terminal();
        Self {
            lines,
            shares_screen,
            table: Vec::new(),
            drawn: 0,
            waiting: Vec::new(),
            streams: Streams::default(),
        }
    }

    /// Shows the waiting lines, and the table below them.
    fn redraw(&mut self) {
        let mut text = BEGIN_UPDATE.to_owned() + &self.erasure();
        for (target, line) in std::mem::take(&mut self.waiting) {
            match target {
                Target::Stderr => text.push_str(&line),
                Target::Stdout => {
                    if self.shares_screen {
                        self.streams
                            .write(Target::Stderr, &std::mem::take(&mut text));
                    }
                    self.streams.write(Target::Stdout, &line);
                }
            }
        }
        text += &self.table_text();
        self.streams.write(Target::Stderr, &(text + END_UPDATE));
    }

    /// The sequence that removes the table.
    fn erasure(&mut self) -> String {
        match std::mem::take(&mut self.drawn) {
            0 => String::new(),
            drawn => format!("\x1b[{drawn}A\r\x1b[J"),
        }
    }

    fn table_text(&mut self) -> String {
        let (width, height) = screen_size();
        let shown = self.table.len().min(height.saturating_sub(1));
        self.drawn = shown;
        self.table[..shown]
            .iter()
            .map(|line| cut(line, width) + "\n")
            .collect()
    }
}

impl Display for Live {
    fn message(&mut self, message: &Report) {
        if let Report::Log(record) = message {
            let (target, line) = self.lines.of(record);
            self.waiting.push((target, line + "\n"));
        }
    }

    fn figures(&mut self, nodes: &Nodes, edges: &Edges, elapsed: Duration) {
        self.table = table(nodes, edges, elapsed, screen_size());
        self.redraw();
    }

    fn flush(&mut self) {
        if !self.waiting.is_empty() {
            self.redraw();
        }
    }

    fn conclude(&mut self, summary: &Summary, edges: &Edges, elapsed: Duration) {
        self.table.clear();
        self.redraw();
        self.streams.write(
            Target::Stderr,
            &summary.text(edges, self.streams.missing(), elapsed),
        );
    }

    fn streams(&mut self) -> &mut Streams {
        &mut self.streams
    }
}

/// The lines of the table; if not all edges fit, those with losses.
fn table(
    nodes: &Nodes,
    edges: &Edges,
    elapsed: Duration,
    (width, height): (usize, usize),
) -> Vec<String> {
    // Three lines are for the title, the heading and the count of hidden edges.
    let most = (height / 2).saturating_sub(3).max(1);
    let shown = most_lossy(edges, most);
    let hidden = edges.iter().len() - shown.len();
    let problems = nodes
        .problems()
        .map(|problems| format!("; {problems}"))
        .unwrap_or_default();
    let mut lines = vec![format!("-- {}{problems} --", format::elapsed(elapsed))];
    if edges.iter().len() > 0 {
        lines.extend(
            edge_table::table_within(shown, &COLUMNS, width)
                .render(Some(width))
                .lines()
                .map(str::to_owned),
        );
    }
    if hidden > 0 {
        lines.push(format!(".. and {hidden} more edges"));
    }
    lines.extend(edges.unreadable().map(ToString::to_string));
    lines
}

/// Columns and lines of the terminal.
fn screen_size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(io::stderr().as_fd()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
        _ => (80, 24),
    }
}
