//! The value of a sample as text and as JSON.

use std::fmt;

use arrow_data::ArrayData;
use arrow_schema::{DataType, Field};
use nervure_node::{
    Sample, SampleError, Value as MetadataValue,
    message::{DType, Layout, PYTHON_KIND, Scalar, Schema, TensorColumn, TensorLayout, ViewError},
};
use serde_json::{Map, Value, json};

use super::tensor::{Statistics, elements, readable_name};

/// Limits on the shown part of a value.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Maximum number of items of a list, or elements of a tensor.
    pub items: usize,
    /// Maximum length of a text in bytes.
    pub text_bytes: usize,
}

impl Limits {
    /// A few lines.
    pub const SHORT: Self = Self {
        items: 8,
        text_bytes: 400,
    };
    /// No limits.
    pub const NONE: Self = Self {
        items: usize::MAX,
        text_bytes: usize::MAX,
    };
}

/// A value, or the beginning of one.
#[derive(Clone, Debug, PartialEq)]
pub enum Shown {
    /// Null, a truth value or a number.
    Plain(Value),
    /// A text, and how many more bytes it has.
    Text(String, usize),
    /// The first bytes, and how many there are.
    Bytes(Vec<u8>, usize),
    /// A list, and how many more items it has.
    List(Vec<Shown>, usize),
    /// Named values.
    Row(Vec<(String, Shown)>),
    /// A tensor.
    Tensor(ShownTensor),
}

/// The shown part of a tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct ShownTensor {
    shape: Vec<usize>,
    dtype: DType,
    /// `None` if the elements are not real numbers.
    statistics: Option<Statistics>,
    /// The first elements in C order, unless it is an image.
    begin: Vec<f64>,
}

/// The value of a sample.
pub fn shown(sample: &Sample, limits: Limits) -> Result<Shown, SampleError> {
    Ok(match sample.layout()? {
        Layout::Bytes => bytes(sample.bytes(), limits),
        Layout::Text => text(&sample.text()?, limits),
        Layout::Scalar(scalar) => Shown::Plain(plain(*scalar)),
        Layout::Tensor(layout) => {
            sample.view()?;
            tensor(layout, sample.bytes(), limits)
        }
        Layout::Array(_) => {
            let array = sample.array()?;
            let schema = sample.schema()?.ok_or(ViewError::SchemaMissing)?;
            if array.len() == 1 && is_map(&schema) {
                return Ok(item(schema.root(), &array, 0, limits));
            }
            items(schema.root(), &array, 0..array.len(), limits)
        }
    })
}

/// True for an array that represents one map: a Python node sends a dict in this form.
fn is_map(schema: &Schema) -> bool {
    schema
        .root()
        .metadata()
        .get(PYTHON_KIND)
        .is_some_and(|kind| kind == "dict")
}

/// A value of the metadata.
pub fn shown_metadata(value: &MetadataValue, limits: Limits) -> Shown {
    match value {
        MetadataValue::Bool(value) => Shown::Plain((*value).into()),
        MetadataValue::Integer(value) => Shown::Plain((*value).into()),
        MetadataValue::Float(value) => Shown::Plain(number(*value)),
        MetadataValue::Text(value) => text(value, limits),
        MetadataValue::Bytes(value) => bytes(value, limits),
        MetadataValue::Integers(values) => list(
            values.iter().map(|value| Shown::Plain((*value).into())),
            values.len(),
            limits,
        ),
        MetadataValue::Floats(values) => list(
            values.iter().map(|value| Shown::Plain(number(*value))),
            values.len(),
            limits,
        ),
        MetadataValue::Texts(values) => list(
            values.iter().map(|value| text(value, limits)),
            values.len(),
            limits,
        ),
    }
}

/// True for a tensor that is shown by its statistics alone.
pub fn is_image(layout: &TensorLayout) -> bool {
    const SMALLEST_SIDE: usize = 16;
    match layout.shape() {
        [height, width] | [height, width, 1..=4] => {
            *height >= SMALLEST_SIDE && *width >= SMALLEST_SIDE
        }
        _ => false,
    }
}

