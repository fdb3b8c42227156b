//! `nervure graph`.

use std::{path::Path, process::ExitCode};

use crate::{failure::Failure, output, source};

/// Prints the graph of a dataflow file.
pub fn graph(file: &Path) -> Result<ExitCode, Failure> {
    output::write(&source::read(file)?.to_mermaid())?;
    Ok(ExitCode::SUCCESS)
}
