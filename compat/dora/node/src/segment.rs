use crate::id::new_request_id;
use crate::metadata::{FIN, FLUSH, MetadataParameters, Parameter, SEGMENT_ID, SEQ, SESSION_ID};

/// Counts the chunks of a stream, and makes the parameters that a chunk is sent with.
///
/// ```
/// use dora_node_api::{SEQ, StreamSegment, get_integer_param};
///
/// let mut segment = StreamSegment::with_session_id("talk".to_owned());
/// assert_eq!(get_integer_param(&segment.chunk(false), SEQ), Some(0));
/// assert_eq!(get_integer_param(&segment.chunk(true), SEQ), Some(1));
/// assert_eq!(segment.next_segment(), 1);
/// assert_eq!(segment.seq(), 0);
/// ```
#[derive(Debug)]
pub struct StreamSegment {
    session_id: String,
    segment_id: i64,
    seq: i64,
}

impl StreamSegment {
    /// A stream with a new session identifier.
    pub fn new() -> Self {
        Self::with_session_id(new_request_id())
    }

    /// A stream with that session identifier.
    pub fn with_session_id(session_id: String) -> Self {
        Self {
            session_id,
            segment_id: 0,
            seq: 0,
        }
    }

    /// Begins the next segment, and returns its number.
    pub fn next_segment(&mut self) -> i64 {
        self.segment_id += 1;
        self.seq = 0;
        self.segment_id
    }

    /// The parameters of the next chunk; `fin` marks the last one of its segment.
    pub fn chunk(&mut self, fin: bool) -> MetadataParameters {
        let seq = self.seq;
        self.seq += 1;
        MetadataParameters::from([
            (
                SESSION_ID.to_owned(),
                Parameter::String(self.session_id.clone()),
            ),
            (SEGMENT_ID.to_owned(), Parameter::Integer(self.segment_id)),
            (SEQ.to_owned(), Parameter::Integer(seq)),
            (FIN.to_owned(), Parameter::Bool(fin)),
        ])
    }

    /// Begins the next segment, and returns the parameters of a chunk that asks the receiver to
    /// discard the chunks before it.
    pub fn flush(&mut self) -> MetadataParameters {
        self.next_segment();
        let mut parameters = self.chunk(false);
        parameters.insert(FLUSH.to_owned(), Parameter::Bool(true));
        parameters
    }

    /// The session identifier.
    pub fn session_id(&self) -> &str {
        &self.session_id
    }

    /// The number of the segment.
    pub fn segment_id(&self) -> i64 {
        self.segment_id
    }

    /// The number of the next chunk.
    pub fn seq(&self) -> i64 {
        self.seq
    }
}

impl Default for StreamSegment {
    fn default() -> Self {
        Self::new()
    }
}
