//! `nervure graph`.

use std::{path::Path, process::ExitCode};

use serde_json::json;

use crate::{failure::Failure, output, source};

/// Prints the graph of a dataflow file.
pub fn graph(file: &Path, as_json: bool) -> Result<ExitCode, Failure> {
    let dataflow = source::read(file)?;
    output::write(&match as_json {
        true => format!("{}\n", json!(dataflow)),
        false => dataflow.to_mermaid(),
    })?;
    Ok(ExitCode::SUCCESS)
}
