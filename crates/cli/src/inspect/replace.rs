//! `nervure node replace`: replaces the program of a node.

use std::{
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};

use nervure_dataflow::{Entry, Host, Surroundings};
use nervure_inspect::{places::split_name, state::connect_to_node};
use nervure_node::running::ConnectionError;
use nervure_protocol::{cli_to_keeper, graph::Program, keeper_to_cli::Message};
use serde_json::json;

use super::arguments::Target;
use crate::{failure::Failure, output};

/// Interval between messages about waiting.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// Sends the order, and waits until the new program is ready or the old one is back.
pub fn replace(
    node: &str,
    program: &str,
    args: &[String],
    target: &Target,
) -> Result<ExitCode, Failure> {
    let (dataflow, node) = split_name(node, target.dataflow.as_deref())?;
    let program = locate(program)?;
    let mut connection = connect_to_node(dataflow, node, "node")?;
    connection.send(&cli_to_keeper::Message::Replace(cli_to_keeper::Replace {
        node: node.to_owned(),
        program: program.clone(),
        args: (!args.is_empty()).then(|| args.to_vec()),
        folder: None,
        version: None,
    }))?;
    let answer = loop {
        match connection.receive_until(Instant::now() + REPORT_INTERVAL)? {
            Some((answer, _)) => break answer,
            None => note!("waiting for {program} to be ready"),
        }
    };
    match answer {
        Message::Done => {}
        Message::Refused(refused) => return Err(ConnectionError::Refused(refused).into()),
        other => return Err(ConnectionError::Unexpected(format!("{other:?}")).into()),
    }
    output::write(&match target.json {
        true => {
            let (dataflow, program) = (&connection.welcome().dataflow, program.to_string());
            let result =
                json!({"dataflow": dataflow, "node": node, "order": "replace", "program": program});
            format!("{result}\n")
        }
        false => format!("node `{node}` runs {program}\n"),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The program at a path, as in `path` of a dataflow file, but relative to the working directory.
fn locate(path: &str) -> Result<Program, Failure> {
    let folder = std::env::current_dir()
        .map_err(|error| Failure::internal("cannot read the working directory").because(error))?;
    let file = folder.join(path);
    let is_python = file.extension().is_some_and(|extension| extension == "py");
    match Host.entry(&file) {
        Entry::File { .. } if is_python => Ok(Program::Python(file)),
        Entry::File { executable: true } => Ok(Program::Executable(file)),
        _ if !path.contains('/') && Host.has_command(path) => Ok(Program::Command(path.to_owned())),
        Entry::File { .. } => Err(
            Failure::invalid(format!("the file `{path}` is not executable")).hint(format!(
                "run `chmod +x {path}`; a Python script needs a name that ends in `.py`"
            )),
        ),
        Entry::Folder => Err(Failure::invalid(format!("`{path}` is a folder"))),
        Entry::Missing => Err(missing(path, &folder)),
    }
}

fn missing(path: &str, folder: &Path) -> Failure {
    let failure = match path.contains('/') {
        true => Failure::invalid(format!("the file `{path}` does not exist")),
        false => Failure::invalid(format!(
            "`{path}` is neither a file here nor a command on the PATH"
        )),
    };
    failure.hint(format!("paths are relative to {}", folder.display()))
}
