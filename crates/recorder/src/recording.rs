//! Reading a recording.
//!
//! A recording may come from anywhere and may be cut short anywhere. Its summary is not believed: one walk over the
//! records' first bytes finds the chunks that are complete, which are then read one by one. What a record claims is held
//! against the length of the file, and what a chunk unpacks to against a limit, before any memory is taken for it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use mcap::records::{Channel as ChannelRecord, Record, SchemaHeader, op};

use crate::chunk;
use crate::overview::Summary;
use crate::record;

/// The largest chunk, unpacked, that [`Recording::open`] reads. A larger one is refused, with its place.
pub const MAX_CHUNK_BYTES: usize = 1 << 30;
/// The largest record outside of chunks that is looked into.
const MAX_RECORD_BYTES: u64 = 16 << 20;
/// A record's code and length.
const RECORD_HEAD_BYTES: usize = 9;

/// A file that was looked through.
#[derive(Debug)]
pub struct Recording {
    path: PathBuf,
    file: File,
    bytes: u64,
    max_chunk_bytes: usize,
    pieces: Vec<Piece>,
    /// Metadata records, in the order of the file.
    metadata: Vec<(String, BTreeMap<String, String>)>,
    library: String,
    end: End,
    summary: Option<Summary>,
}

/// How the file ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// As it should.
    Complete,
    /// Its recorder was killed, or it was cut: what follows `at` cannot be read.
    CutShort {
        /// Bytes that are complete.
        at: u64,
        /// What was found there.
        what: String,
    },
}

/// A part of the file that is read at a time: a chunk, or a record outside of chunks.
#[derive(Clone, Debug)]
struct Piece {
    offset: u64,
    bytes: u64,
    /// The first time of its messages.
    start: u64,
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
    #[error("{} is no MCAP file: {found}", path.display())]
    NotMcap {
        /// The file.
        path: PathBuf,
        /// What it begins with.
        found: String,
    },
    /// A part of it is damaged.
    #[error("{}, at byte {offset}: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the part begins.
        offset: u64,
        /// What is wrong.
        what: String,
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
    channels: BTreeMap<u16, Arc<Channel>>,
}

