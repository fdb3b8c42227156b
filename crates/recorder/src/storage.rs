//! What all files of recordings have in common.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use mcap::records::MessageHeader;

use crate::overview::Summary;
use crate::recording::{Channel, Channels, End, ReadError};

/// Takes a message: the id of its channel in the file, the channel, header and bytes.
pub(crate) type Take<'a> = dyn FnMut(u16, &Arc<Channel>, MessageHeader, &[u8]) + 'a;

/// A file that was looked through. Every kind of file is read through this contract.
pub(crate) trait Storage: fmt::Debug + Send + Sync {
    /// The file.
    fn path(&self) -> &Path;

    /// Its length.
    fn bytes(&self) -> u64;

    /// How it ends.
    fn end(&self) -> &End;

    /// What wrote it; empty for unknown.
    fn library(&self) -> &str;

    /// The last metadata of that name.
    fn metadata(&self, name: &str) -> Option<&BTreeMap<String, String>>;

    /// What the file says of its messages; `None` where it does not, or not whole.
    fn summary(&self) -> Option<&Summary>;

    /// Number of pieces, for [`Self::read`].
    fn pieces(&self) -> usize;

    /// The first time in a piece.
    fn start_of(&self, piece: usize) -> u64;

    /// Reads a piece, and hands out its messages. Pieces are to be read in order, because the first of them may describe the
    /// channels of the later ones.
    fn read(
        &self,
        piece: usize,
        channels: &mut Channels,
        take: &mut Take<'_>,
    ) -> Result<(), ReadError>;
}
