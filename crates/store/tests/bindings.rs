//! The conformance suite on each binding, and the content after a restart.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use nervure_store::{Clock, Expected, OpenError, Revision, Store, StoreError, conformance};

#[test]
fn the_store_in_memory_conforms() {
    conformance::check(nervure_store::memory);
}

#[test]
fn the_store_in_a_file_conforms() {
    let folder = tempfile::tempdir().unwrap();
    let mut number = 0;
    conformance::check(|| {
        number += 1;
        nervure_store::open(&folder.path().join(number.to_string())).unwrap()
    });
}

#[test]
fn a_file_keeps_entries_revisions_and_leases() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let (before, lease) = {
        let store = nervure_store::open(&path).unwrap();
        let second = nervure_store::open(&path).unwrap_err();
        assert!(matches!(second, OpenError::InUse { .. }), "{second}");
        let lease = store.lease(None, Duration::from_secs(3600)).unwrap();
        store
            .compare_and_set("a", Expected::Absent, Some(b"1"), Some(lease))
            .unwrap();
        let revision = store
            .compare_and_set("b", Expected::Absent, Some(b"2"), None)
            .unwrap();
        store
            .compare_and_set("b", Expected::Revision(revision), Some(b"3"), None)
            .unwrap();
        (store.list("").unwrap(), lease)
    };
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let store = nervure_store::open(&path).unwrap();
    let again = store.list("").unwrap();
    let (is_same, epoch) = (again.entries == before.entries, again.epoch);
    assert!(is_same && again.revision == before.revision);
    assert_ne!(epoch.id, before.epoch.id);
    assert!(epoch.continues(before.epoch, before.revision));
    let next = store
        .compare_and_set("c", Expected::Absent, Some(b""), None)
        .unwrap();
    assert_eq!(next, Revision(before.revision.0 + 1));
    // The history ends with the process: a watch from before has to list again.
    let compacted = store.watch("", Revision(1), Duration::ZERO);
    assert!(matches!(compacted, Err(StoreError::Compacted { .. })));
    assert!(store.lease(None, Duration::from_secs(1)).unwrap() > lease);
    store.lease(Some(lease), Duration::ZERO).unwrap();
    assert_eq!(store.get("a").unwrap(), None);
}

#[test]
fn a_file_that_comes_back_from_a_backup_is_told_from_one_that_was_closed() {
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("store"), folder.path().join("copy"));
    let set = |store: &nervure_store::Local, key| {
        store
            .compare_and_set(key, Expected::Absent, Some(b"1"), None)
            .unwrap()
    };
    set(&nervure_store::open(&path).unwrap(), "a");
    std::fs::copy(&path, &copy).unwrap();
    let store = nervure_store::open(&path).unwrap();
    let (known, seen) = (store.list("").unwrap().epoch, set(&store, "b"));
    assert_eq!(
        store.watch("", Revision(1), Duration::ZERO).unwrap().epoch,
        known
    );
    drop(store);

    let restored = nervure_store::open(&copy).unwrap();
    // Also after any further writes.
    for key in ["c", "d", "e"] {
        assert!(!restored.list("").unwrap().epoch.continues(known, seen));
        set(&restored, key);
    }
    // A reader that has seen no more than the backup misses nothing.
    assert!(
        restored
            .list("")
            .unwrap()
            .epoch
            .continues(known, Revision(1))
    );
}

#[derive(Clone)]
struct Virtual(Arc<Mutex<Instant>>);

impl Clock for Virtual {
    fn now(&self) -> Instant {
        *self.0.lock().unwrap()
    }
}

#[test]
fn a_lease_ends_exactly_when_it_was_not_renewed_for_its_lifetime() {
    let clock = Virtual(Arc::new(Mutex::new(Instant::now())));
    let store = nervure_store::memory_at(clock.clone());
    let lifetime = Duration::from_secs(10);
    let lease = store.lease(None, lifetime).unwrap();
    store
        .compare_and_set("a", Expected::Absent, Some(b""), Some(lease))
        .unwrap();
    let advance = |by| *clock.0.lock().unwrap() += by;
    for _ in 0..3 {
        advance(lifetime - Duration::from_nanos(1));
        store.lease(Some(lease), lifetime).unwrap();
    }
    advance(lifetime - Duration::from_nanos(1));
    assert!(store.get("a").unwrap().is_some());
    advance(Duration::from_nanos(1));
    assert!(store.get("a").unwrap().is_none());
}

#[test]
fn a_writer_of_large_values_uses_up_a_bounded_history() {
    let store = nervure_store::memory();
    let value = vec![7; nervure_store::MAX_VALUE_BYTES];
    let mut expected = Expected::Absent;
    for _ in 0..100 {
        let written = store.compare_and_set("a", expected, Some(&value), None);
        expected = Expected::Revision(written.unwrap());
    }
    let old = store.watch("", Revision(30), Duration::ZERO);
    assert!(matches!(old, Err(StoreError::Compacted { .. })), "{old:?}");
    let bytes = nervure_store::MAX_HISTORY_BYTES;
    let kept = bytes / nervure_store::MAX_VALUE_BYTES - 1;
    let recent = store.watch("", Revision(100 - kept as u64), Duration::ZERO);
    assert_eq!(recent.unwrap().changes.len(), kept);
}

/// Writes a store with some entries, and returns its bytes.
fn written(path: &Path) -> Vec<u8> {
    let store = nervure_store::open(path).unwrap();
    for number in 0..50 {
        let key = format!("machines/{number}");
        let value = vec![number; 1000];
        store
            .compare_and_set(&key, Expected::Absent, Some(&value), None)
            .unwrap();
    }
    drop(store);
    std::fs::read(path).unwrap()
}

#[test]
fn a_thread_that_panics_closes_its_store() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let store = nervure_store::open(&path).unwrap();
    let ended = std::thread::spawn(move || {
        let _store = store;
        panic!("as the test wants");
    });
    assert!(ended.join().is_err());
    nervure_store::open(&path).unwrap();
}

#[test]
fn a_store_that_was_cut_is_named_and_does_not_panic() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let bytes = written(&path);
    for part in 1..64 {
        std::fs::write(&path, &bytes[..bytes.len() * part / 64]).unwrap();
        let error = nervure_store::open(&path).unwrap_err();
        assert!(
            matches!(error, OpenError::Damaged { .. }),
            "{part}/64: {error:?}"
        );
        let text = error.to_string();
        assert!(text.contains(path.to_str().unwrap()), "{text}");
    }
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(
        nervure_store::open(&path)
            .unwrap()
            .list("")
            .unwrap()
            .entries
            .len(),
        50
    );
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(40))]

    /// The changed bytes may be unused.
    #[test]
    fn a_store_with_changed_bytes_is_opened_or_named(
        at in 0.0..1.0, bytes in proptest::collection::vec(0_u8.., 1..400),
    ) {
        static WRITTEN: OnceLock<Vec<u8>> = OnceLock::new();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let mut content = WRITTEN.get_or_init(|| written(&path)).clone();
        let at = (content.len() as f64 * at) as usize;
        let end = content.len().min(at + bytes.len());
        content[at..end].copy_from_slice(&bytes[..end - at]);
        std::fs::write(&path, &content).unwrap();
        match nervure_store::open(&path) {
            Ok(store) => drop(store.list("").unwrap()),
            Err(error) => assert!(matches!(error, OpenError::Damaged { .. }), "{error:?}"),
        }
    }
}
