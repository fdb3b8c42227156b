//! JSON values from dataflow files and control messages, as samples. They equal the samples that a
//! Python node would send for the same values.

use serde_json::Value;

use crate::encode::Encode;
use crate::layout::{Layout, Scalar};
use crate::record::{Record, SerdeError, record_of};
use crate::schema::Schema;
use crate::tensor::Tensor;

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
/// # Ok::<(), nervure_message::SerdeError>(())
/// ```
#[derive(Debug)]
pub struct JsonSample(Content);

#[derive(Debug)]
enum Content {
    Scalar(Scalar),
    Text(String),
    Record(Record<Tensor<'static>>),
}

impl JsonSample {
    /// Prepares a value.
    ///
    /// # Errors
    /// If a list has elements of different types, or the value is nested too deeply or too large.
    pub fn new(value: &Value) -> Result<Self, SerdeError> {
        Ok(Self(match value {
            Value::Bool(value) => Content::Scalar(Scalar::Bool(*value)),
            Value::Number(number) => Content::Scalar(scalar(number)),
            Value::String(text) => Content::Text(text.clone()),
            Value::Null | Value::Array(_) | Value::Object(_) => {
                let no_tensor = &mut |_: &Tensor<'_>| unreachable!("JSON has no tensors");
                Content::Record(record_of(value, no_tensor)?)
            }
        }))
    }

    /// Calls `with` with the value as its kind.
    fn encoded<R>(&self, with: impl FnOnce(&dyn Encode) -> R) -> R {
        match &self.0 {
            Content::Scalar(scalar) => with(scalar),
            Content::Text(text) => with(text),
            Content::Record(record) => with(record),
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
        match &self.0 {
            Content::Record(record) => record.schema(),
            Content::Scalar(_) | Content::Text(_) => None,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::ColumnError;
    use arrow_schema::DataType;
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
            Err(SerdeError::Column {
                source: ColumnError::Integers,
                ..
            })
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
        let error = JsonSample::new(&deep).unwrap_err().to_string();
        assert!(error.contains("nests more than 28"), "{error}");
    }
}
