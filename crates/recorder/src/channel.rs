//! The channels of a recording, and their messages.

use std::collections::BTreeMap;
use std::sync::Arc;

use mcap::records::{Channel as ChannelRecord, MessageHeader, Record, SchemaHeader, op};

use crate::record;

/// Total size of schemas and metadata of channels that a reader keeps at most.
pub(crate) const MAX_DESCRIPTION_BYTES: usize = 256 << 20;

/// Receives a message: the id of its channel in the file, the channel, header and bytes.
pub(crate) type Take<'a> = dyn FnMut(u16, &Arc<Channel>, MessageHeader, &[u8]) + 'a;

/// A channel of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channel {
    /// Name of the topic.
    pub topic: String,
    /// Encoding of the messages, such as `protobuf` or `cdr`.
    pub message_encoding: String,
    /// Name of the message type; empty if unknown.
    pub schema_name: String,
    /// Encoding of the schema, such as `ros2msg`; empty without a schema.
    pub schema_encoding: String,
    /// The encoded schema.
    pub schema: Arc<[u8]>,
    /// Further properties, as the file gives them.
    pub metadata: BTreeMap<String, String>,
}

/// A message of a recording.
#[derive(Clone, Debug)]
pub struct Message {
    /// The channel that it belongs to.
    pub channel: Arc<Channel>,
    /// Sequence number; its low 32 bits only, as MCAP has no room for more.
    pub sequence: u32,
    /// Time at which it was recorded, in nanoseconds since the Unix epoch. In Nervure's recordings,
    /// the time at which it was published.
    pub log_time: u64,
    /// Time by which the clock was set back in the file before this message, in nanoseconds.
    pub set_back: u64,
    /// The encoded message.
    pub data: Vec<u8>,
}

impl Message {
    /// The log time, as if the clock had never been set back while recording.
    pub fn time(&self) -> u64 {
        self.log_time.saturating_add(self.set_back)
    }
}

/// The channels whose descriptions have been read so far.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    bytes: usize,
    schemas: BTreeMap<u16, (SchemaHeader, Arc<[u8]>)>,
    pub(crate) channels: BTreeMap<u16, Arc<Channel>>,
}

impl Channels {
    /// Keeps schemas and channels, and passes messages to `take`. Ignores other records.
    pub(crate) fn take(
        &mut self,
        code: u8,
        content: &[u8],
        take: &mut Take<'_>,
    ) -> Result<(), String> {
        if !matches!(code, op::SCHEMA | op::CHANNEL | op::MESSAGE) {
            return Ok(());
        }
        match record::parse(code, content)? {
            Record::Schema { header, data } => self.add_schema(header, &data)?,
            Record::Channel(channel) => self.add(channel)?,
            Record::Message { header, data } => {
                let channel = self.channels.get(&header.channel_id);
                let channel = channel.ok_or_else(|| {
                    format!(
                        "a message of channel {}, which is not described",
                        header.channel_id
                    )
                })?;
                take(header.channel_id, channel, header, &data);
            }
            _ => {}
        }
        Ok(())
    }

    pub(crate) fn add_schema(&mut self, header: SchemaHeader, data: &[u8]) -> Result<(), String> {
        if !self.schemas.contains_key(&header.id) {
            self.count(data.len() + header.name.len() + header.encoding.len())?;
            self.schemas.insert(header.id, (header, data.into()));
        }
        Ok(())
    }

    fn count(&mut self, bytes: usize) -> Result<(), String> {
        self.bytes += bytes;
        match self.bytes {
            ..=MAX_DESCRIPTION_BYTES => Ok(()),
            _ => Err(format!(
                "the channels' descriptions take more than {MAX_DESCRIPTION_BYTES} bytes"
            )),
        }
    }

    pub(crate) fn add(&mut self, channel: ChannelRecord) -> Result<(), String> {
        if self.channels.contains_key(&channel.id) {
            return Ok(());
        }
        let metadata: usize = channel
            .metadata
            .iter()
            .map(|(key, value)| key.len() + value.len())
            .sum();
        self.count(channel.topic.len() + channel.message_encoding.len() + metadata)?;
        let schema = match channel.schema_id {
            0 => None,
            id => Some(self.schemas.get(&id).ok_or_else(|| {
                format!(
                    "the channel of {:?} names schema {id}, which is not there",
                    channel.topic
                )
            })?),
        };
        let described = Channel {
            topic: channel.topic,
            message_encoding: channel.message_encoding,
            schema_name: schema.map_or_else(String::new, |(header, _)| header.name.clone()),
            schema_encoding: schema.map_or_else(String::new, |(header, _)| header.encoding.clone()),
            schema: schema.map_or_else(|| [].into(), |(_, data)| data.clone()),
            metadata: channel.metadata,
        };
        self.channels.insert(channel.id, Arc::new(described));
        Ok(())
    }
}
