//! `nervure param`: lists, reads and changes parameters.

use std::process::ExitCode;

use nervure_dataflow::param_value;
use nervure_node::running::Connection;
use nervure_protocol::{
    cli_to_keeper::{Message, SetParam},
    did_you_mean,
    keeper_to_cli::NodeParam,
};
use serde_json::{Value, json};

use super::{
    answers::{self, Param, Params},
    params::{OfNode, ask},
    places::{self, PartKeeper},
    send_order, split_name,
    state::{connect_to_node, not_reached},
};
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
        None => list_all(dataflow)?,
    };
    if target.json {
        return Ok(answers::line(&answer(dataflow, &nodes)));
    }
    if nodes.iter().all(|(_, params)| params.is_empty()) {
        note!("no node has parameters; declare them in `params` of the dataflow file");
        return Ok(String::new());
    }
    Ok(table(&nodes).render(None))
}

/// The parameters of all nodes as `--json` writes them.
#[cfg(feature = "api")]
pub fn params_of(dataflow: &str) -> Result<Params, Failure> {
    let (dataflow, nodes) = list_all(Some(dataflow))?;
    Ok(answer(dataflow, &nodes))
}

fn answer(dataflow: String, nodes: &[OfNode]) -> Params {
    let of_node = |(node, params): &'_ OfNode| {
        let params = params.iter().map(|param| answer_of(node, param));
        params.collect::<Vec<_>>()
    };
    Params {
        dataflow,
        params: nodes.iter().flat_map(of_node).collect(),
    }
}

/// The parameters of all nodes on all machines, and the name of the dataflow.
fn list_all(dataflow: Option<&str>) -> Result<(String, Vec<OfNode>), Failure> {
    let found = places::find(dataflow)?;
    let mut nodes = Vec::new();
    for part in &found.parts {
        match &part.keeper {
            PartKeeper::At(place, _) => nodes.extend(ask(&mut place.connect("param")?, None)?),
            PartKeeper::Unreachable(away) => {
                return Err(not_reached(&found.dataflow, std::slice::from_ref(away)));
            }
        }
    }
    Ok((found.dataflow, nodes))
}

fn get(node: &str, name: &str, target: &Target) -> Result<String, Failure> {
    let (dataflow, node) = split_name(node, target.dataflow.as_deref())?;
    let mut connection = connect_to_node(dataflow, node, "param")?;
    let param = find(&mut connection, node, name)?;
    Ok(match (target.json, &param.value) {
        (true, _) => answers::line(&answer_of(node, &param)),
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
    send_order(&mut connection, &Message::SetParam(set))?;
    let after = find(&mut connection, node, name)?;
    Ok(match target.json {
        true => answers::line(&answer_of(node, &after)),
        false => format!(
            "`{name}` of `{node}` is {}, it was {}\n",
            after.value, before.value
        ),
    })
}

fn find(connection: &mut Connection, node: &str, name: &str) -> Result<NodeParam, Failure> {
    let params: Vec<_> = ask(connection, Some(node))?
        .into_iter()
        .flat_map(|(_, params)| params)
        .collect();
    if let Some(param) = params.iter().find(|param| param.spec.name == name) {
        return Ok(param.clone());
    }
    let names = params.iter().map(|param| param.spec.name.as_str());
    let hint = match params.is_empty() {
        true => "it has no parameters: declare them in `params` of the dataflow file".to_owned(),
        false => did_you_mean(name, "its parameters are", names),
    };
    Err(Failure::missing(format!("node `{node}` has no parameter `{name}`")).hint(hint))
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
            let choices: Vec<_> = spec.one_of.iter().map(Value::to_string).collect();
            let takes = match (spec.read_only, choices.is_empty()) {
                (true, _) => "read-only".to_owned(),
                (false, true) => spec.bounds(),
                (false, false) => choices.join(", "),
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

/// The declaration with its node, the current `value`, and the value of the file as `initial`.
fn answer_of(node: &str, param: &NodeParam) -> Param {
    let mut declared = match json!(param.spec) {
        Value::Object(declared) => declared,
        _ => unreachable!("a declaration is an object"),
    };
    Param {
        node: node.to_owned(),
        value: param.value.clone(),
        initial: declared.remove("value").unwrap_or_default(),
        declared,
    }
}
