//! `nervure stop`: ends a dataflow from outside.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use nervure_node::running::ConnectionError;
use nervure_protocol::cli_to_keeper::Message;
use serde_json::json;

use super::arguments::StopArguments;
use super::{connect, order};
use crate::{failure::Failure, output};

/// How often the user is told that it is still being waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// Stops it, and waits until its keeper is gone.
pub fn stop(arguments: &StopArguments) -> Result<ExitCode, Failure> {
    let mut connection = connect(arguments.target.dataflow.as_deref(), "stop")?;
    let dataflow = connection.welcome().dataflow.clone();
    let message = match arguments.kill {
        true => Message::Kill,
        false => Message::Stop { reason: "`nervure stop`".to_owned() },
    };
    match order(&mut connection, &message) {
        Ok(()) => {}
        // Its last node may have ended before the answer.
        Err(_) if matches!(connection.try_receive(), Err(ConnectionError::Gone(_))) => {}
        Err(failure) => return Err(failure),
    }
    let mut told_at = Instant::now() + PATIENCE;
    loop {
        match connection.receive_until(told_at) {
            Err(ConnectionError::Gone(_)) => break,
            Err(error) => return Err(error.into()),
            Ok(Some(_)) => {}
            Ok(None) => {
                eprintln!("waiting for the nodes of {dataflow} to end; `nervure stop --kill` does not wait");
                told_at = Instant::now() + PATIENCE;
            }
        }
    }
    output::write(&match arguments.target.json {
        true => format!("{}\n", json!({"dataflow": dataflow, "stopped": true})),
        false => format!("{dataflow} has stopped\n"),
    })?;
    Ok(ExitCode::SUCCESS)
}
