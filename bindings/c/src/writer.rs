//! Writes values of the program as columns of a record.
//!
//! A value is walked twice in the same way: for the layout of the payload, and to fill it. Each type has one schema,
//! whatever its values are.

use std::ptr;

use arrow_schema::{DataType, Field, Fields};
use nervure_node::message::record::{ArrayPlanner, RecordError};
use nervure_node::message::{DType, TensorColumn};

use crate::dtype::Dtype;
use crate::layout::{LayoutKind, Shape};
use crate::misread::Misread;
use crate::status::Failure;

/// The field of a column with values of a type.
pub(crate) fn field(name: &str, shape: Shape) -> Result<Field, Failure> {
    let data_type = match shape.kind() {
        LayoutKind::Number => match shape.0.dtype {
            Dtype::Bool => DataType::Boolean,
            Dtype::F32 | Dtype::F64 => DataType::Float64,
            Dtype::U64 => DataType::UInt64,
            dtype if dtype.is_integer() => DataType::Int64,
            _ => {
                let message = format!("the layout of `{name}` has a number of more than 64 bits");
                return Err(Failure::argument(message));
            }
        },
        LayoutKind::Text => DataType::LargeUtf8,
        LayoutKind::Record => {
            let fields = shape.fields().iter();
            let fields = fields.map(|known| field(known.name(), known.shape()));
            DataType::Struct(fields.collect::<Result<Fields, _>>()?)
        }
        LayoutKind::Array | LayoutKind::List => {
            let item = field("item", shape.item())?;
            match shape.item().kind() {
                LayoutKind::Number => {
                    return Ok(TensorColumn::field(name, &shape.item().dtype(), 1));
                }
                _ => DataType::LargeList(item.into()),
            }
        }
        LayoutKind::Optional => return field(name, shape.item()),
    };
    Ok(Field::new(name, data_type, true))
}

/// Values of a type at equal distances.
#[derive(Clone, Copy)]
pub(crate) struct Run {
    /// The first; null if all are absent.
    pub(crate) start: *const u8,
    pub(crate) count: usize,
    pub(crate) stride: usize,
}

type Runs = smallvec::SmallVec<[Run; 4]>;

impl Run {
    fn absent(count: usize) -> Self {
        Self {
            start: ptr::null(),
            count,
            stride: 0,
        }
    }

    /// The places of the values; null for absent ones.
    fn places(self) -> impl Iterator<Item = *const u8> {
        (0..self.count).map(move |index| self.start.wrapping_add(index * self.stride))
    }
}

fn places(runs: &[Run]) -> impl Iterator<Item = *const u8> {
    runs.iter().flat_map(|run| run.places())
}

/// Whether absent values of a column are nulls. Those of absent records are any values.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Nulls {
    None,
    Absent,
}

/// Receives the parts of an array in their order.
pub(crate) trait Sink {
    fn number(&mut self, number: usize);
    fn length(&mut self, length: usize);
    fn buffer(&mut self, bytes: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), Misread>;
}

impl Sink for ArrayPlanner {
    fn number(&mut self, number: usize) {
        Self::number(self, number);
    }

    fn length(&mut self, length: usize) {
        Self::length(self, length);
    }

    fn buffer(&mut self, bytes: usize, _: impl FnOnce(&mut [u8])) -> Result<(), Misread> {
        self.place(bytes).map(|_| ()).map_err(too_large)
    }
}

/// Fills a payload.
pub(crate) struct Filler<'p> {
    planner: ArrayPlanner,
    payload: &'p mut [u8],
    /// End of the last buffer.
    end: usize,
}

impl<'p> Filler<'p> {
    pub(crate) fn new(payload: &'p mut [u8]) -> Self {
        Self {
            planner: ArrayPlanner::default(),
            payload,
            end: 0,
        }
    }

    /// Whether the whole payload was filled.
    pub(crate) fn is_full(&self) -> bool {
        self.end == self.payload.len()
    }
}

impl Sink for Filler<'_> {
    fn number(&mut self, _: usize) {}

    fn length(&mut self, _: usize) {}

    fn buffer(&mut self, bytes: usize, fill: impl FnOnce(&mut [u8])) -> Result<(), Misread> {
        let place = self.planner.place(bytes).map_err(too_large)?;
        if bytes > 0 {
            self.payload[self.end..place.start].fill(0);
            self.end = place.end;
            fill(&mut self.payload[place]);
        }
        Ok(())
    }
}

pub(crate) fn too_large(error: RecordError) -> Misread {
    Misread::new("a value that can be sent", error.to_string())
}

