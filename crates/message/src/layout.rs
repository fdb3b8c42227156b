//! The kind of a payload and the placement of its parts, encoded in the head.

use crate::array::ArrayLayout;
use crate::tensor::TensorLayout;
use crate::wire::{DecodeError, Head, Reader};

/// The layout of a payload.
#[derive(Clone, Debug, PartialEq)]
pub enum Layout {
    /// Bytes whose meaning the sender and receiver agree on.
    Bytes,
    /// One UTF-8 text.
    Text,
    /// One number or truth value. It is in the head; the payload is empty.
    Scalar(Scalar),
    /// A tensor: elements of one type in any number of dimensions.
    Tensor(TensorLayout),
    /// An Arrow array with the schema [`Header::schema_id`](crate::Header::schema_id).
    Array(ArrayLayout),
}

/// One number or truth value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// A truth value.
    Bool(bool),
    /// An integer.
    Integer(i64),
    /// An integer above `i64::MAX`.
    Unsigned(u64),
    /// A floating-point number.
    Float(f64),
}

impl std::fmt::Display for Scalar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bool(value) => value.fmt(f),
            Self::Integer(value) => value.fmt(f),
            Self::Unsigned(value) => value.fmt(f),
            Self::Float(value) => value.fmt(f),
        }
    }
}

impl Layout {
    /// Version of the encoding, in the high half of the first byte.
    const VERSION: u8 = 1;

    /// Appends the layout to `head`.
    pub fn write(&self, head: &mut Head) {
        match self {
            Self::Bytes => put_kind(head, Kind::Bytes),
            Self::Text => put_kind(head, Kind::Text),
            Self::Scalar(Scalar::Bool(value)) => {
                put_kind(head, Kind::Bool);
                head.push(u8::from(*value));
            }
            Self::Scalar(Scalar::Integer(value)) => {
                put_kind(head, Kind::Integer);
                head.extend_from_slice(&value.to_le_bytes());
            }
            Self::Scalar(Scalar::Unsigned(value)) => {
                put_kind(head, Kind::Unsigned);
                head.extend_from_slice(&value.to_le_bytes());
            }
            Self::Scalar(Scalar::Float(value)) => {
                put_kind(head, Kind::Float);
                head.extend_from_slice(&value.to_le_bytes());
            }
            Self::Tensor(tensor) => {
                put_kind(head, Kind::Tensor);
                tensor.write(head);
            }
            Self::Array(array) => {
                put_kind(head, Kind::Array);
                array.write(head);
            }
        }
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        const WHAT: &str = "head";
        let first = reader.byte(WHAT)?;
        if first >> 4 != Self::VERSION {
            return Err(DecodeError::Version {
                what: WHAT,
                found: first >> 4,
                expected: Self::VERSION,
            });
        }
        let kind = Kind::ALL.iter().find(|kind| **kind as u8 == first & 0xf);
        let kind = kind.ok_or(DecodeError::Code {
            what: "kind of payload",
            code: (first & 0xf).into(),
        })?;
        Ok(match kind {
            Kind::Bytes => Self::Bytes,
            Kind::Text => Self::Text,
            Kind::Bool => Self::Scalar(Scalar::Bool(match reader.byte(WHAT)? {
                0 => false,
                1 => true,
                code => {
                    return Err(DecodeError::Code {
                        what: "truth value",
                        code: code.into(),
                    });
                }
            })),
            Kind::Integer => Self::Scalar(Scalar::Integer(i64::from_le_bytes(reader.array(WHAT)?))),
            Kind::Unsigned => {
                Self::Scalar(Scalar::Unsigned(u64::from_le_bytes(reader.array(WHAT)?)))
            }
            Kind::Float => Self::Scalar(Scalar::Float(f64::from_le_bytes(reader.array(WHAT)?))),
            Kind::Tensor => Self::Tensor(TensorLayout::read(reader)?),
            Kind::Array => Self::Array(ArrayLayout::read(reader)?),
        })
    }

    /// The kind, as in messages to users.
    pub fn kind_name(&self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Text => "text",
            Self::Scalar(_) => "a scalar",
            Self::Tensor(_) => "a tensor",
            Self::Array(_) => "an Arrow array",
        }
    }
}

/// Codes in the low half of the first byte. A code is never reused.
#[derive(Clone, Copy)]
enum Kind {
    Bytes = 0,
    Text = 1,
    Bool = 2,
    Integer = 3,
    Unsigned = 4,
    Float = 5,
    Tensor = 6,
    Array = 7,
}

impl Kind {
    const ALL: [Self; 8] = [
        Self::Bytes,
        Self::Text,
        Self::Bool,
        Self::Integer,
        Self::Unsigned,
        Self::Float,
        Self::Tensor,
        Self::Array,
    ];
}

fn put_kind(head: &mut Head, kind: Kind) {
    head.push(Layout::VERSION << 4 | kind as u8);
}
