//! Arrow schemas: their encoding and ids.
//!
//! The encoding is Nervure's own. Arrow's IPC encoding would bring flatbuffers, `arrow-ipc`,
//! `arrow-array` and `arrow-select` into every node, although all it does is a walk over
//! [`DataType`]. Names, nullability, the order of dictionaries and all metadata are kept.

mod encoding;
mod error;

use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef};
use twox_hash::XxHash3_64;

use crate::wire::DecodeError;

pub use error::SchemaError;

/// Metadata key in the schema of an array that was made of a Python object. The value is `list` or
/// `dict`.
pub const PYTHON_KIND: &str = "nervure.python";

/// The Arrow schema of an output. It is announced once, and the header of each sample refers to it
/// by [`id`](Self::id).
///
/// ```
/// use arrow_schema::{DataType, Field};
/// use nervure_message::Schema;
///
/// let schema = Schema::array(Field::new("range", DataType::Float32, false))?;
/// assert_eq!(Schema::decode(schema.bytes())?, schema);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Schema {
    root: FieldRef,
    is_record_batch: bool,
    bytes: Arc<[u8]>,
    id: u64,
}

impl Schema {
    /// Limit on an encoded schema, in bytes.
    pub const MAX_BYTES: usize = error::MAX_BYTES;
    /// Limit on the nesting of types.
    pub const MAX_DEPTH: usize = error::MAX_DEPTH;
    /// Limit on the number of fields, at all levels together.
    pub const MAX_FIELDS: usize = error::MAX_FIELDS;

    /// The schema of arrays of the field's type.
    ///
    /// # Errors
    /// If a type breaks a rule of Arrow, or the schema exceeds its limits.
    pub fn array(field: impl Into<FieldRef>) -> Result<Self, SchemaError> {
        Self::encode(field.into(), false)
    }

    /// The schema of arrays of a type, with nullable elements.
    ///
    /// # Errors
    /// If the type breaks a rule of Arrow, or the schema exceeds its limits.
    pub fn of_type(data_type: DataType) -> Result<Self, SchemaError> {
        Self::array(Field::new("", data_type, true))
    }

    /// The last schema if it is of that type, and otherwise a new one, which becomes the last.
    ///
    /// # Errors
    /// As [`Schema::of_type`]; then there is no last schema.
    pub fn last_or_of_type<'a>(
        last: &'a mut Option<Self>,
        data_type: &DataType,
    ) -> Result<&'a Self, SchemaError> {
        let schema = match last.take().filter(|last| last.data_type() == data_type) {
            Some(schema) => schema,
            None => Self::of_type(data_type.clone())?,
        };
        Ok(last.insert(schema))
    }

    /// The schema of record batches. They are sent as arrays of structs.
    ///
    /// # Errors
    /// If a type breaks a rule of Arrow, or the schema exceeds its limits.
    pub fn record_batch(schema: &arrow_schema::Schema) -> Result<Self, SchemaError> {
        let columns = DataType::Struct(schema.fields().clone());
        let root = Field::new("", columns, false).with_metadata(schema.metadata().clone());
        Self::encode(root.into(), true)
    }

    /// The field of the whole array.
    pub fn root(&self) -> &Field {
        &self.root
    }

    /// The type of the whole array.
    pub fn data_type(&self) -> &DataType {
        self.root.data_type()
    }

    /// Whether the array was a record batch and should be read as one.
    pub fn is_record_batch(&self) -> bool {
        self.is_record_batch
    }

    /// Arrow's own schema type: with the columns of a record batch, or with the array as its only
    /// column.
    pub fn to_arrow(&self) -> arrow_schema::Schema {
        match self.data_type() {
            DataType::Struct(fields) if self.is_record_batch => {
                arrow_schema::Schema::new_with_metadata(
                    fields.clone(),
                    self.root.metadata().clone(),
                )
            }
            _ => arrow_schema::Schema::new(vec![self.root.clone()]),
        }
    }

    /// Id of the schema: XXH3 (64 bits, seed 0) of [`Self::bytes`]. Never 0, which means no schema.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The encoded schema.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Decodes a schema from untrusted bytes.
    ///
    /// # Errors
    /// If the bytes are not a schema within its limits.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let (root, is_record_batch) = encoding::decode(bytes)?;
        Ok(Self::new(root.into(), is_record_batch, bytes))
    }

    fn encode(root: FieldRef, is_record_batch: bool) -> Result<Self, SchemaError> {
        let bytes = encoding::encode(&root, is_record_batch)?;
        Ok(Self::new(root, is_record_batch, &bytes))
    }

    fn new(root: FieldRef, is_record_batch: bool, bytes: &[u8]) -> Self {
        Self {
            root,
            is_record_batch,
            bytes: bytes.into(),
            id: XxHash3_64::oneshot(bytes).max(1),
        }
    }
}

impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for Schema {}

#[cfg(test)]
mod tests {
    use arrow_schema::{TimeUnit, UnionFields, UnionMode};

    use super::*;

    fn refused(data_type: DataType) -> String {
        let inside = Field::new_list_field(data_type, true);
        Schema::array(Field::new("outer", DataType::List(inside.into()), true))
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn a_record_batch_keeps_its_columns_and_metadata() {
        let columns = vec![
            Field::new("stamp", DataType::Int64, false),
            Field::new("label", DataType::Utf8, true),
        ];
        let metadata = arrow_schema::Metadata::new()
            .with("frame", "base_link")
            .with("unit", "m");
        let arrow = arrow_schema::Schema::new_with_metadata(columns, metadata);
        let schema = Schema::record_batch(&arrow).unwrap();
        let copy = Schema::decode(schema.bytes()).unwrap();
        assert!(copy.is_record_batch());
        assert_eq!(copy.to_arrow(), arrow);
    }

    #[test]
    fn an_array_becomes_the_only_column() {
        let ordered = DataType::Dictionary(DataType::Int8.into(), DataType::Utf8.into());
        let field = Field::new("label", ordered, true).with_dict_is_ordered(true);
        let copy = Schema::decode(Schema::array(field).unwrap().bytes()).unwrap();
        assert_eq!(copy.to_arrow().fields().len(), 1);
        assert_eq!(copy.root().dict_is_ordered(), Some(true));
    }

    #[test]
    fn the_id_is_the_same_in_every_build() {
        let schema = Schema::array(Field::new("range", DataType::Float32, false)).unwrap();
        assert_eq!(schema.bytes(), b"\x01\x00\x00\x05range\x0b");
        assert_eq!(schema.id(), 5_392_749_631_474_034_788);
        assert_ne!(
            Schema::array(Field::new("range", DataType::Float32, true))
                .unwrap()
                .id(),
            schema.id()
        );
    }

    #[test]
    fn invalid_types_are_refused_with_the_broken_rule() {
        let error = refused(DataType::Time32(TimeUnit::Nanosecond));
        assert_eq!(
            error,
            "field \"item\": Time32(ns) is not a type of Arrow: 32 bits count s or ms"
        );
        assert!(refused(DataType::FixedSizeBinary(-1)).contains("the size is negative"));
        assert!(refused(DataType::Decimal128(39, 0)).contains("precision"));
        assert!(refused(DataType::Decimal128(5, 6)).contains("precision"));
        assert!(
            refused(DataType::Dictionary(
                DataType::Utf8.into(),
                DataType::Utf8.into()
            ))
            .contains("integers")
        );
        let ends = Field::new("run_ends", DataType::Int32, true);
        let values = Field::new("values", DataType::Int32, true);
        assert!(
            refused(DataType::RunEndEncoded(ends.into(), values.clone().into()))
                .contains("never null")
        );
        assert!(refused(DataType::Map(values.into(), false)).contains("structs"));
    }

    #[test]
    fn both_sides_enforce_the_limits() {
        let nest =
            |depth| (1..depth).fold(DataType::Int8, |inner, _| DataType::new_list(inner, true));
        assert_eq!(
            Schema::of_type(nest(Schema::MAX_DEPTH + 1)),
            Err(SchemaError::Depth)
        );
        let deep = Schema::of_type(nest(Schema::MAX_DEPTH)).unwrap();
        assert_eq!(
            Schema::decode(deep.bytes()).unwrap().data_type(),
            deep.data_type()
        );
        let list = [0, 0, 70]; // Not nullable, no name, a list.
        let endless = [&[1, 0][..], &list.repeat(1000)].concat();
        assert!(
            Schema::decode(&endless)
                .unwrap_err()
                .to_string()
                .contains("nests 32 types")
        );

        let wide = |count: usize| {
            DataType::Struct(
                (0..count)
                    .map(|_| Field::new("", DataType::Int8, true))
                    .collect(),
            )
        };
        assert_eq!(
            Schema::of_type(wide(Schema::MAX_FIELDS)),
            Err(SchemaError::Fields)
        );
        let long = Field::new("n".repeat(Schema::MAX_BYTES), DataType::Int8, true);
        assert!(matches!(
            Schema::array(long),
            Err(SchemaError::Bytes { .. })
        ));
    }

    #[test]
    fn unions_keep_their_type_ids() {
        let fields = ["a", "b"].map(|name| Field::new(name, DataType::Int8, true));
        let fields = UnionFields::try_new([5, 127], fields).unwrap();
        let schema = Schema::of_type(DataType::Union(fields, UnionMode::Dense)).unwrap();
        assert_eq!(
            Schema::decode(schema.bytes()).unwrap().data_type(),
            schema.data_type()
        );
    }
}
