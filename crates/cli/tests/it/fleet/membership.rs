//! Roles, revocation, approval, and domains.

use super::*;
use crate::{dataflow::Process, serve::Server};

#[test]
fn a_robot_can_neither_start_nor_list_nor_invite() {
    let fleet = Fleet::new(None);
    start_endless(&fleet, "source 1000000 5 100");
    let file = fleet.file(&numbers("source 10 1 1"));
    let file = file.to_str().unwrap();
    for (arguments, what) in [
        (
            &["start", file, "--name", "other", "--bind", "edge=laptop"][..],
            "read `alive/`",
        ),
        (&["machine", "list"], "read `alive/`"),
        (
            &["machine", "invite", "--role", "operator"],
            "manage `invitations/`",
        ),
        (&["machine", "approve", "robot"], "manage `machines/robot`"),
        (&["machine", "revoke", "laptop"], "manage `machines/laptop`"),
    ] {
        let (code, text) = refused(&fleet, 1, arguments);
        assert_eq!(code, Some(2), "{text}");
        let expected = format!("`robot` is a robot of this fleet, and may not {what}");
        assert!(text.contains(&expected), "{arguments:?}: {text}");
        assert!(text.contains("hint: "), "{text}");
    }
    fleet.await_samples(20);
    fleet.output(0, &["stop", "-d", "two"]);
    fleet.check_nothing_left();
}

#[test]
fn a_revoked_machine_is_cut_off_while_its_nodes_go_on_and_returns_by_invitation() {
    let mut fleet = Fleet::new(None);
    start_endless(&fleet, "source 1000000 5 100");
    let on_robot = |fleet: &Fleet| {
        let of_robot = fleet.processes().into_iter().filter(|pid| {
            let command = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&command).contains("source\u{0}1000000")
        });
        of_robot.collect::<BTreeSet<_>>()
    };
    let running = on_robot(&fleet);
    assert_eq!(
        fleet.output(0, &["machine", "revoke", "robot"]),
        "robot was revoked\n"
    );
    fleet.await_that("it is shown", |fleet| {
        is_listed(fleet, "robot", "robot", "revoked")
    });
    // The topic ends on the other machine, and the node that waits for it with it.
    fleet.await_that("the consumer's input is closed", |fleet| {
        fleet
            .actual("laptop")
            .is_some_and(|run| run["state"]["is"] == "ended")
    });
    let before = received(&fleet).len();
    let (_, text) = refused(&fleet, 1, &["machine", "list"]);
    assert!(
        text.contains("`robot` was revoked, and needs a new invitation"),
        "{text}"
    );
    assert_eq!(on_robot(&fleet), running, "its nodes go on");
    assert_eq!(received(&fleet).len(), before);
    // Without an invitation its daemon starts, and reaches no machine.
    fleet.daemons[1].as_mut().unwrap().kill();
    let line = fleet.output(0, &["machine", "invite"]);
    let words: Vec<&str> = line.split_ascii_whitespace().skip(1).collect();
    fleet.daemons[1] = Some(Daemon::start(fleet.command(1, &words)));
    fleet.daemon(1).line("robot is ready");
    fleet.await_that("it is reachable again", |fleet| {
        is_listed(fleet, "robot", "robot", "reachable")
    });
    // The revoked machine has no runs any more.
    fleet.await_that("its nodes have ended", |fleet| on_robot(fleet).is_empty());
    fleet.output(0, &["stop", "-d", "two"]);
    fleet.check_nothing_left();
}

#[test]
fn the_clock_of_a_machine_is_compared_with_that_of_the_coordinator() {
    let fleet = Fleet::new(None);
    let clock = |name: &str| {
        let list = fleet.json(0, &["machine", "list", "--json"]);
        let machines = list["machines"].as_array().unwrap();
        let mut named = machines.iter().filter(|machine| machine["name"] == name);
        named.next().unwrap()["clock"].clone()
    };
    fleet.await_that("it is known", |_| !clock("robot").is_null());
    let found = clock("robot");
    let field = |name: &str| found[name].as_i64().unwrap();
    // Both are this host's: the true offset is 0.
    assert!(
        field("offset_nanos").abs() <= field("error_nanos"),
        "{found}"
    );
    assert!(clock("laptop").is_null());
    fleet.check_nothing_left();
}

