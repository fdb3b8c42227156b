//! `nervure build`: runs the build commands of nodes.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::Path,
    process::{Command, ExitCode, Stdio},
};

use nervure_dataflow::{Dataflow, Host, Node, load_for};
use nervure_launch::{Overrides, environments::Environments, hosts::BuiltHost};

use nervure_inspect::format::count;
use serde_json::json;

use crate::{
    failure::Failure,
    output, repositories, source,
    uv::{self, Uv},
};

/// Builds the nodes of a dataflow file, and checks that every program exists afterwards. With
/// `has_uv`, packages of Python go into an environment for each node.
pub fn build(file: &Path, has_uv: bool, as_json: bool) -> Result<ExitCode, Failure> {
    let dataflow = source::accept(load_for(file, &BuiltHost { host: &Host }))?;
    let built = run_commands(&dataflow, file, has_uv)?;
    match built.len() {
        0 => note!("no node has a `build`"),
        number => {
            let mut report = match has_uv {
                true => load_for(file, &Environments::of(file)?.host(&Host)),
                false => load_for(file, &Host),
            };
            report.require_programs();
            // Warnings were shown before the build.
            if report.has_errors() {
                source::accept(report)?;
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
pub fn build_first(overrides: &Overrides, file: &Path, has_uv: bool) -> Result<(), Failure> {
    run_commands(&source::read_to_build(file, overrides)?, file, has_uv)?;
    Ok(())
}

/// Removes the Python environments that builds of a dataflow file made.
pub fn clean(file: &Path) -> Result<ExitCode, Failure> {
    match uv::remove(file)? {
        Some(folder) => note!("removed {}", folder.display()),
        None => note!("there is nothing to remove"),
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs the build commands of every node, each with `sh` in the dataflow's folder, up to the first
/// failure. Returns the ids of the nodes with build commands.
fn run_commands<'d>(
    dataflow: &'d Dataflow,
    file: &Path,
    has_uv: bool,
) -> Result<Vec<&'d str>, Failure> {
    let uv = has_uv.then(|| Uv::find(file)).transpose()?;
    let mut built = Vec::new();
    let mut cloned = BTreeSet::new();
    for node in &dataflow.nodes {
        if let Some(repository) = &node.git
            && cloned.insert(&repository.folder)
        {
            repositories::fetch(repository)?;
        }
        let Some(commands) = &node.build else {
            continue;
        };
        let variables = match &uv {
            Some(uv) => uv.begin(node)?,
            None => BTreeMap::new(),
        };
        for line in commands
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
        {
            let folder = node.settings.folder.as_deref();
            let folder = folder.unwrap_or(&dataflow.directory);
            run_command(line, node, folder, &variables)?;
        }
        if let Some(uv) = &uv {
            uv.finish(node)?;
        }
        built.push(node.id.as_str());
    }
    Ok(built)
}

/// Runs a line of a node's `build`, with `variables` over those of the node.
fn run_command(
    line: &str,
    node: &Node,
    folder: &Path,
    variables: &BTreeMap<String, String>,
) -> Result<(), Failure> {
    note!("{}: {line}", node.id);
    let mut command = Command::new("sh");
    // Stdout is for the data of `nervure build`, not for the output of builds.
    command
        .args(["-c", line])
        .current_dir(folder)
        .envs(&node.settings.env)
        .envs(variables)
        .stdin(Stdio::null())
        .stdout(io::stderr());
    let failed = |what: String| {
        Failure::internal(format!("the build of node `{}` failed: {what}", node.id)).because(
            format!(
                "`{line}` in {}, for line {} of the dataflow file",
                folder.display(),
                node.line
            ),
        )
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
