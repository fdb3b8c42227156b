//! The transforms between frames of a running dataflow.

use std::{
    collections::BTreeMap,
    mem::discriminant,
    sync::mpsc::RecvTimeoutError,
    time::{Duration, Instant},
};

use nervure_node::{
    Sample,
    transforms::{Refused, TransformTree},
};
use nervure_protocol::graph::{StaticTransform, TRANSFORM_TYPE};

use crate::{
    Error,
    answers::{Frame, Frames, RefusedTransforms},
    observing::{Observing, Seen},
    topics::{SelectedTopics, select_topics},
};

/// Queue depth of the observer, which looks every 10 ms.
const QUEUE_DEPTH: u32 = 16;

/// The transforms of a dataflow, as they come.
pub struct Watched {
    dataflow: String,
    /// `None` for a dataflow whose transforms are all static.
    observing: Option<Observing>,
    tree: TransformTree,
    began: Instant,
    topics: BTreeMap<String, Counts>,
    /// By child frame: its topic, and the samples that were taken.
    frames: BTreeMap<String, (String, u64)>,
    refused: Vec<(Refused, RefusedTransforms)>,
    /// The dataflow's clock at a moment.
    clock: Option<(i64, Instant)>,
}

/// Samples of a topic.
#[derive(Default)]
struct Counts {
    taken: u64,
    missed: u64,
}

/// The static transforms of a dataflow, and its name.
///
/// # Errors
/// If the dataflow cannot be found or reached.
pub fn static_transforms(dataflow: Option<&str>) -> Result<(String, Vec<StaticTransform>), Error> {
    let state = select_topics(&[], dataflow, "tf")?.state;
    let welcome = state.welcome();
    Ok((welcome.dataflow.clone(), welcome.static_transforms.clone()))
}

impl Watched {
    /// Begins to watch the transforms of a dataflow.
    ///
    /// # Errors
    /// If the dataflow cannot be found, reached or observed.
    pub fn open(dataflow: Option<&str>) -> Result<Self, Error> {
        let SelectedTopics { state, mut topics } = select_topics(&[], dataflow, "tf")?;
        topics.retain(|topic| topic.output.type_name.as_deref() == Some(TRANSFORM_TYPE));
        let welcome = state.welcome();
        let mut tree = TransformTree::default();
        let mut refused = Vec::new();
        for transform in &welcome.static_transforms {
            if let Err(error) = tree.add_static(transform) {
                note(&mut refused, "static_transforms", error);
            }
        }
        let dataflow = welcome.dataflow.clone();
        let observing = match topics.is_empty() {
            true => None,
            false => {
                let selected = SelectedTopics { state, topics };
                Some(Observing::open(selected, QUEUE_DEPTH, "tf")?)
            }
        };
        Ok(Self {
            dataflow,
            observing,
            tree,
            began: Instant::now(),
            topics: BTreeMap::new(),
            frames: BTreeMap::new(),
            refused,
            clock: None,
        })
    }

    /// The name of the dataflow.
    pub fn dataflow(&self) -> &str {
        &self.dataflow
    }

    /// The tree of the transforms that have come.
    pub fn tree(&self) -> &TransformTree {
        &self.tree
    }

    /// Takes in transforms until `deadline`. Returns false if the dataflow has ended.
    ///
    /// # Errors
    /// If a machine cannot be reached any more.
    pub fn watch_until(&mut self, deadline: Instant) -> Result<bool, Error> {
        loop {
            let Some(observing) = &mut self.observing else {
                std::thread::sleep(deadline.saturating_duration_since(Instant::now()));
                return Ok(true);
            };
            match observing.next_until(deadline) {
                Ok(seen) => {
                    if let Seen::Sample {
                        topic,
                        sample,
                        missed,
                        now,
                    } = seen?
                    {
                        self.clock = Some((now, Instant::now()));
                        self.take(&topic, &sample, missed);
                    }
                }
                Err(RecvTimeoutError::Timeout) => return Ok(true),
                Err(RecvTimeoutError::Disconnected) => return Ok(false),
            }
        }
    }

    fn take(&mut self, topic: &str, sample: &Sample, missed: u64) {
        let counts = self.topics.entry(topic.to_owned()).or_default();
        counts.taken += 1;
        counts.missed += missed;
        match self.tree.add_sample(sample) {
            Ok(child) => {
                let taken = self.frames.entry(child).or_default();
                *taken = (topic.to_owned(), taken.1 + 1);
            }
            Err(error) => note(&mut self.refused, topic, error),
        }
    }

    /// The dataflow's clock, in nanoseconds since the Unix epoch, if a sample has shown it.
    pub fn now(&self) -> Option<i64> {
        let (nanos, at) = self.clock?;
        Some(nanos.saturating_add(i64::try_from(at.elapsed().as_nanos()).unwrap_or(i64::MAX)))
    }

    /// The frames, with their rates since the begin.
    pub fn frames(&self) -> Frames {
        let seconds = self
            .began
            .elapsed()
            .max(Duration::from_millis(1))
            .as_secs_f64();
        let frame = |state: nervure_node::transforms::FrameState<'_>| {
            let sent = self.frames.get(state.child);
            let rate = sent.map(|(topic, taken)| {
                // Missed samples belong to the frames of the topic as the others do.
                let counts = &self.topics[topic];
                let share = *taken as f64 / counts.taken as f64;
                share * (counts.taken + counts.missed) as f64 / seconds
            });
            let age = self.now().zip(state.newest);
            Frame {
                frame: state.child.to_owned(),
                parent: state.parent.to_owned(),
                topic: sent.map(|(topic, _)| topic.clone()),
                rate_hz: rate,
                age_nanos: age
                    .map(|(now, newest)| u64::try_from(now.saturating_sub(newest)).unwrap_or(0)),
            }
        };
        let refused = self.refused.iter().map(|(_, refused)| RefusedTransforms {
            topic: refused.topic.clone(),
            count: refused.count,
            reason: refused.reason.clone(),
        });
        Frames {
            dataflow: self.dataflow.clone(),
            frames: self.tree.frames().map(frame).collect(),
            refused: refused.collect(),
        }
    }
}

/// Counts a refused transform with those of its topic that were refused for the same reason.
fn note(refused: &mut Vec<(Refused, RefusedTransforms)>, topic: &str, error: Refused) {
    let is_same = |(first, known): &&mut (Refused, RefusedTransforms)| {
        discriminant(first) == discriminant(&error) && known.topic == topic
    };
    if let Some((_, known)) = refused.iter_mut().find(is_same) {
        known.count += 1;
        return;
    }
    let noted = RefusedTransforms {
        topic: topic.to_owned(),
        count: 1,
        reason: error.to_string(),
    };
    refused.push((error, noted));
}
