//! `nervure status`: shows the state of a dataflow, and its problems.

use std::process::ExitCode;

use nervure_protocol::keeper_to_cli::NodeDeclared;
use serde_json::json;

use super::{
    arguments::Target,
    connect,
    list::{age, state_name},
    state::{NodeState, State},
};
use crate::{
    failure::Failure,
    format,
    output::{self, plain_text},
    run::{
        edges::{Edge, Unreadable},
        losses,
    },
    table::{Align, Table},
};

/// Prints the state once.
pub fn status(target: &Target) -> Result<ExitCode, Failure> {
    let mut state = State::open(connect(target.dataflow.as_deref(), "status")?, false)?;
    state.sample();
    output::write(&match target.json {
        true => format!("{}\n", as_json(&state)),
        false => text(&state),
    })?;
    Ok(ExitCode::SUCCESS)
}

fn text(state: &State) -> String {
    let welcome = state.welcome();
    let how = if welcome.detached { ", detached" } else { "" };
    let mut text = format!(
        "{}: {} for {}{how}\n  keeper  {}\n  folder  {}\n  logs    {}\n\n",
        welcome.dataflow,
        state_name(welcome.state),
        format::elapsed(age(welcome.started_utc_nanos)),
        state.keeper(),
        welcome.folder,
        if welcome.log_folder.is_empty() {
            "none"
        } else {
            &welcome.log_folder
        },
    );
    let mut table = Table::new(&[
        ("node", Align::Left),
        ("state", Align::Left),
        ("pid", Align::Right),
        ("restarts", Align::Right),
        ("program", Align::Left),
    ]);
    for node in own_nodes(state) {
        table.row(vec![
            node.declared.id.clone(),
            node.state().to_owned(),
            node.pid()
                .map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
            restarts(node).to_string(),
            program(&node.declared),
        ]);
    }
    text.push_str(&table.render(None));
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
    state.nodes.values().filter(|node| !node.declared.observer)
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

fn as_json(state: &State) -> serde_json::Value {
    let welcome = state.welcome();
    let node = |node: &NodeState| {
        let is_its = |unreadable: &&Unreadable| unreadable.node == node.declared.id;
        json!({
            "id": node.declared.id,
            "state": node.state(),
            "pid": node.pid(),
            "restarts": restarts(node),
            "program": node.declared.program,
            "file_says": node.declared.file_says,
            "attached": node.declared.attached,
            "last_end": node.ended,
            "not_done": node.awaited(),
            "unreadable_counters": state.edges.unreadable().find(is_its).map(|unreadable| &unreadable.why),
        })
    };
    let edge = |edge: &Edge| {
        let lost = edge.has_output().then(|| edge.lost());
        json!({"topic": edge.topic, "input": edge.input, "lost": lost, "unreadable": edge.unreadable()})
    };
    let is_lossy = |edge: &&Edge| edge.lost() > 0 || !edge.has_output();
    json!({
        "dataflow": welcome.dataflow,
        "state": welcome.state,
        "started_utc_nanos": welcome.started_utc_nanos,
        "keeper": state.keeper(),
        "detached": welcome.detached,
        "folder": welcome.folder,
        "log_folder": welcome.log_folder,
        "nodes": own_nodes(state).map(node).collect::<Vec<_>>(),
        "lossy_edges": state.edges.iter().filter(is_lossy).map(edge).collect::<Vec<_>>(),
        "observers": observers(state).collect::<Vec<_>>(),
    })
}
