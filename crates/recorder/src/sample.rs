//! A sample to be recorded.

use nervure_message::{Header, Schema, Value, decode_head};
use nervure_node::{Sample, SampleError};

/// The parts of a sample that a recording keeps. Borrows the payload until it is written.
#[derive(Clone, Debug)]
pub struct IncomingSample<'a> {
    /// Header, with sequence number and times.
    pub header: Header,
    /// Name of the coordinate frame.
    pub frame: Option<String>,
    /// Encoded layout and metadata.
    pub head: &'a [u8],
    /// Payload bytes.
    pub payload: &'a [u8],
    /// Schema, if the sample is an Arrow array.
    pub schema: Option<Schema>,
}

impl<'a> IncomingSample<'a> {
    /// Borrows the parts of a sample that a node or an observer received.
    ///
    /// # Errors
    /// If its producer announced a damaged schema.
    pub fn new(sample: &'a Sample) -> Result<Self, SampleError> {
        Ok(Self {
            header: *sample.header(),
            frame: sample.frame(),
            head: sample.raw().head(),
            payload: sample.bytes(),
            schema: sample.schema()?,
        })
    }

    /// A value in its metadata.
    pub(crate) fn metadata_value(&self, name: &str) -> Option<Value> {
        let (_, metadata) = decode_head(self.head).ok()?;
        metadata.decode().ok()?.get(name).cloned()
    }
}
