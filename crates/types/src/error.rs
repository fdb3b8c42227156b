//! Errors of definitions.

use std::sync::Arc;

/// Limit on the fields of a message, including those of nested messages.
pub(crate) const MAX_FIELDS: usize = 4096;
/// Limit on the nesting of messages.
pub(crate) const MAX_DEPTH: usize = 24;
/// Limit on the text of a definition.
pub(crate) const MAX_TEXT_BYTES: usize = 1 << 20;

/// Why a definition cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DefinitionError {
    /// A line is no field, or has a type that is not known.
    #[error(transparent)]
    Syntax(Box<SyntaxError>),
    /// A definition in IDL has something else than messages have.
    #[error("its IDL, line {line}: found `{found}`, expected {expected}")]
    Idl {
        /// Number of the line.
        line: usize,
        /// The text found.
        found: String,
        /// The expected text.
        expected: String,
    },
    /// The definition of the message is missing.
    #[error("there is no definition of {name}{}", in_brackets(hint.as_deref()))]
    Unknown {
        /// Type of the message.
        name: String,
        /// The likely fix.
        hint: Option<String>,
    },
    /// Two definitions of a type differ.
    #[error("{name} is defined twice, first with `{first}`, then with `{second}`")]
    Conflict {
        /// The type.
        name: String,
        /// The first line that differs, in the first definition; empty at its end.
        first: String,
        /// This line in the second definition.
        second: String,
    },
    /// A service does not have a request and a response, or an action no goal, result and feedback.
    #[error("{name} has {found} parts between lines of `---`, expected {expected}")]
    Parts {
        /// The service or action.
        name: String,
        /// Number of parts found.
        found: usize,
        /// Number of parts of a service or an action.
        expected: usize,
    },
    /// A type contains itself, or is nested too deeply.
    #[error("{name} contains itself, or more than {MAX_DEPTH} messages in each other")]
    Depth {
        /// The type.
        name: String,
    },
    /// The definition or its fields exceed a limit.
    #[error(
        "the definition is larger than the limits: {MAX_FIELDS} fields, {MAX_TEXT_BYTES} bytes"
    )]
    TooLarge,
    /// The definition is not UTF-8.
    #[error("the definition is not UTF-8 text")]
    NotText,
}

impl From<SyntaxError> for DefinitionError {
    fn from(error: SyntaxError) -> Self {
        Self::Syntax(Box::new(error))
    }
}

/// A position in a definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file, or the type that a text defines.
    pub source: Arc<str>,
    /// Number of the line, from 1.
    pub line: usize,
    /// Number of the character in the line, from 1.
    pub column: usize,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}", self.source, self.line, self.column)
    }
}

/// Why a line is neither a field nor a constant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: found `{found}`, expected {expected}{}", in_brackets(hint.as_deref()))]
pub struct SyntaxError {
    /// Where it was found.
    pub place: Place,
    /// The text found.
    pub found: String,
    /// The expected text.
    pub expected: String,
    /// The likely fix.
    pub hint: Option<String>,
}

pub(crate) fn in_brackets(hint: Option<&str>) -> String {
    hint.map(|hint| format!(" ({hint})")).unwrap_or_default()
}

/// The first characters of a line, for errors.
pub(crate) fn shortened(line: &str) -> String {
    const MOST: usize = 80;
    match line.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}..", &line[..end]),
        None => line.to_owned(),
    }
}
