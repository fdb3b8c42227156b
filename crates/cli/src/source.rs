//! Reads a dataflow file for a command that needs its graph.

use std::{io::IsTerminal, path::Path};

use nervure_dataflow::{Dataflow, Report};
use nervure_launch::{Overrides, environments::Environments, limits};

use crate::{failure::Failure, output};

/// Reads the graph of a dataflow file, whose programs may not be built yet. Prints the findings to
/// stderr.
///
/// # Errors
/// If the file has errors, which are printed, and for an unknown parameter or a value that does not
/// fit.
pub fn read(file: &Path, overrides: &Overrides) -> Result<Dataflow, Failure> {
    shown(overrides.load(file), overrides)
}

/// As [`read`], for a command that starts the nodes: a program that is not built yet is an error.
pub fn read_to_start(file: &Path, overrides: &Overrides) -> Result<Dataflow, Failure> {
    shown(overrides.load_to_start(file), overrides)
}

/// As [`read_to_start`], with the nodes in their Python environments.
pub fn read_to_start_in_environments(
    file: &Path,
    overrides: &Overrides,
) -> Result<Dataflow, Failure> {
    let environments = Environments::of(file)?;
    let report = overrides.load_to_start_in(&environments, file);
    let mut dataflow = shown(report, overrides)?;
    environments.activate(&mut dataflow)?;
    Ok(dataflow)
}

/// As [`read`], before a build that may create any program. Shows no warnings: the file is read again
/// after the build.
pub fn read_to_build(file: &Path, overrides: &Overrides) -> Result<Dataflow, Failure> {
    let report = overrides.load_to_build(file);
    if report.has_errors() {
        show_findings(&report);
    }
    Ok(overrides.apply(report)?)
}

fn shown(report: Report, overrides: &Overrides) -> Result<Dataflow, Failure> {
    show_findings(&report);
    Ok(overrides.apply(report)?)
}

/// The graph of a report. Prints the findings to stderr.
///
/// # Errors
/// If the file has errors.
pub fn accept(mut report: Report) -> Result<Dataflow, Failure> {
    limits::check(&mut report);
    shown(report, &Overrides::default())
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
