//! Deserializes records into types, with serde.

use std::fmt::{self, Display};
use std::ops::Range;

use arrow_buffer::{ArrowNativeType, BooleanBuffer};
use arrow_data::ArrayData;
use arrow_schema::{DataType, Field};
use half::f16;
use serde::de::value::{BorrowedStrDeserializer, BytesDeserializer, SeqDeserializer};
use serde::de::{
    self, Deserialize, DeserializeSeed, Deserializer, EnumAccess, MapAccess, SeqAccess,
    VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use super::elements::FlatTensor;
use super::serialize::{ELEMENTS, LAYOUT, TENSOR};
use super::tensors::{TensorColumn, TensorColumnError};
use crate::schema::{PYTHON_KIND, Schema};
use crate::tensor::{Tensor, TensorLayout};
use crate::wire::{Head, Reader};

/// A received record. It keeps the sample's memory alive, so deserialized values may borrow
/// tensors, texts and bytes from it.
#[derive(Clone, Debug)]
pub struct ReceivedRecord {
    array: ArrayData,
    schema: Schema,
}

/// Why a record cannot be deserialized into the requested type.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct DeserializeError {
    reason: String,
}

impl ReceivedRecord {
    /// A record from an array and its schema.
    pub fn new(array: ArrayData, schema: Schema) -> Self {
        Self { array, schema }
    }

    /// Deserializes the record. A dict or struct becomes a struct or map, a list or any other array
    /// a list. Tensors become [`Tensor`]s on the sample's memory.
    ///
    /// # Errors
    /// If the record does not match the type, or a tensor is damaged.
    pub fn deserialize<'de, T: Deserialize<'de>>(&'de self) -> Result<T, DeserializeError> {
        let root = Node::new(self.schema.root(), &self.array)?;
        let kind = self
            .schema
            .root()
            .metadata()
            .get(PYTHON_KIND)
            .map(String::as_str);
        if kind == Some("dict") && self.array.len() == 1 {
            T::deserialize(Value {
                node: &root,
                index: 0,
            })
        } else {
            T::deserialize(Items {
                node: &root,
                range: 0..self.array.len(),
            })
        }
    }
}

impl de::Error for DeserializeError {
    fn custom<M: Display>(message: M) -> Self {
        Self {
            reason: message.to_string(),
        }
    }
}

impl From<TensorColumnError> for DeserializeError {
    fn from(error: TensorColumnError) -> Self {
        Self {
            reason: error.to_string(),
        }
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Tensor<'a> {
    /// Needs a format that lends bytes, as records do.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_struct(TENSOR, &[LAYOUT, ELEMENTS], TensorVisitor)
    }
}

struct TensorVisitor;

impl<'de> Visitor<'de> for TensorVisitor {
    type Value = Tensor<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a tensor")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Tensor<'de>, A::Error> {
        let (mut layout, mut elements) = (None, None);
        while let Some(key) = map.next_key::<&str>()? {
            match key {
                LAYOUT => layout = Some(map.next_value::<LayoutBytes>()?.0),
                ELEMENTS => elements = Some(map.next_value::<&'de [u8]>()?),
                other => return Err(de::Error::unknown_field(other, &[LAYOUT, ELEMENTS])),
            }
        }
        let layout = layout.ok_or_else(|| de::Error::missing_field(LAYOUT))?;
        let elements = elements.ok_or_else(|| de::Error::missing_field(ELEMENTS))?;
        Tensor::from_bytes(layout, elements).map_err(de::Error::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Tensor<'de>, A::Error> {
        let missing = |count| de::Error::invalid_length(count, &self);
        let layout = parts
            .next_element::<LayoutBytes>()?
            .ok_or_else(|| missing(0))?
            .0;
        let elements = parts
            .next_element::<&'de [u8]>()?
            .ok_or_else(|| missing(1))?;
        Tensor::from_bytes(layout, elements).map_err(de::Error::custom)
    }
}

/// The layout of a tensor, decoded from bytes.
struct LayoutBytes(TensorLayout);

impl<'de> Deserialize<'de> for LayoutBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;

