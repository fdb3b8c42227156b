//! Better settings for a dataflow, from its file or from its counters.

pub mod file;
mod hint;
pub mod running;

use std::{
    path::Path,
    time::{Duration, Instant},
};

use nervure_dataflow::{Dataflow, Report, load};

use crate::{
    Error, State,
    answers::{Hints, ListedHint},
};

pub use self::hint::{Hint, Place};

/// The hints for a running dataflow, measured over a time.
///
/// # Errors
/// If the dataflow cannot be found or reached, or ends meanwhile.
pub fn hints(dataflow: &str, window: Duration) -> Result<Hints, Error> {
    let (state, hints) = measure(Some(dataflow), window)?;
    let file = FileNow::of(&state);
    Ok(Hints::of(&state, &hints, &file.lines(), window))
}

/// Measures a running dataflow over a time.
///
/// # Errors
/// As [`hints`].
pub fn measure(dataflow: Option<&str>, window: Duration) -> Result<(State, Vec<Hint>), Error> {
    let mut state = State::find(dataflow, "lint", true)?;
    state.sample();
    if !state.follow_until(Instant::now() + window)? {
        return Err(Error::Ended);
    }
    state.sample();
    let hints = running::hints(&state);
    Ok((state, hints))
}

impl Hints {
    /// The hints for a dataflow, measured over a time.
    pub fn of(state: &State, hints: &[Hint], lines: &Lines<'_>, window: Duration) -> Self {
        Self {
            file: None,
            dataflow: Some(state.welcome().dataflow.clone()),
            window_nanos: Some(u64::try_from(window.as_nanos()).unwrap_or(u64::MAX)),
            hints: lines.listed(hints),
            unreachable: state.unreachable_machines(),
        }
    }

    /// The hints for a file.
    pub fn of_file(hints: &[Hint], lines: &Lines<'_>) -> Self {
        Self {
            file: Some(lines.file.clone()),
            dataflow: None,
            window_nanos: None,
            hints: lines.listed(hints),
            unreachable: Vec::new(),
        }
    }
}

/// The file of a running dataflow as it is now: names find a line that has moved since the start.
#[derive(Debug)]
pub struct FileNow {
    name: String,
    report: Option<Report>,
}

impl FileNow {
    /// Reads the file.
    pub fn of(state: &State) -> Self {
        let file = state.welcome().file.clone();
        Self {
            report: file.as_ref().map(|file| load(Path::new(file))),
            name: file.unwrap_or_default(),
        }
    }

    /// The lines of the file.
    pub fn lines(&self) -> Lines<'_> {
        let report = self.report.as_ref();
        Lines {
            file: self.name.clone(),
            dataflow: report.and_then(|report| report.dataflow.as_ref()),
        }
    }
}

/// Finds lines in a dataflow file.
#[derive(Debug)]
pub struct Lines<'a> {
    /// The path of the file.
    pub file: String,
    /// Its graph, if it could be read.
    pub dataflow: Option<&'a Dataflow>,
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
            setting: hint.remedy.text.clone(),
            file: self.of(&hint.place).map(|_| self.file.clone()),
            line: self.of(&hint.place),
        });
        listed.collect()
    }

    /// `drive.yml:12`
    pub fn name(&self, place: &Place) -> Option<String> {
        let line = self.of(place)?;
        let name = Path::new(&self.file).file_name()?.to_string_lossy();
        Some(format!("{name}:{line}"))
    }
}
