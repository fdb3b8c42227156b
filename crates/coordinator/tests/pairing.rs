//! Pairing, and the store over HTTPS, on loopback.

mod world;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nervure_coordinator::{
    ACTUAL, CallError, Client, Config, Coordinator, DESIRED, Endpoint, Invitation, Joining, LINKS,
    MACHINES, Machine, Role, Standing, Terms, digest,
};
use nervure_identity::KeyPair;
use nervure_store::{
    Changes, Entry, Expected, LeaseId, Listing, Revision, Store, StoreError, conformance,
};
use world::{HOUR, relay, world};

/// A coordinator with a key and a store, whose machine has joined under this name.
fn coordinator(seed: u8, name: &str, store: Arc<dyn Store>, bundles: &Path) -> Coordinator {
    let key = KeyPair::from_seed([seed; 32]);
    let coordinator = Coordinator::start(Config {
        address: "127.0.0.1:0".parse().unwrap(),
        key: KeyPair::from_seed([seed; 32]),
        store,
        bundles: bundles.to_owned(),
        on_change: Box::new(|_| {}),
        on_copy: Box::new(|_, _, _| {}),
    })
    .unwrap();
    let own = Client::new(coordinator.address(), key.public(), &key).unwrap();
    // Fails where the store is away.
    let _ = own.join("", name);
    coordinator
}

/// A store that cannot be used.
struct Away;

impl Store for Away {
    fn get(&self, _: &str) -> Result<Option<Entry>, StoreError> {
        Err(away())
    }

    fn compare_and_set(
        &self,
        _: &str,
        _: Expected,
        _: Option<&[u8]>,
        _: Option<LeaseId>,
    ) -> Result<Revision, StoreError> {
        Err(away())
    }

    fn list(&self, _: &str) -> Result<Listing, StoreError> {
        Err(away())
    }

    fn watch(&self, _: &str, _: Revision, _: Duration) -> Result<Changes, StoreError> {
        Err(away())
    }

    fn lease(&self, _: Option<LeaseId>, _: Duration) -> Result<LeaseId, StoreError> {
        Err(away())
    }
}

fn away() -> StoreError {
    StoreError::Unavailable("away".to_owned())
}

