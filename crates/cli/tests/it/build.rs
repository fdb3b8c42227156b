//! `nervure build`.

use std::fs;

use insta::assert_snapshot;
use serde_json::json;

use crate::dataflow::Dataflow;

fn build(dataflow: &Dataflow) -> String {
    let file = dataflow.write();
    let output = dataflow
        .command(&["build"])
        .arg(file.file_name().unwrap())
        .output()
        .unwrap();
    let folder = dataflow.folder().display().to_string();
    let text = |bytes| {
        String::from_utf8(bytes)
            .unwrap()
            .replace(&folder, "[FOLDER]")
    };
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    // Other tests check the findings of the file.
    let stderr = &stderr[stderr.find("first: ").unwrap_or(0)..];
    format!(
        "exit code: {}\n----- stdout -----\n{stdout}----- stderr -----\n{stderr}",
        output.status.code().unwrap()
    )
}

#[test]
fn builds_run_in_order_in_the_folder() {
    let dataflow = Dataflow::new()
        .shell(
            "first",
            "",
            json!({"build": "echo one > built\necho two >> built"}),
        )
        .shell("second", "", json!({}))
        .shell(
            "third",
            "",
            json!({"build": "echo $COLOUR >> built", "env": {"COLOUR": "green"}}),
        );
    assert_snapshot!(build(&dataflow));
    assert_eq!(
        fs::read_to_string(dataflow.folder().join("built")).unwrap(),
        "one\ntwo\ngreen\n"
    );
    let output = dataflow
        .command(&["build", "--json"])
        .arg(dataflow.write())
        .output()
        .unwrap();
    let parsed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(parsed["built"], json!(["first", "third"]));
}

#[test]
fn the_first_failure_ends_the_build() {
    let dataflow = Dataflow::new()
        .shell("first", "", json!({"build": "echo trouble >&2; exit 4"}))
        .shell("second", "", json!({"build": "touch built"}));
    assert_snapshot!(build(&dataflow));
    assert!(!dataflow.folder().join("built").exists());
}

#[test]
fn one_build_may_make_the_programs_of_several_nodes() {
    let make = "echo > one; echo > two; chmod +x one two";
    let dataflow = Dataflow::new()
        .shell("first", "", json!({"path": "./one", "build": make}))
        .shell("second", "", json!({"path": "./two"}));
    assert_snapshot!(build(&dataflow));
    let validated = dataflow
        .command(&["validate"])
        .arg(dataflow.write())
        .status()
        .unwrap();
    assert!(validated.success());
}

/// A package whose folder has the name of the command that its build installs on PATH.
fn package() -> Dataflow {
    let script = "#!/bin/sh\\necho runs";
    let install = format!(
        "mkdir -p bin; printf '{script}\\n' > bin/my-node; chmod +x bin/my-node; echo installed"
    );
    let dataflow = Dataflow::new()
        .raw(json!({"id": "package", "path": "my-node", "build": install}))
        .raw(json!({"id": "program", "path": "target/program", "build": "true"}))
        .shell("good", "echo > started", json!({}));
    fs::create_dir(dataflow.folder().join("my-node")).unwrap();
    dataflow
}

fn on_its_path(dataflow: &Dataflow, arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = dataflow.command(arguments);
    let bin = dataflow.folder().join("bin").display().to_string();
    command.env("PATH", format!("{bin}:{}", std::env::var("PATH").unwrap()));
    let output = command
        .arg(dataflow.write().file_name().unwrap())
        .output()
        .unwrap();
    (
        output.status.code(),
        String::from_utf8(output.stderr).unwrap() + &String::from_utf8(output.stdout).unwrap(),
    )
}

#[test]
fn programs_that_are_not_built_are_errors_before_anything_starts() {
    let dataflow = package();
    let (code, said) = on_its_path(&dataflow, &["run"]);
    assert_eq!(code, Some(2), "{said}");
    for program in ["my-node", "target/program"] {
        assert!(
            said.contains(&format!(
                "error[not-built]: the program `{program}` is not there yet"
            )),
            "{said}"
        );
    }
    assert!(
        said.contains("--> test.yml:1:") && said.contains("build it: `nervure build`, or"),
        "{said}"
    );
    assert!(
        !dataflow.folder().join("started").exists() && !dataflow.folder().join("logs").exists()
    );
}

#[test]
fn a_program_that_the_build_does_not_make_is_an_error() {
    let dataflow = package();
    let (code, said) = on_its_path(&dataflow, &["build"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(
        said.contains("error[not-built]: the program `target/program` is not there yet"),
        "{said}"
    );
    assert!(!said.contains("the program `my-node`"), "{said}");
}

#[test]
fn a_run_may_build_first() {
    let dataflow = package();
    fs::create_dir(dataflow.folder().join("target")).unwrap();
    fs::copy("/bin/true", dataflow.folder().join("target/program")).unwrap();
    let (code, said) = on_its_path(&dataflow, &["run", "--build"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("package | runs"), "{said}");
    let (code, said) = on_its_path(&dataflow, &["run", "--build", "--json"]);
    let of_build: Vec<_> = said
        .lines()
        .filter(|line| line.contains("installed"))
        .collect();
    assert_eq!(code, Some(0), "{said}");
    assert!(of_build.contains(&"installed"), "{said}");
    let mut command = dataflow.command(&["run", "--build", "--json"]);
    command.arg(dataflow.write()).env(
        "PATH",
        format!("{}/bin:/usr/bin:/bin", dataflow.folder().display()),
    );
    let stdout = String::from_utf8(command.output().unwrap().stdout).unwrap();
    let lines: Vec<Option<serde_json::Value>> = stdout
        .lines()
        .map(|line| serde_json::from_str(line).ok())
        .collect();
    assert!(
        !lines.is_empty() && lines.iter().all(Option::is_some),
        "the output of a build is not data: {stdout}"
    );
}
