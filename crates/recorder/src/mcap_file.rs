//! Files of MCAP.
//!
//! A file may come from anywhere and may be cut short anywhere, so its summary is not trusted. One
//! walk over the heads of the records finds the complete chunks, which are then read one by one.
//! Lengths that a record claims are checked against the length of the file, and the unpacked size
//! of a chunk against a limit, before any memory is allocated.
//!
//! `mcap::sans_io::LinearReader` does not fit: it reads every byte of the file and stops at the
//! first damaged chunk, while this walk skips the contents and finds the chunks behind a damaged
//! one.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use mcap::records::{MessageHeader, Record, op};
use rustix::fs::{FlockOperation, flock};

use crate::channel::{Channel, Channels, Take};
use crate::chunk;
use crate::read_error::{End, Lost, ReadError};
use crate::record;
use crate::storage::{FileFacts, Storage, Summary};

/// Larger records outside of chunks are skipped.
const MAX_RECORD_BYTES: u64 = 16 << 20;
/// Length of a record's code and length field.
const RECORD_HEAD_BYTES: usize = 9;

/// An MCAP file whose records have been scanned.
#[derive(Debug)]
pub(crate) struct McapFile {
    facts: FileFacts,
    file: File,
    max_chunk_bytes: usize,
    pieces: Vec<Piece>,
    /// Metadata records, in file order.
    metadata: Vec<(String, BTreeMap<String, String>)>,
    summary: Option<Summary>,
}

/// The unit of reading: a chunk, or adjacent records outside of chunks.
#[derive(Clone, Debug)]
struct Piece {
    offset: u64,
    bytes: u64,
    is_chunk: bool,
    /// First and last log time of its messages, in nanoseconds, from the head of the record.
    start: u64,
    end: u64,
    /// Number of messages according to the index that follows the chunk; `None` without an index.
    messages: Option<u64>,
}

impl McapFile {
    /// Opens a file. Messages to users call it `path`. Chunks may unpack to at most
    /// `max_chunk_bytes`.
    pub(crate) fn open(path: &Path, file: File, max_chunk_bytes: usize) -> Result<Self, ReadError> {
        let io = |source| ReadError::Io {
            path: path.to_owned(),
            source,
        };
        let metadata = file.metadata().map_err(io)?;
        let mut opened = Self {
            facts: FileFacts {
                path: path.to_owned(),
                bytes: metadata.len(),
                end: End::Complete,
                library: String::new(),
            },
            file,
            max_chunk_bytes,
            pieces: Vec::new(),
            metadata: Vec::new(),
            summary: None,
        };
        // Check before the scan: a file that its recorder finishes in between is complete, not cut
        // short.
        let is_written = is_written(&opened.file);
        opened.facts.end = match opened.scan()? {
            End::CutShort { at, .. } if is_written => End::Growing { at },
            end => end,
        };
        Ok(opened)
    }

    fn read_records(
        &self,
        offset: u64,
        bytes: u64,
        channels: &mut Channels,
        take: &mut Take<'_>,
    ) -> Result<(), ReadError> {
        let damaged = |what: String| self.damaged(offset, what);
        let length = usize::try_from(bytes)
            .ok()
            .filter(|&bytes| bytes <= self.max_piece_bytes());
        let length =
            length.ok_or_else(|| damaged(format!("a record of {bytes} bytes is too large")))?;
        let mut content = vec![0; length];
        self.file
            .read_exact_at(&mut content, offset)
            .map_err(|source| ReadError::Io {
                path: self.facts.path.clone(),
                source,
            })?;
        for record in records(&content) {
            let (code, content) = record.map_err(damaged)?;
            if code != op::CHUNK {
                channels.take(code, content, take).map_err(damaged)?;
                continue;
            }
            let unpacked = chunk::unpack(content, self.max_chunk_bytes).map_err(damaged)?;
            for record in records(&unpacked) {
                let (code, content) = record.map_err(damaged)?;
                channels.take(code, content, take).map_err(damaged)?;
            }
        }
        Ok(())
    }

    /// An uncompressed chunk is as large as its contents, plus its own head.
    fn max_piece_bytes(&self) -> usize {
        const OVERHEAD_BYTES: usize = 64 << 10;
        self.max_chunk_bytes.saturating_add(OVERHEAD_BYTES)
    }