#[test]
fn a_client_asks_the_next_coordinator_when_one_is_gone_or_has_lost_its_store() {
    let store: Arc<dyn Store> = Arc::new(nervure_store::memory());
    let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
    let first = coordinator(1, "a", Arc::clone(&store), folders[0].path());
    let second = coordinator(2, "b", Arc::clone(&store), folders[1].path());
    let lost = coordinator(3, "c", Arc::new(Away), folders[2].path());
    let key = |seed| KeyPair::from_seed([seed; 32]).public();
    let at = |coordinator: &Coordinator, seed| Endpoint {
        address: coordinator.address(),
        key: key(seed),
    };
    let all = [at(&first, 1), at(&second, 2)];
    let known = machines(&*store).into_iter().map(|it| it.coordinator);
    let addresses: Vec<_> = known.map(|it| it.unwrap().address).collect();
    assert_eq!(addresses, [first.address(), second.address()]);

    let join = |name: &str, role: Role| {
        let client = Client::new(first.address(), key(1), &KeyPair::generate().unwrap()).unwrap();
        let invitation = first.invite(Terms::once(role, HOUR)).unwrap();
        client.join(&invitation.secret, name).unwrap();
        client.set_coordinators(&all);
        client
    };
    let (robot, operator) = (join("robot", Role::Robot), join("ws", Role::Operator));
    let bundle = digest(b"programs");
    assert!(!operator.has_bundle(&bundle).unwrap());
    operator.put_bundle(&bundle, b"programs".to_vec()).unwrap();
    assert!(operator.has_bundle(&bundle).unwrap());
    for folder in &folders[..2] {
        assert!(folder.path().join(&bundle).exists());
    }
    // A coordinator has the same permissions at another one as at its own.
    let of_second = KeyPair::from_seed([2; 32]);
    let of_second = Client::new(first.address(), key(1), &of_second).unwrap();
    of_second.lease(None, HOUR).unwrap();
    assert!(matches!(
        operator.lease(None, HOUR),
        Err(StoreError::Refused(_))
    ));

    // The store of the first coordinator is away: reads are repeated, and a write fails once.
    robot.set_coordinators(&[at(&lost, 3), all[0], all[1]]);
    assert_eq!(robot.address(), first.address(), "it is asked still");
    let desired = format!("{DESIRED}robot");
    let link = format!("{LINKS}robot");
    robot.set_coordinators(&[at(&lost, 3)]);
    assert!(robot.get(&desired).is_err());
    robot.set_coordinators(&[at(&lost, 3), all[0], all[1]]);
    let written = robot.compare_and_set(&link, Expected::Absent, Some(b"1"), None);
    assert!(
        matches!(written, Err(StoreError::Unavailable(_))),
        "{written:?}"
    );
    robot
        .compare_and_set(&link, Expected::Absent, Some(b"1"), None)
        .unwrap();
    robot.set_coordinators(&[at(&lost, 3)]);
    robot.set_coordinators(&[at(&lost, 3), all[0], all[1]]);
    assert_eq!(robot.get(&desired).unwrap(), None);
    assert_eq!(robot.address(), first.address());

    // A watch that waits there goes on at the other one.
    let after = store.list(DESIRED).unwrap().revision;
    std::thread::scope(|scope| {
        let watching = scope.spawn(|| robot.watch(&desired, after, HOUR).unwrap());
        drop(first);
        // A write that is sent before the end of its connection is seen fails.
        let write = || operator.compare_and_set(&desired, Expected::Absent, Some(b"1"), None);
        while matches!(write(), Err(StoreError::Unavailable(_))) {}
        let changes = watching.join().unwrap().changes;
        assert_eq!(changes.len(), 1);
    });
    assert_eq!(
        (robot.address(), operator.address()),
        (second.address(), second.address())
    );
    assert_eq!(robot.bundle(&bundle).unwrap(), b"programs");
    assert!(operator.has_bundle(&bundle).unwrap());
    // The address of a coordinator with the key of another one.
    robot.set_coordinators(&[Endpoint {
        key: key(1),
        ..all[1]
    }]);
    assert!(robot.get(&desired).is_err());
    // A revoked machine is no coordinator; the coordinator that is asked cannot be revoked.
    drop(refusal(operator.revoke("b")));
    operator.revoke("a").unwrap();
    let revoked = of_second.get("machines/a");
    assert!(revoked.is_err(), "its coordinator is gone: {revoked:?}");
    let is_coordinator: Vec<_> = machines(&*store)
        .iter()
        .map(Machine::is_coordinator)
        .collect();
    assert_eq!(is_coordinator, [false, true, false, false]);
}

