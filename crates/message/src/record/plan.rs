//! Plans how columns are written to a payload.

use std::ops::Range;

use arrow_buffer::BooleanBuffer;
use arrow_schema::{DataType, Field, Fields};

use super::column::{Column, Tensors, Values, Variable};
use super::error::RecordError;
use super::planner::ArrayPlanner;
use super::tensors;
use crate::array::{ArrayLayout, BITS};
use crate::encode::Encode;
use crate::layout::Layout;
use crate::schema::{PYTHON_KIND, Schema};
use crate::tensor::Tensor;

/// The elements of a tensor to be sent, anywhere in memory.
pub trait Elements {
    /// Writes the elements without gaps. `axes` gives the order of the axes, slowest first. `out`
    /// has the size of the elements.
    fn write_elements(&self, axes: &[usize], out: &mut [u8]);
}

impl<E: Elements + ?Sized> Elements for &E {
    fn write_elements(&self, axes: &[usize], out: &mut [u8]) {
        (**self).write_elements(axes, out);
    }
}

impl Elements for Tensor<'_> {
    fn write_elements(&self, axes: &[usize], out: &mut [u8]) {
        let layout = self.layout();
        let (strides, width) = (layout.strides(), layout.dtype().item_bytes());
        let is_packed = layout.payload_bytes() == out.len();
        if is_packed && axes == &layout.axes_in_memory()[..] {
            return out.copy_from_slice(self.bytes());
        }
        if out.is_empty() {
            return;
        }
        let mut index = vec![0; axes.len()];
        for out in out.chunks_exact_mut(width) {
            let start: usize = axes
                .iter()
                .zip(&index)
                .map(|(&axis, &at)| at * strides[axis])
                .sum();
            out.copy_from_slice(&self.bytes()[start..start + width]);
            for (place, &axis) in axes.iter().enumerate().rev() {
                index[place] += 1;
                if index[place] < layout.shape()[axis] {
                    break;
                }
                index[place] = 0;
            }
        }
    }
}

/// Fields, lists and tensors that are ready to be sent.
#[derive(Debug)]
pub struct Record<T> {
    schema: Schema,
    layout: ArrayLayout,
    pieces: Vec<(Range<usize>, Piece<T>)>,
    payload_bytes: usize,
}

/// The content of one buffer.
#[derive(Debug)]
enum Piece<T> {
    Bits(BooleanBuffer),
    I32(Vec<i32>),
    I64(Vec<i64>),
    U64(Vec<u64>),
    F64(Vec<f64>),
    Bytes(Vec<u8>),
    Tensors {
        axes: Box<[usize]>,
        tensors: Vec<(T, usize)>,
    },
}

impl<T> Record<T> {
    /// A record of the values of a column. As `list` it has all values, as `dict` the only one;
    /// receivers see the kind under [`PYTHON_KIND`].
    ///
    /// # Errors
    /// If the types exceed the limits of schemas, or a size overflows.
    pub fn new(column: Column<T>, kind: &str) -> Result<Self, RecordError> {
        let length = column.length;
        let mut planner = Planner {
            plan: ArrayPlanner::default(),
            pieces: Vec::new(),
        };
        let field = planner.column("", column)?;
        let Planner { plan, pieces } = planner;
        let (layout, payload_bytes) = plan.finish(length)?;
        let metadata = field.metadata().clone().with(PYTHON_KIND, kind);
        let schema = Schema::array(field.with_metadata(metadata))?;
        Ok(Self {
            schema,
            layout,
            pieces,
            payload_bytes,
        })
    }
}

impl<T> Record<T> {
    /// The layout of the payload.
    pub(super) fn layout(&self) -> Layout {
        Layout::Array(self.layout.clone())
    }

    /// Length of the payload, in bytes.
    pub(super) fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }

    pub(super) fn schema(&self) -> &Schema {
        &self.schema
    }

    /// Writes the whole payload except for the tensors. Passes the memory order and position of
    /// each tensor to `tensor`. Gaps become zero, so that no earlier content of the memory is sent.
    pub(super) fn write_parts<'p>(
        &'p self,
        payload: &'p mut [u8],
        mut tensor: impl FnMut(&'p T, &'p [usize], &'p mut [u8]),
    ) {
        assert_eq!(
            payload.len(),
            self.payload_bytes,
            "the payload has the planned size"
        );
        let (mut rest, mut end) = (payload, 0);
        for (place, piece) in &self.pieces {
            let (gap, after) = rest.split_at_mut(place.start - end);
            gap.fill(0);
            let (out, after) = after.split_at_mut(place.len());
            piece.write(out, &mut tensor);
            (rest, end) = (after, place.end);
        }
    }
}

impl<T: Elements> Encode for Record<T> {
    fn layout(&self) -> Layout {
        self.layout()
    }

    fn payload_bytes(&self) -> usize {
        self.payload_bytes()
    }

    fn write(&self, payload: &mut [u8]) {
        self.write_parts(payload, |elements, axes, out| {
            elements.write_elements(axes, out)
        });
    }

    fn schema(&self) -> Option<&Schema> {
        Some(self.schema())
    }
}

