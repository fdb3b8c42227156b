//! Arrow arrays between the major version of dora's API and Nervure's. The buffers are shared: both
//! versions have the memory layout of the Arrow format, only the Rust types differ.
#![expect(
    unsafe_code,
    reason = "arrays are taken over without validating them again"
)]

use bytes::Bytes;

/// Arrow as Nervure has it.
mod nervure {
    pub use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
    pub use arrow_data::ArrayData;
    pub use arrow_schema::{ArrowError, DataType, ffi::FFI_ArrowSchema};
}

/// Arrow as dora's API has it.
mod dora {
    pub use arrow::array::ArrayData;
    pub use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer};
    pub use arrow::datatypes::DataType;
    pub use arrow::error::ArrowError;
    pub use arrow::ffi::FFI_ArrowSchema;
}

/// Returns the type of the same name, for types without parameters.
macro_rules! return_plain_type {
    ($data_type:expr, $($name:ident)*) => {
        match $data_type {
            $(from::DataType::$name => return Ok(to::DataType::$name),)*
            _ => {}
        }
    };
}

/// Defines the conversion of arrays from one version to the other.
macro_rules! conversion {
    ($(#[$doc:meta])* $name:ident, $from:ident, $to:ident) => {
        $(#[$doc])*
        pub mod $name {
            use super::{Bytes, $from as from, $to as to};

            /// Converts an array. Its buffers are kept alive by the result.
            ///
            /// # Errors
            /// If the type cannot be expressed in the other version.
            pub fn array(array: &from::ArrayData) -> Result<to::ArrayData, to::ArrowError> {
                with_type(array, data_type(array.data_type())?)
            }

            fn with_type(
                array: &from::ArrayData,
                data_type: to::DataType,
            ) -> Result<to::ArrayData, to::ArrowError> {
                let children = array.child_data().iter().map(self::array);
                let builder = to::ArrayData::builder(data_type)
                    .len(array.len())
                    .offset(array.offset())
                    .nulls(array.nulls().map(nulls))
                    .buffers(array.buffers().iter().map(buffer).collect())
                    .child_data(children.collect::<Result<_, _>>()?);
                // SAFETY: an `ArrayData` of the one version is valid by the rules of the Arrow format,
                // which are the same for the other; type, length, offset, buffers and children are
                // taken over as they are.
                Ok(unsafe { builder.build_unchecked() })
            }

            fn nulls(nulls: &from::NullBuffer) -> to::NullBuffer {
                let bits = nulls.inner();
                let buffer = buffer(bits.inner());
                to::NullBuffer::new(to::BooleanBuffer::new(buffer, bits.offset(), bits.len()))
            }

            fn buffer(buffer: &from::Buffer) -> to::Buffer {
                struct Shared(from::Buffer);

                impl AsRef<[u8]> for Shared {
                    fn as_ref(&self) -> &[u8] {
                        self.0.as_slice()
                    }
                }

                if buffer.is_empty() {
                    return to::Buffer::from_vec(Vec::<u64>::new());
                }
                to::Buffer::from(Bytes::from_owner(Shared(buffer.clone())))
            }

            fn data_type(data_type: &from::DataType) -> Result<to::DataType, to::ArrowError> {
                return_plain_type!(data_type,
                    Null Boolean Int8 Int16 Int32 Int64 UInt8 UInt16 UInt32 UInt64 Float16 Float32
                    Float64 Utf8 LargeUtf8 Utf8View Binary LargeBinary BinaryView Date32 Date64);
                let mut schema = from::FFI_ArrowSchema::try_from(data_type)
                    .map_err(|error| to::ArrowError::CDataInterface(error.to_string()))?;
                // SAFETY: both types are the `ArrowSchema` of the C data interface, whose layout does
                // not depend on the version. `from_raw` takes the content, and leaves a released one.
                let schema = unsafe {
                    to::FFI_ArrowSchema::from_raw((&raw mut schema).cast::<to::FFI_ArrowSchema>())
                };
                to::DataType::try_from(&schema)
            }
        }
    };
}

conversion!(
    /// From dora's version to Nervure's.
    to_nervure, dora, nervure
);
conversion!(
    /// From Nervure's version to dora's.
    to_dora, nervure, dora
);

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        Array, ArrayRef, BooleanArray, DictionaryArray, FixedSizeListArray, Int32Array, ListArray,
        NullArray, StringArray, StringViewArray, StructArray, TimestampMillisecondArray,
        UInt8Array, make_array,
    };
    use arrow::datatypes::{DataType, Field, Int8Type, Int32Type, UInt8Type};

    use super::{to_dora, to_nervure};

    fn returned(array: &dyn Array) -> ArrayRef {
        let nervure = to_nervure::array(&array.to_data()).unwrap();
        nervure.validate_full().unwrap();
        let dora = to_dora::array(&nervure).unwrap();
        dora.validate_full().unwrap();
        make_array(dora)
    }

    #[test]
    fn arrays_survive_the_way_there_and_back() {
        let floats = [Some([Some(1), None]), None].map(|row| row.map(|row| row.to_vec()));
        let arrays: Vec<ArrayRef> = vec![
            Arc::new(NullArray::new(3)),
            Arc::new(BooleanArray::from(vec![Some(true), None, Some(false)])),
            Arc::new(Int32Array::from(vec![Some(1), None, Some(3)])),
            Arc::new(Int32Array::from(Vec::<i32>::new())),
            Arc::new(StringArray::from(vec![Some("a"), None, Some("longer")])),
            Arc::new(StringViewArray::from(vec!["a", "longer than twelve bytes"])),
            Arc::new(TimestampMillisecondArray::from(vec![1, 2]).with_timezone("UTC")),
            Arc::new(
                ["x", "y", "x"]
                    .into_iter()
                    .collect::<DictionaryArray<Int8Type>>(),
            ),
            Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(floats)),
            Arc::new(FixedSizeListArray::from_iter_primitive::<UInt8Type, _, _>(
                vec![Some(vec![Some(1), Some(2)]), None],
                2,
            )),
            Arc::new(StructArray::from(vec![(
                Arc::new(Field::new("a", DataType::Int32, false)),
                Arc::new(Int32Array::from(vec![1, 2])) as ArrayRef,
            )])),
        ];
        for array in arrays {
            assert_eq!(&returned(&array), &array, "{}", array.data_type());
            let slice = array.slice(1.min(array.len()), array.len().saturating_sub(1));
            assert_eq!(
                &returned(&slice),
                &slice,
                "a slice of {}",
                array.data_type()
            );
        }
    }

    #[test]
    fn buffers_are_shared() {
        let array = UInt8Array::from(vec![7; 1000]);
        let nervure = to_nervure::array(&array.to_data()).unwrap();
        assert_eq!(
            nervure.buffers()[0].as_ptr(),
            array.values().inner().as_ptr()
        );
        drop(array);
        assert_eq!(nervure.buffers()[0].as_slice(), [7; 1000]);
    }

    #[test]
    fn metadata_of_fields_is_kept() {
        let extension = ("ARROW:extension:name".to_owned(), "image".to_owned());
        let field = Field::new("item", DataType::UInt8, true).with_metadata([extension].into());
        let array = ListArray::new_null(Arc::new(field), 2);
        assert_eq!(returned(&array).data_type(), array.data_type());
    }
}
