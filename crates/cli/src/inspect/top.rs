//! `nervure top`: shows the load of nodes and the traffic on edges.

mod screen;
mod tables;
mod view;

use std::{
    collections::BTreeMap,
    io::{self, IsTerminal},
    process::ExitCode,
    time::Instant,
};

use nervure_node::running::Remote;

use self::{
    screen::{Screen, ScreenEvent},
    tables::{NodeRow, edge_table_of, node_table, title},
    view::{KeyEffect, View},
};
use super::{
    answers::{self, Load, LoadOfNode},
    arguments::TopArguments,
    list::{age, state_name},
    lower_priority,
    processes::{Processes, Usage},
    state::{NodeState, State},
    status::state_of_all,
};
use crate::{
    failure::Failure,
    output,
    run::{edges::Edge, json::edge as edge_json},
    source::wants_colour,
    table::Table,
};

/// Shows tables until Ctrl-C, the end of the dataflow, or `--count`.
pub fn top(arguments: &TopArguments) -> Result<ExitCode, Failure> {
    let mut state = State::find(arguments.target.dataflow.as_deref(), "top", true)?;
    lower_priority();
    let mut processes = Processes::default();
    read_usages(&mut state, &mut processes);
    let has_ended =
        match arguments.target.json || arguments.count.is_some() || !screen::is_interactive() {
            true => print(arguments, &mut state, &mut processes)?,
            false => watch(arguments, &mut state, &mut processes)?,
        };
    if has_ended {
        note!("{} has ended", state.welcome().dataflow);
    }
    Ok(state.exit_code())
}

/// The load over an interval, as `--json` writes it.
#[cfg(feature = "api")]
pub fn load_of(dataflow: &str, interval: std::time::Duration) -> Result<Load, Failure> {
    let mut state = State::find(Some(dataflow), "top", true)?;
    let mut processes = Processes::default();
    read_usages(&mut state, &mut processes);
    state.follow_until(Instant::now() + interval)?;
    let usages = read_usages(&mut state, &mut processes);
    Ok(answer(&state, &usages))
}

/// Prints tables or JSON. True if the dataflow has ended.
fn print(
    arguments: &TopArguments,
    state: &mut State,
    processes: &mut Processes,
) -> Result<bool, Failure> {
    let is_json = arguments.target.json;
    let is_terminal = io::stdout().is_terminal();
    let default_count = if is_json || is_terminal { u64::MAX } else { 1 };
    for _ in 0..arguments.count.unwrap_or(default_count) {
        let is_alive = state.follow_until(Instant::now() + arguments.interval)?;
        let usages = read_usages(state, processes);
        if is_json {
            output::write_or_end(&answers::line(&answer(state, &usages)))?;
        } else {
            output::write_styled_or_end(&text(state, &usages, is_terminal && wants_colour()))?;
        }
        if !is_alive {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Shows a screen until the user quits. True if the dataflow has ended.
fn watch(
    arguments: &TopArguments,
    state: &mut State,
    processes: &mut Processes,
) -> Result<bool, Failure> {
    let screen = Screen::open()?;
    let mut view = View::default();
    let mut usages = read_usages(state, processes);
    let mut next = Instant::now() + arguments.interval;
    loop {
        let rows = rows(state, &usages);
        screen.show(&view.lines(state, &rows, screen::size(), wants_colour()))?;
        match screen.wait(state, next)? {
            ScreenEvent::Keys(keys) => {
                if keys.into_iter().any(|key| view.key(key) == KeyEffect::Quit) {
                    return Ok(false);
                }
            }
            ScreenEvent::Deadline => {
                usages = read_usages(state, processes);
                next = Instant::now() + arguments.interval;
            }
            ScreenEvent::Ended => return Ok(true),
            ScreenEvent::Quit => return Ok(false),
        }
    }
}

/// Nodes by index, with the CPU and memory that they use.
type Usages = Vec<(u32, Option<Usage>)>;

fn read_usages(state: &mut State, processes: &mut Processes) -> Usages {
    state.sample();
    let remotes: BTreeMap<usize, &Remote> = state
        .remotes()
        .map(|(first, remote)| (State::part_of(first), remote))
        .collect();
    let usage = |(index, node): (&u32, &NodeState)| {
        let of_pid = |pid| match remotes.get(&State::part_of(*index)) {
            Some(remote) => processes.usage_of_other(State::part_of(*index), remote, pid),
            None => match node.thread() {
                Some(thread) => processes.usage_of_thread(pid, thread),
                None => processes.usage(pid),
            },
        };
        (*index, node.pid().and_then(of_pid))
    };
    let shown = state.nodes.iter().filter(|(_, node)| state.is_shown(node));
    shown.map(usage).collect()
}

/// The rows of the nodes that still exist.
fn rows<'a>(state: &'a State, usages: &Usages) -> Vec<NodeRow<'a>> {
    let row = |(index, usage): &(u32, Option<Usage>)| {
        Some(NodeRow {
            node: state.nodes.get(index)?,
            usage: *usage,
        })
    };
    usages.iter().filter_map(row).collect()
}

/// The complete tables, whatever the size of the terminal.
fn text(state: &State, usages: &Usages, coloured: bool) -> String {
    let rows = rows(state, usages);
    let render = |table: Table| {
        if coloured {
            table.render_coloured(None)
        } else {
            table.render(None)
        }
    };
    let mut text = format!(
        "{}\n\n{}",
        title(state, rows.len()),
        render(node_table(state, &rows))
    );
    let edges: Vec<&Edge> = state.edges.iter().collect();
    if !edges.is_empty() {
        text.push_str(&format!("\n{}", render(edge_table_of(edges, None))));
    }
    for unreadable in state.edges.unreadable() {
        text.push_str(&format!("{unreadable}\n"));
    }
    text
}

fn answer(state: &State, usages: &Usages) -> Load {
    let welcome = state.welcome();
    let node = |(index, usage): &(u32, Option<Usage>)| {
        let node = &state.nodes[index];
        LoadOfNode {
            id: node.declared.id.clone(),
            machine: state.machine_of(*index).map(str::to_owned),
            observer: node.declared.observer,
            state: node.state(),
            pid: node.pid(),
            thread: node.thread(),
            restarts: node.started.as_ref().map_or(0, |started| started.restarts),
            cpu_percent: usage.and_then(|usage| usage.cpu_percent),
            resident_bytes: usage.map(|usage| usage.resident_bytes),
            threads: usage.map(|usage| usage.threads),
        }
    };
    Load {
        dataflow: welcome.dataflow.clone(),
        keeper: state.keeper(),
        state: state_name(state_of_all(state)),
        elapsed_seconds: age(welcome.started_utc_nanos).as_secs_f64(),
        nodes: usages.iter().map(node).collect(),
        link_bytes: state.link_bytes(),
        unreachable: state.unreachable_machines(),
        edges: state.edges.iter().map(edge_json).collect(),
    }
}