        impl Visitor<'_> for Bytes {
            type Value = LayoutBytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the layout of a tensor")
            }

            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<LayoutBytes, E> {
                TensorLayout::read(&mut Reader::new(bytes))
                    .map(LayoutBytes)
                    .map_err(E::custom)
            }
        }
        deserializer.deserialize_bytes(Bytes)
    }
}

/// A column and its type.
enum Node<'de> {
    Plain(&'de ArrayData),
    List {
        lists: &'de ArrayData,
        items: Box<Self>,
    },
    Fields {
        rows: &'de ArrayData,
        columns: Vec<(&'de str, Self)>,
    },
    Tensors {
        rows: &'de ArrayData,
        column: TensorColumn<'de>,
    },
}

impl<'de> Node<'de> {
    fn new(field: &Field, array: &'de ArrayData) -> Result<Self, DeserializeError> {
        if let Some(column) = TensorColumn::new(field, array)? {
            return Ok(Self::Tensors {
                rows: array,
                column,
            });
        }
        let children = array.child_data();
        Ok(match array.data_type() {
            DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
                Self::List {
                    lists: array,
                    items: Box::new(Self::new(item, &children[0])?),
                }
            }
            DataType::Struct(fields) => {
                let columns = fields.iter().zip(children);
                let columns = columns
                    .map(|(field, child)| Ok((field.name().as_str(), Self::new(field, child)?)));
                Self::Fields {
                    rows: array,
                    columns: columns.collect::<Result<_, DeserializeError>>()?,
                }
            }
            _ => Self::Plain(array),
        })
    }

    fn is_null(&self, index: usize) -> bool {
        match self {
            Self::Plain(array) => *array.data_type() == DataType::Null || array.is_null(index),
            Self::List { lists: rows, .. }
            | Self::Fields { rows, .. }
            | Self::Tensors { rows, .. } => rows.is_null(index),
        }
    }
}

/// One value of a column.
#[derive(Clone, Copy)]
struct Value<'n, 'de> {
    node: &'n Node<'de>,
    index: usize,
}

impl<'de> Value<'_, 'de> {
    fn plain<V: Visitor<'de>>(
        self,
        array: &'de ArrayData,
        visitor: V,
    ) -> Result<V::Value, DeserializeError> {
        let at = self.index;
        match array.data_type() {
            DataType::Boolean => {
                let bits =
                    BooleanBuffer::new(array.buffers()[0].clone(), array.offset(), array.len());
                visitor.visit_bool(bits.value(at))
            }
            DataType::Int8 => visitor.visit_i8(array.buffer::<i8>(0)[at]),
            DataType::Int16 => visitor.visit_i16(array.buffer::<i16>(0)[at]),
            DataType::Int32 => visitor.visit_i32(array.buffer::<i32>(0)[at]),
            DataType::Int64 | DataType::Timestamp(..) | DataType::Duration(_) => {
                visitor.visit_i64(array.buffer::<i64>(0)[at])
            }
            DataType::UInt8 => visitor.visit_u8(array.buffer::<u8>(0)[at]),
            DataType::UInt16 => visitor.visit_u16(array.buffer::<u16>(0)[at]),
            DataType::UInt32 => visitor.visit_u32(array.buffer::<u32>(0)[at]),
            DataType::UInt64 => visitor.visit_u64(array.buffer::<u64>(0)[at]),
            DataType::Float16 => visitor.visit_f32(array.buffer::<f16>(0)[at].to_f32()),
            DataType::Float32 => visitor.visit_f32(array.buffer::<f32>(0)[at]),
            DataType::Float64 => visitor.visit_f64(array.buffer::<f64>(0)[at]),
            DataType::Utf8 => visitor.visit_borrowed_str(text::<i32>(array, at)?),
            DataType::LargeUtf8 => visitor.visit_borrowed_str(text::<i64>(array, at)?),
            DataType::Binary => visitor.visit_borrowed_bytes(variable::<i32>(array, at)),
            DataType::LargeBinary => visitor.visit_borrowed_bytes(variable::<i64>(array, at)),
            other => Err(de::Error::custom(format!(
                "values of type {other} cannot be deserialized"
            ))),
        }
    }

    /// The number of items of a list, tensor or bytes; `None` for other values.
    fn items(self) -> Result<Option<usize>, DeserializeError> {
        if self.node.is_null(self.index) {
            return Ok(None);
        }
        Ok(match self.node {
            Node::List { lists, .. } => Some(self.range_of(lists).len()),
            Node::Tensors { column, .. } => {
                let found = column.in_place(self.index)?;
                found.map(|(layout, _)| layout.len())
            }
            Node::Plain(array) => match array.data_type() {
                DataType::Binary => Some(range::<i32>(array, self.index).len()),
                DataType::LargeBinary => Some(range::<i64>(array, self.index).len()),
                _ => None,
            },
            Node::Fields { .. } => None,
        })
    }

    fn range_of(self, lists: &ArrayData) -> Range<usize> {
        match lists.data_type() {
            DataType::List(_) => range::<i32>(lists, self.index),
            DataType::LargeList(_) => range::<i64>(lists, self.index),
            DataType::FixedSizeList(_, size) => {
                let size = usize::try_from(*size).unwrap_or(0);
                self.index * size..(self.index + 1) * size
            }
            _ => 0..0,
        }
    }
}

