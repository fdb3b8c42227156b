//! From Arrow's C data interface to an array, in place.
//!
//! The crate `arrow-array` can do this too, but would add half a minute to the build, reads offsets at
//! addresses that need not be aligned, and checks nothing. Here lengths, numbers of buffers and children,
//! offsets, keys, type ids and text are checked; the sizes of buffers, which the interface does not
//! have, cannot be.
#![expect(unsafe_code, reason = "the interface passes pointers")]

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
///
/// # Errors
/// If lengths, the number of buffers or children, or values that lengths and positions depend on are
/// not valid.
pub unsafe fn import_array(
    array: FFI_ArrowArray,
    data_type: &DataType,
) -> Result<ArrayData, ArrowError> {
    let owner = Arc::new(array);
    // SAFETY: guaranteed by the caller.
    unsafe { Importer { owner: &owner }.array(&owner, data_type) }
}

/// Limit on length and offset. Below it no size in bits overflows.
const MAX_LENGTH: usize = isize::MAX as usize / 8;
/// Limit on the data buffers of an array of views; they are numbered by `i32`.
const MAX_VIEW_BUFFERS: usize = i32::MAX as usize / 8;

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
        // Buffers also hold the elements before the offset. A negative number in C is above the limit here.
        let length = array
            .len()
            .checked_add(array.offset())
            .filter(|length| {
                [*length, array.len(), array.offset()]
                    .iter()
                    .all(|n| *n <= MAX_LENGTH)
            })
            .ok_or_else(|| invalid(data_type, "length or offset"))?;
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
                BufferSpec::FixedWidth { byte_width, .. } => elements(data_type, length)
                    .checked_mul(*byte_width)
                    .ok_or_else(|| invalid(data_type, "length"))?,
                BufferSpec::BitMap => length.div_ceil(8),
                BufferSpec::VariableWidth => last_offset(offsets.as_ref(), data_type),
                BufferSpec::AlwaysNull => 0,
            };
            // SAFETY: the size is as Arrow's specification requires for the type and length.
            let buffer = unsafe { self.buffer(array, next, bytes, data_type)? }.unwrap_or_default();
            next += 1;
            offsets.get_or_insert_with(|| buffer.clone());
            data = data.add_buffer(buffer);
        }
        if layout.variadic {
            let buffers = array.num_buffers().checked_sub(next + 1);
            let count = buffers.filter(|count| *count <= MAX_VIEW_BUFFERS);
            let count = count.ok_or_else(|| invalid(data_type, "number of buffers"))?;
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
        let children = children(data_type);
        if !children.is_empty() && children.len() != array.num_children() {
            return Err(invalid(data_type, "number of children"));
        }
        for (index, child) in children.into_iter().enumerate() {
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
        if isize::try_from(bytes).is_err() {
            return Err(invalid(data_type, "size of a buffer"));
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

#[cfg(test)]
mod tests {
    use std::ffi::c_void;
    use std::ptr;

    use super::*;

    /// As C lays it out: the fields of `FFI_ArrowArray` are private.
    #[repr(C)]
    struct Raw {
        length: i64,
        null_count: i64,
        offset: i64,
        n_buffers: i64,
        n_children: i64,
        buffers: *const *const c_void,
        children: *const c_void,
        dictionary: *const c_void,
        release: Option<unsafe extern "C" fn(*mut Raw)>,
        private_data: *mut c_void,
    }

    unsafe extern "C" fn release(raw: *mut Raw) {
        // SAFETY: the interface passes the array that has this function.
        unsafe { (*raw).release = None }
    }

    fn imported(
        data_type: &DataType,
        length: i64,
        offset: i64,
        buffers: &[*const c_void],
    ) -> Result<ArrayData, String> {
        let raw = Raw {
            length,
            null_count: -1,
            offset,
            n_buffers: buffers.len() as i64,
            n_children: 0,
            buffers: buffers.as_ptr(),
            children: ptr::null(),
            dictionary: ptr::null(),
            release: Some(release),
            private_data: ptr::null_mut(),
        };
        // SAFETY: `Raw` has the layout of the interface, and the buffers are as long as `length` requires.
        let array = unsafe { std::mem::transmute::<Raw, FFI_ArrowArray>(raw) };
        // SAFETY: as above; lengths that no buffer has are refused before one is read.
        unsafe { import_array(array, data_type) }.map_err(|error| error.to_string())
    }

    fn at(bytes: &[u8]) -> *const c_void {
        bytes.as_ptr().cast()
    }

    #[test]
    fn offsets_at_any_address_are_read() {
        let mut memory = [0_u8; 17];
        // At an odd address, for any address of the array.
        let start = 1 + memory.as_ptr().addr() % 2;
        for (place, offset) in [0_i32, 2, 3].iter().enumerate() {
            memory[start + place * 4..][..4].copy_from_slice(&offset.to_le_bytes());
        }
        let buffers = [ptr::null(), at(&memory[start..]), at(b"abc")];
        let texts = imported(&DataType::Utf8, 2, 0, &buffers).unwrap();
        assert_eq!((texts.len(), texts.buffers()[1].len()), (2, 3));
        texts.validate_full().unwrap();
    }

    #[test]
    fn lengths_that_nothing_has_are_refused() {
        let buffers = [ptr::null(), at(&[0; 8])];
        for (length, offset) in [
            (-1, 0),
            (0, -1),
            (i64::MAX, 0),
            (i64::MAX, i64::MAX),
            (1, i64::MAX),
        ] {
            let error = imported(&DataType::Int64, length, offset, &buffers).unwrap_err();
            assert!(error.contains("length or offset"), "{error}");
        }
        let half = (MAX_LENGTH / 2) as i64;
        let error = imported(&DataType::Decimal256(3, 0), half, 0, &buffers).unwrap_err();
        assert!(
            error.contains("length") || error.contains("size"),
            "{error}"
        );
    }

    #[test]
    fn missing_buffers_and_children_are_refused() {
        let error = imported(&DataType::Int64, 1, 0, &[ptr::null()]).unwrap_err();
        assert!(error.contains("number of buffers"), "{error}");
        let error = imported(&DataType::Int64, 1, 0, &[ptr::null(), ptr::null()]).unwrap_err();
        assert!(!error.is_empty());
        let item = arrow_schema::Field::new("item", DataType::Int8, true);
        let list = DataType::List(Arc::new(item));
        let error = imported(&list, 0, 0, &[ptr::null(), at(&[0; 4])]).unwrap_err();
        assert!(error.contains("number of children"), "{error}");
    }

    #[test]
    fn offsets_that_lead_outside_are_refused() {
        for offsets in [[0, -1], [3, 0], [-2, 2]] {
            let offsets: Vec<u8> = offsets
                .iter()
                .flat_map(|offset: &i32| offset.to_le_bytes())
                .collect();
            let buffers = [ptr::null(), at(&offsets), at(b"abc")];
            assert!(
                imported(&DataType::Utf8, 1, 0, &buffers).is_err(),
                "{offsets:?}"
            );
        }
    }
}
