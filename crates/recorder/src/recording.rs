//! Reading a recording: a file, or a bag of several files.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use mcap::records::MessageHeader;
use tempfile::NamedTempFile;

use crate::channel::{Channel, Channels, Take};
use crate::mcap_file::McapFile;
use crate::read_error::{CutShort, End, Lost, ReadError};
use crate::recorded::{SampleChannel, SampleReadError};
use crate::ros::Definitions;
use crate::sqlite_file::{self, SqliteFile};
use crate::storage::{Storage, Summary};
use crate::{bag, zstd};

/// Largest chunk, in unpacked bytes, that [`Recording::open`] reads. Reading a larger chunk is an
/// error that gives its position.
pub const MAX_CHUNK_BYTES: usize = 1 << 30;
/// Files that a bag may have at most.
const MAX_FILES: usize = 100_000;

/// An opened recording: one or several MCAP or SQLite files, compressed with zstd or not, or
/// folders with such files.
#[derive(Debug)]
pub struct Recording {
    name: String,
    max_chunk_bytes: usize,
    files: Vec<Box<dyn Storage>>,
    /// Index of the file, and of the piece in it, for each piece, by time.
    pieces: Vec<(usize, usize)>,
    left_out: Vec<String>,
    notes: Vec<String>,
    definitions: Definitions,
    /// Temporary files that compressed files were unpacked into. They are deleted on drop.
    _unpacked: Vec<NamedTempFile>,
}

