//! Reads a dataflow file for a command that needs its graph.

use std::{io::IsTerminal, path::Path};

use nervure_dataflow::{Dataflow, Host, Surroundings, load_for};

use crate::failure::Failure;

/// The graph of a dataflow file; its findings go to stderr.
///
/// # Errors
/// When the file has errors; they were told.
pub fn read(file: &Path) -> Result<Dataflow, Failure> {
    read_for(file, &Host)
}

/// As [`read`], for other surroundings than the host as it is.
///
/// # Errors
/// As [`read`].
pub fn read_for(file: &Path, surroundings: &dyn Surroundings) -> Result<Dataflow, Failure> {
    let report = load_for(file, surroundings);
    let text = report.render(colour_on_stderr());
    if !text.is_empty() {
        eprintln!("{text}");
    }
    let summary = report.summary();
    report.dataflow.ok_or_else(|| {
        let summary = summary.as_deref();
        Failure::invalid(format!(
            "`{}` cannot be used: {}",
            file.display(),
            summary.unwrap_or("it has errors")
        ))
    })
}

/// True when stderr shows colours and the user wants them.
pub fn colour_on_stderr() -> bool {
    std::io::stderr().is_terminal() && wants_colour()
}

/// False when the user has set `NO_COLOR` (<https://no-color.org>), or the terminal has none.
pub fn wants_colour() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !is_set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}
