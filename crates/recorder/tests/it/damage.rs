//! Files that were cut or damaged, or are not recordings.

use nervure_message::Metadata;
use nervure_recorder::{End, ReadError, Recorder, RecorderOptions, Recording};
use proptest::prelude::*;

use crate::support::{Owned, record, replay};

/// The code of a chunk record.
const CHUNK: u8 = 0x06;

/// A recording of 100 samples, about 10 per chunk.
fn recording(folder: &std::path::Path) -> (std::path::PathBuf, Vec<(&'static str, Owned)>) {
    let path = folder.join("run.mcap");
    let samples: Vec<_> = (0..100)
        .map(|number| {
            (
                "imu/sample",
                Owned::new(&[number as f32; 9][..], &Metadata::new(), number),
            )
        })
        .collect();
    record(
        &path,
        &samples,
        RecorderOptions {
            chunk_bytes: 3000,
            ..RecorderOptions::default()
        },
    );
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
        assert!(replayed.len() >= last, "what was readable remains readable");
        last = replayed.len();
        assert!(
            replayed
                .iter()
                .map(|(_, sample)| sample)
                .eq(samples[..last].iter().map(|(_, sample)| sample))
        );
        if last < samples.len() {
            let End::CutShort { at, .. } = recording.end() else {
                panic!("{length} bytes are not the whole file")
            };
            assert!(*at <= length as u64);
        }
    }
    assert_eq!(last, samples.len());
}

#[test]
fn a_damaged_chunk_is_reported_with_its_offset_and_the_others_are_read() {
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
    let ReadError::Damaged { offset, .. } = error else {
        panic!("{error}")
    };
    assert!(*offset < middle as u64);
    assert!(error.to_string().contains("run.mcap, at byte"), "{error}");
    assert!(good.len() < samples.len());
    // The index behind the chunk counts its messages, and the chunk begins with their times, which
    // are one millisecond apart.
    let lost = samples.len() - good.len();
    let said = format!(
        "{lost} messages of {:.1} s are lost",
        (lost - 1) as f64 / 1e3
    );
    assert!(error.to_string().ends_with(&said), "{error}");
    let overview = recording.checked_overview();
    assert_eq!(overview.damaged, [error.to_string()]);
    let topic = &overview.topics[0];
    assert_eq!(
        (topic.messages, topic.missing, topic.lost),
        (good.len() as u64, lost as u64, Some(0))
    );
    // The index alone does not show the damage.
    assert_eq!(
        (
            recording.overview().topics[0].messages,
            recording.overview().damaged.len()
        ),
        (100, 0)
    );
}

#[test]
fn a_file_that_is_being_written_is_not_damaged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.mcap");
    let mut recorder = Recorder::create(&path, RecorderOptions::default()).unwrap();
    let topic = recorder.add_topic("a/b", None);
    let sample = Owned::new("text", &Metadata::new(), 0);
    recorder
        .record(topic, &sample.incoming(), std::time::Instant::now())
        .unwrap();
    // The first bytes are written by a thread, so the file may still be empty.
    let recording = loop {
        match Recording::open(&path) {
            Ok(recording) => break recording,
            Err(_) => std::thread::yield_now(),
        }
    };
    assert!(recording.is_growing());
    assert_eq!(recording.cut_short().count(), 0);
    recorder.finish("the test is over");
    assert_eq!(Recording::open(&path).unwrap().end(), &End::Complete);
}

#[test]
fn messages_in_the_index_that_are_not_in_the_file_are_missing() {
    let folder = tempfile::tempdir().unwrap();
    let (path, samples) = recording(folder.path());
    let mut bytes = std::fs::read(&path).unwrap();
    let messages = |recording: &Recording| recording.messages().filter(Result::is_ok).count();
    // Turn a chunk into a record of unknown kind, which readers skip.
    let chunks = chunks(&bytes);
    bytes[chunks[chunks.len() / 2]] = 0x7f;
    std::fs::write(&path, &bytes).unwrap();
    let recording = Recording::open(&path).unwrap();
    let left = messages(&recording);
    assert!(left < samples.len());
    let overview = recording.checked_overview();
    let missing = samples.len() - left;
    assert_eq!(overview.topics[0].missing, missing as u64);
    let expected = format!("run.mcap: {missing} messages listed in its index are missing");
    assert!(
        overview.damaged[0].ends_with(&expected),
        "{:?}",
        overview.damaged
    );
}

