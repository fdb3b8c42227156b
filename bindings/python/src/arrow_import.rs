//! From Arrow's C data interface to an array, in place.
//!
//! The crate `arrow-array` can do this too, but would add half a minute to the build.

use arrow_buffer::Buffer;
use arrow_data::ffi::FFI_ArrowArray;
use arrow_data::{ArrayData, BufferSpec};
use arrow_schema::{ArrowError, DataType};
use std::ptr::NonNull;
use std::sync::Arc;

/// The array that `array` describes, on the same memory, which it keeps alive.
///
/// # Safety
/// `array` must conform to Arrow's specification for its type: the interface has no sizes of
/// buffers, they follow from lengths and offsets.
pub(crate) unsafe fn import_array(
    array: Arc<FFI_ArrowArray>,
    data_type: &DataType,
) -> Result<ArrayData, ArrowError> {
    let whole = array.clone();
    // SAFETY: guaranteed by the caller.
    unsafe { Importer { owner: &whole }.array(&array, data_type) }
}

struct Importer<'a> {
    owner: &'a Arc<FFI_ArrowArray>,
}

impl Importer<'_> {
    /// # Safety
    /// As [`import_array`].
    unsafe fn array(
        &self,
        array: &FFI_ArrowArray,
        data_type: &DataType,
    ) -> Result<ArrayData, ArrowError> {
        let layout = arrow_data::layout(data_type);
        // Buffers also hold the elements before the offset.
        let length = array
            .len()
            .checked_add(array.offset())
            .ok_or_else(|| invalid(data_type, "offset"))?;
        let mut data = ArrayData::builder(data_type.clone())
            .len(array.len())
            .offset(array.offset())
            .align_buffers(true);
        let mut next = 0;
        if layout.can_contain_null_mask {
            // SAFETY: a validity bitmap has one bit per element.
            let bits = unsafe { self.buffer(array, next, length.div_ceil(8), data_type)? };
            next += 1;
            data = data.null_bit_buffer(bits);
        }
        let mut offsets = None;
        for spec in &layout.buffers {
            let bytes = match spec {
                BufferSpec::FixedWidth { byte_width, .. } => {
                    elements(data_type, length) * byte_width
                }
                BufferSpec::BitMap => length.div_ceil(8),
                BufferSpec::VariableWidth => last_offset(offsets.as_ref(), data_type),
                BufferSpec::AlwaysNull => 0,
            };
            // SAFETY: the size is the one that Arrow's specification gives for the type and length.
            let buffer = unsafe { self.buffer(array, next, bytes, data_type)? }.unwrap_or_default();
            next += 1;
            offsets.get_or_insert_with(|| buffer.clone());
            data = data.add_buffer(buffer);
        }
        if layout.variadic {
            let buffers = array.num_buffers().checked_sub(next + 1);
            let count = buffers.ok_or_else(|| invalid(data_type, "number of buffers"))?;
            // SAFETY: the last buffer holds the sizes of the data buffers before it, 64 bits each.
            let sizes = unsafe { self.buffer(array, next + count, count * 8, data_type)? };
            for index in 0..count {
                let size = sizes
                    .as_ref()
                    .and_then(|sizes| sizes.get(index * 8..index * 8 + 8));
                let size = size.map_or(0, |size| {
                    i64::from_le_bytes(size.try_into().expect("cut to 8 bytes"))
                });
                let size = usize::try_from(size)
                    .map_err(|_| invalid(data_type, "size of a data buffer"))?;
                // SAFETY: the size comes from the buffer of sizes.
                let buffer = unsafe { self.buffer(array, next + index, size, data_type)? };
                data = data.add_buffer(buffer.unwrap_or_default());
            }
        }
        if let DataType::Dictionary(_, values) = data_type {
            let dictionary = array
                .dictionary()
                .ok_or_else(|| invalid(data_type, "dictionary"))?;
            // SAFETY: the dictionary is an array of the values' type.
            data = data.add_child_data(unsafe { self.array(dictionary, values)? });
        }
        for (index, child) in children(data_type).into_iter().enumerate() {
            if index >= array.num_children() {
                return Err(invalid(data_type, "number of children"));
            }
            // SAFETY: each child is an array of its field's type.
            data = data.add_child_data(unsafe { self.array(array.child(index), &child)? });
        }
        data.build()
    }

    /// A buffer in place; `None` if its pointer is null.
    ///
    /// # Safety
    /// The buffer must have at least `bytes` bytes, or be null.
    unsafe fn buffer(
        &self,
        array: &FFI_ArrowArray,
        index: usize,
        bytes: usize,
        data_type: &DataType,
    ) -> Result<Option<Buffer>, ArrowError> {
        if index >= array.num_buffers() {
            return Err(invalid(data_type, "number of buffers"));
        }
        let Some(start) = NonNull::new(array.buffer(index).cast_mut()) else {
            return Ok(None);
        };
        // SAFETY: the caller guarantees the bytes, which live as long as their owner.
        Ok(Some(unsafe {
            Buffer::from_custom_allocation(start, bytes, self.owner.clone())
        }))
    }
}

/// The number of elements of a fixed-width buffer. Offsets have one more than the array.
fn elements(data_type: &DataType, length: usize) -> usize {
    use DataType::{Binary, LargeBinary, LargeList, LargeUtf8, List, Map, Utf8};
    match data_type {
        Utf8 | LargeUtf8 | Binary | LargeBinary | List(_) | LargeList(_) | Map(..) => length + 1,
        _ => length,
    }
}

/// The number of bytes of text or binary values: their last offset.
fn last_offset(offsets: Option<&Buffer>, data_type: &DataType) -> usize {
    let Some(offsets) = offsets else { return 0 };
    let is_large = matches!(data_type, DataType::LargeUtf8 | DataType::LargeBinary);
    let last = if is_large {
        offsets.last_chunk().map(|last| i64::from_le_bytes(*last))
    } else {
        offsets
            .last_chunk()
            .map(|last| i64::from(i32::from_le_bytes(*last)))
    };
    last.and_then(|last| usize::try_from(last).ok())
        .unwrap_or(0)
}

fn children(data_type: &DataType) -> Vec<DataType> {
    use DataType::{
        FixedSizeList, LargeList, LargeListView, List, ListView, Map, RunEndEncoded, Struct, Union,
    };
    match data_type {
        List(item)
        | LargeList(item)
        | ListView(item)
        | LargeListView(item)
        | FixedSizeList(item, _)
        | Map(item, _) => {
            vec![item.data_type().clone()]
        }
        Struct(fields) => fields
            .iter()
            .map(|field| field.data_type().clone())
            .collect(),
        Union(fields, _) => fields
            .iter()
            .map(|(_, field)| field.data_type().clone())
            .collect(),
        RunEndEncoded(run_ends, values) => {
            vec![run_ends.data_type().clone(), values.data_type().clone()]
        }
        _ => Vec::new(),
    }
}

fn invalid(data_type: &DataType, what: &str) -> ArrowError {
    ArrowError::CDataInterface(format!(
        "the {what} of an array of type {data_type} is wrong"
    ))
}
