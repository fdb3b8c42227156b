//! The contents of a recording, without playing it.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::sync::Arc;

use crate::channel::Channel;
use crate::envelope::RecordedEnvelope;
use crate::gaps::Gaps;
use crate::recorded::{SampleChannel, SampleReadError};
use crate::recorder::{END, LOST_PREFIX, THROTTLE_KEY, VERSION_KEY};
use crate::recording::Recording;
use crate::ros::DefinitionOrigin;
use crate::storage::Summary;

/// The contents of a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overview {
    /// The topics, by name.
    pub topics: Vec<TopicOverview>,
    /// Log times of the first and the last message, in nanoseconds since the Unix epoch; `None`
    /// without messages.
    pub times: Option<(u64, u64)>,
    /// Descriptions of the unreadable parts, with the reason and the loss. At most 20, plus one
    /// that counts the rest.
    pub damaged: Vec<String>,
}

/// The contents of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicOverview {
    /// Name of the topic.
    pub topic: String,
    /// Declared type of its samples.
    pub type_name: Option<String>,
    /// Names of the message types, or their encodings if the types have no name.
    pub schemas: Vec<String>,
    /// Number of messages that can be read.
    pub messages: u64,
    /// Number of messages that the index of the file counts but that cannot be read.
    pub missing: u64,
    /// Number of samples that were published but not recorded; `None` if unknown.
    pub lost: Option<u64>,
    /// Whether the topic was recorded by Nervure.
    pub holds_samples: bool,
    /// What messages that were not recorded by Nervure become when played, as text for users.
    pub becomes: Vec<String>,
    /// Where the definitions of messages of ROS are from.
    pub definitions: Vec<DefinitionOrigin>,
}

impl TopicOverview {
    fn new(topic: &str) -> Self {
        Self {
            topic: topic.to_owned(),
            type_name: None,
            schemas: Vec::new(),
            messages: 0,
            missing: 0,
            lost: None,
            holds_samples: false,
            becomes: Vec::new(),
            definitions: Vec::new(),
        }
    }

    fn add(&mut self, channel: &Channel, samples: Result<SampleChannel, SampleReadError>) {
        let name = if channel.schema_name.is_empty() {
            &channel.message_encoding
        } else {
            &channel.schema_name
        };
        if !self.schemas.contains(name) {
            self.schemas.push(name.clone());
        }
        if let Some(name) = channel.type_name() {
            self.type_name = Some(name.to_owned());
        }
        self.holds_samples |= channel.metadata.contains_key(VERSION_KEY);
        let origin = samples.as_ref().ok().and_then(SampleChannel::definition);
        self.definitions
            .extend(origin.filter(|known| !self.definitions.contains(known)));
        let becomes = match samples {
            Ok(samples) => samples.becomes().map(str::to_owned),
            Err(error) => Some(format!("not played: {error}")),
        };
        self.becomes
            .extend(becomes.filter(|known| !self.becomes.contains(known)));
    }
}

impl Recording {
    /// Summarizes the recording from its index, or by reading all of it if there is no index. An
    /// index does not show damage.
    pub fn overview(&self) -> Overview {
        match self.summaries() {
            Some(summaries) => self.overview_of_summaries(&summaries),
            None => self.overview_of_messages(),
        }
    }

    /// Summarizes the recording by reading all of it, and counts the messages that the index lists
    /// in addition.
    pub fn checked_overview(&self) -> Overview {
        let mut overview = self.overview_of_messages();
        let Some(summaries) = self.summaries() else {
            return overview;
        };
        let indexed = self.overview_of_summaries(&summaries);
        for mut counted in indexed.topics {
            match overview
                .topics
                .iter_mut()
                .find(|topic| topic.topic == counted.topic)
            {
                Some(found) => {
                    found.missing = counted.messages.saturating_sub(found.messages);
                    // Gaps in the sequence numbers would count missing messages again.
                    found.lost = counted.lost;
                }
                None => {
                    counted.missing = std::mem::take(&mut counted.messages);
                    overview.topics.push(counted);
                }
            }
        }
        overview
            .topics
            .sort_by(|one, other| one.topic.cmp(&other.topic));
        let missing: u64 = overview.topics.iter().map(|topic| topic.missing).sum();
        if missing > 0 && overview.damaged.is_empty() {
            overview.damaged.push(format!(
                "{}: {missing} messages listed in its index are missing",
                self.name()
            ));
        }
        overview
    }

