//! A coordinator on loopback, and its clients.

use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nervure_coordinator::{Client, Config, Coordinator, Invitation, Joining, Role, Terms};
use nervure_identity::KeyPair;

pub const HOUR: Duration = Duration::from_secs(3600);

pub struct World {
    pub coordinator: Coordinator,
    pub key: KeyPair,
    pub folder: tempfile::TempDir,
}

pub fn world() -> World {
    let folder = tempfile::tempdir().unwrap();
    let seed = [7; 32];
    let coordinator = Coordinator::start(Config {
        address: "127.0.0.1:0".parse().unwrap(),
        key: KeyPair::from_seed(seed),
        store: Arc::new(nervure_store::memory()),
        bundles: folder.path().to_owned(),
        on_change: Box::new(|_| {}),
        on_copy: Box::new(|_, _, _| {}),
    });
    World {
        coordinator: coordinator.unwrap(),
        key: KeyPair::from_seed(seed),
        folder,
    }
}

impl World {
    pub fn client(&self, own: &KeyPair) -> Client {
        Client::new(self.coordinator.address(), self.key.public(), own).unwrap()
    }

    pub fn invite(&self, role: Role) -> Invitation {
        self.coordinator.invite(Terms::once(role, HOUR)).unwrap()
    }

    pub fn paired(&self, name: &str, role: Role) -> Client {
        let client = self.client(&KeyPair::generate().unwrap());
        let joined = client.join(&self.invite(role).secret, name).unwrap();
        assert_eq!(joined, Joining::Paired(name.to_owned()));
        client
    }
}

/// Passes connections on to the coordinator, except the first ones, which get no answer. Returns its
/// address and the number of connections so far.
pub fn relay(to: SocketAddr, silent: usize) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let accepted = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&accepted);
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for near in listener.incoming() {
            let near = near.unwrap();
            if count.fetch_add(1, Ordering::SeqCst) < silent {
                kept.push(near);
                continue;
            }
            let far = TcpStream::connect(to).unwrap();
            let pairs = [
                (near.try_clone().unwrap(), far.try_clone().unwrap()),
                (far, near),
            ];
            for (mut from, mut into) in pairs {
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut into);
                    let _ = into.shutdown(Shutdown::Write);
                });
            }
        }
    });
    (address, accepted)
}