impl Shown {
    /// The value as JSON.
    pub fn json(&self) -> Value {
        match self {
            Self::Plain(value) => value.clone(),
            Self::Text(text, 0) => text.clone().into(),
            Self::Text(begin, more) => json!({"text_bytes": begin.len() + more, "begin": begin}),
            Self::Bytes(begin, bytes) => json!({"bytes": bytes, "begin_hex": hexadecimal(begin)}),
            Self::List(items, 0) => items.iter().map(Self::json).collect(),
            Self::List(items, more) => {
                let begin: Vec<_> = items.iter().map(Self::json).collect();
                json!({"items": items.len() + more, "begin": begin})
            }
            Self::Row(fields) => Value::Object(
                fields
                    .iter()
                    .map(|(name, value)| (name.clone(), value.json()))
                    .collect(),
            ),
            Self::Tensor(tensor) => tensor.json(),
        }
    }
}

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(value) => write!(f, "{value}"),
            Self::Text(text, 0) => write!(f, "{}", Value::from(text.as_str())),
            Self::Text(begin, more) => {
                write!(f, "{}.. {more} more bytes", Value::from(begin.as_str()))
            }
            Self::Bytes(begin, bytes) => {
                let dots = if begin.len() < *bytes { " .." } else { "" };
                write!(f, "{bytes} bytes: {}{dots}", hexadecimal(begin))
            }
            Self::List(items, more) => {
                let mut items: Vec<_> = items.iter().map(ToString::to_string).collect();
                if *more > 0 {
                    items.push(format!(".. {more} more"));
                }
                write!(f, "[{}]", items.join(", "))
            }
            Self::Row(fields) => {
                let fields: Vec<_> = fields
                    .iter()
                    .map(|(name, value)| format!("{name}: {value}"))
                    .collect();
                write!(f, "{{{}}}", fields.join(", "))
            }
            Self::Tensor(tensor) => tensor.fmt(f),
        }
    }
}

impl ShownTensor {
    fn json(&self) -> Value {
        let mut object = Map::new();
        object.insert("shape".to_owned(), json!(self.shape));
        object.insert("dtype".to_owned(), readable_name(&self.dtype).into());
        if let Some(statistics) = &self.statistics {
            for (name, value) in [
                ("min", statistics.min),
                ("max", statistics.max),
                ("mean", statistics.mean),
            ] {
                object.insert(name.to_owned(), number(value));
            }
            if statistics.not_finite > 0 {
                object.insert("not_finite".to_owned(), statistics.not_finite.into());
            }
        }
        if !self.begin.is_empty() {
            object.insert(
                "begin".to_owned(),
                self.begin.iter().map(|value| number(*value)).collect(),
            );
        }
        Value::Object(object)
    }
}

impl fmt::Display for ShownTensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape: Vec<_> = self.shape.iter().map(ToString::to_string).collect();
        write!(f, "{} {}", readable_name(&self.dtype), shape.join("x"))?;
        if let Some(statistics) = &self.statistics {
            let Statistics {
                min,
                max,
                mean,
                not_finite,
            } = statistics;
            write!(
                f,
                ", min {}, max {}, mean {}",
                short(*min),
                short(*max),
                short(*mean)
            )?;
            if *not_finite > 0 {
                write!(f, ", {not_finite} not finite")?;
            }
        }
        if !self.begin.is_empty() {
            let count: usize = self.shape.iter().product();
            let begin: Vec<_> = self.begin.iter().map(|value| short(*value)).collect();
            let dots = if self.begin.len() < count { " .." } else { "" };
            write!(f, ": {}{dots}", begin.join(" "))?;
        }
        Ok(())
    }
}

pub fn tensor(layout: &TensorLayout, payload: &[u8], limits: Limits) -> Shown {
    let shown = if is_image(layout) { 0 } else { limits.items };
    let begin = elements(layout, payload)
        .map(|numbers| numbers.take(shown).collect())
        .unwrap_or_default();
    Shown::Tensor(ShownTensor {
        shape: layout.shape().to_vec(),
        dtype: layout.dtype().clone(),
        statistics: elements(layout, payload).and_then(Statistics::of),
        begin,
    })
}

