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
use nervure_message::{Layout, decode_head};
use rustix::fs::{FlockOperation, flock};

use crate::declared_type::DeclaredType;
use crate::disk::{self, Disk};
use crate::form::Form;
use crate::gaps::Gaps;
use crate::hexadecimal;
use crate::latched::Latched;
use crate::record_messages::RecordMessages;
use crate::sample::IncomingSample;
use crate::throttle::Throttle;

/// The `library` in the header of a recording.
const LIBRARY: &str = concat!("nervure ", env!("CARGO_PKG_VERSION"));
/// Version of the additions to MCAP, in the metadata of each channel.
pub(crate) const VERSION: &str = "1";
/// Metadata key of the version.
pub(crate) const VERSION_KEY: &str = "nervure";
/// Metadata key of the type name.
pub(crate) const TYPE_KEY: &str = "nervure.type";
/// Metadata key of the Arrow schema, in hexadecimal.
pub(crate) const SCHEMA_KEY: &str = "nervure.schema";
/// Metadata key of the limit on samples per second that the recorder had.
pub(crate) const THROTTLE_KEY: &str = "nervure.throttle";
/// Name of the metadata record at the beginning of a file.
pub(crate) const BEGIN: &str = "nervure.begin";
/// Name of the metadata record at the end of a file.
pub(crate) const END: &str = "nervure.end";
/// Prefix of the keys in [`END`] that count the losses of a topic.
pub(crate) const LOST_PREFIX: &str = "lost ";

/// Options of a recording.
#[derive(Clone, Debug)]
pub struct RecorderOptions {
    /// Whether chunks are compressed with LZ4.
    pub compress: bool,
    /// Size in bytes at which a chunk is closed.
    pub chunk_bytes: usize,
    /// Age at which a chunk is closed: the most that a killed recorder loses.
    pub chunk_period: Duration,
    /// Metadata about the recording, such as the name of the dataflow.
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
    /// The file exists already, or cannot be created.
    #[error("cannot create the recording {}: {source}", path.display())]
    Create {
        /// Path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// Writing failed, for instance because the disk is full.
    #[error(
        "the recording {} ends here, after {kept_bytes} bytes: {source}; {lost} later samples are lost, what was written until then can be read",
        path.display()
    )]
    Disk {
        /// Path of the file.
        path: PathBuf,
        /// Length of the file that can be read, in bytes.
        kept_bytes: u64,
        /// Number of samples that are not in the file. The report counts them per topic.
        lost: u64,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The recording exceeds a limit of MCAP.
    #[error("the recording cannot hold this: {0}")]
    Format(#[from] mcap::McapError),
}

impl RecordError {
    /// Whether the file exists already.
    pub fn is_taken(&self) -> bool {
        matches!(self, Self::Create { source, .. } if source.kind() == io::ErrorKind::AlreadyExists)
    }
}

/// Writes the samples of any number of topics into one file.
///
/// If the process dies, the file can be read up to its last complete chunk.
pub struct Recorder {
    path: PathBuf,
    options: RecorderOptions,
    writer: Writer<NoSeek<Staging>>,
    disk: Arc<Disk>,
    topics: Vec<Topic>,
    /// Buffer for the message that is being encoded.
    message: Vec<u8>,
    chunk_bytes: usize,
    chunk_began: Option<Instant>,
    /// Number of samples of each topic in the current chunk.
    chunk_samples: Vec<u64>,
    /// Number of samples of each topic in chunks that wait for the disk, with the number of the
    /// last block of the chunk.
    waiting: VecDeque<(u64, Vec<u64>)>,
    last_log_time: u64,
}

/// Identifies a topic of a [`Recorder`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TopicId(usize);

/// Result of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Bytes in the file.
    pub bytes: u64,
    /// The topics, in the order in which they were added.
    pub topics: Vec<TopicReport>,
}

/// Result for a topic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicReport {
    /// Name of the topic.
    pub name: String,
    /// Number of samples in the file.
    pub recorded: u64,
    /// Number of samples that were published but are not in the file. They did not reach the
    /// recorder, as gaps in the sequence numbers show, or could not be written to disk.
    pub lost: u64,
    /// Number of samples that were received but not recorded, because their head was damaged.
    pub damaged: u64,
    /// Number of samples that were left out by the limit of [`Recorder::throttle`].
    pub throttled: u64,
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
                throttled,
            } = other;
            topic.name.clone_from(name);
            topic.recorded += recorded;
            topic.lost += lost;
            topic.damaged += damaged;
            topic.throttled += throttled;
        }
    }
}