impl<T> Piece<T> {
    fn write<'p>(
        &'p self,
        out: &'p mut [u8],
        tensor: &mut impl FnMut(&'p T, &'p [usize], &'p mut [u8]),
    ) {
        match self {
            Self::Bits(bits) => {
                for (out, chunk) in out.chunks_mut(8).zip(bits.bit_chunks().iter_padded()) {
                    out.copy_from_slice(&chunk.to_le_bytes()[..out.len()]);
                }
            }
            Self::I32(words) => out.copy_from_slice(bytemuck::cast_slice(words)),
            Self::I64(words) => out.copy_from_slice(bytemuck::cast_slice(words)),
            Self::U64(words) => out.copy_from_slice(bytemuck::cast_slice(words)),
            Self::F64(words) => out.copy_from_slice(bytemuck::cast_slice(words)),
            Self::Bytes(bytes) => out.copy_from_slice(bytes),
            Self::Tensors { axes, tensors } => {
                let mut rest = out;
                for (elements, bytes) in tensors {
                    let (out, after) = rest.split_at_mut(*bytes);
                    tensor(elements, axes, out);
                    rest = after;
                }
            }
        }
    }
}

struct Planner<T> {
    plan: ArrayPlanner,
    pieces: Vec<(Range<usize>, Piece<T>)>,
}

/// Walks columns in the same order as [`crate::array::Plan`] walks arrays.
impl<T> Planner<T> {
    /// Plans the buffers of a column. Returns its field.
    fn column(&mut self, name: &str, column: Column<T>) -> Result<Field, RecordError> {
        let Column {
            length,
            nulls,
            values,
        } = column;
        self.plan.length(length);
        if !matches!(values, Values::Unknown) {
            self.number((!nulls.is_empty()).into());
            if !nulls.is_empty() {
                let mut valid = vec![true; length];
                nulls.into_iter().for_each(|index| valid[index] = false);
                self.place(
                    length.div_ceil(BITS),
                    Piece::Bits(BooleanBuffer::from(valid)),
                )?;
            }
        }
        let data_type = match values {
            Values::Unknown => DataType::Null,
            Values::Bool(values) => {
                self.place(
                    length.div_ceil(BITS),
                    Piece::Bits(BooleanBuffer::from(values)),
                )?;
                DataType::Boolean
            }
            Values::Integer(values) => {
                self.place(8 * length, Piece::I64(values))?;
                DataType::Int64
            }
            Values::Unsigned(values) => {
                self.place(8 * length, Piece::U64(values))?;
                DataType::UInt64
            }
            Values::Float(values) => {
                self.place(8 * length, Piece::F64(values))?;
                DataType::Float64
            }
            Values::Text(values) => self.variable(values, DataType::LargeUtf8)?,
            Values::Bytes(values) => self.variable(values, DataType::LargeBinary)?,
            Values::List { ends, items } => {
                self.place(8 * ends.len(), Piece::I64(ends))?;
                self.number(items.length);
                DataType::LargeList(self.column("item", *items)?.into())
            }
            Values::Fields(fields) => {
                let columns = fields.columns.into_iter();
                let fields = columns.map(|(name, column)| self.column(&name, column));
                DataType::Struct(fields.collect::<Result<Fields, _>>()?)
            }
            Values::Tensors(tensors) => return self.tensors(name, tensors),
        };
        Ok(Field::new(name, data_type, true))
    }

    fn variable(&mut self, values: Variable, data_type: DataType) -> Result<DataType, RecordError> {
        let Variable { ends, bytes } = values;
        self.place(8 * ends.len(), Piece::I64(ends))?;
        self.number(bytes.len());
        self.place(bytes.len(), Piece::Bytes(bytes))?;
        Ok(data_type)
    }

    /// Plans the children of the struct of a tensor column: `data`, `shape` and their children.
    fn tensors(&mut self, name: &str, tensors: Tensors<T>) -> Result<Field, RecordError> {
        let Tensors {
            dtype,
            axes,
            ends,
            shapes,
            tensors,
        } = tensors;
        let elements = ends.last().copied().unwrap_or(0) as usize;
        let bytes = elements
            .checked_mul(dtype.item_bytes())
            .ok_or(RecordError::TooLarge)?;
        self.plan.length(elements.max(shapes.len()));
        self.number(0);
        self.place(4 * ends.len(), Piece::I32(ends))?;
        self.number(elements);
        self.number(0);
        self.place(
            bytes,
            Piece::Tensors {
                axes: axes.as_slice().into(),
                tensors,
            },
        )?;
        self.number(0);
        self.number(0);
        self.place(4 * shapes.len(), Piece::I32(shapes))?;
        Ok(tensors::field(name, &dtype, &axes))
    }

    fn number(&mut self, number: usize) {
        self.plan.number(number);
    }

    fn place(&mut self, bytes: usize, piece: Piece<T>) -> Result<(), RecordError> {
        let place = self.plan.place(bytes)?;
        if bytes > 0 {
            self.pieces.push((place, piece));
        }
        Ok(())
    }
}
