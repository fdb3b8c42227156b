//! Writes the used part of an array, or of a slice of one, to a payload.

use std::ops::Range;

use arrow_buffer::BooleanBuffer;
use arrow_data::{ArrayData, BufferSpec, DataTypeLayout};
use arrow_schema::{DataType, UnionMode};
use smallvec::SmallVec;

use super::piece::{Piece, VIEW_BYTES, long_view, view, word};
use super::{ArrayLayout, BITS, Places, length_fits};
use crate::schema::Schema;
use crate::wire::{Head, put_number};

/// An array to be sent, with its schema.
#[derive(Debug)]
pub struct ArraySample<'a> {
    schema: &'a Schema,
    plan: Plan<'a>,
}

impl<'a> ArraySample<'a> {
    /// Plans how the array is sent.
    ///
    /// # Errors
    /// If the array does not have the schema's type, or breaks a rule of Arrow.
    pub fn new(array: &'a ArrayData, schema: &'a Schema) -> Result<Self, PlanError> {
        if array.data_type() != schema.data_type() {
            return Err(PlanError::Type {
                expected: schema.data_type().clone(),
                found: array.data_type().clone(),
            });
        }
        Ok(Self {
            schema,
            plan: Plan::new(array)?,
        })
    }

    /// The schema that the receiver needs.
    pub fn schema(&self) -> &'a Schema {
        self.schema
    }

    /// The plan by which the array is written.
    pub fn plan(&self) -> &Plan<'a> {
        &self.plan
    }
}

/// A plan to write an array to a payload: bytes, positions, and changes.
#[derive(Debug)]
pub struct Plan<'a> {
    layout: ArrayLayout,
    pieces: SmallVec<[(Range<usize>, Piece<'a>); 4]>,
    payload_bytes: usize,
}

/// Why an array cannot be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// The array does not have the announced type.
    #[error("expected an array of type {expected}, got {found}")]
    Type {
        /// Type of the schema.
        expected: DataType,
        /// Type of the array.
        found: DataType,
    },
    /// The array was built without validation, and is not valid.
    #[error("the array is not valid: {what} of {data_type}")]
    Invalid {
        /// The part of the array that is too short or out of bounds.
        what: &'static str,
        /// Type of that part.
        data_type: DataType,
    },
    /// The size overflows.
    #[error("the array does not fit in memory")]
    TooLarge,
    /// The length exceeds the limit that receivers enforce.
    #[error(
        "an array of {length} elements without data is longer than the limit, {}",
        super::MAX_WEIGHTLESS_LENGTH
    )]
    Length {
        /// Length of the array.
        length: usize,
    },
}

impl<'a> Plan<'a> {
    /// Walks the array without copying it. Checks only what determines positions: the receiver
    /// validates the rest.
    ///
    /// # Errors
    /// If the array breaks a rule of Arrow, as arrays from other languages may.
    pub fn new(array: &'a ArrayData) -> Result<Self, PlanError> {
        let layout = ArrayLayout {
            length: array.len(),
            numbers: Head::new(),
        };
        let plan = Self {
            layout,
            pieces: SmallVec::new(),
            payload_bytes: 0,
        };
        let mut walk = Walk {
            plan,
            places: Places::default(),
            longest: 0,
        };
        walk.array(array, 0, array.len())?;
        let Walk {
            mut plan,
            places,
            longest,
        } = walk;
        if !length_fits(longest, places.end) {
            return Err(PlanError::Length { length: longest });
        }
        plan.payload_bytes = places.end;
        Ok(plan)
    }

    /// The description for the head.
    pub fn layout(&self) -> &ArrayLayout {
        &self.layout
    }

    /// Length of the payload, in bytes.
    pub fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }

    /// Writes the whole payload. Gaps become zero, so that no earlier content of the memory is
    /// sent.
    ///
    /// # Panics
    /// If the length of `payload` is not [`Self::payload_bytes`].
    pub fn write(&self, payload: &mut [u8]) {
        assert_eq!(
            payload.len(),
            self.payload_bytes,
            "the payload has the planned size"
        );
        let mut end = 0;
        for (place, piece) in &self.pieces {
            payload[end..place.start].fill(0);
            piece.write(&mut payload[place.clone()]);
            end = place.end;
        }
    }
}

