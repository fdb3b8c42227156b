//! Tensors in an Arrow array: the canonical extension type `arrow.variable_shape_tensor`.
//!
//! <https://arrow.apache.org/docs/format/CanonicalExtensions.html#variable-shape-tensor>
//!
//! `arrow-schema` implements the type too, but writes its metadata under other keys
//! (`permutations`) than the specification, and refuses the keys of the specification.
//!
//! Element types that Arrow lacks are `arrow.bool8`, so that a truth value is a byte as in NumPy,
//! or fixed-width bytes under `arrow.opaque` with NumPy's name of the type. Arrow's libraries
//! refuse tensors with such elements. Tensors of them therefore have another name,
//! [`OTHER_TENSOR`], which libraries show as a plain struct.

use std::hint::black_box;

use arrow_buffer::Buffer;
use arrow_data::ArrayData;
use arrow_schema::extension::{EXTENSION_TYPE_METADATA_KEY, EXTENSION_TYPE_NAME_KEY};
use arrow_schema::{DataType, Field, Fields, Metadata, TimeUnit};
use serde_json::{Value, json};

use crate::dtype::DType;
use crate::tensor::TensorLayout;

const TENSOR: &str = "arrow.variable_shape_tensor";
/// The same storage and metadata, for elements that have an extension type themselves.
const OTHER_TENSOR: &str = "nervure.tensor";
const BOOL8: &str = "arrow.bool8";
const OPAQUE: &str = "arrow.opaque";

/// A column of tensors in a received array.
#[derive(Clone, Debug)]
pub struct TensorColumn<'a> {
    dtype: DType,
    dimensions: usize,
    /// For each axis in order, its position in memory; empty for C order.
    permutation: Vec<usize>,
    array: &'a ArrayData,
}

/// A tensor of a column.
#[derive(Clone, Debug)]
pub struct TensorInRecord {
    /// The placement of its elements in `elements`.
    pub layout: TensorLayout,
    /// The memory of the elements: in place, or a copy if they are not aligned.
    pub elements: Buffer,
}

/// Why a column with the extension type of tensors is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TensorColumnError {
    /// The field breaks a rule of the extension type.
    #[error("the field {field:?} has the extension type of tensors but is not valid: {reason}")]
    Type {
        /// Name of the field.
        field: String,
        /// The rule that is broken.
        reason: String,
    },
    /// Shape and number of elements of a tensor do not match.
    #[error("the shape {shape:?} of a tensor does not fit its {elements} elements")]
    Shape {
        /// The shape, in memory order.
        shape: Vec<i32>,
        /// Number of elements.
        elements: usize,
    },
}

/// The field of a column of tensors. `axes` is the memory order, slowest first.
pub(super) fn field(name: &str, dtype: &DType, axes: &[usize]) -> Field {
    let data = Field::new("data", DataType::List(element_field(dtype).into()), true);
    let number = Field::new("item", DataType::Int32, true);
    let shape = DataType::FixedSizeList(number.into(), axes.len() as i32);
    let children = Fields::from(vec![data, Field::new("shape", shape, true)]);
    let parameters = if axes.is_sorted() {
        json!({})
    } else {
        let mut permutation = vec![0; axes.len()];
        axes.iter()
            .enumerate()
            .for_each(|(in_memory, &axis)| permutation[axis] = in_memory);
        json!({ "permutation": permutation })
    };
    let is_plain = arrow_type(dtype).is_some();
    let metadata = extension(
        if is_plain { TENSOR } else { OTHER_TENSOR },
        &parameters.to_string(),
    );
    Field::new(name, DataType::Struct(children), true).with_metadata(metadata)
}

impl<'a> TensorColumn<'a> {
    /// The tensors of an array from [`crate::array::read`], or of a part of one; `None` for arrays
    /// of other types.
    ///
    /// # Errors
    /// If the field has the extension type of tensors but is not valid.
    pub fn new(field: &Field, array: &'a ArrayData) -> Result<Option<Self>, TensorColumnError> {
        let Some((dtype, dimensions)) = stored_type(field, array.data_type())? else {
            return Ok(None);
        };
        let permutation = order(field, dimensions)?;
        let column = Self {
            dtype,
            dimensions,
            permutation,
            array,
        };
        let parts = [
            array,
            column.data(),
            column.items(),
            column.shapes(),
            column.lengths(),
        ];
        let refused = |reason| refusal(field, reason);
        if parts.iter().any(|part| part.offset() != 0) {
            return Err(refused("it must not be a slice of another array"));
        }
        if parts[1..].iter().any(|part| part.null_count() > 0) {
            return Err(refused("data and shape must not be null"));
        }
        Ok(Some(column))
    }

