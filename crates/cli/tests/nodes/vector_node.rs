//! Writes or reads the vectors of `tests/vectors/vectors.py`, or writes damaged ones: the first argument
//! is `write`, `read` or `damage`.

use std::{
    collections::BTreeMap,
    error::Error,
    fs::{self, File},
    io::{BufWriter, Write},
    str::SplitWhitespace,
};

use arrow_buffer::Buffer;
use arrow_data::ArrayData;
use arrow_schema::{
    DataType, Field,
    ffi::{FFI_ArrowSchema, Flags},
};
use nervure_node::{
    Encode, Envelope, Event, Metadata, Node, Sample, Tensor,
    message::{
        ArraySample, DType, Layout, Scalar, Schema, TensorLayout, Value as MetadataValue,
        decode_head, encode_head,
    },
};

fn main() -> Result<(), Box<dyn Error>> {
    let vectors = read_vectors()?;
    let mut node = Node::connect()?;
    match std::env::args().nth(1).as_deref() {
        Some("write") => write(&node, &vectors),
        Some("read") => read(&mut node, &vectors),
        Some("damage") => damage(&node, &vectors),
        other => Err(format!("what is a {other:?}?").into()),
    }
}

struct Vector {
    number: i64,
    name: String,
    value: Value,
}

enum Value {
    Bytes(Vec<u8>),
    Text(String),
    Scalar(Scalar),
    Tensor(TensorLayout, Vec<u8>),
    /// Elements of a type that only NumPy has: their size, and the shape.
    Custom(usize, Vec<usize>),
    Arrow(Schema, ArrayData),
}

fn write(node: &Node, vectors: &[Vector]) -> Result<(), Box<dyn Error>> {
    for vector in vectors {
        let metadata: Metadata = [("vector", vector.number)].into_iter().collect();
        let envelope = Envelope::new().metadata(&metadata);
        vector.value.encode(|value| {
            node.send_with("out", value, &envelope)?;
            Ok(())
        })?;
    }
    Ok(())
}

impl Value {
    /// Calls a function with the value, if this language can send it.
    fn encode(
        &self,
        use_it: impl FnOnce(&dyn Encode) -> Result<(), Box<dyn Error>>,
    ) -> Result<(), Box<dyn Error>> {
        match self {
            Self::Bytes(bytes) => use_it(&&bytes[..]),
            Self::Text(text) => use_it(&&text[..]),
            Self::Scalar(scalar) => use_it(scalar),
            Self::Tensor(layout, bytes) => use_it(&Tensor::from_bytes(layout.clone(), bytes)?),
            Self::Custom(..) => Ok(()),
            Self::Arrow(schema, array) => use_it(&ArraySample::new(array, schema)?),
        }
    }
}

fn read(node: &mut Node, vectors: &[Vector]) -> Result<(), Box<dyn Error>> {
    let mut verdicts = BufWriter::new(File::create("verdicts-rust")?);
    let mut right: BTreeMap<String, u32> = BTreeMap::new();
    while let Some(event) = node.next() {
        let Event::Input { id, sample } = event else {
            continue;
        };
        match sample.metadata()?.get("vector") {
            Some(MetadataValue::Text(name)) => {
                let is_read = sample
                    .array()
                    .is_ok_and(|array| array.validate_full().is_ok());
                writeln!(
                    verdicts,
                    "{name} {}",
                    if is_read { "read" } else { "refused" }
                )?;
            }
            Some(MetadataValue::Integer(number)) => {
                let vector = vectors.iter().find(|vector| vector.number == *number);
                let vector = vector.ok_or("a sample of no vector")?;
                match vector.value.is_same(&sample) {
                    Ok(true) => *right.entry(id.to_string()).or_default() += 1,
                    Ok(false) => println!("wrong: {} of {id}", vector.name),
                    Err(error) => println!("wrong: {} of {id}: {error}", vector.name),
                }
            }
            other => return Err(format!("a sample of the vector {other:?}").into()),
        }
    }
    for (writer, count) in right {
        println!("{count} of {writer} are right");
    }
    Ok(())
}

