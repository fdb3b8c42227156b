//! Decoded messages of ROS 2, and decoding errors.

use std::borrow::Cow;

use arrow_schema::ArrowError;
use nervure_message::array::PlanError;
use nervure_message::{Layout, Metadata, TensorError};

use nervure_types::cdr::{CdrError, Reader};

/// Limit on texts that become metadata or names.
const MAX_TEXT_BYTES: usize = 256;

/// Why a message cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    /// The message does not match its definition.
    #[error(transparent)]
    Cdr(#[from] CdrError),
    /// A text is too long for its use.
    #[error("its {what} has {bytes} bytes, at most {MAX_TEXT_BYTES} are read")]
    Text {
        /// The field that holds the text.
        what: &'static str,
        /// Length of the text, in bytes.
        bytes: usize,
    },
    /// The fields of an image contradict each other.
    #[error("the image is not whole: {0}")]
    Image(String),
    /// The fields of a point cloud contradict each other.
    #[error("the point cloud is not whole: {0}")]
    Cloud(String),
    /// A tensor is too large.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// Arrow refuses the array.
    #[error(transparent)]
    Array(#[from] ArrowError),
    /// The array cannot be laid out in a payload.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

/// A decoded message.
pub(crate) struct Content<'a> {
    pub(crate) header: RosHeader,
    pub(crate) layout: Layout,
    pub(crate) metadata: Metadata,
    pub(crate) payload: Cow<'a, [u8]>,
}

/// `std_msgs/Header`.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct RosHeader {
    /// In nanoseconds since the Unix epoch; 0 for none.
    pub(crate) stamp: i64,
    pub(crate) frame: String,
}

impl RosHeader {
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, MessageError> {
        let (seconds, nanos) = (reader.i32()?, reader.u32()?);
        let stamp = i64::from(seconds) * 1_000_000_000 + i64::from(nanos);
        Ok(Self {
            stamp,
            frame: short_text(reader.text()?, "frame_id")?,
        })
    }
}

/// Decodes a text for metadata or a name.
pub(crate) fn short_text(bytes: &[u8], what: &'static str) -> Result<String, MessageError> {
    if bytes.len() > MAX_TEXT_BYTES {
        return Err(MessageError::Text {
            what,
            bytes: bytes.len(),
        });
    }
    Ok(String::from_utf8_lossy(bytes).into_owned())
}
