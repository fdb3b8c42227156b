//! One field of each sample, for `topic echo --field`.

use std::{
    collections::{HashMap, hash_map::Entry},
    fmt::Display,
};

use nervure_node::{
    Sample,
    message::{
        Layout, TensorLayout,
        array::ArrayLayout,
        record::{
            PathMiss, PathStep, RecordColumns, RecordPath, RecordPlaces, RecordValue, RecordView,
            RecordViewError, tensor_item,
        },
    },
};
use nervure_protocol::nearest;
use serde_json::Value;

use super::value::{Limits, Shown, bytes, list, plain, tensor, text};
use crate::failure::Failure;

/// Reads the value at a path of each sample.
pub struct FieldReader<'p> {
    path: &'p RecordPath,
    /// The columns of known schemas, by the id of the schema.
    columns: HashMap<u64, RecordColumns>,
    places: RecordPlaces,
}

/// A path without `[]`.
pub fn parse_field(text: &str) -> Result<RecordPath, String> {
    let path: RecordPath = text.parse().map_err(|error| format!("{error}"))?;
    match path.steps().contains(&PathStep::EachItem) {
        true => Err("an index is missing, as in `ranges[0]`".to_owned()),
        false => Ok(path),
    }
}

impl<'p> FieldReader<'p> {
    pub fn new(path: &'p RecordPath) -> Self {
        Self {
            path,
            columns: HashMap::new(),
            places: RecordPlaces::default(),
        }
    }

    /// The value in a sample. An item that a list does not have is null.
    pub fn read(&mut self, sample: &Sample, limits: Limits) -> Result<Shown, Failure> {
        match sample.layout().map_err(unreadable)? {
            Layout::Tensor(layout) => self.element(sample, layout),
            Layout::Array(layout) => self.value(sample, layout, limits),
            other => Err(without_fields(other.kind_name())),
        }
    }

    fn element(&self, sample: &Sample, layout: &TensorLayout) -> Result<Shown, Failure> {
        sample.view().map_err(unreadable)?;
        let index = |step: &PathStep| match step {
            PathStep::Item(index) => Some(*index),
            PathStep::Field(_) | PathStep::EachItem => None,
        };
        let indices: Option<Vec<usize>> = self.path.steps().iter().map(index).collect();
        let indices = indices.ok_or_else(|| without_fields("a tensor"))?;
        let within = || "the sample".to_owned();
        tensor_item(layout, sample.bytes(), &indices, &within)
            .map(|scalar| Shown::Plain(plain(scalar)))
            .or_else(missed)
    }

    fn value(
        &mut self,
        sample: &Sample,
        layout: &ArrayLayout,
        limits: Limits,
    ) -> Result<Shown, Failure> {
        let schema = sample.schema().map_err(unreadable)?;
        let schema = schema.ok_or_else(|| without_fields("an array without a schema"))?;
        let columns = match self.columns.entry(schema.id()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(RecordColumns::new(&schema).map_err(unreadable)?),
        };
        let payload = sample.bytes();
        let places = &mut self.places;
        places
            .find(columns, layout, payload.len())
            .map_err(unreadable)?;
        let view = RecordView::new(columns, places, payload);
        match view.find(self.path, &[]) {
            Ok(found) => {
                shown(view, &found.value, [found.column, found.row], limits).map_err(unreadable)
            }
            Err(miss) => missed(miss),
        }
    }
}

fn unreadable(error: impl Display) -> Failure {
    Failure::invalid(error.to_string())
}

fn without_fields(kind: &str) -> Failure {
    Failure::invalid(format!("the sample is {kind}, which has no fields"))
}

/// Null for an item that a list does not have.
fn missed(miss: PathMiss) -> Result<Shown, Failure> {
    let failure = Failure::invalid(miss.to_string());
    match miss {
        PathMiss::Index { .. } => Ok(Shown::Plain(Value::Null)),
        PathMiss::Field { name, known, .. } => {
            let near = nearest(&name, known.iter().map(String::as_str));
            let near = near.map(|near| format!("did you mean `{near}`? "));
            let near = near.unwrap_or_default();
            Err(failure.hint(format!("{near}its fields: {}", known.join(", "))))
        }
        PathMiss::Kind { .. } | PathMiss::Damaged(_) => Err(failure),
    }
}

/// A value of a record, at a column and row.
fn shown(
    view: RecordView<'_>,
    value: &RecordValue<'_>,
    [column, row]: [usize; 2],
    limits: Limits,
) -> Result<Shown, RecordViewError> {
    let at = |column, row| shown(view, &view.value(column, row)?, [column, row], limits);
    Ok(match value {
        RecordValue::Null => Shown::Plain(Value::Null),
        RecordValue::Scalar(scalar) => Shown::Plain(plain(*scalar)),
        RecordValue::Text(found) => text(&String::from_utf8_lossy(found), limits),
        RecordValue::Bytes(found) => bytes(found, limits),
        RecordValue::Tensor(layout, elements) => tensor(layout, elements, limits),
        RecordValue::List(items) => {
            let shown = items.rows.clone().take(limits.items);
            let shown = shown.map(|row| at(items.column, row));
            let shown: Vec<_> = shown.collect::<Result<_, _>>()?;
            list(shown.into_iter(), items.rows.len(), limits)
        }
        RecordValue::Record => {
            let columns = view.columns();
            let field = |child| {
                let name = columns.column(child).name().to_owned();
                at(child, row).map(|value| (name, value))
            };
            let fields = columns.children(column).map(field);
            Shown::Row(fields.collect::<Result<_, _>>()?)
        }
        RecordValue::Other => Shown::Text(format!("({})", view.columns().column(column).kind()), 0),
    })
}
