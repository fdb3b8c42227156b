//! The conformance suite: the contract of every binding of [`Store`].

use std::collections::BTreeMap;
use std::time::Duration;

use crate::{Change, Expected, MAX_VALUE_BYTES, Revision, Store, StoreError};

/// Runs the whole suite, on empty stores of a binding.
///
/// # Panics
/// If the binding breaks the contract.
pub fn check<S: Store>(mut empty: impl FnMut() -> S) {
    a_writer_that_has_not_seen_the_last_change_is_refused(&empty());
    revisions_grow_by_one_and_order_all_keys(&empty());
    a_list_is_of_the_prefix_and_of_one_revision(&empty());
    a_watch_continues_a_list_without_a_gap(&empty());
    lists_and_watches_are_of_one_epoch(&empty());
    a_watch_waits_for_a_change(&empty());
    a_watch_from_an_unknown_revision_is_refused(&empty());
    one_of_many_writers_wins(&empty());
    the_keys_of_a_lease_end_with_it(&empty());
    limits_are_kept(&empty());
    for seed in 0..10 {
        random_calls_agree_with_a_map(&empty(), seed);
    }
}

fn set(store: &impl Store, key: &str, expected: Expected, value: &[u8]) -> Revision {
    let set = store.compare_and_set(key, expected, Some(value), None);
    set.expect("the state is as expected")
}

fn a_writer_that_has_not_seen_the_last_change_is_refused(store: &impl Store) {
    assert_eq!(store.get("a").unwrap(), None);
    let first = set(store, "a", Expected::Absent, b"1");
    let second = set(store, "a", Expected::Revision(first), b"2");
    for (stale, value) in [
        (Expected::Absent, Some(&b"3"[..])),
        (Expected::Revision(first), Some(b"3")),
        (Expected::Revision(first), None),
        (Expected::Revision(Revision(second.0 + 1)), Some(b"3")),
    ] {
        let refused = store.compare_and_set("a", stale, value, None).unwrap_err();
        let StoreError::Conflict { found, .. } = refused else {
            panic!("{refused}")
        };
        assert_eq!(found, Some(second));
    }
    let entry = store.get("a").unwrap().expect("it exists");
    assert_eq!(
        (entry.value.as_slice(), entry.revision),
        (&b"2"[..], second)
    );
    store
        .compare_and_set("a", Expected::Revision(second), None, None)
        .unwrap();
    assert_eq!(store.get("a").unwrap(), None);
    let absent = store.compare_and_set("a", Expected::Absent, None, None);
    assert!(matches!(
        absent,
        Err(StoreError::Conflict { found: None, .. })
    ));
    let again = set(store, "a", Expected::Absent, b"4");
    assert!(
        again > second,
        "a removed key does not get an old revision again"
    );
}

fn revisions_grow_by_one_and_order_all_keys(store: &impl Store) {
    let before = store.list("").unwrap().revision;
    for step in 1..=5 {
        let revision = set(store, &format!("key/{step}"), Expected::Absent, b"");
        assert_eq!(revision, Revision(before.0 + step));
    }
    assert_eq!(store.list("").unwrap().revision, Revision(before.0 + 5));
}

fn a_list_is_of_the_prefix_and_of_one_revision(store: &impl Store) {
    for key in ["b/2", "b/1", "a", "b", "b0", "c/1"] {
        set(store, key, Expected::Absent, key.as_bytes());
    }
    let listing = store.list("b/").unwrap();
    let keys: Vec<&str> = listing
        .entries
        .iter()
        .map(|entry| entry.key.as_str())
        .collect();
    assert_eq!(keys, ["b/1", "b/2"]);
    assert_eq!(store.list("").unwrap().entries.len(), 6);
    assert!(store.list("d").unwrap().entries.is_empty());
}

fn a_watch_continues_a_list_without_a_gap(store: &impl Store) {
    set(store, "w/a", Expected::Absent, b"old");
    let from = store.list("w/").unwrap().revision;
    let first = set(store, "w/b", Expected::Absent, b"new");
    set(store, "other", Expected::Absent, b"");
    let last = store
        .compare_and_set("w/b", Expected::Revision(first), None, None)
        .unwrap();
    let changes = store.watch("w/", from, Duration::ZERO).unwrap();
    assert_eq!(changes.revision, last);
    let [
        Change {
            entry: Some(written),
            revision,
            ..
        },
        Change {
            entry: None, key, ..
        },
    ] = changes.changes.as_slice()
    else {
        panic!("{changes:?}")
    };
    assert_eq!(
        (written.value.as_slice(), *revision, key.as_str()),
        (&b"new"[..], first, "w/b")
    );
    assert!(
        store
            .watch("w/", changes.revision, Duration::ZERO)
            .unwrap()
            .changes
            .is_empty()
    );
}

fn lists_and_watches_are_of_one_epoch(store: &impl Store) {
    let epoch = store.list("").unwrap().epoch;
    let revision = set(store, "a", Expected::Absent, b"1");
    assert_eq!(store.list("a").unwrap().epoch, epoch);
    let watched = store.watch("a", Revision(revision.0 - 1), Duration::ZERO);
    assert_eq!(watched.unwrap().epoch, epoch);
    assert_eq!(
        store.watch("a", revision, Duration::ZERO).unwrap().epoch,
        epoch
    );
}

fn a_watch_waits_for_a_change(store: &impl Store) {
    let from = store.list("").unwrap().revision;
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| store.watch("x", from, Duration::from_secs(60)));
        set(store, "y", Expected::Absent, b"");
        set(store, "x", Expected::Absent, b"");
        let changes = watch.join().expect("it does not panic").unwrap();
        assert_eq!(changes.changes.len(), 1);
        assert_eq!(changes.changes[0].key, "x");
    });
    let idle = store.watch(
        "z",
        store.list("").unwrap().revision,
        Duration::from_millis(10),
    );
    assert!(idle.unwrap().changes.is_empty());
}