    /// The field of a column of tensors in C order.
    pub fn field(name: &str, dtype: &DType, dimensions: usize) -> Field {
        field(name, dtype, &(0..dimensions).collect::<Vec<_>>())
    }

    /// The type of the elements and the number of dimensions of a column of tensors; `None` for fields
    /// of other types.
    ///
    /// # Errors
    /// If the field has the extension type of tensors but is not valid.
    pub fn type_of(field: &Field) -> Result<Option<(DType, usize)>, TensorColumnError> {
        stored_type(field, field.data_type())
    }

    /// The tensor at an index of the array; `None` for a null.
    ///
    /// # Errors
    /// If its shape does not match its elements.
    pub fn get(&self, index: usize) -> Result<Option<TensorInRecord>, TensorColumnError> {
        let Some((layout, first_byte)) = self.place(index)? else {
            return Ok(None);
        };
        let elements = match self.items().buffers().first() {
            Some(items) if layout.payload_bytes() > 0 => {
                items.slice_with_length(first_byte, layout.payload_bytes())
            }
            _ => Buffer::from(&[]),
        };
        let elements = aligned(elements, self.dtype.item_bytes());
        Ok(Some(TensorInRecord { layout, elements }))
    }

    /// The tensor at an index, without a copy for alignment.
    pub(super) fn in_place(
        &self,
        index: usize,
    ) -> Result<Option<(TensorLayout, &'a [u8])>, TensorColumnError> {
        let Some((layout, first_byte)) = self.place(index)? else {
            return Ok(None);
        };
        let elements = match self.items().buffers().first() {
            Some(items) if layout.payload_bytes() > 0 => {
                &items[first_byte..][..layout.payload_bytes()]
            }
            _ => &[],
        };
        Ok(Some((layout, elements)))
    }

    /// The layout of a tensor, and the offset of its first byte among the elements.
    fn place(&self, index: usize) -> Result<Option<(TensorLayout, usize)>, TensorColumnError> {
        if self.array.is_null(index) {
            return Ok(None);
        }
        // Offsets are in private memory, and were validated when the array was read.
        let ends = &self.data().buffer::<i32>(0)[index..index + 2];
        let (start, end) = (ends[0] as usize, ends[1] as usize);
        let refused = |shape: &[i32]| TensorColumnError::Shape {
            shape: shape.to_vec(),
            elements: end - start,
        };
        // The sender may still alter the memory of the shape, so a private copy is validated.
        let first = index * self.dimensions;
        let shape = self
            .lengths()
            .buffer::<i32>(0)
            .get(first..first + self.dimensions)
            .unwrap_or_default();
        let shape = black_box(shape.to_vec());
        let lengths: Vec<usize> = shape
            .iter()
            .map(|&length| usize::try_from(length))
            .collect::<Result<_, _>>()
            .map_err(|_| refused(&shape))?;
        if lengths.len() != self.dimensions {
            return Err(refused(&shape));
        }
        let layout = layout(&self.dtype, &lengths, &self.permutation)
            .filter(|layout| layout.len() == end - start);
        let layout = layout.ok_or_else(|| refused(&shape))?;
        Ok(Some((layout, start * self.dtype.item_bytes())))
    }

    fn data(&self) -> &'a ArrayData {
        &self.array.child_data()[0]
    }

    fn items(&self) -> &'a ArrayData {
        &self.data().child_data()[0]
    }

    fn shapes(&self) -> &'a ArrayData {
        &self.array.child_data()[1]
    }

    fn lengths(&self) -> &'a ArrayData {
        &self.shapes().child_data()[0]
    }
}

/// As [`TensorColumn::type_of`], and for each axis in order its position in memory; empty for C order.
pub(super) fn stored_order(
    field: &Field,
) -> Result<Option<(DType, usize, Vec<usize>)>, TensorColumnError> {
    let Some((dtype, dimensions)) = TensorColumn::type_of(field)? else {
        return Ok(None);
    };
    Ok(Some((dtype, dimensions, order(field, dimensions)?)))
}

