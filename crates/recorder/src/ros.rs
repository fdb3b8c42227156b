//! Messages of ROS 2 as samples, for playing bags of `rosbag2`.
//!
//! The definitions of messages are read from the file, so every type can be decoded. (Crates with generated types support a fixed set of packages of one distribution; CDR
//! itself is a page of code.) Images and point clouds become tensors without a copy. Messages are
//! untrusted: lengths and counts are checked against the bytes that are there.

mod columns;
mod content;
mod definition_files;
mod pictures;
mod points;

use std::borrow::Cow;
use std::sync::Arc;

use arrow_schema::Field;
use nervure_message::{ArraySample, Encode, Layout, Metadata, Scalar, Schema, SchemaError};

use nervure_types::cdr::Reader;
use nervure_types::{
    Definition, DefinitionError, Format, Kind, Library, Number, Sections, humble, plain_name,
    unchanged,
};

use crate::channel::Channel;
use columns::Column;

pub use content::MessageError;
pub(crate) use content::{Content, RosHeader, short_text};
pub use definition_files::{Definitions, DefinitionsError};
pub(crate) use pictures::{Picture, compressed_content};
pub(crate) use points::{Cloud, PointField};

/// Decodes the messages of a channel into samples.
#[derive(Clone, Debug)]
pub(crate) struct RosChannel {
    becomes: Becomes,
    has_header: bool,
    origin: DefinitionOrigin,
}

/// Where the definition of a type is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefinitionOrigin {
    /// The recording.
    Recording,
    /// Files that were given, see [`Definitions`].
    Files,
    /// The definitions of ROS 2 Humble in this crate, since the recording has none.
    Humble,
}

impl std::fmt::Display for DefinitionOrigin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Recording => "that of the recording",
            Self::Files => "that of the given files",
            Self::Humble => "that of ROS 2 Humble, since the recording has none",
        })
    }
}

#[derive(Clone, Debug)]
enum Becomes {
    Image,
    CompressedImage,
    Cloud,
    Text,
    Scalar(Kind),
    Struct {
        definition: Arc<Definition>,
        schema: Schema,
    },
}

/// Why the messages of a channel cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub enum RosChannelError {
    /// The definition is in another language.
    #[error("its messages are defined as {0:?}, only ros2msg, ros2idl and omgidl are read")]
    Encoding(String),
    /// The definition cannot be used.
    #[error(transparent)]
    Definition(#[from] DefinitionError),
    /// The type exceeds the limits of schemas.
    #[error(transparent)]
    Schema(#[from] SchemaError),
}

impl RosChannel {
    /// Prepares decoding of the messages of a channel; `None` unless they are in CDR. Definitions in
    /// `given` take precedence over the channel's.
    pub(crate) fn new(
        channel: &Channel,
        given: &Definitions,
    ) -> Option<Result<Self, RosChannelError>> {
        (channel.message_encoding == "cdr").then(|| Self::of_definition(channel, given))
    }

    fn of_definition(channel: &Channel, given: &Definitions) -> Result<Self, RosChannelError> {
        let (definition, origin) = definition_of(channel, &given.sections)?;
        let has_header = matches!(definition.fields.first(), Some(first) if is_header(&first.kind));
        let is = |fields: &[(&str, &str)]| has_header && definition.has_fields(fields);
        let becomes = match (definition.name.as_str(), definition.fields.as_slice()) {
            ("sensor_msgs/Image", _) if is(&pictures::IMAGE_FIELDS) => Becomes::Image,
            ("sensor_msgs/CompressedImage", _) if is(&pictures::COMPRESSED_FIELDS) => {
                Becomes::CompressedImage
            }
            ("sensor_msgs/PointCloud2", [_, _, _, fields, ..])
                if is(&points::CLOUD_FIELDS) && points::is_list_of_fields(&fields.kind) =>
            {
                Becomes::Cloud
            }
            (_, [field]) if matches!(field.kind, Kind::Text(_)) => Becomes::Text,
            (_, [field]) if matches!(field.kind, Kind::Bool | Kind::Number(_)) => {
                Becomes::Scalar(field.kind.clone())
            }
            _ => {
                let root = Field::new("", columns::data_type(&definition), false);
                Becomes::Struct {
                    schema: Schema::array(root)?,
                    definition: definition.clone(),
                }
            }
        };
        Ok(Self {
            becomes,
            has_header,
            origin,
        })
    }

    /// Where the definition of its messages is from.
    pub(crate) fn origin(&self) -> DefinitionOrigin {
        self.origin
    }

    /// The converted type of its messages, as text for users.
    pub(crate) fn describe(&self) -> &'static str {
        match self.becomes {
            Becomes::Image => "tensor (image)",
            Becomes::CompressedImage => "bytes (image)",
            Becomes::Cloud => "tensor (points)",
            Becomes::Text => "text",
            Becomes::Scalar(_) => "number",
            Becomes::Struct { .. } => "Arrow struct",
        }
    }

    /// The schema of its samples, if they are Arrow arrays.
    pub(crate) fn schema(&self) -> Option<&Schema> {
        match &self.becomes {
            Becomes::Struct { schema, .. } => Some(schema),
            _ => None,
        }
    }

    /// Decodes a message.
    pub(crate) fn read<'a>(&self, message: &'a [u8]) -> Result<Content<'a>, MessageError> {
        let mut reader = Reader::new(message)?;
        let content = self.content(&mut reader)?;
        reader.finish()?;
        Ok(content)
    }

    fn content<'a>(&self, reader: &mut Reader<'a>) -> Result<Content<'a>, MessageError> {
        let header = match self.has_header {
            // On a clone, since the header is read again with the rest of the message.
            true => RosHeader::read(&mut reader.clone())?,
            false => RosHeader::default(),
        };
        let plain = |layout, payload| Content {
            header,
            layout,
            metadata: Metadata::new(),
            payload,
        };
        match &self.becomes {
            Becomes::Image => Picture::read(reader)?.content(),
            Becomes::CompressedImage => pictures::compressed(reader),
            Becomes::Cloud => Cloud::read(reader)?.content(),
            Becomes::Text => {
                let text = String::from_utf8_lossy(reader.text()?);
                let bytes = match text {
                    Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
                    Cow::Owned(text) => Cow::Owned(text.into_bytes()),
                };
                Ok(plain(Layout::Text, bytes))
            }
            Becomes::Scalar(kind) => Ok(plain(
                Layout::Scalar(scalar(reader, kind)?),
                Cow::Borrowed(&[]),
            )),
            Becomes::Struct { definition, schema } => {
                let mut column = Column::of_message(definition);
                column.read(reader, 1)?;
                let array = column.build(schema.data_type())?;
                let sample = ArraySample::new(&array, schema)?;
                let mut payload = vec![0; sample.payload_bytes()];
                sample.write(&mut payload);
                Ok(plain(Encode::layout(&sample), Cow::Owned(payload)))
            }
        }
    }
}

