//! Commands on running dataflows: they show, measure and change them.

pub mod arguments;
pub mod attach;
mod echo;
pub mod explain;
pub mod holders;
pub mod lint;
pub mod list;
pub mod logs;
mod measure;
pub mod node;
pub mod observing;
pub mod param;
pub mod params;
pub mod places;
pub mod processes;
mod replace;
pub mod state;
pub mod status;
pub mod stop;
mod tensor;
pub mod top;
pub mod topic;
pub mod topics;
mod value;

use nervure_node::{
    ObserveError,
    running::{Connection, ConnectionError},
};
use nervure_protocol::cli_to_keeper;

use self::state::State;
use crate::failure::Failure;

/// Connects to the keeper of a node, of the named dataflow or of the only one that runs.
pub fn connect_to_node(
    name: Option<&str>,
    node: &str,
    program: &str,
) -> Result<Connection, Failure> {
    let found = places::find(name)?;
    match found.parts.as_slice() {
        [part] if part.place().is_some() => part.place().expect("just seen").connect(program),
        _ => {
            let state = State::open(&found, program, false)?;
            place_of(&state, node)?.connect(program)
        }
    }
}

/// Where the keeper of a node is. A node that is not known is for any keeper to refuse, unless its
/// machine cannot be reached.
pub fn place_of<'a>(state: &'a State, node: &str) -> Result<&'a places::Place, Failure> {
    if let Some(found) = node::find(state, node) {
        return Ok(state.place_of(found.declared.node));
    }
    let mut unreachable = state.unreachable.iter();
    match unreachable.find(|one| one.nodes.contains_key(node)) {
        Some(one) => Err(Failure::internal(one.reason.clone())
            .hint(format!("node `{node}` was on {} last", one.machine))),
        None => Ok(state.place_of(0)),
    }
}

/// Lowers the CPU priority of this process below that of the nodes. An error is ignored.
fn lower_priority() {
    const NICENESS: i32 = 10;
    let _ = rustix::process::nice(NICENESS);
}

/// Sends an order, and waits for the keeper's answer.
fn send_order(
    connection: &mut Connection,
    message: &cli_to_keeper::Message,
) -> Result<(), Failure> {
    connection.ask(message)?;
    Ok(())
}

/// Splits `dataflow:name`. `-d` may name the dataflow too, but not a different one.
fn split_name<'a>(
    text: &'a str,
    dataflow: Option<&'a str>,
) -> Result<(Option<&'a str>, &'a str), Failure> {
    match (text.split_once(':'), dataflow) {
        (None, dataflow) => Ok((dataflow, text)),
        (Some((prefix, name)), None) => Ok((Some(prefix), name)),
        (Some((prefix, name)), Some(dataflow)) if prefix == dataflow => Ok((Some(prefix), name)),
        (Some((prefix, _)), Some(dataflow)) => Err(Failure::invalid(format!(
            "`{text}` names dataflow `{prefix}`, but `-d` names `{dataflow}`"
        ))),
    }
}

impl From<ObserveError> for Failure {
    fn from(error: ObserveError) -> Self {
        match error {
            ObserveError::Connection(error) => error.into(),
            ObserveError::Connect(error) => {
                Self::internal("cannot observe the dataflow").because(error)
            }
        }
    }
}

impl From<ConnectionError> for Failure {
    fn from(error: ConnectionError) -> Self {
        let is_users = matches!(
            error,
            ConnectionError::NotRunning { .. }
                | ConnectionError::Several { .. }
                | ConnectionError::Refused(_)
                | ConnectionError::OtherUser { .. }
        );
        let failure = if is_users {
            Self::invalid(error.to_string())
        } else {
            Self::internal(error.to_string())
        };
        match error.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_include_its_dataflow() {
        assert_eq!(split_name("camera", None).unwrap(), (None, "camera"));
        assert_eq!(
            split_name("camera", Some("drive")).unwrap(),
            (Some("drive"), "camera")
        );
        assert_eq!(
            split_name("drive:camera", None).unwrap(),
            (Some("drive"), "camera")
        );
        assert_eq!(
            split_name("drive:camera", Some("drive")).unwrap(),
            (Some("drive"), "camera")
        );
        assert!(split_name("drive:camera", Some("arm")).is_err());
    }
}