#[test]
fn down_ends_the_daemon_of_its_machine_and_no_dataflow() {
    let mut fleet = Fleet::new(None);
    start_endless(&fleet, "source 1000000 5 100");
    let nodes = fleet.processes();
    let daemon = fleet.daemon(1).child.id();
    let down: Value = serde_json::from_str(&fleet.output(1, &["down", "--json"])).unwrap();
    assert_eq!(down["daemon"], daemon, "{down:#}");
    let running = down["running"].as_array().unwrap();
    assert!(running.contains(&json!("two")), "{down:#}");
    let status = {
        let mut daemon = fleet.daemons[1].take().unwrap();
        fleet.wait(&mut daemon.child)
    };
    assert!(status.success(), "{status}");
    assert_eq!(fleet.processes(), nodes);
    let text = fleet.output(1, &["down"]);
    assert_eq!(text, "no daemon runs on this machine\n");
    // A hanging daemon is killed on demand only.
    fleet.daemons[1] = Some(Daemon::start(fleet.command(1, &["join"])));
    fleet.daemon(1).line("robot is ready");
    Process::new(fleet.daemon(1).child.id().into()).stop();
    let (code, text) = refused(&fleet, 1, &["down"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("nervure down --kill"), "{text}");
    assert_eq!(
        fleet.output(1, &["down", "--kill"]),
        "the daemon has ended\n"
    );
    fleet.daemons[1] = Some(Daemon::start(fleet.command(1, &["join"])));
    fleet.daemon(1).line("robot is ready");
    fleet.output(0, &["stop", "-d", "two"]);
    fleet.check_nothing_left();
}

#[test]
fn machines_of_an_image_wait_until_they_are_approved() {
    let mut fleet = Fleet::new(None);
    let line = fleet.output(
        0,
        &["machine", "invite", "--with-approval", "--valid", "720h"],
    );
    let words: Vec<&str> = line.split_ascii_whitespace().skip(1).collect();
    fleet.daemons[1].as_mut().unwrap().kill();
    let folder = fleet.folder.path().join("image");
    let start = |fleet: &Fleet| {
        let mut command = fleet.command(1, &[&words[..], &["--name", "robot"]].concat());
        command.env("NERVURE_STATE", &folder);
        Daemon::start(command)
    };
    // Another machine has the name.
    let daemon = start(&fleet);
    let line = daemon.line("waiting for approval");
    let name = line
        .split('`')
        .nth(1)
        .unwrap()
        .rsplit(' ')
        .next()
        .unwrap()
        .to_owned();
    assert!(name.starts_with("robot-"), "{line}");
    fleet.daemons[1] = Some(daemon);
    assert!(is_listed(&fleet, &name, "robot", "waits for approval"));
    let file = fleet.file(&numbers("source 10 1 1"));
    let bind = format!("robot={name}");
    let arguments = [
        "start",
        file.to_str().unwrap(),
        "--bind",
        "edge=laptop",
        "--bind",
        &bind,
    ];
    let (code, text) = refused(&fleet, 0, &arguments);
    assert_eq!(code, Some(2));
    assert!(
        text.contains(&format!("`{name}` waits for approval")),
        "{text}"
    );
    let approved = fleet.output(0, &["machine", "approve", &name]);
    assert_eq!(approved, format!("{name} belongs to the fleet, as robot\n"));
    fleet.await_that("it is reachable", |fleet| {
        is_listed(fleet, &name, "robot", "reachable")
    });
}

#[test]
fn domains_of_one_machine_have_fleets_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let in_domain = |domain: &str, arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_nervure"));
        command
            .args(arguments)
            .args(["--domain", domain])
            .env("NERVURE_STATE", folder.path())
            .env("NERVURE_LOG_DIR", folder.path().join("logs"))
            .stdin(Stdio::null());
        command
    };
    let up = ["red", "blue"].map(|domain| {
        let arguments = ["up", "--name", domain, "--address", "127.0.0.1:0"];
        let daemon = Daemon::start(in_domain(domain, &arguments));
        (daemon.line("nervure join"), daemon)
    });
    assert_ne!(up[0].0, up[1].0, "each has an address and a key of its own");
    for domain in ["red", "blue"] {
        let listed =
            output_in_time(&mut in_domain(domain, &["machine", "list", "--json"])).unwrap();
        let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
        let names: Vec<_> = listed["machines"].as_array().unwrap().iter().collect();
        assert_eq!(
            (names.len(), &names[0]["name"]),
            (1, &json!(domain)),
            "{listed}"
        );
    }
    let listed = output_in_time(&mut in_domain("", &["machine", "list"])).unwrap();
    let text = String::from_utf8(listed.stderr).unwrap();
    assert!(text.contains("this machine belongs to no fleet"), "{text}");
}

#[test]
fn an_invitation_of_the_environment_is_for_a_machine_that_has_not_joined() {
    let mut fleet = Fleet::new(None);
    let invitation = fleet.output(0, &["machine", "invite"]);
    let folder = fleet.folder.path().join("pod");
    let command = |fleet: &Fleet, invitation: &str, name: &str| {
        let mut command = fleet.command(1, &["join", "--name", name]);
        command.env("NERVURE_STATE", &folder);
        command.env("NERVURE_INVITATION", invitation);
        command
    };
    fleet.daemons[1].as_mut().unwrap().kill();
    let wrong = fleet.run(&mut command(&fleet, "nervure join 7", "edge"));
    let text = String::from_utf8(wrong.stderr).unwrap();
    assert_eq!(wrong.status.code(), Some(2), "{text}");
    assert!(
        text.contains("NERVURE_INVITATION: this is no invitation"),
        "{text}"
    );
    fleet.daemons[1] = Some(Daemon::start(command(&fleet, &invitation, "edge")));
    fleet.daemon(1).line("edge is ready");
    // The invitation is used up now, and no longer needed.
    fleet.daemons[1].as_mut().unwrap().kill();
    fleet.daemons[1] = Some(Daemon::start(command(&fleet, &invitation, "other")));
    fleet.daemon(1).line("this machine is `edge` in the fleet");
    fleet.daemon(1).line("edge is ready");
    fleet.check_nothing_left();
}