fn order(field: &Field, dimensions: usize) -> Result<Vec<usize>, TensorColumnError> {
    let parameters = field
        .metadata()
        .get(EXTENSION_TYPE_METADATA_KEY)
        .map_or("", String::as_str);
    permutation(parameters, dimensions).ok_or_else(|| refusal(field, "its metadata is wrong"))
}

fn refusal(field: &Field, reason: &str) -> TensorColumnError {
    TensorColumnError::Type {
        field: field.name().clone(),
        reason: reason.to_owned(),
    }
}

/// As [`TensorColumn::type_of`], for a field that is stored as `storage`.
fn stored_type(
    field: &Field,
    storage: &DataType,
) -> Result<Option<(DType, usize)>, TensorColumnError> {
    let name = field.metadata().get(EXTENSION_TYPE_NAME_KEY);
    if name.is_none_or(|name| name != TENSOR && name != OTHER_TENSOR) {
        return Ok(None);
    }
    let refused = |reason| refusal(field, reason);
    let DataType::Struct(children) = storage else {
        return Err(refused("it is not a struct"));
    };
    let [data, shape] = &children[..] else {
        return Err(refused("it must have two fields"));
    };
    let (DataType::List(item), DataType::FixedSizeList(number, dimensions)) =
        (data.data_type(), shape.data_type())
    else {
        return Err(refused(
            "data must be a list, and shape a list of fixed size",
        ));
    };
    if *number.data_type() != DataType::Int32 {
        return Err(refused("the shape must be of int32"));
    }
    let dimensions = usize::try_from(*dimensions)
        .ok()
        .filter(|&count| count <= TensorLayout::MAX_DIMENSIONS);
    let dimensions = dimensions.ok_or_else(|| refused("it has too many dimensions"))?;
    let dtype =
        element_dtype(item).ok_or_else(|| refused("tensors cannot have elements of that type"))?;
    Ok(Some((dtype, dimensions)))
}

/// The layout of a tensor with these lengths, in the order of memory.
pub(super) fn layout(
    dtype: &DType,
    in_memory: &[usize],
    permutation: &[usize],
) -> Option<TensorLayout> {
    let packed = TensorLayout::contiguous(dtype.clone(), in_memory).ok()?;
    if permutation.is_empty() {
        return Some(packed);
    }
    let strides = packed.strides();
    let permuted = |numbers: &[usize]| -> Vec<usize> {
        permutation.iter().map(|&axis| numbers[axis]).collect()
    };
    TensorLayout::strided(dtype.clone(), &permuted(in_memory), &permuted(&strides)).ok()
}

/// Copies the elements if they are not aligned. Those of a payload are.
fn aligned(elements: Buffer, width: usize) -> Buffer {
    const MAX_ALIGNMENT: usize = 16;
    let alignment = (1 << width.trailing_zeros().min(4)).min(MAX_ALIGNMENT);
    if elements.as_ptr().align_offset(alignment) == 0 {
        return elements;
    }
    Buffer::from(elements.as_slice())
}

fn extension(name: &str, parameters: &str) -> Metadata {
    Metadata::new()
        .with(EXTENSION_TYPE_NAME_KEY, name)
        .with(EXTENSION_TYPE_METADATA_KEY, parameters)
}

/// For each axis in order, its position in memory; empty for C order. `None` if the parameters
/// break the specification.
fn permutation(parameters: &str, dimensions: usize) -> Option<Vec<usize>> {
    if parameters.is_empty() {
        return Some(Vec::new());
    }
    let parameters: Value = serde_json::from_str(parameters).ok()?;
    let Some(permutation) = parameters
        .as_object()?
        .get("permutation")
        .filter(|value| !value.is_null())
    else {
        return Some(Vec::new());
    };
    let axes = permutation
        .as_array()?
        .iter()
        .map(|axis| usize::try_from(axis.as_u64()?).ok());
    let axes = axes.collect::<Option<Vec<_>>>()?;
    let is_permutation =
        axes.len() == dimensions && (0..dimensions).all(|axis| axes.contains(&axis));
    is_permutation.then_some(axes)
}

