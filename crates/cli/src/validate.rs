//! `nervure validate`.

use std::{path::PathBuf, process::ExitCode};

use nervure_dataflow::load;

use crate::{
    failure::{Failure, INVALID},
    output,
    source::colour_on_stderr,
};

/// Checks every file, and tells of each what was found.
pub fn validate(files: &[PathBuf]) -> Result<ExitCode, Failure> {
    let mut has_errors = false;
    for file in files {
        let report = load(file);
        let text = report.render(colour_on_stderr());
        if !text.is_empty() {
            eprintln!("{text}");
        }
        has_errors |= report.has_errors();
        let name = file.display();
        match (&report.dataflow, report.summary()) {
            (Some(dataflow), found) => {
                let found = found.map(|found| format!(", {found}")).unwrap_or_default();
                let (nodes, edges) = (dataflow.nodes.len(), dataflow.edges.len());
                output::write(&format!(
                    "{name}: valid, {} and {}{found}\n",
                    count(nodes, "node"),
                    count(edges, "edge")
                ))?;
            }
            (None, found) => {
                output::write(&format!("{name}: {}\n", found.unwrap_or_else(|| "invalid".to_owned())))?;
            }
        }
    }
    Ok(if has_errors { ExitCode::from(INVALID) } else { ExitCode::SUCCESS })
}

/// `1 node`, `2 nodes`.
pub fn count(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
