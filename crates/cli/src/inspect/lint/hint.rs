//! Hints, and where in a dataflow file their settings are.

use std::time::Duration;

/// Something that could be better.
#[derive(Debug, PartialEq)]
pub struct Hint {
    /// What it is, for programs: stable across versions.
    pub code: &'static str,
    /// The edge, topic or input that it is about.
    pub about: String,
    /// What is the case.
    pub what: String,
    /// The setting that would change it.
    pub setting: String,
    /// Where that stands in the file.
    pub place: Place,
}

/// A place in a dataflow file, by names or by its line.
#[derive(Debug, PartialEq)]
pub enum Place {
    Node(String),
    Input { node: String, input: String },
    Output { node: String, output: String },
    Line(usize),
}

/// Nobody reads an output.
pub fn unread(node: &str, output: &str) -> Hint {
    Hint {
        code: "unread-output",
        about: format!("{node}/{output}"),
        what: "no node reads it; without an observer nothing is sent".to_owned(),
        setting: format!("an input with `source: {node}/{output}`, or `outputs` without it"),
        place: Place::Output {
            node: node.to_owned(),
            output: output.to_owned(),
        },
    }
}

/// `57.6 MB`
pub fn megabytes(bytes: f64) -> String {
    match bytes {
        ..1e6 => format!("{:.1} kB", bytes / 1e3),
        ..1e9 => format!("{:.1} MB", bytes / 1e6),
        _ => format!("{:.1} GB", bytes / 1e9),
    }
}

/// A duration as a person would write it into the file.
pub fn rounded(duration: Duration) -> String {
    match duration.as_millis() {
        millis if millis >= 1000 && millis % 1000 == 0 => format!("{}s", millis / 1000),
        millis => format!("{millis}ms"),
    }
}
