//! Records read in place, without an allocation for fields of fixed size.
//!
//! # Trust in the sender
//! None. The positions of all buffers follow from the head and lie within the payload. An offset in the payload
//! is copied to private memory, and compared with the length of its buffer, each time it is used.

use std::hint::black_box;
use std::ops::Range;

use half::{bf16, f16};

use super::columns::{ColumnKind, RecordColumns, Storage};
use super::tensors;
use crate::array::{ArrayLayout, BITS, Places, length_fits};
use crate::dtype::DType;
use crate::layout::Scalar;
use crate::tensor::TensorLayout;
use crate::wire::{DecodeError, Reader};

/// The positions of the columns of a record in its payload. It can be used again for other records.
#[derive(Debug, Default)]
pub struct RecordPlaces {
    columns: Vec<Place>,
    payload_bytes: usize,
}

#[derive(Debug)]
struct Place {
    /// Number of values.
    length: usize,
    /// The validity bitmap; `None` without one.
    validity: Option<Range<usize>>,
    /// Bits, numbers or offsets.
    values: Range<usize>,
    /// The bytes of texts.
    bytes: Range<usize>,
}

/// A record in a payload.
#[derive(Clone, Copy, Debug)]
pub struct RecordView<'a> {
    columns: &'a RecordColumns,
    places: &'a [Place],
    payload: &'a [u8],
}

