//! The parameters of nodes, from their keepers.

use std::time::Instant;

use nervure_node::running::{Connection, ConnectionError, KEEPER_ANSWER_TIMEOUT};
use nervure_protocol::{
    cli_to_keeper::Message,
    keeper_to_cli::{Message as Answer, NodeParam},
};

use serde_json::{Value, json};

use crate::{
    Error,
    answers::{Param, Params},
    places::{self, PartKeeper},
    state::not_reached,
};

/// The parameters of a node.
pub type OfNode = (String, Vec<NodeParam>);

/// The parameters of one node, or of all.
pub fn ask(connection: &mut Connection, node: Option<&str>) -> Result<Vec<OfNode>, Error> {
    let mut answer = connection.ask(&Message::Params {
        node: node.map(str::to_owned),
    })?;
    let mut nodes = Vec::new();
    loop {
        match answer {
            Answer::Params { node, params } => nodes.push((node, params)),
            Answer::Done => return Ok(nodes),
            other => return Err(ConnectionError::Unexpected(format!("{other:?}")).into()),
        }
        answer = match connection.receive_until(Instant::now() + KEEPER_ANSWER_TIMEOUT)? {
            Some((answer, _)) => answer,
            None => {
                return Err(ConnectionError::Unexpected(
                    "its list of parameters has no end".to_owned(),
                )
                .into());
            }
        };
    }
}

/// A parameter of a node.
///
/// # Errors
/// If the keeper has no such node, or the node no such parameter.
pub fn find(connection: &mut Connection, node: &str, name: &str) -> Result<NodeParam, Error> {
    let params: Vec<_> = ask(connection, Some(node))?
        .into_iter()
        .flat_map(|(_, params)| params)
        .collect();
    if let Some(param) = params.iter().find(|param| param.spec.name == name) {
        return Ok(param.clone());
    }
    Err(Error::NoParam {
        node: node.to_owned(),
        param: name.to_owned(),
        params: params.into_iter().map(|param| param.spec.name).collect(),
    })
}

/// The parameters of all nodes of a dataflow.
///
/// # Errors
/// If the dataflow cannot be found, or a part of it cannot be reached.
pub fn params(dataflow: &str) -> Result<Params, Error> {
    let (dataflow, nodes) = ask_all(Some(dataflow))?;
    Ok(Params::of(dataflow, &nodes))
}

/// The parameters of all nodes on all machines, and the name of the dataflow.
///
/// # Errors
/// As [`params`].
pub fn ask_all(dataflow: Option<&str>) -> Result<(String, Vec<OfNode>), Error> {
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

impl Params {
    /// The parameters of some nodes.
    pub fn of(dataflow: String, nodes: &[OfNode]) -> Self {
        let of_node = |(node, params): &'_ OfNode| {
            let params = params.iter().map(|param| Param::of(node, param));
            params.collect::<Vec<_>>()
        };
        Self {
            dataflow,
            params: nodes.iter().flat_map(of_node).collect(),
        }
    }
}

impl Param {
    /// The declaration with its node, the current `value`, and the value of the file as `initial`.
    pub fn of(node: &str, param: &NodeParam) -> Self {
        let mut declared = match json!(param.spec) {
            Value::Object(declared) => declared,
            _ => unreachable!("a declaration is an object"),
        };
        Self {
            node: node.to_owned(),
            value: param.value.clone(),
            initial: declared.remove("value").unwrap_or_default(),
            declared,
        }
    }
}