impl Recording {
    /// Opens a file and looks through it, without unpacking anything.
    ///
    /// # Errors
    /// When it cannot be read, or is no MCAP file. One that was cut short is none: see [`Self::end`].
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        Self::open_within(path, MAX_CHUNK_BYTES)
    }

    /// As [`Self::open`], where memory is short: chunks may unpack to so many bytes at most. Reading takes twice that, and
    /// some times as much where messages are tiny.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_within(path: &Path, max_chunk_bytes: usize) -> Result<Self, ReadError> {
        let io = |source| ReadError::Io { path: path.to_owned(), source };
        let file = File::open(path).map_err(io)?;
        let metadata = file.metadata().map_err(io)?;
        if metadata.is_dir() {
            return Err(io(io::Error::from(io::ErrorKind::IsADirectory)));
        }
        let mut recording = Self {
            path: path.to_owned(),
            file,
            bytes: metadata.len(),
            max_chunk_bytes,
            pieces: Vec::new(),
            metadata: Vec::new(),
            library: String::new(),
            end: End::Complete,
            summary: None,
        };
        recording.check_magic()?;
        recording.end = recording.scan()?;
        Ok(recording)
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its length.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How it ends.
    pub fn end(&self) -> &End {
        &self.end
    }

    /// What wrote it.
    pub fn library(&self) -> &str {
        &self.library
    }

    /// The last metadata of that name.
    pub fn metadata(&self, name: &str) -> Option<&BTreeMap<String, String>> {
        self.metadata.iter().rev().find(|(known, _)| known == name).map(|(_, metadata)| metadata)
    }

    /// What the file's end says of its messages; `None` where there is none, or not a whole one.
    pub(crate) fn summary(&self) -> Option<&Summary> {
        self.summary.as_ref()
    }

    /// Number of pieces, for [`Self::read`].
    pub(crate) fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// The first time in a piece.
    pub(crate) fn start_of(&self, piece: usize) -> u64 {
        self.pieces[piece].start
    }

    /// Reads a piece, and hands out its messages on channels that are wanted. Pieces are to be read in order, because
    /// the first of them describe the channels of the later ones.
    pub(crate) fn read(
        &self,
        piece: usize,
        channels: &mut Channels,
        mut take: impl FnMut(u16, &Arc<Channel>, mcap::records::MessageHeader, &[u8]),
    ) -> Result<(), ReadError> {
        let Piece { offset, bytes, .. } = self.pieces[piece];
        let damaged = |what: String| self.damaged(offset, what);
        let length = usize::try_from(bytes).ok().filter(|&bytes| bytes <= self.max_piece_bytes());
        let length = length.ok_or_else(|| damaged(format!("a record of {bytes} bytes is too large")))?;
        let mut content = vec![0; length];
        self.file
            .read_exact_at(&mut content, offset)
            .map_err(|source| ReadError::Io { path: self.path.clone(), source })?;
        for record in records(&content) {
            let (code, content) = record.map_err(damaged)?;
            if code != op::CHUNK {
                channels.take(code, content, &mut take).map_err(damaged)?;
                continue;
            }
            let unpacked = chunk::unpack(content, self.max_chunk_bytes).map_err(damaged)?;
            for record in records(&unpacked) {
                let (code, content) = record.map_err(damaged)?;
                channels.take(code, content, &mut take).map_err(damaged)?;
            }
        }
        Ok(())
    }

    /// A chunk that is not packed is as large as what is in it.
    fn max_piece_bytes(&self) -> usize {
        const AROUND: usize = 64 << 10;
        self.max_chunk_bytes.saturating_add(AROUND)
    }

    /// Bytes of messages that may wait to be brought into order.
    pub(crate) fn max_held_bytes(&self) -> usize {
        self.max_chunk_bytes
    }

    fn damaged(&self, offset: u64, what: String) -> ReadError {
        ReadError::Damaged { path: self.path.clone(), offset, what }
    }

    fn check_magic(&self) -> Result<(), ReadError> {
        let mut magic = [0; mcap::MAGIC.len()];
        let length = self.read_at_most(&mut magic, 0)?;
        if magic[..length] == *mcap::MAGIC {
            return Ok(());
        }
        let found = match length {
            0 => "it is empty".to_owned(),
            _ => format!("it begins with {:?}", String::from_utf8_lossy(&magic[..length])),
        };
        Err(ReadError::NotMcap { path: self.path.clone(), found })
    }

    /// Walks over the records of the data section.
    fn scan(&mut self) -> Result<End, ReadError> {
        let mut at = mcap::MAGIC.len() as u64;
        loop {
            let cut_short = |what: String| Ok(End::CutShort { at, what });
            // Code, length, and what tells the time of a chunk or message.
            let mut head = [0; RECORD_HEAD_BYTES + 22];
            let there = self.read_at_most(&mut head, at)?;
            if there == 0 {
                return cut_short("the file ends here, without an index".to_owned());
            }
            if there < RECORD_HEAD_BYTES {
                return cut_short("the file ends within the first bytes of a record".to_owned());
            }
            let code = head[0];
            let length = u64::from_le_bytes(head[1..RECORD_HEAD_BYTES].try_into().expect("eight bytes"));
            let left = self.bytes.saturating_sub(at + RECORD_HEAD_BYTES as u64);
            if length > left {
                let what = kind_of_record(code);
                return cut_short(format!("{what} of {length} bytes begins here, of which {left} are there"));
            }
            let bytes = RECORD_HEAD_BYTES as u64 + length;
            let content = &head[RECORD_HEAD_BYTES..][..(there - RECORD_HEAD_BYTES).min(length as usize)];
            match code {
                op::CHUNK => self.add_piece(at, bytes, time(content, 0)),
                op::MESSAGE => self.add_piece(at, bytes, time(content, 6)),
                // Whatever the time of the messages that need them.
                op::SCHEMA | op::CHANNEL => self.add_piece(at, bytes, 0),
                op::HEADER | op::METADATA => self.look_into(at, code, length)?,
                // A file of which the index and what follows is missing has lost nothing.
                op::DATA_END | op::FOOTER => {
                    self.summary = self.read_summary(at + bytes);
                    return Ok(End::Complete);
                }
                _ => {}
            }
            at += bytes;
        }
    }

    /// The summary that begins at `at`. Any doubt, and there is none.
    fn read_summary(&self, mut at: u64) -> Option<Summary> {
        let mut channels = Channels::default();
        let mut statistics = None;
        loop {
            let mut head = [0; RECORD_HEAD_BYTES];
            if self.read_at_most(&mut head, at).ok()? < RECORD_HEAD_BYTES {
                return None;
            }
            let length = u64::from_le_bytes(head[1..].try_into().expect("eight bytes"));
            let start = at + RECORD_HEAD_BYTES as u64;
            if length > self.bytes.saturating_sub(start) {
                return None;
            }
            at = start + length;
            match head[0] {
                op::FOOTER => break,
                op::SCHEMA | op::CHANNEL | op::STATISTICS if length <= MAX_RECORD_BYTES => {}
                _ => continue,
            }
            let mut content = vec![0; length as usize];
            self.file.read_exact_at(&mut content, start).ok()?;
            match record::parse(head[0], &content).ok()? {
                Record::Schema { header, data } => channels.add_schema(header, &data).ok()?,
                Record::Channel(channel) => channels.add(channel).ok()?,
                Record::Statistics(found) => statistics = Some(found),
                _ => {}
            }
        }
        let statistics = statistics?;
        Some(Summary {
            channels: channels.channels,
            messages: statistics.channel_message_counts,
            times: (statistics.message_start_time, statistics.message_end_time),
        })
    }

    /// Adds records to the pieces; small ones go together.
    fn add_piece(&mut self, offset: u64, bytes: u64, start: u64) {
        const TOGETHER: u64 = 1 << 20;
        match self.pieces.last_mut() {
            Some(last) if last.offset + last.bytes == offset && last.bytes + bytes <= TOGETHER => {
                last.bytes += bytes;
                last.start = last.start.min(start);
            }
            _ => self.pieces.push(Piece { offset, bytes, start }),
        }
    }

    fn look_into(&mut self, at: u64, code: u8, length: u64) -> Result<(), ReadError> {
        if length > MAX_RECORD_BYTES || self.metadata.len() >= MAX_METADATA {
            return Ok(());
        }
        let mut content = vec![0; length as usize];
        let start = at + RECORD_HEAD_BYTES as u64;
        self.file
            .read_exact_at(&mut content, start)
            .map_err(|source| ReadError::Io { path: self.path.clone(), source })?;
        match record::parse(code, &content) {
            Ok(Record::Header(header)) => self.library = header.library,
            Ok(Record::Metadata(metadata)) => self.metadata.push((metadata.name, metadata.metadata)),
            Ok(_) => {}
            Err(what) => return Err(self.damaged(at, what)),
        }
        Ok(())
    }

    fn read_at_most(&self, buffer: &mut [u8], at: u64) -> Result<usize, ReadError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.file.read_at(&mut buffer[filled..], at + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(ReadError::Io { path: self.path.clone(), source }),
            }
        }
        Ok(filled)
    }
}

