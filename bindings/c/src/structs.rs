//! Structs of the program that are sent as records.

use std::cell::RefCell;
use std::ptr;
use std::rc::Rc;

use nervure_node::Encode;
use nervure_node::message::array::ArrayLayout;
use nervure_node::message::record::ArrayPlanner;
use nervure_node::message::{Layout, PYTHON_KIND, Schema};

use crate::dtype::Dtype;
use crate::layout::{LayoutKind, Shape};
use crate::misread::Misread;
use crate::status::Failure;
use crate::writer::{Filler, Nulls, Run, column, field, too_large, word};

/// A struct of the program, ready to be sent.
pub(crate) struct StructSample {
    value: Run,
    known: Rc<Known>,
    layout: ArrayLayout,
    payload_bytes: usize,
}

/// A type that this thread has sent.
struct Known {
    shape: Shape,
    schema: Schema,
    flat: Option<Flat>,
}

/// The payload of a type that consists of numbers, whatever their values are.
struct Flat {
    layout: ArrayLayout,
    payload_bytes: usize,
    /// Numbers with their offsets in the struct and in the payload.
    numbers: Vec<(Dtype, usize, usize)>,
}

impl StructSample {
    /// # Safety
    /// `start` points to a struct of this type, which is not changed as long as the result is used.
    pub(crate) unsafe fn new(shape: Shape, start: *const u8) -> Result<Self, Failure> {
        let failure = |misread: Misread| misread.failure(&shape.name());
        let known = known_type(shape)?;
        let value = Run {
            start,
            count: 1,
            stride: 0,
        };
        let (layout, payload_bytes) = match &known.flat {
            Some(flat) => (flat.layout.clone(), flat.payload_bytes),
            None => {
                let mut planner = ArrayPlanner::default();
                // SAFETY: the caller's promise.
                let planned = unsafe { column(shape, &[value], 1, Nulls::None, &mut planner) };
                planned.map_err(failure)?;
                let planned = planner.finish(1);
                planned.map_err(|error| failure(too_large(error)))?
            }
        };
        Ok(Self {
            value,
            known,
            layout,
            payload_bytes,
        })
    }
}

impl Encode for StructSample {
    fn layout(&self) -> Layout {
        Layout::Array(self.layout.clone())
    }

    fn payload_bytes(&self) -> usize {
        self.payload_bytes
    }

    fn write(&self, payload: &mut [u8]) {
        if let Some(flat) = &self.known.flat {
            payload.fill(0);
            for (dtype, from, to) in &flat.numbers {
                // SAFETY: the struct has a number of this type there.
                let word = unsafe { word(*dtype, self.value.start.add(*from)) };
                let width = if *dtype == Dtype::Bool { 1 } else { word.len() };
                payload[*to..][..width].copy_from_slice(&word[..width]);
            }
            return;
        }
        let mut filler = Filler::new(payload);
        let (shape, value) = (self.known.shape, self.value);
        // SAFETY: the promise to `new`.
        let written = unsafe { column(shape, &[value], 1, Nulls::None, &mut filler) };
        assert!(
            written.is_ok() && filler.is_full(),
            "the program has changed a struct while it was sent"
        );
    }

    fn schema(&self) -> Option<&Schema> {
        Some(&self.known.schema)
    }
}

fn known_type(shape: Shape) -> Result<Rc<Known>, Failure> {
    thread_local! {
        static KNOWN: RefCell<Vec<Rc<Known>>> = const { RefCell::new(Vec::new()) };
    }
    KNOWN.with_borrow_mut(|known| {
        let mut same = known.iter().filter(|known| ptr::eq(known.shape.0, shape.0));
        if let Some(known) = same.next() {
            return Ok(known.clone());
        }
        let metadata = arrow_schema::Metadata::new().with(PYTHON_KIND, "dict");
        let root = field("", shape)?.with_metadata(metadata);
        let schema = Schema::array(root);
        let schema =
            schema.map_err(|error| Failure::argument(format!("{}: {error}", shape.name())))?;
        let flat = Flat::of(shape);
        known.push(Rc::new(Known {
            shape,
            schema,
            flat,
        }));
        Ok(known[known.len() - 1].clone())
    })
}

impl Flat {
    fn of(shape: Shape) -> Option<Self> {
        let (mut planner, mut numbers) = (ArrayPlanner::default(), Vec::new());
        Self::add(shape, 0, &mut planner, &mut numbers)?;
        let (layout, payload_bytes) = planner.finish(1).ok()?;
        Some(Self {
            layout,
            payload_bytes,
            numbers,
        })
    }

    fn add(
        shape: Shape,
        offset: usize,
        planner: &mut ArrayPlanner,
        numbers: &mut Vec<(Dtype, usize, usize)>,
    ) -> Option<()> {
        planner.number(0);
        match shape.kind() {
            LayoutKind::Number => {
                let bytes = if shape.0.dtype == Dtype::Bool { 1 } else { 8 };
                let place = planner.place(bytes).ok()?;
                numbers.push((shape.0.dtype, offset, place.start));
                Some(())
            }
            LayoutKind::Record => shape.fields().iter().try_for_each(|field| {
                Self::add(field.shape(), offset + field.offset, planner, numbers)
            }),
            LayoutKind::Text | LayoutKind::Array | LayoutKind::List | LayoutKind::Optional => None,
        }
    }
}