#[test]
fn machines_are_invited_approved_and_revoked_over_http() {
    let mut fleet = Fleet::new(None);
    let server = Server::start(fleet.command(0, &["serve", "--listen", "127.0.0.1:0"]));
    let invite = json!({"role": "observer", "with_approval": true, "valid_seconds": 60});
    let (status, invited) = server.api("POST", "/invitations", Some(invite));
    assert_eq!(status, 200, "{invited:#}");
    assert_eq!(invited["valid_seconds"], 60.0, "{invited:#}");
    let invitation = invited["invitation"].as_str().unwrap();
    fleet.daemons[1].as_mut().unwrap().kill();
    let mut command = fleet.command(1, &["join", invitation, "--name", "screen"]);
    command.env("NERVURE_STATE", fleet.folder.path().join("screen"));
    fleet.daemons[1] = Some(Daemon::start(command));
    fleet.daemon(1).line("waiting for approval");
    let standing = || {
        let machines = server.get("/machines")["machines"].clone();
        let machines = machines.as_array().unwrap().clone();
        let screen = machines.into_iter().find(|it| it["name"] == "screen");
        screen.map(|it| it["standing"].clone())
    };
    assert_eq!(standing(), Some(json!("waiting")));
    let (status, approved) = server.api("POST", "/machines/screen/approve", None);
    let expected = json!({"machine": "screen", "role": "observer", "standing": "paired"});
    assert_eq!((status, &approved), (200, &expected));
    fleet.daemon(1).line("screen is ready");
    let (status, revoked) = server.api("POST", "/machines/screen/revoke", None);
    assert_eq!((status, &revoked["standing"]), (200, &json!("revoked")));
    assert_eq!(standing(), Some(json!("revoked")));
    let (status, unknown) = server.api("POST", "/machines/--json/revoke", None);
    assert_eq!(status, 400, "{unknown:#}");
    drop(server);
    fleet.check_nothing_left();
}

/// The processes of a node on all machines.
fn processes_of(fleet: &Fleet, node: &str) -> usize {
    let is_node = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        let text = String::from_utf8_lossy(&environment);
        let mut variables = text.split('\0');
        variables.any(|it| it.starts_with("NERVURE_KEEPER=") && it.ends_with(&format!("/{node}")))
    };
    fleet.processes().iter().filter(|pid| is_node(pid)).count()
}

/// Copies a folder whose files may be replaced meanwhile.
fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let copied = match entry.file_type() {
            Ok(kind) if kind.is_dir() => {
                copy_folder(&entry.path(), &to.join(entry.file_name()));
                continue;
            }
            Ok(kind) if kind.is_file() => fs::copy(entry.path(), to.join(entry.file_name())),
            Ok(_) => continue,
            Err(error) => Err(error),
        };
        match copied {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => panic!("{}: {error}", entry.path().display()),
        }
    }
}

#[test]
fn a_copied_disk_is_noticed_and_its_daemon_refused() {
    let Some(namespaces) = Namespaces::new(1) else {
        return;
    };
    let fleet = Fleet::new(Some(namespaces));
    let before = fleet.folder.path().join("before");
    let copy = |to: &Path| copy_folder(&fleet.state(1), to);
    let join = |state: &Path| {
        let mut command = fleet.command(0, &["join"]);
        command.env("NERVURE_STATE", state);
        Daemon::start(command)
    };
    copy(&before);
    let mut first = join(&before);
    first.line("another daemon with the key of `robot` was there before");
    let named = fleet.daemon(0).line("two daemons have the key of robot");
    assert!(named.contains("at 10.77.0.2 and 10.77.0.1"), "{named}");
    start_endless(&fleet, "source 1000000 5 100");
    assert_eq!(processes_of(&fleet, "source"), 1);
    first.kill();

    // A folder copied while the node runs: its daemon would start it as after a power failure.
    let running = fleet.folder.path().join("running");
    copy(&running);
    let mut second = join(&running);
    second.line("another daemon with the key of `robot` was there before");
    fleet.await_samples(50);
    assert_eq!(processes_of(&fleet, "source"), 1);
    assert!(is_listed(&fleet, "robot", "robot", "reachable"));
    second.kill();
    fleet.output(0, &["stop", "-d", "two"]);
    fleet.check_nothing_left();
}
