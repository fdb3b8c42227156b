//! Reads a dataflow file for a command that needs its graph.

use std::{io::IsTerminal, path::Path};

use nervure_dataflow::{Dataflow, Report, load};

use crate::{failure::Failure, limits, output};

/// Reads the graph of a dataflow file. Prints the findings to stderr.
///
/// # Errors
/// If the file has errors, which are printed.
pub fn read(file: &Path) -> Result<Dataflow, Failure> {
    accept(load(file), file)
}

/// The graph of a report. Prints the findings to stderr.
///
/// # Errors
/// As [`read`].
pub fn accept(mut report: Report, file: &Path) -> Result<Dataflow, Failure> {
    limits::check(&mut report);
    show_findings(&report);
    let summary = report.summary();
    let Report {
        dataflow,
        diagnostics,
        ..
    } = report;
    dataflow.ok_or_else(|| {
        let summary = summary.as_deref().unwrap_or("it has errors");
        Failure::invalid(format!("`{}` cannot be used: {summary}", file.display()))
            .findings(&diagnostics)
    })
}

/// Prints the findings of a file to stderr.
pub fn show_findings(report: &Report) {
    let text = report.render(colour_on_stderr());
    if !text.is_empty() {
        output::write_styled_note(&text);
    }
}

/// True if stderr is a terminal and colours are wanted.
pub fn colour_on_stderr() -> bool {
    std::io::stderr().is_terminal() && wants_colour()
}

/// False if `NO_COLOR` is set (<https://no-color.org>), or the terminal has no colours.
pub fn wants_colour() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    !is_set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}
