//! `nervure lint`: suggests better settings for a dataflow.

mod file;
mod hint;
mod running;

use std::{path::Path, process::ExitCode, time::Instant};

use nervure_dataflow::{Dataflow, load};
use serde_json::{Value, json};

use super::{arguments::LintArguments, state::State};
use crate::{
    failure::{Failure, IMPERFECT},
    format::{self, count},
    output, source,
};

use self::hint::{Hint, Place};

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
        source::accept(report, path)?;
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
    let name = json!({"file": path.display().to_string()});
    print_hints(&hints, &lines, as_json, name, &path.display().to_string())
}

fn lint_running(arguments: &LintArguments) -> Result<ExitCode, Failure> {
    let mut state = State::find(arguments.target.dataflow.as_deref(), "lint", true)?;
    state.sample();
    if !state.follow_until(Instant::now() + arguments.window)? {
        return Err(Failure::internal("the dataflow has ended"));
    }
    state.sample();
    let hints = running::hints(&state);
    // The file as it is now: names find a line that has moved since the start.
    let file = state.welcome().file.clone();
    let report = file.as_ref().map(|file| load(Path::new(file)));
    let lines = Lines {
        file: file.unwrap_or_default(),
        dataflow: report.as_ref().and_then(|report| report.dataflow.as_ref()),
    };
    let name = json!({
        "dataflow": state.welcome().dataflow,
        "window_nanos": u64::try_from(arguments.window.as_nanos()).unwrap_or(u64::MAX),
    });
    let about = format!(
        "{}, measured for {}",
        state.welcome().dataflow,
        format::elapsed(arguments.window)
    );
    let code = print_hints(&hints, &lines, arguments.target.json, name, &about)?;
    Ok(match state.unreachable.is_empty() {
        true => code,
        // Without some machines the hints are not complete.
        false => state.exit_code(),
    })
}

/// Finds lines in a dataflow file.
struct Lines<'a> {
    file: String,
    dataflow: Option<&'a Dataflow>,
}

impl Lines<'_> {
    fn of(&self, place: &Place) -> Option<usize> {
        let node = |id: &str| self.dataflow?.node(id);
        let line = match place {
            Place::Line(line) => *line,
            Place::Node(id) => node(id)?.line,
            Place::Input { node: id, input } => {
                node(id)?
                    .inputs
                    .iter()
                    .find(|known| known.name == *input)?
                    .line
            }
            Place::Output { node: id, output } => {
                node(id)?
                    .outputs
                    .iter()
                    .find(|known| known.name == *output)?
                    .line
            }
        };
        (line > 0).then_some(line)
    }

    /// `drive.yml:12`
    fn name(&self, place: &Place) -> Option<String> {
        let line = self.of(place)?;
        let name = Path::new(&self.file).file_name()?.to_string_lossy();
        Some(format!("{name}:{line}"))
    }
}

fn print_hints(
    hints: &[Hint],
    lines: &Lines<'_>,
    as_json: bool,
    mut result: Value,
    about: &str,
) -> Result<ExitCode, Failure> {
    output::write(&if as_json {
        let hint = |hint: &Hint| {
            json!({
                "code": hint.code,
                "about": hint.about,
                "what": hint.what,
                "setting": hint.setting,
                "file": lines.of(&hint.place).map(|_| &lines.file),
                "line": lines.of(&hint.place),
            })
        };
        result["hints"] = hints.iter().map(hint).collect();
        format!("{result}\n")
    } else {
        let mut text = String::new();
        for hint in hints {
            let place = lines
                .name(&hint.place)
                .map(|name| format!(" ({name})"))
                .unwrap_or_default();
            text.push_str(&format!("{}{place}: {}\n", hint.about, hint.code));
            text.push_str(&format!("  {}\n  {}\n\n", hint.what, hint.setting));
        }
        match hints.len() {
            0 => text + &format!("no hints on {about}\n"),
            number => text + &format!("{} on {about}\n", count(number, "hint")),
        }
    })?;
    Ok(if hints.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(IMPERFECT)
    })
}