/// The type of a channel's messages. Bags of Humble and older in SQLite have no definitions, and some
/// writers omit generated types and their parts.
fn definition_of(
    channel: &Channel,
    given: &Sections,
) -> Result<(Arc<Definition>, DefinitionOrigin), RosChannelError> {
    // `omgidl` names types as IDL does: `package::msg::Name`.
    let name = plain_name(&channel.schema_name.replace("::", "/"));
    let find = |sources: &[&Sections], origin| {
        let definition = Library::new(sources).definition(&name)?;
        Ok((definition, origin))
    };
    let parse = |format| Sections::parse(&channel.schema_name, &channel.schema, format);
    let is_empty = channel.schema.trim_ascii().is_empty();
    let own = match channel.schema_encoding.as_str() {
        _ if given.has(&name) => None,
        // `rosbag2` of Jazzy stores services without other types in them as `unknown`.
        "" | "unknown" if is_empty => None,
        // A message without fields, unless the writer did not find the text.
        "ros2msg" if is_empty && humble().has(&name) => None,
        "" | "unknown" | "ros2msg" => Some(parse(Format::Message)?),
        "ros2idl" | "omgidl" => Some(parse(Format::Idl)?),
        encoding => return Err(RosChannelError::Encoding(encoding.to_owned())),
    };
    match own {
        Some(own) if own.has(&name) => {
            find(&[&own, given, unchanged()], DefinitionOrigin::Recording)
        }
        _ if given.has(&name) => find(&[given, humble()], DefinitionOrigin::Files),
        _ => find(&[humble()], DefinitionOrigin::Humble),
    }
}

fn is_header(kind: &Kind) -> bool {
    let Kind::Message(header) = kind else {
        return false;
    };
    header.name == "std_msgs/Header"
        && header.has_fields(&[("stamp", "builtin_interfaces/Time"), ("frame_id", "string")])
        && matches!(&header.fields[0].kind, Kind::Message(time)
            if time.has_fields(&[("sec", "int32"), ("nanosec", "uint32")]))
}

fn scalar(reader: &mut Reader<'_>, kind: &Kind) -> Result<Scalar, MessageError> {
    let Kind::Number(number) = kind else {
        return Ok(Scalar::Bool(reader.u8()? != 0));
    };
    let mut bytes = [0; 8];
    let found = reader.values(1, number.bytes())?;
    bytes[..found.len()].copy_from_slice(found);
    if reader.is_big_endian() {
        bytes[..found.len()].reverse();
    }
    let word = u64::from_le_bytes(bytes);
    Ok(match number {
        Number::I8 => Scalar::Integer(i64::from(word as i8)),
        Number::I16 => Scalar::Integer(i64::from(word as i16)),
        Number::I32 => Scalar::Integer(i64::from(word as i32)),
        Number::I64 => Scalar::Integer(word.cast_signed()),
        Number::U8 | Number::Byte | Number::Char | Number::U16 | Number::U32 => {
            Scalar::Integer(word.cast_signed())
        }
        Number::U64 => i64::try_from(word).map_or(Scalar::Unsigned(word), Scalar::Integer),
        Number::F32 => Scalar::Float(f64::from(f32::from_bits(word as u32))),
        Number::F64 => Scalar::Float(f64::from_bits(word)),
    })
}
