//! `nervure validate`, `graph` and `schema`.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use nervure_dataflow::{Report, load};
use nervure_inspect::format::count;
use nervure_launch::{Overrides, limits};
use serde_json::{Value, json};

use crate::{
    failure::{Failure, INVALID},
    output, source,
};

/// Checks every file, and prints the findings of each.
pub fn validate(files: &[PathBuf], as_json: bool) -> Result<ExitCode, Failure> {
    let mut has_errors = false;
    for file in files {
        let mut report = load(file);
        limits::check(&mut report);
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

/// Prints the graph of a dataflow file.
pub fn graph(file: &Path, as_json: bool) -> Result<ExitCode, Failure> {
    let dataflow = source::read(file, &Overrides::default())?;
    output::write(&match as_json {
        true => format!("{}\n", json!(dataflow)),
        false => dataflow.to_mermaid(),
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the JSON schema of dataflow files.
pub fn schema() -> Result<ExitCode, Failure> {
    let text = serde_json::to_string_pretty(&nervure_dataflow::schema());
    let text =
        text.map_err(|error| Failure::internal("the schema cannot be written").because(error))?;
    output::write(&(text + "\n"))?;
    Ok(ExitCode::SUCCESS)
}
