//! Values of types that serde serializes, as records.

use std::fmt::Display;

use serde::Serialize;
use serde::ser::{
    self, Impossible, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant,
    SerializeTuple, SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

use super::column::{Column, ColumnError, Kind};
use super::error::RecordError;
use super::plan::{Elements, Record};
use crate::encode::Encode;
use crate::layout::Layout;
use crate::schema::Schema;
use crate::tensor::{Tensor, TensorLayout};
use crate::wire::{Head, Reader};

/// The name and fields of a [`Tensor`] in serde's data model: its encoded layout, and its elements.
pub(super) const TENSOR: &str = "nervure::Tensor";
pub(super) const LAYOUT: &str = "layout";
pub(super) const ELEMENTS: &str = "elements";

/// Limit on the nesting of lists and structs, slightly below the limit of schemas.
const MAX_DEPTH: usize = 28;

/// A struct, list or map of any type that serde serializes, ready to be sent. Each [`Tensor`] in it
/// is copied once, into the memory that the receiver views. Python receives a dict with NumPy
/// arrays.
///
/// ```
/// use nervure_message::{Encode, SerdeSample, Tensor};
///
/// #[derive(serde::Serialize)]
/// struct Frame<'a> {
///     stamp: f64,
///     image: Tensor<'a>,
/// }
///
/// let pixels = [0_u8; 4 * 6 * 3];
/// let frame = Frame { stamp: 1.5, image: Tensor::new(&pixels, &[4, 6, 3])? };
/// let sample = SerdeSample::new(&frame)?;
/// assert!(sample.payload_bytes() > pixels.len());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SerdeSample<'a, V: ?Sized> {
    value: &'a V,
    /// Tensors are represented by their index, in order of serialization.
    record: Record<usize>,
    tensors: usize,
}

/// Why a value cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum SerdeError {
    /// Values of a list differ in type, or there are too many.
    #[error("{path}: {source}")]
    Column {
        /// Path within the value.
        path: String,
        /// Error of the list.
        source: ColumnError,
    },
    /// The value has no Arrow type, or its `Serialize` implementation failed.
    #[error("{path}: {reason}")]
    Value {
        /// Path within the value.
        path: String,
        /// The reason.
        reason: String,
    },
    /// The value exceeds a limit of records.
    #[error(transparent)]
    Record(#[from] RecordError),
}

impl<'a, V: Serialize + ?Sized> SerdeSample<'a, V> {
    /// Walks the value without copying its tensors.
    ///
    /// # Errors
    /// If a list has elements of different types, or a value has no Arrow type: maps with keys
    /// other than text, integers of 128 bits.
    pub fn new(value: &'a V) -> Result<Self, SerdeError> {
        let mut tensors = 0;
        let record = record_of(value, &mut |_| {
            tensors += 1;
            tensors - 1
        })?;
        Ok(Self {
            value,
            record,
            tensors,
        })
    }

    #[cfg(test)]
    pub(super) fn record(&self) -> &Record<usize> {
        &self.record
    }
}

impl<V: Serialize + ?Sized> Encode for SerdeSample<'_, V> {
    fn layout(&self) -> Layout {
        self.record.layout()
    }

    fn payload_bytes(&self) -> usize {
        self.record.payload_bytes()
    }

    /// # Panics
    /// If the value serializes other tensors than in [`Self::new`].
    fn write(&self, payload: &mut [u8]) {
        let mut places: Vec<Option<(&[usize], &mut [u8])>> =
            (0..self.tensors).map(|_| None).collect();
        self.record.write_parts(payload, |&number, axes, out| {
            places[number] = Some((axes, out))
        });
        if self.tensors == 0 {
            return;
        }
        // Serde cannot borrow from the value beyond a call, so the value is walked again.
        let mut next = places.into_iter();
        let walked = column_of(self.value, &mut |tensor| {
            let (axes, out) = next
                .next()
                .flatten()
                .expect("a value must serialize the same number of tensors each time");
            tensor.write_elements(axes, out);
        });
        assert!(
            walked.is_ok() && next.next().is_none(),
            "a value must serialize the same way each time"
        );
    }

    fn schema(&self) -> Option<&Schema> {
        Some(self.record.schema())
    }
}

impl Serialize for Tensor<'_> {
    /// Serializes the encoded layout and the bytes.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut layout = Head::new();
        self.layout().write(&mut layout);
        let mut fields = serializer.serialize_struct(TENSOR, 2)?;
        fields.serialize_field(LAYOUT, &Bytes(&layout))?;
        fields.serialize_field(ELEMENTS, &Bytes(self.bytes()))?;
        fields.end()
    }
}

struct Bytes<'a>(&'a [u8]);

