//! Reading a recording: a file, or a bag of several.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mcap::records::{Channel as ChannelRecord, MessageHeader, Record, SchemaHeader, op};
use tempfile::NamedTempFile;

use crate::mcap_file::McapFile;
use crate::overview::Summary;
use crate::record;
use crate::sqlite_file::{self, SqliteFile};
use crate::storage::{Storage, Take};
use crate::{bag, zstd};

/// The largest chunk, unpacked, that [`Recording::open`] reads. A larger one is refused, with its place.
pub const MAX_CHUNK_BYTES: usize = 1 << 30;
/// Bytes of schemas and metadata of channels that are kept.
pub(crate) const MAX_DESCRIPTION_BYTES: usize = 256 << 20;
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

/// What cannot be read at the end of a file.
#[derive(Clone, Copy, Debug)]
pub struct CutShort<'a> {
    /// The file.
    pub path: &'a Path,
    /// Bytes that are complete.
    pub at: u64,
    /// What was found there.
    pub what: &'a str,
    /// Bytes that cannot be read.
    pub unreadable_bytes: u64,
}

/// How the file ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// As it should.
    Complete,
    /// A recorder writes it: what follows `at` is not whole yet.
    Growing {
        /// Bytes that are complete.
        at: u64,
    },
    /// Its recorder was killed, or it was cut: what follows `at` cannot be read.
    CutShort {
        /// Bytes that are complete.
        at: u64,
        /// What was found there.
        what: String,
    },
}

/// What cannot be read of a damaged part, as far as that is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Messages.
    pub messages: Option<u64>,
    /// Time between the first and the last of them.
    pub nanos: Option<u64>,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self
            .nanos
            .map(|nanos| format!("{:.1} s", nanos as f64 / 1e9));
        match (self.messages, seconds) {
            (None, None) => f.write_str("an unknown number of messages is lost"),
            (None, Some(seconds)) => write!(f, "the messages of {seconds} are lost"),
            (Some(messages), None) => write!(f, "{messages} messages are lost"),
            (Some(messages), Some(seconds)) => {
                write!(f, "{messages} messages of {seconds} are lost")
            }
        }
    }
}

/// Why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be opened or read.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is something else.
    #[error("{} is no recording: {found}", path.display())]
    NotRecording {
        /// The file.
        path: PathBuf,
        /// What it begins with.
        found: String,
    },
    /// A bag that cannot be read.
    #[error("{}: {what}", path.display())]
    NotBag {
        /// The bag.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// A part of a file of SQLite is damaged.
    #[error("{}, messages {first} to {last}: {what}; {lost}", path.display())]
    DamagedRows {
        /// The file.
        path: PathBuf,
        /// Number of the part's first message.
        first: i64,
        /// Number of its last message.
        last: i64,
        /// What is wrong.
        what: String,
        /// What cannot be read because of it.
        lost: Lost,
    },
    /// Messages that cannot be unpacked.
    #[error("{}: messages cannot be unpacked: {what}; {lost}", path.display())]
    Packed {
        /// The file.
        path: PathBuf,
        /// What is wrong with the first of them.
        what: String,
        /// How many they are.
        lost: Lost,
    },
    /// A part of it is damaged.
    #[error("{}, at byte {offset}: {what}; {lost}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the part begins.
        offset: u64,
        /// What is wrong.
        what: String,
        /// What cannot be read because of it.
        lost: Lost,
    },
}

/// A channel of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Channel {
    /// Its topic.
    pub topic: String,
    /// How its messages are encoded.
    pub message_encoding: String,
    /// What its messages are called, empty for unknown.
    pub schema_name: String,
    /// How its schema is encoded.
    pub schema_encoding: String,
    /// The schema.
    pub schema: Arc<[u8]>,
    /// What else is said of it.
    pub metadata: BTreeMap<String, String>,
}

/// A message of a recording.
#[derive(Clone, Debug)]
pub struct Message {
    /// Its channel.
    pub channel: Arc<Channel>,
    /// Its number, as far as 32 bits tell.
    pub sequence: u32,
    /// When it was recorded, in nanoseconds since the Unix epoch; in Nervure's recordings, when it was published.
    pub log_time: u64,
    /// Its bytes.
    pub data: Vec<u8>,
}

