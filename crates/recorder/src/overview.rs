//! What is in a recording, told without playing it.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::sync::Arc;

use crate::envelope::Envelope;
use crate::gaps::Gaps;
use crate::recorded::SampleChannel;
use crate::recorder::{END, LOST_PREFIX, VERSION_KEY};
use crate::recording::{Channel, Recording};

/// What is in a recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overview {
    /// Its topics, by name.
    pub topics: Vec<TopicOverview>,
    /// The times of the first and the last message, in nanoseconds since the Unix epoch; `None` when there is none.
    pub times: Option<(u64, u64)>,
    /// Parts that cannot be read, and why.
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
            lost: None,
            holds_samples: false,
            becomes: Vec::new(),
        }
    }

    fn add(&mut self, channel: &Channel) {
        let name =
            if channel.schema_name.is_empty() { &channel.message_encoding } else { &channel.schema_name };
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
        self.becomes.extend(becomes.filter(|known| !self.becomes.contains(known)));
    }
}

impl Recording {
    /// What is in the recording: by its index where it has one, or else by reading all of it.
    pub fn overview(&self) -> Overview {
        match self.summary() {
            Some(summary) => self.overview_of_summary(summary),
            None => self.overview_of_messages(),
        }
    }

    fn overview_of_summary(&self, summary: &Summary) -> Overview {
        let mut topics = BTreeMap::new();
        for (id, channel) in &summary.channels {
            let topic = topics.entry(&channel.topic).or_insert_with(|| TopicOverview::new(&channel.topic));
            topic.add(channel);
            topic.messages += summary.messages.get(id).copied().unwrap_or(0);
        }
        let lost = self.metadata(END);
        for (name, topic) in &mut topics {
            let count = lost.and_then(|lost| lost.get(&format!("{LOST_PREFIX}{name}")));
            topic.lost = count.and_then(|count| count.parse().ok());
        }
        let topics: Vec<_> = topics.into_values().collect();
        let has_messages = topics.iter().any(|topic| topic.messages > 0);
        Overview { topics, times: has_messages.then_some(summary.times), damaged: Vec::new() }
    }

    fn overview_of_messages(&self) -> Overview {
        let mut topics: BTreeMap<String, (TopicOverview, Gaps)> = BTreeMap::new();
        let mut seen: HashMap<*const Channel, Arc<Channel>> = HashMap::new();
        let mut overview = Overview::default();
        for message in self.messages() {
            let message = match message {
                Ok(message) => message,
                Err(error) => {
                    overview.damaged.push(error.to_string());
                    continue;
                }
            };
            let name = &message.channel.topic;
            if !topics.contains_key(name) {
                topics.insert(name.clone(), (TopicOverview::new(name), Gaps::default()));
            }
            let (topic, gaps) = topics.get_mut(name).expect("it was inserted above");
            seen.entry(Arc::as_ptr(&message.channel)).or_insert_with(|| {
                topic.add(&message.channel);
                message.channel.clone()
            });
            topic.messages += 1;
            if topic.holds_samples
                && let Ok((Envelope { header, .. }, _)) = Envelope::read(&message.data)
            {
                *topic.lost.get_or_insert(0) += gaps.before(header.incarnation, header.sequence);
            }
            let time = message.log_time;
            let (first, last) = overview.times.unwrap_or((time, time));
            overview.times = Some((first.min(time), last.max(time)));
        }
        overview.topics = topics.into_values().map(|(topic, _)| topic).collect();
        overview
    }
}

/// What the end of a complete file says of its messages.
#[derive(Clone, Debug, Default)]
pub(crate) struct Summary {
    pub(crate) channels: BTreeMap<u16, Arc<Channel>>,
    pub(crate) messages: BTreeMap<u16, u64>,
    pub(crate) times: (u64, u64),
}