    fn overview_of_summaries(&self, summaries: &[&Summary]) -> Overview {
        let mut topics = BTreeMap::new();
        let mut times: Option<(u64, u64)> = None;
        for summary in summaries {
            for (id, channel) in &summary.channels {
                let topic = topics
                    .entry(&channel.topic)
                    .or_insert_with(|| TopicOverview::new(&channel.topic));
                topic.add(channel, self.samples_of(channel));
                topic.messages += summary.messages.get(id).copied().unwrap_or(0);
            }
            if summary.messages.values().any(|messages| *messages > 0) {
                let (first, last) = times.unwrap_or(summary.times);
                times = Some((first.min(summary.times.0), last.max(summary.times.1)));
            }
        }
        let lost = self.metadata(END);
        for (name, topic) in &mut topics {
            let count = lost.and_then(|lost| lost.get(&format!("{LOST_PREFIX}{name}")));
            topic.lost = count.and_then(|count| count.parse().ok());
        }
        let topics: Vec<_> = topics.into_values().collect();
        Overview {
            topics,
            times,
            damaged: Vec::new(),
        }
    }

    fn overview_of_messages(&self) -> Overview {
        let mut topics: BTreeMap<String, (TopicOverview, Gaps)> = BTreeMap::new();
        let mut seen: HashMap<*const Channel, Arc<Channel>> = HashMap::new();
        let mut overview = Overview::default();
        let mut times: Option<(u64, u64)> = None;
        let mut damages = Damages::default();
        let mut channels = self.channels();
        for piece in 0..self.pieces() {
            let result = self.read(piece, &mut channels, |_, channel, header, data| {
                let name = &channel.topic;
                if !topics.contains_key(name) {
                    topics.insert(name.clone(), (TopicOverview::new(name), Gaps::default()));
                }
                let (topic, gaps) = topics.get_mut(name).expect("it was inserted above");
                seen.entry(Arc::as_ptr(channel)).or_insert_with(|| {
                    topic.add(channel, self.samples_of(channel));
                    channel.clone()
                });
                topic.messages += 1;
                if topic.holds_samples
                    && !channel.metadata.contains_key(THROTTLE_KEY)
                    && let Ok((RecordedEnvelope { header, .. }, _)) = RecordedEnvelope::read(data)
                {
                    *topic.lost.get_or_insert(0) +=
                        gaps.before(header.incarnation, header.sequence);
                }
                let time = header.log_time;
                let (first, last) = times.unwrap_or((time, time));
                times = Some((first.min(time), last.max(time)));
            });
            if let Err(error) = result {
                damages.add(error.to_string());
            }
        }
        overview.times = times;
        overview.damaged = damages.into_texts();
        overview.topics = topics.into_values().map(|(topic, _)| topic).collect();
        overview
    }
}

/// Descriptions of damaged parts, up to a limit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Damages {
    named: Vec<String>,
    more: u64,
}

impl Damages {
    const MAX_NAMED: usize = 20;

    /// Adds a description. Returns false if the limit is reached; the part is counted all the same.
    pub(crate) fn add(&mut self, text: String) -> bool {
        let has_room = self.named.len() < Self::MAX_NAMED;
        if has_room {
            self.named.push(text);
        } else {
            self.more += 1;
        }
        has_room
    }

    pub(crate) fn count(&self) -> u64 {
        self.named.len() as u64 + self.more
    }

    fn into_texts(self) -> Vec<String> {
        let more = (self.more > 0).then(|| format!("{} more parts", self.more));
        self.named.into_iter().chain(more).collect()
    }
}
