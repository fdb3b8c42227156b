//! `nervure validate`.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use nervure_dataflow::{Report, load};
use serde_json::{Value, json};

use crate::{
    failure::{Failure, INVALID},
    output, source,
};

/// Checks every file, and tells of each what was found.
pub fn validate(files: &[PathBuf], as_json: bool) -> Result<ExitCode, Failure> {
    let mut has_errors = false;
    for file in files {
        let report = load(file);
        source::show_findings(&report);
        has_errors |= report.has_errors();
        if as_json {
            output::write(&format!("{}\n", json(file, &report)))?;
            continue;
        }
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
                output::write(&format!(
                    "{name}: {}\n",
                    found.unwrap_or_else(|| "invalid".to_owned())
                ))?;
            }
        }
    }
    Ok(if has_errors {
        ExitCode::from(INVALID)
    } else {
        ExitCode::SUCCESS
    })
}

fn json(file: &Path, report: &Report) -> Value {
    let dataflow = report.dataflow.as_ref();
    json!({
        "file": file.display().to_string(),
        "is_valid": !report.has_errors(),
        "nodes": dataflow.map(|dataflow| dataflow.nodes.len()),
        "edges": dataflow.map(|dataflow| dataflow.edges.len()),
        "findings": report.diagnostics,
    })
}

/// `1 node`, `2 nodes`.
pub fn count(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
