//! Why a value cannot be viewed.

use crate::array::ArrayError;
use crate::dtype::DType;

/// Why a value cannot be viewed as was asked.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// Another kind of value.
    #[error("expected {expected}, the sample is {found}")]
    Kind {
        /// What was asked for.
        expected: &'static str,
        /// What the sample is.
        found: &'static str,
    },
    /// The payload is too short for its layout.
    #[error("the head describes {described} bytes of payload, there are {found}")]
    PayloadBytes {
        /// Bytes that the head describes.
        described: usize,
        /// Bytes that there are.
        found: usize,
    },
    /// Another type of elements.
    #[error("expected elements of type {expected}, the tensor has {found}")]
    ElementType {
        /// What was asked for.
        expected: DType,
        /// What the tensor has.
        found: DType,
    },
    /// A tensor that is not a plain slice.
    #[error(
        "the tensor of shape {shape:?} has strides {strides:?} (bytes) and is no slice in C order"
    )]
    Strides {
        /// Its shape.
        shape: Vec<usize>,
        /// Its strides, in bytes.
        strides: Vec<usize>,
    },
    /// The payload does not lie as the type needs.
    #[error("the payload is not aligned for elements of type {dtype}")]
    Alignment {
        /// Type of the elements.
        dtype: DType,
    },
    /// A text that is not UTF-8.
    #[error("the text is not UTF-8")]
    Utf8(#[from] std::string::FromUtf8Error),
    /// An Arrow array whose schema has not arrived.
    #[error("the schema of the array is not known")]
    SchemaMissing,
    /// An Arrow array that is not valid.
    #[error("the array cannot be read")]
    Array(#[from] ArrayError),
}
