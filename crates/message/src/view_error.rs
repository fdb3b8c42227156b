//! Why a value cannot be viewed.

use crate::array::ArrayError;
use crate::dtype::DType;

/// Why a value cannot be viewed as requested.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// The sample is another kind of value.
    #[error("expected {expected}, the sample is {found}")]
    Kind {
        /// The requested kind.
        expected: &'static str,
        /// The kind of the sample.
        found: &'static str,
    },
    /// The payload is too short for its layout.
    #[error("the head describes {described} bytes of payload, there are {found}")]
    PayloadBytes {
        /// Length that the head describes.
        described: usize,
        /// Length of the payload.
        found: usize,
    },
    /// The tensor has another element type.
    #[error("expected elements of type {expected}, the tensor has {found}")]
    ElementType {
        /// The requested type.
        expected: DType,
        /// The type of the tensor's elements.
        found: DType,
    },
    /// The tensor is not in C order, so its elements are not a slice.
    #[error(
        "the tensor of shape {shape:?} has strides {strides:?} (bytes) and is not a slice in C order"
    )]
    Strides {
        /// Shape of the tensor.
        shape: Vec<usize>,
        /// Strides of the tensor, in bytes.
        strides: Vec<usize>,
    },
    /// The payload is not aligned for the type.
    #[error("the payload is not aligned for elements of type {dtype}")]
    Alignment {
        /// The requested type.
        dtype: DType,
    },
    /// The text is not UTF-8.
    #[error("the text is not UTF-8")]
    Utf8(#[from] std::string::FromUtf8Error),
    /// The sample is an Arrow array whose schema has not arrived yet.
    #[error("the schema of the array is not known")]
    SchemaMissing,
    /// The Arrow array is not valid.
    #[error("the array cannot be read")]
    Array(#[from] ArrayError),
}
