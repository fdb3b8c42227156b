//! A store in a file on a disk that is full for a while. The limit on the size of files holds for the
//! process, so that this is the only test here.

use std::sync::Arc;
use std::time::Duration;

use nervure_store::{Expected, Store, StoreError};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Bytes of each value: several of them make the file grow.
const VALUE_BYTES: usize = 100_000;

/// The longest file from now on.
fn limit_files(bytes: Option<u64>) {
    let maximum = getrlimit(Resource::Fsize).maximum;
    let limit = Rlimit {
        current: bytes.or(maximum),
        maximum,
    };
    setrlimit(Resource::Fsize, limit).unwrap();
}

#[test]
fn a_store_on_a_disk_that_was_full_is_written_again_without_a_restart() {
    // A write beyond the limit is an error and no signal.
    signal_hook::flag::register(signal_hook::consts::SIGXFSZ, Arc::default()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let store = nervure_store::open(&path).unwrap();
    let value = vec![7; VALUE_BYTES];
    let set = |key: &str| store.compare_and_set(key, Expected::Absent, Some(&value), None);
    set("before").unwrap();
    let lease = store.lease(None, Duration::from_millis(100)).unwrap();
    let alive = store.compare_and_set("alive", Expected::Absent, Some(b"1"), Some(lease));
    let mut last = alive.unwrap();

    limit_files(Some(path.metadata().unwrap().len()));
    let mut written = Vec::new();
    let reason = loop {
        let key = format!("full/{}", written.len());
        match set(&key) {
            Ok(revision) => {
                written.push(key);
                last = revision;
            }
            Err(StoreError::Unavailable(why)) => break why,
            Err(error) => panic!("{error}"),
        }
        assert!(written.len() < 1000, "the disk is not full");
    };
    assert!(!reason.is_empty());
    // Each write fails, and the content can be read. A lease does not end if its end cannot be written.
    for _ in 0..5 {
        let again = set("again");
        assert!(
            matches!(again, Err(StoreError::Unavailable(_))),
            "{again:?}"
        );
        assert_eq!(store.get("before").unwrap().unwrap().value, value);
        assert!(store.list("").unwrap().revision >= last);
        std::thread::sleep(Duration::from_millis(30));
    }

    limit_files(None);
    let begin = std::time::Instant::now();
    let after = loop {
        match set("after") {
            Ok(revision) => break revision,
            Err(error) => assert!(begin.elapsed() < Duration::from_secs(60), "{error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(after > last);
    for key in &written {
        assert!(store.get(key).unwrap().is_some(), "{key} was confirmed");
    }
    // Its lease begins again when the file is opened again.
    while store.get("alive").unwrap().is_some() {
        assert!(begin.elapsed() < Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(20));
    }
    // The content in memory is the content on disk.
    let listing = store.list("").unwrap();
    drop(store);
    let store = nervure_store::open(&path).unwrap();
    let opened = store.list("").unwrap();
    assert_eq!(
        (opened.revision, opened.entries),
        (listing.revision, listing.entries)
    );
    assert!(opened.epoch.continues(listing.epoch, listing.revision));
}
