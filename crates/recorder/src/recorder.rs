//! Writing a recording.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mcap::records::{MessageHeader, Metadata};
use mcap::write::NoSeek;
use mcap::{WriteOptions, Writer};
use nervure_message::decode_head;
use rustix::fs::{FlockOperation, flock};

use crate::disk::{self, Disk};
use crate::form::Form;
use crate::gaps::Gaps;
use crate::hexadecimal;
use crate::latched::Latched;
use crate::sample::Incoming;

/// The `library` in the header of a recording.
const LIBRARY: &str = concat!("nervure ", env!("CARGO_PKG_VERSION"));
/// Version of what this crate adds to MCAP, in the metadata of each channel.
pub(crate) const VERSION: &str = "1";
/// Key of the version in the metadata of a channel.
pub(crate) const VERSION_KEY: &str = "nervure";
/// Key of the type's name in the metadata of a channel.
pub(crate) const TYPE_KEY: &str = "nervure.type";
/// Key of the Arrow schema, in hexadecimal, in the metadata of a channel.
pub(crate) const SCHEMA_KEY: &str = "nervure.schema";
/// Name of the metadata that is written at the beginning.
pub(crate) const BEGIN: &str = "nervure.begin";
/// Name of the metadata that is written at the end.
pub(crate) const END: &str = "nervure.end";
/// Prefix of the keys in [`END`] that count a topic's losses.
pub(crate) const LOST_PREFIX: &str = "lost ";

/// How a recording is written.
#[derive(Clone, Debug)]
pub struct RecorderOptions {
    /// Whether chunks are compressed, with LZ4.
    pub compress: bool,
    /// A chunk is closed when it holds so many bytes.
    pub chunk_bytes: usize,
    /// A chunk is closed at the latest when it is so old: what a killed recorder loses at most.
    pub chunk_period: Duration,
    /// What shall be said about the recording in its metadata: the dataflow's name, say.
    pub about: BTreeMap<String, String>,
}

impl Default for RecorderOptions {
    fn default() -> Self {
        Self {
            compress: false,
            chunk_bytes: 4 << 20,
            chunk_period: Duration::from_secs(1),
            about: BTreeMap::new(),
        }
    }
}

/// Why a recording cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file is there already, or cannot be made.
    #[error("cannot create the recording {}: {source}", path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The disk is full, or gone.
    #[error(
        "the recording {} ends here, after {kept_bytes} bytes: {source}; {lost} later samples are lost, what was written until then can be read",
        path.display()
    )]
    Disk {
        /// The file.
        path: PathBuf,
        /// Its length.
        kept_bytes: u64,
        /// Samples that are not in the file, of which the report counts those of each topic.
        lost: u64,
        /// What the system said.
        source: io::Error,
    },
    /// A limit of MCAP.
    #[error("the recording cannot hold this: {0}")]
    Format(#[from] mcap::McapError),
}

impl RecordError {
    /// Whether there is a file of that name already.
    pub fn is_taken(&self) -> bool {
        matches!(self, Self::Create { source, .. } if source.kind() == io::ErrorKind::AlreadyExists)
    }
}

/// Writes the samples of any number of topics into one file.
///
/// Whatever happens to the process, the file can be read up to its last complete chunk.
pub struct Recorder {
    path: PathBuf,
    options: RecorderOptions,
    writer: Writer<NoSeek<Staging>>,
    disk: Arc<Disk>,
    topics: Vec<Topic>,
    /// The message that is being built.
    message: Vec<u8>,
    chunk_bytes: usize,
    chunk_began: Option<Instant>,
    /// Samples of each topic in the chunk that is being filled.
    chunk_samples: Vec<u64>,
    /// Samples of each topic in chunks that wait for the disk, by the number of the chunk's last block.
    waiting: VecDeque<(u64, Vec<u64>)>,
    last_log_time: u64,
}

/// A topic of a [`Recorder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TopicId(usize);

/// How a recording went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Bytes in the file.
    pub bytes: u64,
    /// Each topic, in the order in which they were added.
    pub topics: Vec<TopicReport>,
}

/// How the recording of a topic went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicReport {
    /// Its name.
    pub name: String,
    /// Samples that are in the file.
    pub recorded: u64,
    /// Samples that were published and are not in the file: by the gaps in their numbers they did not reach the recorder, or
    /// the disk did not take them.
    pub lost: u64,
    /// Samples that reached it and could not be recorded, because their head was damaged.
    pub damaged: u64,
}