fn refusal<T: std::fmt::Debug>(result: Result<T, CallError>) -> String {
    match result {
        Err(CallError::Refused { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

fn store_refusal<T: std::fmt::Debug>(result: Result<T, StoreError>) -> String {
    match result {
        Err(StoreError::Refused(reason)) => reason,
        other => panic!("{other:?}"),
    }
}

fn machines(store: &dyn Store) -> Vec<Machine> {
    let entries = store.list(MACHINES).unwrap().entries;
    let machines = entries.iter();
    machines
        .map(|entry| serde_json::from_slice(&entry.value).unwrap())
        .collect()
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
    let invitation = world.invite(Role::Robot);
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
    assert!(refusal(other.join(&invitation.secret, "other")).contains("was used already"));
    let expired = world
        .coordinator
        .invite(Terms::once(Role::Robot, Duration::ZERO))
        .unwrap();
    assert!(refusal(other.join(&expired.secret, "other")).contains("has expired"));
    let again = world.invite(Role::Robot);
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
fn a_machine_may_do_what_its_role_says() {
    let world = world();
    let operator = world.paired("laptop", Role::Operator);
    let robot = world.paired("robot", Role::Robot);
    let observer = world.paired("tv", Role::Observer);
    let write =
        |of: &Client, key: &str| of.compare_and_set(key, Expected::Absent, Some(b"{}"), None);
    write(&operator, "desired/robot").unwrap();
    write(&operator, "desired/robot2").unwrap();
    write(&robot, "actual/robot").unwrap();
    write(&observer, "actual/tv").unwrap();
    for key in [
        "desired/robot",
        "desired/laptop",
        "actual/laptop",
        "machines/mine",
        "actual/robot2",
        "other",
    ] {
        let refused = store_refusal(write(&robot, key));
        let expected = format!("`robot` is a robot of this fleet, and may not write `{key}`");
        assert_eq!(refused, expected);
        store_refusal(write(&observer, key));
    }
    for key in ["machines/mine", "actual/robot", "invitations/x"] {
        store_refusal(write(&operator, key));
    }
    // A list has the readable entries below its prefix, also if that is the name of two machines.
    let keys = |client: &Client, prefix: &str| -> Vec<String> {
        let entries = client.list(prefix).unwrap().entries;
        entries.into_iter().map(|entry| entry.key).collect()
    };
    assert_eq!(keys(&robot, "desired/robot"), ["desired/robot"]);
    assert_eq!(
        keys(&observer, "desired/"),
        ["desired/robot", "desired/robot2"]
    );
    let changes = robot
        .watch("desired/robot", Revision(0), Duration::ZERO)
        .unwrap();
    assert_eq!(changes.changes.len(), 1);
    for prefix in ["", "desired/", "actual/", "invitations/"] {
        store_refusal(robot.list(prefix));
        store_refusal(robot.watch(prefix, Revision(0), Duration::ZERO));
    }
    store_refusal(robot.get("desired/laptop"));
    // One machine could end the lease of another.
    for client in [&operator, &robot, &observer] {
        store_refusal(client.lease(None, HOUR));
    }
    let own = world.client(&world.key);
    let lease = own.lease(None, HOUR).unwrap();
    store_refusal(robot.compare_and_set("actual/robot", Expected::Absent, Some(b""), Some(lease)));
    // Only operators change which machines are in the fleet.
    for client in [&robot, &observer] {
        let terms = Terms::once(Role::Operator, HOUR);
        assert!(refusal(client.invite(terms)).contains("may not manage"));
        assert!(refusal(client.approve("robot")).contains("may not manage"));
        assert!(refusal(client.revoke("laptop")).contains("may not manage"));
    }
    let bundle = digest(b"x");
    refusal(robot.put_bundle(&bundle, b"x".to_vec()));
    refusal(observer.put_bundle(&bundle, b"x".to_vec()));
    operator.put_bundle(&bundle, b"x".to_vec()).unwrap();
    robot.bundle(&bundle).unwrap();
    refusal(observer.bundle(&bundle));
}

#[test]
fn a_revoked_machine_is_cut_off_at_once_and_returns_with_a_new_invitation() {
    let world = world();
    let operator = world.paired("laptop", Role::Operator);
    let key = KeyPair::generate().unwrap();
    let robot = world.client(&key);
    let invitation = operator.invite(Terms::once(Role::Robot, HOUR)).unwrap();
    robot.join(&invitation.secret, "robot").unwrap();
    for key in [LINKS, ACTUAL] {
        let key = format!("{key}robot");
        robot
            .compare_and_set(&key, Expected::Absent, Some(b"{}"), None)
            .unwrap();
    }
    let from = robot.list(MACHINES).unwrap().revision;
    let waiting = world.client(&key);
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| waiting.watch("desired/robot", from, HOUR));
        // The watch may begin before or after the end: it ends in both cases.
        assert_eq!(
            operator.revoke("robot").unwrap().standing,
            Standing::Revoked
        );
        watch.join().unwrap().unwrap_err();
    });
    let again = world.client(&key);
    for client in [&robot, &waiting, &again] {
        let refused = (0..2)
            .map(|_| client.list(MACHINES).unwrap_err().to_string())
            .last();
        assert!(
            refused
                .unwrap()
                .contains("`robot` was revoked, and needs a new invitation")
        );
    }
    assert!(refusal(again.bundle(&digest(b"x"))).contains("was revoked"));
    assert!(refusal(again.join(&invitation.secret, "robot")).contains("was used already"));
    assert_eq!(machines(&operator)[1].standing, Standing::Revoked);
    assert_eq!(operator.get("links/robot").unwrap(), None);
    assert_eq!(operator.get("actual/robot").unwrap(), None);
    assert!(refusal(operator.approve("robot")).contains("new invitation"));

    // Its name is its own, and its role that of the new invitation.
    let invitation = operator.invite(Terms::once(Role::Observer, HOUR)).unwrap();
    let joined = again.join(&invitation.secret, "other").unwrap();
    assert_eq!(joined, Joining::Paired("robot".to_owned()));
    assert_eq!(machines(&again)[1].role, Role::Observer);
    assert!(refusal(operator.revoke("nothing")).contains("no machine `nothing`"));
    // A new key takes the name of a revoked machine.
    operator.revoke("robot").unwrap();
    let replaced = world.paired("robot", Role::Robot);
    replaced.list(MACHINES).unwrap();
    assert!(
        again
            .list(MACHINES)
            .unwrap_err()
            .to_string()
            .contains("not paired")
    );
}

#[test]
fn the_machine_of_the_coordinator_is_an_operator_and_stays() {
    let world = world();
    let own = world.client(&world.key);
    for _ in 0..2 {
        assert_eq!(
            own.join("", "laptop").unwrap(),
            Joining::Paired("laptop".to_owned())
        );
    }
    let operator = world.paired("desk", Role::Operator);
    let laptop = machines(&operator).pop().unwrap();
    assert_eq!(
        (laptop.name.as_str(), laptop.role),
        ("laptop", Role::Operator)
    );
    assert!(refusal(operator.revoke("laptop")).contains("cannot be revoked"));
    assert!(refusal(own.join("", "desk")).contains("another machine"));
}

#[test]
fn machines_of_one_image_wait_for_approval() {
    let world = world();
    let terms = Terms {
        role: Role::Robot,
        needs_approval: true,
        lifetime: HOUR,
    };
    let invitation = world.coordinator.invite(terms).unwrap();
    let operator = world.paired("laptop", Role::Operator);
    let join = |key: &KeyPair| {
        let client = world.client(key);
        let joined = client.join(&invitation.secret, "robot").unwrap();
        (client, joined)
    };
    let keys: Vec<KeyPair> = (0..3).map(|_| KeyPair::generate().unwrap()).collect();
    let (first, joined) = join(&keys[0]);
    assert_eq!(joined, Joining::Waiting("robot".to_owned()));
    let refused = first.list(MACHINES).unwrap_err().to_string();
    assert!(refused.contains("`robot` waits for approval"), "{refused}");
    // Asked again, and again after a restart, it is the same machine.
    assert_eq!(join(&keys[0]).1, joined);
    let Joining::Waiting(second) = join(&keys[1]).1 else {
        panic!("it waits")
    };
    let digits = keys[1].public().to_string();
    assert_eq!(
        second,
        format!("robot-{}", &digits["ed25519:".len()..][..8])
    );
    operator.approve("robot").unwrap();
    assert_eq!(join(&keys[0]).1, Joining::Paired("robot".to_owned()));
    first.list(MACHINES).unwrap();
    // One that is turned away is forgotten; with the invitation it can ask again.
    operator.revoke(&second).unwrap();
    assert_eq!(machines(&operator).len(), 2);
    assert!(matches!(join(&keys[1]).1, Joining::Waiting(_)));
    assert!(world.coordinator.is_open(&invitation).unwrap());

    // Many machines do not fill the store.
    let refused = (0..300).find_map(|number| {
        let client = world.client(&KeyPair::generate().unwrap());
        client.join(&invitation.secret, &format!("r{number}")).err()
    });
    assert!(refused.unwrap().to_string().contains("256 machines wait"));
}

#[test]
fn watches_hold_no_threads() {
    let world = world();
    let robot = world.paired("robot", Role::Robot);
    let from = robot.list(MACHINES).unwrap().revision;
    std::thread::scope(|scope| {
        // More than the coordinator has threads.
        let watch = || robot.watch(MACHINES, from, HOUR).unwrap();
        let watches: Vec<_> = (0..40).map(|_| scope.spawn(watch)).collect();
        for _ in 0..200 {
            robot.list(MACHINES).unwrap();
        }
        world.paired("other", Role::Robot);
        for watch in watches {
            assert_eq!(watch.join().unwrap().changes.len(), 1);
        }
    });
}

#[test]
fn a_bundle_is_what_its_digest_says() {
    let world = world();
    let robot = world.paired("robot", Role::Operator);
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
        on_change: Box::new(|_| {}),
        on_copy: Box::new(|_, _, _| {}),
    })
    .unwrap();
    own.list("").unwrap();
}

