//! The tables of `top`: nodes with what they use, and edges.

use super::super::{
    list::{age, state_name},
    processes::Usage,
    state::{NodeState, State},
};
use crate::{
    format::{self, count},
    output,
    run::{edge_table, edges::Edge},
    table::{Align, Colour, Table},
};

const EDGE_COLUMNS: [edge_table::Column; 9] = [
    edge_table::EDGE,
    edge_table::RATE,
    edge_table::BANDWIDTH,
    edge_table::P50,
    edge_table::P99,
    edge_table::MAX,
    edge_table::QUEUE,
    edge_table::HELD,
    edge_table::LOST,
];

/// A node, with the CPU and memory that it uses.
#[derive(Clone, Debug)]
pub struct NodeRow<'a> {
    pub node: &'a NodeState,
    pub usage: Option<Usage>,
}

impl NodeRow<'_> {
    pub fn cpu(&self) -> f64 {
        self.usage
            .and_then(|usage| usage.cpu_percent)
            .unwrap_or(0.0)
    }

    pub fn resident_bytes(&self) -> u64 {
        self.usage.map_or(0, |usage| usage.resident_bytes)
    }

    pub fn restarts(&self) -> u32 {
        self.node
            .started
            .as_ref()
            .map_or(0, |started| started.restarts)
    }
}

pub fn title(state: &State, nodes: usize) -> String {
    let welcome = state.welcome();
    format!(
        "{}: {} for {}, {}, {}",
        output::safe_part(&welcome.dataflow),
        state_name(welcome.state),
        format::elapsed(age(welcome.started_utc_nanos)),
        count(nodes, "node"),
        count(state.edges.iter().len(), "edge"),
    )
}

pub fn edge_table_of(edges: Vec<&Edge>, width: Option<usize>) -> Table {
    edge_table::table_within(edges, &EDGE_COLUMNS, width.unwrap_or(usize::MAX))
}

pub fn node_table(rows: &[NodeRow<'_>]) -> Table {
    const STATE: usize = 1;
    let mut table = Table::new(&[
        ("node", Align::Left),
        ("state", Align::Left),
        ("pid", Align::Right),
        ("cpu %", Align::Right),
        ("rss mb", Align::Right),
        ("threads", Align::Right),
        ("restarts", Align::Right),
    ]);
    let dash = || "-".to_owned();
    for row in rows {
        let NodeRow { node, usage } = row;
        let is_observer = node.declared.observer;
        let state = if is_observer {
            "observes"
        } else {
            node.state()
        };
        table.row(vec![
            node.declared.id.clone(),
            state.to_owned(),
            node.pid().map_or_else(dash, |pid| pid.to_string()),
            usage
                .and_then(|usage| usage.cpu_percent)
                .map_or_else(dash, |cpu| format!("{cpu:.1}")),
            usage.map_or_else(dash, |usage| {
                format!("{:.1}", usage.resident_bytes as f64 / 1e6)
            }),
            usage.map_or_else(dash, |usage| usage.threads.to_string()),
            if is_observer {
                dash()
            } else {
                row.restarts().to_string()
            },
        ]);
        table.colour(
            STATE,
            match state {
                "failed" => Some(Colour::Red),
                "restarts" | "starts" => Some(Colour::Yellow),
                _ => None,
            },
        );
    }
    table
}
