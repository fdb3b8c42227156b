//! The conformance suite on a real etcd, where one is installed.
#![cfg(feature = "etcd")]

use std::net::{IpAddr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use nervure_store::{Expected, Revision, Store, StoreError, conformance};

/// The ports of members on the loopback address of this process.
static FIRST_PORT: AtomicU16 = AtomicU16::new(2379);

/// A loopback address of this process alone: a free port of the common one may be taken by an outgoing
/// connection before a member listens on it.
fn own_loopback() -> IpAddr {
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    IpAddr::from([127, high | 0x80, middle, low])
}

/// Members of an etcd, each with a folder of its own, on ports of its own.
struct Cluster {
    members: Vec<Child>,
    addresses: Vec<SocketAddr>,
    _folder: tempfile::TempDir,
}

impl Cluster {
    /// `None` where none is installed, which is printed.
    fn start(members: u16) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let at = |member: u16, port| SocketAddr::new(own_loopback(), port + 2 * member);
        let first = FIRST_PORT.fetch_add(2 * members, Ordering::Relaxed);
        let addresses: Vec<_> = (0..members).map(|member| at(member, first)).collect();
        let peers = (0..members).map(|member| format!("http://{}", at(member, first + 1)));
        let (members, peers) = (addresses.len(), peers.collect::<Vec<_>>());
        let all: Vec<_> = (0..members)
            .map(|at| format!("m{at}={}", peers[at]))
            .collect();
        let start = |at: usize| {
            let clients = format!("http://{}", addresses[at]);
            let name = format!("m{at}");
            Command::new("etcd")
                .args(["--name", &name, "--initial-cluster", &all.join(",")])
                .arg("--data-dir")
                .arg(folder.path().join(&name))
                .args(["--listen-client-urls", &clients])
                .args(["--advertise-client-urls", &clients])
                .args(["--listen-peer-urls", &peers[at]])
                .args(["--initial-advertise-peer-urls", &peers[at]])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
        };
        let started: Result<Vec<_>, _> = (0..members).map(start).collect();
        let Ok(members) = started else {
            eprintln!("SKIPPED: no etcd is installed (apt install etcd-server)");
            return None;
        };
        let mut cluster = Self {
            members,
            addresses,
            _folder: folder,
        };
        for (address, member) in cluster.addresses.iter().zip(&mut cluster.members) {
            while nervure_store::etcd(&[*address], "ready/").is_err() {
                assert_eq!(member.try_wait().unwrap(), None, "etcd ends at once");
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        Some(cluster)
    }

    fn kill(&mut self, member: usize) {
        let member = &mut self.members[member];
        let _ = (member.kill(), member.wait());
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        (0..self.members.len()).for_each(|member| self.kill(member));
    }
}

#[test]
fn the_store_in_etcd_conforms() {
    let Some(cluster) = Cluster::start(1) else {
        return;
    };
    let mut number = 0;
    conformance::check(|| {
        number += 1;
        nervure_store::etcd(&cluster.addresses, &format!("fleet{number}/")).unwrap()
    });
}

#[test]
fn fleets_in_one_etcd_do_not_see_each_other_and_a_store_is_the_same_for_all_clients() {
    let Some(mut cluster) = Cluster::start(1) else {
        return;
    };
    let open = |prefix: &str| nervure_store::etcd(&cluster.addresses, prefix).unwrap();
    let (one, same, other) = (open("one/"), open("one/"), open("other/"));
    let from = same.list("").unwrap().revision;
    let revision = one
        .compare_and_set("a", Expected::Absent, Some(b"1"), None)
        .unwrap();
    other
        .compare_and_set("a", Expected::Absent, Some(b"2"), None)
        .unwrap();
    assert_eq!(same.get("a").unwrap().unwrap().revision, revision);
    let changes = same.watch("", from, Duration::ZERO).unwrap();
    assert_eq!(changes.changes.len(), 1, "{changes:?}");
    assert_eq!(changes.changes[0].key, "a");
    assert_eq!(changes.revision, Revision(revision.0 + 1));
    // Without a running member, the error says so.
    cluster.kill(0);
    let away = one.get("a").unwrap_err().to_string();
    assert!(
        away.starts_with("the store cannot be used: etcd: "),
        "{away}"
    );
    let elsewhere = nervure_store::etcd(&["192.0.2.1:2379".parse().unwrap()], "").unwrap_err();
    assert!(matches!(elsewhere, StoreError::Refused(_)), "{elsewhere}");
}

#[test]
fn one_of_three_members_is_killed_and_the_store_goes_on() {
    for killed in 0..3 {
        let Some(mut cluster) = Cluster::start(3) else {
            return;
        };
        // The first of the addresses is that of the member that is killed.
        let mut addresses = cluster.addresses.clone();
        addresses.rotate_left(killed);
        let store = nervure_store::etcd(&addresses, "fleet/").unwrap();
        let other = nervure_store::etcd(&addresses[1..], "fleet/").unwrap();
        let lease = store.lease(None, Duration::from_secs(60)).unwrap();
        let before = store
            .compare_and_set("a", Expected::Absent, Some(b"1"), Some(lease))
            .unwrap();
        cluster.kill(killed);
        // It may have been the leader: then a write waits for the next one, or fails and may have happened.
        let mut last = before;
        for number in 0..20_u8 {
            let value = [number];
            last = loop {
                let expected = Expected::Revision(store_revision(&store, "a", before));
                match store.compare_and_set("a", expected, Some(&value), Some(lease)) {
                    Ok(revision) => break revision,
                    Err(StoreError::Unavailable(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            };
        }
        assert_eq!(
            store.lease(Some(lease), Duration::from_secs(60)).unwrap(),
            lease
        );
        let entry = other.get("a").unwrap().unwrap();
        assert_eq!(
            (entry.revision, entry.value, entry.lease),
            (last, vec![19], Some(lease))
        );
        let changes = store.watch("", before, Duration::ZERO).unwrap();
        assert!(changes.changes.len() >= 20, "{changes:?}");
        assert!(changes.changes.is_sorted_by_key(|change| change.revision));
    }
}

/// The revision of a key that is there, whichever member has to be asked.
fn store_revision(store: &dyn Store, key: &str, least: Revision) -> Revision {
    loop {
        match store.get(key) {
            Ok(entry) => {
                let revision = entry.unwrap().revision;
                assert!(
                    revision >= least,
                    "an older state: {revision:?} after {least:?}"
                );
                return revision;
            }
            Err(StoreError::Unavailable(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}
