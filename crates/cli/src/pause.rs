//! `nervure pause` and `nervure resume`.

use std::process::ExitCode;

use nervure_inspect::places;
use nervure_protocol::cli_to_keeper::Message;
use serde_json::json;

use crate::{failure::Failure, fleet, inspect::arguments::Target, output};

/// Pauses or resumes a dataflow on all its machines.
pub fn set_paused(target: &Target, is_paused: bool) -> Result<ExitCode, Failure> {
    let mut dataflows = fleet::set_paused_if_fleet(target, is_paused)?;
    if dataflows.is_empty() {
        dataflows.push(set_paused_alone(target, is_paused)?);
    }
    for dataflow in dataflows {
        output::write(&match (target.json, is_paused) {
            (true, _) => format!("{}\n", json!({"dataflow": dataflow, "paused": is_paused})),
            (false, true) => {
                format!("{dataflow} is paused; `nervure resume -d {dataflow}` lets it go on\n")
            }
            (false, false) => format!("{dataflow} goes on\n"),
        })?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Pauses a dataflow of one machine, and returns its name.
fn set_paused_alone(target: &Target, is_paused: bool) -> Result<String, Failure> {
    let found = places::find(target.dataflow.as_deref())?;
    let place = match found.parts.as_slice() {
        [part] => part.place(),
        _ => None,
    };
    let place = place.ok_or_else(|| {
        Failure::internal(format!("not all of `{}` can be reached", found.dataflow))
            .hint("the coordinator pauses a dataflow on all its machines: does `nervure up` run?")
    })?;
    let (program, message) = match is_paused {
        true => ("pause", Message::Pause),
        false => ("resume", Message::Resume),
    };
    let mut connection = place.connect(program)?;
    connection.ask(&message)?;
    Ok(connection.welcome().dataflow.clone())
}
