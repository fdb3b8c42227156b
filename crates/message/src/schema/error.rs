//! Why a schema cannot be sent, and the limits of schemas.

use arrow_schema::DataType;

pub(super) const MAX_BYTES: usize = 1 << 20;
pub(super) const MAX_DEPTH: usize = 32;
pub(super) const MAX_FIELDS: usize = 16 << 10;

/// Why a schema cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// A type breaks a rule of Arrow's specification.
    #[error("field {field:?}: {data_type} is not a type of Arrow: {reason}")]
    Type {
        /// Name of the field.
        field: String,
        /// Type of the field.
        data_type: DataType,
        /// The rule that is broken.
        reason: &'static str,
    },
    /// Types are nested too deeply.
    #[error("the schema nests {} types or more", MAX_DEPTH)]
    Depth,
    /// The schema has too many fields.
    #[error("the schema has more than {} fields", MAX_FIELDS)]
    Fields,
    /// The encoded schema is too large.
    #[error("the schema takes {found} bytes, the limit is {}", MAX_BYTES)]
    Bytes {
        /// Length of the encoded schema, in bytes.
        found: usize,
    },
}