    fn damaged(&self, offset: u64, what: String) -> ReadError {
        ReadError::Damaged {
            path: self.facts.path.clone(),
            offset,
            what,
            lost: Lost::default(),
        }
    }

    /// Walks over the records of the data section.
    fn scan(&mut self) -> Result<End, ReadError> {
        let mut at = mcap::MAGIC.len() as u64;
        loop {
            let cut_short = |what: String| Ok(End::CutShort { at, what });
            // Code and length, then the times of a chunk or message.
            let mut head = [0; RECORD_HEAD_BYTES + 22];
            let there = self.read_at_most(&mut head, at)?;
            if there == 0 {
                return cut_short("the file ends here, without an index".to_owned());
            }
            if there < RECORD_HEAD_BYTES {
                return cut_short("the file ends within the first bytes of a record".to_owned());
            }
            let code = head[0];
            let length =
                u64::from_le_bytes(head[1..RECORD_HEAD_BYTES].try_into().expect("eight bytes"));
            let left = self
                .facts
                .bytes
                .saturating_sub(at + RECORD_HEAD_BYTES as u64);
            if length > left {
                let what = kind_of_record(code);
                return cut_short(format!(
                    "{what} of {length} bytes begins here, of which {left} are there"
                ));
            }
            let bytes = RECORD_HEAD_BYTES as u64 + length;
            let content =
                &head[RECORD_HEAD_BYTES..][..(there - RECORD_HEAD_BYTES).min(length as usize)];
            match code {
                op::CHUNK => {
                    let (start, end) = (time(content, 0), time(content, 8));
                    self.pieces.push(Piece {
                        offset: at,
                        bytes,
                        is_chunk: true,
                        start,
                        end,
                        messages: None,
                    });
                }
                op::MESSAGE_INDEX => self.count_messages(content, length),
                op::MESSAGE => self.add_piece(at, bytes, time(content, 6), 1),
                // Time 0 puts descriptions before all messages that need them.
                op::SCHEMA | op::CHANNEL => self.add_piece(at, bytes, 0, 0),
                op::HEADER | op::METADATA => self.keep_description(at, code, length)?,
                // All messages come before this record: without a summary, none of them is lost.
                op::DATA_END | op::FOOTER => {
                    self.summary = self.read_summary(at + bytes);
                    return Ok(End::Complete);
                }
                _ => {}
            }
            at += bytes;
        }
    }

    /// Reads the summary that begins at `at`. Returns `None` if any part of it is damaged or
    /// missing.
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
            if length > self.facts.bytes.saturating_sub(start) {
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

    /// Adds a record outside of chunks to the pieces. Adjacent small records share a piece.
    fn add_piece(&mut self, offset: u64, bytes: u64, time: u64, messages: u64) {
        const MAX_SHARED_BYTES: u64 = 1 << 20;
        match self.pieces.last_mut() {
            Some(last)
                if !last.is_chunk
                    && last.offset + last.bytes == offset
                    && last.bytes + bytes <= MAX_SHARED_BYTES =>
            {
                last.bytes += bytes;
                last.start = last.start.min(time);
                last.end = last.end.max(time);
                last.messages = last.messages.map(|known| known + messages);
            }
            _ => {
                let (start, end, messages) = (time, time, Some(messages));
                self.pieces.push(Piece {
                    offset,
                    bytes,
                    is_chunk: false,
                    start,
                    end,
                    messages,
                });
            }
        }
    }

    /// Adds the number of entries of a message index to the chunk before it.
    fn count_messages(&mut self, content: &[u8], length: u64) {
        const CHANNEL_AND_COUNT_BYTES: u64 = 6;
        const ENTRY_BYTES: u64 = 16;
        let Some(last) = self.pieces.last_mut().filter(|last| last.is_chunk) else {
            return;
        };
        let entries = content
            .get(2..6)
            .map(|count| u32::from_le_bytes(count.try_into().expect("four bytes")));
        let entries = entries
            .map(u64::from)
            .filter(|bytes| bytes + CHANNEL_AND_COUNT_BYTES <= length);
        if let Some(bytes) = entries {
            last.messages = Some(last.messages.unwrap_or(0) + bytes / ENTRY_BYTES);
        }
    }

    fn keep_description(&mut self, at: u64, code: u8, length: u64) -> Result<(), ReadError> {
        if length > MAX_RECORD_BYTES || self.metadata.len() >= MAX_METADATA {
            return Ok(());
        }
        let mut content = vec![0; length as usize];
        let start = at + RECORD_HEAD_BYTES as u64;
        self.file
            .read_exact_at(&mut content, start)
            .map_err(|source| ReadError::Io {
                path: self.facts.path.clone(),
                source,
            })?;
        match record::parse(code, &content) {
            Ok(Record::Header(header)) => self.facts.library = header.library,
            Ok(Record::Metadata(metadata)) => {
                self.metadata.push((metadata.name, metadata.metadata))
            }
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
                Err(source) => {
                    return Err(ReadError::Io {
                        path: self.facts.path.clone(),
                        source,
                    });
                }
            }
        }
        Ok(filled)
    }
}