fn check_length(found: Option<usize>, expected: usize) -> Result<(), DeserializeError> {
    match found {
        Some(found) if found != expected => Err(de::Error::custom(format!(
            "expected {expected} items, found {found}"
        ))),
        _ => Ok(()),
    }
}

/// Offsets were validated when the array was read, and are in private memory.
fn range<O: ArrowNativeType>(array: &ArrayData, index: usize) -> Range<usize> {
    let offsets = array.buffer::<O>(0);
    offsets[index].as_usize()..offsets[index + 1].as_usize()
}

fn variable<O: ArrowNativeType>(array: &ArrayData, index: usize) -> &[u8] {
    &array.buffers()[1][range::<O>(array, index)]
}

fn text<O: ArrowNativeType>(array: &ArrayData, index: usize) -> Result<&str, DeserializeError> {
    std::str::from_utf8(variable::<O>(array, index)).map_err(de::Error::custom)
}

impl<'de> Deserializer<'de> for Value<'_, 'de> {
    type Error = DeserializeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
        if self.node.is_null(self.index) {
            return visitor.visit_unit();
        }
        match self.node {
            Node::Plain(array) => self.plain(array, visitor),
            Node::List { lists, items } => visitor.visit_seq(Items {
                node: items,
                range: self.range_of(lists),
            }),
            Node::Fields { columns, .. } => visitor.visit_map(Fields {
                columns,
                index: self.index,
                next: 0,
            }),
            Node::Tensors { column, .. } => {
                let found = column.in_place(self.index)?;
                let (layout, elements) =
                    found.ok_or_else(|| <DeserializeError as de::Error>::custom("null"))?;
                let mut head = Head::new();
                layout.write(&mut head);
                visitor.visit_map(TensorParts {
                    layout: head,
                    elements,
                    next: 0,
                })
            }
        }
    }

    /// Bytes and tensors are lists where a type has a list: a tensor of its elements in C order.
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
        if self.node.is_null(self.index) {
            return self.deserialize_any(visitor);
        }
        let bytes = match self.node {
            Node::Plain(array) => match array.data_type() {
                DataType::Binary => variable::<i32>(array, self.index),
                DataType::LargeBinary => variable::<i64>(array, self.index),
                _ => return self.deserialize_any(visitor),
            },
            Node::Tensors { column, .. } => {
                let found = column.in_place(self.index)?;
                let (layout, elements) =
                    found.ok_or_else(|| <DeserializeError as de::Error>::custom("null"))?;
                return visitor.visit_seq(FlatTensor::new(layout, elements)?);
            }
            Node::List { .. } | Node::Fields { .. } => return self.deserialize_any(visitor),
        };
        visitor.visit_seq(SeqDeserializer::new(bytes.iter().copied()))
    }

    /// Arrays and tuples of serde would leave out items beyond their length.
    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, DeserializeError> {
        check_length(self.items()?, length)?;
        self.deserialize_seq(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
        if self.node.is_null(self.index) {
            visitor.visit_none()
        } else {
            visitor.visit_some(self)
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, DeserializeError> {
        visitor.visit_newtype_struct(self)
    }

    /// A variant without a value is a text, any other a struct of one field.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DeserializeError> {
        let wrong = || {
            <DeserializeError as de::Error>::custom("an enum is a text or a struct of one field")
        };
        match self.node {
            Node::Plain(array) if !array.is_null(self.index) => {
                let name = match array.data_type() {
                    DataType::Utf8 => text::<i32>(array, self.index)?,
                    DataType::LargeUtf8 => text::<i64>(array, self.index)?,
                    _ => return Err(wrong()),
                };
                visitor.visit_enum(BorrowedStrDeserializer::new(name))
            }
            Node::Fields { columns, .. } => {
                let held = columns
                    .iter()
                    .find(|(_, column)| !column.is_null(self.index));
                let (name, node) = held.ok_or_else(wrong)?;
                visitor.visit_enum(Variant {
                    name,
                    value: Value {
                        node,
                        index: self.index,
                    },
                })
            }
            _ => Err(wrong()),
        }
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct tuple_struct
        map struct identifier ignored_any
    }
}

/// Consecutive values of a column: the items of a list, or all values.
struct Items<'n, 'de> {
    node: &'n Node<'de>,
    range: Range<usize>,
}

impl<'de> SeqAccess<'de> for Items<'_, 'de> {
    type Error = DeserializeError;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, DeserializeError> {
        let Some(index) = self.range.next() else {
            return Ok(None);
        };
        seed.deserialize(Value {
            node: self.node,
            index,
        })
        .map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.range.len())
    }
}