impl Recording {
    /// Opens a file, or the folder of a bag, and scans it for its chunks.
    ///
    /// # Errors
    /// If the file cannot be read or is not a recording. A file that was cut short can be opened;
    /// see [`Self::end`].
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        Self::open_within(path, MAX_CHUNK_BYTES)
    }

    /// Opens several files or folders as one recording.
    ///
    /// # Errors
    /// See [`Self::open`].
    pub fn open_all<P: AsRef<Path>>(paths: &[P]) -> Result<Self, ReadError> {
        let paths: Vec<&Path> = paths.iter().map(AsRef::as_ref).collect();
        Self::open_all_within(&paths, MAX_CHUNK_BYTES)
    }

    /// Like [`Self::open`], with a memory limit: chunks and messages may unpack to at most
    /// `max_chunk_bytes`. Reading needs up to twice that, and several times as much if messages are
    /// tiny.
    ///
    /// # Errors
    /// See [`Self::open`].
    pub fn open_within(path: &Path, max_chunk_bytes: usize) -> Result<Self, ReadError> {
        Self::open_all_within(&[path], max_chunk_bytes)
    }

    fn open_all_within(paths: &[&Path], max_chunk_bytes: usize) -> Result<Self, ReadError> {
        let mut recording = Self {
            name: match paths {
                [first, _, ..] => format!("{} and {} more", first.display(), paths.len() - 1),
                paths => paths
                    .iter()
                    .map(|path| path.display().to_string())
                    .collect(),
            },
            max_chunk_bytes,
            files: Vec::new(),
            pieces: Vec::new(),
            left_out: Vec::new(),
            notes: Vec::new(),
            definitions: Definitions::default(),
            _unpacked: Vec::new(),
        };
        for path in paths {
            if path.is_dir() {
                recording.add_folder(path)?;
            } else {
                recording.add(path, path)?;
            }
        }
        recording.order_pieces();
        Ok(recording)
    }

    /// Adds the files of a folder as far as they can be read. Fails if none can.
    fn add_folder(&mut self, folder: &Path) -> Result<(), ReadError> {
        let files = bag::files(folder)?;
        if files.paths.len() > MAX_FILES {
            let found = files.paths.len();
            return Err(ReadError::NotBag {
                path: folder.to_owned(),
                what: format!("it has {found} files, at most {MAX_FILES} are read"),
            });
        }
        self.left_out.extend(files.left_out);
        self.notes.extend(files.note);
        let before = self.files.len();
        let mut first_error = None;
        for path in &files.paths {
            if let Err(error) = self.add(path, path) {
                self.left_out.push(format!("left out: {error}"));
                first_error.get_or_insert(error);
            }
        }
        match first_error {
            Some(error) if self.files.len() == before => Err(error),
            _ => Ok(()),
        }
    }

    /// Orders the pieces of all files by time. Those of a file stay in their order.
    fn order_pieces(&mut self) {
        // The earliest log time in each piece and those that follow it in its file.
        let earliest: Vec<Vec<u64>> = self.files.iter().map(|file| earliest(&**file)).collect();
        let next = |file: usize, piece: usize| {
            let time = *earliest[file].get(piece)?;
            Some(Reverse((time, file, piece)))
        };
        let mut open: BinaryHeap<_> = (0..earliest.len())
            .filter_map(|file| next(file, 0))
            .collect();
        while let Some(Reverse((_, file, piece))) = open.pop() {
            self.pieces.push((file, piece));
            open.extend(next(file, piece + 1));
        }
    }

    /// Adds the file at `place`. Messages to users call it `path`; the two differ for unpacked
    /// files.
    fn add(&mut self, path: &Path, place: &Path) -> Result<(), ReadError> {
        let io = |source| ReadError::Io {
            path: path.to_owned(),
            source,
        };
        let mut file = File::open(place).map_err(io)?;
        let mut magic = Vec::new();
        (&mut file)
            .take(sqlite_file::MAGIC.len() as u64)
            .read_to_end(&mut magic)
            .map_err(io)?;
        let storage: Box<dyn Storage> = if magic.starts_with(mcap::MAGIC) {
            Box::new(McapFile::open(path, file, self.max_chunk_bytes)?)
        } else if magic == sqlite_file::MAGIC {
            Box::new(SqliteFile::open(path, place, self.max_chunk_bytes)?)
        } else if magic.starts_with(&zstd::MAGIC) && path == place {
            let unpacked = zstd::unpack_file(path)?;
            self.add(path, unpacked.path())?;
            self._unpacked.push(unpacked);
            return Ok(());
        } else {
            let found = match magic.as_slice() {
                [] => "it is empty".to_owned(),
                magic => {
                    let begin = &magic[..magic.len().min(mcap::MAGIC.len())];
                    format!("it begins with {:?}", String::from_utf8_lossy(begin))
                }
            };
            return Err(ReadError::NotRecording {
                path: path.to_owned(),
                found,
            });
        };
        self.files.push(storage);
        Ok(())
    }

    /// The path of the file or folder, for users; of several, the first and their number.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Files that belong to the recording, but are not or cannot be read, with the reason.
    pub fn left_out(&self) -> &[String] {
        &self.left_out
    }

    /// How the files of a folder were found without its `metadata.yaml`.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Sets definitions that take precedence over the recording's.
    pub fn define(&mut self, definitions: Definitions) {
        self.definitions = definitions;
    }

    /// Prepares decoding of the messages of a channel.
    ///
    /// # Errors
    /// See [`SampleChannel::new`].
    pub fn samples_of(&self, channel: &Channel) -> Result<SampleChannel, SampleReadError> {
        SampleChannel::with_definitions(channel, &self.definitions)
    }

    /// Unpacked length in bytes, of all files together.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.facts().bytes).sum()
    }

    /// The end of the recording. It is complete if all of its files are.
    pub fn end(&self) -> &End {
        let incomplete = self
            .files
            .iter()
            .map(|file| &file.facts().end)
            .find(|end| **end != End::Complete);
        incomplete.unwrap_or(&End::Complete)
    }

    /// Whether a recorder is still writing to it.
    pub fn is_growing(&self) -> bool {
        self.files
            .iter()
            .any(|file| matches!(file.facts().end, End::Growing { .. }))
    }

    /// The files that were cut short.
    pub fn cut_short(&self) -> impl Iterator<Item = CutShort<'_>> {
        self.files
            .iter()
            .filter_map(|file| match &file.facts().end {
                End::Complete | End::Growing { .. } => None,
                End::CutShort { at, what } => {
                    let unreadable_bytes = file.facts().bytes.saturating_sub(*at);
                    Some(CutShort {
                        path: &file.facts().path,
                        at: *at,
                        what,
                        unreadable_bytes,
                    })
                }
            })
    }

    /// The library or ROS distribution that wrote it; empty if unknown.
    pub fn library(&self) -> &str {
        self.files.first().map_or("", |file| &file.facts().library)
    }

    /// The last metadata record with that name.
    pub fn metadata(&self, name: &str) -> Option<&BTreeMap<String, String>> {
        self.files.iter().rev().find_map(|file| file.metadata(name))
    }

    /// The summaries of all files; `None` if any file has none.
    pub(crate) fn summaries(&self) -> Option<Vec<&Summary>> {
        self.files.iter().map(|file| file.summary()).collect()
    }

    /// One empty set of channels per file, for [`Self::read`].
    pub(crate) fn channels(&self) -> Vec<Channels> {
        self.files.iter().map(|_| Channels::default()).collect()
    }

    /// Number of pieces, for [`Self::read`].
    pub(crate) fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// First log time in a piece, in nanoseconds since the Unix epoch.
    pub(crate) fn start_of(&self, piece: usize) -> u64 {
        let (file, piece) = self.pieces[piece];
        self.files[file].start_of(piece)
    }

    /// Reads a piece and passes its messages, unpacked, to `take` with the index of their file.
    /// Pieces must be read in order.
    pub(crate) fn read(
        &self,
        piece: usize,
        channels: &mut [Channels],
        mut take: impl FnMut((usize, u16), &Arc<Channel>, MessageHeader, &[u8]),
    ) -> Result<(), ReadError> {
        let (number, piece) = self.pieces[piece];
        let file = &self.files[number];
        let mut failed: Option<(String, u64)> = None;
        let mut take: Box<Take<'_>> = Box::new(|id, channel, header, data| {
            // A CDR message begins with a zero byte, a zstd frame does not.
            if channel.message_encoding != "cdr" || !data.starts_with(&zstd::MAGIC) {
                return take((number, id), channel, header, data);
            }
            match zstd::unpack_message(data, self.max_chunk_bytes) {
                Ok(data) => take((number, id), channel, header, &data),
                Err(what) => failed.get_or_insert((what, 0)).1 += 1,
            }
        });
        file.read(piece, &mut channels[number], &mut *take)?;
        drop(take);
        match failed {
            None => Ok(()),
            Some((what, count)) => {
                let lost = Lost {
                    messages: Some(count),
                    nanos: None,
                };
                Err(ReadError::Packed {
                    path: file.facts().path.clone(),
                    what,
                    lost,
                })
            }
        }
    }

    /// Limit on the bytes of messages that are held back to be sorted by time.
    pub(crate) fn max_held_bytes(&self) -> usize {
        self.max_chunk_bytes
    }
}

fn earliest(file: &dyn Storage) -> Vec<u64> {
    let mut earliest: Vec<u64> = (0..file.pieces())
        .map(|piece| file.start_of(piece))
        .collect();
    for piece in (1..earliest.len()).rev() {
        earliest[piece - 1] = earliest[piece - 1].min(earliest[piece]);
    }
    earliest
}
