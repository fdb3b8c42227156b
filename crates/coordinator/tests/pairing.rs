//! Pairing, and the store over HTTPS, on loopback.

use std::sync::Arc;
use std::time::Duration;

use nervure_coordinator::{CallError, Client, Config, Coordinator, Invitation, digest};
use nervure_identity::KeyPair;
use nervure_store::{Expected, Store, conformance};

const HOUR: Duration = Duration::from_secs(3600);

struct World {
    coordinator: Coordinator,
    key: KeyPair,
    folder: tempfile::TempDir,
}

fn world() -> World {
    let folder = tempfile::tempdir().unwrap();
    let seed = [7; 32];
    let coordinator = Coordinator::start(Config {
        address: "127.0.0.1:0".parse().unwrap(),
        key: KeyPair::from_seed(seed),
        store: Arc::new(nervure_store::memory()),
        bundles: folder.path().to_owned(),
        on_paired: Box::new(|_| {}),
    });
    World {
        coordinator: coordinator.unwrap(),
        key: KeyPair::from_seed(seed),
        folder,
    }
}

impl World {
    fn client(&self, own: &KeyPair) -> Client {
        Client::new(self.coordinator.address(), self.key.public(), own).unwrap()
    }

    fn paired(&self, name: &str) -> Client {
        let client = self.client(&KeyPair::generate().unwrap());
        client
            .join(&self.coordinator.invite(HOUR).unwrap().secret, name)
            .unwrap();
        client
    }
}

fn refusal(result: Result<(), CallError>) -> String {
    match result {
        Err(CallError::Refused { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_store_over_https_conforms() {
    let mut worlds = Vec::new();
    conformance::check(|| {
        worlds.push(world());
        let world = worlds.last().unwrap();
        world.client(&world.key)
    });
}

#[test]
fn an_invitation_is_valid_once_and_until_it_expires() {
    let world = world();
    let invitation = world.coordinator.invite(HOUR).unwrap();
    let text = invitation.to_string();
    assert_eq!(text.parse::<Invitation>().unwrap(), invitation);
    let robot = KeyPair::generate().unwrap();
    let client = world.client(&robot);
    let denied = client.list("").unwrap_err().to_string();
    assert!(denied.contains("not paired"), "{denied}");
    assert!(refusal(client.join(&"0".repeat(32), "robot")).contains("not valid"));
    client.join(&invitation.secret, "robot").unwrap();
    // A repeated call, whose answer was lost, is none.
    client.join(&invitation.secret, "robot").unwrap();
    assert_eq!(client.list("machines/").unwrap().entries.len(), 1);

    let other = world.client(&KeyPair::generate().unwrap());
    assert!(refusal(other.join(&invitation.secret, "other")).contains("not valid"));
    let expired = world.coordinator.invite(Duration::ZERO).unwrap();
    assert!(refusal(other.join(&expired.secret, "other")).contains("not valid"));
    let again = world.coordinator.invite(HOUR).unwrap();
    assert!(refusal(other.join(&again.secret, "robot")).contains("another machine"));
    assert!(refusal(other.join(&again.secret, "../x")).contains("no name"));
    other.join(&again.secret, "other").unwrap();
}

#[test]
fn a_coordinator_with_another_key_is_not_spoken_to() {
    let world = world();
    let robot = KeyPair::generate().unwrap();
    let impostor = KeyPair::generate().unwrap().public();
    let client = Client::new(world.coordinator.address(), impostor, &robot).unwrap();
    let error = client.join("secret", "robot").unwrap_err();
    assert!(matches!(error, CallError::Unreachable { .. }), "{error}");
}

#[test]
fn a_machine_writes_only_what_is_its_own() {
    let world = world();
    let robot = world.paired("robot");
    let write = |key: &str| robot.compare_and_set(key, Expected::Absent, Some(b"{}"), None);
    write("desired/edge").unwrap();
    write("actual/robot").unwrap();
    for key in ["actual/edge", "machines/mine", "actual/robot2", "other"] {
        let error = write(key).unwrap_err().to_string();
        assert!(error.contains("may not write"), "{error}");
    }
}

#[test]
fn a_bundle_is_what_its_digest_says() {
    let world = world();
    let robot = world.paired("robot");
    let bytes = vec![3; 100_000];
    let name = digest(&bytes);
    assert!(!robot.has_bundle(&name).unwrap());
    assert!(robot.put_bundle(&name, vec![4; 10]).is_err());
    assert!(robot.bundle(&name).is_err());
    robot.put_bundle(&name, bytes.clone()).unwrap();
    assert!(robot.has_bundle(&name).unwrap());
    assert_eq!(robot.bundle(&name).unwrap(), bytes);
    // The disk of the coordinator is not trusted either.
    std::fs::write(world.folder.path().join(&name), b"changed").unwrap();
    assert!(robot.bundle(&name).is_err());
    let stranger = world.client(&KeyPair::generate().unwrap());
    assert!(stranger.bundle(&name).is_err());
    assert!(stranger.put_bundle(&name, bytes).is_err());
    assert!(robot.bundle("../../etc/passwd").is_err());
}

#[test]
fn clients_survive_a_restart_of_the_coordinator() {
    let world = world();
    let own = world.client(&world.key);
    own.list("").unwrap();
    let address = world.coordinator.address();
    drop(world.coordinator);
    assert!(own.list("").is_err());
    let _again = Coordinator::start(Config {
        address,
        key: KeyPair::from_seed([7; 32]),
        store: Arc::new(nervure_store::memory()),
        bundles: world.folder.path().to_owned(),
        on_paired: Box::new(|_| {}),
    })
    .unwrap();
    own.list("").unwrap();
}
