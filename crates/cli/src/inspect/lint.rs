//! `nervure lint`: suggests better settings for a dataflow.

mod file;
mod hint;
mod running;

use std::{
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};

use nervure_dataflow::{Dataflow, Report, load};

use super::{
    answers::{self, Hints, ListedHint},
    arguments::LintArguments,
    state::State,
};
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
    let answer = as_json.then(|| Hints {
        file: Some(path.display().to_string()),
        dataflow: None,
        window_nanos: None,
        hints: lines.listed(&hints),
        unreachable: Vec::new(),
    });
    print_hints(&hints, &lines, answer, &path.display().to_string())
}

fn lint_running(arguments: &LintArguments) -> Result<ExitCode, Failure> {
    let (state, hints) = measure(arguments.target.dataflow.as_deref(), arguments.window)?;
    let lines = FileNow::of(&state);
    let lines = lines.lines();
    let answer = arguments
        .target
        .json
        .then(|| answer(&state, &hints, &lines, arguments.window));
    let about = format!(
        "{}, measured for {}",
        state.welcome().dataflow,
        format::elapsed(arguments.window)
    );
    let code = print_hints(&hints, &lines, answer, &about)?;
    Ok(match state.unreachable.is_empty() {
        true => code,
        // Without some machines the hints are not complete.
        false => state.exit_code(),
    })
}

/// The hints for a running dataflow, as `--json` writes them.
#[cfg(feature = "api")]
pub fn hints_of(dataflow: &str, window: Duration) -> Result<Hints, Failure> {
    let (state, hints) = measure(Some(dataflow), window)?;
    let file = FileNow::of(&state);
    Ok(answer(&state, &hints, &file.lines(), window))
}

fn measure(dataflow: Option<&str>, window: Duration) -> Result<(State, Vec<Hint>), Failure> {
    let mut state = State::find(dataflow, "lint", true)?;
    state.sample();
    if !state.follow_until(Instant::now() + window)? {
        return Err(Failure::internal("the dataflow has ended"));
    }
    state.sample();
    let hints = running::hints(&state);
    Ok((state, hints))
}

fn answer(state: &State, hints: &[Hint], lines: &Lines<'_>, window: Duration) -> Hints {
    Hints {
        file: None,
        dataflow: Some(state.welcome().dataflow.clone()),
        window_nanos: Some(u64::try_from(window.as_nanos()).unwrap_or(u64::MAX)),
        hints: lines.listed(hints),
        unreachable: state.unreachable_machines(),
    }
}

/// The file of a running dataflow as it is now: names find a line that has moved since the start.
struct FileNow {
    name: String,
    report: Option<Report>,
}

impl FileNow {
    fn of(state: &State) -> Self {
        let file = state.welcome().file.clone();
        Self {
            report: file.as_ref().map(|file| load(Path::new(file))),
            name: file.unwrap_or_default(),
        }
    }

    fn lines(&self) -> Lines<'_> {
        let report = self.report.as_ref();
        Lines {
            file: self.name.clone(),
            dataflow: report.and_then(|report| report.dataflow.as_ref()),
        }
    }
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

    fn listed(&self, hints: &[Hint]) -> Vec<ListedHint> {
        let listed = hints.iter().map(|hint| ListedHint {
            code: hint.code,
            about: hint.about.clone(),
            what: hint.what.clone(),
            setting: hint.setting.clone(),
            file: self.of(&hint.place).map(|_| self.file.clone()),
            line: self.of(&hint.place),
        });
        listed.collect()
    }

    /// `drive.yml:12`
    fn name(&self, place: &Place) -> Option<String> {
        let line = self.of(place)?;
        let name = Path::new(&self.file).file_name()?.to_string_lossy();
        Some(format!("{name}:{line}"))
    }
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
        text.push_str(&format!("  {}\n  {}\n\n", hint.what, hint.setting));
    }
    match hints.len() {
        0 => text + &format!("no hints on {about}\n"),
        number => text + &format!("{} on {about}\n", count(number, "hint")),
    }
}
