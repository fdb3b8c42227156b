//! A sample on its way into a recording.

use nervure_message::{Header, Schema};
use nervure_node::{Sample, SampleError};

/// Everything about a sample that a recording keeps. Borrowed: the payload stays where it is until it is written.
#[derive(Clone, Debug)]
pub struct Incoming<'a> {
    /// Its header.
    pub header: Header,
    /// The name of its coordinate frame.
    pub frame: Option<String>,
    /// Layout and metadata, encoded.
    pub head: &'a [u8],
    /// Its payload.
    pub payload: &'a [u8],
    /// The schema of an Arrow array.
    pub schema: Option<Schema>,
}

impl<'a> Incoming<'a> {
    /// A sample as a node or an observer received it.
    ///
    /// # Errors
    /// When its producer announced a damaged schema.
    pub fn new(sample: &'a Sample) -> Result<Self, SampleError> {
        Ok(Self {
            header: *sample.header(),
            frame: sample.frame(),
            head: sample.raw().head(),
            payload: sample.bytes(),
            schema: sample.schema()?,
        })
    }
}
