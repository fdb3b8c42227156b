//! `nervure node`: stops, starts, restarts, unloads and loads one node.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use nervure_inspect::{State, places::split_name, state::NodeState};
use nervure_protocol::cli_to_keeper::{Message, NodeOrder};
use serde_json::json;

use super::{
    arguments::{self, NodeArguments},
    replace,
};
use crate::{failure::Failure, output};

/// Interval between messages about waiting.
const REPORT_INTERVAL: Duration = Duration::from_secs(5);

/// Sends the order, and waits until it is carried out.
pub fn node(arguments: &NodeArguments) -> Result<ExitCode, Failure> {
    let (one, what, done) = match &arguments.order {
        arguments::NodeOrder::Stop(one) => (one, NodeOrder::Stop, "has stopped"),
        arguments::NodeOrder::Start(one) => (one, NodeOrder::Start, "runs"),
        arguments::NodeOrder::Restart(one) => (one, NodeOrder::Restart, "runs again"),
        arguments::NodeOrder::Unload(one) => (one, NodeOrder::Unload, "is unloaded"),
        arguments::NodeOrder::Load(one) => (one, NodeOrder::Load, "is loaded"),
        arguments::NodeOrder::Replace {
            node,
            program,
            target,
            args,
        } => {
            return replace::replace(node, program, args, target);
        }
    };
    let (dataflow, name) = split_name(&one.node, one.target.dataflow.as_deref())?;
    let mut state = State::find(dataflow, "node", true)?;
    let before = state.node(name).and_then(NodeState::incarnation);
    // A second connection: the first one receives reports.
    let mut orders = state.place_of_named(name)?.connect("node")?;
    orders.ask(&Message::Node {
        node: name.to_owned(),
        order: what,
    })?;
    loop {
        let is_alive = state.follow_one(Instant::now() + REPORT_INTERVAL)?;
        let Some(node) = state.node(name) else {
            break;
        };
        let is_done = match what {
            NodeOrder::Stop | NodeOrder::Unload => node.pid().is_none(),
            NodeOrder::Start | NodeOrder::Restart | NodeOrder::Load => node.incarnation() != before,
        };
        match is_alive {
            _ if is_done => break,
            None => {
                return Err(Failure::internal(format!(
                    "the dataflow ended before node `{name}` {done}"
                )));
            }
            Some(false) => note!("waiting for node `{name}` to end"),
            Some(true) => {}
        }
    }
    let pid = state.node(name).and_then(NodeState::pid);
    output::write(&match one.target.json {
        true => {
            let dataflow = &state.welcome().dataflow;
            format!(
                "{}\n",
                json!({"dataflow": dataflow, "node": name, "order": what, "pid": pid})
            )
        }
        false => format!("node `{name}` {done}\n"),
    })?;
    Ok(ExitCode::SUCCESS)
}
