//! Types of ROS messages. They are read from texts ([`Sections`]), which may come from anywhere, so
//! everything in them has a limit. Types must not contain themselves, and fields are counted each
//! time their type is used.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::shown::Source;
use crate::tensor_rule::TensorRule;

/// A message type with known fields.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// `package/Name`
    pub name: String,
    /// Its fields, in order.
    pub fields: Vec<Field>,
    /// Its constants, in order.
    pub constants: Vec<Constant>,
    /// The comment at its beginning.
    pub comment: String,
    /// Facts from the file beside it.
    pub facts: Facts,
    /// Number of its fields, including those of nested messages.
    pub(crate) weight: usize,
}

/// Facts about a whole type.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Facts {
    /// Its version; `None` for the first.
    pub version: Option<NonZeroU32>,
    /// The message of ROS 2 that it corresponds to, such as `sensor_msgs/Image`.
    pub ros: Option<String>,
    /// The message of Foxglove that it corresponds to, such as `foxglove.RawImage`.
    pub foxglove: Option<String>,
    /// The sources of the fields of that message, unless the sample is one field. Nodes do not get them.
    #[serde(default, skip_serializing)]
    pub foxglove_fields: BTreeMap<String, Source>,
    /// The field that is the whole payload. The others are metadata of the sample.
    pub payload: Option<String>,
}

/// A field of a message.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: Kind,
    /// Its value unless another is given.
    pub default: Option<Literal>,
    /// The comment beside and above it.
    pub comment: String,
    /// Whether it may be absent or null.
    pub is_optional: bool,
    /// The prefix of the constants that are its values, such as `STATUS_`.
    pub enumeration: Option<String>,
    /// The tensors that its numbers may be, beside lists and tensors of one dimension.
    pub tensors: Vec<TensorRule>,
}

/// A constant of a message.
#[derive(Clone, Debug, PartialEq)]
pub struct Constant {
    /// Its name.
    pub name: String,
    /// Its type.
    pub kind: String,
    /// Its value.
    pub value: Literal,
    /// The comment beside and above it.
    pub comment: String,
}

/// The value of a constant or a default.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// A truth value.
    Bool(bool),
    /// An integer of at most 64 bits, with or without sign.
    Integer(i128),
    /// A floating-point number.
    Float(f64),
    /// Text.
    Text(String),
    /// Values of one type.
    List(Vec<Literal>),
}

/// The type of a field.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// A truth value.
    Bool,
    /// A number.
    Number(Number),
    /// Text, of at most this many bytes if there is a limit.
    Text(Option<usize>),
    /// Another message.
    Message(Arc<Definition>),
    /// A fixed number of values.
    Array(Box<Kind>, usize),
    /// Any number of values, or at most this many.
    Sequence(Box<Kind>, Option<usize>),
}

/// The type of a number: signed, unsigned or floating-point, and its bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Number {
    I8,
    U8,
    Byte,
    Char,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F32,
    F64,
}

impl Definition {
    /// Its version: the number after `@` in dataflow files.
    pub fn version(&self) -> u32 {
        self.facts.version.map_or(1, NonZeroU32::get)
    }

    /// Its name in dataflow files: `my/Pose@1`.
    pub fn versioned_name(&self) -> String {
        format!("{}@{}", self.name, self.version())
    }

    /// The field that is the whole payload, unless samples are records of all fields.
    pub fn payload(&self) -> Option<&Field> {
        let name = self.facts.payload.as_ref()?;
        self.fields.iter().find(|field| field.name == *name)
    }

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

impl Field {
    /// The unit of its values, which stands in brackets at the beginning of the comment, as in `[m/s]`.
    pub fn unit(&self) -> Option<&str> {
        Some(self.comment.strip_prefix('[')?.split_once(']')?.0)
    }

    /// The comment after the unit.
    pub fn description(&self) -> &str {
        let rest = self
            .comment
            .strip_prefix('[')
            .and_then(|rest| rest.split_once(']'));
        rest.map_or(&*self.comment, |(_, rest)| rest.trim())
    }
}

impl std::fmt::Display for Literal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bool(value) => value.fmt(f),
            Self::Integer(value) => value.fmt(f),
            Self::Float(value) => write!(f, "{value:?}"),
            Self::Text(value) => write!(f, "{value:?}"),
            Self::List(items) => {
                let items: Vec<String> = items.iter().map(ToString::to_string).collect();
                write!(f, "[{}]", items.join(", "))
            }
        }
    }
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bool => f.write_str("bool"),
            Self::Number(number) => f.write_str(number.name()),
            Self::Text(None) => f.write_str("string"),
            Self::Text(Some(most)) => write!(f, "string<={most}"),
            Self::Message(definition) => f.write_str(&definition.name),
            Self::Array(item, count) => write!(f, "{item}[{count}]"),
            Self::Sequence(item, None) => write!(f, "{item}[]"),
            Self::Sequence(item, Some(most)) => write!(f, "{item}[<={most}]"),
        }
    }
}

impl Number {
    /// Size of a value, in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Self::I8 | Self::U8 | Self::Byte | Self::Char => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 => 8,
        }
    }

    /// All types.
    pub const ALL: [Self; 12] = [
        Self::I8,
        Self::U8,
        Self::Byte,
        Self::Char,
        Self::I16,
        Self::U16,
        Self::I32,
        Self::U32,
        Self::I64,
        Self::U64,
        Self::F32,
        Self::F64,
    ];

    /// The type with this name in `.msg` files.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|number| number.name() == name)
    }

    /// Whether it is a floating-point number.
    pub fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64)
    }

    /// The smallest and the largest integer; `None` for floating-point numbers.
    pub(crate) fn range(self) -> Option<(i128, i128)> {
        let bits = 8 * self.bytes() as u32;
        match self {
            Self::F32 | Self::F64 => None,
            Self::I8 | Self::I16 | Self::I32 | Self::I64 => {
                Some((-(1 << (bits - 1)), (1 << (bits - 1)) - 1))
            }
            _ => Some((0, (1 << bits) - 1)),
        }
    }

    /// Its name in `.msg` files.
    pub fn name(self) -> &'static str {
        match self {
            Self::I8 => "int8",
            Self::U8 => "uint8",
            Self::Byte => "byte",
            Self::Char => "char",
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