struct Walk<'a> {
    plan: Plan<'a>,
    places: Places,
    longest: usize,
}

impl<'a> Walk<'a> {
    /// Plans `length` elements from `start` on. Mirrors the walk in `read.rs`, so that the two can
    /// be compared side by side.
    fn array(
        &mut self,
        array: &'a ArrayData,
        start: usize,
        length: usize,
    ) -> Result<(), PlanError> {
        let data_type = array.data_type();
        let invalid = |what| PlanError::Invalid {
            what,
            data_type: data_type.clone(),
        };
        if start
            .checked_add(length)
            .is_none_or(|end| end > array.len())
        {
            return Err(invalid("length"));
        }
        let first = start
            .checked_add(array.offset())
            .filter(|first| first.checked_add(length).is_some());
        let first = first.ok_or_else(|| invalid("offset"))?;
        self.longest = self.longest.max(length);
        let layout = arrow_data::layout(data_type);
        let mut valid = None;
        if layout.can_contain_null_mask {
            valid = validity(array, start, length).map_err(invalid)?;
            self.number(valid.is_some().into());
            if let Some(bits) = &valid {
                self.place(length.div_ceil(BITS), 1, Piece::Bits(bits.clone()))?;
            }
        }
        let part = Part {
            array,
            layout: &layout,
            first,
            length,
        };
        match data_type {
            DataType::Boolean => {
                let buffer = array
                    .buffers()
                    .first()
                    .filter(|buffer| buffer.len() >= (first + length).div_ceil(BITS));
                let bits = BooleanBuffer::new(
                    buffer.ok_or_else(|| invalid("values"))?.clone(),
                    first,
                    length,
                );
                self.place(length.div_ceil(BITS), 1, Piece::Bits(bits))?;
            }
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Binary | DataType::LargeBinary => {
                let used = self.offsets(&part)?;
                let values = array.buffers().get(1).and_then(|values| values.get(used));
                let values = values.ok_or_else(|| invalid("values"))?;
                self.number(values.len());
                self.place(values.len(), 1, Piece::Bytes(values))?;
            }
            DataType::Utf8View | DataType::BinaryView => self.views(&part, valid)?,
            DataType::List(_) | DataType::LargeList(_) | DataType::Map(..) => {
                let used = self.offsets(&part)?;
                self.number(used.len());
                self.array(part.child(0)?, used.start, used.len())?;
            }
            DataType::ListView(_) | DataType::LargeListView(_) => self.list_views(&part)?,
            DataType::FixedSizeList(_, size) => {
                let size = size.unsigned_abs() as usize;
                let items = |count: usize| count.checked_mul(size).ok_or_else(|| invalid("length"));
                self.array(part.child(0)?, items(first)?, items(length)?)?;
            }
            DataType::Struct(fields) => {
                for index in 0..fields.len() {
                    self.array(part.child(index)?, first, length)?;
                }
            }
            DataType::Union(fields, UnionMode::Sparse) => {
                self.values(&part, 0)?;
                for index in 0..fields.len() {
                    self.array(part.child(index)?, first, length)?;
                }
            }
            DataType::Union(_, UnionMode::Dense) => self.dense_union(&part)?,
            DataType::Dictionary(..) => {
                self.values(&part, 0)?;
                let values = part.child(0)?;
                self.number(values.len());
                self.array(values, 0, values.len())?;
            }
            DataType::RunEndEncoded(..) => self.runs(&part)?,
            _ => {
                for index in 0..layout.buffers.len() {
                    self.values(&part, index)?;
                }
            }
        }
        Ok(())
    }

    /// Plans offsets of text, binary and lists. Returns the range of values that they use.
    fn offsets(&mut self, part: &Part<'a, '_>) -> Result<Range<usize>, PlanError> {
        const ZERO: &[u8] = &[0; 8];
        let invalid = |what| part.invalid(what);
        let width = part.width(0)?;
        let (offsets, used) = if part.length == 0 {
            (&ZERO[..width], 0..0)
        } else {
            let offsets = part.buffer(0, part.length + 1)?;
            let bound = |index| {
                usize::try_from(word(offsets, width, index)).map_err(|_| invalid("offsets"))
            };
            (offsets, bound(0)?..bound(part.length)?)
        };
        if used.start > used.end {
            return Err(invalid("offsets"));
        }
        let piece = match used.start {
            0 => Piece::Bytes(offsets),
            base => Piece::Offsets {
                offsets,
                width,
                base: base as i64,
            },
        };
        self.place(offsets.len(), width, piece)?;
        Ok(used)
    }

