//! `nervure lint`: suggests better settings for a dataflow.

use std::{path::Path, process::ExitCode};

use nervure_dataflow::load;
use nervure_inspect::{
    answers::{self, Hints},
    format::{self, count},
    lint::{FileNow, Hint, Lines, file, measure},
};

use super::{arguments::LintArguments, exit_code};
use crate::{
    failure::{Failure, IMPERFECT},
    output, source,
};

/// Examines a file or a running dataflow, and prints hints.
pub fn lint(arguments: &LintArguments) -> Result<ExitCode, Failure> {
    match &arguments.file {
        Some(file) => lint_file(file, arguments.target.json),
        None => lint_running(arguments),
    }
}

fn lint_file(path: &Path, as_json: bool) -> Result<ExitCode, Failure> {
    let report = load(path);
    if report.has_errors() {
        source::accept(report)?;
        return Err(Failure::invalid(format!(
            "`{}` cannot be used",
            path.display()
        )));
    }
    let hints = report
        .dataflow
        .as_ref()
        .map(|dataflow| file::hints(dataflow, &report.diagnostics));
    let hints = hints.unwrap_or_default();
    let lines = Lines {
        file: path.display().to_string(),
        dataflow: report.dataflow.as_ref(),
    };
    let answer = as_json.then(|| Hints::of_file(&hints, &lines));
    print_hints(&hints, &lines, answer, &path.display().to_string())
}

fn lint_running(arguments: &LintArguments) -> Result<ExitCode, Failure> {
    let (state, hints) = measure(arguments.target.dataflow.as_deref(), arguments.window)?;
    let lines = FileNow::of(&state);
    let lines = lines.lines();
    let answer = arguments
        .target
        .json
        .then(|| Hints::of(&state, &hints, &lines, arguments.window));
    let about = format!(
        "{}, measured for {}",
        state.welcome().dataflow,
        format::elapsed(arguments.window)
    );
    let code = print_hints(&hints, &lines, answer, &about)?;
    Ok(match state.unreachable.is_empty() {
        true => code,
        // Without some machines the hints are not complete.
        false => exit_code(&state),
    })
}

/// Prints the answer as JSON, or else the hints as text.
fn print_hints(
    hints: &[Hint],
    lines: &Lines<'_>,
    answer: Option<Hints>,
    about: &str,
) -> Result<ExitCode, Failure> {
    output::write(&match answer {
        Some(answer) => answers::line(&answer),
        None => text(hints, lines, about),
    })?;
    Ok(if hints.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(IMPERFECT)
    })
}

fn text(hints: &[Hint], lines: &Lines<'_>, about: &str) -> String {
    let mut text = String::new();
    for hint in hints {
        let place = lines
            .name(&hint.place)
            .map(|name| format!(" ({name})"))
            .unwrap_or_default();
        text.push_str(&format!("{}{place}: {}\n", hint.about, hint.code));
        text.push_str(&format!("  {}\n  {}\n\n", hint.what, hint.remedy.text));
    }
    match hints.len() {
        0 => text + &format!("no hints on {about}\n"),
        number => text + &format!("{} on {about}\n", count(number, "hint")),
    }
}
