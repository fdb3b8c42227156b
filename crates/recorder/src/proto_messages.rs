//! Messages in protobuf as samples, for playing recordings of Foxglove and others.
//!
//! The definition is the `FileDescriptorSet` of the channel. A message becomes an Arrow struct with the
//! names and nesting of its fields; images, compressed images and point clouds of Foxglove become what
//! those of ROS become. Messages are untrusted.

mod columns;

use std::borrow::Cow;
use std::sync::Arc;

use arrow_schema::{ArrowError, DataType, Field as ArrowField, Fields};
use nervure_message::array::PlanError;
use nervure_message::{ArraySample, DType, Encode, Metadata, Schema, SchemaError};
use prost_reflect::prost::DecodeError;
use prost_reflect::{
    Cardinality, DescriptorError, DescriptorPool, DynamicMessage, FieldDescriptor, Kind,
    MessageDescriptor, Value,
};

use crate::channel::Channel;
use crate::ros::{
    Cloud, Content, MessageError, Picture, PointField, RosHeader, compressed_content,
};

/// Decodes the messages of a channel into samples.
#[derive(Clone, Debug)]
pub(crate) struct ProtoChannel {
    message: MessageDescriptor,
    becomes: Becomes,
}

#[derive(Clone, Debug)]
enum Becomes {
    Image,
    CompressedImage,
    Cloud,
    Struct(Schema),
}

/// Why the messages of a channel cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub enum ProtoChannelError {
    /// The definition is in another language.
    #[error("its messages are defined as {0:?}, only protobuf is read")]
    Encoding(String),
    /// The definition is damaged.
    #[error("its definition is no set of protobuf descriptors: {0}")]
    Descriptors(#[from] DescriptorError),
    /// The definition has no such message.
    #[error("its definition does not define the message `{0}`")]
    Missing(String),
    /// A message contains itself.
    #[error("the message `{0}` contains itself, which an Arrow array cannot")]
    Recursive(String),
    /// The entry of a map is no pair.
    #[error("the entries of the map `{0}` are not a key (field 1) and a value (field 2)")]
    Map(String),
    /// The type has too many fields, or is nested too deep.
    #[error(
        "its definition has more than {MAX_FIELDS} fields, or is nested deeper than {MAX_DEPTH}"
    )]
    TooLarge,
    /// The type exceeds the limits of schemas.
    #[error(transparent)]
    Schema(#[from] SchemaError),
}