/// Writes a column of `rows` values.
///
/// # Safety
/// The runs have values of this type.
pub(crate) unsafe fn column(
    shape: Shape,
    runs: &[Run],
    rows: usize,
    nulls: Nulls,
    sink: &mut impl Sink,
) -> Result<(), Misread> {
    if shape.kind() == LayoutKind::Optional {
        // SAFETY: the caller's promise.
        let present = unsafe { item_runs(shape, runs, Nulls::Absent) };
        // SAFETY: items of an optional value have its item's type.
        return unsafe { column(shape.item(), &present, rows, Nulls::Absent, sink) };
    }
    sink.length(rows);
    validity(runs, rows, nulls, sink)?;
    // SAFETY: the caller's promise, and items and fields have their types.
    unsafe {
        match shape.kind() {
            LayoutKind::Number => numbers(shape, runs, rows, sink),
            LayoutKind::Text => texts(shape, runs, rows, sink),
            LayoutKind::Record => shape.fields().iter().try_for_each(|field| {
                let at = |run: &Run| match run.start.is_null() {
                    true => *run,
                    false => Run {
                        start: run.start.wrapping_add(field.offset),
                        ..*run
                    },
                };
                let runs: Runs = runs.iter().map(at).collect();
                let written = column(field.shape(), &runs, rows, Nulls::None, sink);
                written.map_err(|misread| misread.in_field(field.name()))
            }),
            LayoutKind::Array | LayoutKind::List => {
                let items = item_runs(shape, runs, nulls);
                match shape.item().kind() {
                    LayoutKind::Number => tensors(shape.item(), &items, sink),
                    _ => lists(shape.item(), &items, sink),
                }
            }
            LayoutKind::Optional => unreachable!("it has the column of its item"),
        }
    }
}

fn validity(runs: &[Run], rows: usize, nulls: Nulls, sink: &mut impl Sink) -> Result<(), Misread> {
    let has_nulls =
        nulls == Nulls::Absent && runs.iter().any(|run| run.start.is_null() && run.count > 0);
    sink.number(has_nulls.into());
    match has_nulls {
        true => bits(places(runs).map(|place| !place.is_null()), rows, sink),
        false => Ok(()),
    }
}

fn bits(
    values: impl Iterator<Item = bool>,
    count: usize,
    sink: &mut impl Sink,
) -> Result<(), Misread> {
    sink.buffer(count.div_ceil(8), |out| {
        out.fill(0);
        for (index, value) in values.enumerate() {
            out[index / 8] |= u8::from(value) << (index % 8);
        }
    })
}

/// Writes the numbers or truth values of a column.
///
/// # Safety
/// As [`column`].
unsafe fn numbers(
    shape: Shape,
    runs: &[Run],
    rows: usize,
    sink: &mut impl Sink,
) -> Result<(), Misread> {
    let dtype = shape.0.dtype;
    let word = |place: *const u8| match place.is_null() {
        true => [0; 8],
        // SAFETY: the caller's promise.
        false => unsafe { word(dtype, place) },
    };
    if dtype == Dtype::Bool {
        return bits(places(runs).map(|place| word(place)[0] != 0), rows, sink);
    }
    sink.buffer(8 * rows, |out| {
        for (out, place) in out.as_chunks_mut().0.iter_mut().zip(places(runs)) {
            *out = word(place);
        }
    })
}

/// A number in 64 bits, or a truth value in one.
///
/// # Safety
/// `place` points to a number of this type.
pub(crate) unsafe fn word(dtype: Dtype, place: *const u8) -> [u8; 8] {
    macro_rules! wide {
        ($number:ty as $wide:ty) => {
            // SAFETY: the caller's promise.
            <$wide>::from(unsafe { place.cast::<$number>().read_unaligned() }).to_le_bytes()
        };
    }
    match dtype {
        // SAFETY: the caller's promise.
        Dtype::Bool => u64::from(unsafe { *place } != 0).to_le_bytes(),
        Dtype::F64 => wide!(f64 as f64),
        Dtype::F32 => wide!(f32 as f64),
        Dtype::I8 => wide!(i8 as i64),
        Dtype::I16 => wide!(i16 as i64),
        Dtype::I32 => wide!(i32 as i64),
        Dtype::I64 => wide!(i64 as i64),
        Dtype::U8 => wide!(u8 as i64),
        Dtype::U16 => wide!(u16 as i64),
        Dtype::U32 => wide!(u32 as i64),
        Dtype::U64 => wide!(u64 as u64),
        Dtype::F16 | Dtype::Bf16 | Dtype::C64 | Dtype::C128 | Dtype::Custom => {
            unreachable!("a layout has numbers of at most 64 bits")
        }
    }
}

