//! Settings of the dataflow file that prevent losses on an edge.

use std::{fmt, time::Duration};

use nervure_dataflow::InputQueue;
use nervure_protocol::wiring::Policy;

use crate::edges::Edge;

/// A change of the dataflow file. `nervure validate` accepts each in a file with the edge that it
/// was made for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting {
    /// A longer queue on the input.
    LongerQueue {
        /// The present value.
        now: u32,
        /// The `max_held` of the file, which has to be above `queue_size`.
        max_held: Option<u32>,
    },
    /// A longer queue on an input with `latest`, which takes no `queue_size`.
    QueueForLatest {
        /// The present value.
        now: u32,
        /// As above.
        max_held: Option<u32>,
    },
    /// The producer waits.
    Block {
        /// As above, where the file may have no `queue_size`.
        max_held: Option<u32>,
    },
    /// More samples in use on the input.
    MaxHeld { now: u32 },
    /// More memory of the producer.
    SharedMemory { node: String },
    /// The last samples are kept for consumers that connect later.
    History { topic: String },
    /// Only the newest sample waits. `latest` takes no `queue_size`.
    Latest,
    /// The producer does not wait.
    DropOldest,
    /// A shorter queue on the input, which has more than one place.
    ShorterQueue { now: u32 },
    /// The longest pause between samples.
    ExpectEvery(Duration),
}

impl Setting {
    /// Settings that reduce the losses of a full queue.
    pub fn for_full_queue(edge: &Edge) -> Vec<Self> {
        let longer = Self::longer_queue(edge);
        [longer].into_iter().chain(Self::block(edge)).collect()
    }

    /// A longer queue.
    pub fn longer_queue(edge: &Edge) -> Self {
        let now = edge.queue.depth;
        let default = InputQueue::new(Policy::DropOldest, now).max_held;
        let max_held = Some(edge.queue.max_held).filter(|&held| held != default);
        match edge.is_latest() {
            true => Self::QueueForLatest { now, max_held },
            false => Self::LongerQueue { now, max_held },
        }
    }

    /// `block`, unless the node would wait for itself.
    pub fn block(edge: &Edge) -> Option<Self> {
        let default = InputQueue::LATEST.max_held;
        let max_held = Some(edge.queue.max_held).filter(|&held| held != default);
        (!edge.is_self_loop()).then(|| Self::Block {
            max_held: max_held.filter(|_| edge.is_latest()),
        })
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LongerQueue { now, max_held } => {
                write!(f, "a larger `queue_size` (now {now})")?;
                write_max_held(f, *max_held)
            }
            Self::QueueForLatest { now, max_held } => {
                let text = "`queue_policy: drop_oldest` with a larger `queue_size`";
                write!(f, "{text} (now {now})")?;
                write_max_held(f, *max_held)
            }
            Self::Block { max_held: None } => f.write_str("`queue_policy: block`"),
            Self::Block {
                max_held: Some(max_held),
            } => write!(
                f,
                "`queue_policy: block` with a `queue_size` below `max_held` (now {max_held})"
            ),
            Self::MaxHeld { now } => write!(f, "a larger `max_held` (now {now})"),
            Self::SharedMemory { node } => write!(f, "a larger `shared_memory` for node `{node}`"),
            Self::History { topic } => write!(f, "a `history` on output `{topic}`"),
            Self::Latest => f.write_str("`queue_policy: latest` without `queue_size`"),
            Self::DropOldest => f.write_str("`queue_policy: drop_oldest`"),
            Self::ShorterQueue { now } => write!(f, "a smaller `queue_size` (now {now})"),
            Self::ExpectEvery(pause) => write!(f, "`expect_every: {}`", rounded(*pause)),
        }
    }
}

fn write_max_held(f: &mut fmt::Formatter<'_>, max_held: Option<u32>) -> fmt::Result {
    match max_held {
        Some(max_held) => write!(f, " with a larger `max_held` (now {max_held})"),
        None => Ok(()),
    }
}

/// A duration as it is written in a dataflow file, to three digits or more.
pub fn rounded(duration: Duration) -> String {
    match duration.as_micros() {
        micros if micros >= 1_000_000 && micros % 1_000_000 == 0 => {
            format!("{}s", micros / 1_000_000)
        }
        micros if micros >= 100_000 || micros % 1000 == 0 => format!("{}ms", micros / 1000),
        micros => format!("{micros}us"),
    }
}

/// `a larger `queue_size` (now 10) or `queue_policy: block``
pub fn any_of(settings: &[Setting]) -> String {
    let settings = settings.iter().map(ToString::to_string);
    settings.collect::<Vec<_>>().join(" or ")
}

/// Dataflow files of one edge, and settings that are applied to them.
#[cfg(test)]
pub mod files {
    use nervure_dataflow::Anywhere;
    use nervure_protocol::wiring::Queue;
    use serde_json::{Value, json};

