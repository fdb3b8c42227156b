//! A recorded sample, to be published again.

use std::borrow::Cow;

use nervure_message::{
    DecodeError, Encode, Header, JsonSample, Layout, Metadata, Schema, SerdeError, View, ViewError,
    decode_head,
};

use crate::channel::{Channel, Message};
use crate::envelope::{EnvelopeError, RecordedEnvelope};
use crate::hexadecimal;
use crate::proto_messages::{ProtoChannel, ProtoChannelError, ProtoMessageError};
use crate::recorder::{SCHEMA_KEY, TYPE_KEY, VERSION, VERSION_KEY};
use crate::ros::{
    Content, DefinitionOrigin, Definitions, MessageError, RosChannel, RosChannelError, RosHeader,
};

/// Decodes the messages of a channel.
#[derive(Clone, Debug)]
pub struct SampleChannel(Kind);

#[derive(Clone, Debug)]
enum Kind {
    /// Samples of Nervure, with the schema if they are Arrow arrays.
    Samples(Option<Schema>),
    /// Messages of ROS 2.
    Ros(Box<RosChannel>),
    /// Messages in protobuf.
    Proto(Box<ProtoChannel>),
    /// Values in JSON, with or without a schema.
    Json,
}

/// Why a message cannot be published as a sample.
#[derive(Debug, thiserror::Error)]
pub enum SampleReadError {
    /// The channel was not written by Nervure and holds messages of no known encoding.
    #[error("its channel holds {encoding} messages{}, not samples", named(.schema))]
    Foreign {
        /// Encoding of the messages.
        encoding: String,
        /// Name of the schema; may be empty.
        schema: String,
    },
    /// The channel was written by a later version of Nervure.
    #[error("its channel is written in version {found}, this build reads version {VERSION}")]
    Version {
        /// The version in the file.
        found: String,
    },
    /// The channel holds messages of ROS 2 whose definition cannot be used.
    #[error("its messages ({schema}) cannot be decoded: {source}")]
    RosChannel {
        /// Type of the messages.
        schema: String,
        /// The defect of the definition.
        source: RosChannelError,
    },
    /// A message of ROS 2 is damaged, or has another definition.
    #[error("{source}{}", of_definition(*.origin))]
    RosMessage {
        /// The defect.
        source: MessageError,
        /// Where the definition is from.
        origin: DefinitionOrigin,
    },
    /// The channel holds messages in protobuf whose definition cannot be used.
    #[error("its messages ({schema}) cannot be decoded: {source}")]
    ProtoChannel {
        /// Type of the messages.
        schema: String,
        /// The defect of the definition.
        source: ProtoChannelError,
    },
    /// A message in protobuf is damaged, or has another definition.
    #[error(transparent)]
    ProtoMessage(#[from] ProtoMessageError),
    /// A message is no JSON.
    #[error("the message is no JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// A value in JSON has no form as a sample.
    #[error(transparent)]
    JsonValue(#[from] SerdeError),
    /// The message has no envelope, or a damaged one.
    #[error(transparent)]
    RecordedEnvelope(#[from] EnvelopeError),
    /// Layout, metadata or schema are damaged.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The payload is shorter than its layout requires.
    #[error(transparent)]
    View(#[from] ViewError),
    /// The sample is an Arrow array of another schema than its channel.
    #[error("the sample is an Arrow array, and its schema is not that of its channel")]
    Schema,
}

fn of_definition(origin: DefinitionOrigin) -> String {
    match origin {
        DefinitionOrigin::Recording => String::new(),
        DefinitionOrigin::Files | DefinitionOrigin::Humble => {
            format!(" (the definition used is {origin})")
        }
    }
}

fn named(schema: &str) -> String {
    if schema.is_empty() {
        String::new()
    } else {
        format!(" ({schema})")
    }
}

/// A sample from a recording, as it was published.
#[derive(Clone, Debug)]
pub struct RecordedSample<'a> {
    header: Header,
    frame: Cow<'a, str>,
    layout: Layout,
    metadata: Metadata,
    payload: Cow<'a, [u8]>,
    schema: Option<Cow<'a, Schema>>,
}

impl SampleChannel {
    /// Prepares decoding of the messages of a channel.
    ///
    /// # Errors
    /// [`SampleReadError::Foreign`] if it holds neither samples of Nervure nor messages of ROS 2, protobuf or JSON;
    /// other variants if its description is damaged.
    pub fn new(channel: &Channel) -> Result<Self, SampleReadError> {
        Self::with_definitions(channel, &Definitions::default())
    }

    /// As [`Self::new`], with definitions that take precedence over the channel's.
    ///
    /// # Errors
    /// See [`Self::new`].
    pub fn with_definitions(
        channel: &Channel,
        definitions: &Definitions,
    ) -> Result<Self, SampleReadError> {
        match channel.metadata.get(VERSION_KEY) {
            None => return Self::foreign(channel, definitions),
            Some(version) if version == VERSION => {}
            Some(version) => {
                return Err(SampleReadError::Version {
                    found: version.clone(),
                });
            }
        }
        let schema = match channel.metadata.get(SCHEMA_KEY) {
            None => None,
            Some(text) => {
                let bytes = hexadecimal::decode(text).ok_or(SampleReadError::Schema)?;
                Some(Schema::decode(&bytes)?)
            }
        };
        Ok(Self(Kind::Samples(schema)))
    }

    fn foreign(channel: &Channel, definitions: &Definitions) -> Result<Self, SampleReadError> {
        if channel.message_encoding == "json" {
            return Ok(Self(Kind::Json));
        }
        if let Some(proto) = ProtoChannel::new(channel) {
            return match proto {
                Ok(proto) => Ok(Self(Kind::Proto(Box::new(proto)))),
                Err(source) => Err(SampleReadError::ProtoChannel {
                    schema: channel.schema_name.clone(),
                    source,
                }),
            };
        }
        match RosChannel::new(channel, definitions) {
            None => Err(SampleReadError::Foreign {
                encoding: channel.message_encoding.clone(),
                schema: channel.schema_name.clone(),
            }),
            Some(Ok(ros)) => Ok(Self(Kind::Ros(Box::new(ros)))),
            Some(Err(source)) => Err(SampleReadError::RosChannel {
                schema: channel.schema_name.clone(),
                source,
            }),
        }
    }

    /// What messages that were not recorded by Nervure become, as text for users; `None` for
    /// Nervure's own.
    pub fn becomes(&self) -> Option<&'static str> {
        match &self.0 {
            Kind::Samples(_) => None,
            Kind::Ros(ros) => Some(ros.describe()),
            Kind::Proto(proto) => Some(proto.describe()),
            Kind::Json => Some("value of JSON"),
        }
    }

    /// Where the definition of messages of ROS is from; `None` for other messages.
    pub fn definition(&self) -> Option<DefinitionOrigin> {
        match &self.0 {
            Kind::Samples(_) | Kind::Proto(_) | Kind::Json => None,
            Kind::Ros(ros) => Some(ros.origin()),
        }
    }

    /// Decodes a message of this channel.
    ///
    /// # Errors
    /// If the message is damaged.
    pub fn sample<'a>(
        &'a self,
        message: &'a Message,
    ) -> Result<RecordedSample<'a>, SampleReadError> {
        match &self.0 {
            Kind::Samples(schema) => own_sample(schema.as_ref(), &message.data),
            Kind::Ros(ros) => {
                let origin = ros.origin();
                let content = ros.read(&message.data);
                let content =
                    content.map_err(|source| SampleReadError::RosMessage { source, origin })?;
                foreign_sample(content, ros.schema().map(Cow::Borrowed), message)
            }
            Kind::Proto(proto) => {
                let content = proto.read(&message.data)?;
                foreign_sample(content, proto.schema().map(Cow::Borrowed), message)
            }
            Kind::Json => json_sample(message),
        }
    }
}

