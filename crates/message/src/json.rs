//! JSON values from dataflow files and control messages, as samples. They equal the samples that a
//! Python node would send for the same values.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow_data::ArrayData;
use arrow_schema::{ArrowError, DataType, Field, Fields};
use serde_json::Value;

use crate::array::{ArraySample, PlanError};
use crate::encode::Encode;
use crate::layout::{Layout, Scalar};
use crate::schema::{Schema, SchemaError};

/// Metadata key in the schema of an array that was made of a Python object. The value is `list` or
/// `dict`.
pub const PYTHON_KIND: &str = "nervure.python";
/// Limit on the nesting of lists and maps.
const MAX_DEPTH: usize = 28;

/// A JSON value that can be sent. Text becomes text, numbers and truth values become scalars, a
/// list an array of its elements. A map becomes an array of one struct, and null an array of one
/// null.
///
/// ```
/// use nervure_message::{Encode, JsonSample, Layout};
/// use serde_json::json;
///
/// let stop = JsonSample::new(&json!({"linear": [0.0, 0.0], "brake": true}))?;
/// assert!(stop.schema().is_some());
/// assert!(matches!(stop.layout(), Layout::Array(_)));
/// # Ok::<(), nervure_message::JsonError>(())
/// ```
#[derive(Debug)]
pub struct JsonSample(Content);

#[derive(Debug)]
enum Content {
    Scalar(Scalar),
    Text(String),
    Array { array: ArrayData, schema: Schema },
}