#[test]
fn calls_one_after_the_other_have_one_connection() {
    let world = world();
    let (address, accepted) = relay(world.coordinator.address(), 0);
    let client = Client::new(address, world.key.public(), &world.key).unwrap();
    for _ in 0..200 {
        client.get("actual/laptop").unwrap();
    }
    assert_eq!(accepted.load(Ordering::SeqCst), 1);
}

#[test]
fn a_connection_that_gets_no_answer_has_another_attempt_beside_it() {
    let world = world();
    let (address, accepted) = relay(world.coordinator.address(), 2);
    let client = Client::new(address, world.key.public(), &world.key).unwrap();
    client.get("actual/laptop").unwrap();
    assert_eq!(accepted.load(Ordering::SeqCst), 3);
}

#[test]
fn of_two_daemons_with_one_key_the_younger_is_refused_while_the_older_lives() {
    let world = world();
    let key = KeyPair::generate().unwrap();
    let daemon = |number| {
        let client = world.client(&key);
        client.identify(number);
        client
    };
    let command = world.client(&key);
    command
        .join(&world.invite(Role::Robot).secret, "robot")
        .unwrap();
    let (older, younger) = (daemon(1), daemon(2));
    let desired = format!("{DESIRED}robot");
    let after = older.list(&desired).unwrap().revision;
    let lives = AtomicBool::new(true);
    std::thread::scope(|scope| {
        // As a daemon does, which asks again whenever it is answered.
        let watching = scope.spawn(|| {
            while lives.load(Ordering::SeqCst) {
                older.watch(&desired, after, HOUR).unwrap();
            }
        });
        for _ in 0..3 {
            let refused = younger.get(&desired).unwrap_err();
            let text = refused.to_string();
            assert!(matches!(refused, StoreError::Refused(_)), "{text}");
            assert!(
                text.contains("key of `robot`") && text.contains("from 127.0.0.1"),
                "{text}"
            );
            assert!(younger.is_copy() && !older.is_copy());
        }
        // A command of the machine has the same key, and is no daemon.
        command.get(&desired).unwrap();
        lives.store(false, Ordering::SeqCst);
        let operator = world.client(&world.key);
        operator
            .compare_and_set(&desired, Expected::Absent, Some(b"{}"), None)
            .unwrap();
        watching.join().unwrap();
    });
    drop(older);
    let begin = std::time::Instant::now();
    while younger.get(&desired).is_err() {
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "the older one has ended"
        );
    }
    assert!(!younger.is_copy());
}