impl Serialize for Bytes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

/// A value as a record. `tensor` is called with each tensor in it.
pub(crate) fn record_of<V: Serialize + ?Sized, T>(
    value: &V,
    tensor: &mut dyn FnMut(&Tensor<'_>) -> T,
) -> Result<Record<T>, SerdeError> {
    let column = column_of(value, tensor)?;
    Ok(match column.kind() {
        Kind::List => Record::new(column.into_items(), "list")?,
        _ => Record::new(column, "dict")?,
    })
}

fn column_of<V: Serialize + ?Sized, T>(
    value: &V,
    tensor: &mut dyn FnMut(&Tensor<'_>) -> T,
) -> Result<Column<T>, SerdeError> {
    let mut column = Column::default();
    value.serialize(Values {
        column: &mut column,
        tensor,
        depth_left: MAX_DEPTH,
    })?;
    Ok(column)
}

impl SerdeError {
    fn value(reason: impl Display) -> Self {
        Self::Value {
            path: "value".to_owned(),
            reason: reason.to_string(),
        }
    }

    /// Puts the path of the enclosing value before the path of the error.
    fn within(mut self, step: &str) -> Self {
        if let Self::Column { path, .. } | Self::Value { path, .. } = &mut self {
            path.insert_str("value".len(), step);
        }
        self
    }
}

impl ser::Error for SerdeError {
    fn custom<M: Display>(message: M) -> Self {
        Self::value(message)
    }
}

impl From<ColumnError> for SerdeError {
    fn from(source: ColumnError) -> Self {
        Self::Column {
            path: "value".to_owned(),
            source,
        }
    }
}

/// Appends one value to a column.
struct Values<'c, T> {
    column: &'c mut Column<T>,
    tensor: &'c mut dyn FnMut(&Tensor<'_>) -> T,
    depth_left: usize,
}

impl<'c, T> Values<'c, T> {
    fn items(self, variant: Option<&'static str>) -> Result<Items<'c, T>, SerdeError> {
        let depth_left = deeper(self.depth_left)?;
        let Self { column, tensor, .. } = self;
        inner(column, variant)?.begin_list()?;
        Ok(Items {
            column,
            variant,
            tensor,
            depth_left,
            count: 0,
        })
    }

    fn fields(self, variant: Option<&'static str>) -> Result<Fields<'c, T>, SerdeError> {
        let depth_left = deeper(self.depth_left)?;
        let Self { column, tensor, .. } = self;
        inner(column, variant)?.begin_fields()?;
        Ok(Fields {
            column,
            variant,
            tensor,
            depth_left,
            key: String::new(),
            parts: None,
        })
    }
}

/// The column for a value. For a variant with a value, that is the column of its field in a struct.
fn inner<'c, T>(
    column: &'c mut Column<T>,
    variant: Option<&'static str>,
) -> Result<&'c mut Column<T>, ColumnError> {
    match variant {
        Some(variant) => column.begin_fields()?.field(variant),
        None => Ok(column),
    }
}

fn deeper(depth_left: usize) -> Result<usize, SerdeError> {
    let too_deep =
        || SerdeError::value(format!("it nests more than {MAX_DEPTH} lists and structs"));
    depth_left.checked_sub(1).ok_or_else(too_deep)
}

macro_rules! push {
    ($($method:ident($type:ty) => $push:ident),* $(,)?) => {$(
        fn $method(self, value: $type) -> Result<(), SerdeError> {
            Ok(self.column.$push(value.into())?)
        }
    )*};
}

impl<'c, T> Serializer for Values<'c, T> {
    type Ok = ();
    type Error = SerdeError;
    type SerializeSeq = Items<'c, T>;
    type SerializeTuple = Items<'c, T>;
    type SerializeTupleStruct = Items<'c, T>;
    type SerializeTupleVariant = Items<'c, T>;
    type SerializeMap = Fields<'c, T>;
    type SerializeStruct = Fields<'c, T>;
    type SerializeStructVariant = Fields<'c, T>;

    push! {
        serialize_bool(bool) => push_bool,
        serialize_i8(i8) => push_integer,
        serialize_i16(i16) => push_integer,
        serialize_i32(i32) => push_integer,
        serialize_i64(i64) => push_integer,
        serialize_u8(u8) => push_unsigned,
        serialize_u16(u16) => push_unsigned,
        serialize_u32(u32) => push_unsigned,
        serialize_u64(u64) => push_unsigned,
        serialize_f32(f32) => push_float,
        serialize_f64(f64) => push_float,
        serialize_str(&str) => push_text,
        serialize_bytes(&[u8]) => push_bytes,
    }