impl<'de> Deserializer<'de> for Items<'_, 'de> {
    type Error = DeserializeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, DeserializeError> {
        visitor.visit_seq(self)
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, DeserializeError> {
        check_length(Some(self.range.len()), length)?;
        visitor.visit_seq(self)
    }

    fn is_human_readable(&self) -> bool {
        false
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple_struct map struct enum identifier ignored_any
    }
}

/// The fields of a struct.
struct Fields<'n, 'de> {
    columns: &'n [(&'de str, Node<'de>)],
    index: usize,
    next: usize,
}

impl<'de> MapAccess<'de> for Fields<'_, 'de> {
    type Error = DeserializeError;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, DeserializeError> {
        let Some((name, _)) = self.columns.get(self.next) else {
            return Ok(None);
        };
        seed.deserialize(BorrowedStrDeserializer::new(name))
            .map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<S::Value, DeserializeError> {
        let (name, node) = &self.columns[self.next];
        self.next += 1;
        let value = seed.deserialize(Value {
            node,
            index: self.index,
        });
        value.map_err(|DeserializeError { reason }| DeserializeError {
            reason: format!("{name}: {reason}"),
        })
    }
}

/// The parts of a tensor, in the form from which [`Tensor`] is deserialized.
struct TensorParts<'de> {
    layout: Head,
    elements: &'de [u8],
    next: usize,
}

impl<'de> MapAccess<'de> for TensorParts<'de> {
    type Error = DeserializeError;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, DeserializeError> {
        let Some(name) = [LAYOUT, ELEMENTS].get(self.next) else {
            return Ok(None);
        };
        self.next += 1;
        seed.deserialize(BorrowedStrDeserializer::new(name))
            .map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<S::Value, DeserializeError> {
        if self.next == 1 {
            seed.deserialize(BytesDeserializer::new(&self.layout))
        } else {
            seed.deserialize(de::value::BorrowedBytesDeserializer::new(self.elements))
        }
    }
}

/// A variant with a value.
struct Variant<'n, 'de> {
    name: &'de str,
    value: Value<'n, 'de>,
}

impl<'n, 'de> EnumAccess<'de> for Variant<'n, 'de> {
    type Error = DeserializeError;
    type Variant = Value<'n, 'de>;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Value<'n, 'de>), DeserializeError> {
        Ok((
            seed.deserialize(BorrowedStrDeserializer::<DeserializeError>::new(self.name))?,
            self.value,
        ))
    }
}

impl<'de> VariantAccess<'de> for Value<'_, 'de> {
    type Error = DeserializeError;

    fn unit_variant(self) -> Result<(), DeserializeError> {
        Err(de::Error::custom(
            "expected a variant without a value, found one with a value",
        ))
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<S::Value, DeserializeError> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(
        self,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, DeserializeError> {
        self.deserialize_tuple(length, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, DeserializeError> {
        self.deserialize_any(visitor)
    }
}
