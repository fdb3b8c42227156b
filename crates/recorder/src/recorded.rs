//! A sample that was recorded, to be sent again.

use std::borrow::Cow;

use nervure_message::{
    DecodeError, Encode, Header, Layout, Metadata, Schema, View, ViewError, decode_head,
};

use crate::channel::{Channel, Message};
use crate::envelope::{Envelope, EnvelopeError};
use crate::hexadecimal;
use crate::recorder::{SCHEMA_KEY, TYPE_KEY, VERSION, VERSION_KEY};
use crate::ros::{MessageError, RosChannel, RosChannelError};

/// How the samples of a channel are read.
#[derive(Clone, Debug)]
pub struct SampleChannel(Kind);

#[derive(Clone, Debug)]
enum Kind {
    /// Samples of Nervure, with the schema of arrays.
    Samples(Option<Schema>),
    /// Messages of ROS 2.
    Ros(Box<RosChannel>),
}

/// Why a message is not a sample that can be sent again.
#[derive(Debug, thiserror::Error)]
pub enum SampleReadError {
    /// The channel was not written by Nervure, and holds no messages of ROS 2.
    #[error("its channel holds {encoding} messages{}, not samples", named(.schema))]
    Foreign {
        /// The encoding of its messages.
        encoding: String,
        /// The name of its schema.
        schema: String,
    },
    /// The channel was written by a later version.
    #[error("its channel is written in version {found}, this build reads version {VERSION}")]
    Version {
        /// The version found.
        found: String,
    },
    /// The channel holds messages of ROS 2 that cannot be decoded.
    #[error("its messages ({schema}) cannot be decoded: {source}")]
    RosChannel {
        /// The type of the messages.
        schema: String,
        /// Why.
        source: RosChannelError,
    },
    /// The message of ROS 2 is damaged.
    #[error(transparent)]
    RosMessage(#[from] MessageError),
    /// The message has no envelope.
    #[error(transparent)]
    Envelope(#[from] EnvelopeError),
    /// Layout, metadata or schema are damaged.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The payload is not as long as its layout says.
    #[error(transparent)]
    View(#[from] ViewError),
    /// The schema of an Arrow array is not the one of its channel.
    #[error("the sample is an Arrow array, and its schema is not that of its channel")]
    Schema,
}

fn named(schema: &str) -> String {
    if schema.is_empty() {
        String::new()
    } else {
        format!(" ({schema})")
    }
}

/// A sample out of a recording: what it was when it was published, payload and all.
#[derive(Clone, Debug)]
pub struct RecordedSample<'a> {
    header: Header,
    frame: Cow<'a, str>,
    layout: Layout,
    metadata: Metadata,
    payload: Cow<'a, [u8]>,
    schema: Option<&'a Schema>,
}

impl SampleChannel {
    /// How samples of the channel are read.
    ///
    /// # Errors
    /// [`SampleReadError::Foreign`] when it holds neither samples of Nervure nor messages of ROS 2, and when its description
    /// is damaged.
    pub fn new(channel: &Channel) -> Result<Self, SampleReadError> {
        match channel.metadata.get(VERSION_KEY) {
            None => return Self::foreign(channel),
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

    fn foreign(channel: &Channel) -> Result<Self, SampleReadError> {
        match RosChannel::new(channel) {
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

    /// What messages that were not recorded by Nervure become, for people; `None` for those that were.
    pub fn becomes(&self) -> Option<&'static str> {
        match &self.0 {
            Kind::Samples(_) => None,
            Kind::Ros(ros) => Some(ros.describe()),
        }
    }

    /// Reads a sample, of a message of this channel.
    ///
    /// # Errors
    /// When the message is damaged.
    pub fn sample<'a>(
        &'a self,
        message: &'a Message,
    ) -> Result<RecordedSample<'a>, SampleReadError> {
        match &self.0 {
            Kind::Samples(schema) => own_sample(schema.as_ref(), &message.data),
            Kind::Ros(ros) => ros_sample(ros, message),
        }
    }
}

fn own_sample<'a>(
    schema: Option<&'a Schema>,
    message: &'a [u8],
) -> Result<RecordedSample<'a>, SampleReadError> {
    let (
        Envelope {
            header,
            frame,
            head,
        },
        payload,
    ) = Envelope::read(message)?;
    let (layout, metadata) = decode_head(head)?;
    let metadata = metadata.decode()?;
    View::new(&layout, payload)?;
    let schema = match layout {
        Layout::Array(_) => {
            let schema = schema.filter(|schema| schema.id() == header.schema_id);
            Some(schema.ok_or(SampleReadError::Schema)?)
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

/// A message without a header of its own has the time at which it was recorded.
fn ros_sample<'a>(
    ros: &'a RosChannel,
    message: &'a Message,
) -> Result<RecordedSample<'a>, SampleReadError> {
    let content = ros.read(&message.data)?;
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
        schema_id: ros.schema().map_or(0, Schema::id),
        ..Header::default()
    };
    Ok(RecordedSample {
        header,
        frame: Cow::Owned(content.header.frame),
        layout: content.layout,
        metadata: content.metadata,
        payload: content.payload,
        schema: ros.schema(),
    })
}

impl Channel {
    /// The type of the output that it was recorded from, where one was declared.
    pub fn type_name(&self) -> Option<&str> {
        self.metadata.get(TYPE_KEY).map(String::as_str)
    }
}

impl RecordedSample<'_> {
    /// Its header, as it was published.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The name of its coordinate frame.
    pub fn frame(&self) -> Option<&str> {
        Some(&*self.frame).filter(|name| !name.is_empty())
    }

    /// What was sent along.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Its payload.
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
        self.schema
    }
}
