//! Errors in a command line or a file are reported before anything starts; these tests need no
//! rights.

use crate::emulator::emulator;

fn refused(arguments: &[&str]) -> String {
    let output = emulator(arguments).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(output.stdout.is_empty());
    message
}

#[test]
fn values_say_what_was_expected() {
    let message = refused(&["run", "--rate", "54", "--", "true", "---", "true"]);
    assert!(
        message.contains("expected a rate such as \"54mbit\""),
        "{message}"
    );
    let message = refused(&["run", "--loss", "200%", "--", "true", "---", "true"]);
    assert!(
        message.contains("expected a share such as \"20%\""),
        "{message}"
    );
    let message = refused(&["run", "--until", "c", "--", "true", "---", "true"]);
    assert_eq!(
        message,
        "error: --until: expected one of the hosts a, b, got `c`\n"
    );
}

#[test]
fn hosts_and_commands_belong_together() {
    let message = refused(&["run", "--", "true"]);
    assert!(
        message.starts_with("error: expected a command for each of the 2 hosts (a, b), got 1\n"),
        "{message}"
    );
    assert!(
        message.contains("hint: -- COMMAND --- COMMAND"),
        "{message}"
    );
    let message = refused(&["run", "--hosts", "a,b,c", "--", "true", "---", "true"]);
    assert!(message.contains("3 hosts (a, b, c), got 2"), "{message}");
    let message = refused(&["run", "--", "true", "---"]);
    assert!(
        message.contains("expected a command between, before and after each `---`"),
        "{message}"
    );
}

#[test]
fn a_scenario_file_is_quoted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drive.toml");
    std::fs::write(&path, "seed = 1\n\n[link]\nrate = \"fast\"\n").unwrap();
    let message = refused(&[
        "run",
        "--scenario",
        path.to_str().unwrap(),
        "--",
        "true",
        "---",
        "true",
    ]);
    for part in [
        "drive.toml: ",
        "line 4",
        "rate = \"fast\"",
        "expected a rate such as",
        "got `fast`",
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    let message = refused(&[
        "run",
        "--scenario",
        "/no/such.toml",
        "--",
        "true",
        "---",
        "true",
    ]);
    assert!(message.contains("cannot read /no/such.toml"), "{message}");
}