/// A value of a record.
#[derive(Clone, Debug)]
pub enum RecordValue<'a> {
    /// No value.
    Null,
    /// A number or truth value.
    Scalar(Scalar),
    /// A text. It is UTF-8 unless the sender is hostile.
    Text(&'a [u8]),
    /// Bytes.
    Bytes(&'a [u8]),
    /// A list of values of a column.
    List(Items),
    /// Fields of the same row.
    Record,
    /// A tensor.
    Tensor(TensorLayout, &'a [u8]),
    /// A value of another type of Arrow.
    Other,
}

/// The items of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Items {
    /// The column of the items.
    pub column: usize,
    /// Their rows.
    pub rows: Range<usize>,
}

/// Why a record cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordViewError {
    /// The head is damaged.
    #[error(transparent)]
    Head(#[from] DecodeError),
    /// The head describes other columns than the payload holds.
    #[error("the record's head does not fit its payload of {payload_bytes} bytes")]
    Payload {
        /// Length of the payload.
        payload_bytes: usize,
    },
    /// An offset in the payload is wrong.
    #[error("the record is damaged: an offset of `{column}` lies outside of its buffer")]
    Offset {
        /// Name of the column.
        column: String,
    },
    /// A tensor's shape does not fit its elements.
    #[error("the record is damaged: the shape of the tensor `{column}` does not fit its elements")]
    Shape {
        /// Name of the column.
        column: String,
    },
}

impl RecordPlaces {
    /// Finds the columns of a record in its payload.
    ///
    /// # Errors
    /// If head, columns and payload do not match.
    pub fn find(
        &mut self,
        columns: &RecordColumns,
        layout: &ArrayLayout,
        payload_bytes: usize,
    ) -> Result<(), RecordViewError> {
        self.columns.clear();
        self.payload_bytes = payload_bytes;
        let mut walk = Walk {
            columns,
            numbers: Reader::new(&layout.numbers),
            buffers: Places::default(),
            payload_bytes,
            places: &mut self.columns,
        };
        walk.column(layout.length)?;
        if walk.buffers.end() != payload_bytes {
            return Err(walk.misfit());
        }
        Ok(walk.numbers.finish("numbers of the record")?)
    }
}

impl<'a> RecordView<'a> {
    /// A record whose columns were found in its payload.
    ///
    /// # Panics
    /// If the places were found for other columns or another payload.
    pub fn new(columns: &'a RecordColumns, places: &'a RecordPlaces, payload: &'a [u8]) -> Self {
        assert!(
            places.payload_bytes == payload.len() && places.columns.len() == columns.columns.len(),
            "the places are those of the payload"
        );
        Self {
            columns,
            places: &places.columns,
            payload,
        }
    }

    /// The columns of the schema.
    pub fn columns(&self) -> &'a RecordColumns {
        self.columns
    }

    /// All rows of the outermost column; `None` if it is one record.
    pub fn list(&self) -> Option<Items> {
        let rows = 0..self.places[0].length;
        (self.columns.is_list || rows.len() != 1).then_some(Items { column: 0, rows })
    }

    /// Number of values of a column.
    pub fn length(&self, column: usize) -> usize {
        self.places[column].length
    }

    /// Number of values, items and bytes of texts in all columns: a record without overlapping lists has
    /// no more.
    pub fn weight(&self) -> usize {
        let weight = |place: &Place| place.length + place.bytes.len();
        self.places.iter().map(weight).sum()
    }

    /// Whether a column has no value in a row.
    ///
    /// # Panics
    /// If there is no such column or row.
    pub fn is_null(&self, column: usize, row: usize) -> bool {
        let place = &self.places[column];
        assert!(row < place.length, "the row exists");
        match &place.validity {
            Some(validity) => !self.bit(validity, row),
            None => self.columns.columns[column].kind == ColumnKind::Null,
        }
    }

    /// The number or truth value of a column in a row; `None` for a null, or another value.
    ///
    /// # Panics
    /// If there is no such column or row.
    pub fn scalar(&self, column: usize, row: usize) -> Option<Scalar> {
        if self.is_null(column, row) {
            return None;
        }
        let values = &self.places[column].values;
        match &self.columns.columns[column].kind {
            ColumnKind::Bool => Some(Scalar::Bool(self.bit(values, row))),
            ColumnKind::Number(dtype) => number(dtype, &self.payload[values.clone()], row),
            _ => None,
        }
    }

    /// The value of a column in a row.
    ///
    /// # Errors
    /// If the payload is damaged there.
    ///
    /// # Panics
    /// If there is no such column or row.
    pub fn value(&self, column: usize, row: usize) -> Result<RecordValue<'a>, RecordViewError> {
        if self.is_null(column, row) {
            return Ok(RecordValue::Null);
        }
        Ok(match &self.columns.columns[column].kind {
            ColumnKind::Null => RecordValue::Null,
            ColumnKind::Bool | ColumnKind::Number(_) => {
                let scalar = self.scalar(column, row);
                RecordValue::Scalar(scalar.expect("Arrow has its numbers"))
            }
            ColumnKind::Text => RecordValue::Text(self.variable(column, row)?),
            ColumnKind::Bytes => RecordValue::Bytes(self.variable(column, row)?),
            ColumnKind::List => RecordValue::List(Items {
                column: column + 1,
                rows: self.items(column, row)?,
            }),
            ColumnKind::Record => RecordValue::Record,
            ColumnKind::Tensor {
                dtype, permutation, ..
            } => {
                let (layout, bytes) = self.tensor(column, row, dtype, permutation)?;
                RecordValue::Tensor(layout, bytes)
            }
            ColumnKind::Other(_) => RecordValue::Other,
        })
    }

    /// The numbers of a list without nulls, in place; `None` for other lists.
    pub fn numbers(&self, items: &Items) -> Option<(&'a DType, &'a [u8])> {
        let place = &self.places[items.column];
        match &self.columns.columns[items.column].kind {
            ColumnKind::Number(dtype) if place.validity.is_none() => {
                let width = dtype.item_bytes();
                let rows = items.rows.start * width..items.rows.end * width;
                Some((dtype, &self.payload[place.values.clone()][rows]))
            }
            _ => None,
        }
    }

    fn bit(&self, bits: &Range<usize>, row: usize) -> bool {
        self.payload[bits.clone()][row / BITS] >> (row % BITS) & 1 == 1
    }

    fn items(&self, column: usize, row: usize) -> Result<Range<usize>, RecordViewError> {
        match self.columns.columns[column].storage {
            Storage::FixedList { each } => Ok(row * each..(row + 1) * each),
            Storage::List { offset_bytes } => {
                let limit = self.places[column + 1].length;
                self.range(column, row, offset_bytes, limit)
            }
            _ => unreachable!("a list has the storage of one"),
        }
    }

    fn variable(&self, column: usize, row: usize) -> Result<&'a [u8], RecordViewError> {
        let Storage::Variable { offset_bytes } = self.columns.columns[column].storage else {
            unreachable!("a text has the storage of one")
        };
        let bytes = &self.payload[self.places[column].bytes.clone()];
        Ok(&bytes[self.range(column, row, offset_bytes, bytes.len())?])
    }

    /// The range between the offsets of a row, if it is within the limit.
    fn range(
        &self,
        column: usize,
        row: usize,
        offset_bytes: usize,
        limit: usize,
    ) -> Result<Range<usize>, RecordViewError> {
        let offsets = &self.payload[self.places[column].values.clone()];
        let offset = |index| match offset_bytes {
            4 => i32::from_le_bytes(word(offsets, index)).into(),
            _ => i64::from_le_bytes(word(offsets, index)),
        };
        let (start, end) = (offset(row), offset(row + 1));
        match (usize::try_from(start), usize::try_from(end)) {
            (Ok(start), Ok(end)) if start <= end && end <= limit => Ok(start..end),
            _ => Err(RecordViewError::Offset {
                column: self.columns.columns[column].name.to_string(),
            }),
        }
    }

    /// A tensor is a record of a list, the elements, and a list of fixed size, the shape.
    fn tensor(
        &self,
        column: usize,
        row: usize,
        dtype: &DType,
        permutation: &[usize],
    ) -> Result<(TensorLayout, &'a [u8]), RecordViewError> {
        let (data, elements) = (column + 1, column + 2);
        let (shape, lengths) = (column + 3, column + 4);
        let found = self.items(data, row)?;
        let damaged = || RecordViewError::Shape {
            column: self.columns.columns[column].name.to_string(),
        };
        let in_memory = self.items(shape, row)?;
        let lengths = &self.payload[self.places[lengths].values.clone()];
        let lengths = in_memory.map(|at| {
            let length = i32::from_le_bytes(word(lengths, at));
            usize::try_from(length).ok()
        });
        let lengths: crate::tensor::Dimensions =
            lengths.collect::<Option<_>>().ok_or_else(damaged)?;
        let layout = tensors::layout(dtype, &lengths, permutation)
            .filter(|layout| layout.len() == found.len())
            .ok_or_else(damaged)?;
        let elements = &self.payload[self.places[elements].values.clone()];
        let start = found.start * dtype.item_bytes();
        let elements = elements.get(start..start + layout.payload_bytes());
        let elements = elements.ok_or_else(damaged)?;
        Ok((layout, elements))
    }
}

