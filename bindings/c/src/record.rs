//! Fields of received records, by their paths.

use std::sync::Arc;

use nervure_node::Sample as Received;
use nervure_node::binding::nearest;
use nervure_node::message::record::{
    Items, RecordColumns, RecordPlaces, RecordValue, RecordView, number,
};
use nervure_node::message::{DType, Scalar, TensorLayout};

use crate::layout::{LayoutKind, Shape};
use crate::misread::Misread;
use crate::path::{Step, steps};
use crate::reader::{Reader, Reading, store};
use crate::schemas;
use crate::status::{Failure, Status};
use crate::value::{Kind, Value};

/// A received record: a dict, dataclass or struct of another language, or a list of them. It keeps its sample's memory
/// until it is freed.
///
/// Functions name its values by paths: `pose.position.x`, `poses[3].position`, `covariance[8]`; the empty path is the
/// whole record. They return `NERVURE_STATUS_NONE` if there is no value: it is null, the record has no such field or the
/// list no such item; and `NERVURE_STATUS_KIND` if it is of another type. One thread at a time reads a record.
#[derive(Debug)]
pub struct Record {
    sample: Received,
    columns: Arc<RecordColumns>,
    places: RecordPlaces,
    /// The layouts of tensors that the program has read. It has pointers to their shapes.
    #[expect(
        clippy::vec_box,
        reason = "pointers to a layout stay valid while others are added"
    )]
    tensors: Vec<Box<TensorLayout>>,
}

/// A value at a path.
enum Found {
    /// All rows of the outermost column.
    Rows(Items),
    /// A row of a column.
    Value { column: usize, row: usize },
    /// An element of a tensor, or a byte.
    Element(Scalar),
}

impl Record {
    pub(crate) fn open(sample: &Received) -> Result<Self, Failure> {
        let columns = schemas::columns_of(sample)?;
        let mut places = RecordPlaces::default();
        schemas::find(&mut places, &columns, sample)?;
        Ok(Self {
            sample: sample.clone(),
            columns,
            places,
            tensors: Vec::new(),
        })
    }