/// The channels that were met while reading.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    bytes: usize,
    schemas: BTreeMap<u16, (SchemaHeader, Arc<[u8]>)>,
    pub(crate) channels: BTreeMap<u16, Arc<Channel>>,
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
        self.files.iter().map(|file| file.bytes()).sum()
    }

    /// How it ends: complete if all of its files are.
    pub fn end(&self) -> &End {
        let incomplete = self
            .files
            .iter()
            .map(|file| file.end())
            .find(|end| **end != End::Complete);
        incomplete.unwrap_or(&End::Complete)
    }

    /// Whether a recorder still writes it.
    pub fn is_growing(&self) -> bool {
        self.files
            .iter()
            .any(|file| matches!(file.end(), End::Growing { .. }))
    }

    /// The files that were cut short.
    pub fn cut_short(&self) -> impl Iterator<Item = CutShort<'_>> {
        self.files.iter().filter_map(|file| match file.end() {
            End::Complete | End::Growing { .. } => None,
            End::CutShort { at, what } => {
                let unreadable_bytes = file.bytes().saturating_sub(*at);
                Some(CutShort {
                    path: file.path(),
                    at: *at,
                    what,
                    unreadable_bytes,
                })
            }
        })
    }

    /// What wrote it.
    pub fn library(&self) -> &str {
        self.files.first().map_or("", |file| file.library())
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
                    path: file.path().to_owned(),
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

impl Channels {
    /// Remembers what is described, and hands out messages.
    pub(crate) fn take(
        &mut self,
        code: u8,
        content: &[u8],
        take: &mut Take<'_>,
    ) -> Result<(), String> {
        if !matches!(code, op::SCHEMA | op::CHANNEL | op::MESSAGE) {
            return Ok(());
        }
        match record::parse(code, content)? {
            Record::Schema { header, data } => self.add_schema(header, &data)?,
            Record::Channel(channel) => self.add(channel)?,
            Record::Message { header, data } => {
                let channel = self.channels.get(&header.channel_id);
                let channel = channel.ok_or_else(|| {
                    format!(
                        "a message of channel {}, which is not described",
                        header.channel_id
                    )
                })?;
                take(header.channel_id, channel, header, &data);
            }
            _ => {}
        }
        Ok(())
    }

    pub(crate) fn add_schema(&mut self, header: SchemaHeader, data: &[u8]) -> Result<(), String> {
        if !self.schemas.contains_key(&header.id) {
            self.count(data.len() + header.name.len() + header.encoding.len())?;
            self.schemas.insert(header.id, (header, data.into()));
        }
        Ok(())
    }

    fn count(&mut self, bytes: usize) -> Result<(), String> {
        self.bytes += bytes;
        match self.bytes {
            ..=MAX_DESCRIPTION_BYTES => Ok(()),
            _ => Err(format!(
                "the channels' descriptions take more than {MAX_DESCRIPTION_BYTES} bytes"
            )),
        }
    }

    pub(crate) fn add(&mut self, channel: ChannelRecord) -> Result<(), String> {
        if self.channels.contains_key(&channel.id) {
            return Ok(());
        }
        let metadata: usize = channel
            .metadata
            .iter()
            .map(|(key, value)| key.len() + value.len())
            .sum();
        self.count(channel.topic.len() + channel.message_encoding.len() + metadata)?;
        let schema = match channel.schema_id {
            0 => None,
            id => Some(self.schemas.get(&id).ok_or_else(|| {
                format!(
                    "the channel of {:?} names schema {id}, which is not there",
                    channel.topic
                )
            })?),
        };
        let described = Channel {
            topic: channel.topic,
            message_encoding: channel.message_encoding,
            schema_name: schema.map_or_else(String::new, |(header, _)| header.name.clone()),
            schema_encoding: schema.map_or_else(String::new, |(header, _)| header.encoding.clone()),
            schema: schema.map_or_else(|| [].into(), |(_, data)| data.clone()),
            metadata: channel.metadata,
        };
        self.channels.insert(channel.id, Arc::new(described));
        Ok(())
    }
}
