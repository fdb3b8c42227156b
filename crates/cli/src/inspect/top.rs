//! `nervure top`: shows the load of nodes and the traffic on edges.

mod screen;
mod tables;
mod view;

use std::{
    io::{self, IsTerminal},
    process::ExitCode,
    time::Instant,
};

use nervure_inspect::{
    State,
    answers::{self, Load},
    edges::Edge,
    load::{Usages, read_usages},
    processes::{Processes, Usage},
};

use self::{
    screen::{Screen, ScreenEvent},
    tables::{NodeRow, edge_table_of, node_table, title},
    view::{KeyEffect, View},
};
use super::{arguments::TopArguments, exit_code, lower_priority};
use crate::{failure::Failure, output, source::wants_colour, table::Table};

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
    Ok(exit_code(&state))
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
            output::write_or_end(&answers::line(&Load::of(state, &usages)))?;
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
