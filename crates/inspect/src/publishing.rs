//! Samples of tools for topics, and for single inputs.

use nervure_node::{
    message::{Encode, JsonSample, TypeName},
    running::{Connection, ConnectionError},
};
use nervure_protocol::{
    cli_to_keeper::{self, Publish},
    keeper_to_cli::{Message, Published},
};
use nervure_types::{SampleCheck, standard_type};
use serde_json::Value;

use crate::{Error, State, places::split_name};

/// Publishes on an output of a node, or delivers to one of its inputs.
pub struct Publishing {
    keeper: Connection,
    request: Publish,
    /// The end of the node, as it was found.
    pub end: End,
}

/// The end of a node that samples are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// All consumers of an output get the samples.
    Output,
    /// The node of the input gets the samples, and no other.
    Input,
}

impl Publishing {
    /// Finds `node/output`, or else `node/input`, and completes the value by the type there.
    ///
    /// # Errors
    /// If there is no such output or input, or the value does not fit its type.
    pub fn open(
        topic: &str,
        dataflow: Option<&str>,
        value: Value,
        program: &str,
    ) -> Result<Self, Error> {
        let (dataflow, topic) = split_name(topic, dataflow)?;
        let state = State::find(dataflow, program, false)?;
        let (node, name) = topic.split_once('/').unwrap_or((topic, ""));
        let (end, type_name) = find(&state, node, name).ok_or_else(|| no_topic(&state, topic))?;
        let value = match type_name {
            Some(type_name) => fitting(&type_name, value)?,
            None => value,
        };
        JsonSample::new(&value).map_err(Error::Value)?;
        Ok(Self {
            keeper: state.place_of_named(node)?.connect(program)?,
            request: Publish {
                node: node.to_owned(),
                name: name.to_owned(),
                value,
            },
            end,
        })
    }

    /// Publishes the value once more.
    ///
    /// # Errors
    /// If the node refuses it: it does not run, or the queue of a `block` input is full.
    pub fn publish(&mut self) -> Result<Published, Error> {
        let request = cli_to_keeper::Message::Publish(self.request.clone());
        match self.keeper.ask(&request)? {
            Message::Published(published) => Ok(published),
            other => Err(ConnectionError::Unexpected(format!("{other:?}")).into()),
        }
    }
}

/// The end of that name and its type, if it has one.
fn find(state: &State, node: &str, name: &str) -> Option<(End, Option<String>)> {
    let declared = &state.node(node)?.declared;
    if name.contains('~') {
        return None;
    }
    let output = declared.outputs.iter().find(|output| output.name == name);
    let input = || declared.inputs.iter().find(|input| input.name == name);
    match output {
        Some(output) => Some((End::Output, output.type_name.clone())),
        None => input().map(|input| (End::Input, input.type_name.clone())),
    }
}

fn no_topic(state: &State, topic: &str) -> Error {
    let names = |node: &crate::state::NodeState| {
        let outputs = node.declared.outputs.iter().map(|output| &output.name);
        let inputs = node.declared.inputs.iter().map(|input| &input.name);
        let names = outputs.chain(inputs).filter(|name| !name.contains('~'));
        let names = names.map(|name| format!("{}/{name}", node.declared.id));
        names.collect::<Vec<_>>()
    };
    Error::NoTopic {
        pattern: topic.to_owned(),
        topics: state.own_nodes().flat_map(names).collect(),
        unreachable: state
            .unreachable
            .iter()
            .map(|one| one.reason.clone())
            .collect(),
    }
}

/// The value as one of a type. A type without a definition here has no check.
fn fitting(type_name: &str, value: Value) -> Result<Value, Error> {
    let Some(definition) = type_name
        .parse::<TypeName>()
        .ok()
        .and_then(|name| standard_type(&name))
    else {
        return Ok(value);
    };
    let value = definition
        .complete(type_name, value)
        .map_err(Error::Misfit)?;
    let sample = JsonSample::new(&value).map_err(Error::Value)?;
    SampleCheck::new(type_name, definition)
        .check(&sample.layout(), sample.schema())
        .map_err(Error::Misfit)?;
    Ok(value)
}
