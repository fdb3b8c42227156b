//! What is in a recording, told without playing it.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::sync::Arc;

use crate::channel::Channel;
use crate::envelope::Envelope;
use crate::gaps::Gaps;
use crate::recorded::SampleChannel;
use crate::recorder::{END, LOST_PREFIX, VERSION_KEY};
use crate::recording::Recording;
use crate::storage::Summary;

/// What is in a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overview {
    /// Its topics, by name.
    pub topics: Vec<TopicOverview>,
    /// The times of the first and the last message, in nanoseconds since the Unix epoch; `None` when there is none.
    pub times: Option<(u64, u64)>,
    /// Parts that cannot be read, why, and how much is lost. At most 21.
    pub damaged: Vec<String>,
}

/// What is in a recording of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicOverview {
    /// Its name.
    pub topic: String,
    /// The declared type of its samples.
    pub type_name: Option<String>,
    /// What its messages are called, and how they are encoded.
    pub schemas: Vec<String>,
    /// Messages that are there.
    pub messages: u64,
    /// Messages that the index of the file counts and that cannot be read.
    pub missing: u64,
    /// Samples that were published and are not there; `None` where nobody knows.
    pub lost: Option<u64>,
    /// Whether it was recorded by Nervure.
    pub holds_samples: bool,
    /// What its messages become when they are played, for people: of those that were not recorded by Nervure.
    pub becomes: Vec<String>,
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
        }
    }

    fn add(&mut self, channel: &Channel) {
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
        let becomes = match SampleChannel::new(channel) {
            Ok(samples) => samples.becomes().map(str::to_owned),
            Err(error) => Some(format!("not played: {error}")),
        };
        self.becomes
            .extend(becomes.filter(|known| !self.becomes.contains(known)));
    }
}

impl Recording {
    /// What is in the recording: by its index where it has one, or else by reading all of it. An index does not tell what is
    /// damaged.
    pub fn overview(&self) -> Overview {
        match self.summaries() {
            Some(summaries) => self.overview_of_summaries(&summaries),
            None => self.overview_of_messages(),
        }
    }

    /// What is in the recording, by reading all of it, and what the index counts beyond that.
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
                    // Gaps would count what is missing as well.
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
            let path = self.path().display();
            overview.damaged.push(format!(
                "{path}: {missing} messages that its index counts are not there"
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
                topic.add(channel);
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
                    topic.add(channel);
                    channel.clone()
                });
                topic.messages += 1;
                if topic.holds_samples
                    && let Ok((Envelope { header, .. }, _)) = Envelope::read(data)
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

/// Damaged parts of a file, of which the first are named.
#[derive(Clone, Debug, Default)]
pub(crate) struct Damages {
    named: Vec<String>,
    more: u64,
}

impl Damages {
    const MAX_NAMED: usize = 20;

    /// False if there are too many to name this one.
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
