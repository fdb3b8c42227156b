//! The conformance suite on a real etcd, where one is installed.
#![cfg(feature = "etcd")]

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nervure_store::{Expected, Revision, Store, StoreError, conformance};

/// An etcd with a folder of its own, on free ports of this host.
struct Server {
    child: Child,
    address: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Server {
    /// `None` where none is installed, which is printed.
    fn start() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let free = || {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap()
        };
        let (address, peers) = (free(), free());
        let (clients, peers) = (format!("http://{address}"), format!("http://{peers}"));
        let child = Command::new("etcd")
            .args(["--name", "test", "--data-dir"])
            .arg(folder.path())
            .args([
                "--listen-client-urls",
                &clients,
                "--advertise-client-urls",
                &clients,
            ])
            .args([
                "--listen-peer-urls",
                &peers,
                "--initial-advertise-peer-urls",
                &peers,
            ])
            .args(["--initial-cluster", &format!("test={peers}")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let Ok(child) = child else {
            eprintln!("SKIPPED: no etcd is installed (apt install etcd-server)");
            return None;
        };
        let server = Self {
            child,
            address,
            _folder: folder,
        };
        while nervure_store::etcd(address, "ready/").is_err() {
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = (self.child.kill(), self.child.wait());
    }
}

#[test]
fn the_store_in_etcd_conforms() {
    let Some(server) = Server::start() else {
        return;
    };
    let mut number = 0;
    conformance::check(|| {
        number += 1;
        nervure_store::etcd(server.address, &format!("fleet{number}/")).unwrap()
    });
}

#[test]
fn fleets_in_one_etcd_do_not_see_each_other_and_a_store_is_the_same_for_all_clients() {
    let Some(mut server) = Server::start() else {
        return;
    };
    let open = |prefix: &str| nervure_store::etcd(server.address, prefix).unwrap();
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
    // Away, it is an error that says so.
    let _ = (server.child.kill(), server.child.wait());
    let away = one.get("a").unwrap_err().to_string();
    assert!(
        away.starts_with("the store cannot be used: etcd: "),
        "{away}"
    );
    let elsewhere = nervure_store::etcd("192.0.2.1:2379".parse().unwrap(), "").unwrap_err();
    assert!(matches!(elsewhere, StoreError::Refused(_)), "{elsewhere}");
}
