//! Fills messages from records.

use std::collections::BTreeMap;

use nervure_message::Scalar;
use nervure_message::record::{
    FoundValue, Items, PathMiss, RecordPath, RecordValue, RecordView, RecordViewError, number,
};
use nervure_types::Source;
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, ReflectMessage, Value};

use super::descriptor;
use crate::protobuf::SECOND_NANOS;
use crate::sample::IncomingSample;

/// Most items of a list or tensor in a message with the record's own fields. Longer ones, such as images,
/// are in the payload alone: so that they are stored once.
const MAX_ITEMS: usize = 8192;

/// Why a message cannot be filled.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FillError {
    /// The record is damaged.
    #[error(transparent)]
    Damaged(#[from] RecordViewError),
    /// Its lists overlap, so that a small record would be a large message.
    #[error("lists of the record overlap")]
    Overlap,
}

/// Fills the message of one sample.
pub(super) struct Fill<'a> {
    view: RecordView<'a>,
    sample: &'a IncomingSample<'a>,
    /// The indices that the loops have reached, from the outermost.
    loops: Vec<usize>,
    /// Number of values that may still be written.
    budget: usize,
}

impl<'a> Fill<'a> {
    pub(super) fn new(view: RecordView<'a>, sample: &'a IncomingSample<'a>) -> Self {
        /// Copies of a value in a message, at most: a detection is a rectangle and a text.
        const COPIES: usize = 8;
        Self {
            view,
            sample,
            loops: Vec::new(),
            budget: 1024 + COPIES * view.weight(),
        }
    }

    /// Fills a message with the record's own fields.
    pub(super) fn whole(&mut self, message: &mut DynamicMessage) -> Result<(), FillError> {
        let known = message.descriptor();
        if let Some(stamp) = known.get_field(descriptor::STAMP) {
            message.set_field(&stamp, self.stamp(&stamp.kind()));
        }
        if let Some(frame) = known.get_field(descriptor::FRAME) {
            message.set_field(&frame, self.frame());
        }
        self.own_fields(message, 0, 0, descriptor::FIRST_FIELD)
    }

    /// Fills a message from sources. Fields without a value stay absent.
    pub(super) fn fields(
        &mut self,
        message: &mut DynamicMessage,
        sources: &BTreeMap<String, Source>,
    ) -> Result<(), FillError> {
        for (name, source) in sources {
            if let Some(field) = message.descriptor().get_field_by_name(name)
                && let Some(value) = self.source(&field, source)?
            {
                message.set_field(&field, value);
            }
        }
        Ok(())
    }

    fn source(
        &mut self,
        field: &FieldDescriptor,
        source: &Source,
    ) -> Result<Option<Value>, FillError> {
        let kind = field.kind();
        Ok(match source {
            Source::Stamp => Some(self.stamp(&kind)),
            Source::Frame => Some(self.frame()),
            Source::Number(value) => converted(&kind, Scalar::Float(*value)),
            Source::Text(text) => Some(Value::String(text.clone())),
            Source::Value(path) => match self.find(path)? {
                Some(found) => self.value(field, &found)?,
                None => None,
            },
            Source::Quotient(path, divisor) => self
                .number(path)?
                .and_then(|value| converted(&kind, Scalar::Float(value / divisor))),
            Source::Corners(path) => self.corners(&kind, path)?,
            Source::Fields(fields) => self.message(&kind, fields)?,
            Source::List(items) => {
                let mut values = Vec::with_capacity(items.len());
                for item in items {
                    if let Source::Fields(fields) = item {
                        values.extend(self.message(&kind, fields)?);
                    }
                }
                Some(Value::List(values))
            }
            Source::Each(path, item) => {
                let count = match self.find(path)?.map(|found| found.value) {
                    Some(RecordValue::List(items)) => items.rows.len(),
                    _ => 0,
                };
                let mut values = Vec::new();
                for index in 0..count {
                    self.spend(1)?;
                    self.loops.push(index);
                    if let Source::Fields(fields) = &**item {
                        values.extend(self.message(&kind, fields)?);
                    }
                    self.loops.pop();
                }
                Some(Value::List(values))
            }
        })
    }

    fn message(
        &mut self,
        kind: &Kind,
        fields: &BTreeMap<String, Source>,
    ) -> Result<Option<Value>, FillError> {
        let Kind::Message(descriptor) = kind else {
            return Ok(None);
        };
        let mut message = DynamicMessage::new(descriptor.clone());
        self.fields(&mut message, fields)?;
        Ok(Some(Value::Message(message)))
    }

