//! Requests of a daemon to the daemon of another machine, for a command of its user, and the answers.
//!
//! Each connection of a command has two streams of the link, one in each direction. The stream to
//! the other machine has JSON messages, [`Ask`]. The stream from it has frames:
//!
//! | first byte | rest of the frame |
//! |---|---|
//! | 0 | [`Answer`] as JSON |
//! | 1 | length of the JSON (4 bytes), a `keeper_to_cli` message as JSON, and the counters page that came with it |
//! | 2 | index of a node (4 bytes), and the lines of its counters page that have changed: number of the line (4 bytes), 64 bytes |
//! | 3 | index of a topic (4), incarnation (4), sequence number (8), samples missed before it (8), latency in nanoseconds (8), the sender's clock (8), and the sample |
//!
//! Numbers are little-endian. Requests to a keeper have no second protocol: the keeper's own
//! messages are passed on.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    MAX_MESSAGE_BYTES, ProtocolError, cli_to_keeper, decode, encode,
    keeper_to_cli::{self, Refused, Welcome},
    loss::LossCause,
    report::{Level, LogRecord},
};

/// Bytes of a line of a counters page. A page is a number of whole lines.
pub const LINE_BYTES: usize = 64;

/// Maximum size of a counters page that is passed on: a node with 4000 inputs.
pub const MAX_PAGE_BYTES: usize = 8 << 20;

/// A message to the other machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Ask {
    /// The first message.
    Request {
        /// The request.
        request: Request,
    },
    /// After [`Request::Reach`]: a message to the keeper.
    Keeper {
        /// The message.
        message: cli_to_keeper::Message,
    },
    /// After [`Request::Observe`]: the command can show one more sample.
    Next,
    /// The command is still there.
    Alive,
}

/// A request to another machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Request {
    /// List its dataflows. Answered by `Dataflow` for each, and `Done`.
    List,
    /// Connect to a keeper. Answered by `Reached`; then its messages follow, with counters pages and
    /// their changes, and the use of processes.
    Reach {
        /// Process id of the keeper.
        keeper: u32,
        /// The command, for people.
        program: String,
        /// True for the use of processes too.
        #[serde(default)]
        usages: bool,
    },
    /// Receive samples of topics, one for each `Next`: the newest. Answered by `Observing`.
    Observe {
        /// Process id of the keeper.
        keeper: u32,
        /// The command, for people.
        program: String,
        /// `node/output` of each.
        topics: Vec<String>,
    },
    /// Measure topics there. Answered by `Observing`, and by `Measured` after each interval.
    Measure {
        /// Process id of the keeper.
        keeper: u32,
        /// The command, for people.
        program: String,
        /// `node/output` of each.
        topics: Vec<String>,
        /// The interval in nanoseconds, 100 ms at least.
        interval_nanos: u64,
    },
    /// Send the log records of a dataflow. Answered by `Omitted` if there are too many, `Records`, in
    /// the order of their time, and `Done`.
    Logs {
        /// Process id of the keeper.
        keeper: u32,
        /// The records.
        filter: LogFilter,
    },
}

/// The log records that a command wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogFilter {
    /// Records of these nodes; of all, if it is empty.
    pub nodes: Vec<String>,
    /// Records of this level and above.
    pub level: Level,
    /// Records whose text matches this regular expression.
    pub pattern: Option<String>,
    /// Records not older than this, in nanoseconds since the Unix epoch.
    pub since_utc_nanos: i64,
}

/// An answer of another machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Answer {
    /// The request failed, or is not allowed.
    Refused(Refused),
    /// The answer is complete.
    Done,
    /// A dataflow.
    Dataflow(Listed),
    /// From here on the keeper's messages follow.
    Reached(Welcome),
    /// Samples or figures follow.
    Observing,
    /// The CPU time and memory of processes.
    Usages {
        /// When they were read, in nanoseconds of the machine's monotonic clock.
        at_nanos: u64,
        /// By process.
        usages: Vec<Usage>,
    },
    /// A sample; its bytes are beside it.
    Sample(SampleInfo),
    /// Figures of topics, since the last ones.
    Measured {
        /// The length of the interval in seconds.
        seconds: f64,
        /// In the order of the request.
        topics: Vec<Figures>,
    },
    /// Log records.
    Records {
        /// The records.
        records: Vec<LogRecord>,
    },
    /// The oldest log records are left out.
    Omitted {
        /// How many.
        records: u64,
    },
    /// The observed topic or dataflow has ended.
    Ended {
        /// `node/output`; the whole dataflow if `None`.
        topic: Option<String>,
    },
    /// The machine is still there.
    Alive,
    /// Traffic of the request on the link so far; from the daemon of the command.
    Cost(Cost),
}

