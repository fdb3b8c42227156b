//! Samples without a dataflow.

use std::path::Path;
use std::time::Instant;

use nervure_message::{Encode, Header, Metadata, Schema, encode_head};
use nervure_recorder::{IncomingSample, Recorder, RecorderOptions, Recording, SampleChannel};

/// A sample that owns all of its parts.
#[derive(Clone, Debug, PartialEq)]
pub struct Owned {
    pub header: Header,
    pub frame: Option<String>,
    pub head: Vec<u8>,
    pub payload: Vec<u8>,
    pub schema: Option<Schema>,
}

impl Owned {
    /// Sample number `sequence`, published one millisecond after the one before.
    pub fn new<V: Encode + ?Sized>(value: &V, metadata: &Metadata, sequence: u64) -> Self {
        let mut payload = vec![0; value.payload_bytes()];
        value.write(&mut payload);
        let schema = value.schema().cloned();
        let time = 1_700_000_000_000_000_000 + sequence as i64 * 1_000_000;
        Self {
            header: Header {
                sequence,
                incarnation: 0,
                stamp: time - 7,
                publish_utc: time,
                publish_mono: 5 + sequence,
                boot_id: 9,
                schema_id: schema.as_ref().map_or(0, Schema::id),
                correlation_id: 11,
                trace_id: u128::MAX / 3,
                ..Header::default()
            },
            frame: Some("base_link".to_owned()),
            head: encode_head(value, metadata).unwrap().to_vec(),
            payload,
            schema,
        }
    }

    pub fn incoming(&self) -> IncomingSample<'_> {
        IncomingSample {
            header: self.header,
            frame: self.frame.clone(),
            head: &self.head,
            payload: &self.payload,
            schema: self.schema.clone(),
        }
    }
}

/// Records the samples, each under its topic.
pub fn record(path: &Path, samples: &[(&str, Owned)], options: RecorderOptions) {
    let mut recorder = Recorder::create(path, options).unwrap();
    let mut topics = Vec::new();
    for (name, sample) in samples {
        let known = topics
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, topic)| *topic);
        let topic = known.unwrap_or_else(|| {
            let topic = recorder.add_topic(name, None);
            topics.push((*name, topic));
            topic
        });
        recorder
            .record(topic, &sample.incoming(), Instant::now())
            .unwrap();
    }
    let (_, failure) = recorder.finish("the test is over");
    assert!(failure.is_none(), "{failure:?}");
}

/// Records a sample of the topic `a/b` with this type.
pub fn record_typed(path: &Path, type_name: Option<&str>, sample: &Owned) {
    let mut recorder = Recorder::create(path, RecorderOptions::default()).unwrap();
    let topic = recorder.add_topic("a/b", type_name);
    recorder
        .record(topic, &sample.incoming(), Instant::now())
        .unwrap();
    let (report, failure) = recorder.finish("the test is over");
    assert!(failure.is_none(), "{failure:?}");
    assert_eq!(report.topics[0].recorded, 1);
}

/// Publishes every sample of a recording again. Returns them with their topics.
pub fn replay(recording: &Recording) -> Vec<(String, Owned)> {
    let mut samples = Vec::new();
    for message in recording.messages() {
        let message = message.unwrap();
        let channel = SampleChannel::new(&message.channel).unwrap();
        let sample = channel.sample(&message).unwrap();
        let mut payload = vec![0; sample.payload_bytes()];
        sample.write(&mut payload);
        let owned = Owned {
            header: *sample.header(),
            frame: sample.frame().map(str::to_owned),
            head: encode_head(&sample, sample.metadata()).unwrap().to_vec(),
            payload,
            schema: sample.schema().cloned(),
        };
        samples.push((message.channel.topic.clone(), owned));
    }
    samples
}