pub fn text(text: &str, limits: Limits) -> Shown {
    let mut end = text.len().min(limits.text_bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    Shown::Text(text[..end].to_owned(), text.len() - end)
}

pub fn bytes(bytes: &[u8], limits: Limits) -> Shown {
    const A_LINE: usize = 32;
    let shown = if limits.items == usize::MAX {
        bytes.len()
    } else {
        bytes.len().min(A_LINE)
    };
    Shown::Bytes(bytes[..shown].to_vec(), bytes.len())
}

pub fn list(items: impl Iterator<Item = Shown>, count: usize, limits: Limits) -> Shown {
    let shown: Vec<_> = items.take(limits.items).collect();
    let more = count - shown.len();
    Shown::List(shown, more)
}

/// A number or truth value as JSON.
pub fn plain(scalar: Scalar) -> Value {
    match scalar {
        Scalar::Bool(value) => value.into(),
        Scalar::Integer(value) => value.into(),
        Scalar::Unsigned(value) => value.into(),
        Scalar::Float(value) => number(value),
    }
}

/// JSON has no infinities and NaN: they become text.
pub fn number(value: f64) -> Value {
    if value.is_finite() {
        value.into()
    } else {
        value.to_string().into()
    }
}

fn short(value: f64) -> String {
    let text = format!("{value:.4}");
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        &text
    };
    if value != 0.0 && (value.abs() < 1e-3 || value.abs() >= 1e9) {
        format!("{value:.3e}")
    } else {
        text.to_owned()
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An item of an Arrow array of that field.
fn item(field: &Field, array: &ArrayData, at: usize, limits: Limits) -> Shown {
    macro_rules! native {
        ($type:ty) => {
            Shown::Plain(array.buffer::<$type>(0)[at].into())
        };
    }
    if array.is_null(at) {
        return Shown::Plain(Value::Null);
    }
    match TensorColumn::new(field, array)
        .and_then(|tensors| tensors.map(|it| it.get(at)).transpose())
    {
        Ok(None) => {}
        Ok(Some(None)) => return Shown::Plain(Value::Null),
        Ok(Some(Some(found))) => return tensor(&found.layout, &found.elements, limits),
        Err(error) => return Shown::Text(format!("({error})"), 0),
    }
    match array.data_type() {
        DataType::Null => Shown::Plain(Value::Null),
        DataType::Boolean => {
            let bit = array.offset() + at;
            Shown::Plain((array.buffers()[0][bit / 8] >> (bit % 8) & 1 == 1).into())
        }
        DataType::Int8 => native!(i8),
        DataType::Int16 => native!(i16),
        DataType::Int32 | DataType::Date32 | DataType::Time32(_) => native!(i32),
        DataType::Int64
        | DataType::Date64
        | DataType::Time64(_)
        | DataType::Timestamp(_, _)
        | DataType::Duration(_) => native!(i64),
        DataType::UInt8 => native!(u8),
        DataType::UInt16 => native!(u16),
        DataType::UInt32 => native!(u32),
        DataType::UInt64 => native!(u64),
        DataType::Float32 => Shown::Plain(number(array.buffer::<f32>(0)[at].into())),
        DataType::Float64 => Shown::Plain(number(array.buffer::<f64>(0)[at])),
        DataType::Utf8 => text(&String::from_utf8_lossy(variable::<i32>(array, at)), limits),
        DataType::LargeUtf8 => text(&String::from_utf8_lossy(variable::<i64>(array, at)), limits),
        DataType::Binary => bytes(variable::<i32>(array, at), limits),
        DataType::LargeBinary => bytes(variable::<i64>(array, at), limits),
        DataType::List(field) | DataType::Map(field, _) => items(
            field,
            &array.child_data()[0],
            range::<i32>(array, at),
            limits,
        ),
        DataType::LargeList(field) => items(
            field,
            &array.child_data()[0],
            range::<i64>(array, at),
            limits,
        ),
        DataType::FixedSizeList(field, length) => {
            let length = usize::try_from(*length).unwrap_or(0);
            let begin = (array.offset() + at) * length;
            items(field, &array.child_data()[0], begin..begin + length, limits)
        }
        DataType::Struct(fields) => {
            let at = array.offset() + at;
            let values = fields.iter().zip(array.child_data());
            let shown =
                values.map(|(field, child)| (field.name().clone(), item(field, child, at, limits)));
            Shown::Row(shown.collect())
        }
        other => Shown::Text(format!("({other})"), 0),
    }
}

fn items(field: &Field, array: &ArrayData, range: std::ops::Range<usize>, limits: Limits) -> Shown {
    let range = range.start.min(array.len())..range.end.min(array.len());
    let count = range.len();
    list(
        range.map(|at| item(field, array, at, limits)),
        count,
        limits,
    )
}

/// The range of an item of variable length.
fn range<O: arrow_buffer::ArrowNativeType>(array: &ArrayData, at: usize) -> std::ops::Range<usize> {
    let offsets = array.buffer::<O>(0);
    offsets[at].as_usize()..offsets[at + 1].as_usize()
}

fn variable<O: arrow_buffer::ArrowNativeType>(array: &ArrayData, at: usize) -> &[u8] {
    array.buffers()[1]
        .as_slice()
        .get(range::<O>(array, at))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use nervure_node::{
        Encode, Tensor,
        message::{Column, Record, View, payload_buffer},
    };

    use super::*;

    #[test]
    fn long_values_are_shortened_with_a_count() {
        let limits = Limits {
            items: 2,
            text_bytes: 4,
        };
        let shown = text("h\u{e9}llo", limits);
        assert_eq!(shown.to_string(), "\"h\u{e9}l\".. 2 more bytes");
        assert_eq!(shown.json(), json!({"text_bytes": 6, "begin": "h\u{e9}l"}));
        let numbers = |limits| list((0..5).map(|n| Shown::Plain(n.into())), 5, limits);
        assert_eq!(numbers(limits).to_string(), "[0, 1, .. 3 more]");
        assert_eq!(numbers(limits).json(), json!({"items": 5, "begin": [0, 1]}));
        assert_eq!(numbers(Limits::NONE).json(), json!([0, 1, 2, 3, 4]));
        assert_eq!(
            bytes(&[1; 40], limits).to_string(),
            format!("40 bytes: {} ..", "01".repeat(32))
        );
    }

    #[test]
    fn an_image_is_its_size_and_statistics_and_a_small_tensor_its_numbers() {
        let layout = TensorLayout::contiguous(DType::U8, &[16, 16]).unwrap();
        let mut payload = vec![10; 256];
        payload[0] = 20;
        assert_eq!(
            tensor(&layout, &payload, Limits::SHORT).to_string(),
            "uint8 16x16, min 10, max 20, mean 10.0391"
        );
        let layout = TensorLayout::contiguous(DType::F32, &[3]).unwrap();
        let payload: Vec<u8> = [0.5f32, f32::NAN, -2.0]
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect();
        let shown = tensor(&layout, &payload, Limits::SHORT);
        assert_eq!(
            shown.to_string(),
            "float32 3, min -2, max 0.5, mean -0.75, 1 not finite: 0.5 NaN -2"
        );
        assert_eq!(shown.json()["begin"], json!([0.5, "NaN", -2.0]));
    }

    #[test]
    fn a_tensor_in_a_struct_is_shown_as_one_that_is_sent_alone() {
        let pixels = vec![10_u8; 16 * 16];
        let image = Tensor::new(&pixels, &[16, 16]).unwrap();
        let mut column = Column::default();
        let fields = column.begin_fields().unwrap();
        fields
            .field("img")
            .unwrap()
            .push_tensor(image.layout(), &image)
            .unwrap();
        fields.field("t").unwrap().push_float(1.5).unwrap();
        column.end_fields();
        let record = Record::new(column, "dict").unwrap();
        let mut payload = vec![0; record.payload_bytes()];
        record.write(&mut payload);
        let (schema, layout) = (record.schema().unwrap(), record.layout());
        let payload = payload_buffer(payload);
        let array = View::new(&layout, &payload)
            .unwrap()
            .array(Some(schema), &payload)
            .unwrap();
        let shown = item(schema.root(), &array, 0, Limits::SHORT);
        assert_eq!(
            shown.to_string(),
            "{img: uint8 16x16, min 10, max 10, mean 10, t: 1.5}"
        );
        assert_eq!(shown.json()["img"]["shape"], json!([16, 16]));
    }

    #[test]
    fn numbers_are_short() {
        let texts = [0.0, 1.0, 93.412_34, -0.5, 1e-6, 1.23e12, 1e308].map(short);
        assert_eq!(
            texts,
            [
                "0",
                "1",
                "93.4123",
                "-0.5",
                "1.000e-6",
                "1.230e12",
                "1.000e308"
            ]
        );
    }
}
