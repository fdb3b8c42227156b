//! `nervure schema`.

use std::process::ExitCode;

use crate::{failure::Failure, output};

/// Prints the JSON schema of dataflow files.
pub fn schema() -> Result<ExitCode, Failure> {
    let text = serde_json::to_string_pretty(&nervure_dataflow::schema());
    let text =
        text.map_err(|error| Failure::internal("the schema cannot be written").because(error))?;
    output::write(&(text + "\n"))?;
    Ok(ExitCode::SUCCESS)
}