fn element_field(dtype: &DType) -> Field {
    let item = |data_type| Field::new("item", data_type, true);
    if let Some(data_type) = arrow_type(dtype) {
        return item(data_type);
    }
    if *dtype == DType::Bool {
        return item(DataType::Int8).with_metadata(extension(BOOL8, ""));
    }
    let parameters = json!({ "type_name": dtype.numpy_name(), "vendor_name": "NumPy" });
    let width = i32::try_from(dtype.item_bytes()).unwrap_or(i32::MAX);
    item(DataType::FixedSizeBinary(width)).with_metadata(extension(OPAQUE, &parameters.to_string()))
}

fn element_dtype(field: &Field) -> Option<DType> {
    let data_type = field.data_type();
    match field
        .metadata()
        .get(EXTENSION_TYPE_NAME_KEY)
        .map(String::as_str)
    {
        Some(BOOL8) if *data_type == DataType::Int8 => return Some(DType::Bool),
        Some(OPAQUE) => {}
        _ => {
            return number_dtype(data_type)
                .or_else(|| time_name(data_type).map(|name| custom(&name, 8)));
        }
    }
    let DataType::FixedSizeBinary(width) = data_type else {
        return None;
    };
    let parameters = field.metadata().get(EXTENSION_TYPE_METADATA_KEY)?;
    let parameters: Value = serde_json::from_str(parameters).ok()?;
    let name = parameters
        .get("type_name")?
        .as_str()
        .filter(|name| name.len() <= DType::MAX_NAME_BYTES)?;
    let width = u32::try_from(*width).ok()?;
    let known = DType::from_numpy_name(name).filter(|dtype| dtype.item_bytes() == width as usize);
    Some(known.unwrap_or_else(|| custom(name, width)))
}

fn custom(name: &str, item_bytes: u32) -> DType {
    DType::Custom {
        name: name.into(),
        item_bytes,
    }
}

/// The type of the numbers of an Arrow array; `None` for other arrays.
pub fn number_dtype(data_type: &DataType) -> Option<DType> {
    TYPES
        .iter()
        .find(|(_, known)| known == data_type)
        .map(|(dtype, _)| dtype.clone())
}

/// Arrow's type with the same bytes; `None` if there is none.
fn arrow_type(dtype: &DType) -> Option<DataType> {
    if let DType::Custom { name, .. } = dtype {
        return TIMES
            .iter()
            .find(|data_type| time_name(data_type).is_some_and(|known| known == **name))
            .cloned();
    }
    TYPES
        .iter()
        .find(|(known, _)| known == dtype)
        .map(|(_, data_type)| data_type.clone())
}

static TYPES: [(DType, DataType); 11] = [
    (DType::I8, DataType::Int8),
    (DType::I16, DataType::Int16),
    (DType::I32, DataType::Int32),
    (DType::I64, DataType::Int64),
    (DType::U8, DataType::UInt8),
    (DType::U16, DataType::UInt16),
    (DType::U32, DataType::UInt32),
    (DType::U64, DataType::UInt64),
    (DType::F16, DataType::Float16),
    (DType::F32, DataType::Float32),
    (DType::F64, DataType::Float64),
];

const TIMES: [DataType; 8] = {
    use TimeUnit::{Microsecond, Millisecond, Nanosecond, Second};
    [
        DataType::Timestamp(Second, None),
        DataType::Timestamp(Millisecond, None),
        DataType::Timestamp(Microsecond, None),
        DataType::Timestamp(Nanosecond, None),
        DataType::Duration(Second),
        DataType::Duration(Millisecond),
        DataType::Duration(Microsecond),
        DataType::Duration(Nanosecond),
    ]
};

/// NumPy's name of a type in [`TIMES`].
fn time_name(data_type: &DataType) -> Option<String> {
    let (letter, unit) = match data_type {
        DataType::Timestamp(unit, None) => ('M', unit),
        DataType::Duration(unit) => ('m', unit),
        _ => return None,
    };
    let unit = match unit {
        TimeUnit::Second => "s",
        TimeUnit::Millisecond => "ms",
        TimeUnit::Microsecond => "us",
        TimeUnit::Nanosecond => "ns",
    };
    Some(format!("<{letter}8[{unit}]"))
}
