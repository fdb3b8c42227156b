//! `nervure param`: lists, reads and changes parameters.

use std::process::ExitCode;

use nervure_dataflow::{ParamSpec, param_value};
use nervure_inspect::{
    answers::{self, Param, Params},
    params::{OfNode, ask, ask_all, find},
    places::split_name,
    state::connect_to_node,
};
use nervure_protocol::{
    cli_to_keeper::{Message, SetParam},
    keeper_to_cli::NodeParam,
};
use serde_json::Value;

use crate::{
    failure::Failure,
    inspect::arguments::{ParamArguments, ParamOrder, Target},
    output,
    table::{Align, Table},
};

/// Runs a subcommand of `nervure param`.
pub fn param(arguments: &ParamArguments) -> Result<ExitCode, Failure> {
    let text = match &arguments.order {
        ParamOrder::List { node, target } => list(node.as_deref(), target)?,
        ParamOrder::Get { node, name, target } => get(node, name, target)?,
        ParamOrder::Set {
            node,
            name,
            value,
            target,
        } => set(node, name, value, target)?,
    };
    output::write(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn list(node: Option<&str>, target: &Target) -> Result<String, Failure> {
    let (dataflow, node) = match node {
        Some(node) => {
            split_name(node, target.dataflow.as_deref()).map(|(flow, node)| (flow, Some(node)))?
        }
        None => (target.dataflow.as_deref(), None),
    };
    let (dataflow, nodes) = match node {
        Some(name) => {
            let mut connection = connect_to_node(dataflow, name, "param")?;
            let nodes = ask(&mut connection, node)?;
            (connection.welcome().dataflow.clone(), nodes)
        }
        None => ask_all(dataflow)?,
    };
    if target.json {
        return Ok(answers::line(&Params::of(dataflow, &nodes)));
    }
    if nodes.iter().all(|(_, params)| params.is_empty()) {
        note!("no node has parameters; declare them in `params` of the dataflow file");
        return Ok(String::new());
    }
    Ok(table(&nodes).render(None))
}

fn get(node: &str, name: &str, target: &Target) -> Result<String, Failure> {
    let (dataflow, node) = split_name(node, target.dataflow.as_deref())?;
    let mut connection = connect_to_node(dataflow, node, "param")?;
    let param = find(&mut connection, node, name)?;
    Ok(match (target.json, &param.value) {
        (true, _) => answers::line(&Param::of(node, &param)),
        (false, Value::String(text)) => format!("{text}\n"),
        (false, value) => format!("{value}\n"),
    })
}

fn set(node: &str, name: &str, text: &str, target: &Target) -> Result<String, Failure> {
    let (dataflow, node) = split_name(node, target.dataflow.as_deref())?;
    let mut connection = connect_to_node(dataflow, node, "param")?;
    let before = find(&mut connection, node, name)?;
    // The keeper refuses a value of another type, with the expected one in its error.
    let value = param_value(text, before.spec.kind);
    let set = SetParam {
        node: node.to_owned(),
        name: name.to_owned(),
        value,
    };
    connection.ask(&Message::SetParam(set))?;
    let after = find(&mut connection, node, name)?;
    Ok(match target.json {
        true => answers::line(&Param::of(node, &after)),
        false => format!(
            "`{name}` of `{node}` is {}, it was {}\n",
            after.value, before.value
        ),
    })
}

fn table(nodes: &[OfNode]) -> Table {
    let mut table = Table::new(&[
        ("node", Align::Left),
        ("parameter", Align::Left),
        ("value", Align::Left),
        ("type", Align::Left),
        ("takes", Align::Left),
        ("description", Align::Left),
    ]);
    for (node, params) in nodes {
        for NodeParam { spec, value } in params {
            let takes = match spec.read_only {
                true => "read-only".to_owned(),
                false => takes(spec),
            };
            table.row(vec![
                node.clone(),
                spec.name.clone(),
                value.to_string(),
                spec.kind.as_str().to_owned(),
                takes,
                spec.description.clone().unwrap_or_default(),
            ]);
        }
    }
    table
}

/// The values that a parameter takes, beside its type.
pub fn takes(spec: &ParamSpec) -> String {
    match spec.one_of.is_empty() {
        true => spec.bounds(),
        false => {
            let choices: Vec<_> = spec.one_of.iter().map(Value::to_string).collect();
            choices.join(", ")
        }
    }
}