struct Topic {
    report: TopicReport,
    declared: DeclaredType,
    gaps: Gaps,
    latched: Latched,
    most_hz: Option<f64>,
    throttle: Throttle,
    /// Channels, by form and schema of the samples. Nearly always one.
    channels: HashMap<(Form, u64), u16>,
    /// The messages for records, by the id of their schema; `None` if there can be none.
    records: HashMap<u64, Option<RecordMessages>>,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Recorder {
    /// Begins a recording. The file must not exist.
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
        // The lock marks the file as being written. It is optional, since not every file system
        // supports locks.
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

    /// Begins the next file, with the same topics. Sequence numbers are followed across the files.
    /// The new file begins with the samples that [`Self::keep_last`] kept, with the log time of the
    /// last sample.
    ///
    /// # Errors
    /// [`RecordError::Create`] and [`RecordError::Format`].
    pub(crate) fn successor(&self, path: &Path, now: Instant) -> Result<Self, RecordError> {
        let mut next = Self::create(path, self.options.clone())?;
        next.last_log_time = self.last_log_time;
        for topic in &self.topics {
            let id = next.add_topic(&topic.report.name, topic.declared.name.as_deref());
            next.topics[id.0].gaps = topic.gaps;
            next.topics[id.0].latched = topic.latched.clone();
            next.topics[id.0].most_hz = topic.most_hz;
            next.topics[id.0].throttle = topic.throttle.clone();
            for sample in topic.latched.samples() {
                next.write(id, &sample, self.last_log_time, now)?;
            }
        }
        Ok(next)
    }

    /// Path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Number of bytes that are written or queued for the disk.
    pub(crate) fn bytes(&self) -> u64 {
        self.disk.accepted_bytes() + self.chunk_bytes as u64
    }

    /// Whether any sample was recorded.
    pub(crate) fn has_samples(&self) -> bool {
        self.topics.iter().any(|topic| topic.report.recorded > 0)
    }

    /// Sets the number of last samples of a topic with which the next file begins.
    pub(crate) fn keep_last(&mut self, topic: TopicId, history: u32) {
        self.topics[topic.0].latched = Latched::new(history);
    }

    /// Records at most `hz` samples of a topic per second. Call it before the first sample.
    pub fn throttle(&mut self, topic: TopicId, hz: f64) {
        self.topics[topic.0].most_hz = Some(hz);
        self.topics[topic.0].throttle = Throttle::new(hz);
    }

    /// Adds a topic, with its declared type if there is one.
    pub fn add_topic(&mut self, name: &str, type_name: Option<&str>) -> TopicId {
        self.topics.push(Topic {
            report: TopicReport {
                name: name.to_owned(),
                ..TopicReport::default()
            },
            declared: DeclaredType::new(type_name),
            gaps: Gaps::default(),
            latched: Latched::default(),
            most_hz: None,
            throttle: Throttle::default(),
            channels: HashMap::new(),
            records: HashMap::new(),
        });
        self.chunk_samples.push(0);
        TopicId(self.topics.len() - 1)
    }

    /// Records a sample, by copying it.
    ///
    /// Blocks while more than 128 MiB wait for the disk. The queues of the recorder may overflow
    /// meanwhile; the lost samples are counted.
    ///
    /// # Errors
    /// [`RecordError::Disk`] if the disk is full; call [`Self::finish`] then.
    /// [`RecordError::Format`] for more than 65,535 channels.
    ///
    /// # Panics
    /// If the topic belongs to another recorder.
    pub fn record(
        &mut self,
        topic: TopicId,
        sample: &IncomingSample<'_>,
        now: Instant,
    ) -> Result<(), RecordError> {
        let TopicId(index) = topic;
        let known = &mut self.topics[index];
        known.report.lost += known
            .gaps
            .before(sample.header.incarnation, sample.header.sequence);
        known.latched.push(sample);
        let time = u64::try_from(sample.header.publish_utc).unwrap_or(0);
        if !known.throttle.takes(time) {
            known.report.throttled += 1;
            return Ok(());
        }
        if self.disk.has_failed() {
            known.report.lost += 1;
            return Ok(());
        }
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

    /// Writes a sample into the chunk. Returns false if its head is damaged.
    fn write(
        &mut self,
        topic: TopicId,
        sample: &IncomingSample<'_>,
        log_time: u64,
        now: Instant,
    ) -> Result<bool, RecordError> {
        let topic = &mut self.topics[topic.0];
        let Ok((layout, _)) = decode_head(sample.head) else {
            return Ok(false);
        };
        let (form, record) = topic.form(sample, &layout);
        let channel_id = topic.channel(form, sample, &mut self.writer)?;
        let name = &topic.report.name;
        form.write(&mut self.message, sample, &layout, name, &record);
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

    /// Closes the chunk if it has become old. Call it at [`Self::deadline`] even if no sample
    /// arrives.
    ///
    /// # Errors
    /// See [`Self::record`].
    pub fn tick(&mut self, now: Instant) -> Result<(), RecordError> {
        match self.deadline() {
            Some(deadline) if deadline <= now => self.close_chunk(),
            _ => Ok(()),
        }
    }

    /// The next time at which [`Self::tick`] has work to do.
    pub fn deadline(&self) -> Option<Instant> {
        self.chunk_began
            .map(|began| began + self.options.chunk_period)
    }

    /// Why recording has stopped, such as a full disk. From then on samples count as lost.
    pub fn disk_failure(&self) -> Option<String> {
        self.disk.failure()
    }

    /// Report on the recording so far.
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

    /// Ends the recording: writes the losses, `reason` and an index after the samples. Returns an
    /// error if some samples could not be written; the rest can be read.
    pub fn finish(mut self, reason: &str) -> (Report, Option<RecordError>) {
        let ended = self.write_end(reason);
        // All blocks are written or dropped before the losses are counted.
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
        // The block that did not fit leaves room for the few bytes of an orderly end. Without it
        // the file can be read too.
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
            // `finish` ends with a flush.
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

    /// Counts samples in blocks that were not written as lost.
    fn settle(&mut self) {
        // `has_failed` is read first. In the other order, a block that was written between the two
        // reads, before a failure, would count as lost.
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
    /// The form of a sample, and of a record the fields of its message.
    fn form(&mut self, sample: &IncomingSample<'_>, layout: &Layout) -> (Form, Vec<u8>) {
        let form = Form::of(sample, layout, &self.declared);
        let (Form::Record, Layout::Array(array)) = (form, layout) else {
            return (form, Vec::new());
        };
        let declared = &self.declared;
        let id = sample.schema.as_ref().map_or(0, |schema| schema.id());
        let messages = self
            .records
            .entry(id)
            .or_insert_with(|| RecordMessages::new(sample, layout, declared));
        match messages {
            None => (Form::of_array(sample, array), Vec::new()),
            // A damaged record is kept as it is.
            Some(messages) => match messages.encode(sample, array) {
                Ok(record) => (form, record),
                Err(_) => (Form::Opaque, Vec::new()),
            },
        }
    }

    /// The id of the channel for a sample. Adds a channel for the first sample of a form and
    /// schema.
    fn channel(
        &mut self,
        form: Form,
        sample: &IncomingSample<'_>,
        writer: &mut Writer<NoSeek<Staging>>,
    ) -> Result<u16, RecordError> {
        let schema_id = sample.schema.as_ref().map_or(0, |schema| schema.id());
        if let Some(&id) = self.channels.get(&(form, schema_id)) {
            return Ok(id);
        }
        let schema = match (form, self.records.get(&schema_id)) {
            (Form::Record, Some(Some(messages))) => Some(messages.schema().clone()),
            _ => form.schema(sample),
        };
        let schema = match schema {
            None => 0,
            Some(schema) => writer.add_schema(&schema.name, schema.encoding, &schema.data)?,
        };
        let mut metadata = BTreeMap::from([(VERSION_KEY.to_owned(), VERSION.to_owned())]);
        if let Some(type_name) = &self.declared.name {
            metadata.insert(TYPE_KEY.to_owned(), type_name.clone());
        }
        if let Some(hz) = self.most_hz {
            metadata.insert(THROTTLE_KEY.to_owned(), hz.to_string());
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

/// Collects the output of the MCAP writer in a block, and passes the block to the disk on flush.
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

/// The end of a file that has no index: metadata, the end of the data, and a footer without a
/// summary.
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