/// A dataflow of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listed {
    /// The id of its run, if the daemon has started it.
    pub run: Option<String>,
    /// Its name.
    pub dataflow: String,
    /// Process id of its keeper.
    pub keeper: u32,
    /// Its state, or why the keeper does not answer.
    pub welcome: Result<Welcome, String>,
    /// Fate of the samples on their way to and from other machines, as this machine knows it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<StreamReport>,
    /// Number of further ones that do not fit into `streams`.
    #[serde(default)]
    pub streams_omitted: usize,
}

/// The CPU time and memory of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Its process id.
    pub pid: u32,
    /// CPU time in microseconds.
    pub cpu_micros: u64,
    /// Resident memory in bytes.
    pub resident_bytes: u64,
    /// Number of threads.
    pub threads: u64,
}

/// Metadata of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SampleInfo {
    /// Index of its topic in the request.
    pub topic: u32,
    /// Incarnation of its producer.
    pub incarnation: u32,
    /// Its sequence number.
    pub sequence: u64,
    /// Samples that were not fetched since the last one of its topic.
    pub missed: u64,
    /// Time from publication until it was taken from the queue, in nanoseconds.
    pub latency_nanos: u64,
    /// The machine's clock then, in nanoseconds since the Unix epoch.
    pub now_utc_nanos: i64,
}

/// Fate of the samples of a topic on their way to a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamReport {
    /// `node/output`.
    pub topic: String,
    /// The machine of the consumers.
    pub machine: String,
    /// Samples that the link accepted.
    pub accepted: u64,
    /// Samples that were delivered to the machine; of them, those that failed there are lost.
    pub delivered: u64,
    /// Samples that the machine had not taken when the run ended. They are not lost: their producer and
    /// their consumers were stopped at about the same time.
    #[serde(default)]
    pub not_taken: u64,
    /// Whether none should be lost: a consumer has `queue_policy: block`, and there is no lifespan.
    #[serde(default)]
    pub is_lossless: bool,
    /// Samples that were dropped, by cause.
    pub lost: BTreeMap<LossCause, u64>,
    /// Latency; from the machine of the consumers, if it knows the clock of the other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency: Option<StreamLatency>,
}

/// Times from the publication of samples on one machine to that on the other, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamLatency {
    /// The median.
    pub p50_nanos: u64,
    /// The 99th percentile.
    pub p99_nanos: u64,
    /// The longest.
    pub max_nanos: u64,
    /// Largest error of the times, since the clocks of the machines are compared over the link.
    pub error_nanos: u64,
}

impl StreamReport {
    /// Adds the report of another machine, or an empty one of the same topic.
    pub fn add(&mut self, other: &Self) {
        (self.topic, self.machine) = (other.topic.clone(), other.machine.clone());
        self.accepted += other.accepted;
        self.delivered += other.delivered;
        self.not_taken += other.not_taken;
        self.is_lossless |= other.is_lossless;
        self.latency = self.latency.or(other.latency);
        for (cause, count) in &other.lost {
            *self.lost.entry(cause.clone()).or_default() += count;
        }
    }
}

/// Figures of a topic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Samples that were received.
    pub samples: u64,
    /// Samples that were missed.
    pub missed: u64,
    /// Nanoseconds between consecutive samples.
    pub intervals: Statistics,
    /// Payload bytes.
    pub bytes: Statistics,
    /// Age on arrival in nanoseconds.
    pub ages: Statistics,
    /// Time from publication in nanoseconds.
    pub latencies: Statistics,
}

/// Mean, extremes and spread of a stream of numbers (Welford's method: B. P. Welford, Technometrics
/// 4, 1962).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Statistics {
    /// How many.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// Sum of the squares of their distances from the mean.
    pub squares: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
}

/// Traffic of a command on the link, without its packets' headers and repairs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// Bytes received from the machine.
    pub received_bytes: u64,
    /// Bytes sent to it.
    pub sent_bytes: u64,
}

impl Statistics {
    /// Adds a number.
    pub fn add(&mut self, value: f64) {
        self.count += 1;
        let delta = value - self.mean;
        self.mean += delta / self.count as f64;
        self.squares += delta * (value - self.mean);
        let is_first = self.count == 1;
        self.min = if is_first { value } else { self.min.min(value) };
        self.max = if is_first { value } else { self.max.max(value) };
    }

    /// Population (not sample) standard deviation; `None` without numbers.
    pub fn deviation(self) -> Option<f64> {
        (self.count > 0).then(|| (self.squares / self.count as f64).sqrt())
    }
}

