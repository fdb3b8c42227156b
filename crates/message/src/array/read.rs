//! Reads a valid array from an untrusted payload.

use std::hint::black_box;

use arrow_buffer::Buffer;
use arrow_data::{ArrayData, BufferSpec};
use arrow_schema::{ArrowError, DataType, UnionMode};

use super::{ArrayLayout, BITS, Places, length_fits};
use crate::schema::Schema;
use crate::wire::{DecodeError, Reader};

/// Why a payload is not an array of its schema.
#[derive(Debug, thiserror::Error)]
pub enum ArrayError {
    /// The head is damaged.
    #[error("the head does not describe an array of the type {data_type}")]
    Head {
        /// The type of the schema.
        data_type: DataType,
        /// The defect of the head.
        source: DecodeError,
    },
    /// The head describes more or fewer bytes than the payload has.
    #[error("the head describes {described} bytes of payload, there are {found}")]
    PayloadBytes {
        /// Length that the head describes.
        described: usize,
        /// Length of the payload.
        found: usize,
    },
    /// An array is longer than any payload of this size can hold.
    #[error("an array of length {length} does not fit a payload of {payload_bytes} bytes")]
    Length {
        /// Length according to the head.
        length: usize,
        /// Length of the payload.
        payload_bytes: usize,
    },
    /// The array breaks a rule of Arrow.
    #[error("the payload is not a valid array")]
    Invalid(#[from] ArrowError),
}

/// Reads an array from its payload, which the array keeps alive.
/// [`payload_buffer`](crate::payload_buffer) makes a buffer of any owner of bytes.
///
/// # Errors
/// If head, schema and payload do not match, or the values break a rule of Arrow.
pub fn read(
    layout: &ArrayLayout,
    schema: &Schema,
    payload: &Buffer,
) -> Result<ArrayData, ArrayError> {
    let data_type = schema.data_type();
    let head = |source| ArrayError::Head {
        data_type: data_type.clone(),
        source,
    };
    let mut walk = Walk {
        numbers: Reader::new(&layout.numbers),
        payload,
        places: Places::default(),
    };
    let array = walk
        .array(data_type, layout.length)
        .map_err(|error| match error {
            WalkError::Head(source) => head(source),
            WalkError::Array(error) => error,
        })?;
    walk.numbers.finish("numbers of the array").map_err(head)?;
    match walk.places.end {
        described if described == payload.len() => Ok(array),
        described => Err(ArrayError::PayloadBytes {
            described,
            found: payload.len(),
        }),
    }
}

enum WalkError {
    Head(DecodeError),
    Array(ArrayError),
}

impl From<DecodeError> for WalkError {
    fn from(error: DecodeError) -> Self {
        Self::Head(error)
    }
}

impl From<ArrowError> for WalkError {
    fn from(error: ArrowError) -> Self {
        Self::Array(error.into())
    }
}

struct Walk<'a> {
    numbers: Reader<'a>,
    payload: &'a Buffer,
    places: Places,
}