/// Why a message cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub enum ProtoMessageError {
    /// It does not match its definition.
    #[error("the message is no protobuf of its definition: {0}")]
    Decode(#[from] DecodeError),
    /// An image or point cloud is not whole.
    #[error(transparent)]
    Content(#[from] MessageError),
    /// Arrow refuses the array.
    #[error(transparent)]
    Array(#[from] ArrowError),
    /// The array cannot be laid out in a payload.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

impl ProtoChannel {
    /// Prepares decoding of the messages of a channel; `None` unless they are in protobuf.
    pub fn new(channel: &Channel) -> Option<Result<Self, ProtoChannelError>> {
        (channel.message_encoding == "protobuf").then(|| Self::of_definition(channel))
    }

    fn of_definition(channel: &Channel) -> Result<Self, ProtoChannelError> {
        if channel.schema_encoding != "protobuf" {
            return Err(ProtoChannelError::Encoding(channel.schema_encoding.clone()));
        }
        let pool = DescriptorPool::decode(&*channel.schema)?;
        let name = channel.schema_name.as_str();
        let message = pool
            .get_message_by_name(name)
            .ok_or_else(|| ProtoChannelError::Missing(name.to_owned()))?;
        let has = |fields: &[&str]| {
            let has_field = |name: &&str| message.get_field_by_name(name).is_some();
            fields.iter().all(has_field)
        };
        let becomes = match name {
            "foxglove.RawImage" if has(&["width", "height", "encoding", "step", "data"]) => {
                Becomes::Image
            }
            "foxglove.CompressedImage" if has(&["format", "data"]) => Becomes::CompressedImage,
            "foxglove.PointCloud" if has(&["point_stride", "fields", "data"]) => Becomes::Cloud,
            _ => {
                let data_type = Types::default().message(&message)?;
                Becomes::Struct(Schema::array(ArrowField::new("", data_type, false))?)
            }
        };
        Ok(Self { message, becomes })
    }

    /// The converted type of its messages, as text for users.
    pub fn describe(&self) -> &'static str {
        match self.becomes {
            Becomes::Image => "tensor (image)",
            Becomes::CompressedImage => "bytes (image)",
            Becomes::Cloud => "tensor (points)",
            Becomes::Struct(_) => "Arrow struct",
        }
    }

    /// The schema of its samples, if they are Arrow arrays.
    pub fn schema(&self) -> Option<&Schema> {
        match &self.becomes {
            Becomes::Struct(schema) => Some(schema),
            Becomes::Image | Becomes::CompressedImage | Becomes::Cloud => None,
        }
    }

    /// Decodes a message.
    pub fn read(&self, bytes: &[u8]) -> Result<Content<'static>, ProtoMessageError> {
        let message = DynamicMessage::decode(self.message.clone(), bytes)?;
        let header = header_of(&message)?;
        let content = match &self.becomes {
            Becomes::Image => {
                let data = data_of(&message);
                let picture = Picture {
                    header,
                    height: number(&message, "height"),
                    width: number(&message, "width"),
                    encoding: text(&message, "encoding", "encoding")?,
                    is_big_endian: false,
                    step: number(&message, "step"),
                    data: &data,
                };
                owned(picture.content()?)
            }
            Becomes::CompressedImage => {
                let format = text(&message, "format", "format")?;
                compressed_content(header, format, Cow::Owned(data_of(&message).to_vec()))
            }
            Becomes::Cloud => {
                let data = data_of(&message);
                let point_step = number(&message, "point_stride");
                let points = data.len().checked_div(point_step).unwrap_or(0);
                let cloud = Cloud {
                    header,
                    height: 1,
                    width: points,
                    fields: point_fields(&message)?,
                    is_big_endian: false,
                    point_step,
                    row_step: data.len(),
                    data: &data,
                };
                owned(cloud.content()?)
            }
            Becomes::Struct(schema) => {
                let array = columns::structs(schema.data_type(), &self.message, &[Some(&message)])?;
                let sample = ArraySample::new(&array, schema)?;
                let mut payload = vec![0; sample.payload_bytes()];
                sample.write(&mut payload);
                Content {
                    header,
                    layout: Encode::layout(&sample),
                    metadata: Metadata::new(),
                    payload: Cow::Owned(payload),
                }
            }
        };
        Ok(content)
    }
}

fn owned(content: Content<'_>) -> Content<'static> {
    Content {
        payload: Cow::Owned(content.payload.into_owned()),
        ..content
    }
}

/// The stamp and frame in the fields that Foxglove's messages have for them.
fn header_of(message: &DynamicMessage) -> Result<RosHeader, MessageError> {
    let stamp = message.get_field_by_name("timestamp");
    let stamp = stamp.as_deref().and_then(Value::as_message);
    let part = |name| Some(stamp?.get_field_by_name(name)?.into_owned());
    let seconds = part("seconds").and_then(|seconds| seconds.as_i64());
    let nanos = part("nanos").and_then(|nanos| nanos.as_i32());
    let nanos = i64::from(nanos.unwrap_or(0));
    Ok(RosHeader {
        stamp: seconds
            .unwrap_or(0)
            .saturating_mul(1_000_000_000)
            .saturating_add(nanos),
        frame: text(message, "frame_id", "frame_id")?,
    })
}

fn text(message: &DynamicMessage, field: &str, what: &'static str) -> Result<String, MessageError> {
    let value = message.get_field_by_name(field);
    let text = value.as_deref().and_then(Value::as_str).unwrap_or("");
    crate::ros::short_text(text.as_bytes(), what)
}

fn number(message: &DynamicMessage, field: &str) -> usize {
    let value = message.get_field_by_name(field);
    value.and_then(|value| value.as_u32()).unwrap_or(0) as usize
}

fn data_of(message: &DynamicMessage) -> prost_reflect::bytes::Bytes {
    let value = message.get_field_by_name("data");
    let data = value.as_deref().and_then(Value::as_bytes);
    data.cloned().unwrap_or_default()
}

fn point_fields(message: &DynamicMessage) -> Result<Vec<PointField>, MessageError> {
    let fields = message.get_field_by_name("fields");
    let fields = fields.as_deref().and_then(Value::as_list).unwrap_or(&[]);
    let field = |field: &DynamicMessage| {
        let code = field.get_field_by_name("type");
        let code = code.and_then(|code| code.as_enum_number()).unwrap_or(0);
        Ok(PointField {
            name: text(field, "name", "name of a field")?,
            offset: number(field, "offset"),
            dtype: match code {
                1 => DType::U8,
                2 => DType::I8,
                3 => DType::U16,
                4 => DType::I16,
                5 => DType::U32,
                6 => DType::I32,
                7 => DType::F32,
                8 => DType::F64,
                code => {
                    return Err(MessageError::Cloud(format!(
                        "a field of it is of type {code}, which is unknown"
                    )));
                }
            },
            count: 1,
        })
    };
    fields
        .iter()
        .filter_map(Value::as_message)
        .map(field)
        .collect()
}

/// Limits of a definition: a small one can name a type without end.
const MAX_DEPTH: usize = 32;
const MAX_FIELDS: usize = 4096;

/// Derives the Arrow type of a message.
#[derive(Debug, Default)]
struct Types {
    /// The messages that contain the present one.
    within: Vec<String>,
    fields: usize,
}

impl Types {
    fn message(&mut self, message: &MessageDescriptor) -> Result<DataType, ProtoChannelError> {
        let name = message.full_name().to_owned();
        if self.within.contains(&name) {
            return Err(ProtoChannelError::Recursive(name));
        }
        let is_of_map = || message.fields().map(|field| field.number()).eq([1, 2]);
        if message.is_map_entry() && !is_of_map() {
            return Err(ProtoChannelError::Map(name));
        }
        self.fields += message.fields().len();
        if self.within.len() == MAX_DEPTH || self.fields > MAX_FIELDS {
            return Err(ProtoChannelError::TooLarge);
        }
        self.within.push(name);
        let fields: Result<Vec<_>, _> = message.fields().map(|field| self.field(&field)).collect();
        self.within.pop();
        Ok(DataType::Struct(Fields::from(fields?)))
    }

    fn field(&mut self, field: &FieldDescriptor) -> Result<ArrowField, ProtoChannelError> {
        let one = match field.kind() {
            Kind::Bool => DataType::Boolean,
            Kind::Int32 | Kind::Sint32 | Kind::Sfixed32 => DataType::Int32,
            Kind::Int64 | Kind::Sint64 | Kind::Sfixed64 => DataType::Int64,
            Kind::Uint32 | Kind::Fixed32 => DataType::UInt32,
            Kind::Uint64 | Kind::Fixed64 => DataType::UInt64,
            Kind::Float => DataType::Float32,
            Kind::Double => DataType::Float64,
            // An enum is the name of its value.
            Kind::String | Kind::Enum(_) => DataType::Utf8,
            Kind::Bytes => DataType::Binary,
            Kind::Message(message) => self.message(&message)?,
        };
        Ok(match field.cardinality() {
            Cardinality::Repeated => {
                let item = Arc::new(ArrowField::new_list_field(one, false));
                ArrowField::new(field.name(), DataType::List(item), false)
            }
            Cardinality::Optional | Cardinality::Required => {
                ArrowField::new(field.name(), one, field.supports_presence())
            }
        })
    }
}
