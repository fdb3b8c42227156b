//! Recordings in a series of files.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nervure_message::{Metadata, Scalar};
use nervure_recorder::{
    End, FileNames, IncomingSample, Notice, RecordError, Recorder, RecorderOptions, Recording,
    Series, SeriesOptions, SeriesReport,
};

use crate::support::{Owned, replay};

const TIME: &str = "20260131T235959Z";

fn sample(sequence: u64) -> Owned {
    Owned::new(&[sequence as f32; 100][..], &Metadata::new(), sequence)
}

/// Chunks of about 2 samples.
fn options() -> SeriesOptions {
    let recorder = RecorderOptions {
        chunk_bytes: 1000,
        ..RecorderOptions::default()
    };
    SeriesOptions {
        recorder,
        ..SeriesOptions::default()
    }
}

fn begin(folder: &Path, pattern: &str, options: SeriesOptions) -> Result<Series, RecordError> {
    let names = FileNames::parse(&folder.join(pattern), "drive").unwrap();
    Series::create(names, TIME.to_owned(), options, Instant::now())
}

/// Records a map with history, then numbers, at the pace at which files are finished.
fn record(mut series: Series, count: u64) -> SeriesReport {
    let now = Instant::now();
    let map = series.add_topic("map/map", None, 1);
    let numbers = series.add_topic("source/out", None, 0);
    let mut notices = series.take_notices();
    series
        .record(
            map,
            &Owned::new("the map", &Metadata::new(), 0).incoming(),
            now,
        )
        .unwrap();
    for number in 0..count {
        series
            .record(numbers, &sample(number).incoming(), now)
            .unwrap();
        // A file counts in the report once it is finished.
        while series.report().topics[1].recorded < number + 1 {
            notices.extend(series.take_notices());
            std::thread::yield_now();
        }
    }
    let mut report = series.finish("the test is over");
    notices.append(&mut report.notices);
    report.notices = notices;
    report
}

fn files(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn each_file_is_complete_and_together_they_have_everything() {
    let folder = tempfile::tempdir().unwrap();
    let limits = SeriesOptions {
        split_bytes: Some(20_000),
        ..options()
    };
    let report = record(begin(folder.path(), "run.mcap", limits).unwrap(), 200);
    assert!(report.failure.is_none());
    assert!(report.files.len() > 3, "{:?}", report.files);
    assert_eq!(report.files[1], folder.path().join("run-0002.mcap"));
    let mut numbers = Vec::new();
    for file in &report.files {
        let recording = Recording::open(file).unwrap();
        assert_eq!(recording.end(), &End::Complete);
        let samples = replay(&recording);
        let (topic, first) = &samples[0];
        assert_eq!(
            (topic.as_str(), first.payload.as_slice()),
            ("map/map", &b"the map"[..]),
            "{}",
            file.display()
        );
        assert_eq!(first.header.sequence, 0);
        numbers.extend(samples[1..].iter().map(|(_, sample)| sample.clone()));
        // The index is not included in the limit.
        assert!(
            recording.bytes() < 30_000,
            "{} has {} bytes",
            file.display(),
            recording.bytes()
        );
    }
    assert!(numbers.iter().cloned().eq((0..200).map(sample)));
    let recorded: Vec<_> = report
        .report
        .topics
        .iter()
        .map(|topic| (topic.recorded, topic.lost))
        .collect();
    assert_eq!(recorded, [(1, 0), (200, 0)]);
}

#[test]
fn a_file_ends_at_its_maximum_age() {
    let folder = tempfile::tempdir().unwrap();
    let limits = SeriesOptions {
        split_period: Some(Duration::from_secs(600)),
        ..options()
    };
    let mut series = begin(folder.path(), "{name}-{time}.mcap", limits).unwrap();
    let topic = series.add_topic("source/out", None, 0);
    let now = Instant::now();
    series.record(topic, &sample(0).incoming(), now).unwrap();
    series
        .record(topic, &sample(1).incoming(), now + Duration::from_secs(500))
        .unwrap();
    series.tick(now + Duration::from_secs(700)).unwrap();
    // No sample arrived since, so no empty file is begun.
    series.tick(now + Duration::from_secs(7000)).unwrap();
    series
        .record(
            topic,
            &sample(2).incoming(),
            now + Duration::from_secs(7001),
        )
        .unwrap();
    let report = series.finish("the test is over");
    let name = |number| folder.path().join(format!("drive-{TIME}-{number:04}.mcap"));
    assert_eq!(report.files, [name(1), name(2)]);
    assert_eq!(replay(&Recording::open(&name(1)).unwrap()).len(), 2);
    assert_eq!(replay(&Recording::open(&name(2)).unwrap()).len(), 1);
}

#[test]
fn the_oldest_files_of_the_series_are_deleted_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let recorded_before = folder.path().join("run-20250101T000000Z.mcap");
    crate::support::record(
        &recorded_before,
        &[("a/b", sample(0))],
        RecorderOptions::default(),
    );
    let is_written = folder.path().join("run-20250101T000001Z.mcap");
    let other = begin(folder.path(), "run-20250101T000001Z.mcap", options()).unwrap();
    let kept = [
        "other.mcap",
        "run-20250101T000000Z.txt",
        "run-20250101T000002Z-copy.mcap",
        "run-20250101T000003Z.mcap",
    ];
    for name in kept {
        // The last name matches the series, but the file is not a recording.
        std::fs::write(folder.path().join(name), vec![7; 50_000]).unwrap();
    }
    let limits = SeriesOptions {
        split_bytes: Some(20_000),
        max_disk_bytes: Some(100_000),
        ..options()
    };
    let report = record(
        begin(folder.path(), "run-{time}.mcap", limits).unwrap(),
        1000,
    );
    assert!(report.failure.is_none());
    assert!(!recorded_before.exists());
    assert!(is_written.exists());
    drop(other);
    let left = files(folder.path());
    for name in kept {
        assert!(left.contains(&name.to_owned()), "{left:?}");
    }
    let (last, first) = (report.files.last().unwrap(), report.files.first().unwrap());
    assert!(last.exists() && !first.exists());
    let ours: u64 = report
        .files
        .iter()
        .filter_map(|file| Some(file.metadata().ok()?.len()))
        .sum();
    assert!(ours < 100_000, "{ours} bytes are left");
    let deleted: Vec<&PathBuf> = report
        .notices
        .iter()
        .filter_map(|notice| match notice {
            Notice::Deleted(path) => Some(path),
            _ => None,
        })
        .collect();
    assert_eq!(deleted[0], &recorded_before);
    assert!(
        deleted[1..].iter().all(|path| report.files.contains(path)),
        "{deleted:?}"
    );
}

