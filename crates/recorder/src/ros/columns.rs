//! Messages as Arrow arrays: a message becomes an array of one struct with the field names and
//! nesting of ROS.

use std::sync::Arc;

use arrow_buffer::{BooleanBuffer, Buffer};
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType, Field as ArrowField, Fields};

use nervure_types::cdr::{CdrError, Reader};
use nervure_types::{Definition, Kind, Number};

/// Consecutive values of one type.
pub(crate) enum Column {
    Bool(Vec<bool>),
    Number(Number, Vec<u8>),
    Text {
        ends: Vec<i32>,
        bytes: Vec<u8>,
    },
    Message {
        length: usize,
        fields: Vec<Column>,
    },
    Array {
        length: usize,
        count: usize,
        items: Box<Column>,
    },
    Sequence {
        ends: Vec<i32>,
        items: Box<Column>,
    },
}

/// The Arrow type of a message.
pub(crate) fn data_type(definition: &Definition) -> DataType {
    let field = |(name, kind): (&str, &Kind)| ArrowField::new(name, type_of(kind), false);
    let fields: Vec<_> = fields(definition).map(field).collect();
    DataType::Struct(Fields::from(fields))
}

/// A message without fields contains one byte, because IDL has no empty structs (`rosidl`).
const EMPTY: (&str, &Kind) = (
    "structure_needs_at_least_one_member",
    &Kind::Number(Number::U8),
);

fn fields(definition: &Definition) -> impl Iterator<Item = (&str, &Kind)> {
    let own = definition
        .fields
        .iter()
        .map(|field| (field.name.as_str(), &field.kind));
    own.chain(definition.fields.is_empty().then_some(EMPTY))
}

fn type_of(kind: &Kind) -> DataType {
    let item = |kind| Arc::new(ArrowField::new_list_field(type_of(kind), false));
    match kind {
        Kind::Bool => DataType::Boolean,
        Kind::Number(number) => match number {
            Number::I8 => DataType::Int8,
            Number::U8 | Number::Byte | Number::Char => DataType::UInt8,
            Number::I16 => DataType::Int16,
            Number::U16 => DataType::UInt16,
            Number::I32 => DataType::Int32,
            Number::U32 => DataType::UInt32,
            Number::I64 => DataType::Int64,
            Number::U64 => DataType::UInt64,
            Number::F32 => DataType::Float32,
            Number::F64 => DataType::Float64,
        },
        Kind::Text(_) => DataType::Utf8,
        Kind::Message(definition) => data_type(definition),
        Kind::Array(kind, count) => {
            DataType::FixedSizeList(item(kind), i32::try_from(*count).unwrap_or(i32::MAX))
        }
        Kind::Sequence(kind, _) => DataType::List(item(kind)),
    }
}

impl Column {
    /// A column for values of a message type.
    pub(crate) fn of_message(definition: &Definition) -> Self {
        let fields = fields(definition)
            .map(|(_, kind)| Self::new(kind))
            .collect();
        Self::Message { length: 0, fields }
    }

    fn new(kind: &Kind) -> Self {
        match kind {
            Kind::Bool => Self::Bool(Vec::new()),
            Kind::Number(number) => Self::Number(*number, Vec::new()),
            Kind::Text(_) => Self::Text {
                ends: vec![0],
                bytes: Vec::new(),
            },
            Kind::Message(definition) => Self::of_message(definition),
            Kind::Array(item, count) => Self::Array {
                length: 0,
                count: *count,
                items: Box::new(Self::new(item)),
            },
            Kind::Sequence(item, _) => Self::Sequence {
                ends: vec![0],
                items: Box::new(Self::new(item)),
            },
        }
    }

    /// Reads `count` values. Checks their bytes first, so memory use is proportional to the size of
    /// the message.
    pub(crate) fn read(&mut self, reader: &mut Reader<'_>, count: usize) -> Result<(), CdrError> {
        match self {
            Self::Bool(values) => {
                values.extend(reader.values(count, 1)?.iter().map(|&byte| byte != 0))
            }
            Self::Number(number, values) => {
                let start = values.len();
                values.extend_from_slice(reader.values(count, number.bytes())?);
                if reader.is_big_endian() {
                    values[start..]
                        .chunks_exact_mut(number.bytes())
                        .for_each(<[u8]>::reverse);
                }
            }
            Self::Text { ends, bytes } => {
                for _ in 0..count {
                    // ROS does not define the encoding of a string.
                    bytes.extend_from_slice(String::from_utf8_lossy(reader.text()?).as_bytes());
                    ends.push(end(bytes.len())?);
                }
            }
            Self::Message { length, fields } => {
                for _ in 0..count {
                    fields
                        .iter_mut()
                        .try_for_each(|field| field.read(reader, 1))?;
                    *length += 1;
                }
            }
            Self::Array {
                length,
                count: size,
                items,
            } => {
                for _ in 0..count {
                    items.read(reader, *size)?;
                    *length += 1;
                }
            }
            Self::Sequence { ends, items } => {
                for _ in 0..count {
                    let items_read = reader.count()?;
                    items.read(reader, items_read)?;
                    let last = ends.last().copied().unwrap_or(0);
                    let next = i32::try_from(items_read)
                        .ok()
                        .and_then(|read| last.checked_add(read));
                    ends.push(next.ok_or(CdrError::TooLarge)?);
                }
            }
        }
        Ok(())
    }

    /// Builds the array.
    pub(crate) fn build(self, data_type: &DataType) -> Result<ArrayData, ArrowError> {
        let builder = ArrayData::builder(data_type.clone());
        let child = |items: Self, item: &ArrowField| items.build(item.data_type());
        match (self, data_type) {
            (Self::Bool(values), _) => {
                let length = values.len();
                builder
                    .len(length)
                    .add_buffer(BooleanBuffer::from(values).into_inner())
                    .build()
            }
            (Self::Number(number, values), _) => builder
                .len(values.len() / number.bytes())
                .add_buffer(aligned(values))
                .build(),
            (Self::Text { ends, bytes }, _) => builder
                .len(ends.len() - 1)
                .add_buffer(Buffer::from_vec(ends))
                .add_buffer(Buffer::from_vec(bytes))
                .build(),
            (Self::Message { length, fields }, DataType::Struct(types)) => {
                let children = fields
                    .into_iter()
                    .zip(types)
                    .map(|(field, known)| child(field, known));
                builder
                    .len(length)
                    .child_data(children.collect::<Result<_, _>>()?)
                    .build()
            }
            (Self::Array { length, items, .. }, DataType::FixedSizeList(item, _)) => builder
                .len(length)
                .add_child_data(child(*items, item)?)
                .build(),
            (Self::Sequence { ends, items }, DataType::List(item)) => builder
                .len(ends.len() - 1)
                .add_buffer(Buffer::from_vec(ends))
                .add_child_data(child(*items, item)?)
                .build(),
            (_, other) => Err(ArrowError::SchemaError(format!(
                "{other} is not the type of this column"
            ))),
        }
    }
}

fn end(length: usize) -> Result<i32, CdrError> {
    i32::try_from(length).map_err(|_| CdrError::TooLarge)
}

/// Copies values to memory aligned for numbers, as Arrow requires.
fn aligned(values: Vec<u8>) -> Buffer {
    Buffer::from_slice_ref(values.as_slice())
}