/// Why a JSON value cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum JsonError {
    /// A list has elements of different types.
    #[error(
        "the elements of a list, and what maps of a list have under one key, must be of one type: {found} stands beside {first}"
    )]
    Mixed {
        /// Type of the first element.
        first: &'static str,
        /// Type of an element that differs.
        found: &'static str,
    },
    /// Integers of a list do not fit a common 64-bit type.
    #[error("the integers of a list do not fit 64 bits together")]
    Integers,
    /// The value is nested too deeply.
    #[error("the value nests more than {MAX_DEPTH} lists and maps")]
    Depth,
    /// The value's type exceeds the limits of schemas.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// Arrow refuses the array.
    #[error(transparent)]
    Array(#[from] ArrowError),
    /// The array cannot be sent.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

impl JsonSample {
    /// Prepares a value.
    ///
    /// # Errors
    /// If a list has elements of different types, or the value is nested too deeply or too large.
    pub fn new(value: &Value) -> Result<Self, JsonError> {
        Ok(Self(match value {
            Value::Bool(value) => Content::Scalar(Scalar::Bool(*value)),
            Value::Number(number) => Content::Scalar(scalar(number)),
            Value::String(text) => Content::Text(text.clone()),
            Value::Array(items) => array(&items.iter().map(Some).collect::<Vec<_>>(), "list")?,
            Value::Null => array(&[None], "dict")?,
            Value::Object(_) => array(&[Some(value)], "dict")?,
        }))
    }

    /// Calls `with` with the value as its kind.
    fn encoded<R>(&self, with: impl FnOnce(&dyn Encode) -> R) -> R {
        match &self.0 {
            Content::Scalar(scalar) => with(scalar),
            Content::Text(text) => with(text),
            Content::Array { array, schema } => {
                with(&ArraySample::new(array, schema).expect("checked in `new`"))
            }
        }
    }
}

impl Encode for JsonSample {
    fn layout(&self) -> Layout {
        self.encoded(|value| value.layout())
    }

    fn payload_bytes(&self) -> usize {
        self.encoded(|value| value.payload_bytes())
    }

    fn write(&self, payload: &mut [u8]) {
        self.encoded(|value| value.write(payload));
    }

    fn schema(&self) -> Option<&Schema> {
        if let Content::Array { schema, .. } = &self.0 {
            Some(schema)
        } else {
            None
        }
    }
}

fn scalar(number: &serde_json::Number) -> Scalar {
    match (number.as_i64(), number.as_u64()) {
        (Some(integer), _) => Scalar::Integer(integer),
        (None, Some(unsigned)) => Scalar::Unsigned(unsigned),
        (None, None) => Scalar::Float(number.as_f64().unwrap_or(f64::NAN)),
    }
}

fn array(values: &[Option<&Value>], kind: &str) -> Result<Content, JsonError> {
    let array = column(values, MAX_DEPTH)?;
    let field = Field::new("", array.data_type().clone(), true);
    let field = field.with_metadata(HashMap::from([(PYTHON_KIND.to_owned(), kind.to_owned())]));
    let schema = Schema::array(field)?;
    ArraySample::new(&array, &schema)?;
    Ok(Content::Array { array, schema })
}

/// An array of values of one type, with nulls.
fn column(values: &[Option<&Value>], depth_left: usize) -> Result<ArrayData, JsonError> {
    let depth_left = depth_left.checked_sub(1).ok_or(JsonError::Depth)?;
    let values: Vec<_> = values
        .iter()
        .map(|value| value.filter(|value| !value.is_null()))
        .collect();
    let present = || values.iter().flatten().copied();
    let Some(first) = present().next() else {
        return Ok(ArrayData::builder(DataType::Null)
            .len(values.len())
            .build()?);
    };
    if let Some(other) = present().find(|other| kind(other) != kind(first)) {
        return Err(JsonError::Mixed {
            first: kind(first),
            found: kind(other),
        });
    }
    let (data_type, buffers, children) = match first {
        Value::Bool(_) => {
            let bits = values
                .iter()
                .map(|value| value.and_then(Value::as_bool).unwrap_or(false));
            (
                DataType::Boolean,
                vec![bits.collect::<BooleanBuffer>().into_inner()],
                vec![],
            )
        }
        Value::Number(_) => numbers(&values)?,
        Value::String(_) => {
            let (mut ends, mut bytes) = (vec![0_i64], Vec::new());
            for value in &values {
                bytes.extend_from_slice(
                    value.and_then(Value::as_str).unwrap_or_default().as_bytes(),
                );
                ends.push(bytes.len() as i64);
            }
            (
                DataType::LargeUtf8,
                vec![Buffer::from_vec(ends), Buffer::from_vec(bytes)],
                vec![],
            )
        }
        Value::Array(_) => {
            let (mut ends, mut items) = (vec![0_i64], Vec::new());
            for value in &values {
                items.extend(
                    value
                        .and_then(Value::as_array)
                        .into_iter()
                        .flatten()
                        .map(Some),
                );
                ends.push(items.len() as i64);
            }
            let items = column(&items, depth_left)?;
            let field = Field::new("item", items.data_type().clone(), true);
            (
                DataType::LargeList(Arc::new(field)),
                vec![Buffer::from_vec(ends)],
                vec![items],
            )
        }
        Value::Object(_) | Value::Null => {
            let (fields, children) = fields(&values, depth_left)?;
            (DataType::Struct(fields), vec![], children)
        }
    };
    let mut array = ArrayData::builder(data_type)
        .len(values.len())
        .buffers(buffers)
        .child_data(children);
    let nulls = NullBuffer::new(values.iter().map(Option::is_some).collect());
    if nulls.null_count() > 0 {
        array = array.nulls(Some(nulls));
    }
    Ok(array.build()?)
}

type Built = (DataType, Vec<Buffer>, Vec<ArrayData>);

/// Integers, or floats if one of them is a float.
fn numbers(values: &[Option<&Value>]) -> Result<Built, JsonError> {
    let all = |is: fn(&Value) -> bool| values.iter().flatten().all(|value| is(value));
    let or_zero = |value: &Option<&Value>| value.and_then(Value::as_f64).unwrap_or(0.0);
    Ok(if all(Value::is_i64) {
        let numbers: Vec<_> = values
            .iter()
            .map(|it| it.and_then(Value::as_i64).unwrap_or(0))
            .collect();
        (DataType::Int64, vec![Buffer::from_vec(numbers)], vec![])
    } else if all(Value::is_u64) {
        let numbers: Vec<_> = values
            .iter()
            .map(|it| it.and_then(Value::as_u64).unwrap_or(0))
            .collect();
        (DataType::UInt64, vec![Buffer::from_vec(numbers)], vec![])
    } else if values.iter().flatten().any(|value| value.is_f64()) {
        (
            DataType::Float64,
            vec![Buffer::from_vec(
                values.iter().map(or_zero).collect::<Vec<_>>(),
            )],
            vec![],
        )
    } else {
        return Err(JsonError::Integers);
    })
}

/// The columns of maps. A missing key is a null.
fn fields(
    values: &[Option<&Value>],
    depth_left: usize,
) -> Result<(Fields, Vec<ArrayData>), JsonError> {
    let maps = || {
        values
            .iter()
            .flatten()
            .filter_map(|value| value.as_object())
    };
    let mut names: Vec<&String> = Vec::new();
    for name in maps().flat_map(serde_json::Map::keys) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let (mut types, mut children) = (Vec::new(), Vec::new());
    for name in names {
        let rows: Vec<_> = values
            .iter()
            .map(|value| value.and_then(|value| value.get(name)))
            .collect();
        let child = column(&rows, depth_left)?;
        types.push(Field::new(name, child.data_type().clone(), true));
        children.push(child);
    }
    Ok((Fields::from(types), children))
}

/// Name of the value's type, for error messages.
fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a map",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn data_type(value: &Value) -> DataType {
        JsonSample::new(value)
            .unwrap()
            .schema()
            .expect("an array")
            .data_type()
            .clone()
    }

    #[test]
    fn plain_values_keep_their_kind() {
        assert_eq!(
            JsonSample::new(&json!(true)).unwrap().layout(),
            Layout::Scalar(Scalar::Bool(true))
        );
        assert_eq!(
            JsonSample::new(&json!(-3)).unwrap().layout(),
            Layout::Scalar(Scalar::Integer(-3))
        );
        let most = JsonSample::new(&json!(u64::MAX)).unwrap().layout();
        assert_eq!(most, Layout::Scalar(Scalar::Unsigned(u64::MAX)));
        assert_eq!(
            JsonSample::new(&json!(0.5)).unwrap().layout(),
            Layout::Scalar(Scalar::Float(0.5))
        );
        let text = JsonSample::new(&json!("stop")).unwrap();
        let mut payload = vec![0; text.payload_bytes()];
        text.write(&mut payload);
        assert_eq!(
            (text.layout(), payload.as_slice()),
            (Layout::Text, b"stop".as_slice())
        );
    }

    #[test]
    fn lists_of_several_types_are_refused() {
        assert_eq!(data_type(&json!([1, 2])), DataType::Int64);
        assert_eq!(data_type(&json!([1, 2.5])), DataType::Float64);
        assert_eq!(data_type(&json!([1, u64::MAX])), DataType::UInt64);
        assert_eq!(data_type(&json!([null, "a"])), DataType::LargeUtf8);
        assert_eq!(data_type(&json!([])), DataType::Null);
        assert_eq!(data_type(&json!(null)), DataType::Null);
        let error = JsonSample::new(&json!([1, "two"])).unwrap_err().to_string();
        assert!(error.ends_with("text stands beside a number"), "{error}");
        assert!(matches!(
            JsonSample::new(&json!([-1, u64::MAX])),
            Err(JsonError::Integers)
        ));
    }

    #[test]
    fn maps_and_lists_nest() {
        let value =
            json!({"poses": [{"x": 1.0}, {"x": 2, "name": "b"}], "ok": false, "none": null});
        let DataType::Struct(fields) = data_type(&value) else {
            panic!("a map is a struct")
        };
        let names: Vec<_> = fields.iter().map(|field| field.name().as_str()).collect();
        assert_eq!(names, ["none", "ok", "poses"]);
        let sample = JsonSample::new(&value).unwrap();
        let mut payload = vec![0; sample.payload_bytes()];
        sample.write(&mut payload);
        let deep = (0..40).fold(json!(1), |inner, _| json!([inner]));
        assert!(matches!(JsonSample::new(&deep), Err(JsonError::Depth)));
    }
}
