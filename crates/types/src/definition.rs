//! Types of ROS messages. They are read from texts ([`Sections`]), which may come from anywhere, so
//! everything in them has a limit. Types must not contain themselves, and fields are counted each
//! time their type is used.

use std::sync::Arc;

/// Limit on the fields of a message, including those of nested messages.
pub(crate) const MAX_FIELDS: usize = 4096;
/// Limit on the nesting of messages.
pub(crate) const MAX_DEPTH: usize = 24;
/// Limit on the text of a definition.
pub(crate) const MAX_TEXT_BYTES: usize = 1 << 20;

/// A message type with known fields.
#[derive(Debug, PartialEq)]
pub struct Definition {
    /// `package/Name`
    pub name: String,
    /// Its fields, in order.
    pub fields: Vec<Field>,
    /// Number of its fields, including those of nested messages.
    pub(crate) weight: usize,
}

/// A field of a message.
#[derive(Debug, PartialEq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: Kind,
}

/// The type of a field.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// A truth value.
    Bool,
    /// A number.
    Number(Number),
    /// Text.
    Text,
    /// Another message.
    Message(Arc<Definition>),
    /// A fixed number of values.
    Array(Box<Kind>, usize),
    /// Any number of values.
    Sequence(Box<Kind>),
}

/// The type of a number: signed, unsigned or floating-point, and its bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Number {
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F32,
    F64,
}

/// Why a definition cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DefinitionError {
    /// A line is not a field.
    #[error("`{line}` in the definition of {message} is not a field")]
    Line {
        /// Type of the message.
        message: String,
        /// The line.
        line: String,
    },
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
    /// The definition of a field's type is missing.
    #[error("{message} has a field of type `{name}`, whose definition is missing")]
    Missing {
        /// Type of the message.
        message: String,
        /// Type of the field.
        name: String,
    },
    /// The definition of the message is missing.
    #[error("the recording has no definition of {name}")]
    Unknown {
        /// Type of the message.
        name: String,
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
    /// A field is UTF-16 text, which the implementations of ROS 2 encode differently.
    #[error("{message} has a field of type `wstring`, which is not read")]
    WideText {
        /// Type of the message.
        message: String,
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

impl Definition {
    /// Whether it has exactly these fields, as names and types.
    pub fn has_fields(&self, fields: &[(&str, &str)]) -> bool {
        let shown = self
            .fields
            .iter()
            .map(|field| (field.name.as_str(), field.kind.to_string()));
        shown.eq(fields
            .iter()
            .map(|(name, kind)| (*name, (*kind).to_owned())))
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bool => f.write_str("bool"),
            Self::Number(number) => f.write_str(number.name()),
            Self::Text => f.write_str("string"),
            Self::Message(definition) => f.write_str(&definition.name),
            Self::Array(item, count) => write!(f, "{item}[{count}]"),
            Self::Sequence(item) => write!(f, "{item}[]"),
        }
    }
}

impl Number {
    /// Size of a value, in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::I8 => "int8",
            Self::U8 => "uint8",
            Self::I16 => "int16",
            Self::U16 => "uint16",
            Self::I32 => "int32",
            Self::U32 => "uint32",
            Self::I64 => "int64",
            Self::U64 => "uint64",
            Self::F32 => "float32",
            Self::F64 => "float64",
        }
    }
}

/// Converts `package/msg/Name` to `package/Name`.
pub fn plain_name(name: &str) -> String {
    name.replacen("/msg/", "/", 1)
}

/// The first characters of a line, for errors.
pub(crate) fn shortened(line: &str) -> String {
    const MOST: usize = 80;
    match line.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}..", &line[..end]),
        None => line.to_owned(),
    }
}
