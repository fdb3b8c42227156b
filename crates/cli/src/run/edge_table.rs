//! Tables of edges for `run` and `top`, which choose the columns.

use nervure_inspect::{
    edges::{Edge, Edges, Figures, Totals},
    format, losses,
};

use crate::table::{Align, Colour, Table};

/// A column: its heading, and its value for an edge.
pub struct Column {
    name: &'static str,
    align: Align,
    /// The ends whose counters the value needs.
    needs: Ends,
    value: fn(&Row<'_>) -> String,
    colour: fn(&Row<'_>) -> Option<Colour>,
}

/// Ends of an edge.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    Neither,
    Producer,
    Consumer,
    Both,
}

/// An edge with its counters and figures.
pub struct Row<'a> {
    edge: &'a Edge,
    totals: Totals,
    figures: Figures,
}

const fn number(name: &'static str, needs: Ends, value: fn(&Row<'_>) -> String) -> Column {
    Column {
        name,
        align: Align::Right,
        needs,
        value,
        colour: |_| None,
    }
}

const fn text(name: &'static str, value: fn(&Row<'_>) -> String) -> Column {
    Column {
        name,
        align: Align::Left,
        needs: Ends::Neither,
        value,
        colour: |_| None,
    }
}

impl Column {
    /// The value for an edge; `?` if its counters are not readable.
    fn text(&self, row: &Row<'_>) -> String {
        if self.is_known(row) {
            (self.value)(row)
        } else {
            UNKNOWN.to_owned()
        }
    }

    fn colour(&self, row: &Row<'_>) -> Option<Colour> {
        if self.is_known(row) {
            (self.colour)(row)
        } else {
            Some(Colour::Red)
        }
    }

    /// Whether it is the column `other`.
    pub fn is(&self, other: &Self) -> bool {
        self.name == other.name
    }

    fn is_known(&self, row: &Row<'_>) -> bool {
        let needs = |end| self.needs == end || self.needs == Ends::Both;
        (!needs(Ends::Producer) || row.edge.has_output())
            && (!needs(Ends::Consumer) || row.edge.has_input())
    }
}

/// Shown in the place of a value that is not readable.
const UNKNOWN: &str = "?";

/// A count, or `?` if it is not readable.
pub fn known(is_known: bool, count: u64) -> String {
    if is_known {
        count.to_string()
    } else {
        UNKNOWN.to_owned()
    }
}

pub const EDGE: Column = text("edge", |row| row.edge.name());
pub const RATE: Column = number("hz", Ends::Consumer, |row| {
    format::rate(row.figures.rate_hz)
});
pub const BANDWIDTH: Column = number("mb/s", Ends::Consumer, |row| {
    format::megabytes(row.figures.bytes_per_second)
});
pub const SENT: Column = number("sent", Ends::Producer, |row| {
    row.totals.published().to_string()
});
pub const RECEIVED: Column = number("received", Ends::Consumer, |row| {
    row.totals.received().to_string()
});
/// Median over the last two seconds, as [`RATE`] and [`BANDWIDTH`].
pub const P50: Column = number("p50", Ends::Consumer, |row| {
    format::latency(row.figures.p50_nanos)
});
pub const P99: Column = number("p99", Ends::Consumer, |row| {
    format::latency(row.figures.p99_nanos)
});
/// Median over all samples.
pub const TOTAL_P50: Column = number("p50", Ends::Consumer, |row| {
    format::latency(row.totals.input.latency.quantile(0.5))
});
pub const TOTAL_P99: Column = number("p99", Ends::Consumer, |row| {
    format::latency(row.totals.input.latency.quantile(0.99))
});
pub const MAX: Column = number("max", Ends::Consumer, |row| {
    let latency = &row.totals.input.latency;
    format::latency((latency.count() > 0).then(|| latency.max_nanos()))
});
pub const QUEUE: Column = Column {
    colour: how_full,
    ..number("queue", Ends::Both, |row| {
        format!("{}/{}", row.totals.queued(), row.edge.queue.depth)
    })
};
pub const HELD: Column = number("held", Ends::Consumer, |row| {
    row.totals.input.held.to_string()
});
pub const LOST: Column = Column {
    colour: how_lossy,
    ..number("lost", Ends::Both, |row| row.totals.lost().to_string())
};
pub const NOT_TAKEN: Column = number("not taken", Ends::Both, |row| {
    row.totals.not_taken().to_string()
});
pub const WAITED: Column = number("waited", Ends::Producer, |row| {
    let nanos = row.totals.output.blocked_nanos;
    format::latency((nanos > 0).then_some(nanos))
});
pub const WHY_LOST: Column = text("why lost", |row| {
    row.edge
        .unreadable()
        .unwrap_or_else(|| losses::causes(&row.totals))
});

/// Red for a full queue, yellow from 80 %. A queue of `latest` is full by design.
fn how_full(row: &Row<'_>) -> Option<Colour> {
    let (queued, depth) = (row.totals.queued(), u64::from(row.edge.queue.depth));
    match queued {
        _ if row.edge.is_latest() => None,
        _ if queued >= depth => Some(Colour::Red),
        _ if queued * 5 >= depth * 4 => Some(Colour::Yellow),
        _ => None,
    }
}