/// A frame from the other machine.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame<'a> {
    /// An answer.
    Answer(Answer),
    /// A message of the keeper, and the contents of the counters page that came with it.
    Keeper(keeper_to_cli::Message, Option<&'a [u8]>),
    /// Changes of the counters page of a node.
    Lines(u32, Lines<'a>),
    /// A sample.
    Sample(SampleInfo, &'a [u8]),
}

/// Changed lines of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lines<'a>(&'a [u8]);

/// Why a frame is refused.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// It ends too early, or has a part of a line.
    #[error("a frame of {0} bytes has an impossible length")]
    Length(usize),
    /// The kind is unknown.
    #[error("frame kind {0} is unknown")]
    Kind(u8),
    /// The page is too large.
    #[error("a counters page of {0} bytes, expected whole lines, and at most {MAX_PAGE_BYTES}")]
    Page(usize),
    /// The message is not valid.
    #[error(transparent)]
    Message(#[from] ProtocolError),
}

const ANSWER: u8 = 0;
const KEEPER: u8 = 1;
const LINES: u8 = 2;
const SAMPLE: u8 = 3;
const SAMPLE_BYTES: usize = 4 + 4 + 4 * 8;

impl<'a> Lines<'a> {
    /// The number of each line, and its bytes.
    pub fn iter(self) -> impl Iterator<Item = (u32, &'a [u8])> {
        self.0.chunks_exact(4 + LINE_BYTES).map(|chunk| {
            let (number, line) = chunk.split_at(4);
            (
                u32::from_le_bytes(number.try_into().expect("four bytes")),
                line,
            )
        })
    }
}

/// The lines of `page` that differ from `known`, as a frame; `None` if there are none.
pub fn changed_lines(node: u32, known: &[u8], page: &[u8]) -> Option<Vec<u8>> {
    let mut frame = vec![LINES];
    frame.extend(node.to_le_bytes());
    let (old, new) = (known.chunks(LINE_BYTES), page.chunks(LINE_BYTES));
    for (number, (old, new)) in (0_u32..).zip(old.zip(new)) {
        if old != new {
            frame.extend(number.to_le_bytes());
            frame.extend(new);
        }
    }
    (frame.len() > 5).then_some(frame)
}

impl Frame<'_> {
    /// Encodes the frame.
    ///
    /// # Errors
    /// [`ProtocolError::TooLarge`] for a message above the limit of control messages.
    pub fn encode(&self) -> Result<Vec<u8>, ProtocolError> {
        match self {
            Self::Answer(answer) => {
                let mut frame = encode(answer)?;
                frame.insert(0, ANSWER);
                Ok(frame)
            }
            Self::Keeper(message, page) => {
                let json = encode(message)?;
                let page = page.unwrap_or_default();
                let mut frame = Vec::with_capacity(5 + json.len() + page.len());
                frame.push(KEEPER);
                frame.extend((json.len() as u32).to_le_bytes());
                frame.extend(json);
                frame.extend_from_slice(page);
                Ok(frame)
            }
            Self::Lines(node, lines) => {
                let mut frame = vec![LINES];
                frame.extend(node.to_le_bytes());
                frame.extend_from_slice(lines.0);
                Ok(frame)
            }
            Self::Sample(info, sample) => {
                let mut frame = Vec::with_capacity(1 + SAMPLE_BYTES + sample.len());
                frame.push(SAMPLE);
                frame.extend(info.topic.to_le_bytes());
                frame.extend(info.incarnation.to_le_bytes());
                for number in [info.sequence, info.missed, info.latency_nanos] {
                    frame.extend(number.to_le_bytes());
                }
                frame.extend(info.now_utc_nanos.to_le_bytes());
                frame.extend_from_slice(sample);
                Ok(frame)
            }
        }
    }
}

/// Decodes a frame, which the other machine may have made up.
///
/// # Errors
/// [`FrameError`].
pub fn decode_frame(bytes: &[u8]) -> Result<Frame<'_>, FrameError> {
    let short = || FrameError::Length(bytes.len());
    let (kind, rest) = bytes.split_first().ok_or_else(short)?;
    let number = |from: &[u8], at: usize| -> Option<u32> {
        Some(u32::from_le_bytes(from.get(at..at + 4)?.try_into().ok()?))
    };
    match *kind {
        ANSWER => Ok(Frame::Answer(decode(rest)?)),
        KEEPER => {
            let length = number(rest, 0).ok_or_else(short)? as usize;
            if length > MAX_MESSAGE_BYTES {
                return Err(ProtocolError::TooLarge { bytes: length }.into());
            }
            let (json, page) = rest[4..].split_at_checked(length).ok_or_else(short)?;
            if page.len() > MAX_PAGE_BYTES || !page.len().is_multiple_of(LINE_BYTES) {
                return Err(FrameError::Page(page.len()));
            }
            Ok(Frame::Keeper(
                decode(json)?,
                (!page.is_empty()).then_some(page),
            ))
        }
        LINES => {
            let node = number(rest, 0).ok_or_else(short)?;
            let lines = &rest[4..];
            if lines.len() > 2 * MAX_PAGE_BYTES || !lines.len().is_multiple_of(4 + LINE_BYTES) {
                return Err(short());
            }
            Ok(Frame::Lines(node, Lines(lines)))
        }
        SAMPLE => {
            let (fixed, sample) = rest.split_at_checked(SAMPLE_BYTES).ok_or_else(short)?;
            let long =
                |at: usize| u64::from_le_bytes(fixed[at..at + 8].try_into().expect("eight bytes"));
            let info = SampleInfo {
                topic: number(fixed, 0).ok_or_else(short)?,
                incarnation: number(fixed, 4).ok_or_else(short)?,
                sequence: long(8),
                missed: long(16),
                latency_nanos: long(24),
                now_utc_nanos: long(32).cast_signed(),
            };
            Ok(Frame::Sample(info, sample))
        }
        kind => Err(FrameError::Kind(kind)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reports_of_both_machines_of_a_topic_add_up() {
        let latency = StreamLatency {
            p50_nanos: 1,
            ..StreamLatency::default()
        };
        let sent = StreamReport {
            topic: "camera/image".to_owned(),
            machine: "edge".to_owned(),
            accepted: 10,
            delivered: 8,
            not_taken: 0,
            is_lossless: false,
            lost: BTreeMap::from([(LossCause::Queue, 1), (LossCause::Failed, 1)]),
            latency: None,
        };
        let received = StreamReport {
            accepted: 0,
            delivered: 0,
            lost: BTreeMap::from([(LossCause::Failed, 2)]),
            latency: Some(latency),
            ..sent.clone()
        };
        let mut sum = StreamReport::default();
        sum.add(&sent);
        sum.add(&received);
        let lost = BTreeMap::from([(LossCause::Queue, 1), (LossCause::Failed, 3)]);
        let latency = Some(latency);
        assert_eq!(
            sum,
            StreamReport {
                lost,
                latency,
                ..sent
            }
        );
    }

    #[test]
    fn changed_lines_make_one_page_of_the_other() {
        let known = vec![0; 4 * LINE_BYTES];
        let mut page = known.clone();
        (page[3], page[200]) = (1, 2);
        let frame = changed_lines(7, &known, &page).unwrap();
        let Ok(Frame::Lines(7, lines)) = decode_frame(&frame) else {
            panic!("{frame:?}");
        };
        let mut copy = known.clone();
        for (number, line) in lines.iter() {
            copy[number as usize * LINE_BYTES..][..LINE_BYTES].copy_from_slice(line);
        }
        assert_eq!(copy, page);
        assert_eq!(frame.len(), 1 + 4 + 2 * (4 + LINE_BYTES));
        assert_eq!(changed_lines(7, &page, &page), None);
    }

    #[test]
    fn frames_survive_a_round_trip_and_damaged_ones_are_refused() {
        let page = [5; 2 * LINE_BYTES];
        let info = SampleInfo {
            topic: 1,
            incarnation: 2,
            sequence: 3,
            missed: 4,
            latency_nanos: 5,
            now_utc_nanos: -6,
        };
        for frame in [
            Frame::Answer(Answer::Alive),
            Frame::Keeper(keeper_to_cli::Message::Done, None),
            Frame::Keeper(keeper_to_cli::Message::SnapshotComplete, Some(&page)),
            Frame::Sample(info, b"sample"),
        ] {
            let bytes = frame.encode().unwrap();
            assert_eq!(decode_frame(&bytes).unwrap(), frame);
        }
        for damaged in [
            &b""[..],
            b"\x09",
            b"\x00nothing",
            b"\x01\xff\xff\xff\xff",
            b"\x01\x02\x00\x00\x00{}x",
            b"\x02\x00\x00\x00\x00x",
            b"\x03short",
        ] {
            assert!(decode_frame(damaged).is_err(), "{damaged:?}");
        }
    }

    #[test]
    fn statistics_match_a_textbook_example() {
        let mut spread = Statistics::default();
        assert_eq!(spread.deviation(), None);
        for value in [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0] {
            spread.add(value);
        }
        let figures = (spread.mean, spread.deviation(), spread.min, spread.max);
        assert_eq!(figures, (5.0, Some(2.0), 2.0, 9.0));
    }
}