    /// The value at a path; `None` for a null, and for a path that leads nowhere.
    fn find(&self, path: &RecordPath) -> Result<Option<FoundValue<'a>>, FillError> {
        match self.view.find(path, &self.loops) {
            Ok(found) => Ok(Some(found)),
            Err(PathMiss::Damaged(error)) => Err(error.into()),
            Err(_) => Ok(None),
        }
    }

    fn number(&self, path: &RecordPath) -> Result<Option<f64>, FillError> {
        let found = self.find(path)?;
        Ok(found.and_then(|found| match found.value {
            RecordValue::Scalar(scalar) => Some(as_float(scalar)),
            _ => None,
        }))
    }

    /// The corners of a rectangle that is rotated about its centre.
    fn corners(&self, kind: &Kind, path: &RecordPath) -> Result<Option<Value>, FillError> {
        const CORNERS: [[f64; 2]; 4] = [[-0.5, -0.5], [0.5, -0.5], [0.5, 0.5], [-0.5, 0.5]];
        let part = |name: &str| {
            let path = format!("{path}.{name}").parse();
            self.number(&path.expect("a path with one more name is one"))
        };
        let [Some(x), Some(y), Some(width), Some(height)] = [
            part("center.position.x")?,
            part("center.position.y")?,
            part("size_x")?,
            part("size_y")?,
        ] else {
            return Ok(None);
        };
        let (sin, cos) = part("center.theta")?.unwrap_or(0.0).sin_cos();
        let Kind::Message(point) = kind else {
            return Ok(None);
        };
        let corner = |[right, down]: [f64; 2]| {
            let (right, down) = (right * width, down * height);
            let mut corner = DynamicMessage::new(point.clone());
            corner.set_field_by_name("x", Value::F64(x + right * cos - down * sin));
            corner.set_field_by_name("y", Value::F64(y + right * sin + down * cos));
            Value::Message(corner)
        };
        Ok(Some(Value::List(CORNERS.map(corner).into())))
    }

    /// The value of a field; `None` for a null, and for a value that the field cannot have.
    fn value(
        &mut self,
        field: &FieldDescriptor,
        found: &FoundValue<'a>,
    ) -> Result<Option<Value>, FillError> {
        if field.is_list() {
            return self.list(&field.kind(), &found.value);
        }
        self.one(&field.kind(), found)
    }

    /// A value that is not repeated.
    fn one(&mut self, kind: &Kind, found: &FoundValue<'a>) -> Result<Option<Value>, FillError> {
        self.spend(1)?;
        Ok(match (kind, &found.value) {
            (Kind::Message(descriptor), RecordValue::Record) => {
                let mut message = DynamicMessage::new(descriptor.clone());
                match descriptor.package_name() {
                    "foxglove" => self.named_fields(&mut message, found)?,
                    _ => self.own_fields(&mut message, found.column, found.row, 1)?,
                }
                Some(Value::Message(message))
            }
            // A list in a list.
            (Kind::Message(descriptor), value) => {
                let mut message = DynamicMessage::new(descriptor.clone());
                if let Some(items) = descriptor.get_field(1)
                    && items.is_list()
                    && let Some(list) = self.list(&items.kind(), value)?
                {
                    message.set_field(&items, list);
                }
                Some(Value::Message(message))
            }
            (kind, RecordValue::Scalar(scalar)) => converted(kind, *scalar),
            (Kind::String, RecordValue::Text(text)) => {
                Some(Value::String(String::from_utf8_lossy(text).into_owned()))
            }
            (Kind::Bytes, RecordValue::Bytes(bytes)) => Some(Value::Bytes(bytes.to_vec().into())),
            (Kind::Bytes, value) => {
                let Some(Value::List(items)) = self.list(&Kind::Int32, value)? else {
                    return Ok(None);
                };
                let bytes = items.iter().map(|item| item.as_i32().unwrap_or(0) as u8);
                Some(Value::Bytes(bytes.collect::<Vec<u8>>().into()))
            }
            _ => None,
        })
    }

    /// A repeated value. Nulls in a list are the field's default.
    fn list(&mut self, kind: &Kind, value: &RecordValue<'a>) -> Result<Option<Value>, FillError> {
        let scalar = |scalar: Option<Scalar>| {
            let value = scalar.and_then(|scalar| converted(kind, scalar));
            value.unwrap_or_else(|| Value::default_value(kind))
        };
        let values = match value {
            RecordValue::List(items) => self.items(kind, items)?,
            RecordValue::Tensor(layout, bytes) => {
                self.spend(layout.len())?;
                let places = layout.places();
                places
                    .map(|place| scalar(number(layout.dtype(), &bytes[place..], 0)))
                    .collect()
            }
            RecordValue::Bytes(bytes) => {
                self.spend(bytes.len())?;
                let numbers = bytes.iter().map(|byte| Scalar::Integer((*byte).into()));
                numbers.map(|number| scalar(Some(number))).collect()
            }
            _ => return Ok(None),
        };
        Ok(Some(Value::List(values)))
    }

    fn items(&mut self, kind: &Kind, items: &Items) -> Result<Vec<Value>, FillError> {
        let mut values = Vec::new();
        for row in items.rows.clone() {
            let found = FoundValue {
                value: self.view.value(items.column, row)?,
                column: items.column,
                row,
            };
            let value = self.one(kind, &found)?;
            values.push(value.unwrap_or_else(|| Value::default_value(kind)));
        }
        Ok(values)
    }

    /// Fills a message of Foxglove from a record with fields of the same names.
    fn named_fields(
        &mut self,
        message: &mut DynamicMessage,
        record: &FoundValue<'a>,
    ) -> Result<(), FillError> {
        for field in message.descriptor().fields() {
            let columns = self.view.columns();
            if let Some(column) = columns.field(record.column, field.name()) {
                self.set(message, &field, column, record.row)?;
            }
        }
        Ok(())
    }

    /// Fills a message whose fields have the order of the record's, with numbers from `first` on.
    fn own_fields(
        &mut self,
        message: &mut DynamicMessage,
        column: usize,
        row: usize,
        first: u32,
    ) -> Result<(), FillError> {
        let columns = self.view.columns();
        for (number, child) in (first..).zip(columns.children(column)) {
            let Some(field) = message.descriptor().get_field(number) else {
                continue;
            };
            let is_short = match self.view.value(child, row)? {
                RecordValue::List(items) => items.rows.len() <= MAX_ITEMS,
                RecordValue::Tensor(layout, _) => layout.len() <= MAX_ITEMS,
                RecordValue::Bytes(bytes) => bytes.len() <= MAX_ITEMS,
                _ => true,
            };
            if is_short {
                self.set(message, &field, child, row)?;
            }
        }
        Ok(())
    }

    fn set(
        &mut self,
        message: &mut DynamicMessage,
        field: &FieldDescriptor,
        column: usize,
        row: usize,
    ) -> Result<(), FillError> {
        let value = self.view.value(column, row)?;
        if matches!(value, RecordValue::Null) {
            return Ok(());
        }
        let found = FoundValue { value, column, row };
        if let Some(value) = self.value(field, &found)? {
            message.set_field(field, value);
        }
        Ok(())
    }

    fn frame(&self) -> Value {
        Value::String(self.sample.frame.clone().unwrap_or_default())
    }

    fn stamp(&self, kind: &Kind) -> Value {
        let Kind::Message(descriptor) = kind else {
            return Value::default_value(kind);
        };
        let stamp = self.sample.header.stamp;
        let mut message = DynamicMessage::new(descriptor.clone());
        message.set_field_by_name("seconds", Value::I64(stamp.div_euclid(SECOND_NANOS)));
        message.set_field_by_name("nanos", Value::I32(stamp.rem_euclid(SECOND_NANOS) as i32));
        Value::Message(message)
    }

    fn spend(&mut self, values: usize) -> Result<(), FillError> {
        self.budget = self.budget.checked_sub(values).ok_or(FillError::Overlap)?;
        Ok(())
    }
}

