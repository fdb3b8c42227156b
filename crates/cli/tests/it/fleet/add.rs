//! `nervure machine add`, with an `ssh` that runs its command on this host, with another state.

use std::os::unix::fs::PermissionsExt;

use super::*;

/// Knows these hosts: `pi@r2`, where Nervure is, `pi@bare`, where it is not, and no others. Notes its
/// options in a file.
const SSH: &str = r#"#!/bin/sh
while [ "$1" != -- ]; do echo "$1" >> FOLDER/options; shift; done
host=$2; shift 2
echo "$*" >> FOLDER/commands
unset NERVURE_STATE NERVURE_LOG_DIR
case $host in
  pi@r2)
    echo 'Welcome to r2'
    NERVURE_STATE=FOLDER/r2 NERVURE_LOG_DIR=FOLDER/r2-logs PATH=BIN:/usr/bin:/bin exec sh -c "$*" ;;
  pi@bare)
    HOME=FOLDER PATH=/usr/bin:/bin exec sh -c "$*" ;;
  *)
    echo "ssh: Could not resolve hostname $host: Name or service not known" >&2
    exit 255 ;;
esac
"#;

/// A folder with this `ssh`.
fn folder_with_ssh(fleet: &Fleet) -> PathBuf {
    let bin = Path::new(env!("CARGO_BIN_EXE_nervure")).parent().unwrap();
    let script = SSH
        .replace("FOLDER", fleet.folder.path().to_str().unwrap())
        .replace("BIN", bin.to_str().unwrap());
    let folder = fleet.folder.path().join("bin");
    fs::create_dir(&folder).unwrap();
    let ssh = folder.join("ssh");
    fs::write(&ssh, script).unwrap();
    fs::set_permissions(&ssh, fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

/// Adds a machine with the `ssh` of a folder.
fn add(fleet: &Fleet, folder: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let arguments = [&["machine", "add"], arguments].concat();
    let path = format!("{}:/usr/bin:/bin", folder.display());
    let mut command = fleet.command(0, &arguments);
    let output = fleet.run(command.env("PATH", path));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

#[test]
fn a_machine_is_added_over_ssh() {
    let fleet = Fleet::new(None);
    let ssh = folder_with_ssh(&fleet);
    let with = [
        "pi@r2",
        "--name",
        "r2",
        "--label",
        "room=Bob's lab",
        "--json",
        "--",
        "-p",
        "2222",
    ];
    let (code, stdout, stderr) = add(&fleet, &ssh, &with);
    assert_eq!(code, Some(0), "{stderr}");
    let added: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(
        (&added["machine"], &added["role"]),
        (&json!("r2"), &json!("robot"))
    );
    fleet.await_that("it is reachable", |fleet| {
        is_listed(fleet, "r2", "robot", "reachable")
    });
    let list = fleet.json(0, &["machine", "list", "--json"]);
    let mut machines = list["machines"].as_array().unwrap().iter();
    let r2 = machines.find(|machine| machine["name"] == "r2").unwrap();
    assert_eq!(r2["actual"]["labels"]["room"], "Bob's lab");
    let options = fs::read_to_string(fleet.folder.path().join("options")).unwrap();
    assert_eq!(options, "-p\n2222\n");
    // The secret is neither among the arguments of ssh, nor of the daemon.
    let commands = fs::read_to_string(fleet.folder.path().join("commands")).unwrap();
    assert!(!commands.contains('#'), "{commands}");
    let arguments = fs::read(format!("/proc/{}/cmdline", added["daemon"])).unwrap();
    assert!(arguments.ends_with(b"join\0"), "{arguments:?}");
    // A second call leaves its daemon running.
    let (code, stdout, stderr) = add(&fleet, &ssh, &["pi@r2", "--json"]);
    assert_eq!(code, Some(0), "{stderr}");
    assert_eq!(serde_json::from_str::<Value>(&stdout).unwrap(), added);
    let down = fleet.output(2, &["down"]);
    assert!(down.contains("the daemon has ended"), "{down}");
    // It is paired, and needs no invitation.
    let again = fleet.output(2, &["join", "--detach"]);
    assert!(again.starts_with("r2 belongs to the fleet"), "{again}");
    fleet.await_that("it is back", |fleet| {
        is_listed(fleet, "r2", "robot", "reachable")
    });
    fleet.output(2, &["down"]);
}

#[test]
fn each_failure_names_its_cause_and_what_to_do() {
    let fleet = Fleet::new(None);
    let ssh = folder_with_ssh(&fleet);
    let nothing = fleet.folder.path().join("nothing");
    let (code, _, text) = {
        let mut command = fleet.command(0, &["machine", "add", "pi@r2"]);
        let output = fleet.run(command.env("PATH", nothing));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.code(), (), text)
    };
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("there is no `ssh` on this machine"), "{text}");
    assert!(text.contains("apt install openssh-client"), "{text}");
    for (arguments, code, parts) in [
        (
            &["pi@nowhere"][..],
            1,
            [
                "SSH does not reach `pi@nowhere`",
                "Could not resolve hostname",
            ],
        ),
        (
            &["pi@bare"],
            2,
            [
                "`pi@bare` has no command `nervure`",
                "apt install ./nervure_",
            ],
        ),
        (
            &["pi@r2", "--program", "/opt/none"],
            2,
            ["`pi@r2` has no command `/opt/none`", "--program PATH"],
        ),
        (
            &["pi@r2", "--name", "robot"],
            1,
            ["`pi@r2` has not joined", "robot"],
        ),
        (&["--", "-oProxyCommand=true"], 2, ["USER@HOST", "Usage"]),
    ] {
        let (ended, _, text) = add(&fleet, &ssh, arguments);
        assert_eq!(ended, Some(code), "{arguments:?}: {text}");
        for part in parts {
            assert!(text.contains(part), "{arguments:?}: {part}: {text}");
        }
    }
    let list = fleet.json(0, &["machine", "list", "--json"]);
    assert_eq!(list["machines"].as_array().unwrap().len(), 2, "{list}");
    // A robot may not invite.
    let (code, text) = refused(&fleet, 1, &["machine", "add", "pi@r2"]);
    assert_eq!(code, Some(2), "{text}");
}
