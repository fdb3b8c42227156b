//! A sample of another machine: everything that its consumers see, in one piece, as it is on the link.
//!
//! | field | bytes |
//! |---|---|
//! | kind: 1 for a sample, 2 for the end of the node's process, which has no further fields | 1 |
//! | stamp | 8 |
//! | correlation id | 8 |
//! | trace id | 16 |
//! | when it was published, in nanoseconds of the fleet's clock | 8 |
//! | how far that may be wrong, in microseconds; 2^32 - 1 if it is not known | 4 |
//! | lengths of frame, schema and head | 4, 4, 4 |
//! | frame, schema, head, payload | |
//!
//! Numbers are little-endian. The head is as in [`nervure_message`]: layout and metadata. Every sample
//! has its schema, so that none depends on an earlier one that the link has dropped.

use nervure_message::{
    DecodeError, Encode, Header, Layout, Metadata, MetadataError, Schema, View, ViewError,
    decode_head,
};

use crate::{Envelope, Sample, SampleError};

const SAMPLE: u8 = 1;
const END: u8 = 2;
const FIXED_BYTES: usize = 1 + 8 + 8 + 16 + 8 + 4 + 3 * 4;
const UNKNOWN_TIME: u32 = u32::MAX;

/// Behind the last sample of a process: it has ended, and another may follow. Only topics with answers
/// of a service have it.
pub const END_OF_PROCESS: &[u8] = &[END];

/// A time of the fleet's clock: the monotonic clock of the coordinator's machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetTime {
    /// Nanoseconds.
    pub nanos: u64,
    /// Its error.
    pub error_nanos: u64,
}

/// What arrives over a link.
#[derive(Clone, Debug)]
pub enum Arrival<'a> {
    /// A sample.
    Sample(Box<RemoteSample<'a>>),
    /// The process that has sent the samples before has ended.
    EndOfProcess,
}

/// A sample of another machine, to be published here.
#[derive(Clone, Debug)]
pub struct RemoteSample<'a> {
    stamp: i64,
    correlation_id: u64,
    trace_id: u128,
    published: Option<FleetTime>,
    frame: &'a str,
    schema: Option<Schema>,
    layout: Layout,
    metadata: Metadata,
    payload: &'a [u8],
}