/// A number as the value of a field; `None` if the field has no numbers.
fn converted(kind: &Kind, scalar: Scalar) -> Option<Value> {
    Some(match kind {
        Kind::Double => Value::F64(as_float(scalar)),
        Kind::Float => Value::F32(as_float(scalar) as f32),
        Kind::Bool => Value::Bool(as_float(scalar) != 0.0),
        Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => Value::I32(as_integer(scalar) as i32),
        Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => Value::I64(as_integer(scalar) as i64),
        Kind::Uint32 | Kind::Fixed32 => Value::U32(as_integer(scalar) as u32),
        Kind::Uint64 | Kind::Fixed64 => Value::U64(as_integer(scalar) as u64),
        Kind::Enum(_) => Value::EnumNumber(as_integer(scalar) as i32),
        Kind::String | Kind::Bytes | Kind::Message(_) => return None,
    })
}

fn as_float(scalar: Scalar) -> f64 {
    match scalar {
        Scalar::Bool(value) => f64::from(u8::from(value)),
        Scalar::Integer(value) => value as f64,
        Scalar::Unsigned(value) => value as f64,
        Scalar::Float(value) => value,
    }
}

fn as_integer(scalar: Scalar) -> i128 {
    match scalar {
        Scalar::Bool(value) => value.into(),
        Scalar::Integer(value) => value.into(),
        Scalar::Unsigned(value) => value.into(),
        Scalar::Float(value) => value as i128,
    }
}