#[test]
fn chunks_without_an_index_behind_them_are_damaged_one_by_one() {
    let folder = tempfile::tempdir().unwrap();
    let (path, samples) = recording(folder.path());
    let whole = std::fs::read(&path).unwrap();
    let mut bytes = whole[..8].to_vec();
    let mut ends = Vec::new();
    for record in records(&whole) {
        const MESSAGE_INDEX: u8 = 0x07;
        if whole[record.start] != MESSAGE_INDEX {
            bytes.extend_from_slice(&whole[record.clone()]);
        }
        if whole[record.start] == CHUNK {
            ends.push(bytes.len());
        }
    }
    // Not the first chunk, which describes the channel.
    bytes[ends[1] - 1] ^= 0xff;
    std::fs::write(&path, &bytes).unwrap();
    let recording = Recording::open(&path).unwrap();
    let (good, bad): (Vec<_>, Vec<_>) = recording.messages().partition(Result::is_ok);
    assert_eq!(bad.len(), 1);
    let lost = samples.len() - good.len();
    assert!((1..samples.len() / 5).contains(&lost), "{lost} are lost");
    let said = format!("the messages of {:.1} s are lost", (lost - 1) as f64 / 1e3);
    assert!(
        bad[0].as_ref().unwrap_err().to_string().ends_with(&said),
        "{bad:?}"
    );
}

/// The records of a file, up to the end of the data section.
fn records(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    const DATA_END: u8 = 0x0f;
    let mut found = Vec::new();
    let mut at = 8;
    while bytes[at] != DATA_END {
        let length = u64::from_le_bytes(bytes[at + 1..at + 9].try_into().unwrap()) as usize;
        found.push(at..at + 9 + length);
        at += 9 + length;
    }
    found
}

/// Offsets of the chunks.
fn chunks(bytes: &[u8]) -> Vec<usize> {
    records(bytes)
        .into_iter()
        .map(|record| record.start)
        .filter(|at| bytes[*at] == CHUNK)
        .collect()
}

#[test]
fn other_files_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("other.mcap");
    let error = Recording::open(&path).unwrap_err().to_string();
    assert!(
        error.contains("other.mcap") && error.contains("No such file"),
        "{error}"
    );
    let error = Recording::open(folder.path()).unwrap_err().to_string();
    assert!(error.contains("it has no metadata.yaml"), "{error}");
    for content in ["", "x", "#ROSBAG V2.0\n and more"] {
        std::fs::write(&path, content).unwrap();
        let error = Recording::open(&path).unwrap_err();
        assert!(matches!(error, ReadError::NotRecording { .. }), "{error}");
    }
}

#[test]
fn channels_of_others_are_read_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("others.mcap");
    let file = std::fs::File::create(&path).unwrap();
    let mut writer = mcap::Writer::new(std::io::BufWriter::new(file)).unwrap();
    let schema = writer.add_schema("Image", "flatbuffer", b"{}").unwrap();
    let channel = writer
        .add_channel(
            schema,
            "/camera/image_raw",
            "flatbuffer",
            &Default::default(),
        )
        .unwrap();
    let header = mcap::records::MessageHeader {
        channel_id: channel,
        sequence: 3,
        log_time: 5,
        publish_time: 4,
    };
    writer
        .write_to_known_channel(&header, &[0, 1, 0, 0])
        .unwrap();
    writer.finish().unwrap();
    drop(writer);

    let recording = Recording::open(&path).unwrap();
    let topic = &recording.overview().topics[0];
    assert_eq!(
        (topic.topic.as_str(), topic.messages, topic.lost),
        ("/camera/image_raw", 1, None)
    );
    assert!(!topic.holds_samples);
    let message = recording.messages().next().unwrap().unwrap();
    assert_eq!(
        (message.sequence, message.log_time, message.data.as_slice()),
        (3, 5, &[0, 1, 0, 0][..])
    );
    let error = nervure_recorder::SampleChannel::new(&message.channel)
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "its channel holds flatbuffer messages (Image), not samples"
    );
}

proptest! {
    #[test]
    fn any_file_is_read_or_refused(
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