/// Why a message of a link is no sample.
#[derive(Debug, thiserror::Error)]
pub enum ArrivalError {
    /// The message is too short.
    #[error("the message of {0} bytes is too short")]
    Short(usize),
    /// The kind is unknown.
    #[error("message kind {0} is unknown")]
    Kind(u8),
    /// The name of the frame is not UTF-8.
    #[error("the name of the frame is not UTF-8")]
    Frame,
    /// Head, metadata or schema are damaged.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The layout describes more bytes than there are.
    #[error(transparent)]
    View(#[from] ViewError),
}

/// Encodes a sample for the link, with the time of its publication, if that is known, behind `prefix`.
/// Its payload is copied once.
///
/// # Errors
/// If its producer announced a damaged schema.
pub fn encode(
    sample: &Sample,
    published: Option<FleetTime>,
    prefix: &[u8],
) -> Result<Vec<u8>, SampleError> {
    let header = sample.header();
    let frame = sample.frame().unwrap_or_default();
    let schema = sample.schema()?;
    let schema = schema.as_ref().map_or(&[][..], Schema::bytes);
    let head = sample.raw().head();
    let payload = sample.bytes();
    let parts = frame.len() + schema.len() + head.len() + payload.len();
    let mut bytes = Vec::with_capacity(prefix.len() + FIXED_BYTES + parts);
    bytes.extend_from_slice(prefix);
    bytes.push(SAMPLE);
    bytes.extend(header.stamp.to_le_bytes());
    bytes.extend(header.correlation_id.to_le_bytes());
    bytes.extend(header.trace_id.to_le_bytes());
    let error_micros = |time: FleetTime| u32::try_from(time.error_nanos.div_ceil(1000)).ok();
    bytes.extend(published.map_or(0, |time| time.nanos).to_le_bytes());
    let error_micros = published.and_then(error_micros).unwrap_or(UNKNOWN_TIME);
    bytes.extend(error_micros.to_le_bytes());
    for part in [frame.len(), schema.len(), head.len()] {
        let length = u32::try_from(part).expect("names, schemas and heads have limits far below");
        bytes.extend(length.to_le_bytes());
    }
    bytes.extend_from_slice(frame.as_bytes());
    bytes.extend_from_slice(schema);
    bytes.extend_from_slice(head);
    bytes.extend_from_slice(payload);
    Ok(bytes)
}

/// Decodes a message of a link, which a peer may have made up.
///
/// # Errors
/// [`ArrivalError`].
pub fn decode(bytes: &[u8]) -> Result<Arrival<'_>, ArrivalError> {
    let mut rest = bytes;
    let mut take = |length: usize| {
        let (taken, left) = rest
            .split_at_checked(length)
            .ok_or(ArrivalError::Short(bytes.len()))?;
        rest = left;
        Ok::<_, ArrivalError>(taken)
    };
    match take(1)? {
        [SAMPLE] => {}
        [END] if bytes.len() == 1 => return Ok(Arrival::EndOfProcess),
        other => return Err(ArrivalError::Kind(other[0])),
    }
    fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
        bytes.try_into().expect("the length was taken")
    }
    let stamp = i64::from_le_bytes(array(take(8)?));
    let correlation_id = u64::from_le_bytes(array(take(8)?));
    let trace_id = u128::from_le_bytes(array(take(16)?));
    let nanos = u64::from_le_bytes(array(take(8)?));
    let error_micros = u32::from_le_bytes(array(take(4)?));
    let published = (error_micros != UNKNOWN_TIME).then_some(FleetTime {
        nanos,
        error_nanos: u64::from(error_micros) * 1000,
    });
    let mut lengths = [0; 3];
    for length in &mut lengths {
        *length = u32::from_le_bytes(array(take(4)?)) as usize;
    }
    let frame = std::str::from_utf8(take(lengths[0])?).map_err(|_| ArrivalError::Frame)?;
    let schema = take(lengths[1])?;
    let head = take(lengths[2])?;
    let payload = rest;
    let (layout, metadata) = decode_head(head)?;
    let metadata = metadata.decode()?;
    View::new(&layout, payload)?;
    let schema = (!schema.is_empty())
        .then(|| Schema::decode(schema))
        .transpose()?;
    Ok(Arrival::Sample(Box::new(RemoteSample {
        stamp,
        correlation_id,
        trace_id,
        published,
        frame,
        schema,
        layout,
        metadata,
        payload,
    })))
}

impl RemoteSample<'_> {
    /// The id of a request, or of the request that this sample answers.
    pub fn correlation_id(&self) -> u64 {
        self.correlation_id
    }

    /// The trace that it belongs to; 0 for none.
    pub fn trace_id(&self) -> u128 {
        self.trace_id
    }

    /// When it was published on its machine.
    pub fn published(&self) -> Option<FleetTime> {
        self.published
    }

    /// The sample for a command on this machine, as it was when it was taken from its queue.
    ///
    /// # Errors
    /// If its metadata has too many entries or bytes.
    pub fn to_sample(
        &self,
        incarnation: u32,
        sequence: u64,
        latency_nanos: u64,
    ) -> Result<Sample, MetadataError> {
        // Any number but 0 names the frame: no other sample is looked up with it.
        let frame = Some(self.frame).filter(|frame| !frame.is_empty());
        let header = Header {
            incarnation,
            sequence,
            stamp: self.stamp,
            publish_mono: crate::monotonic_nanos().saturating_sub(latency_nanos),
            correlation_id: self.correlation_id,
            trace_id: self.trace_id,
            frame_id: u64::from(frame.is_some()),
            ..Header::default()
        };
        Sample::local(self, &self.metadata, header, frame)
    }

    /// The envelope to publish with the value.
    pub fn envelope(&self) -> Envelope<'_> {
        let envelope = Envelope::new()
            .stamp(self.stamp)
            .metadata(&self.metadata)
            .correlation_id(self.correlation_id)
            .trace_id(self.trace_id);
        match self.frame {
            "" => envelope,
            frame => envelope.frame(frame),
        }
    }
}

impl Encode for RemoteSample<'_> {
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
        self.schema.as_ref()
    }
}