impl Value {
    fn is_same(&self, sample: &Sample) -> Result<bool, Box<dyn Error>> {
        let view = sample.view()?;
        Ok(match self {
            Self::Bytes(bytes) => *view.layout() == Layout::Bytes && view.bytes() == bytes,
            Self::Text(text) => view.text()? == *text,
            // As text, so that not-a-number is the same as itself.
            Self::Scalar(scalar) => format!("{:?}", view.scalar()?) == format!("{scalar:?}"),
            Self::Custom(item_bytes, shape) => {
                let tensor = view.tensor()?;
                tensor.dtype().item_bytes() == *item_bytes && tensor.shape() == shape
            }
            Self::Tensor(layout, bytes) => {
                let tensor = view.tensor()?;
                tensor.dtype() == layout.dtype()
                    && tensor.shape() == layout.shape()
                    && elements(&tensor, tensor.bytes()).eq(elements(layout, bytes))
            }
            Self::Arrow(schema, array) => {
                let found = sample.array()?;
                let found_schema = sample.schema()?.ok_or("an array without a schema")?;
                found.validate_full()?;
                found_schema.data_type() == schema.data_type() && found == *array
            }
        })
    }
}

/// The elements of a tensor in C order.
fn elements<'a>(layout: &'a TensorLayout, bytes: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let strides = layout.strides();
    let size = layout.dtype().item_bytes();
    (0..layout.len()).map(move |element| {
        let mut left = element;
        let mut start = 0;
        for (length, stride) in layout.shape().iter().zip(&*strides).rev() {
            start += left % length * stride;
            left /= length;
        }
        &bytes[start..start + size]
    })
}

/// A value with other bytes than a node would write.
struct Damaged<'a> {
    layout: Layout,
    payload: Vec<u8>,
    schema: Option<&'a Schema>,
}

impl Encode for Damaged<'_> {
    fn layout(&self) -> Layout {
        self.layout.clone()
    }

    fn payload_bytes(&self) -> usize {
        self.payload.len()
    }

    fn write(&self, payload: &mut [u8]) {
        payload.copy_from_slice(&self.payload);
    }

    fn schema(&self) -> Option<&Schema> {
        self.schema
    }
}

/// Above this size, a value is not damaged.
const DAMAGED_BYTES_MAX: usize = 4096;
/// Words of the payload and bytes of the head that are overwritten.
const OVERWRITTEN_MAX: usize = 40;

/// Writes tensors and arrays with a byte of the head, a word of the payload, its length or the schema
/// replaced.
fn damage(node: &Node, vectors: &[Vector]) -> Result<(), Box<dyn Error>> {
    let other_schema = Schema::of_type(DataType::LargeUtf8)?;
    for vector in vectors {
        let schema = match &vector.value {
            Value::Tensor(..) => None,
            Value::Arrow(schema, _) => Some(schema),
            _ => continue,
        };
        let mut head = Vec::new();
        let mut payload = Vec::new();
        vector.value.encode(|value| {
            head = encode_head(value, &Metadata::new())?.to_vec();
            payload = vec![0; value.payload_bytes()];
            value.write(&mut payload);
            Ok(())
        })?;
        if payload.len() > DAMAGED_BYTES_MAX {
            continue;
        }
        let mut count = 0;
        let mut send = |head: &[u8], payload: &[u8], schema| -> Result<(), Box<dyn Error>> {
            // A node cannot send bytes that are no head.
            let Ok((layout, _)) = decode_head(head) else {
                return Ok(());
            };
            let name = format!("{}.{count}", vector.number);
            count += 1;
            let metadata: Metadata = [("vector", name.as_str())].into_iter().collect();
            let payload = payload.to_vec();
            let damaged = Damaged {
                layout,
                payload,
                schema,
            };
            node.send_with("out", &damaged, &Envelope::new().metadata(&metadata))?;
            Ok(())
        };
        for at in 1..head.len().min(OVERWRITTEN_MAX) {
            for byte in [0, 1, head[at].wrapping_add(1), 0x7f, head[at] ^ 0x80] {
                let mut head = head.clone();
                head[at] = byte;
                send(&head, &payload, schema)?;
            }
        }
        for at in 0..(payload.len() / 4).min(OVERWRITTEN_MAX) {
            for word in [u32::MAX, i32::MAX as u32, 1, 0x0101_0101] {
                let mut payload = payload.clone();
                payload[at * 4..][..4].copy_from_slice(&word.to_le_bytes());
                send(&head, &payload, schema)?;
            }
        }
        for length in [0, payload.len() / 2, payload.len().saturating_sub(1)] {
            send(&head, &payload[..length], schema)?;
        }
        send(&head, &[&payload[..], &[0; 8]].concat(), schema)?;
        send(&head, &payload, Some(&other_schema))?;
        send(&head, &payload, None)?;
    }
    Ok(())
}