impl Storage for McapFile {
    fn facts(&self) -> &FileFacts {
        &self.facts
    }

    fn metadata(&self, name: &str) -> Option<&BTreeMap<String, String>> {
        self.metadata
            .iter()
            .rev()
            .find(|(known, _)| known == name)
            .map(|(_, metadata)| metadata)
    }

    fn summary(&self) -> Option<&Summary> {
        self.summary.as_ref()
    }

    fn pieces(&self) -> usize {
        self.pieces.len()
    }

    fn start_of(&self, piece: usize) -> u64 {
        self.pieces[piece].start
    }

    fn read(
        &self,
        piece: usize,
        channels: &mut Channels,
        take: &mut Take<'_>,
    ) -> Result<(), ReadError> {
        let Piece {
            offset,
            bytes,
            start,
            end,
            messages,
            ..
        } = self.pieces[piece];
        let mut handed_out = 0;
        let mut take = |id: u16, channel: &Arc<Channel>, header: MessageHeader, data: &[u8]| {
            handed_out += 1;
            take(id, channel, header, data);
        };
        let result = self.read_records(offset, bytes, channels, &mut take);
        result.map_err(|error| match error {
            ReadError::Damaged {
                path, offset, what, ..
            } => {
                let messages = messages.map(|messages| messages.saturating_sub(handed_out));
                // The time span of the lost messages is unknown once part of the piece has been
                // read.
                let nanos = (handed_out == 0 && start > 0)
                    .then_some(end)
                    .and_then(|end| end.checked_sub(start));
                ReadError::Damaged {
                    path,
                    offset,
                    what,
                    lost: Lost { messages, nanos },
                }
            }
            error => error,
        })
    }
}

/// Metadata records that are kept at most. A recording by Nervure has 2.
const MAX_METADATA: usize = 1000;
/// Iterates over the records in `bytes`, as codes and contents.
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

/// Splits off the first record. Returns its code, its content and the remaining bytes.
fn split_record(bytes: &[u8]) -> Result<(u8, &[u8], &[u8]), String> {
    let (head, rest) = bytes
        .split_first_chunk::<RECORD_HEAD_BYTES>()
        .ok_or("it ends within the first bytes of a record")?;
    let length = u64::from_le_bytes(head[1..].try_into().expect("eight bytes"));
    let split = usize::try_from(length)
        .ok()
        .and_then(|length| rest.split_at_checked(length));
    let (content, rest) = split.ok_or_else(|| {
        format!(
            "{} claims {length} bytes, {} are left",
            kind_of_record(head[0]),
            rest.len()
        )
    })?;
    Ok((head[0], content, rest))
}

/// Whether a recorder of Nervure is writing the file: a recorder holds an exclusive lock.
fn is_written(file: &File) -> bool {
    let locked = flock(file, FlockOperation::NonBlockingLockShared);
    if locked.is_ok() {
        // Closing the file would release the lock too, but a series may need to delete the file
        // before that.
        let _ = flock(file, FlockOperation::Unlock);
    }
    locked == Err(rustix::io::Errno::WOULDBLOCK)
}

fn time(content: &[u8], at: usize) -> u64 {
    content.get(at..at + 8).map_or(0, |bytes| {
        u64::from_le_bytes(bytes.try_into().expect("eight bytes"))
    })
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