    fn list_views(&mut self, part: &Part<'a, '_>) -> Result<(), PlanError> {
        let width = part.width(0)?;
        let (offsets, sizes) = (part.buffer(0, part.length)?, part.buffer(1, part.length)?);
        let mut used = Window::default();
        for index in 0..part.length {
            let included = used.include(word(offsets, width, index), word(sizes, width, index));
            included.ok_or_else(|| part.invalid("offsets"))?;
        }
        let used = used.range();
        let piece = Piece::ViewOffsets {
            offsets,
            sizes,
            width,
            base: used.start as i64,
        };
        self.place(offsets.len(), width, piece)?;
        self.values(part, 1)?;
        self.number(used.len());
        self.array(part.child(0)?, used.start, used.len())
    }

    fn dense_union(&mut self, part: &Part<'a, '_>) -> Result<(), PlanError> {
        let invalid = |what| part.invalid(what);
        let DataType::Union(fields, _) = part.array.data_type() else {
            return Err(invalid("type"));
        };
        let (type_ids, offsets) = (part.buffer(0, part.length)?, part.buffer(1, part.length)?);
        let mut used = [Window::default(); 128];
        for (index, &type_id) in type_ids.iter().enumerate() {
            let used = used
                .get_mut(usize::from(type_id))
                .ok_or_else(|| invalid("type ids"))?;
            used.include(word(offsets, 4, index), 1)
                .ok_or_else(|| invalid("offsets"))?;
        }
        self.values(part, 0)?;
        let bases = used.iter().map(|used| used.range().start).collect();
        self.place(
            offsets.len(),
            4,
            Piece::UnionOffsets {
                type_ids,
                offsets,
                bases,
            },
        )?;
        for (index, (type_id, _)) in fields.iter().enumerate() {
            let used = used[usize::from(type_id.unsigned_abs())].range();
            self.number(used.len());
            self.array(part.child(index)?, used.start, used.len())?;
        }
        Ok(())
    }

    fn views(
        &mut self,
        part: &Part<'a, '_>,
        valid: Option<BooleanBuffer>,
    ) -> Result<(), PlanError> {
        let invalid = |what| part.invalid(what);
        let views = part.buffer(0, part.length)?;
        let data = &part.array.buffers()[1..];
        let mut used = vec![Window::default(); data.len()];
        for index in
            (0..part.length).filter(|&index| valid.as_ref().is_none_or(|valid| valid.value(index)))
        {
            if let Some(long) = long_view(view(views, index)) {
                let used = used
                    .get_mut(long.buffer_index as usize)
                    .ok_or_else(|| invalid("views"))?;
                used.include(long.offset.into(), long.length.into())
                    .ok_or_else(|| invalid("views"))?;
            }
        }
        let bases = used.iter().map(|used| used.range().start).collect();
        self.place(
            views.len(),
            VIEW_BYTES,
            Piece::Views {
                views,
                valid,
                bases,
            },
        )?;
        self.number(data.len());
        for used in &used {
            self.number(used.range().len());
        }
        for (data, used) in data.iter().zip(used) {
            let bytes = data.get(used.range()).ok_or_else(|| invalid("views"))?;
            self.place(bytes.len(), 1, Piece::Bytes(bytes))?;
        }
        Ok(())
    }

    fn runs(&mut self, part: &Part<'a, '_>) -> Result<(), PlanError> {
        let (run_ends, values) = (part.child(0)?, part.child(1)?);
        let layout = arrow_data::layout(run_ends.data_type());
        let ends = Part {
            array: run_ends,
            layout: &layout,
            first: run_ends.offset(),
            length: run_ends.len(),
        };
        let width = ends.width(0)?;
        let all = ends.buffer(0, ends.length)?;
        let (start, end) = (part.first as i64, (part.first + part.length) as i64);
        let runs_before =
            |element| partition_point(run_ends.len(), |run| word(all, width, run) <= element);
        let used = match part.length {
            0 => 0..0,
            _ => runs_before(start)..runs_before(end - 1).saturating_add(1),
        };
        let ends = all
            .get(used.start * width..used.end * width)
            .ok_or_else(|| part.invalid("run ends"))?;
        self.number(used.len());
        let piece = Piece::RunEnds {
            ends,
            width,
            start,
            length: part.length as i64,
        };
        self.place(ends.len(), width, piece)?;
        self.array(values, used.start, used.len())
    }