fn a_watch_from_an_unknown_revision_is_refused(store: &impl Store) {
    let future = Revision(store.list("").unwrap().revision.0 + 10);
    let refused = store.watch("", future, Duration::ZERO);
    assert!(
        matches!(refused, Err(StoreError::Compacted { .. })),
        "{refused:?}"
    );
}

fn one_of_many_writers_wins(store: &impl Store) {
    let start = set(store, "fence", Expected::Absent, b"");
    let winners: usize = std::thread::scope(|scope| {
        let write = |_| {
            scope.spawn(|| {
                store.compare_and_set("fence", Expected::Revision(start), Some(b"x"), None)
            })
        };
        let writers: Vec<_> = (0..8).map(write).collect();
        let ends = writers
            .into_iter()
            .map(|writer| writer.join().expect("it does not panic"));
        ends.filter(Result::is_ok).count()
    });
    assert_eq!(winners, 1);
}

fn the_keys_of_a_lease_end_with_it(store: &impl Store) {
    let long = Duration::from_secs(3600);
    let lease = store.lease(None, long).unwrap();
    let other = store.lease(None, long).unwrap();
    assert_ne!(lease, other);
    store
        .compare_and_set("l/1", Expected::Absent, Some(b""), Some(lease))
        .unwrap();
    store
        .compare_and_set("l/2", Expected::Absent, Some(b""), Some(other))
        .unwrap();
    let kept = store
        .compare_and_set("l/3", Expected::Absent, Some(b""), Some(lease))
        .unwrap();
    // Written again without the lease, a key stays.
    set(store, "l/3", Expected::Revision(kept), b"");
    assert_eq!(store.lease(Some(lease), long).unwrap(), lease);
    let from = store.list("").unwrap().revision;
    store.lease(Some(lease), Duration::ZERO).unwrap();
    let changes = store.watch("l/", from, Duration::ZERO).unwrap();
    let keys: Vec<&str> = changes
        .changes
        .iter()
        .map(|change| change.key.as_str())
        .collect();
    assert_eq!(keys, ["l/1"]);
    assert!(changes.changes[0].entry.is_none());
    let ended = store.lease(Some(lease), long);
    assert!(
        matches!(ended, Err(StoreError::NoLease(id)) if id == lease),
        "{ended:?}"
    );
    let write = store.compare_and_set("l/4", Expected::Absent, Some(b""), Some(lease));
    assert!(matches!(write, Err(StoreError::NoLease(_))), "{write:?}");

    // Long enough for the next call on a slow machine.
    let short = store.lease(None, Duration::from_secs(1)).unwrap();
    let from = store
        .compare_and_set("l/5", Expected::Absent, Some(b""), Some(short))
        .unwrap();
    let changes = store.watch("l/5", from, Duration::from_secs(60)).unwrap();
    assert_eq!(
        changes.changes.len(),
        1,
        "the watch sees the end of the lease"
    );
    assert_eq!(store.get("l/5").unwrap(), None);
}

fn limits_are_kept(store: &impl Store) {
    let before = store.list("").unwrap();
    for (key, bytes) in [("", 1), ("k", MAX_VALUE_BYTES + 1), (&"k".repeat(513), 1)] {
        let refused = store.compare_and_set(key, Expected::Absent, Some(&vec![0; bytes]), None);
        assert!(
            matches!(refused, Err(StoreError::Size { .. })),
            "{refused:?}"
        );
    }
    assert_eq!(store.list("").unwrap(), before);
    set(store, "k", Expected::Absent, &vec![7; MAX_VALUE_BYTES]);
}

fn random_calls_agree_with_a_map(store: &impl Store, seed: u64) {
    let mut map: BTreeMap<String, (Revision, Vec<u8>)> = BTreeMap::new();
    let mut random = fastrand::Rng::with_seed(seed);
    let mut next = |below: u64| random.u64(..below);
    let start = store.list("").unwrap().revision;
    let mut followed = BTreeMap::new();
    let mut seen = start;
    for _ in 0..60 {
        let key = format!("k{}", next(4));
        let known = map.get(&key).map(|(revision, _)| *revision);
        let expected = match (next(4), known) {
            (0, Some(revision)) => Expected::Revision(Revision(revision.0.saturating_sub(1))),
            (0, None) => Expected::Revision(Revision(1)),
            (_, Some(revision)) => Expected::Revision(revision),
            (_, None) => Expected::Absent,
        };
        let value = (next(3) > 0).then(|| vec![next(256) as u8]);
        let fits = match expected {
            Expected::Absent => known.is_none() && value.is_some(),
            Expected::Revision(revision) => known == Some(revision),
        };
        let done = store.compare_and_set(&key, expected, value.as_deref(), None);
        assert_eq!(
            done.is_ok(),
            fits,
            "seed {seed}: {key} {expected:?} {value:?}"
        );
        match (done, value) {
            (Ok(revision), Some(value)) => drop(map.insert(key, (revision, value))),
            (Ok(_), None) => drop(map.remove(&key)),
            (Err(_), _) => {}
        }
        if next(5) == 0 {
            let changes = store.watch("k", seen, Duration::ZERO).unwrap();
            seen = changes.revision;
            for change in changes.changes {
                match change.entry {
                    Some(entry) => drop(followed.insert(change.key, (entry.revision, entry.value))),
                    None => drop(followed.remove(&change.key)),
                }
            }
            assert_eq!(
                followed, map,
                "seed {seed}: what a watch follows is the state"
            );
        }
    }
}