    fn view(&self) -> RecordView<'_> {
        RecordView::new(&self.columns, &self.places, self.sample.bytes())
    }

    fn find(&self, path: &str) -> Result<Found, Failure> {
        let view = self.view();
        let mut found = match view.list() {
            Some(items) => Found::Rows(items),
            None => Found::Value { column: 0, row: 0 },
        };
        for step in steps(path) {
            found = match step? {
                Step::Field(name) => self.field(path, &found, name)?,
                Step::Index(index) => self.item(path, found, index)?,
            };
        }
        Ok(found)
    }

    fn field(&self, path: &str, found: &Found, name: &str) -> Result<Found, Failure> {
        let Found::Value { column, row } = *found else {
            return Err(wrong(path, "a record", "a list or number"));
        };
        match self.view().value(column, row).map_err(schemas::damaged)? {
            RecordValue::Record => {}
            RecordValue::Null => return Err(none(path, format!("the record of `{name}` is null"))),
            _ => {
                let found = self.columns.column(column).kind().to_string();
                return Err(wrong(path, &format!("a record with `{name}`"), &found));
            }
        }
        match self.columns.field(column, name) {
            Some(column) => Ok(Found::Value { column, row }),
            None => {
                let children = self.columns.children(column);
                let names: Vec<&str> = children
                    .map(|child| self.columns.column(child).name())
                    .collect();
                let hint = nearest(name, names.iter().copied());
                let hint = hint.map_or(String::new(), |near| format!("; did you mean `{near}`?"));
                let names = names.join(", ");
                Err(none(
                    path,
                    format!("there is no field `{name}`; the fields are: {names}{hint}"),
                ))
            }
        }
    }

    fn item(&self, path: &str, found: Found, index: usize) -> Result<Found, Failure> {
        let missing = |count: usize| none(path, format!("there is no item {index} of {count}"));
        let (column, row) = match found {
            Found::Rows(items) => {
                let count = items.rows.len();
                return item_of(items, index).ok_or_else(|| missing(count));
            }
            Found::Value { column, row } => (column, row),
            Found::Element(_) => return Err(wrong(path, "a list", "a number")),
        };
        match self.view().value(column, row).map_err(schemas::damaged)? {
            RecordValue::List(items) => {
                let count = items.rows.len();
                item_of(items, index).ok_or_else(|| missing(count))
            }
            RecordValue::Bytes(bytes) => match bytes.get(index) {
                Some(byte) => Ok(Found::Element(Scalar::Integer((*byte).into()))),
                None => Err(missing(bytes.len())),
            },
            RecordValue::Tensor(layout, _) if index >= layout.len() => Err(missing(layout.len())),
            RecordValue::Tensor(layout, elements) => {
                let at = place_in_memory(&layout, index);
                let element = number(layout.dtype(), &elements[at..], 0);
                let element = element.ok_or_else(|| {
                    wrong(
                        path,
                        "a number",
                        &format!("an element of type {}", layout.dtype()),
                    )
                })?;
                Ok(Found::Element(element))
            }
            RecordValue::Null => Err(none(path, "the list is null")),
            _ => Err(wrong(
                path,
                "a list",
                &self.columns.column(column).kind().to_string(),
            )),
        }
    }

    /// The value at a path, in place.
    pub(crate) fn get(&mut self, path: &str) -> Result<Value, Failure> {
        let (column, row) = match self.find(path)? {
            Found::Element(scalar) => return Ok(Value::scalar(scalar)),
            Found::Rows(_) => return Err(wrong(path, "a value", "a list: read its items")),
            Found::Value { column, row } => (column, row),
        };
        let view = RecordView::new(&self.columns, &self.places, self.sample.bytes());
        // Read once: the producer may change the shape.
        let (layout, elements) = match view.value(column, row).map_err(schemas::damaged)? {
            RecordValue::Scalar(scalar) => return Ok(Value::scalar(scalar)),
            RecordValue::Text(text) => {
                let checked = std::str::from_utf8(text);
                checked.map_err(|error| wrong(path, "a text in UTF-8", &error.to_string()))?;
                return Ok(Value::bytes(Kind::Text, text));
            }
            RecordValue::Bytes(bytes) => return Ok(Value::bytes(Kind::Bytes, bytes)),
            RecordValue::Null => return Err(none(path, "it is null")),
            RecordValue::Tensor(layout, elements) => (layout, elements),
            RecordValue::List(items) => match view.numbers(&items) {
                Some((dtype, numbers)) => (row_of(dtype, items.rows.len()), numbers),
                None => return Err(wrong(path, "a value", "a list: read its items")),
            },
            RecordValue::Record => return Err(wrong(path, "a value", "a record: read its fields")),
            RecordValue::Other => {
                let found = self.columns.column(column).kind();
                let found = format!("{found}, which `nervure_sample_arrow` returns");
                return Err(wrong(path, "a value", &found));
            }
        };
        let at = self.tensors.iter().position(|known| **known == layout);
        let at = at.unwrap_or_else(|| {
            self.tensors.push(Box::new(layout));
            self.tensors.len() - 1
        });
        Ok(Value::tensor(&self.tensors[at], elements))
    }

    /// The number of items at a path.
    pub(crate) fn count(&self, path: &str) -> Result<usize, Failure> {
        let (column, row) = match self.find(path)? {
            Found::Rows(items) => return Ok(items.rows.len()),
            Found::Element(_) => return Err(wrong(path, "a list", "a number")),
            Found::Value { column, row } => (column, row),
        };
        match self.view().value(column, row).map_err(schemas::damaged)? {
            RecordValue::List(items) => Ok(items.rows.len()),
            RecordValue::Bytes(bytes) => Ok(bytes.len()),
            RecordValue::Tensor(layout, _) => Ok(layout.len()),
            RecordValue::Null => Err(none(path, "the list is null")),
            _ => Err(wrong(
                path,
                "a list",
                &self.columns.column(column).kind().to_string(),
            )),
        }
    }

    /// Reads the value at a path.
    ///
    /// # Safety
    /// `place` points to a value of this type.
    pub(crate) unsafe fn read(
        &self,
        path: &str,
        shape: Shape,
        place: *mut u8,
    ) -> Result<(), Failure> {
        let whole = match path {
            "" => shape.name(),
            path => format!("the record's `{path}`"),
        };
        let is_optional = shape.kind() == LayoutKind::Optional;
        let found = match self.find(path) {
            Err(failure) if is_optional && failure.status == Status::None => {
                // SAFETY: the caller's promise.
                unsafe { shape.resize(place, 0) };
                return Ok(());
            }
            found => found?,
        };
        let read = || -> Result<(), Misread> {
            match &found {
                Found::Element(scalar) => match shape.kind() {
                    // SAFETY: the caller's promise.
                    LayoutKind::Number => unsafe { store(*scalar, shape, place) },
                    _ => Err(Misread::new(
                        format!("`{}`", shape.name()),
                        "an element of a list",
                    )),
                },
                Found::Rows(items) => {
                    let found = format!("a list of {}", items.rows.len());
                    Err(Misread::new(format!("`{}`", shape.name()), found))
                }
                Found::Value { column, row } => {
                    let reader = Reader::new(&self.columns, *column, shape)?;
                    // SAFETY: the caller's promise.
                    unsafe { Reading::new(self.view()).read(&reader, *row, place) }
                }
            }
        };
        if let Found::Value { column, row } = found
            && !is_optional
            && self.view().is_null(column, row)
        {
            return Err(none(path, "it is null"));
        }
        read().map_err(|misread| misread.failure(&whole))
    }
}

fn item_of(items: Items, index: usize) -> Option<Found> {
    let row = items.rows.start + index;
    let column = items.column;
    (index < items.rows.len()).then_some(Found::Value { column, row })
}

/// The first byte of an element, which has this index in C order.
fn place_in_memory(layout: &TensorLayout, index: usize) -> usize {
    let mut rest = index;
    let strides = layout.strides();
    let axes = layout.shape().iter().zip(strides.iter()).rev();
    let mut place = 0;
    for (length, stride) in axes {
        place += rest % length * stride;
        rest /= length;
    }
    place
}

fn row_of(dtype: &DType, count: usize) -> TensorLayout {
    TensorLayout::contiguous(dtype.clone(), &[count]).expect("numbers in memory fit")
}

fn none(path: &str, reason: impl std::fmt::Display) -> Failure {
    Failure::new(Status::None, format!("the record's `{path}`: {reason}"))
}

pub(crate) fn wrong(path: &str, expected: &str, found: &str) -> Failure {
    let message = format!("the record's `{path}`: expected {expected}, found {found}");
    Failure::new(Status::Kind, message)
}