/// Red for an edge that loses samples now, yellow for one with earlier losses. `latest` loses
/// samples by design.
fn how_lossy(row: &Row<'_>) -> Option<Colour> {
    let lost = row.totals.lost();
    let before = row.edge.span().map_or(lost, |(first, _, _)| first.lost());
    match lost {
        _ if row.edge.is_latest() => None,
        0 => None,
        _ if lost > before => Some(Colour::Red),
        _ => Some(Colour::Yellow),
    }
}

/// Columns that are dropped on narrow terminals, in this order.
const DROPPED_FIRST: [&str; 4] = [MAX.name, BANDWIDTH.name, HELD.name, P50.name];

/// Columns are dropped before the names of edges are cut below this width.
const NAME_WIDTH: usize = 30;

/// The table of some edges, without the columns that do not fit `width`.
pub fn table_within<'a>(
    edges: impl IntoIterator<Item = &'a Edge> + Clone,
    columns: &[Column],
    width: usize,
) -> Table {
    let mut columns: Vec<&Column> = columns.iter().collect();
    let mut table = table(edges.clone(), columns.iter().copied());
    for name in DROPPED_FIRST {
        if table.excess(width, NAME_WIDTH) == 0 {
            break;
        }
        columns.retain(|column| column.name != name);
        table = self::table(edges.clone(), columns.iter().copied());
    }
    table
}

/// The table of some edges.
pub fn table<'a, 'c>(
    edges: impl IntoIterator<Item = &'a Edge>,
    columns: impl IntoIterator<Item = &'c Column> + Clone,
) -> Table {
    let headings: Vec<_> = columns
        .clone()
        .into_iter()
        .map(|column| (column.name, column.align))
        .collect();
    let mut table = Table::new(&headings);
    for edge in edges {
        let row = Row {
            edge,
            totals: edge.totals(),
            figures: edge.figures(),
        };
        table.row(
            columns
                .clone()
                .into_iter()
                .map(|column| column.text(&row))
                .collect(),
        );
        for (index, column) in columns.clone().into_iter().enumerate() {
            table.colour(index, column.colour(&row));
        }
    }
    table
}

/// At most `most` edges. If there are more: first those with unreadable counters, then those with
/// the most losses.
pub fn most_lossy(edges: &Edges, most: usize) -> Vec<&Edge> {
    let mut shown: Vec<&Edge> = edges.iter().collect();
    if shown.len() > most {
        shown.sort_by_key(|edge| std::cmp::Reverse((edge.unreadable().is_some(), edge.lost())));
        shown.truncate(most);
    }
    shown
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use nervure_protocol::wiring::{Policy, Queue};
    use nervure_shm::{InputCounters, OutputCounters};

    use super::*;

    #[test]
    fn columns_are_dropped_before_names_are_cut() {
        let queue = Queue {
            policy: Policy::DropOldest,
            depth: 10,
            max_held: 18,
        };
        let edges = Edges::fake(vec![("camera/image", "detector/image", queue)]);
        let columns = [EDGE, RATE, BANDWIDTH, P50, P99, MAX, QUEUE, HELD, LOST];
        let shown = |width| table_within(edges.iter(), &columns, width).render(Some(width));
        let heading = |width: usize| {
            let text = shown(width);
            let heading = text.lines().next().unwrap();
            heading
                .split_whitespace()
                .skip(1)
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(heading(120), "HZ MB/S P50 P99 MAX QUEUE HELD LOST");
        assert_eq!(heading(69), "HZ MB/S P50 P99 QUEUE HELD LOST");
        assert_eq!(heading(55), "HZ P99 QUEUE LOST");
        assert!(
            shown(55).contains("camera/image -> detector/image  "),
            "{}",
            shown(55)
        );
        // No further column can be dropped: the name is cut.
        assert_eq!(heading(40), "HZ P99 QUEUE LOST");
        assert!(
            shown(40).contains("camera/image -> d\u{2026}"),
            "{}",
            shown(40)
        );
    }

    #[test]
    fn full_queues_and_losses_have_colours() {
        let queue = |policy, depth| Queue {
            policy,
            depth,
            max_held: depth + 8,
        };
        let mut edges = Edges::fake(vec![
            ("a/out", "full/in", queue(Policy::DropOldest, 10)),
            ("a/out", "nearly/in", queue(Policy::DropOldest, 10)),
            ("a/out", "latest/in", queue(Policy::DropOldest, 1)),
        ]);
        let output = |sent, dropped_newest| OutputCounters {
            sent,
            dropped_newest,
            ..OutputCounters::default()
        };
        for (edge, sent, lost) in [(0, 10, [0, 3]), (1, 8, [3, 3]), (2, 1, [0, 3])] {
            for (second, lost) in lost.into_iter().enumerate() {
                let elapsed = Duration::from_secs(second as u64);
                edges.set_fake(edge, elapsed, output(sent, lost), InputCounters::default());
            }
        }
        let shown = table(edges.iter(), &[EDGE, QUEUE, LOST]).render_coloured(None);
        let lines: Vec<&str> = shown.lines().collect();
        assert!(
            lines[1].contains("\x1b[31m10/10\x1b[0m") && lines[1].ends_with("\x1b[31m3\x1b[0m"),
            "{shown:?}"
        );
        assert!(
            lines[2].contains("\x1b[33m8/10\x1b[0m") && lines[2].ends_with("\x1b[33m3\x1b[0m"),
            "{shown:?}"
        );
        assert!(!lines[3].contains('\x1b'), "{shown:?}");
    }
}