    fn serialize_char(self, value: char) -> Result<(), SerdeError> {
        Ok(self.column.push_text(value.encode_utf8(&mut [0; 4]))?)
    }

    fn serialize_none(self) -> Result<(), SerdeError> {
        self.column.push_null();
        Ok(())
    }

    fn serialize_some<V: Serialize + ?Sized>(self, value: &V) -> Result<(), SerdeError> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), SerdeError> {
        self.serialize_none()
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), SerdeError> {
        self.serialize_none()
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<(), SerdeError> {
        Ok(self.column.push_text(variant)?)
    }

    fn serialize_newtype_struct<V: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &V,
    ) -> Result<(), SerdeError> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<V: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &V,
    ) -> Result<(), SerdeError> {
        let depth_left = deeper(self.depth_left)?;
        let column = inner(self.column, Some(variant))?;
        let pushed = value.serialize(Values {
            column,
            tensor: self.tensor,
            depth_left,
        });
        pushed.map_err(|error| error.within(&format!(".{variant}")))?;
        self.column.end_fields();
        Ok(())
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Items<'c, T>, SerdeError> {
        self.items(None)
    }

    fn serialize_tuple(self, _: usize) -> Result<Items<'c, T>, SerdeError> {
        self.items(None)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Items<'c, T>, SerdeError> {
        self.items(None)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Items<'c, T>, SerdeError> {
        self.items(Some(variant))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Fields<'c, T>, SerdeError> {
        self.fields(None)
    }

    fn serialize_struct(self, name: &'static str, _: usize) -> Result<Fields<'c, T>, SerdeError> {
        if name == TENSOR {
            let Self {
                column,
                tensor,
                depth_left,
            } = self;
            return Ok(Fields {
                column,
                variant: None,
                tensor,
                depth_left,
                key: String::new(),
                parts: Some(None),
            });
        }
        self.fields(None)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        _: usize,
    ) -> Result<Fields<'c, T>, SerdeError> {
        self.fields(Some(variant))
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

/// Appends the items of a list.
struct Items<'c, T> {
    column: &'c mut Column<T>,
    variant: Option<&'static str>,
    tensor: &'c mut dyn FnMut(&Tensor<'_>) -> T,
    depth_left: usize,
    count: usize,
}

impl<T> Items<'_, T> {
    fn item<V: Serialize + ?Sized>(&mut self, value: &V) -> Result<(), SerdeError> {
        let column = inner(self.column, self.variant)?.begin_list()?;
        let pushed = value.serialize(Values {
            column,
            tensor: self.tensor,
            depth_left: self.depth_left,
        });
        self.count += 1;
        pushed.map_err(|error| error.within(&format!("[{}]", self.count - 1)))
    }

    fn finish(self) -> Result<(), SerdeError> {
        inner(self.column, self.variant)?.end_list();
        if self.variant.is_some() {
            self.column.end_fields();
        }
        Ok(())
    }
}

macro_rules! items {
    ($($trait:ident::$method:ident),*) => {$(
        impl<T> $trait for Items<'_, T> {
            type Ok = ();
            type Error = SerdeError;

            fn $method<V: Serialize + ?Sized>(&mut self, value: &V) -> Result<(), SerdeError> {
                self.item(value)
            }

            fn end(self) -> Result<(), SerdeError> {
                self.finish()
            }
        }
    )*};
}

items! {
    SerializeSeq::serialize_element, SerializeTuple::serialize_element, SerializeTupleStruct::serialize_field,
    SerializeTupleVariant::serialize_field
}

/// Appends the fields of a struct, or a tensor.
struct Fields<'c, T> {
    column: &'c mut Column<T>,
    variant: Option<&'static str>,
    tensor: &'c mut dyn FnMut(&Tensor<'_>) -> T,
    depth_left: usize,
    /// For maps, the key of the next value.
    key: String,
    /// For tensors, the layout once it has been read.
    parts: Option<Option<TensorLayout>>,
}

impl<T> Fields<'_, T> {
    fn field<V: Serialize + ?Sized>(&mut self, name: &str, value: &V) -> Result<(), SerdeError> {
        if self.parts.is_some() {
            return value.serialize(TensorPart { fields: self });
        }
        let column = inner(self.column, self.variant)?
            .begin_fields()?
            .field(name)?;
        let pushed = value.serialize(Values {
            column,
            tensor: self.tensor,
            depth_left: self.depth_left,
        });
        pushed.map_err(|error| error.within(&format!(".{name}")))
    }

    /// Receives the layout of a tensor, then its elements.
    fn part(&mut self, bytes: &[u8]) -> Result<(), SerdeError> {
        match self.parts.take().flatten() {
            None => {
                let mut reader = Reader::new(bytes);
                self.parts = Some(Some(
                    TensorLayout::read(&mut reader).map_err(SerdeError::value)?,
                ));
                Ok(())
            }
            Some(layout) => {
                let tensor = Tensor::from_bytes(layout, bytes).map_err(SerdeError::value)?;
                let elements = (self.tensor)(&tensor);
                self.parts = Some(None);
                Ok(self.column.push_tensor(tensor.layout(), elements)?)
            }
        }
    }

    fn finish(self) -> Result<(), SerdeError> {
        if self.parts.is_some() {
            return Ok(());
        }
        inner(self.column, self.variant)?.end_fields();
        if self.variant.is_some() {
            self.column.end_fields();
        }
        Ok(())
    }
}