/// Reads the vectors, whose form is described in `tests/vectors/vectors.py`.
fn read_vectors() -> Result<Vec<Vector>, Box<dyn Error>> {
    let blob = fs::read("vectors.bin")?;
    let lines = fs::read_to_string("vectors")?;
    let vector = |line: &str| -> Result<Vector, Box<dyn Error>> {
        let (words, name) = line.split_once(" | ").ok_or("a line without a name")?;
        let mut words = Words {
            words: words.split_whitespace(),
            blob: &blob,
        };
        Ok(Vector {
            number: words.number()?,
            name: name.to_owned(),
            value: words.value()?,
        })
    };
    lines.lines().map(vector).collect()
}

struct Words<'a> {
    words: SplitWhitespace<'a>,
    blob: &'a [u8],
}

impl<'a> Words<'a> {
    fn word(&mut self) -> Result<&'a str, Box<dyn Error>> {
        Ok(self.words.next().ok_or("a line is too short")?)
    }

    fn number<T: std::str::FromStr<Err: Error + 'static>>(&mut self) -> Result<T, Box<dyn Error>> {
        Ok(self.word()?.parse()?)
    }

    fn numbers(&mut self, count: usize) -> Result<Vec<usize>, Box<dyn Error>> {
        (0..count).map(|_| self.number()).collect()
    }

    fn range(&mut self) -> Result<Option<&'a [u8]>, Box<dyn Error>> {
        let Some((start, size)) = self.word()?.split_once(':') else {
            return Ok(None);
        };
        let bytes = self.blob[start.parse()?..].get(..size.parse()?);
        Ok(Some(bytes.ok_or("a range is outside")?))
    }

    fn text(&mut self) -> Result<&'a str, Box<dyn Error>> {
        Ok(std::str::from_utf8(self.range()?.unwrap_or_default())?)
    }

    fn value(&mut self) -> Result<Value, Box<dyn Error>> {
        Ok(match self.word()? {
            "bytes" => Value::Bytes(self.range()?.unwrap_or_default().to_vec()),
            "text" => Value::Text(self.text()?.to_owned()),
            "bool" => Value::Scalar(Scalar::Bool(self.word()? == "1")),
            "integer" => Value::Scalar(Scalar::Integer(self.number()?)),
            "unsigned" => Value::Scalar(Scalar::Unsigned(self.number()?)),
            "float" => Value::Scalar(Scalar::Float(f64::from_bits(self.number()?))),
            "tensor" => {
                let dtype: usize = self.number()?;
                let dtype = DTYPES.get(dtype).ok_or("an unknown dtype")?.clone();
                let dimensions = self.number()?;
                let shape = self.numbers(dimensions)?;
                let strides = self.numbers(dimensions)?;
                let layout = TensorLayout::strided(dtype, &shape, &strides)?;
                Value::Tensor(layout, self.range()?.unwrap_or_default().to_vec())
            }
            "custom" => {
                let item_bytes = self.number()?;
                let dimensions = self.number()?;
                Value::Custom(item_bytes, self.numbers(dimensions)?)
            }
            "arrow" => {
                let (schema, array) = self.array()?;
                let field = Field::try_from(&schema)?;
                let array = array.build(field.data_type())?;
                Value::Arrow(Schema::array(field)?, array)
            }
            other => return Err(format!("what is a {other}?").into()),
        })
    }

    fn array(&mut self) -> Result<(FFI_ArrowSchema, Array<'a>), Box<dyn Error>> {
        let (format, name) = (self.text()?, self.text()?);
        let flags = Flags::from_bits_truncate(self.number()?);
        let length = self.number()?;
        let _nulls: i64 = self.number()?;
        let offset = self.number()?;
        let buffers = (0..self.number()?)
            .map(|_| self.range())
            .collect::<Result<_, _>>()?;
        let children = (0..self.number()?)
            .map(|_| self.array())
            .collect::<Result<Vec<_>, _>>()?;
        let (mut types, mut children): (Vec<_>, Vec<_>) = children.into_iter().unzip();
        let dictionary = match self.word()? {
            "1" => Some(self.array()?),
            _ => None,
        };
        let dictionary = dictionary.map(|(schema, array)| {
            children.push(array);
            schema
        });
        let schema = FFI_ArrowSchema::try_new(format, std::mem::take(&mut types), dictionary)?
            .with_name(name)?
            .with_flags(flags)?;
        let array = Array {
            length,
            offset,
            buffers,
            children,
        };
        Ok((schema, array))
    }
}

