//! Commands on running dataflows: they show, measure and change them.

pub mod answers;
pub mod arguments;
pub mod attach;
mod echo;
pub mod explain;
pub mod holders;
pub mod keeper_end;
pub mod lint;
pub mod list;
pub mod logs;
mod measure;
pub mod node;
pub mod observing;
pub mod param;
pub mod params;
pub mod pause;
pub mod places;
pub mod processes;
mod replace;
pub mod state;
pub mod status;
pub mod stop;
pub mod streams;
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

use crate::failure::Failure;

/// Lowers the CPU priority of this process below that of the nodes. An error is ignored.
fn lower_priority() {
    const NICENESS: i32 = 10;
    let _ = rustix::process::nice(NICENESS);
}

/// Sends an order, and waits for the keeper's answer.
pub fn send_order(
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
        let is_missing = matches!(
            error,
            ConnectionError::NoneRuns(_) | ConnectionError::NotRunning { .. }
        );
        let failure = if is_users {
            Self::invalid(error.to_string())
        } else {
            Self::internal(error.to_string())
        };
        let failure = match is_missing {
            true => failure.of_missing(),
            false => failure,
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
