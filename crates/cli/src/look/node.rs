//! `nervure node`: stops, starts and restarts one node.

use std::process::ExitCode;

use nervure_protocol::cli_to_keeper::{Message, NodeOrder};
use serde_json::json;

use super::{connect, order, split_name};
use crate::{
    failure::Failure,
    look::arguments::{self, NodeArguments},
    output,
};

/// Gives the order. The keeper carries it out by itself.
pub fn node(arguments: &NodeArguments) -> Result<ExitCode, Failure> {
    let (one, what, done) = match &arguments.order {
        arguments::NodeOrder::Stop(one) => (one, NodeOrder::Stop, "is being stopped"),
        arguments::NodeOrder::Start(one) => (one, NodeOrder::Start, "is being started"),
        arguments::NodeOrder::Restart(one) => (one, NodeOrder::Restart, "is being restarted"),
    };
    let (dataflow, node) = split_name(&one.node, one.target.dataflow.as_deref())?;
    let mut connection = connect(dataflow, "node")?;
    order(&mut connection, &Message::Node { node: node.to_owned(), order: what })?;
    output::write(&match one.target.json {
        true => {
            format!("{}\n", json!({"dataflow": connection.welcome().dataflow, "node": node, "order": what}))
        }
        false => format!("node `{node}` {done}\n"),
    })?;
    Ok(ExitCode::SUCCESS)
}
