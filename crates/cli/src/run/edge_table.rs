//! Tables of edges, as `run` and `top` show them: each chooses its columns.

use super::{
    edges::{Edge, Edges, Figures, Totals},
    format, losses,
    table::{Align, Table},
};

/// A column: its heading, and what it says of an edge.
pub struct Column {
    name: &'static str,
    align: Align,
    value: fn(&Row<'_>) -> String,
}

/// An edge, with what was counted on it.
pub struct Row<'a> {
    edge: &'a Edge,
    totals: Totals,
    figures: Figures,
}

const fn number(name: &'static str, value: fn(&Row<'_>) -> String) -> Column {
    Column { name, align: Align::Right, value }
}

pub const EDGE: Column = Column { name: "edge", align: Align::Left, value: |row| row.edge.name() };
pub const RATE: Column = number("hz", |row| format::rate(row.figures.rate_hz));
pub const BANDWIDTH: Column = number("mb/s", |row| format::megabytes(row.figures.bytes_per_second));
pub const SENT: Column = number("sent", |row| row.totals.output.published().to_string());
pub const RECEIVED: Column = number("received", |row| row.totals.input.received.to_string());
/// Of the last samples, as [`RATE`] and [`BANDWIDTH`].
pub const P50: Column = number("p50", |row| format::latency(row.figures.p50_nanos));
pub const P99: Column = number("p99", |row| format::latency(row.figures.p99_nanos));
/// Of all samples.
pub const TOTAL_P50: Column = number("p50", |row| format::latency(row.totals.input.latency.quantile(0.5)));
pub const TOTAL_P99: Column = number("p99", |row| format::latency(row.totals.input.latency.quantile(0.99)));
pub const MAX: Column = number("max", |row| {
    let latency = &row.totals.input.latency;
    format::latency((latency.count() > 0).then(|| latency.max_nanos()))
});
pub const QUEUE: Column = number("queue", |row| format!("{}/{}", row.totals.queued(), row.edge.queue.depth));
pub const HELD: Column = number("held", |row| row.totals.input.held.to_string());
pub const LOST: Column = number("lost", |row| row.totals.output.lost().to_string());
pub const WAITED: Column = number("waited", |row| {
    let nanos = row.totals.output.blocked_nanos;
    format::latency((nanos > 0).then_some(nanos))
});
pub const WHY_LOST: Column =
    Column { name: "why lost", align: Align::Left, value: |row| losses::causes(&row.totals.output) };

/// Columns that a narrow terminal does not get, the first ones first: what is lost matters more.
const GIVE_WAY: [&str; 4] = [MAX.name, BANDWIDTH.name, HELD.name, P50.name];

/// The names of edges are not cut to less than this while there is a column to give way.
const NAME_WIDTH: usize = 30;

/// The table of some edges, without the columns for which that width has no room.
pub fn table_within<'a>(
    edges: impl IntoIterator<Item = &'a Edge> + Clone,
    columns: &[Column],
    width: usize,
) -> Table {
    let mut columns: Vec<&Column> = columns.iter().collect();
    let mut table = table(edges.clone(), columns.iter().copied());
    for name in GIVE_WAY {
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
    let headings: Vec<_> = columns.clone().into_iter().map(|column| (column.name, column.align)).collect();
    let mut table = Table::new(&headings);
    for edge in edges {
        let row = Row { edge, totals: edge.totals(), figures: edge.figures() };
        table.row(columns.clone().into_iter().map(|column| (column.value)(&row)).collect());
    }
    table
}

/// At most so many edges: those with the most losses, where not all fit.
pub fn most_lossy(edges: &Edges, most: usize) -> Vec<&Edge> {
    let mut shown: Vec<&Edge> = edges.iter().collect();
    if shown.len() > most {
        shown.sort_by_key(|edge| std::cmp::Reverse(edge.lost()));
        shown.truncate(most);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use nervure_protocol::wiring::{Policy, Queue};

    #[test]
    fn columns_give_way_before_names_and_what_is_lost() {
        let queue = Queue { policy: Policy::DropOldest, depth: 10, max_held: 18 };
        let edges = Edges::imagined(vec![("camera/image", "detector/image", queue)]);
        let columns = [EDGE, RATE, BANDWIDTH, P50, P99, MAX, QUEUE, HELD, LOST];
        let shown = |width| table_within(edges.iter(), &columns, width).render(Some(width));
        let heading = |width: usize| {
            let text = shown(width);
            let heading = text.lines().next().unwrap();
            heading.split_whitespace().skip(1).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(heading(120), "HZ MB/S P50 P99 MAX QUEUE HELD LOST");
        assert_eq!(heading(69), "HZ MB/S P50 P99 QUEUE HELD LOST");
        assert_eq!(heading(55), "HZ P99 QUEUE LOST");
        assert!(shown(55).contains("camera/image -> detector/image  "), "{}", shown(55));
        // Nothing is left to give way: the name does.
        assert_eq!(heading(40), "HZ P99 QUEUE LOST");
        assert!(shown(40).contains("camera/image -> d\u{2026}"), "{}", shown(40));
    }
}
