//! Hints, and where in a dataflow file their settings are.

use crate::losses::Remedy;

/// A suggestion for a better setting.
#[derive(Debug, PartialEq)]
pub struct Hint {
    /// The kind of hint, for programs: stable across versions.
    pub code: &'static str,
    /// The edge, topic or input that it concerns.
    pub about: String,
    /// The observation.
    pub what: String,
    /// The change that prevents it.
    pub remedy: Remedy,
    /// The place of the setting in the file.
    pub place: Place,
}

/// A place in a dataflow file, by names or by its line.
#[derive(Debug, PartialEq)]
pub enum Place {
    /// A node.
    Node(String),
    /// An input.
    Input {
        /// The node.
        node: String,
        /// Its input.
        input: String,
    },
    /// An output.
    Output {
        /// The node.
        node: String,
        /// Its output.
        output: String,
    },
    /// A line of the file.
    Line(usize),
}

/// The hint for an output that no node reads.
pub fn unread(node: &str, output: &str) -> Hint {
    Hint {
        code: "unread-output",
        about: format!("{node}/{output}"),
        what: "no node reads it; it is only sent while an observer is attached".to_owned(),
        remedy: Remedy::action(format!(
            "add an input with `source: {node}/{output}`, or remove it from `outputs`"
        )),
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
