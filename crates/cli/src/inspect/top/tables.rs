//! The tables of `top`: nodes with their load, and edges.

use nervure_inspect::{
    State,
    edges::Edge,
    format::{self, count},
    processes::Usage,
    state::NodeState,
};

use super::super::list::state_and_age;
use crate::{
    output,
    run::edge_table,
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
        self.node.restarts()
    }
}

pub fn title(state: &State, nodes: usize) -> String {
    let welcome = state.welcome();
    let link = state.link_bytes_per_second().map(|rate| {
        let rate = format::bandwidth(rate);
        format!(", {rate} over the link for this")
    });
    format!(
        "{}: {}, {}, {}{}",
        output::safe_part(&welcome.dataflow),
        state_and_age(state.dataflow_state(), welcome.started_utc_nanos),
        count(nodes, "node"),
        count(state.edges.iter().len(), "edge"),
        link.unwrap_or_default(),
    )
}

pub fn edge_table_of(edges: Vec<&Edge>, width: Option<usize>) -> Table {
    edge_table::table_within(edges, &EDGE_COLUMNS, width.unwrap_or(usize::MAX))
}

/// The table of nodes, with their machines if the dataflow is one of a fleet.
pub fn node_table(state: &State, rows: &[NodeRow<'_>]) -> Table {
    let has_machines = state.has_machines();
    let state_column = 1 + usize::from(has_machines);
    let mut columns = vec![("node", Align::Left)];
    columns.extend(has_machines.then_some(("machine", Align::Left)));
    columns.extend([
        ("state", Align::Left),
        ("pid", Align::Right),
        ("cpu %", Align::Right),
        ("rss mb", Align::Right),
        ("threads", Align::Right),
        ("restarts", Align::Right),
    ]);
    let mut table = Table::new(&columns);
    let dash = || "-".to_owned();
    for row in rows {
        let NodeRow { node, usage } = row;
        let is_observer = node.declared.observer;
        let machine = state.machine_of(node.declared.node).map(str::to_owned);
        let state = if is_observer {
            "observes"
        } else {
            node.state()
        };
        let mut cells = vec![node.declared.id.clone()];
        cells.extend(has_machines.then(|| machine.unwrap_or_else(dash)));
        cells.extend([
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
        table.row(cells);
        table.colour(
            state_column,
            match state {
                "failed" => Some(Colour::Red),
                "restarts" | "starts" => Some(Colour::Yellow),
                _ => None,
            },
        );
    }
    table
}