fn own_sample<'a>(
    schema: Option<&'a Schema>,
    message: &'a [u8],
) -> Result<RecordedSample<'a>, SampleReadError> {
    let (
        RecordedEnvelope {
            header,
            frame,
            head,
        },
        payload,
    ) = RecordedEnvelope::read(message)?;
    let (layout, metadata) = decode_head(head)?;
    let metadata = metadata.decode()?;
    View::new(&layout, payload)?;
    let schema = match layout {
        Layout::Array(_) => {
            let schema = schema.filter(|schema| schema.id() == header.schema_id);
            Some(Cow::Borrowed(schema.ok_or(SampleReadError::Schema)?))
        }
        _ => None,
    };
    let (frame, payload) = (Cow::Borrowed(frame), Cow::Borrowed(payload));
    Ok(RecordedSample {
        header,
        frame,
        layout,
        metadata,
        payload,
        schema,
    })
}

/// A message of others. The stamp is from its header, or else the log time.
fn foreign_sample<'a>(
    content: Content<'a>,
    schema: Option<Cow<'a, Schema>>,
    message: &Message,
) -> Result<RecordedSample<'a>, SampleReadError> {
    View::new(&content.layout, &content.payload)?;
    let recorded = i64::try_from(message.log_time).unwrap_or(i64::MAX);
    let header = Header {
        sequence: message.sequence.into(),
        stamp: if content.header.stamp == 0 {
            recorded
        } else {
            content.header.stamp
        },
        publish_utc: recorded,
        schema_id: schema.as_deref().map_or(0, Schema::id),
        ..Header::default()
    };
    Ok(RecordedSample {
        header,
        frame: Cow::Owned(content.header.frame),
        layout: content.layout,
        metadata: content.metadata,
        payload: content.payload,
        schema,
    })
}

fn json_sample(message: &Message) -> Result<RecordedSample<'_>, SampleReadError> {
    let value = JsonSample::new(&serde_json::from_slice(&message.data)?)?;
    let mut payload = vec![0; value.payload_bytes()];
    value.write(&mut payload);
    let content = Content {
        header: RosHeader::default(),
        layout: value.layout(),
        metadata: Metadata::new(),
        payload: Cow::Owned(payload),
    };
    foreign_sample(content, value.schema().cloned().map(Cow::Owned), message)
}

impl Channel {
    /// The declared type of the output that was recorded; `None` without one.
    pub fn type_name(&self) -> Option<&str> {
        self.metadata.get(TYPE_KEY).map(String::as_str)
    }
}

impl RecordedSample<'_> {
    /// The header with which it was published.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Name of the coordinate frame; `None` if it has none.
    pub fn frame(&self) -> Option<&str> {
        Some(&*self.frame).filter(|name| !name.is_empty())
    }

    /// The metadata that was published with it.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Payload bytes.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }
}

impl Encode for RecordedSample<'_> {
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
        self.schema.as_deref()
    }
}
