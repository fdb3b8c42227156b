//! `nervure status`: shows the state of a dataflow, and its problems.

use std::process::ExitCode;

use nervure_inspect::{
    State,
    answers::{self, Status},
    edges::Edge,
    losses,
};
use nervure_protocol::keeper_to_cli::NodeDeclared;

use super::{arguments::Target, exit_code, list::state_and_age, streams};
use crate::{
    failure::Failure,
    output::{self, plain_text},
    table::{Align, Table},
};

/// Prints the state once.
pub fn status(target: &Target) -> Result<ExitCode, Failure> {
    let mut state = State::find(target.dataflow.as_deref(), "status", false)?;
    state.sample();
    output::write(&match target.json {
        true => answers::line(&Status::of(&state)),
        false => text(&state),
    })?;
    Ok(exit_code(&state))
}

fn text(state: &State) -> String {
    let welcome = state.welcome();
    let how = if welcome.detached { ", detached" } else { "" };
    let mut text = format!(
        "{}: {}{how}\n",
        welcome.dataflow,
        state_and_age(state.dataflow_state(), welcome.started_utc_nanos),
    );
    for (machine, place, welcome) in state.parts() {
        let indent = match machine {
            Some(machine) => {
                text.push_str(&format!("  {machine}\n"));
                "    "
            }
            None => "  ",
        };
        text.push_str(&format!(
            "{indent}keeper  {}\n{indent}folder  {}\n{indent}logs    {}\n",
            place.keeper(),
            welcome.folder,
            if welcome.log_folder.is_empty() {
                "none"
            } else {
                &welcome.log_folder
            },
        ));
    }
    for away in &state.unreachable {
        text.push_str(&format!("  {}\n    {}\n", away.machine, away.text()));
    }
    text.push('\n');
    text.push_str(&nodes_table(state).render(None));
    if !state.streams.is_empty() {
        text.push_str(&format!(
            "\n{}",
            streams::table(&state.streams).render(None)
        ));
    }
    for node in state.own_nodes() {
        if let Some(not_done) = node.awaited() {
            text.push_str(&format!(
                "\nnode `{}` {not_done}: the dataflow waits for it\n",
                node.declared.id
            ));
        }
    }
    for node in state.own_nodes() {
        if let Some(ended) = &node.ended {
            text.push_str(&format!("\nnode `{}`: {}\n", ended.id, ended.reason));
            for line in &ended.stderr_tail {
                text.push_str(&format!("    {}\n", plain_text(line)));
            }
        }
    }
    for unreadable in state.edges.unreadable() {
        text.push_str(&format!("\n{unreadable}\n"));
    }
    let lossy: Vec<&Edge> = state
        .edges
        .iter()
        .filter(|edge| edge.lost() > 0 && !edge.is_latest() && !edge.observer)
        .collect();
    if !lossy.is_empty() {
        text.push('\n');
        for edge in &lossy {
            let causes = losses::causes(&edge.totals());
            text.push_str(&format!("{} lost {}: {causes}\n", edge.name(), edge.lost()));
        }
        text.push_str("`nervure explain` shows the causes and remedies\n");
    }
    let observers: Vec<_> = state.observers().collect();
    if !observers.is_empty() {
        text.push_str(&format!("\nobserved by {}\n", observers.join(", ")));
    }
    text
}

fn nodes_table(state: &State) -> Table {
    let has_machines = state.has_machines();
    let mut columns = vec![("node", Align::Left)];
    columns.extend(has_machines.then_some(("machine", Align::Left)));
    columns.extend([
        ("state", Align::Left),
        ("pid", Align::Right),
        ("restarts", Align::Right),
        ("program", Align::Left),
    ]);
    let mut table = Table::new(&columns);
    let dash = || "-".to_owned();
    for node in state.own_nodes() {
        let machine = state.machine_of(node.declared.node).map(str::to_owned);
        let mut row = vec![node.declared.id.clone()];
        row.extend(has_machines.then(|| machine.unwrap_or_else(dash)));
        row.extend([
            node.state().to_owned(),
            node.pid().map_or_else(dash, |pid| pid.to_string()),
            node.restarts().to_string(),
            program(&node.declared),
        ]);
        table.row(row);
    }
    for away in &state.unreachable {
        for (node, last) in &away.nodes {
            let last = format!("{}, was: {last}", away.text());
            table.row(vec![
                node.clone(),
                away.machine.clone(),
                last,
                dash(),
                dash(),
                dash(),
            ]);
        }
    }
    table
}

/// The program of a node, with notes on a replaced program and an attached process.
fn program(declared: &NodeDeclared) -> String {
    let NodeDeclared {
        program,
        file_says,
        attached,
        ..
    } = declared;
    let file_says = file_says
        .as_ref()
        .map(|file_says| format!(" (the file says {file_says})"));
    let attached = attached.as_ref().map(|who| format!(" ({who} is attached)"));
    format!(
        "{program}{}{}",
        file_says.unwrap_or_default(),
        attached.unwrap_or_default()
    )
}
