//! The columns of a record's schema, prepared for reading samples without an allocation.

use arrow_data::BufferSpec;
use arrow_schema::{DataType, Field};

use super::tensors::{self, TensorColumnError};
use crate::array::BITS;
use crate::dtype::DType;
use crate::schema::{PYTHON_KIND, Schema};

/// The columns of a schema, depth first.
#[derive(Debug)]
pub struct RecordColumns {
    pub(super) columns: Vec<RecordColumn>,
    pub(super) is_list: bool,
}

/// A column, and the storage of its values in a payload.
#[derive(Debug)]
pub struct RecordColumn {
    pub(super) name: Box<str>,
    pub(super) kind: ColumnKind,
    pub(super) storage: Storage,
    /// Index of the column after its last descendant.
    pub(super) end: usize,
}

/// The meaning of a column's values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ColumnKind {
    /// Only nulls.
    Null,
    /// Truth values.
    Bool,
    /// Numbers of this type.
    Number(DType),
    /// Texts.
    Text,
    /// Bytes.
    Bytes,
    /// Lists.
    List,
    /// Records.
    Record,
    /// Tensors of this element type.
    Tensor {
        /// Type of the elements.
        dtype: DType,
        /// Number of dimensions.
        dimensions: usize,
        /// For each axis in order, its position in memory; empty for C order.
        permutation: Box<[usize]>,
    },
    /// Values of another type of Arrow.
    Other(DataType),
}

/// The buffers and children of a column. Offsets have 4 or 8 bytes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Storage {
    /// Without buffers.
    Nothing,
    Bits,
    Words {
        bytes: usize,
        alignment: usize,
    },
    Variable {
        offset_bytes: usize,
    },
    List {
        offset_bytes: usize,
    },
    FixedList {
        each: usize,
    },
    Record,
}

/// Why records of a schema cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordColumnsError {
    /// A field has a type of Arrow that records of Nervure do not have.
    #[error("the field `{field}` has Arrow's type {data_type}, which records do not have")]
    Type {
        /// Name of the field.
        field: String,
        /// Its type.
        data_type: DataType,
    },
    /// A field has the extension type of tensors but is not valid.
    #[error(transparent)]
    Tensor(#[from] TensorColumnError),
}

impl RecordColumns {
    /// The columns of a schema.
    ///
    /// # Errors
    /// [`RecordColumnsError`].
    pub fn new(schema: &Schema) -> Result<Self, RecordColumnsError> {
        let root = schema.root();
        let mut columns = Vec::new();
        add(&mut columns, root)?;
        let kind = root.metadata().get(PYTHON_KIND);
        let is_record = columns[0].kind == ColumnKind::Record;
        Ok(Self {
            columns,
            is_list: !is_record || kind.is_some_and(|kind| kind == "list"),
        })
    }

    /// The column at an index; 0 is the whole record.
    pub fn column(&self, index: usize) -> &RecordColumn {
        &self.columns[index]
    }

    /// The indices of the fields of the records, or of the items of the lists, in a column.
    pub fn children(&self, index: usize) -> impl Iterator<Item = usize> + '_ {
        let end = self.columns[index].end;
        let next = move |at: &usize| Some(self.columns[*at].end).filter(|next| *next < end);
        let has_children = !matches!(self.columns[index].kind, ColumnKind::Tensor { .. });
        let first = Some(index + 1).filter(|first| has_children && *first < end);
        std::iter::successors(first, next)
    }

    /// The index of a field of the records in a column.
    pub fn field(&self, index: usize, name: &str) -> Option<usize> {
        self.children(index)
            .find(|child| &*self.columns[*child].name == name)
    }
}

impl RecordColumn {
    /// The name of the field.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The meaning of the values.
    pub fn kind(&self) -> &ColumnKind {
        &self.kind
    }
}