/// Writes the texts of a column.
///
/// # Safety
/// As [`column`].
unsafe fn texts(
    shape: Shape,
    runs: &[Run],
    rows: usize,
    sink: &mut impl Sink,
) -> Result<(), Misread> {
    let text = |place: *const u8| -> &[u8] {
        if place.is_null() {
            return &[];
        }
        // SAFETY: the caller's promise.
        match unsafe { shape.items(place) } {
            (_, 0) => &[],
            // SAFETY: a text has as many bytes.
            (start, count) => unsafe { std::slice::from_raw_parts(start, count) },
        }
    };
    let mut total = 0;
    for place in places(runs) {
        let text = text(place);
        total += text.len();
        std::str::from_utf8(text)
            .map_err(|error| Misread::new("a text in UTF-8", error.to_string()))?;
    }
    offsets(places(runs).map(|place| text(place).len()), rows, sink)?;
    sink.number(total);
    sink.buffer(total, |mut out| {
        for place in places(runs) {
            let text = text(place);
            let (first, rest) = out.split_at_mut(text.len());
            first.copy_from_slice(text);
            out = rest;
        }
    })
}

/// Writes the ends of texts or lists.
fn offsets(
    lengths: impl Iterator<Item = usize>,
    rows: usize,
    sink: &mut impl Sink,
) -> Result<(), Misread> {
    sink.buffer(8 * (rows + 1), |out| {
        let mut end = 0_u64;
        let (first, ends) = out.split_at_mut(8);
        first.fill(0);
        for (out, length) in ends.as_chunks_mut().0.iter_mut().zip(lengths) {
            end += length as u64;
            *out = end.to_le_bytes();
        }
    })
}

/// The items of each value, as one run.
///
/// # Safety
/// As [`column`].
unsafe fn item_runs(shape: Shape, runs: &[Run], nulls: Nulls) -> Runs {
    let item = shape.item();
    let run = |place: *const u8| match (shape.kind(), place.is_null()) {
        (LayoutKind::Optional, true) => Run::absent(1),
        (LayoutKind::Array, true) if nulls == Nulls::None => Run::absent(shape.0.count),
        (_, true) => Run::absent(0),
        (LayoutKind::Array, false) => Run {
            start: place,
            count: shape.0.count,
            stride: item.0.size,
        },
        // SAFETY: the caller's promise.
        (kind, false) => match unsafe { shape.items(place) } {
            (_, 0) if kind == LayoutKind::Optional => Run::absent(1),
            (start, count) => Run {
                start,
                count,
                stride: item.0.size,
            },
        },
    };
    places(runs).map(run).collect()
}

/// Writes lists, each of which has the items of a run.
///
/// # Safety
/// The runs have items of this type.
unsafe fn lists(item: Shape, items: &[Run], sink: &mut impl Sink) -> Result<(), Misread> {
    let total = items.iter().map(|run| run.count).sum();
    offsets(items.iter().map(|run| run.count), items.len(), sink)?;
    sink.number(total);
    // SAFETY: the caller's promise.
    unsafe { column(item, items, total, Nulls::None, sink) }
}

/// Writes tensors of one dimension, each of which has the numbers of a run: see the module `record` of
/// `nervure-message`.
///
/// # Safety
/// As [`lists`].
unsafe fn tensors(item: Shape, items: &[Run], sink: &mut impl Sink) -> Result<(), Misread> {
    let rows = items.len();
    let total: usize = items.iter().map(|run| run.count).sum();
    if i32::try_from(total).is_err() {
        let limit = i32::MAX;
        return Err(Misread::new(
            format!("at most {limit} elements (send larger tensors separately)"),
            total.to_string(),
        ));
    }
    sink.length(total);
    let words = |out: &mut [u8], words: &mut dyn Iterator<Item = usize>| {
        for (out, word) in out.as_chunks_mut().0.iter_mut().zip(words) {
            *out = (word as i32).to_le_bytes();
        }
    };
    sink.number(0);
    sink.buffer(4 * (rows + 1), |out| {
        let ends = items.iter().scan(0, |end, run| {
            *end += run.count;
            Some(*end)
        });
        words(out, &mut std::iter::once(0).chain(ends));
    })?;
    sink.number(total);
    sink.number(0);
    // SAFETY: the caller's promise.
    sink.buffer(total * item.0.size, |out| unsafe {
        elements(item, items, out)
    })?;
    sink.number(0);
    sink.number(0);
    sink.buffer(4 * rows, |out| {
        words(out, &mut items.iter().map(|run| run.count))
    })
}

/// # Safety
/// As [`lists`].
unsafe fn elements(item: Shape, items: &[Run], mut out: &mut [u8]) {
    for run in items {
        let (first, rest) = out.split_at_mut(run.count * item.0.size);
        match run.start.is_null() || run.count == 0 {
            true => first.fill(0),
            // SAFETY: the run has as many numbers without gaps, and `out` is memory of the sample.
            false => unsafe {
                ptr::copy_nonoverlapping(run.start, first.as_mut_ptr(), first.len());
            },
        }
        out = rest;
    }
    debug_assert!(
        item.dtype() != DType::Bool || item.0.size == 1,
        "a truth value is a byte"
    );
}