macro_rules! fields {
    ($($trait:ident),*) => {$(
        impl<T> $trait for Fields<'_, T> {
            type Ok = ();
            type Error = SerdeError;

            fn serialize_field<V: Serialize + ?Sized>(
                &mut self,
                name: &'static str,
                value: &V,
            ) -> Result<(), SerdeError> {
                self.field(name, value)
            }

            fn end(self) -> Result<(), SerdeError> {
                self.finish()
            }
        }
    )*};
}

fields! { SerializeStruct, SerializeStructVariant }

impl<T> SerializeMap for Fields<'_, T> {
    type Ok = ();
    type Error = SerdeError;

    fn serialize_key<K: Serialize + ?Sized>(&mut self, key: &K) -> Result<(), SerdeError> {
        let mut keys = Column::<()>::default();
        key.serialize(Values {
            column: &mut keys,
            tensor: &mut |_| (),
            depth_left: 1,
        })?;
        self.key = keys
            .into_text()
            .ok_or_else(|| SerdeError::value("the keys of a map must be text"))?;
        Ok(())
    }

    fn serialize_value<V: Serialize + ?Sized>(&mut self, value: &V) -> Result<(), SerdeError> {
        let key = std::mem::take(&mut self.key);
        self.field(&key, value)
    }

    fn end(self) -> Result<(), SerdeError> {
        self.finish()
    }
}

/// Receives the bytes of one part of a tensor.
struct TensorPart<'f, 'c, T> {
    fields: &'f mut Fields<'c, T>,
}

macro_rules! no_part {
    ($($method:ident($($argument:ty),*) -> $ok:ty),* $(,)?) => {$(
        fn $method(self, $(_: $argument),*) -> Result<$ok, SerdeError> {
            Err(not_bytes())
        }
    )*};
}

fn not_bytes() -> SerdeError {
    SerdeError::value("a tensor serializes as its layout and its bytes")
}

type Never = Impossible<(), SerdeError>;

impl<T> Serializer for TensorPart<'_, '_, T> {
    type Ok = ();
    type Error = SerdeError;
    type SerializeSeq = Never;
    type SerializeTuple = Never;
    type SerializeTupleStruct = Never;
    type SerializeTupleVariant = Never;
    type SerializeMap = Never;
    type SerializeStruct = Never;
    type SerializeStructVariant = Never;

    fn serialize_bytes(self, bytes: &[u8]) -> Result<(), SerdeError> {
        self.fields.part(bytes)
    }

    fn serialize_some<V: Serialize + ?Sized>(self, _: &V) -> Result<(), SerdeError> {
        Err(not_bytes())
    }

    fn serialize_newtype_struct<V: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: &V,
    ) -> Result<(), SerdeError> {
        Err(not_bytes())
    }

    fn serialize_newtype_variant<V: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &V,
    ) -> Result<(), SerdeError> {
        Err(not_bytes())
    }

    no_part! {
        serialize_bool(bool) -> (), serialize_i8(i8) -> (), serialize_i16(i16) -> (), serialize_i32(i32) -> (),
        serialize_i64(i64) -> (), serialize_u8(u8) -> (), serialize_u16(u16) -> (), serialize_u32(u32) -> (),
        serialize_u64(u64) -> (), serialize_f32(f32) -> (), serialize_f64(f64) -> (), serialize_char(char) -> (),
        serialize_str(&str) -> (), serialize_none() -> (), serialize_unit() -> (),
        serialize_unit_struct(&'static str) -> (), serialize_unit_variant(&'static str, u32, &'static str) -> (),
        serialize_seq(Option<usize>) -> Never, serialize_tuple(usize) -> Never,
        serialize_tuple_struct(&'static str, usize) -> Never,
        serialize_tuple_variant(&'static str, u32, &'static str, usize) -> Never,
        serialize_map(Option<usize>) -> Never, serialize_struct(&'static str, usize) -> Never,
        serialize_struct_variant(&'static str, u32, &'static str, usize) -> Never,
    }
}