/// The types of elements, by the codes of `nervure_dtype`.
const DTYPES: [DType; 15] = [
    DType::Bool,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
    DType::F16,
    DType::Bf16,
    DType::F32,
    DType::F64,
    DType::C64,
    DType::C128,
];

/// An array of Arrow's C data interface. A dictionary is the last child.
struct Array<'a> {
    length: usize,
    offset: usize,
    buffers: Vec<Option<&'a [u8]>>,
    children: Vec<Array<'a>>,
}

impl Array<'_> {
    fn build(&self, data_type: &DataType) -> Result<ArrayData, Box<dyn Error>> {
        let layout = arrow_data::layout(data_type);
        let mut buffers = self
            .buffers
            .iter()
            .map(|bytes| bytes.map(|bytes| Buffer::from(bytes.to_vec())));
        let validity = match layout.can_contain_null_mask {
            true => buffers.next().flatten(),
            false => None,
        };
        let mut buffers: Vec<Buffer> = buffers.map(Option::unwrap_or_default).collect();
        if layout.variadic {
            // The sizes of the others.
            buffers.pop();
        }
        let children = self.children.iter().zip(children(data_type));
        let children = children
            .map(|(child, data_type)| child.build(&data_type))
            .collect::<Result<_, _>>()?;
        let array = ArrayData::builder(data_type.clone())
            .len(self.length)
            .offset(self.offset)
            .null_bit_buffer(validity)
            .buffers(buffers)
            .child_data(children)
            .align_buffers(true);
        Ok(array.build()?)
    }
}

fn children(data_type: &DataType) -> Vec<DataType> {
    match data_type {
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => vec![item.data_type().clone()],
        DataType::Struct(fields) => fields.iter().map(|one| one.data_type().clone()).collect(),
        DataType::Union(fields, _) => fields
            .iter()
            .map(|(_, one)| one.data_type().clone())
            .collect(),
        DataType::RunEndEncoded(ends, values) => {
            vec![ends.data_type().clone(), values.data_type().clone()]
        }
        DataType::Dictionary(_, values) => vec![(**values).clone()],
        _ => Vec::new(),
    }
}
