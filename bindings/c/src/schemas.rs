//! The schemas that this thread has received, and how their records are read.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use nervure_node::message::array::ArrayLayout;
use nervure_node::message::record::{
    RecordColumns, RecordColumnsError, RecordPlaces, RecordView, RecordViewError,
};
use nervure_node::message::{Layout, Schema, ViewError};
use nervure_node::{Sample, SampleError};

use crate::layout::{Shape, TypeLayout};
use crate::misread::Misread;
use crate::reader::{Reader, Reading};
use crate::status::{Failure, Status};

/// Limit on the known schemas of a thread. The schema of a record may depend on its values.
const MAX_SCHEMAS: usize = 64;
/// Limit on the types that a schema is read into.
const MAX_READERS: usize = 16;

thread_local! {
    static KNOWN: RefCell<Vec<Known>> = const { RefCell::new(Vec::new()) };
}

struct Known {
    /// The announcement. It identifies the schema: ids of two producers may be equal.
    announced: Arc<[u8]>,
    columns: Arc<RecordColumns>,
    readers: Vec<(*const TypeLayout, Rc<Reader>)>,
    /// The places of the last sample.
    places: Rc<RecordPlaces>,
    /// Layout and payload size of the last sample, which determine its places.
    last: Option<(ArrayLayout, usize)>,
}

/// The columns of a sample.
pub(crate) fn columns_of(sample: &Sample) -> Result<Arc<RecordColumns>, Failure> {
    with_known(sample, |known| Ok(known.columns.clone()))
}

/// Finds the columns of a sample in its payload.
pub(crate) fn find(
    places: &mut RecordPlaces,
    columns: &RecordColumns,
    sample: &Sample,
) -> Result<(), Failure> {
    let layout = array_layout(sample)?;
    let found = places.find(columns, layout, sample.bytes().len());
    found.map_err(damaged)
}

fn array_layout(sample: &Sample) -> Result<&ArrayLayout, Failure> {
    match sample.layout()? {
        Layout::Array(layout) => Ok(layout),
        other => Err(no_record(other.kind_name())),
    }
}

/// Reads a sample, which is one record, into a struct.
///
/// # Safety
/// `place` points to a value of this type.
pub(crate) unsafe fn read(sample: &Sample, shape: Shape, place: *mut u8) -> Result<(), Failure> {
    let failure = |misread: Misread| misread.failure(&shape.name());
    // Not borrowed while functions of the program run.
    let (columns, places, reader) = with_known(sample, |known| {
        known.find(sample)?;
        let view = RecordView::new(&known.columns, &known.places, sample.bytes());
        if let Some(items) = view.list() {
            return Err(no_record(&format!("a list of {}", items.rows.len())));
        }
        let reader = known.reader(shape).map_err(failure)?;
        Ok((known.columns.clone(), known.places.clone(), reader))
    })?;
    let view = RecordView::new(&columns, &places, sample.bytes());
    // SAFETY: the caller's promise.
    unsafe { Reading::new(view).read(&reader, 0, place) }.map_err(failure)
}

impl Known {
    /// Finds the columns of a sample, unless they are where those of the last one were.
    fn find(&mut self, sample: &Sample) -> Result<(), Failure> {
        let layout = array_layout(sample)?;
        let is_same =
            |(last, bytes): &(ArrayLayout, usize)| last == layout && *bytes == sample.bytes().len();
        if self.last.as_ref().is_some_and(is_same) {
            return Ok(());
        }
        self.last = None;
        if Rc::get_mut(&mut self.places).is_none() {
            self.places = Rc::default();
        }
        let places = Rc::get_mut(&mut self.places).expect("it is not shared");
        find(places, &self.columns, sample)?;
        self.last = Some((layout.clone(), sample.bytes().len()));
        Ok(())
    }

    /// How records of the schema are read into a type.
    fn reader(&mut self, shape: Shape) -> Result<Rc<Reader>, Misread> {
        let is_same = |(of, _): &&(*const TypeLayout, Rc<Reader>)| std::ptr::eq(*of, shape.0);
        if let Some((_, reader)) = self.readers.iter().find(is_same) {
            return Ok(reader.clone());
        }
        let reader = Rc::new(Reader::new(&self.columns, 0, shape)?);
        if self.readers.len() == MAX_READERS {
            self.readers.clear();
        }
        self.readers.push((shape.0, reader.clone()));
        Ok(reader)
    }
}

fn with_known<T>(
    sample: &Sample,
    run: impl FnOnce(&mut Known) -> Result<T, Failure>,
) -> Result<T, Failure> {
    array_layout(sample)?;
    let announced = sample.raw().announcement(sample.header().schema_id);
    let announced = announced.ok_or(SampleError::from(ViewError::SchemaMissing))?;
    KNOWN.with_borrow_mut(|known| {
        let index = known
            .iter()
            .position(|known| Arc::ptr_eq(&known.announced, &announced));
        let index = match index {
            Some(index) => index,
            None => {
                let schema = Schema::decode(&announced).map_err(SampleError::from)?;
                let columns = RecordColumns::new(&schema).map_err(unreadable)?;
                if known.len() == MAX_SCHEMAS {
                    known.clear();
                }
                known.push(Known {
                    announced,
                    columns: Arc::new(columns),
                    readers: Vec::new(),
                    places: Rc::default(),
                    last: None,
                });
                known.len() - 1
            }
        };
        run(&mut known[index])
    })
}

fn unreadable(error: RecordColumnsError) -> Failure {
    Failure::new(
        Status::Kind,
        format!("{error}: `nervure_sample_arrow` returns the array"),
    )
}

pub(crate) fn damaged(error: RecordViewError) -> Failure {
    Failure::new(Status::Kind, error.to_string())
}

pub(crate) fn no_record(found: &str) -> Failure {
    Failure::new(
        Status::Kind,
        format!("expected one record: a dict, dataclass or struct, found {found}"),
    )
}
