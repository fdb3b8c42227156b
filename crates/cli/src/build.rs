//! `nervure build`: runs the build commands of nodes.

use std::{
    io,
    path::Path,
    process::{Command, ExitCode, Stdio},
};

use nervure_dataflow::{Dataflow, Host, Node, load, load_for};

use serde_json::json;

use crate::{
    failure::Failure, format::count, hosts::BuiltHost, output, overrides::Overrides, source,
};

/// Builds the nodes of a dataflow file, and checks that every program exists afterwards.
pub fn build(file: &Path, as_json: bool) -> Result<ExitCode, Failure> {
    let dataflow = source::accept(load_for(file, &BuiltHost { host: &Host }), file)?;
    let built = run_commands(&dataflow)?;
    match built.len() {
        0 => note!("no node has a `build`"),
        number => {
            let mut report = load(file);
            report.require_programs();
            // Warnings were shown before the build.
            if report.has_errors() {
                source::accept(report, file)?;
            }
            note!("built {}", count(number, "node"));
        }
    }
    if as_json {
        output::write(&format!(
            "{}\n",
            json!({"file": file.display().to_string(), "built": built})
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Builds the nodes of a dataflow file before its start.
pub fn build_first(overrides: &Overrides, file: &Path) -> Result<(), Failure> {
    run_commands(&overrides.read_to_build(file)?)?;
    Ok(())
}

/// Runs the build commands of every node, each with `sh` in the dataflow's folder, up to the first
/// failure. Returns the ids of the nodes with build commands.
fn run_commands(dataflow: &Dataflow) -> Result<Vec<&str>, Failure> {
    let mut built = Vec::new();
    for node in &dataflow.nodes {
        let Some(commands) = &node.build else {
            continue;
        };
        for line in commands
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
        {
            run_command(line, node, &dataflow.directory)?;
        }
        built.push(node.id.as_str());
    }
    Ok(built)
}

fn run_command(line: &str, node: &Node, folder: &Path) -> Result<(), Failure> {
    note!("{}: {line}", node.id);
    let mut command = Command::new("sh");
    // Stdout is for the data of `nervure build`, not for the output of builds.
    command
        .args(["-c", line])
        .current_dir(folder)
        .envs(&node.settings.env)
        .stdin(Stdio::null())
        .stdout(io::stderr());
    let failed = |what: String| {
        Failure::internal(format!("the build of node `{}` failed: {what}", node.id))
            .because(format!("`{line}` in {}", folder.display()))
    };
    let status = command
        .status()
        .map_err(|error| failed(error.to_string()))?;
    if status.success() {
        Ok(())
    } else {
        Err(failed(status.to_string()))
    }
}
