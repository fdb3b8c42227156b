//! What all files of recordings have in common.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use crate::channel::{Channel, Channels, Take};
use crate::read_error::{End, ReadError};

/// An opened file. All file formats are read through this contract.
pub(crate) trait Storage: fmt::Debug + Send + Sync {
    /// Facts of the file, read when it was opened.
    fn facts(&self) -> &FileFacts;

    /// The last metadata record with that name.
    fn metadata(&self, name: &str) -> Option<&BTreeMap<String, String>>;

    /// The summary of its messages; `None` if the file has none, or not a complete one.
    fn summary(&self) -> Option<&Summary>;

    /// Number of pieces, for [`Self::read`].
    fn pieces(&self) -> usize;

    /// First log time in a piece, in nanoseconds since the Unix epoch.
    fn start_of(&self, piece: usize) -> u64;

    /// Reads a piece and passes its messages to `take`. Pieces must be read in order, because an
    /// early piece may describe the channels of later ones.
    fn read(
        &self,
        piece: usize,
        channels: &mut Channels,
        take: &mut Take<'_>,
    ) -> Result<(), ReadError>;
}

/// Facts of a file, read when it was opened.
#[derive(Debug)]
pub(crate) struct FileFacts {
    /// The path that messages to users name.
    pub(crate) path: PathBuf,
    /// Length in bytes.
    pub(crate) bytes: u64,
    pub(crate) end: End,
    /// The library or ROS distribution that wrote the file; empty if unknown.
    pub(crate) library: String,
}

/// Channels and messages by the summary at the end of a complete file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Summary {
    pub(crate) channels: BTreeMap<u16, Arc<Channel>>,
    pub(crate) messages: BTreeMap<u16, u64>,
    pub(crate) times: (u64, u64),
}
