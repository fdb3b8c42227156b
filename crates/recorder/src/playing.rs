//! Options of a playback, and its report.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::RangeInclusive;
use std::time::Duration;

use nervure_node::SendError;

/// Options of a playback.
#[derive(Clone, Debug)]
pub struct PlayOptions {
    /// Recorded seconds per second of playback; `None` for as fast as the receivers allow.
    pub rate: Option<f64>,
    /// Whether to start again at the end, until the dataflow stops.
    pub repeat: bool,
    /// Whether the dataflow's clock shows the time of the recording. Needs a rate. The clock stops
    /// while a full queue holds up the player. It continues over all rounds: from the second round
    /// on, stamps are shifted with it.
    pub drives_clock: bool,
    /// Names to use for topics of the recording, by their recorded names.
    pub renamed: BTreeMap<String, String>,
    /// Recorded names of the topics that are played; `None` for all.
    pub topics: Option<BTreeSet<String>>,
    /// First and last time that is played, as [`crate::Message::time`].
    pub window: RangeInclusive<u64>,
    /// Limits on the samples of a topic per recorded second, by recorded name.
    pub most_hz: BTreeMap<String, f64>,
}

impl Default for PlayOptions {
    fn default() -> Self {
        Self {
            rate: Some(1.0),
            repeat: false,
            drives_clock: false,
            renamed: BTreeMap::new(),
            topics: None,
            window: 0..=u64::MAX,
            most_hz: BTreeMap::new(),
        }
    }
}

impl PlayOptions {
    pub(crate) fn wants(&self, topic: &str) -> bool {
        let topics = self.topics.as_ref();
        topics.is_none_or(|topics| topics.contains(topic))
    }
}

/// Result of a playback.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PlayReport {
    /// Number of samples that were published.
    pub samples: u64,
    /// Number of rounds that were started.
    pub rounds: u64,
    /// Greatest delay of a sample; `None` if played as fast as possible.
    pub latest: Option<Duration>,
    /// Time that the player waited for full queues, by consumer (`node/input`).
    pub waited: HashMap<String, Duration>,
    /// Number of messages that could not be published and the first reason, by topic. The reason is
    /// empty if the whole topic cannot be played, which was reported before.
    pub skipped: HashMap<String, (u64, String)>,
    /// Number of parts of the file that could not be read. The first ones are reported when they
    /// are met.
    pub damaged: u64,
    /// Whether playback was stopped before the end.
    pub is_stopped: bool,
}

/// Why playing a recording failed.
#[derive(Debug, thiserror::Error)]
pub enum PlayError {
    /// Publishing failed.
    #[error("cannot publish {topic}: {source}")]
    Send {
        /// Name of the topic.
        topic: String,
        /// Error of the publisher.
        source: SendError,
    },
    /// The thread that reads ahead could not be started.
    #[error("cannot start the thread that reads ahead: {0}")]
    Thread(#[from] std::io::Error),
}

/// The name of a topic in a dataflow: without the leading slash of ROS, unless renamed.
pub fn played_name<'a>(topic: &'a str, renamed: &'a BTreeMap<String, String>) -> &'a str {
    renamed
        .get(topic)
        .map_or(topic.strip_prefix('/').unwrap_or(topic), String::as_str)
}
