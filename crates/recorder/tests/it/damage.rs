//! Files that were cut, damaged, or are no recordings.

use nervure_message::Metadata;
use nervure_recorder::{End, ReadError, RecorderOptions, Recording};
use proptest::prelude::*;

use crate::support::{Owned, record, replay};

/// A recording of a hundred samples, ten a chunk or so.
fn recording(folder: &std::path::Path) -> (std::path::PathBuf, Vec<(&'static str, Owned)>) {
    let path = folder.join("run.mcap");
    let samples: Vec<_> = (0..100)
        .map(|number| ("imu/sample", Owned::new(&[number as f32; 9][..], &Metadata::new(), number)))
        .collect();
    record(&path, &samples, RecorderOptions { chunk_bytes: 3000, ..RecorderOptions::default() });
    (path, samples)
}

#[test]
fn a_file_cut_anywhere_has_its_complete_chunks() {
    let folder = tempfile::tempdir().unwrap();
    let (path, samples) = recording(folder.path());
    let whole = std::fs::read(&path).unwrap();
    let mut last = 0;
    for length in (8..whole.len()).step_by(61) {
        std::fs::write(&path, &whole[..length]).unwrap();
        let recording = Recording::open(&path).unwrap();
        let replayed = replay(&recording);
        assert!(replayed.len() >= last, "what was readable stays so");
        last = replayed.len();
        assert!(
            replayed.iter().map(|(_, sample)| sample).eq(samples[..last].iter().map(|(_, sample)| sample))
        );
        if last < samples.len() {
            let End::CutShort { at, .. } = recording.end() else { panic!("{length} bytes are not all") };
            assert!(*at <= length as u64);
        }
    }
    assert_eq!(last, samples.len());
}

#[test]
fn a_damaged_chunk_is_told_with_its_place_and_the_others_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let (path, samples) = recording(folder.path());
    let mut bytes = std::fs::read(&path).unwrap();
    let middle = bytes.len() / 3;
    bytes[middle] ^= 0xff;
    std::fs::write(&path, &bytes).unwrap();
    let recording = Recording::open(&path).unwrap();
    let (good, bad): (Vec<_>, Vec<_>) = recording.messages().partition(Result::is_ok);
    assert_eq!(bad.len(), 1);
    let error = bad[0].as_ref().unwrap_err();
    let ReadError::Damaged { offset, .. } = error else { panic!("{error}") };
    assert!(*offset < middle as u64);
    assert!(error.to_string().contains("run.mcap, at byte"), "{error}");
    assert!(good.len() < samples.len());
}

#[test]
fn other_files_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.mcap");
    let error = Recording::open(&path).unwrap_err().to_string();
    assert!(error.contains("other.mcap") && error.contains("No such file"), "{error}");
    let error = Recording::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("directory"), "{error}");
    for content in ["", "x", "#ROSBAG V2.0\n and more"] {
        std::fs::write(&path, content).unwrap();
        let error = Recording::open(&path).unwrap_err();
        assert!(matches!(error, ReadError::NotMcap { .. }), "{error}");
    }
}

#[test]
fn channels_of_others_are_read_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("others.mcap");
    let file = std::fs::File::create(&path).unwrap();
    let mut writer = mcap::Writer::new(std::io::BufWriter::new(file)).unwrap();
    let schema = writer.add_schema("Image", "jsonschema", b"{}").unwrap();
    let channel = writer.add_channel(schema, "/camera/image_raw", "json", &Default::default()).unwrap();
    let header =
        mcap::records::MessageHeader { channel_id: channel, sequence: 3, log_time: 5, publish_time: 4 };
    writer.write_to_known_channel(&header, &[0, 1, 0, 0]).unwrap();
    writer.finish().unwrap();
    drop(writer);

    let recording = Recording::open(&path).unwrap();
    let topic = &recording.overview().topics[0];
    assert_eq!((topic.topic.as_str(), topic.messages, topic.lost), ("/camera/image_raw", 1, None));
    assert!(!topic.holds_samples);
    let message = recording.messages().next().unwrap().unwrap();
    assert_eq!((message.sequence, message.log_time, message.data.as_slice()), (3, 5, &[0, 1, 0, 0][..]));
    let error = nervure_recorder::SampleChannel::new(&message.channel).unwrap_err().to_string();
    assert_eq!(error, "its channel holds json messages (Image), not samples");
}

proptest! {
    #[test]
    fn whatever_is_in_a_file_it_is_read_or_refused(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        compress: bool,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.mcap");
        let samples: Vec<_> =
            (0..20).map(|number| ("a/b", Owned::new("text", &Metadata::new(), number))).collect();
        record(&path, &samples, RecorderOptions { compress, chunk_bytes: 500, ..RecorderOptions::default() });
        let mut bytes = std::fs::read(&path).unwrap();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        std::fs::write(&path, &bytes).unwrap();
        if let Ok(recording) = Recording::open(&path) {
            for message in recording.messages().flatten() {
                if let Ok(channel) = nervure_recorder::SampleChannel::new(&message.channel) {
                    let _ = channel.sample(&message);
                }
            }
        }
    }
}
