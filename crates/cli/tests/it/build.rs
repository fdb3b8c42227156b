//! `nervure build`.

use std::fs;

use insta::assert_snapshot;
use serde_json::json;

use crate::dataflow::Dataflow;

fn build(dataflow: &Dataflow) -> String {
    let file = dataflow.write();
    let output = dataflow.command(&["build"]).arg(file.file_name().unwrap()).output().unwrap();
    let folder = dataflow.folder().display().to_string();
    let text = |bytes| String::from_utf8(bytes).unwrap().replace(&folder, "[FOLDER]");
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    // Findings of the file are the business of other tests.
    let stderr = &stderr[stderr.find("first: ").unwrap_or(0)..];
    format!(
        "exit code: {}\n----- stdout -----\n{stdout}----- stderr -----\n{stderr}",
        output.status.code().unwrap()
    )
}

#[test]
fn builds_run_in_order_in_the_folder() {
    let dataflow = Dataflow::new()
        .shell("first", "", json!({"build": "echo one > built\necho two >> built"}))
        .shell("second", "", json!({}))
        .shell("third", "", json!({"build": "echo $COLOUR >> built", "env": {"COLOUR": "green"}}));
    assert_snapshot!(build(&dataflow));
    assert_eq!(fs::read_to_string(dataflow.folder().join("built")).unwrap(), "one\ntwo\ngreen\n");
}

#[test]
fn the_first_failure_ends_the_build() {
    let dataflow = Dataflow::new().shell("first", "", json!({"build": "echo trouble >&2; exit 4"})).shell(
        "second",
        "",
        json!({"build": "touch built"}),
    );
    assert_snapshot!(build(&dataflow));
    assert!(!dataflow.folder().join("built").exists());
}

#[test]
fn one_build_may_make_the_programs_of_many_nodes() {
    let make = "echo > one; echo > two; chmod +x one two";
    let dataflow = Dataflow::new().shell("first", "", json!({"path": "./one", "build": make})).shell(
        "second",
        "",
        json!({"path": "./two"}),
    );
    assert_snapshot!(build(&dataflow));
    let validated = dataflow.command(&["validate"]).arg(dataflow.write()).status().unwrap();
    assert!(validated.success());
}