/// The number at an index of numbers without gaps; `None` for elements that are no numbers.
///
/// # Panics
/// If there are fewer numbers.
pub fn number(dtype: &DType, numbers: &[u8], index: usize) -> Option<Scalar> {
    macro_rules! integer {
        ($number:ty) => {
            Scalar::Integer(<$number>::from_le_bytes(word(numbers, index)).into())
        };
    }
    Some(match dtype {
        DType::F64 => Scalar::Float(f64::from_le_bytes(word(numbers, index))),
        DType::F32 => Scalar::Float(f32::from_le_bytes(word(numbers, index)).into()),
        DType::F16 => Scalar::Float(f16::from_le_bytes(word(numbers, index)).into()),
        DType::Bf16 => Scalar::Float(bf16::from_le_bytes(word(numbers, index)).into()),
        DType::Bool => Scalar::Bool(word(numbers, index) != [0]),
        DType::I64 => integer!(i64),
        DType::I32 => integer!(i32),
        DType::I16 => integer!(i16),
        DType::I8 => integer!(i8),
        DType::U8 => integer!(u8),
        DType::U16 => integer!(u16),
        DType::U32 => integer!(u32),
        DType::U64 => {
            let number = u64::from_le_bytes(word(numbers, index));
            i64::try_from(number).map_or(Scalar::Unsigned(number), Scalar::Integer)
        }
        DType::C64 | DType::C128 | DType::Custom { .. } => return None,
    })
}

/// Copies the bytes at an index to private memory.
fn word<const N: usize>(words: &[u8], index: usize) -> [u8; N] {
    let mut word = [0; N];
    word.copy_from_slice(&words[index * N..][..N]);
    black_box(word)
}

/// Walks columns in the order of [`crate::array::read`].
struct Walk<'w> {
    columns: &'w RecordColumns,
    numbers: Reader<'w>,
    buffers: Places,
    payload_bytes: usize,
    places: &'w mut Vec<Place>,
}

impl Walk<'_> {
    /// Places the next column and its descendants.
    fn column(&mut self, length: usize) -> Result<(), RecordViewError> {
        if !length_fits(length, self.payload_bytes) {
            return Err(self.misfit());
        }
        let index = self.places.len();
        let storage = self.columns.columns[index].storage;
        let mut place = Place {
            length,
            validity: None,
            values: 0..0,
            bytes: 0..0,
        };
        if !matches!(storage, Storage::Nothing) && self.number("mark of nulls")? != 0 {
            place.validity = Some(self.buffer(length.div_ceil(BITS), 1)?);
        }
        if let Some((bytes, alignment)) = storage.first_buffer(length) {
            place.values = self.buffer(bytes, alignment)?;
        }
        if let Storage::Variable { .. } = storage {
            let bytes = self.number("bytes of text or binary")?;
            place.bytes = self.buffer(bytes, 1)?;
        }
        self.places.push(place);
        let items = match storage {
            Storage::List { .. } => self.number("items of lists")?,
            Storage::FixedList { each } => length.saturating_mul(each),
            _ => length,
        };
        while self.places.len() < self.columns.columns[index].end {
            self.column(items)?;
        }
        Ok(())
    }

    fn number(&mut self, what: &'static str) -> Result<usize, RecordViewError> {
        Ok(self.numbers.size(what)?)
    }

    fn buffer(&mut self, bytes: usize, alignment: usize) -> Result<Range<usize>, RecordViewError> {
        match self.buffers.next(bytes, alignment) {
            // The position of an empty buffer may be anywhere, even beyond the end.
            Some(place) if place.is_empty() => Ok(0..0),
            Some(place) if place.end <= self.payload_bytes => Ok(place),
            _ => Err(self.misfit()),
        }
    }

    fn misfit(&self) -> RecordViewError {
        RecordViewError::Payload {
            payload_bytes: self.payload_bytes,
        }
    }
}