#[test]
fn the_address_of_a_machine_is_that_which_its_daemon_connects_from() {
    let world = world();
    let key = KeyPair::generate().unwrap();
    let (command, daemon) = (world.client(&key), world.client(&key));
    command
        .join(&world.invite(Role::Robot).secret, "robot")
        .unwrap();
    daemon.identify(1);
    let own = world.client(&world.key);
    let machine = || {
        let entry = own.get("machines/robot").unwrap().unwrap();
        let machine: Machine = serde_json::from_slice(&entry.value).unwrap();
        (entry.revision, machine)
    };
    // It was in another network when it paired.
    let (revision, mut moved) = machine();
    moved.address = [10, 0, 0, 9].into();
    let json = serde_json::to_vec(&moved).unwrap();
    own.compare_and_set(
        "machines/robot",
        Expected::Revision(revision),
        Some(&json),
        None,
    )
    .unwrap();
    command.list(LINKS).unwrap();
    assert_eq!(machine().1, moved, "a command may be elsewhere");
    daemon.list(LINKS).unwrap();
    let (revision, machine_now) = machine();
    assert_eq!(machine_now.address, std::net::IpAddr::from([127, 0, 0, 1]));
    daemon.list(LINKS).unwrap();
    assert_eq!(machine().0, revision, "it is written once");
}
