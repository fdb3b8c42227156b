//! `nervure --help` and wrong command lines.

use insta::assert_snapshot;

use crate::dataflow::nervure;

fn output(arguments: &[&str]) -> String {
    let output = nervure(std::path::Path::new("/"))
        .args(arguments)
        .output()
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    format!(
        "exit code: {}\n----- stdout -----\n{}----- stderr -----\n{}",
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr)
    )
}

#[test]
fn help() {
    assert_snapshot!(output(&["--help"]));
}

#[test]
fn help_of_run() {
    assert_snapshot!(output(&["run", "--help"]));
}

#[test]
fn no_command() {
    assert_snapshot!(output(&[]));
}

#[test]
fn unknown_command() {
    assert_snapshot!(output(&["vaildate", "x.yml"]));
}

#[test]
fn a_dataflow_without_its_option() {
    assert_snapshot!(output(&["stop", "drive"]));
}

#[test]
fn duration_without_unit() {
    assert_snapshot!(output(&["run", "x.yml", "--stop-after", "10"]));
}

#[test]
fn version() {
    assert!(output(&["--version"]).contains(&format!("nervure {}", env!("CARGO_PKG_VERSION"))));
}

#[test]
fn a_failed_write_to_stdout_is_a_failure() {
    let full = || {
        std::fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap()
    };
    let root = std::path::Path::new("/");
    for arguments in [
        &["--help"][..],
        &["--version"],
        &["list", "--json"],
        &["schema"],
    ] {
        let output = nervure(root)
            .args(arguments)
            .stdout(full())
            .output()
            .unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {stderr}");
        assert!(
            stderr.starts_with("error: cannot write to stdout\n  caused by: No space left"),
            "{stderr}"
        );
    }
    let status = nervure(root)
        .args(["validate", "none.yml"])
        .stderr(full())
        .status()
        .unwrap();
    assert_eq!(
        status.code(),
        Some(2),
        "also where the error cannot be printed"
    );
}
