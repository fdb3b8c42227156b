use crate::array::MAX_WEIGHTLESS_LENGTH;
use crate::schema::SchemaError;

/// Why columns cannot become a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Their type exceeds the limits of schemas.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// The size overflows.
    #[error("the value does not fit in memory")]
    TooLarge,
    /// A length exceeds the limit that receivers enforce.
    #[error("{length} elements without data are more than the limit, {MAX_WEIGHTLESS_LENGTH}")]
    Length {
        /// Length of the array.
        length: usize,
    },
}