impl Walk<'_> {
    /// Children are built, and thereby validated, before their parent.
    fn array(&mut self, data_type: &DataType, length: usize) -> Result<ArrayData, WalkError> {
        if !length_fits(length, self.payload.len()) {
            return Err(WalkError::Array(ArrayError::Length {
                length,
                payload_bytes: self.payload.len(),
            }));
        }
        let layout = arrow_data::layout(data_type);
        let mut array = ArrayData::builder(data_type.clone()).len(length);
        if layout.can_contain_null_mask && self.number("mark of nulls")? != 0 {
            array = array.null_bit_buffer(Some(self.private(length.div_ceil(BITS), 1, 1)?));
        }
        array = match data_type {
            DataType::Boolean => array.add_buffer(self.private(length.div_ceil(BITS), 1, 1)?),
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => {
                array = array.add_buffers(self.words(data_type, length.saturating_add(1))?);
                let bytes = self.number("bytes of text or binary")?;
                array.add_buffer(self.characters(data_type, bytes)?)
            }
            DataType::Utf8View | DataType::BinaryView => {
                array = array.add_buffers(self.words(data_type, length)?);
                let count = self.numbers.count("data buffers of views", usize::MAX)?;
                let sizes = (0..count).map(|_| self.number("bytes of a data buffer"));
                for bytes in sizes.collect::<Result<Vec<_>, _>>()? {
                    array = array.add_buffer(self.characters(data_type, bytes)?);
                }
                array
            }
            DataType::List(item) | DataType::LargeList(item) | DataType::Map(item, _) => {
                array = array.add_buffers(self.words(data_type, length.saturating_add(1))?);
                let items = self.number("items of lists")?;
                array.add_child_data(self.array(item.data_type(), items)?)
            }
            DataType::ListView(item) | DataType::LargeListView(item) => {
                array = array.add_buffers(self.words(data_type, length)?);
                let items = self.number("items of lists")?;
                array.add_child_data(self.array(item.data_type(), items)?)
            }
            DataType::FixedSizeList(item, size) => {
                let items = length.saturating_mul(size.unsigned_abs() as usize);
                array.add_child_data(self.array(item.data_type(), items)?)
            }
            DataType::Struct(fields) => {
                for field in fields {
                    array = array.add_child_data(self.array(field.data_type(), length)?);
                }
                array
            }
            DataType::Union(fields, mode) => {
                array = array.add_buffers(self.words(data_type, length)?);
                for (_, field) in fields.iter() {
                    let child = match mode {
                        UnionMode::Sparse => length,
                        UnionMode::Dense => self.number("length of a child of a dense union")?,
                    };
                    array = array.add_child_data(self.array(field.data_type(), child)?);
                }
                array
            }
            DataType::Dictionary(_, values) => {
                array = array.add_buffers(self.words(data_type, length)?);
                let count = self.number("values of the dictionary")?;
                array.add_child_data(self.array(values, count)?)
            }
            DataType::RunEndEncoded(run_ends, values) => {
                let runs = self.number("runs")?;
                let ends = ArrayData::builder(run_ends.data_type().clone()).len(runs);
                let ends = ends
                    .add_buffers(self.words(run_ends.data_type(), runs)?)
                    .build()?;
                array
                    .add_child_data(ends)
                    .add_child_data(self.array(values.data_type(), runs)?)
            }
            _ => {
                for (width, alignment) in fixed_widths(data_type) {
                    array = array.add_buffer(self.shared(length, width, alignment)?);
                }
                array
            }
        };
        Ok(array.build()?)
    }

    fn number(&mut self, what: &'static str) -> Result<usize, WalkError> {
        Ok(self.numbers.size(what)?)
    }

    /// The buffers of offsets, sizes, views, keys or type ids, with `count` elements each.
    fn words(&mut self, data_type: &DataType, count: usize) -> Result<Vec<Buffer>, WalkError> {
        fixed_widths(data_type)
            .map(|(width, alignment)| self.private(count, width, alignment))
            .collect()
    }

    /// The values of text or binary.
    fn characters(&mut self, data_type: &DataType, bytes: usize) -> Result<Buffer, WalkError> {
        match data_type {
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => self.private(bytes, 1, 1),
            _ => self.shared(bytes, 1, 1),
        }
    }

    /// The next buffer, in place.
    fn shared(
        &mut self,
        count: usize,
        width: usize,
        alignment: usize,
    ) -> Result<Buffer, WalkError> {
        let described = count.saturating_mul(width);
        let place = self.places.next(described, alignment);
        let place = place.filter(|place| place.end <= self.payload.len() || place.is_empty());
        let place = place.ok_or(WalkError::Array(ArrayError::PayloadBytes {
            described: self.places.end.max(described),
            found: self.payload.len(),
        }))?;
        if place.is_empty() {
            return Ok(Buffer::from(&[]));
        }
        let buffer = self.payload.slice_with_length(place.start, place.len());
        if buffer.as_ptr().align_offset(alignment) != 0 {
            return Ok(Buffer::from(buffer.as_slice()));
        }
        Ok(buffer)
    }

    /// The next buffer, copied to memory that no peer can write, so that validated bytes stay
    /// valid.
    fn private(
        &mut self,
        count: usize,
        width: usize,
        alignment: usize,
    ) -> Result<Buffer, WalkError> {
        let shared = self.shared(count, width, alignment)?;
        // Keeps the compiler from reading the source again in place of the copy.
        Ok(black_box(Buffer::from(shared.as_slice())))
    }
}

/// Size and alignment of an element, for each fixed-width buffer of a type.
fn fixed_widths(data_type: &DataType) -> impl Iterator<Item = (usize, usize)> + use<> {
    arrow_data::layout(data_type)
        .buffers
        .into_iter()
        .filter_map(|spec| match spec {
            BufferSpec::FixedWidth {
                byte_width,
                alignment,
            } => Some((byte_width, alignment)),
            _ => None,
        })
}