#[test]
fn existing_recordings_are_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let goes_on = SeriesOptions {
        goes_on: true,
        ..options()
    };
    for expected in ["run.mcap", "run-0002.mcap", "run-0003.mcap"] {
        let mut series = begin(folder.path(), "run.mcap", goes_on.clone()).unwrap();
        assert_eq!(series.path(), folder.path().join(expected));
        assert_eq!(series.take_notices().is_empty(), expected == "run.mcap");
        let topic = series.add_topic("a/b", None, 0);
        series
            .record(topic, &sample(0).incoming(), Instant::now())
            .unwrap();
        series.finish("the test is over");
    }
    let error = begin(folder.path(), "run.mcap", options()).unwrap_err();
    assert!(error.is_taken(), "{error}");
    assert_eq!(
        files(folder.path()),
        ["run-0002.mcap", "run-0003.mcap", "run.mcap"]
    );
}

#[test]
fn losses_between_two_files_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let limits = SeriesOptions {
        split_period: Some(Duration::from_secs(1)),
        ..options()
    };
    let mut series = begin(folder.path(), "run.mcap", limits).unwrap();
    let topic = series.add_topic("a/b", None, 0);
    let now = Instant::now();
    let record = |series: &mut Series, number: u64, second: u64| {
        let owned = sample(number);
        let incoming: IncomingSample<'_> = owned.incoming();
        series
            .record(topic, &incoming, now + Duration::from_secs(second))
            .unwrap();
    };
    record(&mut series, 0, 0);
    record(&mut series, 5, 10);
    let report = series.finish("the test is over");
    assert_eq!(report.files.len(), 2);
    assert_eq!(
        (
            report.report.topics[0].recorded,
            report.report.topics[0].lost
        ),
        (2, 4)
    );
}

#[test]
fn what_a_throttle_leaves_out_is_counted_and_not_lost() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.mcap");
    let mut recorder = Recorder::create(&path, RecorderOptions::default()).unwrap();
    let topic = recorder.add_topic("imu/sample", None);
    recorder.throttle(topic, 100.0);
    let now = Instant::now();
    for number in (0..1000).filter(|number| *number != 500) {
        let sample = Owned::new(&Scalar::Integer(number), &Metadata::new(), number as u64);
        recorder.record(topic, &sample.incoming(), now).unwrap();
    }
    let (report, failure) = recorder.finish("the test is over");
    assert!(failure.is_none(), "{failure:?}");
    let report = &report.topics[0];
    assert_eq!(
        (report.recorded, report.throttled, report.lost),
        (100, 899, 1)
    );
    // Without the index, only gaps in the numbers could tell of losses.
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 100]).unwrap();
    let overview = Recording::open(&path).unwrap().checked_overview();
    assert_eq!(overview.topics[0].messages, 100);
    assert_ne!(overview.topics[0].lost, Some(899));
}
