//! A sample that was recorded, to be sent again.

use nervure_message::{DecodeError, Encode, Header, Layout, Metadata, Schema, View, ViewError, decode_head};

use crate::envelope::{Envelope, EnvelopeError};
use crate::hexadecimal;
use crate::recorder::{SCHEMA_KEY, TYPE_KEY, VERSION, VERSION_KEY};
use crate::recording::Channel;

/// How the samples of a channel are read.
#[derive(Clone, Debug)]
pub struct SampleChannel {
    schema: Option<Schema>,
}

/// Why a message is not a sample that can be sent again.
#[derive(Debug, thiserror::Error)]
pub enum SampleReadError {
    /// The channel was not written by Nervure.
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
    if schema.is_empty() { String::new() } else { format!(" ({schema})") }
}

/// A sample out of a recording: what it was when it was published, payload and all.
#[derive(Clone, Debug)]
pub struct RecordedSample<'a> {
    header: Header,
    frame: Option<&'a str>,
    layout: Layout,
    metadata: Metadata,
    payload: &'a [u8],
    schema: Option<&'a Schema>,
}

impl SampleChannel {
    /// How samples of the channel are read.
    ///
    /// # Errors
    /// [`SampleReadError::Foreign`] when it was not written by Nervure, and when its description is damaged.
    pub fn new(channel: &Channel) -> Result<Self, SampleReadError> {
        match channel.metadata.get(VERSION_KEY) {
            None => {
                return Err(SampleReadError::Foreign {
                    encoding: channel.message_encoding.clone(),
                    schema: channel.schema_name.clone(),
                });
            }
            Some(version) if version == VERSION => {}
            Some(version) => return Err(SampleReadError::Version { found: version.clone() }),
        }
        let schema = match channel.metadata.get(SCHEMA_KEY) {
            None => None,
            Some(text) => {
                let bytes = hexadecimal::decode(text).ok_or(SampleReadError::Schema)?;
                Some(Schema::decode(&bytes)?)
            }
        };
        Ok(Self { schema })
    }

    /// Reads a sample.
    ///
    /// # Errors
    /// When the message is damaged.
    pub fn sample<'a>(&'a self, message: &'a [u8]) -> Result<RecordedSample<'a>, SampleReadError> {
        let (Envelope { header, frame, head }, payload) = Envelope::read(message)?;
        let (layout, metadata) = decode_head(head)?;
        let metadata = metadata.decode()?;
        View::new(&layout, payload)?;
        let schema = match layout {
            Layout::Array(_) => {
                let schema = self.schema.as_ref().filter(|schema| schema.id() == header.schema_id);
                Some(schema.ok_or(SampleReadError::Schema)?)
            }
            _ => None,
        };
        Ok(RecordedSample {
            header,
            frame: Some(frame).filter(|name| !name.is_empty()),
            layout,
            metadata,
            payload,
            schema,
        })
    }
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
        self.frame
    }

    /// What was sent along.
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// Its payload.
    pub fn payload(&self) -> &[u8] {
        self.payload
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
        payload.copy_from_slice(self.payload);
    }

    fn schema(&self) -> Option<&Schema> {
        self.schema
    }
}
