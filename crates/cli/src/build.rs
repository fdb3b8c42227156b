//! `nervure build`.

use std::{
    path::Path,
    process::{Command, ExitCode, Stdio},
};

use nervure_dataflow::{Entry, Host, Surroundings};

use crate::{failure::Failure, source};

/// Runs the build commands of every node, each by `sh` in the dataflow's folder, and ends at the first that fails.
pub fn build(file: &Path) -> Result<ExitCode, Failure> {
    let dataflow = source::read_for(file, &BuiltHost)?;
    let mut built = 0;
    for node in &dataflow.nodes {
        let Some(commands) = &node.build else { continue };
        for line in commands.lines().map(str::trim).filter(|line| !line.is_empty()) {
            eprintln!("{}: {line}", node.id);
            let mut command = Command::new("sh");
            command.args(["-c", line]).current_dir(&dataflow.directory).envs(&node.env).stdin(Stdio::null());
            let failed = |what: String| {
                Failure::internal(format!("the build of node `{}` failed: {what}", node.id))
                    .because(format!("`{line}` in {}", dataflow.directory.display()))
            };
            let status = command.status().map_err(|error| failed(error.to_string()))?;
            if !status.success() {
                return Err(failed(status.to_string()));
            }
        }
        built += 1;
    }
    match built {
        0 => eprintln!("no node has a `build`"),
        _ => eprintln!("built {}", crate::validate::count(built, "node")),
    }
    Ok(ExitCode::SUCCESS)
}

/// The host as it will be when all is built: programs that are not there yet are what `build` is for, of whichever node.
struct BuiltHost;

impl Surroundings for BuiltHost {
    fn variable(&self, name: &str) -> Option<String> {
        Host.variable(name)
    }

    fn entry(&self, path: &Path) -> Entry {
        match Host.entry(path) {
            Entry::Missing => Entry::File { executable: true },
            found => found,
        }
    }

    fn names_in(&self, folder: &Path) -> Vec<String> {
        Host.names_in(folder)
    }

    fn has_command(&self, name: &str) -> bool {
        Host.has_command(name)
    }
}