impl Report {
    /// Adds the report on another file of the same topics.
    pub(crate) fn add(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.topics.resize_with(
            self.topics.len().max(other.topics.len()),
            TopicReport::default,
        );
        for (topic, other) in self.topics.iter_mut().zip(&other.topics) {
            let TopicReport {
                name,
                recorded,
                lost,
                damaged,
            } = other;
            topic.name.clone_from(name);
            topic.recorded += recorded;
            topic.lost += lost;
            topic.damaged += damaged;
        }
    }
}

struct Topic {
    report: TopicReport,
    type_name: Option<String>,
    gaps: Gaps,
    latched: Latched,
    /// Channels by form and schema of the samples. Nearly always one.
    channels: HashMap<(Form, u64), u16>,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Recorder {
    /// Begins a recording. A file of that name must not be there.
    ///
    /// # Errors
    /// [`RecordError::Create`].
    pub fn create(path: &Path, options: RecorderOptions) -> Result<Self, RecordError> {
        let create = |source| RecordError::Create {
            path: path.to_owned(),
            source,
        };
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(path)
            .map_err(create)?;
        // Tells other recorders that the file is written. Not every file system has locks; it is not read without them.
        let _ = flock(&file, FlockOperation::NonBlockingLockExclusive);
        let disk = Arc::new(Disk::start(file).map_err(create)?);
        let staging = Staging {
            disk: disk.clone(),
            block: Vec::new(),
        };
        let mut writer = WriteOptions::new()
            .compression(options.compress.then_some(mcap::Compression::Lz4))
            .library(LIBRARY)
            // Chunks are closed here, by size and age, and written as a whole.
            .chunk_size(None)
            .disable_seeking(true)
            // Each chunk has its own checksum.
            .calculate_data_section_crc(false)
            .create(NoSeek::new(staging))?;
        writer.write_metadata(&Metadata {
            name: BEGIN.to_owned(),
            metadata: options.about.clone(),
        })?;
        writer.flush()?;
        Ok(Self {
            path: path.to_owned(),
            options,
            writer,
            disk,
            topics: Vec::new(),
            message: Vec::new(),
            chunk_bytes: 0,
            chunk_began: None,
            chunk_samples: Vec::new(),
            waiting: VecDeque::new(),
            last_log_time: 0,
        })
    }

    /// Begins the next file, of the same topics. It counts on from the numbers of their samples, and begins with those that
    /// [`Self::keep_last`] kept, logged at the time of the last sample.
    ///
    /// # Errors
    /// [`RecordError::Create`], and [`RecordError::Format`].
    pub(crate) fn successor(&self, path: &Path, now: Instant) -> Result<Self, RecordError> {
        let mut next = Self::create(path, self.options.clone())?;
        next.last_log_time = self.last_log_time;
        for topic in &self.topics {
            let id = next.add_topic(&topic.report.name, topic.type_name.as_deref());
            next.topics[id.0].gaps = topic.gaps;
            next.topics[id.0].latched = topic.latched.clone();
            for sample in topic.latched.samples() {
                next.write(id, &sample, self.last_log_time, now)?;
            }
        }
        Ok(next)
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes that are written or wait for the disk.
    pub(crate) fn bytes(&self) -> u64 {
        self.disk.accepted_bytes() + self.chunk_bytes as u64
    }

    /// Whether a sample was recorded.
    pub(crate) fn has_samples(&self) -> bool {
        self.topics.iter().any(|topic| topic.report.recorded > 0)
    }

    /// Keeps the last samples of a topic for the beginning of the next file.
    pub(crate) fn keep_last(&mut self, topic: TopicId, history: u32) {
        self.topics[topic.0].latched = Latched::new(history);
    }

    /// Adds a topic, of that type where one is declared.
    pub fn add_topic(&mut self, name: &str, type_name: Option<&str>) -> TopicId {
        self.topics.push(Topic {
            report: TopicReport {
                name: name.to_owned(),
                ..TopicReport::default()
            },
            type_name: type_name.map(str::to_owned),
            gaps: Gaps::default(),
            latched: Latched::default(),
            channels: HashMap::new(),
        });
        self.chunk_samples.push(0);
        TopicId(self.topics.len() - 1)
    }

    /// Records a sample. It can be let go of at once.
    ///
    /// Waits for the disk when more than 128 MiB wait for it already: the recorder's queues lose samples then, which is
    /// counted.
    ///
    /// # Errors
    /// [`RecordError::Disk`] when the disk is full: [`Self::finish`] then. [`RecordError::Format`] beyond 65,535 channels.
    ///
    /// # Panics
    /// When the topic is of another recorder.
    pub fn record(
        &mut self,
        topic: TopicId,
        sample: &Incoming<'_>,
        now: Instant,
    ) -> Result<(), RecordError> {
        let TopicId(index) = topic;
        let known = &mut self.topics[index];
        known.report.lost += known
            .gaps
            .before(sample.header.incarnation, sample.header.sequence);
        known.latched.push(sample);
        if self.disk.has_failed() {
            known.report.lost += 1;
            return Ok(());
        }
        let time = u64::try_from(sample.header.publish_utc).unwrap_or(0);
        self.last_log_time = time;
        if self.write(topic, sample, time, now)? {
            self.topics[index].report.recorded += 1;
            self.chunk_samples[index] += 1;
        } else {
            self.topics[index].report.damaged += 1;
        }
        if self.chunk_bytes >= self.options.chunk_bytes {
            self.close_chunk()?;
        }
        self.tick(now)
    }

    /// Writes a sample into the chunk. False if its head is damaged.
    fn write(
        &mut self,
        topic: TopicId,
        sample: &Incoming<'_>,
        log_time: u64,
        now: Instant,
    ) -> Result<bool, RecordError> {
        let topic = &mut self.topics[topic.0];
        let Ok((layout, _)) = decode_head(sample.head) else {
            return Ok(false);
        };
        let form = Form::of(sample, &layout, topic.type_name.as_deref());
        let channel_id = topic.channel(form, sample, &mut self.writer)?;
        form.write(&mut self.message, sample, &layout, &topic.report.name);
        let header = MessageHeader {
            channel_id,
            sequence: sample.header.sequence as u32,
            log_time,
            publish_time: u64::try_from(sample.header.publish_utc).unwrap_or(0),
        };
        self.writer.write_to_known_channel(&header, &self.message)?;
        self.chunk_bytes += self.message.len();
        self.chunk_began.get_or_insert(now);
        Ok(true)
    }

    /// Closes a chunk that has become old. To be called when no sample has come for a while; see [`Self::deadline`].
    ///
    /// # Errors
    /// As [`Self::record`].
    pub fn tick(&mut self, now: Instant) -> Result<(), RecordError> {
        match self.deadline() {
            Some(deadline) if deadline <= now => self.close_chunk(),
            _ => Ok(()),
        }
    }

    /// When [`Self::tick`] has something to do.
    pub fn deadline(&self) -> Option<Instant> {
        self.chunk_began
            .map(|began| began + self.options.chunk_period)
    }

    /// Why nothing is recorded any more, and samples are counted as lost: the disk is full, or failed.
    pub fn disk_failure(&self) -> Option<String> {
        self.disk.failure()
    }

    /// How it goes.
    pub fn report(&mut self) -> Report {
        self.settle();
        Report {
            bytes: self.disk.written_bytes(),
            topics: self
                .topics
                .iter()
                .map(|topic| topic.report.clone())
                .collect(),
        }
    }

    /// Ends the recording: losses, `reason` and an index are written behind the samples. Returns why not everything could be
    /// written, if so; what was written can be read.
    pub fn finish(mut self, reason: &str) -> (Report, Option<RecordError>) {
        let ended = self.write_end(reason);
        // Until everything is in the file, or cannot be.
        self.disk.drain();
        let mut report = self.report();
        let end = self.end("the disk failed");
        let Self {
            path, writer, disk, ..
        } = self;
        drop(writer.into_inner());
        let disk = Arc::into_inner(disk).expect("the writer is gone, which had the other one");
        let (mut file, failure) = disk.close();
        report.bytes = file.metadata().map_or(report.bytes, |file| file.len());
        let Some(source) = failure else {
            return (report, ended.err());
        };
        // The block that did not fit has left some room, enough for the few bytes of an orderly end. If not, the file can
        // be read without.
        let _ = disk::append(&mut file, report.bytes, &ending(&end));
        let lost = report
            .topics
            .iter()
            .map(|topic| topic.lost + topic.damaged)
            .sum();
        let kept_bytes = report.bytes;
        (
            report,
            Some(RecordError::Disk {
                path,
                kept_bytes,
                lost,
                source,
            }),
        )
    }

    fn write_end(&mut self, reason: &str) -> Result<(), RecordError> {
        self.close_chunk()?;
        if !self.disk.has_failed() {
            self.writer.write_metadata(&self.end(reason))?;
            // Ends with a flush.
            self.writer.finish()?;
        }
        Ok(())
    }

    fn close_chunk(&mut self) -> Result<(), RecordError> {
        self.chunk_bytes = 0;
        self.chunk_began = None;
        self.writer.flush()?;
        let samples = vec![0; self.topics.len()];
        let samples = std::mem::replace(&mut self.chunk_samples, samples);
        self.waiting
            .push_back((self.disk.accepted_blocks(), samples));
        self.settle();
        Ok(())
    }

    /// Counts what the disk did not take as lost.
    fn settle(&mut self) {
        // First: what is written after this look has not failed.
        let has_failed = self.disk.has_failed();
        let written = self.disk.written_blocks();
        while self
            .waiting
            .front()
            .is_some_and(|(block, _)| *block <= written)
        {
            self.waiting.pop_front();
        }
        if has_failed {
            let in_chunk = std::mem::replace(&mut self.chunk_samples, vec![0; self.topics.len()]);
            for samples in self
                .waiting
                .drain(..)
                .map(|(_, samples)| samples)
                .chain([in_chunk])
            {
                for (topic, count) in self.topics.iter_mut().zip(samples) {
                    topic.report.recorded -= count;
                    topic.report.lost += count;
                }
            }
        }
    }

    fn end(&self, reason: &str) -> Metadata {
        let mut metadata = BTreeMap::from([("reason".to_owned(), reason.to_owned())]);
        for topic in &self.topics {
            let lost = topic.report.lost + topic.report.damaged;
            metadata.insert(
                format!("{LOST_PREFIX}{}", topic.report.name),
                lost.to_string(),
            );
        }
        Metadata {
            name: END.to_owned(),
            metadata,
        }
    }
}

impl Topic {
    /// The channel of a sample, which is added when it is the first of its form and schema.
    fn channel(
        &mut self,
        form: Form,
        sample: &Incoming<'_>,
        writer: &mut Writer<NoSeek<Staging>>,
    ) -> Result<u16, RecordError> {
        let schema_id = sample.schema.as_ref().map_or(0, |schema| schema.id());
        if let Some(&id) = self.channels.get(&(form, schema_id)) {
            return Ok(id);
        }
        let (name, encoding, data) = form.schema(sample);
        let schema = match encoding {
            "" => 0,
            _ => writer.add_schema(&name, encoding, &data)?,
        };
        let mut metadata = BTreeMap::from([(VERSION_KEY.to_owned(), VERSION.to_owned())]);
        if let Some(type_name) = &self.type_name {
            metadata.insert(TYPE_KEY.to_owned(), type_name.clone());
        }
        if let Some(schema) = &sample.schema {
            metadata.insert(SCHEMA_KEY.to_owned(), hexadecimal::encode(schema.bytes()));
        }
        let id = writer.add_channel(
            schema,
            &self.report.name,
            form.message_encoding(),
            &metadata,
        )?;
        self.channels.insert((form, schema_id), id);
        Ok(id)
    }
}

/// Where the format's writer puts what it has written: a block, which is handed to the disk when it is flushed.
#[derive(Debug)]
struct Staging {
    disk: Arc<Disk>,
    block: Vec<u8>,
}

impl Write for Staging {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.block.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.block.is_empty() {
            let next = self.disk.block();
            self.disk.write(std::mem::replace(&mut self.block, next));
        }
        Ok(())
    }
}

/// The end of a file that has lost its index: metadata, the end of the data, a footer that knows of no summary.
fn ending(metadata: &Metadata) -> Vec<u8> {
    const METADATA: u8 = 0x0c;
    const DATA_END: u8 = 0x0f;
    const FOOTER: u8 = 0x02;
    let text = |out: &mut Vec<u8>, text: &str| {
        out.extend_from_slice(&(text.len() as u32).to_le_bytes());
        out.extend_from_slice(text.as_bytes());
    };
    let mut map = Vec::new();
    for (key, value) in &metadata.metadata {
        text(&mut map, key);
        text(&mut map, value);
    }
    let mut content = Vec::new();
    text(&mut content, &metadata.name);
    content.extend_from_slice(&(map.len() as u32).to_le_bytes());
    content.extend_from_slice(&map);
    let mut out = Vec::new();
    for (code, content) in [
        (METADATA, content.as_slice()),
        (DATA_END, &[0; 4]),
        (FOOTER, &[0; 20]),
    ] {
        out.push(code);
        out.extend_from_slice(&(content.len() as u64).to_le_bytes());
        out.extend_from_slice(content);
    }
    out.extend_from_slice(mcap::MAGIC);
    out
}
