//! `nervure top`: what nodes and edges do, in a table that is renewed.

use std::{
    io::{self, IsTerminal},
    process::ExitCode,
    time::Instant,
};

use rustix::fd::AsFd;
use serde_json::{Value, json};

use super::{
    arguments::TopArguments,
    connect,
    list::{age, state_name},
    processes::{Processes, Usage},
    state::{NodeState, State},
    step_back,
};
use crate::{
    failure::Failure,
    output,
    run::{
        edge_table::{self, most_lossy},
        format,
        json::edge as edge_json,
        table::{Align, Table, cut},
    },
    validate::count,
};

/// Clears the screen, and shows what follows at once on terminals that can.
const BEGIN_SCREEN: &str = "\x1b[?2026h\x1b[H\x1b[2J";
const END_SCREEN: &str = "\x1b[?2026l";

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

/// Looks until Ctrl-C, the end of the dataflow, or as often as was asked for.
pub fn top(arguments: &TopArguments) -> Result<ExitCode, Failure> {
    let connection = connect(arguments.target.dataflow.as_deref(), "top")?;
    let mut state = State::open(connection, true)?;
    let is_screen = io::stdout().is_terminal() && !arguments.target.json;
    let default_count = if is_screen || arguments.target.json { u64::MAX } else { 1 };
    step_back();
    let mut processes = Processes::default();
    look(&mut state, &mut processes);
    for _ in 0..arguments.count.unwrap_or(default_count) {
        let is_alive = state.follow_until(Instant::now() + arguments.interval)?;
        let usages = look(&mut state, &mut processes);
        if arguments.target.json {
            output::write_or_end(&format!("{}\n", as_json(&state, &usages)))?;
        } else if is_screen {
            let screen = screen(&state, &usages, screen_size());
            output::write_or_end(&format!("{BEGIN_SCREEN}{screen}{END_SCREEN}"))?;
        } else {
            output::write_or_end(&text(&state, &usages, None, usize::MAX))?;
        }
        if !is_alive {
            eprintln!("{} has ended", state.welcome().dataflow);
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A node and what its process uses.
type Usages = Vec<(u32, Option<Usage>)>;

fn look(state: &mut State, processes: &mut Processes) -> Usages {
    state.sample();
    let usage = |(index, node): (&u32, &NodeState)| (*index, node.pid().and_then(|pid| processes.usage(pid)));
    state.nodes.iter().map(usage).collect()
}

/// What fits the screen: the nodes, and the edges with the most losses when not all of them do.
fn screen(state: &State, usages: &Usages, (width, height): (usize, usize)) -> String {
    // Title, two headings, two empty lines, two lines that say how many are not shown, and the cursor's.
    let rows = height.saturating_sub(8);
    let text = text(state, usages, Some(width), rows.max(2));
    text.lines().map(|line| cut(line, width) + "\n").collect()
}

fn text(state: &State, usages: &Usages, width: Option<usize>, rows: usize) -> String {
    let edges = state.edges.iter().len();
    // Half for each, and what one does not need for the other.
    let node_rows = usages.len().min((rows / 2).max(rows.saturating_sub(edges)));
    let edge_rows = rows - node_rows.min(rows);
    let welcome = state.welcome();
    let mut text = format!(
        "{}: {} for {}, {}, {}\n\n",
        welcome.dataflow,
        state_name(welcome.state),
        format::elapsed(age(welcome.started_utc_nanos)),
        count(usages.len(), "node"),
        count(edges, "edge"),
    );
    text.push_str(&node_table(state, usages, node_rows).render(width));
    if usages.len() > node_rows {
        text.push_str(&format!(".. and {} more nodes\n", usages.len() - node_rows));
    }
    if edges > 0 {
        text.push('\n');
        let shown = most_lossy(&state.edges, edge_rows);
        let table = edge_table::table_within(shown, &EDGE_COLUMNS, width.unwrap_or(usize::MAX));
        text.push_str(&table.render(width));
    }
    if edges > edge_rows {
        text.push_str(&format!(".. and {} more edges\n", edges - edge_rows));
    }
    text
}

fn node_table(state: &State, usages: &Usages, rows: usize) -> Table {
    let mut shown: Vec<_> = usages.iter().collect();
    if shown.len() > rows {
        let cpu = |usage: &Option<Usage>| usage.and_then(|usage| usage.cpu_percent).unwrap_or(0.0);
        shown.sort_by(|(_, a), (_, b)| cpu(b).total_cmp(&cpu(a)));
        shown.truncate(rows);
    }
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
    for (index, usage) in shown {
        let node = &state.nodes[index];
        let restarts = node.started.as_ref().map_or(0, |started| started.incarnation);
        let state = if node.declared.observer { "observes" } else { node.state() };
        table.row(vec![
            node.declared.id.clone(),
            state.to_owned(),
            node.pid().map_or_else(dash, |pid| pid.to_string()),
            usage.and_then(|usage| usage.cpu_percent).map_or_else(dash, |cpu| format!("{cpu:.1}")),
            usage.map_or_else(dash, |usage| format!("{:.1}", usage.resident_bytes as f64 / 1e6)),
            usage.map_or_else(dash, |usage| usage.threads.to_string()),
            if node.declared.observer { dash() } else { restarts.to_string() },
        ]);
    }
    table
}

fn as_json(state: &State, usages: &Usages) -> Value {
    let welcome = state.welcome();
    let node = |(index, usage): &(u32, Option<Usage>)| {
        let node = &state.nodes[index];
        json!({
            "id": node.declared.id,
            "observer": node.declared.observer,
            "state": node.state(),
            "pid": node.pid(),
            "restarts": node.started.as_ref().map_or(0, |started| started.incarnation),
            "cpu_percent": usage.and_then(|usage| usage.cpu_percent),
            "resident_bytes": usage.map(|usage| usage.resident_bytes),
            "threads": usage.map(|usage| usage.threads),
        })
    };
    json!({
        "dataflow": welcome.dataflow,
        "keeper": state.keeper(),
        "elapsed_seconds": age(welcome.started_utc_nanos).as_secs_f64(),
        "nodes": usages.iter().map(node).collect::<Vec<_>>(),
        "edges": state.edges.iter().map(edge_json).collect::<Vec<_>>(),
    })
}

/// Columns and lines of the terminal.
fn screen_size() -> (usize, usize) {
    match rustix::termios::tcgetwinsize(io::stdout().as_fd()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col.into(), size.ws_row.into()),
        _ => (80, 24),
    }
}
