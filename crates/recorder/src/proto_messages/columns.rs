//! Fields of messages as Arrow arrays.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::Arc;

use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType, Field as ArrowField};
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MessageDescriptor, Value};

/// Values of a field; `None` if it is absent.
type Values<'v> = Vec<Option<Cow<'v, Value>>>;

/// The messages as an array of structs; absent ones are null.
pub(super) fn structs<'m>(
    data_type: &DataType,
    descriptor: &MessageDescriptor,
    messages: &[Option<&'m DynamicMessage>],
) -> Result<ArrayData, ArrowError> {
    let DataType::Struct(types) = data_type else {
        return Err(mismatch(data_type));
    };
    let child = |(field, known): (FieldDescriptor, &Arc<ArrowField>)| {
        let value = |message: &Option<&'m DynamicMessage>| {
            let is_absent =
                known.is_nullable() && message.is_none_or(|message| !message.has_field(&field));
            (!is_absent).then(|| match message {
                Some(message) => message.get_field(&field),
                None => Cow::Owned(Value::default_value_for_field(&field)),
            })
        };
        let values: Values<'_> = messages.iter().map(value).collect();
        match known.data_type() {
            DataType::List(item) => lists(known.data_type(), item, &field.kind(), &values),
            one => column(one, &field.kind(), &values),
        }
    };
    let children: Result<Vec<_>, _> = descriptor.fields().zip(types).map(child).collect();
    ArrayData::builder(data_type.clone())
        .len(messages.len())
        .nulls(validity(messages.iter().map(Option::is_some)))
        .child_data(children?)
        .build()
}

/// Repeated fields. A map is a list of its entries, by their keys.
fn lists(
    data_type: &DataType,
    item: &ArrowField,
    kind: &Kind,
    values: &Values<'_>,
) -> Result<ArrayData, ArrowError> {
    let mut ends = vec![0_i32];
    let mut items: Values<'_> = Vec::new();
    let mut entries = Vec::new();
    for value in values.iter().flatten() {
        match &**value {
            Value::List(list) => items.extend(list.iter().map(|one| Some(Cow::Borrowed(one)))),
            Value::Map(map) => {
                let mut sorted: Vec<_> = map.iter().collect();
                sorted.sort_by(|one, other| one.0.partial_cmp(other.0).unwrap_or(Ordering::Equal));
                entries.extend(sorted);
            }
            _ => return Err(mismatch(data_type)),
        }
        let end = i32::try_from(items.len() + entries.len());
        ends.push(end.map_err(|_| ArrowError::MemoryError("too many items".to_owned()))?);
    }
    let items = match (kind, item.data_type()) {
        (Kind::Message(entry), DataType::Struct(types)) if entry.is_map_entry() => {
            let keys: Values<'_> = entries
                .iter()
                .map(|(key, _)| Some(Cow::Owned(Value::from((*key).clone()))))
                .collect();
            let values: Values<'_> = entries
                .iter()
                .map(|(_, value)| Some(Cow::Borrowed(*value)))
                .collect();
            // In this order: see `Types::message`.
            let of = |field: FieldDescriptor, known: &ArrowField, values| {
                column(known.data_type(), &field.kind(), values)
            };
            let keys = of(entry.map_entry_key_field(), &types[0], &keys)?;
            let values = of(entry.map_entry_value_field(), &types[1], &values)?;
            ArrayData::builder(item.data_type().clone())
                .len(entries.len())
                .child_data(vec![keys, values])
                .build()?
        }
        (kind, one) => column(one, kind, &items)?,
    };
    ArrayData::builder(data_type.clone())
        .len(ends.len() - 1)
        .add_buffer(Buffer::from_vec(ends))
        .add_child_data(items)
        .build()
}

/// Values of one type that is not repeated.
fn column(data_type: &DataType, kind: &Kind, values: &Values<'_>) -> Result<ArrayData, ArrowError> {
    macro_rules! numbers {
        ($as:ident) => {{
            let number = |value: &Option<Cow<'_, Value>>| {
                value
                    .as_ref()
                    .and_then(|value| value.$as())
                    .unwrap_or_default()
            };
            Buffer::from_vec(values.iter().map(number).collect())
        }};
    }
    let buffer = match (data_type, kind) {
        (DataType::Struct(_), Kind::Message(message)) => {
            let messages: Vec<_> = values
                .iter()
                .map(|value| value.as_ref().and_then(|value| value.as_message()))
                .collect();
            return structs(data_type, message, &messages);
        }
        (DataType::Utf8 | DataType::Binary, kind) => return bytes(data_type, kind, values),
        (DataType::Boolean, _) => {
            let is_true = |value: &Option<Cow<'_, Value>>| {
                value
                    .as_ref()
                    .and_then(|value| value.as_bool())
                    .unwrap_or_default()
            };
            values
                .iter()
                .map(is_true)
                .collect::<BooleanBuffer>()
                .into_inner()
        }
        (DataType::Int32, _) => numbers!(as_i32),
        (DataType::Int64, _) => numbers!(as_i64),
        (DataType::UInt32, _) => numbers!(as_u32),
        (DataType::UInt64, _) => numbers!(as_u64),
        (DataType::Float32, _) => numbers!(as_f32),
        (DataType::Float64, _) => numbers!(as_f64),
        (other, _) => return Err(mismatch(other)),
    };
    ArrayData::builder(data_type.clone())
        .len(values.len())
        .nulls(validity(values.iter().map(Option::is_some)))
        .add_buffer(buffer)
        .build()
}

/// Texts, bytes, and names of the values of an enum; the number of a value without a name.
fn bytes(data_type: &DataType, kind: &Kind, values: &Values<'_>) -> Result<ArrayData, ArrowError> {
    let mut ends = vec![0_i32];
    let mut all = Vec::new();
    for value in values {
        match (kind, value.as_deref()) {
            (_, Some(Value::String(text))) => all.extend_from_slice(text.as_bytes()),
            (_, Some(Value::Bytes(bytes))) => all.extend_from_slice(bytes),
            (Kind::Enum(known), Some(Value::EnumNumber(number))) => {
                match known.get_value(*number) {
                    Some(value) => all.extend_from_slice(value.name().as_bytes()),
                    None => all.extend_from_slice(number.to_string().as_bytes()),
                }
            }
            (_, None) => {}
            (_, Some(_)) => return Err(mismatch(data_type)),
        }
        let end = i32::try_from(all.len());
        ends.push(end.map_err(|_| ArrowError::MemoryError("too many bytes".to_owned()))?);
    }
    ArrayData::builder(data_type.clone())
        .len(values.len())
        .nulls(validity(values.iter().map(Option::is_some)))
        .add_buffer(Buffer::from_vec(ends))
        .add_buffer(Buffer::from_vec(all))
        .build()
}

/// `None` if all values are there.
fn validity(are_there: impl Iterator<Item = bool>) -> Option<NullBuffer> {
    let nulls = NullBuffer::from_iter(are_there);
    (nulls.null_count() > 0).then_some(nulls)
}

fn mismatch(data_type: &DataType) -> ArrowError {
    ArrowError::SchemaError(format!("{data_type} is not the type of this field"))
}
