//! Reading a recording: a file, or a bag of several.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mcap::records::MessageHeader;
use tempfile::NamedTempFile;

use crate::channel::{Channel, Channels, Take};
use crate::mcap_file::McapFile;
use crate::read_error::{CutShort, End, Lost, ReadError};
use crate::sqlite_file::{self, SqliteFile};
use crate::storage::{Storage, Summary};
use crate::{bag, zstd};

/// The largest chunk, unpacked, that [`Recording::open`] reads. A larger one is refused, with its place.
pub const MAX_CHUNK_BYTES: usize = 1 << 30;
/// Files of a bag.
const MAX_FILES: usize = 100_000;

/// A recording that was looked through: a file of MCAP or SQLite, packed with zstd or not, or a folder with several of them.
#[derive(Debug)]
pub struct Recording {
    path: PathBuf,
    max_chunk_bytes: usize,
    files: Vec<Box<dyn Storage>>,
    /// File, and piece of it, of each piece.
    pieces: Vec<(usize, usize)>,
    /// Files that were unpacked.
    _unpacked: Vec<NamedTempFile>,
}

impl Recording {
    /// Opens a file, or the folder of a bag, and looks through it.
    ///
    /// # Errors
    /// When it cannot be read, or is no recording. One that was cut short is none: see [`Self::end`].
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        Self::open_within(path, MAX_CHUNK_BYTES)
    }

    /// As [`Self::open`], where memory is short: chunks and messages unpack to at most this many bytes. Reading takes twice
    /// that, and some times as much where messages are tiny.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_within(path: &Path, max_chunk_bytes: usize) -> Result<Self, ReadError> {
        let paths = if path.is_dir() {
            bag::files(path)?
        } else {
            vec![path.to_owned()]
        };
        if paths.len() > MAX_FILES {
            let what = format!("it has {} files, at most {MAX_FILES} are read", paths.len());
            return Err(ReadError::NotBag {
                path: path.to_owned(),
                what,
            });
        }
        let mut recording = Self {
            path: path.to_owned(),
            max_chunk_bytes,
            files: Vec::new(),
            pieces: Vec::new(),
            _unpacked: Vec::new(),
        };
        for path in paths {
            recording.add(&path, &path)?;
        }
        Ok(recording)
    }

    /// Adds the file that lies at `place`, and is called `path` for people.
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
        self.pieces
            .extend((0..storage.pieces()).map(|piece| (self.files.len(), piece)));
        self.files.push(storage);
        Ok(())
    }

    /// The file or folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its length; of all files together, unpacked.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.facts().bytes).sum()
    }

    /// How it ends: complete if all of its files are.
    pub fn end(&self) -> &End {
        let incomplete = self
            .files
            .iter()
            .map(|file| &file.facts().end)
            .find(|end| **end != End::Complete);
        incomplete.unwrap_or(&End::Complete)
    }

    /// Whether a recorder still writes it.
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

    /// What wrote it.
    pub fn library(&self) -> &str {
        self.files.first().map_or("", |file| &file.facts().library)
    }

    /// The last metadata of that name.
    pub fn metadata(&self, name: &str) -> Option<&BTreeMap<String, String>> {
        self.files.iter().rev().find_map(|file| file.metadata(name))
    }

    /// What the files say of their messages; `None` where one does not.
    pub(crate) fn summaries(&self) -> Option<Vec<&Summary>> {
        self.files.iter().map(|file| file.summary()).collect()
    }

    /// What is known of channels before the first piece is read.
    pub(crate) fn channels(&self) -> Vec<Channels> {
        self.files.iter().map(|_| Channels::default()).collect()
    }

    /// Number of pieces, for [`Self::read`].
    pub(crate) fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// The first time in a piece.
    pub(crate) fn start_of(&self, piece: usize) -> u64 {
        let (file, piece) = self.pieces[piece];
        self.files[file].start_of(piece)
    }

    /// Reads a piece, and hands out its messages, unpacked, with the number of their file. Pieces are to be read in order.
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
            // A message of CDR begins with a zero.
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

    /// Bytes of messages that may wait to be brought into order.
    pub(crate) fn max_held_bytes(&self) -> usize {
        self.max_chunk_bytes
    }
}
