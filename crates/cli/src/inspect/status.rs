//! `nervure status`: shows the state of a dataflow, and its problems.

use std::process::ExitCode;

use nervure_protocol::keeper_to_cli::{DataflowState, NodeDeclared, Welcome};

use super::{
    answers::{self, LossyEdge, Status, StatusOfNode, StatusOfPart, UnreachableMachine},
    arguments::Target,
    list::state_and_age,
    places::Place,
    state::{NodeState, State},
    streams,
};
use crate::{
    failure::Failure,
    output::{self, plain_text},
    run::{
        edges::{Edge, Unreadable},
        losses,
    },
    table::{Align, Table},
};

/// Prints the state once.
pub fn status(target: &Target) -> Result<ExitCode, Failure> {
    let mut state = State::find(target.dataflow.as_deref(), "status", false)?;
    state.sample();
    output::write(&match target.json {
        true => answers::line(&answer(&state)),
        false => text(&state),
    })?;
    Ok(state.exit_code())
}

/// The state as `--json` writes it.
#[cfg(feature = "api")]
pub fn status_of(dataflow: &str) -> Result<Status, Failure> {
    let mut state = State::find(Some(dataflow), "status", false)?;
    state.sample();
    Ok(answer(&state))
}

fn text(state: &State) -> String {
    let welcome = state.welcome();
    let how = if welcome.detached { ", detached" } else { "" };
    let mut text = format!(
        "{}: {}{how}\n",
        welcome.dataflow,
        state_and_age(state_of_all(state), welcome.started_utc_nanos),
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
    for node in own_nodes(state) {
        if let Some(not_done) = node.awaited() {
            text.push_str(&format!(
                "\nnode `{}` {not_done}: the dataflow waits for it\n",
                node.declared.id
            ));
        }
    }
    for node in own_nodes(state) {
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
    let observers: Vec<_> = observers(state).collect();
    if !observers.is_empty() {
        text.push_str(&format!("\nobserved by {}\n", observers.join(", ")));
    }
    text
}

fn nodes_table(state: &State) -> Table {
    let has_machines = has_machines(state);
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
    for node in own_nodes(state) {
        let machine = state.machine_of(node.declared.node).map(str::to_owned);
        let mut row = vec![node.declared.id.clone()];
        row.extend(has_machines.then(|| machine.unwrap_or_else(dash)));
        row.extend([
            node.state().to_owned(),
            node.pid().map_or_else(dash, |pid| pid.to_string()),
            restarts(node).to_string(),
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

/// Whether it is a dataflow of a fleet.
pub fn has_machines(state: &State) -> bool {
    state.is_merged() || state.parts().any(|(machine, _, _)| machine.is_some())
}

/// The state of a dataflow: starting until all its parts run, paused until all are resumed, and stopping as
/// soon as one stops.
pub fn state_of_all(state: &State) -> DataflowState {
    let mut states = state.states();
    let first = states.next().unwrap_or(DataflowState::Unknown);
    states.fold(first, |all, one| match (all, one) {
        (DataflowState::Stopping, _) | (_, DataflowState::Stopping) => DataflowState::Stopping,
        (DataflowState::Starting, _) | (_, DataflowState::Starting) => DataflowState::Starting,
        (DataflowState::Paused, _) | (_, DataflowState::Paused) => DataflowState::Paused,
        (all, _) => all,
    })
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

fn own_nodes(state: &State) -> impl Iterator<Item = &NodeState> {
    let nodes = state.nodes.values();
    nodes.filter(|node| !node.declared.observer && state.is_shown(node))
}

fn observers(state: &State) -> impl Iterator<Item = &str> {
    state
        .nodes
        .values()
        .filter(|node| node.declared.observer)
        .map(|node| node.declared.id.as_str())
}

pub fn restarts(node: &NodeState) -> u32 {
    node.started.as_ref().map_or(0, |started| started.restarts)
}

fn answer(state: &State) -> Status {
    let welcome = state.welcome();
    let machine = |node| state.machine_of(node).map(str::to_owned);
    let node = |node: &NodeState| {
        let is_its = |unreadable: &&Unreadable| unreadable.node == node.declared.id;
        let unreadable = state.edges.unreadable().find(is_its);
        StatusOfNode {
            id: node.declared.id.clone(),
            machine: machine(node.declared.node),
            state: node.state(),
            pid: node.pid(),
            restarts: restarts(node),
            program: node.declared.program.clone(),
            file_says: node.declared.file_says.clone(),
            attached: node.declared.attached.clone(),
            last_end: node.ended.clone(),
            not_done: node.awaited().map(str::to_owned),
            unreadable_counters: unreadable.map(|unreadable| unreadable.why.clone()),
        }
    };
    let edge = |edge: &Edge| LossyEdge {
        topic: edge.topic.clone(),
        input: edge.input.clone(),
        lost: edge.has_output().then(|| edge.lost()),
        unreadable: edge.unreadable(),
    };
    let part = |(machine, place, welcome): (Option<&str>, &Place, &Welcome)| StatusOfPart {
        machine: machine.map(str::to_owned),
        keeper: place.keeper(),
        state: welcome.state,
        folder: welcome.folder.clone(),
        log_folder: welcome.log_folder.clone(),
    };
    let is_lossy = |edge: &&Edge| edge.lost() > 0 || !edge.has_output();
    Status {
        dataflow: welcome.dataflow.clone(),
        state: state_of_all(state),
        parts: state.parts().map(part).collect(),
        unreachable: state
            .unreachable
            .iter()
            .map(UnreachableMachine::with_nodes)
            .collect(),
        started_utc_nanos: welcome.started_utc_nanos,
        keeper: state.keeper(),
        detached: welcome.detached,
        folder: welcome.folder.clone(),
        log_folder: welcome.log_folder.clone(),
        nodes: own_nodes(state).map(node).collect(),
        streams: state.streams.clone(),
        streams_omitted: state.streams_omitted,
        lossy_edges: state.edges.iter().filter(is_lossy).map(edge).collect(),
        observers: observers(state).map(str::to_owned).collect(),
    }
}