    fn number(&mut self, number: usize) {
        put_number(&mut self.plan.layout.numbers, number as u64);
    }

    /// Plans a buffer with one value per element, unchanged.
    fn values(&mut self, part: &Part<'a, '_>, index: usize) -> Result<(), PlanError> {
        let bytes = part.buffer(index, part.length)?;
        self.place(bytes.len(), part.spec(index)?.1, Piece::Bytes(bytes))
    }

    fn place(&mut self, bytes: usize, alignment: usize, piece: Piece<'a>) -> Result<(), PlanError> {
        let place = self
            .places
            .next(bytes, alignment)
            .ok_or(PlanError::TooLarge)?;
        if bytes > 0 {
            self.plan.pieces.push((place, piece));
        }
        Ok(())
    }
}

/// Elements of an array, counted from the start of its buffers.
struct Part<'a, 'l> {
    array: &'a ArrayData,
    layout: &'l DataTypeLayout,
    first: usize,
    length: usize,
}

impl<'a> Part<'a, '_> {
    fn invalid(&self, what: &'static str) -> PlanError {
        PlanError::Invalid {
            what,
            data_type: self.array.data_type().clone(),
        }
    }

    fn child(&self, index: usize) -> Result<&'a ArrayData, PlanError> {
        self.array
            .child_data()
            .get(index)
            .ok_or_else(|| self.invalid("children"))
    }

    /// Size of an element of the buffer.
    fn width(&self, index: usize) -> Result<usize, PlanError> {
        Ok(self.spec(index)?.0)
    }

    /// Size and alignment of an element of the buffer.
    fn spec(&self, index: usize) -> Result<(usize, usize), PlanError> {
        match self.layout.buffers.get(index) {
            Some(BufferSpec::FixedWidth {
                byte_width,
                alignment,
            }) => Ok((*byte_width, *alignment)),
            _ => Err(self.invalid("buffers")),
        }
    }

    /// `count` elements of the buffer, from the first of the part on.
    fn buffer(&self, index: usize, count: usize) -> Result<&'a [u8], PlanError> {
        let width = self.width(index)?;
        let start = self.first.checked_mul(width);
        let bytes = start
            .zip(count.checked_mul(width))
            .and_then(|(start, bytes)| {
                let buffer = self.array.buffers().get(index)?;
                buffer.get(start..start.checked_add(bytes)?)
            });
        bytes.ok_or_else(|| self.invalid("buffers"))
    }
}

/// The range of a child or buffer that is in use.
#[derive(Clone, Copy, Default)]
struct Window {
    used: Option<(usize, usize)>,
}

impl Window {
    /// Returns `None` if no valid array has these numbers.
    fn include(&mut self, offset: i64, size: i64) -> Option<()> {
        let (offset, size) = (usize::try_from(offset).ok()?, usize::try_from(size).ok()?);
        if size > 0 {
            let end = offset.checked_add(size)?;
            let (first, last) = self.used.unwrap_or((offset, end));
            self.used = Some((first.min(offset), last.max(end)));
        }
        Some(())
    }

    fn range(&self) -> Range<usize> {
        let (start, end) = self.used.unwrap_or_default();
        start..end
    }
}

/// Validity of the elements; `None` if none of them is null.
fn validity(
    array: &ArrayData,
    start: usize,
    length: usize,
) -> Result<Option<BooleanBuffer>, &'static str> {
    let Some(nulls) = array.nulls().filter(|nulls| nulls.null_count() > 0) else {
        return Ok(None);
    };
    if nulls.len() != array.len() {
        return Err("validity");
    }
    let bits = nulls.inner().slice(start, length);
    Ok((length == array.len() || bits.count_set_bits() < length).then_some(bits))
}

/// The first of `count` indices for which `is_before` is false.
fn partition_point(count: usize, is_before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low.midpoint(high);
        if is_before(middle) {
            low = middle + 1
        } else {
            high = middle
        }
    }
    low
}
