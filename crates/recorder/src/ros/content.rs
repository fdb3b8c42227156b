//! A decoded message of ROS 2, and why one cannot be decoded.

use std::borrow::Cow;

use arrow_schema::ArrowError;
use nervure_message::array::PlanError;
use nervure_message::{Layout, Metadata, TensorError};

use super::cdr::{CdrError, Reader};

/// Texts that go into metadata and announcements.
const MAX_TEXT_BYTES: usize = 256;

/// Why a message cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub enum MessageError {
    /// It is not what its definition says.
    #[error(transparent)]
    Cdr(#[from] CdrError),
    /// A text is too long for what it is.
    #[error("its {what} has {bytes} bytes, at most {MAX_TEXT_BYTES} are read")]
    Text {
        /// What it is.
        what: &'static str,
        /// Its length.
        bytes: usize,
    },
    /// An image whose numbers contradict each other.
    #[error("the image is not whole: {0}")]
    Image(String),
    /// A point cloud whose numbers contradict each other.
    #[error("the point cloud is not whole: {0}")]
    Cloud(String),
    /// A tensor that is too large.
    #[error(transparent)]
    Tensor(#[from] TensorError),
    /// An array that is too large.
    #[error(transparent)]
    Array(#[from] ArrowError),
    /// An array that is too large.
    #[error(transparent)]
    Plan(#[from] PlanError),
}

/// A message that was decoded.
pub(crate) struct Content<'a> {
    pub(crate) header: RosHeader,
    pub(crate) layout: Layout,
    pub(crate) metadata: Metadata,
    pub(crate) payload: Cow<'a, [u8]>,
}

/// `std_msgs/Header`.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct RosHeader {
    /// Nanoseconds since the Unix epoch, 0 for none.
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

/// A text for metadata or an announcement.
pub(super) fn short_text(bytes: &[u8], what: &'static str) -> Result<String, MessageError> {
    if bytes.len() > MAX_TEXT_BYTES {
        return Err(MessageError::Text {
            what,
            bytes: bytes.len(),
        });
    }
    Ok(String::from_utf8_lossy(bytes).into_owned())
}