    use super::*;
    use crate::losses::Remedy;

    /// Keys of settings.
    const KEYS: [&str; 6] = [
        "queue_size",
        "queue_policy",
        "max_held",
        "shared_memory",
        "history",
        "expect_every",
    ];

    /// Keys of an input, each with the consumers `sink` and the producer itself.
    pub fn all() -> impl Iterator<Item = (&'static str, Value)> {
        let files = [
            json!({}),
            json!({"max_held": 12}),
            json!({"queue_size": 1}),
            json!({"queue_size": 300}),
            json!({"queue_policy": "latest"}),
            json!({"queue_policy": "latest", "max_held": 2}),
            json!({"queue_policy": "drop_newest", "queue_size": 3}),
            json!({"queue_policy": "drop_newest", "queue_size": 3, "max_held": 4}),
            json!({"queue_policy": "block"}),
            json!({"queue_policy": "block", "max_held": 11}),
        ];
        files
            .into_iter()
            .flat_map(|keys| ["sink", "cam"].map(|consumer| (consumer, file(consumer, &keys))))
    }

    /// Asserts that `validate` accepts the file with each setting of a remedy, and that these are all
    /// that its text names. Returns their number.
    pub fn check(remedy: &Remedy, file: &Value) -> usize {
        let named: String = remedy.settings.iter().map(ToString::to_string).collect();
        for key in KEYS.iter().filter(|key| remedy.text.contains(**key)) {
            assert!(named.contains(key), "{remedy:?} names `{key}`");
        }
        for setting in &remedy.settings {
            let applied = applied(setting, file);
            assert!(queue_of(&applied).is_some(), "{setting:?}: {applied}");
        }
        remedy.settings.len()
    }

    /// A dataflow file with one edge, as `validate` reads it; `None` if it refuses it.
    pub fn queue_of(file: &Value) -> Option<Queue> {
        let text = file.to_string();
        let folder = std::path::Path::new("/");
        let report = nervure_dataflow::parse("file.yml", text.as_bytes(), folder, &Anywhere);
        let dataflow = report.dataflow?;
        let consumer = &dataflow.nodes[dataflow.edges[0].to.node];
        let queue = consumer.inputs[dataflow.edges[0].to.input].queue;
        Some(queue.into())
    }

    /// A file with `cam/out` as the input `in` of a consumer, which has these keys.
    pub fn file(consumer: &str, keys: &Value) -> Value {
        let mut input = json!({"source": "cam/out"});
        merge(&mut input, keys);
        let mut nodes = vec![json!({"id": "cam", "path": "cam.py", "outputs": ["out"]})];
        match consumer {
            "cam" => nodes[0]["inputs"] = json!({"in": input}),
            id => nodes.push(json!({"id": id, "path": "sink.py", "inputs": {"in": input}})),
        }
        json!({"nodes": nodes})
    }

    fn merge(into: &mut Value, keys: &Value) {
        let keys = keys.as_object().unwrap().clone();
        into.as_object_mut().unwrap().extend(keys);
    }

    /// The file with a setting as a reader of its text would change it.
    pub fn applied(setting: &Setting, file: &Value) -> Value {
        let mut file = file.clone();
        let last = file["nodes"].as_array().unwrap().len() - 1;
        let with_held = |mut keys: Value, size: u32, max_held: Option<u32>| {
            keys["queue_size"] = json!(size);
            if max_held.is_some() {
                keys["max_held"] = json!(size + 1);
            }
            keys
        };
        let input = match setting {
            Setting::LongerQueue { now, max_held } => with_held(json!({}), now + 5, *max_held),
            Setting::QueueForLatest { now, max_held } => {
                let keys = json!({"queue_policy": "drop_oldest"});
                with_held(keys, now + 5, *max_held)
            }
            Setting::Block { max_held: None } => json!({"queue_policy": "block"}),
            Setting::Block {
                max_held: Some(max_held),
            } => json!({"queue_policy": "block", "queue_size": max_held - 1}),
            Setting::MaxHeld { now } => json!({"max_held": now + 5}),
            Setting::SharedMemory { .. } => {
                file["nodes"][0]["shared_memory"] = json!("1GiB");
                json!({})
            }
            Setting::Latest => {
                let input = &mut file["nodes"][last]["inputs"]["in"];
                input.as_object_mut().unwrap().remove("queue_size");
                json!({"queue_policy": "latest"})
            }
            Setting::DropOldest => json!({"queue_policy": "drop_oldest"}),
            Setting::ShorterQueue { now } => json!({"queue_size": now - 1}),
            Setting::ExpectEvery(pause) => json!({"expect_every": rounded(*pause)}),
            Setting::History { .. } => {
                file["nodes"][0]["outputs"] = json!({"out": {"history": 1}});
                json!({})
            }
        };
        merge(&mut file["nodes"][last]["inputs"]["in"], &input);
        file
    }
}