/// Metadata records that are kept; a recording of ours has two.
const MAX_METADATA: usize = 1000;
/// Bytes of schemas and metadata of channels that are kept.
const MAX_DESCRIPTION_BYTES: usize = 256 << 20;

/// The records in some bytes: their codes and contents.
fn records(mut bytes: &[u8]) -> impl Iterator<Item = Result<(u8, &[u8]), String>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let record = split_record(bytes);
        bytes = record.as_ref().map_or(&[], |(_, _, rest)| rest);
        Some(record.map(|(code, content, _)| (code, content)))
    })
}

/// The first record, and what follows it.
fn split_record(bytes: &[u8]) -> Result<(u8, &[u8], &[u8]), String> {
    let (head, rest) =
        bytes.split_first_chunk::<RECORD_HEAD_BYTES>().ok_or("it ends within the first bytes of a record")?;
    let length = u64::from_le_bytes(head[1..].try_into().expect("eight bytes"));
    let split = usize::try_from(length).ok().and_then(|length| rest.split_at_checked(length));
    let (content, rest) = split.ok_or_else(|| {
        format!("{} claims {length} bytes, {} are left", kind_of_record(head[0]), rest.len())
    })?;
    Ok((head[0], content, rest))
}

impl Channels {
    /// Remembers what is described, and hands out messages.
    fn take(
        &mut self,
        code: u8,
        content: &[u8],
        take: &mut impl FnMut(u16, &Arc<Channel>, mcap::records::MessageHeader, &[u8]),
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
                    format!("a message of channel {}, which is not described", header.channel_id)
                })?;
                take(header.channel_id, channel, header, &data);
            }
            _ => {}
        }
        Ok(())
    }

    fn add_schema(&mut self, header: SchemaHeader, data: &[u8]) -> Result<(), String> {
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
            _ => Err(format!("the channels' descriptions take more than {MAX_DESCRIPTION_BYTES} bytes")),
        }
    }

    fn add(&mut self, channel: ChannelRecord) -> Result<(), String> {
        if self.channels.contains_key(&channel.id) {
            return Ok(());
        }
        let metadata: usize = channel.metadata.iter().map(|(key, value)| key.len() + value.len()).sum();
        self.count(channel.topic.len() + channel.message_encoding.len() + metadata)?;
        let schema = match channel.schema_id {
            0 => None,
            id => Some(self.schemas.get(&id).ok_or_else(|| {
                format!("the channel of {:?} names schema {id}, which is not there", channel.topic)
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

fn time(content: &[u8], at: usize) -> u64 {
    content.get(at..at + 8).map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().expect("eight bytes")))
}

fn kind_of_record(code: u8) -> String {
    match code {
        op::CHUNK => "a chunk".to_owned(),
        op::MESSAGE => "a message".to_owned(),
        op::ATTACHMENT => "an attachment".to_owned(),
        op::METADATA => "metadata".to_owned(),
        code => format!("a record of kind {code:#04x}"),
    }
}
