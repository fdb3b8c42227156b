//! Asks a keeper for the parameters of its nodes.

use std::time::Instant;

use nervure_node::running::{Connection, ConnectionError, KEEPER_ANSWER_TIMEOUT};
use nervure_protocol::{
    cli_to_keeper::Message,
    keeper_to_cli::{Message as Answer, NodeParam},
};

use crate::failure::Failure;

/// The parameters of a node.
pub type OfNode = (String, Vec<NodeParam>);

/// The parameters of one node, or of all.
pub fn ask(connection: &mut Connection, node: Option<&str>) -> Result<Vec<OfNode>, Failure> {
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