impl std::fmt::Display for ColumnKind {
    /// The values, in the words of users.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool => f.write_str("a truth value"),
            Self::Number(DType::F16 | DType::F32 | DType::F64) => {
                f.write_str("a floating-point number")
            }
            Self::Number(_) => f.write_str("an integer"),
            Self::Text => f.write_str("text"),
            Self::Bytes => f.write_str("bytes"),
            Self::List => f.write_str("a list"),
            Self::Record => f.write_str("a record"),
            Self::Tensor {
                dtype, dimensions, ..
            } => write!(f, "a tensor of {dtype} with {dimensions} dimensions"),
            Self::Other(data_type) => write!(f, "Arrow's type {data_type}"),
        }
    }
}

/// Adds a column and its descendants.
fn add(columns: &mut Vec<RecordColumn>, field: &Field) -> Result<(), RecordColumnsError> {
    let (kind, storage) = match field.data_type() {
        DataType::Null => (ColumnKind::Null, Storage::Nothing),
        DataType::Boolean => (ColumnKind::Bool, Storage::Bits),
        DataType::Utf8 => (ColumnKind::Text, Storage::Variable { offset_bytes: 4 }),
        DataType::LargeUtf8 => (ColumnKind::Text, Storage::Variable { offset_bytes: 8 }),
        DataType::Binary => (ColumnKind::Bytes, Storage::Variable { offset_bytes: 4 }),
        DataType::LargeBinary => (ColumnKind::Bytes, Storage::Variable { offset_bytes: 8 }),
        DataType::List(_) => (ColumnKind::List, Storage::List { offset_bytes: 4 }),
        DataType::LargeList(_) => (ColumnKind::List, Storage::List { offset_bytes: 8 }),
        DataType::FixedSizeList(_, each) => {
            let each = each.unsigned_abs() as usize;
            (ColumnKind::List, Storage::FixedList { each })
        }
        DataType::Struct(_) => (ColumnKind::Record, Storage::Record),
        other => (plain_kind(other), words(field)?),
    };
    let kind = match tensors::stored_order(field)? {
        None => kind,
        Some((dtype, dimensions, permutation)) => ColumnKind::Tensor {
            dtype,
            dimensions,
            permutation: permutation.into(),
        },
    };
    let index = columns.len();
    columns.push(RecordColumn {
        name: field.name().as_str().into(),
        kind,
        storage,
        end: 0,
    });
    match field.data_type() {
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            add(columns, item)?;
        }
        DataType::Struct(fields) => {
            for field in fields {
                add(columns, field)?;
            }
        }
        _ => {}
    }
    columns[index].end = columns.len();
    Ok(())
}

fn plain_kind(data_type: &DataType) -> ColumnKind {
    let dtype = match data_type {
        DataType::Timestamp(..) | DataType::Duration(_) => Some(DType::I64),
        other => tensors::number_dtype(other),
    };
    dtype.map_or_else(|| ColumnKind::Other(data_type.clone()), ColumnKind::Number)
}

/// The storage of values of one size.
fn words(field: &Field) -> Result<Storage, RecordColumnsError> {
    let data_type = field.data_type();
    let is_indirect = matches!(
        data_type,
        DataType::Dictionary(..) | DataType::RunEndEncoded(..) | DataType::Union(..)
    );
    match arrow_data::layout(data_type).buffers.as_slice() {
        [
            BufferSpec::FixedWidth {
                byte_width,
                alignment,
            },
        ] if !is_indirect && !data_type.is_nested() => Ok(Storage::Words {
            bytes: *byte_width,
            alignment: *alignment,
        }),
        _ => Err(RecordColumnsError::Type {
            field: field.name().clone(),
            data_type: data_type.clone(),
        }),
    }
}

impl Storage {
    /// The size of the first buffer of a column of `length` values, and its alignment; `None` without
    /// buffers.
    pub(super) fn first_buffer(self, length: usize) -> Option<(usize, usize)> {
        let offsets = |bytes: usize| (length.saturating_add(1).saturating_mul(bytes), bytes);
        match self {
            Self::Nothing | Self::FixedList { .. } | Self::Record => None,
            Self::Bits => Some((length.div_ceil(BITS), 1)),
            Self::Words { bytes, alignment } => Some((length.saturating_mul(bytes), alignment)),
            Self::Variable { offset_bytes } | Self::List { offset_bytes } => {
                Some(offsets(offset_bytes))
            }
        }
    }
}
